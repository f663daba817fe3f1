//! HIP's calls, checked: the middle of the three levels.
//!
//! Owns: turning a status into a `Result` that names the call and the arguments that matter, and a missing entry point
//! into the same kind of error.
//! Always true: a method does exactly one call. Nothing is allocated unless a call fails. A method that takes a handle
//! or an address is unsafe: what it is given must be alive and of this library.
//! Not here: ownership, threads, lifetimes (the safe types around this).

use std::ffi::{CStr, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::path::{Path, PathBuf};
use std::ptr;

use super::failure::Failure;
use super::module::Shape;
use super::sys::{self, hipError_t as Code};

pub(super) type Result<T> = std::result::Result<T, Failure>;

/// The entry points of one library.
pub(super) struct Api {
    entry: ManuallyDrop<sys::Hip>,
    path: PathBuf,
}

macro_rules! groups {
    ($($list:ident: $($name:ident)*;)*) => {
        $(pub(super) const $list: &[&str] = &[$(stringify!($name)),*];)*

        fn present(entry: &sys::Hip, name: &str) -> bool {
            $($(if name == stringify!($name) { return entry.$name.is_ok(); })*)*
            false
        }
    };
}

groups! {
    BASIC:
        hipDriverGetVersion hipRuntimeGetVersion hipGetDeviceCount hipSetDevice hipDeviceGetAttribute
        hipGetDevicePropertiesR0600 hipDeviceGetPCIBusId hipMemGetInfo hipDeviceSynchronize hipGetLastError
        hipMalloc hipFree hipHostMalloc hipHostFree hipMemcpyAsync hipMemsetAsync
        hipStreamCreateWithFlags hipStreamDestroy hipStreamSynchronize hipStreamQuery hipStreamWaitEvent
        hipEventCreateWithFlags hipEventDestroy hipEventRecord hipEventSynchronize hipEventQuery hipEventElapsedTime
        hipModuleLoadData hipModuleUnload hipModuleGetFunction hipModuleLaunchKernel;
    GRAPHS:
        hipStreamBeginCapture hipStreamEndCapture hipGraphGetNodes hipGraphNodeGetType hipGraphInstantiate
        hipGraphLaunch hipGraphExecKernelNodeSetParams hipGraphExecDestroy hipGraphDestroy;
    VIRTUAL_MEMORY:
        hipMemGetAllocationGranularity hipMemAddressReserve hipMemCreate hipMemRelease hipMemMap
        hipMemUnmap hipMemSetAccess;
}

/// One call: `check!(self.hipFree(at), "{at:#x}")`.
macro_rules! check {
    ($api:ident.$name:ident($($argument:expr),*), $($what:tt)+) => {
        match &$api.entry.$name {
            Ok(entry) => {
                // SAFETY: the signature is the header's. Pointers to results are to locals of the method around this,
                // handles and addresses are vouched for by the caller of that method, which is unsafe if it takes any.
                let code = unsafe { entry($($argument),*) };
                match code {
                    Code::hipSuccess => Ok(()),
                    code => Err(Failure::refused(stringify!($name), format!($($what)+), code.0)),
                }
            }
            Err(_) => Err($api.lacks(stringify!($name))),
        }
    };
}

fn address(at: u64) -> *mut c_void {
    ptr::without_provenance_mut(at as usize)
}

/// Memory of one device, not shared with other processes.
fn allocation(device: i32) -> sys::hipMemAllocationProp {
    // SAFETY: numbers, enumerations that are numbers, and a pointer: all zeros is a value.
    let mut prop: sys::hipMemAllocationProp = unsafe { MaybeUninit::zeroed().assume_init() };
    prop.type_ = sys::hipMemAllocationType::hipMemAllocationTypePinned;
    prop.location = location(device);
    prop
}

fn location(device: i32) -> sys::hipMemLocation {
    // SAFETY: as above.
    let mut location: sys::hipMemLocation = unsafe { MaybeUninit::zeroed().assume_init() };
    location.type_ = sys::hipMemLocationType::hipMemLocationTypeDevice;
    location.id = device;
    location
}

/// Library and devices.
impl Api {
    pub fn new(entry: ManuallyDrop<sys::Hip>, path: PathBuf) -> Api {
        Api { entry, path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Those of `groups` that the library lacks.
    pub fn missing(&self, groups: &[&[&'static str]]) -> Vec<&'static str> {
        groups.iter().flat_map(|group| group.iter()).copied().filter(|name| !present(&self.entry, name)).collect()
    }

    #[cold]
    fn lacks(&self, call: &'static str) -> Failure {
        Failure::missing(call, &self.path.to_string_lossy())
    }

    pub fn driver_version(&self) -> Result<i32> {
        let mut version = 0;
        check!(self.hipDriverGetVersion(&mut version), "").map(|()| version)
    }

    pub fn runtime_version(&self) -> Result<i32> {
        let mut version = 0;
        check!(self.hipRuntimeGetVersion(&mut version), "").map(|()| version)
    }

    pub fn device_count(&self) -> Result<i32> {
        let mut count = 0;
        check!(self.hipGetDeviceCount(&mut count), "").map(|()| count)
    }

    pub fn set_device(&self, device: i32) -> Result<()> {
        check!(self.hipSetDevice(device), "{device}")
    }

    pub fn attribute(&self, attribute: sys::hipDeviceAttribute_t, device: i32) -> Result<i32> {
        let mut value = 0;
        check!(self.hipDeviceGetAttribute(&mut value, attribute, device), "attribute {}, device {device}", attribute.0)
            .map(|()| value)
    }

    pub fn properties(&self, device: i32) -> Result<Box<sys::hipDeviceProp_tR0600>> {
        let mut properties = Box::<sys::hipDeviceProp_tR0600>::new_zeroed();
        check!(self.hipGetDevicePropertiesR0600(properties.as_mut_ptr(), device), "device {device}")?;
        // SAFETY: numbers and arrays of numbers: all zeros was a value before the call wrote it.
        Ok(unsafe { properties.assume_init() })
    }

    pub fn pci_bus_id(&self, device: i32) -> Result<String> {
        let mut text = [0 as std::ffi::c_char; 32];
        check!(self.hipDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as i32, device), "device {device}")?;
        Ok(text_of(&text))
    }

    /// Free and total bytes of the current device.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        check!(self.hipMemGetInfo(&mut free, &mut total), "").map(|()| (free, total))
    }

    pub fn synchronize_device(&self) -> Result<()> {
        check!(self.hipDeviceSynchronize(), "")
    }

    /// Forgets the error that HIP keeps for this thread, so that a later call does not report an old one.
    pub fn forget_last_error(&self) {
        if let Ok(entry) = &self.entry.hipGetLastError {
            // SAFETY: no arguments; reads and clears a number.
            unsafe { entry() };
        }
    }
}

/// Memory. Every copy is asynchronous on a stream.
impl Api {
    pub fn malloc(&self, bytes: usize) -> Result<u64> {
        let mut at = ptr::null_mut();
        check!(self.hipMalloc(&mut at, bytes), "{bytes} bytes").map(|()| at as u64)
    }

    /// # Safety
    /// `at` came from `malloc`, and nothing uses it any more.
    pub unsafe fn free(&self, at: u64) -> Result<()> {
        check!(self.hipFree(address(at)), "{at:#x}")
    }

    pub fn malloc_host(&self, bytes: usize) -> Result<*mut u8> {
        let mut at = ptr::null_mut();
        check!(self.hipHostMalloc(&mut at, bytes, 0), "{bytes} bytes").map(|()| at.cast())
    }

    /// # Safety
    /// `at` came from `malloc_host`, and nothing uses it any more.
    pub unsafe fn free_host(&self, at: *mut u8) -> Result<()> {
        check!(self.hipHostFree(at.cast()), "{at:p}")
    }

    /// # Safety
    /// Both ranges are alive until the stream has passed the copy; `to` is not read or written by others until then.
    pub unsafe fn copy(
        &self,
        to: u64,
        from: u64,
        bytes: usize,
        kind: sys::hipMemcpyKind,
        stream: sys::hipStream_t,
    ) -> Result<()> {
        check!(
            self.hipMemcpyAsync(address(to), address(from), bytes, kind, stream),
            "{bytes} bytes from {from:#x} to {to:#x}"
        )
    }

    /// # Safety
    /// `bytes` from `at` are device memory that is alive until the stream has passed the call.
    pub unsafe fn fill(&self, at: u64, value: u8, bytes: usize, stream: sys::hipStream_t) -> Result<()> {
        check!(self.hipMemsetAsync(address(at), value.into(), bytes, stream), "{bytes} bytes at {at:#x}")
    }
}

/// Streams and events.
impl Api {
    pub fn create_stream(&self) -> Result<sys::hipStream_t> {
        // hipStreamNonBlocking: mapping memory submits to the null stream (VMM.md row 7), which must not wait for this.
        const NON_BLOCKING: u32 = 1;
        let mut stream = ptr::null_mut();
        check!(self.hipStreamCreateWithFlags(&mut stream, NON_BLOCKING), "non-blocking").map(|()| stream)
    }

    /// # Safety
    /// The stream is alive and not used again.
    pub unsafe fn destroy_stream(&self, stream: sys::hipStream_t) -> Result<()> {
        check!(self.hipStreamDestroy(stream), "{stream:p}")
    }

    /// # Safety
    /// The stream is alive.
    pub unsafe fn synchronize_stream(&self, stream: sys::hipStream_t) -> Result<()> {
        check!(self.hipStreamSynchronize(stream), "{stream:p}")
    }

    /// # Safety
    /// The stream is alive.
    pub unsafe fn query_stream(&self, stream: sys::hipStream_t) -> Result<()> {
        check!(self.hipStreamQuery(stream), "{stream:p}")
    }

    /// # Safety
    /// Both are alive.
    pub unsafe fn wait_event(&self, stream: sys::hipStream_t, event: sys::hipEvent_t) -> Result<()> {
        check!(self.hipStreamWaitEvent(stream, event, 0), "{stream:p}, {event:p}")
    }

    pub fn create_event(&self, timing: bool) -> Result<sys::hipEvent_t> {
        const DISABLE_TIMING: u32 = 2;
        let flags = if timing { 0 } else { DISABLE_TIMING };
        let mut event = ptr::null_mut();
        check!(self.hipEventCreateWithFlags(&mut event, flags), "flags {flags}").map(|()| event)
    }

    /// # Safety
    /// The event is alive and not used again.
    pub unsafe fn destroy_event(&self, event: sys::hipEvent_t) -> Result<()> {
        check!(self.hipEventDestroy(event), "{event:p}")
    }

    /// # Safety
    /// Both are alive.
    pub unsafe fn record_event(&self, event: sys::hipEvent_t, stream: sys::hipStream_t) -> Result<()> {
        check!(self.hipEventRecord(event, stream), "{event:p}, {stream:p}")
    }

    /// # Safety
    /// The event is alive.
    pub unsafe fn synchronize_event(&self, event: sys::hipEvent_t) -> Result<()> {
        check!(self.hipEventSynchronize(event), "{event:p}")
    }

    /// # Safety
    /// The event is alive.
    pub unsafe fn query_event(&self, event: sys::hipEvent_t) -> Result<()> {
        check!(self.hipEventQuery(event), "{event:p}")
    }

    /// Milliseconds.
    ///
    /// # Safety
    /// Both are alive.
    pub unsafe fn elapsed(&self, start: sys::hipEvent_t, end: sys::hipEvent_t) -> Result<f32> {
        let mut milliseconds = 0.0;
        check!(self.hipEventElapsedTime(&mut milliseconds, start, end), "{start:p}, {end:p}").map(|()| milliseconds)
    }
}

/// Kernels and graphs.
impl Api {
    /// # Safety
    /// The image is a code object, or is at least no shorter than its own headers say: HIP is given no length.
    pub unsafe fn load_module(&self, image: &[u8]) -> Result<sys::hipModule_t> {
        let mut module = ptr::null_mut();
        check!(self.hipModuleLoadData(&mut module, image.as_ptr().cast()), "{} bytes", image.len()).map(|()| module)
    }

    /// # Safety
    /// The module is alive, and no function of it is used or running any more.
    pub unsafe fn unload_module(&self, module: sys::hipModule_t) -> Result<()> {
        check!(self.hipModuleUnload(module), "{module:p}")
    }

    /// # Safety
    /// The module is alive.
    pub unsafe fn function(&self, module: sys::hipModule_t, name: &CStr) -> Result<sys::hipFunction_t> {
        let mut function = ptr::null_mut();
        check!(self.hipModuleGetFunction(&mut function, module, name.as_ptr()), "'{}'", name.to_string_lossy())
            .map(|()| function)
    }

    /// # Safety
    /// Function and stream are alive; the kernel takes one argument, of no more bytes than `argument` points to.
    pub unsafe fn launch(
        &self,
        function: sys::hipFunction_t,
        shape: &Shape,
        argument: *const c_void,
        stream: sys::hipStream_t,
        name: &str,
    ) -> Result<()> {
        let Shape { grid, block, dynamic_lds } = *shape;
        let mut parameters = [argument.cast_mut()];
        let parameters = parameters.as_mut_ptr();
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        check!(
            self.hipModuleLaunchKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                dynamic_lds,
                stream,
                parameters,
                ptr::null_mut()
            ),
            "{name}, grid {grid:?}, block {block:?}, {dynamic_lds} bytes of LDS"
        )
    }

    /// # Safety
    /// The stream is alive.
    pub unsafe fn begin_capture(&self, stream: sys::hipStream_t) -> Result<()> {
        // Thread-local: calls that a capture does not allow are refused on this thread only.
        let mode = sys::hipStreamCaptureMode::hipStreamCaptureModeThreadLocal;
        check!(self.hipStreamBeginCapture(stream, mode), "{stream:p}")
    }

    /// # Safety
    /// The stream is alive.
    pub unsafe fn end_capture(&self, stream: sys::hipStream_t) -> Result<sys::hipGraph_t> {
        let mut graph = ptr::null_mut();
        check!(self.hipStreamEndCapture(stream, &mut graph), "{stream:p}").map(|()| graph)
    }

    /// # Safety
    /// The graph is alive.
    pub unsafe fn graph_nodes(&self, graph: sys::hipGraph_t) -> Result<Vec<sys::hipGraphNode_t>> {
        let mut count = 0;
        check!(self.hipGraphGetNodes(graph, ptr::null_mut(), &mut count), "{graph:p}")?;
        let mut nodes = vec![ptr::null_mut(); count];
        check!(self.hipGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count), "{graph:p}")?;
        nodes.truncate(count);
        Ok(nodes)
    }

    /// # Safety
    /// The node is alive.
    pub unsafe fn is_kernel_node(&self, node: sys::hipGraphNode_t) -> Result<bool> {
        let mut kind = sys::hipGraphNodeType(0);
        check!(self.hipGraphNodeGetType(node, &mut kind), "{node:p}")?;
        Ok(kind == sys::hipGraphNodeType::hipGraphNodeTypeKernel)
    }

    /// # Safety
    /// The graph is alive.
    pub unsafe fn instantiate(&self, graph: sys::hipGraph_t) -> Result<sys::hipGraphExec_t> {
        let mut exec = ptr::null_mut();
        check!(self.hipGraphInstantiate(&mut exec, graph, ptr::null_mut(), ptr::null_mut(), 0), "{graph:p}")
            .map(|()| exec)
    }

    /// # Safety
    /// Both are alive, and so is everything that the graph's nodes touch.
    pub unsafe fn launch_graph(&self, exec: sys::hipGraphExec_t, stream: sys::hipStream_t) -> Result<()> {
        check!(self.hipGraphLaunch(exec, stream), "{exec:p}, {stream:p}")
    }

    /// # Safety
    /// As `launch`; `node` is a kernel node of the graph that `exec` was made of.
    pub unsafe fn set_kernel_node(
        &self,
        exec: sys::hipGraphExec_t,
        node: sys::hipGraphNode_t,
        function: sys::hipFunction_t,
        shape: &Shape,
        argument: *const c_void,
    ) -> Result<()> {
        let mut parameters = [argument.cast_mut()];
        let dim = |[x, y, z]: [u32; 3]| sys::dim3 { x, y, z };
        let node_params = sys::hipKernelNodeParams {
            blockDim: dim(shape.block),
            extra: ptr::null_mut(),
            func: function.cast(),
            gridDim: dim(shape.grid),
            kernelParams: parameters.as_mut_ptr(),
            sharedMemBytes: shape.dynamic_lds,
        };
        check!(self.hipGraphExecKernelNodeSetParams(exec, node, &node_params), "{exec:p}, {node:p}")
    }

    /// # Safety
    /// The executable graph is alive and not used again.
    pub unsafe fn destroy_exec(&self, exec: sys::hipGraphExec_t) -> Result<()> {
        check!(self.hipGraphExecDestroy(exec), "{exec:p}")
    }

    /// # Safety
    /// The graph is alive and not used again.
    pub unsafe fn destroy_graph(&self, graph: sys::hipGraph_t) -> Result<()> {
        check!(self.hipGraphDestroy(graph), "{graph:p}")
    }
}

/// Virtual memory.
impl Api {
    pub fn granularity(&self, device: i32) -> Result<usize> {
        let (mut bytes, prop) = (0, allocation(device));
        let minimum = sys::hipMemAllocationGranularity_flags::hipMemAllocationGranularityMinimum;
        check!(self.hipMemGetAllocationGranularity(&mut bytes, &prop, minimum), "device {device}").map(|()| bytes)
    }

    pub fn reserve(&self, bytes: usize, alignment: usize) -> Result<u64> {
        let mut at = ptr::null_mut();
        check!(self.hipMemAddressReserve(&mut at, bytes, alignment, ptr::null_mut(), 0), "{bytes} bytes")
            .map(|()| at as u64)
    }

    pub fn create(&self, bytes: usize, device: i32) -> Result<sys::hipMemGenericAllocationHandle_t> {
        let (mut handle, prop) = (ptr::null_mut(), allocation(device));
        check!(self.hipMemCreate(&mut handle, bytes, &prop, 0), "{bytes} bytes on device {device}").map(|()| handle)
    }

    /// # Safety
    /// The handle is alive, mapped nowhere, and not used again.
    pub unsafe fn release(&self, handle: sys::hipMemGenericAllocationHandle_t) -> Result<()> {
        check!(self.hipMemRelease(handle), "{handle:p}")
    }

    /// # Safety
    /// `bytes` from `at` are reserved and not mapped; the handle is alive and of that size.
    pub unsafe fn map(&self, at: u64, bytes: usize, handle: sys::hipMemGenericAllocationHandle_t) -> Result<()> {
        check!(self.hipMemMap(address(at), bytes, 0, handle, 0), "{bytes} bytes at {at:#x}")
    }

    /// # Safety
    /// `bytes` from `at` are one mapped handle, and nothing uses it any more.
    pub unsafe fn unmap(&self, at: u64, bytes: usize) -> Result<()> {
        check!(self.hipMemUnmap(address(at), bytes), "{bytes} bytes at {at:#x}")
    }

    /// # Safety
    /// `bytes` from `at` are mapped.
    pub unsafe fn set_access(&self, at: u64, bytes: usize, device: i32) -> Result<()> {
        let access = sys::hipMemAccessDesc {
            location: location(device),
            flags: sys::hipMemAccessFlags::hipMemAccessFlagsProtReadWrite,
        };
        check!(self.hipMemSetAccess(address(at), bytes, &access, 1), "{bytes} bytes at {at:#x}, device {device}")
    }
}

/// Text of a fixed array, up to its zero byte.
pub(super) fn text_of(characters: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
