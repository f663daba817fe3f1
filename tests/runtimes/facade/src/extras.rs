//! Symbols that are no call of HIP's table: error texts, and `standin_*`, by which a test steers a stand-in.
//!
//! Owns: those symbols. Always true: none of them can fail or be made to fail. Not here: HIP's calls (`exports`).
//!
//! - `standin_fail(name, nth, code)`: the nth next call of that name fails with that code; 0 is every one; code 0
//!   takes back what was planted for the name.
//! - `standin_mode(name, value)`: sets a mode of `modes`; 0, or -1 if there is none of that name.
//! - `standin_schedule(seed)`: the order of work across streams and inside kernels; 0 is the natural one.
//! - `standin_last_fault(buffer, length)`, `standin_profile(buffer, length)`: copy as much of the text as fits, with
//!   its final zero, and answer the text's whole length without it.
//! - `standin_calls(name)`: calls of that name so far.
//! - `standin_reset()`: modes, failures and counts as the environment says; drops queued work and captures, and finds
//!   a lost context again. Allocations and handles stay.

use core::ffi::c_char;

/// Defines the symbols in the using crate.
#[doc(hidden)]
#[macro_export]
macro_rules! export_extras {
    () => {
        /// The thread's last error, cleared.
        #[unsafe(no_mangle)]
        pub extern "C" fn hipGetLastError() -> c_int {
            $crate::gate::take_last_error()
        }

        /// The thread's last error.
        #[unsafe(no_mangle)]
        pub extern "C" fn hipPeekAtLastError() -> c_int {
            $crate::gate::peek_last_error()
        }

        /// The name of an error.
        #[unsafe(no_mangle)]
        pub extern "C" fn hipGetErrorName(code: c_int) -> *const c_char {
            $crate::error::name(code).as_ptr()
        }

        /// An error in words.
        #[unsafe(no_mangle)]
        pub extern "C" fn hipGetErrorString(code: c_int) -> *const c_char {
            $crate::error::text(code).as_ptr()
        }

        /// Plants a failure.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn standin_fail(name: *const c_char, nth: u32, code: i32) {
            // SAFETY: the caller's.
            unsafe { $crate::extras::fail(name, nth, code) }
        }

        /// Sets a mode.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn standin_mode(name: *const c_char, value: u64) -> i32 {
            // SAFETY: the caller's.
            unsafe { $crate::extras::mode(name, value) }
        }

        /// Sets the order of work.
        #[unsafe(no_mangle)]
        pub extern "C" fn standin_schedule(seed: u64) {
            $crate::gate::gate().set_schedule(seed)
        }

        /// Text of the last fault.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn standin_last_fault(buffer: *mut c_char, length: usize) -> usize {
            // SAFETY: the caller's.
            unsafe { $crate::extras::copy_text(&$crate::gate::gate().last_fault(), buffer, length) }
        }

        /// The executor's profile.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn standin_profile(buffer: *mut c_char, length: usize) -> usize {
            // SAFETY: the caller's.
            unsafe { $crate::extras::copy_text(&HIP_RUNTIME.profile(), buffer, length) }
        }

        /// Calls of a name so far.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn standin_calls(name: *const c_char) -> u64 {
            // SAFETY: the caller's.
            unsafe { $crate::extras::calls(name) }
        }

        /// Back to the start.
        #[unsafe(no_mangle)]
        pub extern "C" fn standin_reset() {
            $crate::gate::gate().reset();
            HIP_RUNTIME.reset();
        }
    };
}

/// # Safety
/// `name` is null or a string that ends with a zero byte.
unsafe fn name_of<'a>(name: *const c_char) -> &'a str {
    // SAFETY: the caller's.
    unsafe { crate::exports::text(name) }.ok().and_then(|name| name.to_str().ok()).unwrap_or("")
}

/// `standin_fail`
///
/// # Safety
/// `name` is null or a string that ends with a zero byte.
pub unsafe fn fail(name: *const c_char, nth: u32, code: i32) {
    // SAFETY: the caller's.
    crate::gate::gate().fail(unsafe { name_of(name) }, nth, code);
}

/// `standin_mode`
///
/// # Safety
/// `name` is null or a string that ends with a zero byte.
pub unsafe fn mode(name: *const c_char, value: u64) -> i32 {
    // SAFETY: the caller's.
    if crate::gate::gate().set_mode(unsafe { name_of(name) }, value) { 0 } else { -1 }
}

/// `standin_calls`
///
/// # Safety
/// `name` is null or a string that ends with a zero byte.
pub unsafe fn calls(name: *const c_char) -> u64 {
    // SAFETY: the caller's.
    crate::gate::gate().calls(unsafe { name_of(name) })
}

/// Copies what fits of a text with its final zero; answers the whole length.
///
/// # Safety
/// `buffer` is null or valid for `length` bytes.
pub unsafe fn copy_text(text: &str, buffer: *mut c_char, length: usize) -> usize {
    if !buffer.is_null() && length > 0 {
        let kept = text.len().min(length - 1);
        // SAFETY: the caller's; kept + 1 <= length.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, kept);
            buffer.add(kept).write(0);
        }
    }
    text.len()
}
