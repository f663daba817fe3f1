//! Graphs and what was instantiated of them.
//!
//! Owns: nodes by handle, executables as copies. Always true: an executable does not change with its graph; a launch
//! takes the parameters it finds and later changes leave it alone. Not here: capturing (`capture`), order (`queue`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::capture::CapturedNode;
use super::work::{KernelCall, Work};
use super::{HostRuntime, State};
use crate::abi::{
    Dim3, Function, Graph, GraphExec, GraphNode, KernelNodeParams, NODE_COPY, NODE_EMPTY, NODE_FILL, NODE_HOST,
    NODE_KERNEL, Stream, UPDATE_ERROR, UPDATE_FUNCTION_CHANGED, UPDATE_NODE_TYPE_CHANGED, UPDATE_TOPOLOGY_CHANGED,
};
use crate::calls::{Arguments, GraphCalls, LaunchShape};
use crate::error::{HipError, Outcome};

/// A graph: handles of its nodes beside the nodes.
#[derive(Debug)]
pub struct GraphState {
    handles: Vec<u64>,
    nodes: Vec<CapturedNode>,
}

/// An executable graph.
#[derive(Debug)]
pub struct ExecState {
    /// Its own copy of the nodes.
    pub nodes: Vec<CapturedNode>,
    /// The graph it was made of.
    graph: u64,
}

/// Graphs and executables by handle.
#[derive(Debug, Default)]
pub struct Graphs {
    graphs: BTreeMap<u64, GraphState>,
    execs: BTreeMap<u64, ExecState>,
}

impl Graphs {
    /// Keeps a captured graph; `handles` are its nodes'.
    pub fn insert(&mut self, graph: u64, nodes: Vec<CapturedNode>, handles: Vec<u64>) {
        self.graphs.insert(graph, GraphState { handles, nodes });
    }

    /// Destroys a graph.
    pub fn remove(&mut self, graph: u64) -> Outcome {
        self.graphs.remove(&graph).map(drop).ok_or(HipError::INVALID_VALUE)
    }

    /// Destroys an executable.
    pub fn remove_exec(&mut self, exec: u64) -> Outcome {
        self.execs.remove(&exec).map(drop).ok_or(HipError::INVALID_VALUE)
    }

    fn graph(&self, graph: u64) -> Outcome<&GraphState> {
        self.graphs.get(&graph).ok_or(HipError::INVALID_VALUE)
    }

    /// An executable by its handle.
    pub fn exec(&self, exec: u64) -> Outcome<&ExecState> {
        self.execs.get(&exec).ok_or(HipError::INVALID_VALUE)
    }

    /// Handles of a graph's nodes.
    pub fn nodes(&self, graph: u64) -> Outcome<Vec<u64>> {
        Ok(self.graph(graph)?.handles.clone())
    }

    fn locate(&self, node: u64) -> Outcome<(u64, usize)> {
        let place = |(graph, state): (&u64, &GraphState)| {
            state.handles.iter().position(|handle| *handle == node).map(|index| (*graph, index))
        };
        self.graphs.iter().find_map(place).ok_or(HipError::INVALID_VALUE)
    }

    /// A node's work by its handle.
    pub fn work(&self, node: u64) -> Outcome<&Work> {
        let (graph, index) = self.locate(node)?;
        Ok(&self.graph(graph)?.nodes[index].work)
    }

    /// Makes an executable.
    pub fn instantiate(&mut self, exec: u64, graph: u64) -> Outcome {
        let nodes = self.graph(graph)?.nodes.clone();
        self.execs.insert(exec, ExecState { nodes, graph });
        Ok(())
    }

    /// Gives a kernel node of an executable new parameters. The node is the graph's, which must be alive.
    pub fn set_kernel(&mut self, exec: u64, node: u64, call: KernelCall) -> Outcome {
        let (graph, index) = self.locate(node)?;
        let exec = self.execs.get_mut(&exec).filter(|exec| exec.graph == graph).ok_or(HipError::INVALID_VALUE)?;
        match &mut exec.nodes[index].work {
            Work::Kernel(old) => *old = Arc::new(call),
            _ => return Err(HipError::INVALID_VALUE),
        }
        Ok(())
    }

    /// Takes over the parameters of a graph of the same shape; else the node that differs and how.
    pub fn update(&mut self, exec: u64, graph: u64) -> Result<(), (HipError, u64, i32)> {
        let invalid = (HipError::INVALID_VALUE, 0, UPDATE_ERROR);
        let Some(graph) = self.graphs.get(&graph) else { return Err(invalid) };
        let Some(exec) = self.execs.get_mut(&exec) else { return Err(invalid) };
        let differs = |node: u64, how| Err((HipError::GRAPH_EXEC_UPDATE_FAILURE, node, how));
        if graph.nodes.len() != exec.nodes.len() {
            return differs(0, UPDATE_TOPOLOGY_CHANGED);
        }
        for ((new, old), handle) in graph.nodes.iter().zip(&exec.nodes).zip(&graph.handles) {
            if new.after != old.after {
                return differs(*handle, UPDATE_TOPOLOGY_CHANGED);
            }
            if node_type(&new.work) != node_type(&old.work) {
                return differs(*handle, UPDATE_NODE_TYPE_CHANGED);
            }
            if let (Work::Kernel(new), Work::Kernel(old)) = (&new.work, &old.work)
                && !(new.function.name == old.function.name && Arc::ptr_eq(&new.function.module, &old.function.module))
            {
                return differs(*handle, UPDATE_FUNCTION_CHANGED);
            }
        }
        exec.nodes.clone_from(&graph.nodes);
        Ok(())
    }
}

/// `hipGraphNodeType` of a node's work.
pub fn node_type(work: &Work) -> i32 {
    match work {
        Work::Kernel(_) => NODE_KERNEL,
        Work::Copy { .. } => NODE_COPY,
        Work::Fill { .. } => NODE_FILL,
        Work::Host { .. } => NODE_HOST,
        Work::Stamp(_) | Work::Nothing => NODE_EMPTY,
    }
}

impl GraphCalls for HostRuntime {
    fn graph_instantiate(&self, graph: Graph) -> Outcome<GraphExec> {
        let mut state = self.state();
        let handle = state.new_handle();
        state.graphs.instantiate(handle, graph as u64)?;
        Ok(handle as GraphExec)
    }

    fn graph_launch(&self, exec: GraphExec, stream: Stream) -> Outcome {
        let mut state = self.state();
        // A graph inside a capture would be a child node, which the host does without.
        state.forbid_if_capturing(stream as u64)?;
        let State { graphs, queue, .. } = &mut *state;
        let nodes = &graphs.exec(exec as u64)?.nodes;
        queue.push_graph(stream as u64, nodes.iter().map(|node| (&node.work, &node.after[..])));
        Ok(())
    }

    fn graph_destroy(&self, graph: Graph) -> Outcome {
        self.state().graphs.remove(graph as u64)
    }

    fn graph_exec_destroy(&self, exec: GraphExec) -> Outcome {
        self.state().graphs.remove_exec(exec as u64)
    }

    fn graph_nodes(&self, graph: Graph) -> Outcome<Vec<GraphNode>> {
        let nodes = self.state().graphs.nodes(graph as u64)?;
        Ok(nodes.into_iter().map(|node| node as GraphNode).collect())
    }

    fn graph_node_type(&self, node: GraphNode) -> Outcome<i32> {
        self.state().graphs.work(node as u64).map(node_type)
    }

    fn graph_kernel_params(&self, node: GraphNode) -> Outcome<KernelNodeParams> {
        let state = self.state();
        let Work::Kernel(call) = state.graphs.work(node as u64)? else { return Err(HipError::INVALID_VALUE) };
        let dimensions = |[x, y, z]: [u32; 3]| Dim3 { x, y, z };
        Ok(KernelNodeParams {
            block: dimensions(call.shape.block),
            extra: std::ptr::null_mut(),
            function: state.modules.handle_of(&call.function) as Function,
            grid: dimensions(call.shape.grid),
            arguments: std::ptr::from_ref::<usize>(&call.segment).cast_mut().cast(),
            dynamic_lds: call.shape.dynamic_lds,
        })
    }

    unsafe fn graph_exec_set_kernel_params(
        &self,
        exec: GraphExec,
        node: GraphNode,
        shape: LaunchShape,
        function: Function,
        arguments: Arguments<'_>,
    ) -> Outcome {
        let mut state = self.state();
        // SAFETY: the caller's.
        let call = unsafe { state.modules.prepare(function as u64, shape, arguments) }?;
        state.graphs.set_kernel(exec as u64, node as u64, call)
    }

    fn graph_exec_update(&self, exec: GraphExec, graph: Graph) -> Result<(), (HipError, GraphNode, i32)> {
        let updated = self.state().graphs.update(exec as u64, graph as u64);
        updated.map_err(|(error, node, how)| (error, node as GraphNode, how))
    }
}
