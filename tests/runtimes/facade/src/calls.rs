//! HIP's calls as safe Rust, one trait a subject: what a stand-in implements.
//!
//! Owns: the meaning of each call in a line; HIP's documentation has the rest. Always true: an implementation answers
//! bad handles and values with an error; a device address is a `u64`. Not here: the C symbols and their pointers
//! (`exports`), counting and failing on demand (`gate`).

use core::ffi::{CStr, c_int, c_uint, c_void};

use crate::abi::{
    DeviceProperties, Event, Function, Graph, GraphExec, GraphNode, HostFunction, KernelNodeParams, MemoryAccess,
    MemoryLocation, ModuleHandle, Physical, PhysicalProperties, Stream,
};
use crate::error::Outcome;

/// All of HIP that a stand-in answers.
pub trait Runtime:
    DeviceCalls + MemoryCalls + StreamCalls + ModuleCalls + GraphCalls + VirtualMemoryCalls + Send + Sync
{
    /// Forgets queued work, captures and a lost context. Allocations and handles stay.
    fn reset(&self);
    /// The executor's profile as JSON, `[]` if it has none.
    fn profile(&self) -> String;
}

/// Devices, versions, waiting for everything.
pub trait DeviceCalls {
    /// `hipInit`
    fn init(&self, flags: c_uint) -> Outcome;
    /// `hipRuntimeGetVersion`
    fn runtime_version(&self) -> Outcome<c_int>;
    /// `hipDriverGetVersion`
    fn driver_version(&self) -> Outcome<c_int>;
    /// `hipGetDeviceCount`
    fn device_count(&self) -> Outcome<c_int>;
    /// `hipSetDevice`
    fn set_device(&self, device: c_int) -> Outcome;
    /// `hipGetDevice`
    fn device(&self) -> Outcome<c_int>;
    /// `hipDeviceGet`
    fn device_by_ordinal(&self, ordinal: c_int) -> Outcome<c_int>;
    /// `hipDeviceGetName`
    fn device_name(&self, device: c_int) -> Outcome<String>;
    /// `hipDeviceTotalMem`
    fn device_memory(&self, device: c_int) -> Outcome<usize>;
    /// `hipDeviceGetAttribute`
    fn device_attribute(&self, attribute: c_int, device: c_int) -> Outcome<c_int>;
    /// `hipGetDeviceProperties`
    fn device_properties(&self, device: c_int) -> Outcome<DeviceProperties>;
    /// `hipDeviceGetPCIBusId`
    fn device_bus_id(&self, device: c_int) -> Outcome<String>;
    /// `hipMemGetInfo`: free and total bytes.
    fn memory_info(&self) -> Outcome<(usize, usize)>;
    /// `hipDeviceSynchronize`
    fn device_synchronize(&self) -> Outcome;
}

/// A value that memory is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// `hipMemset`, `hipMemsetD8`: bytes.
    Byte(u8),
    /// `hipMemsetD32`: 32-bit words.
    Word(u32),
}

/// Device and pinned memory, copies and fills.
pub trait MemoryCalls {
    /// `hipMalloc`
    fn malloc(&self, bytes: usize) -> Outcome<u64>;
    /// `hipFree`
    fn free(&self, address: u64) -> Outcome;
    /// `hipHostMalloc`
    fn host_malloc(&self, bytes: usize, flags: c_uint) -> Outcome<u64>;
    /// `hipHostFree`
    fn host_free(&self, address: u64) -> Outcome;
    /// `hipHostGetDevicePointer`
    fn host_device_pointer(&self, address: u64) -> Outcome<u64>;
    /// `hipHostRegister`
    ///
    /// # Safety
    /// The range is the caller's memory and stays so until it is unregistered.
    unsafe fn host_register(&self, address: u64, bytes: usize, flags: c_uint) -> Outcome;
    /// `hipHostUnregister`
    fn host_unregister(&self, address: u64) -> Outcome;
    /// `hipMemcpy` and its kin without a stream.
    ///
    /// # Safety
    /// A range that is no allocation of this library is the caller's memory.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, kind: c_int) -> Outcome;
    /// `hipMemcpyAsync` and its kin.
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    unsafe fn copy_async(&self, to: u64, from: u64, bytes: usize, kind: c_int, stream: Stream) -> Outcome;
    /// `hipMemset` (on the null stream), `hipMemsetAsync` and their kin: `count` times the pattern.
    fn fill(&self, to: u64, pattern: Pattern, count: usize, stream: Stream) -> Outcome;
}

/// Streams, events, capture.
pub trait StreamCalls {
    /// `hipStreamCreateWithFlags`
    fn stream_create(&self, flags: c_uint) -> Outcome<Stream>;
    /// `hipStreamDestroy`
    fn stream_destroy(&self, stream: Stream) -> Outcome;
    /// `hipStreamSynchronize`
    fn stream_synchronize(&self, stream: Stream) -> Outcome;
    /// `hipStreamQuery`
    fn stream_query(&self, stream: Stream) -> Outcome;
    /// `hipStreamWaitEvent`
    fn stream_wait_event(&self, stream: Stream, event: Event, flags: c_uint) -> Outcome;
    /// `hipLaunchHostFunc`
    ///
    /// # Safety
    /// The function may be called with this pointer from any thread until the stream has passed it.
    unsafe fn launch_host_function(&self, stream: Stream, function: HostFunction, user: *mut c_void) -> Outcome;
    /// `hipEventCreateWithFlags`
    fn event_create(&self, flags: c_uint) -> Outcome<Event>;
    /// `hipEventDestroy`
    fn event_destroy(&self, event: Event) -> Outcome;
    /// `hipEventRecord`
    fn event_record(&self, event: Event, stream: Stream) -> Outcome;
    /// `hipEventQuery`
    fn event_query(&self, event: Event) -> Outcome;
    /// `hipEventSynchronize`
    fn event_synchronize(&self, event: Event) -> Outcome;
    /// `hipEventElapsedTime` in milliseconds.
    fn event_elapsed(&self, start: Event, stop: Event) -> Outcome<f32>;
    /// `hipStreamBeginCapture`
    fn capture_begin(&self, stream: Stream, mode: c_int) -> Outcome;
    /// `hipStreamEndCapture`
    fn capture_end(&self, stream: Stream) -> Outcome<Graph>;
    /// `hipStreamGetCaptureInfo`: status and the sequence's number.
    fn capture_info(&self, stream: Stream) -> Outcome<(c_int, u64)>;
}

/// Shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Workgroups.
    pub grid: [u32; 3],
    /// Work-items a workgroup.
    pub block: [u32; 3],
    /// LDS beside the static one, in bytes.
    pub dynamic_lds: u32,
}

/// A kernel's arguments as the caller gave them.
#[derive(Debug, Clone, Copy)]
pub enum Arguments<'a> {
    /// `kernelParams`: one pointer an argument. Our kernels have exactly one, a struct (hip/abi.h).
    Pointers(*mut *mut c_void),
    /// `extra`: the argument segment itself.
    Buffer(&'a [u8]),
}

/// Code objects, functions, launches.
pub trait ModuleCalls {
    /// `hipModuleLoadData`
    ///
    /// # Safety
    /// `image` is a whole code object (or PTX text that ends with a zero byte).
    unsafe fn module_load(&self, image: *const c_void) -> Outcome<ModuleHandle>;
    /// `hipModuleUnload`
    fn module_unload(&self, module: ModuleHandle) -> Outcome;
    /// `hipModuleGetFunction`
    fn module_function(&self, module: ModuleHandle, name: &CStr) -> Outcome<Function>;
    /// `hipModuleGetGlobal`: address and bytes.
    fn module_global(&self, module: ModuleHandle, name: &CStr) -> Outcome<(u64, usize)>;
    /// `hipFuncGetAttribute`
    fn function_attribute(&self, attribute: c_int, function: Function) -> Outcome<c_int>;
    /// `hipFuncSetAttribute`
    fn set_function_attribute(&self, function: Function, attribute: c_int, value: c_int) -> Outcome;
    /// `hipModuleLaunchKernel`
    ///
    /// # Safety
    /// Pointers among the arguments point to as many bytes as the kernel takes.
    unsafe fn launch(
        &self,
        function: Function,
        shape: LaunchShape,
        stream: Stream,
        arguments: Arguments<'_>,
    ) -> Outcome;
    /// `hipModuleOccupancyMaxActiveBlocksPerMultiprocessor`
    fn occupancy(&self, function: Function, block: c_int, dynamic_lds: usize) -> Outcome<c_int>;
}

/// Graphs that a capture made.
pub trait GraphCalls {
    /// `hipGraphInstantiate`, `hipGraphInstantiateWithFlags`
    fn graph_instantiate(&self, graph: Graph) -> Outcome<GraphExec>;
    /// `hipGraphLaunch`
    fn graph_launch(&self, exec: GraphExec, stream: Stream) -> Outcome;
    /// `hipGraphDestroy`
    fn graph_destroy(&self, graph: Graph) -> Outcome;
    /// `hipGraphExecDestroy`
    fn graph_exec_destroy(&self, exec: GraphExec) -> Outcome;
    /// `hipGraphGetNodes`
    fn graph_nodes(&self, graph: Graph) -> Outcome<Vec<GraphNode>>;
    /// `hipGraphNodeGetType`
    fn graph_node_type(&self, node: GraphNode) -> Outcome<c_int>;
    /// `hipGraphKernelNodeGetParams`: pointers in it live as long as the graph.
    fn graph_kernel_params(&self, node: GraphNode) -> Outcome<KernelNodeParams>;
    /// `hipGraphExecKernelNodeSetParams`
    ///
    /// # Safety
    /// As for a launch.
    unsafe fn graph_exec_set_kernel_params(
        &self,
        exec: GraphExec,
        node: GraphNode,
        shape: LaunchShape,
        function: Function,
        arguments: Arguments<'_>,
    ) -> Outcome;
    /// `hipGraphExecUpdate`. The node and the `hipGraphExecUpdateResult` stand beside the error.
    fn graph_exec_update(&self, exec: GraphExec, graph: Graph) -> Result<(), (crate::HipError, GraphNode, c_int)>;
}

/// Virtual memory: addresses, physical memory, mappings, access.
pub trait VirtualMemoryCalls {
    /// `hipMemAddressReserve`
    fn address_reserve(&self, bytes: usize, alignment: usize, hint: u64, flags: u64) -> Outcome<u64>;
    /// `hipMemAddressFree`
    fn address_free(&self, address: u64, bytes: usize) -> Outcome;
    /// `hipMemCreate`
    fn physical_create(&self, bytes: usize, properties: &PhysicalProperties, flags: u64) -> Outcome<Physical>;
    /// `hipMemRelease`
    fn physical_release(&self, physical: Physical) -> Outcome;
    /// `hipMemMap`
    fn map(&self, address: u64, bytes: usize, offset: usize, physical: Physical, flags: u64) -> Outcome;
    /// `hipMemUnmap`
    fn unmap(&self, address: u64, bytes: usize) -> Outcome;
    /// `hipMemSetAccess`
    fn set_access(&self, address: u64, bytes: usize, access: &[MemoryAccess]) -> Outcome;
    /// `hipMemGetAccess`
    fn access(&self, location: &MemoryLocation, address: u64) -> Outcome<u64>;
    /// `hipMemGetAllocationGranularity`
    fn granularity(&self, properties: &PhysicalProperties, option: c_int) -> Outcome<usize>;
    /// `hipMemRetainAllocationHandle`
    fn physical_of(&self, address: u64) -> Outcome<Physical>;
}
