//! The gate: counting, failing on demand, settings from the environment.

mod support;

use std::process::Command;

use support::*;

fn fail(name: &std::ffi::CStr, nth: u32, code: i32) {
    // SAFETY: a string.
    unsafe { standin_fail(name.as_ptr(), nth, code) }
}

fn calls(name: &std::ffi::CStr) -> u64 {
    // SAFETY: a string.
    unsafe { standin_calls(name.as_ptr()) }
}

#[test]
fn the_nth_next_call_fails_once_and_has_no_effect() {
    let _alone = fresh();
    let (before, mut pointer) = (memory_info().0, 0);
    fail(c"hipMalloc", 2, 2);
    fail(c"hipMalloc", 3, 719);
    let memory = malloc(4096);
    fails!(OUT_OF_MEMORY, hipMalloc(&mut pointer, 4096));
    fails!(LAUNCH_FAILURE, hipMalloc(&mut pointer, 4096));
    assert_eq!((pointer, memory_info().0), (0, before - 4096));
    hip!(hipFree(memory));
    hip!(hipFree(malloc(4096)));
    assert_eq!(calls(c"hipMalloc"), 4);
    assert_eq!(hipGetLastError(), code::LAUNCH_FAILURE);
    assert_eq!(hipGetLastError(), 0);
}

#[test]
fn zero_means_every_call_and_code_zero_takes_it_back() {
    let _alone = fresh();
    fail(c"hipDeviceSynchronize", 0, 999);
    assert!((0..5).all(|_| {
        // SAFETY: no pointers.
        unsafe { hipDeviceSynchronize() == 999 }
    }));
    fail(c"hipDeviceSynchronize", 0, 0);
    hip!(hipDeviceSynchronize());
}

#[test]
fn an_unknown_mode_is_refused_and_reset_switches_modes_off() {
    let _alone = fresh();
    // SAFETY: strings.
    assert_eq!(unsafe { (standin_mode(c"no_such".as_ptr(), 1), standin_mode(std::ptr::null(), 1)) }, (-1, -1));
    mode(c"device_count", 1);
    standin_reset();
    hip!(hipInit(0));
}

#[test]
fn null_where_hip_needs_a_pointer_is_an_error() {
    let _alone = fresh();
    let null: *mut std::ffi::c_void = std::ptr::null_mut();
    fails!(INVALID_VALUE, hipMalloc(null.cast(), 16));
    fails!(INVALID_VALUE, hipModuleLoadData(null.cast(), null));
    fails!(INVALID_VALUE, hipMemCreate(null.cast(), 2 << 20, null.cast(), 0));
    fails!(INVALID_HANDLE, hipStreamSynchronize(0x1234 as *mut _));
    fails!(INVALID_HANDLE, hipEventRecord(null, null));
}

#[test]
fn the_executor_without_a_profile_has_an_empty_list() {
    let _alone = fresh();
    let mut buffer = [1u8; 2];
    // SAFETY: the buffer has the length it says.
    assert_eq!(unsafe { standin_profile(buffer.as_mut_ptr().cast(), 2) }, 2);
    assert_eq!(buffer, *b"[\0");
}

/// Runs one of this file's `child_` tests in a process of its own.
fn child(name: &str, settings: &str, arch: &str) -> std::process::Output {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    command.env("HIPFIRE_STANDIN", settings).env("HIPFIRE_STANDIN_ARCH", arch).output().unwrap()
}

#[test]
fn the_environment_sets_modes_failures_and_schedule_of_a_spawned_program() {
    let output =
        child("child_sees_the_environment", "mode=device_count:3; fail=hipMalloc:1:2;schedule=7;log=1", "gfx1151");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(
        errors.contains("hipMalloc(pointer: 0x") && errors.contains(", bytes: 16) = hipErrorOutOfMemory"),
        "{errors}"
    );
}

#[test]
#[ignore = "run by the_environment_sets_modes_failures_and_schedule_of_a_spawned_program"]
fn child_sees_the_environment() {
    let (mut count, mut pointer, mut integrated) = (0, 0, 0);
    hip!(hipGetDeviceCount(&mut count));
    hip!(hipDeviceGetAttribute(&mut integrated, 16, 0));
    fails!(OUT_OF_MEMORY, hipMalloc(&mut pointer, 16));
    assert_eq!((count, integrated, hip_facade::gate::gate().schedule()), (2, 1, 7));
}

#[test]
fn a_mistyped_setting_or_card_fails_every_call_instead_of_passing_a_test() {
    for (settings, arch, wanted) in [
        ("mode=no_such", "gfx1201", "HIPFIRE_STANDIN: there is no mode `no_such`"),
        ("schedule=x", "gfx1201", "HIPFIRE_STANDIN: `x` in `schedule=x` is no number"),
        ("", "gfx90a", "HIPFIRE_STANDIN_ARCH=gfx90a is none of gfx1201, gfx1151"),
    ] {
        let output = child("child_cannot_start", settings, arch);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(wanted));
    }
}

#[test]
#[ignore = "run by a_mistyped_setting_or_card_fails_every_call_instead_of_passing_a_test"]
fn child_cannot_start() {
    // SAFETY: no pointers.
    assert_ne!(unsafe { hipInit(0) }, 0);
}
