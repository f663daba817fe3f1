//! A captured sequence of work, replayed as one submission.
//!
//! Owns: the graph, its executable form, and the handles of its kernel nodes in the order they were captured.
//! Always true: both forms live as long as this value; arguments are copied into the graph, so a caller's struct may go.
//! Not here: capturing (`Stream::capture`).

use super::context::Context;
use super::module::{Function, Shape};
use super::stream::Stream;
use super::sys;
use crate::error::{Error, Result};

/// Captured work. Memory that it touches must outlive it, and stay mapped at the same addresses.
pub struct Graph {
    context: Context,
    graph: sys::hipGraph_t,
    exec: sys::hipGraphExec_t,
    kernels: Vec<sys::hipGraphNode_t>,
}

// SAFETY: HIP's calls may come from any thread; which one does is the context's check.
unsafe impl Send for Graph {}

impl Graph {
    pub(super) fn new(context: &Context, graph: sys::hipGraph_t) -> Result<Graph> {
        let api = context.api();
        // From here on `Drop` destroys what exists.
        let mut made = Graph { context: context.clone(), graph, exec: std::ptr::null_mut(), kernels: Vec::new() };
        // SAFETY: the graph was just captured and is ours; so are its nodes.
        for node in unsafe { api.graph_nodes(graph) }? {
            // SAFETY: as above.
            if unsafe { api.is_kernel_node(node) }? {
                made.kernels.push(node);
            }
        }
        // SAFETY: as above.
        made.exec = unsafe { api.instantiate(graph) }?;
        Ok(made)
    }

    /// Launches that were captured.
    pub fn kernels(&self) -> usize {
        self.kernels.len()
    }

    /// Replays everything on the stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both handles live as long as their values; memory is the owner's promise (see the type).
        Ok(unsafe { self.context.calls()?.launch_graph(self.exec, stream.handle()) }?)
    }

    /// Changes launch number `index` for the replays that follow.
    pub fn update<T: Copy + 'static>(
        &mut self,
        index: usize,
        function: &Function,
        shape: Shape,
        arguments: &T,
    ) -> Result<()> {
        let Some(&node) = self.kernels.get(index) else {
            return Err(Error::invalid(format!("a graph of {} launches has no launch {index}", self.kernels.len())));
        };
        function.check(&shape, size_of::<T>())?;
        let api = self.context.calls()?;
        let argument = std::ptr::from_ref(arguments).cast();
        // SAFETY: the handles live as long as their values, and the size is what the kernel reads.
        Ok(unsafe { api.set_kernel_node(self.exec, node, function.handle(), &shape, argument) }?)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let api = self.context.api();
        if !self.exec.is_null() {
            // SAFETY: nobody else has the handle.
            self.context.record(unsafe { api.destroy_exec(self.exec) });
        }
        // SAFETY: nobody else has the handle, and its executable form is gone.
        self.context.record(unsafe { api.destroy_graph(self.graph) });
    }
}
