//! Bindings to `libcuda.so.1`, as few as HIP's calls need.
//!
//! Owns: loading the driver, CUDA's structs, its error numbers as HIP's. Always true: a missing library or symbol is a
//! sentence that names it; a failed call leaves its name and CUDA's number in the last fault's text. Not here: what a
//! HIP call does with them.

use core::ffi::{c_char, c_int, c_uint, c_void};

use hip_facade::gate::gate;
use hip_facade::{HipError, Outcome};
use libloading::Library;

const LIBRARY: &str = "libcuda.so.1";

/// Any of CUDA's handles.
pub type Handle = *mut c_void;

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
pub struct KernelNode {
    /// `CUfunction`
    pub function: Handle,
    /// Blocks.
    pub grid: [c_uint; 3],
    /// Threads a block.
    pub block: [c_uint; 3],
    /// Dynamic shared memory in bytes.
    pub shared: c_uint,
    /// One pointer an argument, or null.
    pub arguments: *mut *mut c_void,
    /// A launch buffer, or null.
    pub extra: *mut *mut c_void,
    /// `CUkernel`, unused.
    pub kernel: Handle,
    /// `CUcontext`, unused.
    pub context: Handle,
}

/// `CUlaunchConfig`
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: [c_uint; 3],
    /// Threads a block.
    pub block: [c_uint; 3],
    /// Dynamic shared memory in bytes.
    pub shared: c_uint,
    /// `CUstream`
    pub stream: Handle,
    /// `[count]`
    pub attributes: *const LaunchAttribute,
    /// Number of attributes.
    pub count: c_uint,
}

/// `CUlaunchAttribute`: its id, and a value in a union of 64 bytes.
#[repr(C, align(8))]
pub struct LaunchAttribute {
    /// `CUlaunchAttributeID`
    pub id: c_int,
    /// Unused.
    pub padding: c_int,
    /// The value's first word is the flag of a switch.
    pub value: [c_uint; 16],
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
pub struct UpdateInfo {
    /// `CUgraphExecUpdateResult`, whose numbers are HIP's.
    pub result: c_int,
    /// The node that differs.
    pub node: Handle,
    /// The other end of an edge that differs.
    pub from: Handle,
}

/// `CUmemAllocationProp`
#[repr(C)]
pub struct PhysicalProperties {
    /// 1 is pinned.
    pub kind: c_int,
    /// Export handles, 0 for none.
    pub handle_types: c_int,
    /// Location: 1 and the ordinal for a device.
    pub location: [c_int; 2],
    /// Unused on Linux.
    pub win32: *mut c_void,
    /// Compression and RDMA, all zero.
    pub flags: [u8; 8],
}

macro_rules! bindings {
    ($($name:ident = $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        /// The driver's functions.
        pub struct Cuda {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
            /// Keeps the functions valid.
            _library: Library,
        }

        impl Cuda {
            /// Loads the driver.
            pub fn load() -> Result<Cuda, String> {
                // SAFETY: the driver's own initialisation is what every CUDA program runs.
                let library = unsafe { Library::new(LIBRARY) }.map_err(|problem| {
                    format!("{LIBRARY} cannot be loaded (is an NVIDIA driver installed?): {problem}")
                })?;
                let missing =
                    |name: &str, problem| format!("{LIBRARY} has no {name}, a driver from 12.0 has: {problem}");
                // SAFETY: the types are those of cuda.h for these versions of the symbols.
                unsafe {
                    Ok(Cuda {
                        $($name: *library
                            .get(concat!($symbol, "\0").as_bytes())
                            .map_err(|problem| missing($symbol, problem))?,)*
                        _library: library,
                    })
                }
            }

            $(
                #[doc = concat!("`", $symbol, "`")]
                ///
                /// # Safety
                /// As CUDA's documentation of the function says.
                #[allow(clippy::too_many_arguments, reason = "CUDA's signature")]
                pub unsafe fn $name(&self, $($argument: $type),*) -> Outcome {
                    // SAFETY: the caller's.
                    check($symbol, unsafe { (self.$name)($($argument),*) })
                }
            )*
        }
    };
}

bindings! {
    init = "cuInit"(flags: c_uint);
    driver_version = "cuDriverGetVersion"(version: *mut c_int);
    device_get = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
    device_name = "cuDeviceGetName"(name: *mut c_char, length: c_int, device: c_int);
    device_total_mem = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: c_int);
    device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: c_int);
    device_bus_id = "cuDeviceGetPCIBusId"(text: *mut c_char, length: c_int, device: c_int);
    device_primary_ctx_retain = "cuDevicePrimaryCtxRetain"(context: *mut Handle, device: c_int);
    ctx_set_current = "cuCtxSetCurrent"(context: Handle);
    ctx_synchronize = "cuCtxSynchronize"();

    mem_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    mem_alloc = "cuMemAlloc_v2"(address: *mut u64, bytes: usize);
    mem_free = "cuMemFree_v2"(address: u64);
    mem_host_alloc = "cuMemHostAlloc"(pointer: *mut u64, bytes: usize, flags: c_uint);
    mem_free_host = "cuMemFreeHost"(pointer: u64);
    mem_host_device_pointer = "cuMemHostGetDevicePointer_v2"(address: *mut u64, pointer: u64, flags: c_uint);
    mem_host_register = "cuMemHostRegister_v2"(pointer: u64, bytes: usize, flags: c_uint);
    mem_host_unregister = "cuMemHostUnregister"(pointer: u64);
    memcpy = "cuMemcpy"(to: u64, from: u64, bytes: usize);
    memcpy_async = "cuMemcpyAsync"(to: u64, from: u64, bytes: usize, stream: Handle);
    memcpy_from_device = "cuMemcpyDtoH_v2"(to: *mut c_void, from: u64, bytes: usize);
    memset_bytes = "cuMemsetD8Async"(to: u64, value: u8, count: usize, stream: Handle);
    memset_words = "cuMemsetD32Async"(to: u64, value: c_uint, count: usize, stream: Handle);

    stream_create = "cuStreamCreate"(stream: *mut Handle, flags: c_uint);
    stream_destroy = "cuStreamDestroy_v2"(stream: Handle);
    stream_synchronize = "cuStreamSynchronize"(stream: Handle);
    stream_query = "cuStreamQuery"(stream: Handle);
    stream_wait_event = "cuStreamWaitEvent"(stream: Handle, event: Handle, flags: c_uint);
    launch_host_func = "cuLaunchHostFunc"(
        stream: Handle, function: Option<unsafe extern "C" fn(*mut c_void)>, user: *mut c_void
    );
    event_create = "cuEventCreate"(event: *mut Handle, flags: c_uint);
    event_destroy = "cuEventDestroy_v2"(event: Handle);
    event_record = "cuEventRecord"(event: Handle, stream: Handle);
    event_query = "cuEventQuery"(event: Handle);
    event_synchronize = "cuEventSynchronize"(event: Handle);
    event_elapsed = "cuEventElapsedTime"(milliseconds: *mut f32, start: Handle, stop: Handle);
    stream_begin_capture = "cuStreamBeginCapture_v2"(stream: Handle, mode: c_int);
    stream_end_capture = "cuStreamEndCapture"(stream: Handle, graph: *mut Handle);
    stream_capture_info = "cuStreamGetCaptureInfo_v2"(
        stream: Handle, status: *mut c_int, id: *mut u64, graph: *mut Handle, nodes: *mut *const Handle,
        count: *mut usize
    );

    module_load = "cuModuleLoadDataEx"(
        module: *mut Handle, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void
    );
    module_unload = "cuModuleUnload"(module: Handle);
    module_function = "cuModuleGetFunction"(function: *mut Handle, module: Handle, name: *const c_char);
    module_global = "cuModuleGetGlobal_v2"(address: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char);
    func_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_int, function: Handle);
    func_set_attribute = "cuFuncSetAttribute"(function: Handle, attribute: c_int, value: c_int);
    launch_kernel = "cuLaunchKernelEx"(
        configuration: *const LaunchConfig, function: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void
    );
    occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(
        blocks: *mut c_int, function: Handle, block: c_int, shared: usize
    );

    graph_instantiate = "cuGraphInstantiateWithFlags"(exec: *mut Handle, graph: Handle, flags: u64);
    graph_launch = "cuGraphLaunch"(exec: Handle, stream: Handle);
    graph_destroy = "cuGraphDestroy"(graph: Handle);
    graph_exec_destroy = "cuGraphExecDestroy"(exec: Handle);
    graph_nodes = "cuGraphGetNodes"(graph: Handle, nodes: *mut Handle, count: *mut usize);
    graph_node_type = "cuGraphNodeGetType"(node: Handle, kind: *mut c_int);
    graph_kernel_params = "cuGraphKernelNodeGetParams_v2"(node: Handle, parameters: *mut KernelNode);
    graph_exec_set_kernel = "cuGraphExecKernelNodeSetParams_v2"(
        exec: Handle, node: Handle, parameters: *const KernelNode
    );
    graph_exec_update = "cuGraphExecUpdate_v2"(exec: Handle, graph: Handle, result: *mut UpdateInfo);

    address_reserve = "cuMemAddressReserve"(address: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64);
    address_free = "cuMemAddressFree"(address: u64, bytes: usize);
    mem_create = "cuMemCreate"(handle: *mut u64, bytes: usize, properties: *const PhysicalProperties, flags: u64);
    mem_release = "cuMemRelease"(handle: u64);
    mem_map = "cuMemMap"(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    mem_unmap = "cuMemUnmap"(address: u64, bytes: usize);
    mem_set_access = "cuMemSetAccess"(address: u64, bytes: usize, access: *const c_void, count: usize);
    mem_access = "cuMemGetAccess"(flags: *mut u64, location: *const c_void, address: u64);
    mem_granularity = "cuMemGetAllocationGranularity"(
        bytes: *mut usize, properties: *const PhysicalProperties, option: c_int
    );
    mem_retain = "cuMemRetainAllocationHandle"(handle: *mut u64, address: u64);
}

fn check(call: &str, code: c_int) -> Outcome {
    const NOT_READY: c_int = HipError::NOT_READY.0;
    match code {
        0 => Ok(()),
        NOT_READY => Err(HipError::NOT_READY),
        code => {
            let error = from_cuda(code);
            gate().explain(format!("{call} answered CUDA error {code}, which is {error}"));
            Err(error)
        }
    }
}

/// HIP's number for CUDA's: mostly the same one.
pub fn from_cuda(code: c_int) -> HipError {
    match code {
        // Same meaning, same number.
        1..=4 | 100 | 101 | 200 | 201 | 205..=209 | 211 | 214..=218 | 300..=304 | 400 | 401 | 500 | 600 | 700..=702 => {
            HipError(code)
        }
        704 | 705 | 708..=710 | 712 | 713 | 719 | 720 | 801 | 900..=908 | 910 => HipError(code),
        // PTX of a newer version, or no compiler for it.
        221 | 222 => HipError::INVALID_KERNEL_FILE,
        // Hardware stack error, illegal instruction, misaligned address, invalid address space, invalid pc.
        714..=718 => HipError::LAUNCH_FAILURE,
        803 | 804 => HipError::INSUFFICIENT_DRIVER,
        800 => HipError::NOT_SUPPORTED,
        _ => HipError::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_sizes_of_cuda_h() {
        assert_eq!(size_of::<KernelNode>(), 72);
        assert_eq!(size_of::<UpdateInfo>(), 24);
        assert_eq!(size_of::<PhysicalProperties>(), 32);
        assert_eq!(core::mem::offset_of!(KernelNode, arguments), 40);
    }

    #[test]
    fn cuda_errors_become_hips() {
        for (cuda, hip) in [
            (2, HipError::OUT_OF_MEMORY),
            (700, HipError::ILLEGAL_ADDRESS),
            (716, HipError::LAUNCH_FAILURE),
            (901, HipError::CAPTURE_INVALIDATED),
            (222, HipError::INVALID_KERNEL_FILE),
            (12345, HipError::UNKNOWN),
        ] {
            assert_eq!(from_cuda(cuda), hip);
        }
    }
}
