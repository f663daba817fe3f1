//! What a stand-in's shared library exports, seen through dlopen as the host sees it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;

fn library() -> *mut c_void {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let name = CString::new(path.join("examples/libhip_add_one.so").to_str().unwrap()).unwrap();
    // SAFETY: the library has no constructors that matter.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{name:?} cannot be loaded");
    handle
}

fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: a handle from dlopen and a string.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

const PRESENT: &str = "hipInit hipRuntimeGetVersion hipDriverGetVersion hipGetDeviceCount hipSetDevice hipGetDevice
    hipDeviceGet hipDeviceGetName hipDeviceTotalMem hipDeviceGetAttribute hipGetDevicePropertiesR0600
    hipGetDeviceProperties hipDeviceGetPCIBusId hipMemGetInfo hipDeviceSynchronize hipGetLastError hipPeekAtLastError
    hipGetErrorName hipGetErrorString hipStreamCreateWithFlags hipStreamCreate hipStreamDestroy hipStreamSynchronize
    hipStreamQuery hipStreamWaitEvent hipStreamBeginCapture hipStreamEndCapture hipStreamIsCapturing
    hipStreamGetCaptureInfo hipEventCreateWithFlags hipEventCreate hipEventDestroy hipEventRecord hipEventQuery
    hipEventSynchronize hipEventElapsedTime hipMalloc hipFree hipHostMalloc hipHostFree hipHostGetDevicePointer
    hipHostRegister hipHostUnregister hipMemcpy hipMemcpyAsync hipMemcpyHtoD hipMemcpyDtoH hipMemcpyDtoD
    hipMemcpyHtoDAsync hipMemcpyDtoHAsync hipMemcpyDtoDAsync hipMemset hipMemsetAsync hipMemsetD8 hipMemsetD8Async
    hipMemsetD32 hipMemsetD32Async hipModuleLoadData hipModuleLoadDataEx hipModuleUnload hipModuleGetFunction
    hipModuleGetGlobal hipFuncGetAttribute hipFuncSetAttribute hipModuleLaunchKernel
    hipModuleOccupancyMaxActiveBlocksPerMultiprocessor hipGraphInstantiate hipGraphInstantiateWithFlags hipGraphLaunch
    hipGraphDestroy hipGraphExecDestroy hipGraphGetNodes hipGraphNodeGetType hipGraphKernelNodeGetParams
    hipGraphExecKernelNodeSetParams hipGraphExecUpdate hipMemAddressReserve hipMemAddressFree hipMemCreate
    hipMemRelease hipMemMap hipMemUnmap hipMemSetAccess hipMemGetAccess hipMemGetAllocationGranularity
    hipMemRetainAllocationHandle hipLaunchHostFunc standin_fail standin_mode standin_schedule standin_last_fault
    standin_profile standin_calls standin_reset";

#[test]
fn a_library_exports_every_call_and_none_that_the_host_must_live_without() {
    let library = library();
    let missing: Vec<_> = PRESENT.split_whitespace().filter(|name| symbol(library, name).is_null()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for absent in ["hipDeviceReset", "hipMallocAsync", "hipFreeAsync", "hipGraphCreate"] {
        assert!(symbol(library, absent).is_null(), "{absent}");
    }
}

#[test]
fn properties_have_hips_layout_and_say_that_this_is_a_stand_in() {
    type Properties = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
    type Name = unsafe extern "C" fn(c_int) -> *const c_char;
    let library = library();
    // SAFETY: the symbols have these types; the buffer has the size of hipDeviceProp_tR0600.
    unsafe {
        let properties: Properties = std::mem::transmute(symbol(library, "hipGetDevicePropertiesR0600"));
        let name: Name = std::mem::transmute(symbol(library, "hipGetErrorName"));
        let mut bytes = [0xffu8; 1472];
        assert_eq!(properties(bytes.as_mut_ptr().cast(), 0), 0);
        let text = |offset: usize| CStr::from_bytes_until_nul(&bytes[offset..offset + 256]).unwrap().to_str().unwrap();
        let int = |offset: usize| i32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap());
        assert_eq!(text(0), "hipfire facade stand-in (gfx1201)");
        assert_eq!(text(1160), "gfx1201");
        assert_eq!((int(308), int(360), int(388), int(396)), (32, 12, 32, 0));
        assert_eq!(properties(bytes.as_mut_ptr().cast(), 1), 101);
        assert_eq!(CStr::from_ptr(name(101)), c"hipErrorInvalidDevice");
        assert_eq!(CStr::from_ptr(name(4711)), c"hipErrorUnknown");
    }
}
