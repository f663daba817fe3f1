//! Graphs: CUDA's, with kernel parameters in HIP's layout.
//!
//! Owns: that conversion. Always true: dynamic shared memory that stands for static LDS is added on the way in and
//! taken off on the way out, so the host sees what it launched. Not here: capture (`stream`).

use hip_facade::abi::{Dim3, Function, Graph, GraphExec, GraphNode, KernelNodeParams, Stream};
use hip_facade::calls::{Arguments, GraphCalls, LaunchShape};
use hip_facade::{HipError, Outcome};

use crate::NvidiaRuntime;
use crate::driver::{KernelNode, UpdateInfo};
use crate::module::CudaArguments;

impl GraphCalls for NvidiaRuntime {
    fn graph_instantiate(&self, graph: Graph) -> Outcome<GraphExec> {
        let mut exec = core::ptr::null_mut();
        // SAFETY: a pointer to a local.
        unsafe { self.cuda()?.graph_instantiate(&mut exec, graph, 0) }?;
        Ok(exec)
    }

    fn graph_launch(&self, exec: GraphExec, stream: Stream) -> Outcome {
        // SAFETY: CUDA's contract for handles is HIP's.
        unsafe { self.cuda()?.graph_launch(exec, stream) }
    }

    fn graph_destroy(&self, graph: Graph) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.graph_destroy(graph) }
    }

    fn graph_exec_destroy(&self, exec: GraphExec) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.graph_exec_destroy(exec) }
    }

    fn graph_nodes(&self, graph: Graph) -> Outcome<Vec<GraphNode>> {
        let (cuda, mut count) = (self.cuda()?, 0);
        // SAFETY: first the number, then a list of that length.
        unsafe {
            cuda.graph_nodes(graph, core::ptr::null_mut(), &mut count)?;
            let mut nodes = vec![core::ptr::null_mut(); count];
            if count > 0 {
                cuda.graph_nodes(graph, nodes.as_mut_ptr(), &mut count)?;
            }
            nodes.truncate(count);
            Ok(nodes)
        }
    }

    fn graph_node_type(&self, node: GraphNode) -> Outcome<i32> {
        let mut kind = 0;
        // SAFETY: a pointer to a local.
        unsafe { self.cuda()?.graph_node_type(node, &mut kind) }?;
        Ok(kind)
    }

    fn graph_kernel_params(&self, node: GraphNode) -> Outcome<KernelNodeParams> {
        let null = core::ptr::null_mut;
        let mut found = KernelNode {
            function: null(),
            grid: [0; 3],
            block: [0; 3],
            shared: 0,
            arguments: core::ptr::null_mut(),
            extra: core::ptr::null_mut(),
            kernel: null(),
            context: null(),
        };
        // SAFETY: a pointer to a local.
        unsafe { self.cuda()?.graph_kernel_params(node, &mut found) }?;
        // A driver may name a kernel it loaded lazily as a CUkernel, which every call takes for a CUfunction.
        let function = if found.function.is_null() { found.kernel } else { found.function };
        let dimensions = |[x, y, z]: [u32; 3]| Dim3 { x, y, z };
        Ok(KernelNodeParams {
            block: dimensions(found.block),
            extra: found.extra,
            function,
            grid: dimensions(found.grid),
            arguments: found.arguments,
            dynamic_lds: found.shared.saturating_sub(self.functions.of(function).lds_bytes),
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
        let mut arguments = CudaArguments::new(arguments);
        let (list, extra) = arguments.pointers();
        let wanted = KernelNode {
            function,
            grid: shape.grid,
            block: shape.block,
            shared: shape.dynamic_lds.saturating_add(self.functions.of(function).lds_bytes),
            arguments: list,
            extra,
            kernel: core::ptr::null_mut(),
            context: core::ptr::null_mut(),
        };
        // SAFETY: the caller's arguments, which CUDA copies.
        unsafe { self.cuda()?.graph_exec_set_kernel(exec, node, &wanted) }
    }

    fn graph_exec_update(&self, exec: GraphExec, graph: Graph) -> Result<(), (HipError, GraphNode, i32)> {
        let mut info = UpdateInfo { result: 1, node: core::ptr::null_mut(), from: core::ptr::null_mut() };
        let cuda = self.cuda().map_err(|error| (error, core::ptr::null_mut(), 1))?;
        // SAFETY: a pointer to a local.
        unsafe { cuda.graph_exec_update(exec, graph, &mut info) }.map_err(|error| (error, info.node, info.result))
    }
}
