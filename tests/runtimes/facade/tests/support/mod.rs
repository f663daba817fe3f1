//! HIP's calls as a test wants them: this binary is its own stand-in.
//!
//! Owns: `fresh`, a few wrappers that assert success. Always true: tests of one binary run one at a time, because a
//! stand-in is one per process. Not here: tests.
#![allow(dead_code, unused_imports, unused_macros)]

mod add_one;

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use hip_facade::abi::*;
pub use hip_symbols::*;

hip_facade::export!(add_one::AddOne::new);

/// Calls HIP and asserts success.
macro_rules! hip {
    ($call:expr) => {
        // SAFETY: tests hand over pointers to live locals, and handles and addresses that the stand-in checks.
        $crate::support::ok(unsafe { $call })
    };
}

/// Calls HIP and asserts an error.
macro_rules! fails {
    ($code:ident, $call:expr) => {
        // SAFETY: as in `hip!`.
        assert_eq!(unsafe { $call }, $crate::support::code::$code, "{}", $crate::support::last_fault())
    };
}

pub(crate) use {fails, hip};

/// HIP's numbers that tests expect.
pub mod code {
    use hip_facade::HipError as E;
    pub const INVALID_VALUE: i32 = E::INVALID_VALUE.0;
    pub const OUT_OF_MEMORY: i32 = E::OUT_OF_MEMORY.0;
    pub const NOT_READY: i32 = E::NOT_READY.0;
    pub const INVALID_HANDLE: i32 = E::INVALID_HANDLE.0;
    pub const LAUNCH_FAILURE: i32 = E::LAUNCH_FAILURE.0;
    pub const LAUNCH_TIME_OUT: i32 = E::LAUNCH_TIME_OUT.0;
    pub const NOT_SUPPORTED: i32 = E::NOT_SUPPORTED.0;
    pub const CAPTURE_UNSUPPORTED: i32 = E::CAPTURE_UNSUPPORTED.0;
    pub const CAPTURE_INVALIDATED: i32 = E::CAPTURE_INVALIDATED.0;
    pub const CAPTURE_UNJOINED: i32 = E::CAPTURE_UNJOINED.0;
    pub const CAPTURE_UNMATCHED: i32 = E::CAPTURE_UNMATCHED.0;
    pub const CAPTURE_IMPLICIT: i32 = E::CAPTURE_IMPLICIT.0;
    pub const CAPTURE_ISOLATION: i32 = E::CAPTURE_ISOLATION.0;
    pub const CAPTURE_MERGE: i32 = E::CAPTURE_MERGE.0;
    pub const CAPTURED_EVENT: i32 = E::CAPTURED_EVENT.0;
    pub const GRAPH_EXEC_UPDATE_FAILURE: i32 = E::GRAPH_EXEC_UPDATE_FAILURE.0;
    pub const NOT_FOUND: i32 = E::NOT_FOUND.0;
    pub const INVALID_IMAGE: i32 = E::INVALID_IMAGE.0;
    pub const INVALID_CONFIGURATION: i32 = E::INVALID_CONFIGURATION.0;
    pub const LAUNCH_OUT_OF_RESOURCES: i32 = E::LAUNCH_OUT_OF_RESOURCES.0;
    pub const NO_BINARY_FOR_GPU: i32 = E::NO_BINARY_FOR_GPU.0;
    pub const NO_DEVICE: i32 = E::NO_DEVICE.0;
    pub const HOST_MEMORY_ALREADY_REGISTERED: i32 = E::HOST_MEMORY_ALREADY_REGISTERED.0;
    pub const HOST_MEMORY_NOT_REGISTERED: i32 = E::HOST_MEMORY_NOT_REGISTERED.0;
}

/// The stand-in as new, for this test alone.
pub fn fresh() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    standin_reset();
    guard
}

/// Asserts success.
#[track_caller]
pub fn ok(code: i32) {
    assert_eq!(code, 0, "{} · {}", hip_facade::error::name(code).to_string_lossy(), last_fault());
}

/// Text of the last fault.
pub fn last_fault() -> String {
    let mut buffer = [0u8; 512];
    // SAFETY: the buffer has the length it says.
    let length = unsafe { standin_last_fault(buffer.as_mut_ptr().cast(), buffer.len()) };
    String::from_utf8_lossy(&buffer[..length.min(511)]).into_owned()
}

/// Sets a mode.
pub fn mode(name: &CStr, value: u64) {
    // SAFETY: a string.
    assert_eq!(unsafe { standin_mode(name.as_ptr(), value) }, 0);
}

/// Calls HIP with one pointer to a result.
#[track_caller]
pub fn get<T: Copy>(start: T, call: impl FnOnce(*mut T) -> i32) -> T {
    let mut value = start;
    ok(call(&mut value));
    value
}

pub fn malloc(bytes: usize) -> u64 {
    // SAFETY: `get` hands over a valid pointer.
    get(0, |out| unsafe { hipMalloc(out, bytes) })
}

pub fn pinned(bytes: usize) -> u64 {
    // SAFETY: as above.
    get(0, |out| unsafe { hipHostMalloc(out, bytes, 0) })
}

pub fn stream(flags: u32) -> Stream {
    // SAFETY: as above.
    get(null_mut(), |out| unsafe { hipStreamCreateWithFlags(out, flags) })
}

pub fn event() -> Event {
    // SAFETY: as above.
    get(null_mut(), |out| unsafe { hipEventCreate(out) })
}

/// Words of device memory, after waiting for it.
pub fn read(address: u64, count: usize) -> Vec<u32> {
    let mut words = vec![0u32; count];
    // SAFETY: the buffer is that long.
    ok(unsafe { hipMemcpy(words.as_mut_ptr() as u64, address, 4 * count, COPY_DEVICE_TO_HOST) });
    words
}

/// Words of host memory that the device writes behind the compiler's back.
pub fn peek(address: u64) -> u32 {
    // SAFETY: tests ask for memory of live pinned allocations only.
    unsafe { (address as *const u32).read_volatile() }
}

/// Free and total bytes of the device.
pub fn memory_info() -> (usize, usize) {
    let mut total = 0;
    let free = get(0, |out| {
        // SAFETY: both are valid pointers.
        unsafe { hipMemGetInfo(out, &mut total) }
    });
    (free, total)
}

/// A list for `note`: pinned, so that the host can read it without a call.
pub fn notes() -> u64 {
    let list = pinned(4 * 64);
    // SAFETY: the allocation is that long and nothing runs.
    unsafe { std::slice::from_raw_parts_mut(list as *mut u32, 64).fill(0) };
    list
}

/// What `note` wrote so far.
pub fn noted(list: u64) -> Vec<u32> {
    (0..peek(list)).map(|index| peek(list + 4 + 4 * u64::from(index))).collect()
}

/// The kernels.
pub struct Kernels {
    pub module: ModuleHandle,
    pub add_one: Function,
    pub note: Function,
    pub fault: Function,
}

/// An ELF header and nothing else.
pub fn image() -> [u8; 64] {
    let mut image = [0; 64];
    image[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2]);
    image
}

pub fn kernels() -> Kernels {
    let image = image();
    // SAFETY: the image is a whole (empty) ELF file; names are strings.
    unsafe {
        let module = get(null_mut(), |out| hipModuleLoadData(out, image.as_ptr().cast()));
        let function = |name: &CStr| get(null_mut(), |out| hipModuleGetFunction(out, module, name.as_ptr()));
        Kernels { module, add_one: function(c"add_one"), note: function(c"note"), fault: function(c"fault") }
    }
}

/// Launches a kernel with its two arguments.
pub fn launch(function: Function, address: u64, number: u64, stream: Stream) -> i32 {
    let mut arguments = [address, number];
    let mut list: [*mut c_void; 1] = [arguments.as_mut_ptr().cast()];
    // SAFETY: one pointer to sixteen bytes, as the kernels take.
    unsafe { hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, list.as_mut_ptr(), null_mut()) }
}
