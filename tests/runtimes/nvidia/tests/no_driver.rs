//! What can be proven without an NVIDIA driver: its absence is an answer, not an abort.

use std::ffi::c_int;

use hip_facade::gate::gate;
use hip_nvidia::hip_symbols::*;

fn driver_is_absent() -> bool {
    let mut count: c_int = 7;
    // SAFETY: a pointer to a local.
    let code = unsafe { hipGetDeviceCount(&mut count) };
    code != 0
}

#[test]
fn without_a_driver_the_calls_answer_no_device_and_say_what_was_tried() {
    if !driver_is_absent() {
        // A machine with a GPU: the smoke program is the test there.
        return;
    }
    let mut pointer = 0;
    // SAFETY: pointers to locals, or none.
    let codes = unsafe { [hipInit(0), hipMalloc(&mut pointer, 16), hipDeviceSynchronize(), hipSetDevice(0)] };
    assert_eq!(codes, [100; 4]);
    assert!(gate().last_fault().contains("libcuda.so.1"), "{}", gate().last_fault());
    assert_eq!(gate().calls("hipMalloc"), 1);
}
