//! Every planted error (wrong_kernels.hip) is reported with kernel and line by the checker it is meant for.
#![cfg_attr(not(hip_fibers), allow(dead_code, unused_imports))]

mod support;

use hip_facade::executor::Memory;
use hip_fibers::{Layout, Library, Sanitizer};
use support::{Arguments, Device, launch, run, sanitize};

const SOURCE: &str = include_str!("wrong_kernels.hip");

/// `wrong_kernels.hip:12` for the line with `// LINE name`.
fn line(name: &str) -> String {
    let marker = format!("// LINE {name}");
    let at = SOURCE.lines().position(|line| line.ends_with(&marker)).expect("a marked line");
    format!("wrong_kernels.hip:{}", at + 1)
}

/// 64 floats out, 64 in, and an index.
fn arguments(device: &Device, index: u32) -> Arguments {
    let out = device.upload(&[0.0_f32; 64]);
    let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
    Arguments::default().u64(out).u64(device.upload(&values)).u32(0).u32(index)
}

/// The checked build must report `what` at the line, in every layout and schedule.
fn reported(name: &str, threads: u32, what: &str) {
    for layout in Layout::ALL {
        for schedule in [0, 1, 2, 3, 11, 12] {
            let device = Device::default();
            let arguments = arguments(&device, 0);
            let kernel = format!("wrong_{name}");
            let mut launch = launch(&kernel, 1, threads, &arguments);
            launch.schedule = schedule;
            launch.dynamic_lds = if name == "dynamic_lds_overrun" { 256 } else { 0 };
            let error = run(layout, &launch, &device).expect_err(&kernel);
            assert!(error.starts_with(&format!("kernel {kernel}, workgroup (0,0,0) thread ")), "{error}");
            assert!(error.contains(what), "{layout:?} {schedule}: {error}");
            if SOURCE.contains(&format!("// LINE {name}\n")) {
                assert!(error.contains(&line(name)), "{layout:?} {schedule}, not {}: {error}", line(name));
            }
        }
    }
}

macro_rules! reported {
    ($($(#[$about:meta])* $test:ident: $name:literal, $threads:literal, $what:literal;)*) => {$(
        #[test]
        #[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
        fn $test() {
            reported($name, $threads, $what);
        }
    )*};
}

reported! {
    a_divergent_barrier_is_reported: "divergent_barrier", 64, "divergent barrier: thread ";
    a_divergent_shuffle_is_reported: "divergent_shuffle", 64, "divergent wave operation: thread ";
    shuffles_in_two_branches_are_reported: "shuffle_in_two_branches", 64, "divergent wave operation: thread ";
    an_lds_overrun_is_reported: "lds_overrun", 64, "LDS overrun: store of 4 bytes outside any LDS variable";
    a_dynamic_lds_overrun_is_reported: "dynamic_lds_overrun", 64, "LDS overrun: store of 4 bytes outside any LDS variable";
    more_lds_than_there_is_is_reported: "too_much_lds", 64, "of 65536, at";
    an_uninitialised_lds_read_is_reported: "uninitialised_lds", 64, "uninitialised LDS: load of 4 bytes that nobody wrote";
    an_uninitialised_lds_atomic_is_reported: "uninitialised_atomic", 64, "uninitialised LDS: load of 4 bytes";
    a_write_past_an_allocation_is_reported: "global_write", 64, "store of 4 bytes at 0x";
    a_read_far_from_allocations_is_reported: "wild_read", 64, "load of 4 bytes at 0x1";
    a_stack_overflow_is_reported: "stack_overflow", 64, "bytes of stack at";
    a_division_by_zero_is_reported: "division", 64, "integer division by zero";
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn a_wrong_lane_row_is_reported_in_the_gfx11_layout_only() {
    let go = |layout| {
        let device = Device::default();
        let out = device.upload(&[0.0_f32; 256]);
        let arguments = Arguments::default().u64(out).u64(0).u32(0).u32(0);
        run(layout, &launch("wrong_lane_row", 1, 32, &arguments), &device)
    };
    let error = go(Layout::Gfx11).expect_err("lanes 16 to 31 do not repeat");
    assert!(error.contains("lanes 0 and 16 hold different A"), "{error}");
    assert!(error.contains(&line("lane_row")), "{error}");
    assert_eq!(go(Layout::Gfx12), Ok(()));
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn an_endless_wait_is_reported() {
    let device = Device::default();
    let arguments = arguments(&device, 0);
    let error = run(Layout::Gfx12, &launch("wrong_endless_wait", 1, 64, &arguments), &device).expect_err("waits");
    assert!(error.contains("does it wait for another work-item?") && error.contains(&line("endless_wait")), "{error}");
}

/// Says that addresses are accessible which are not: the signal must be caught.
struct Boastful;

impl Memory for Boastful {
    fn find(&self, address: u64) -> Option<(u64, u64)> {
        Some((0, address + 1))
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        vec![(0, u64::MAX / 2)]
    }
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn a_segmentation_fault_in_a_kernel_is_an_error_value() {
    let device = Device::default();
    let arguments = arguments(&device, 0);
    for layout in Layout::ALL {
        let launch = launch("wrong_wild_read", 3, 64, &arguments);
        let error = Library::open(layout).unwrap().launch(&launch, &Boastful).expect_err("unmapped");
        assert!(error.contains("access at 0x1") && error.contains(&line("wild_read")), "{error}");
    }
}

/// The host process goes on after any fault: the next launch of the same thread runs.
#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn a_fault_leaves_the_process_able_to_launch() {
    for name in ["wrong_stack_overflow", "wrong_divergent_barrier", "wrong_division"] {
        let device = Device::default();
        let bad = arguments(&device, 0);
        run(Layout::Gfx12, &launch(name, 4, 64, &bad), &device).expect_err(name);
        let out = device.upload(&[0.0_f32; 64]);
        let good = Arguments::default().u64(out).u64(out).u32(3).u32(0);
        run(Layout::Gfx12, &launch("wrong_division", 4, 64, &good), &device).expect("3 divides");
        assert_eq!(device.download::<f32>(out, 64)[63], 21.0);
    }
}

/// A replay must report `what` at the line, in both of its layouts.
fn replay_reports(name: &str, threads: u32, groups: u32, index: u32, sanitizer: Sanitizer, what: &str) {
    let device = Device::default();
    let arguments = arguments(&device, index);
    let kernel = format!("wrong_{name}");
    for layout in Layout::REPLAYED {
        let error =
            sanitize(layout, &launch(&kernel, groups, threads, &arguments), &device, sanitizer).expect_err(&kernel);
        assert!(error.starts_with(&format!("kernel {kernel}: ")), "{error}");
        assert!(error.contains(what), "{layout:?}: {error}");
        assert!(error.contains(&line(name)), "{layout:?}, not {}: {error}", line(name));
    }
}

macro_rules! replay_reports {
    ($($test:ident: $name:literal, $threads:literal, $groups:literal, $index:literal, $sanitizer:ident, $what:literal;)*) => {$(
        #[test]
        #[cfg_attr(not(hip_fibers_sanitizers), ignore = "no clang++ 19 or newer with its sanitizer runtimes")]
        fn $test() {
            replay_reports($name, $threads, $groups, $index, Sanitizer::$sanitizer, $what);
        }
    )*};
}

replay_reports! {
    tsan_reports_a_missing_barrier: "missing_barrier", 64, 1, 0, Thread, "data race";
    tsan_reports_a_race_between_workgroups: "workgroup_race", 64, 2, 0, Thread, "data race";
    ubsan_reports_a_misaligned_vector: "alignment", 32, 1, 1, Undefined, "misaligned address";
    ubsan_reports_a_signed_overflow: "overflow", 32, 1, 1, Undefined, "signed integer overflow";
    ubsan_reports_an_index_beyond_an_array_in_a_struct: "index_in_struct", 32, 1, 11, Undefined, "out of bounds";
    asan_reports_an_index_beyond_a_private_array: "private_array", 32, 1, 8, Undefined, "stack-buffer-overflow";
    asan_reports_an_lds_overrun: "lds_overrun", 64, 1, 0, Undefined, "out of bounds";
    asan_reports_a_write_past_an_allocation: "global_write", 64, 1, 0, Undefined, "AddressSanitizer";
}
