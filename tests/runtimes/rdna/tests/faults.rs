//! Planted errors: each must be reported, or show in the result, with kernel, workgroup, wave, lane and instruction.

mod support;

use hip_facade::executor::{Executor, Launch, Module};
use hip_rdna::Rdna;
use support::{Arguments, Buffers, TARGETS, compile, load, probe, shipped};

const COUNT: usize = 64;

/// Runs one of the wrong kernels over 64 zeros; `j` is its parameter.
fn run(target: &str, kernel: &str, block: u32, dynamic_lds: u32, j: u32, schedule: u64) -> Result<Vec<f32>, String> {
    let module = load(&probe("wrong.hip"), target);
    run_in(&*module, kernel, block, dynamic_lds, j, schedule, COUNT)
}

fn run_in(
    module: &dyn Module,
    kernel: &str,
    block: u32,
    dynamic_lds: u32,
    j: u32,
    schedule: u64,
    count: usize,
) -> Result<Vec<f32>, String> {
    let mut y = vec![0f32; count];
    let memory = Buffers::default();
    let arguments = Arguments::default().long(memory.add(&mut y)).word(j).word(0).bytes();
    let launch = Launch { kernel, grid: [1, 1, 1], block: [block, 1, 1], dynamic_lds, arguments: &arguments, schedule };
    module.launch(&launch, &memory).map(|()| y)
}

#[track_caller]
fn says(result: Result<Vec<f32>, String>, parts: &[&str]) {
    let text = result.expect_err("the planted error went unnoticed");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_store_past_a_buffer_names_lane_address_and_distance() {
    for target in TARGETS {
        assert!(run(target, "wrong_global", 64, 0, 0, 0).is_ok());
        let parts = [
            "wrong_global",
            target,
            "workgroup (0, 0, 0), wave 1, lane 31 (work-item 63)",
            "global_store_b32",
            "stores 4 bytes at 0x",
            "0 bytes past the end",
        ];
        says(run(target, "wrong_global", 64, 0, 1, 0), &parts);
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_store_past_the_lds_names_its_size() {
    for target in TARGETS {
        assert!(run(target, "wrong_lds_end", 64, 256, 0, 0).is_ok());
        says(run(target, "wrong_lds_end", 64, 256, 1, 0), &["lane 31", "ds_store_b32", "LDS 0x100", "256 bytes"]);
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn an_lds_word_that_nobody_wrote_reads_as_nan() {
    for target in TARGETS {
        let y = run(target, "wrong_uninitialised", 64, 0, 5, 0).unwrap();
        for (k, value) in y.iter().enumerate() {
            assert_eq!(value.is_nan(), k == 63 - 5, "{target} [{k}] = {value}");
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_missing_barrier_changes_the_result_under_some_schedule() {
    for target in TARGETS {
        let right: Vec<f32> = (0..COUNT).map(|k| (63 - k) as f32).collect();
        let outcomes: Vec<_> = (0..8).map(|s| run(target, "wrong_race", 64, 0, 0, s).unwrap() == right).collect();
        assert!(outcomes.contains(&false), "{target}: no schedule shows the race: {outcomes:?}");
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_barrier_that_a_wave_never_reaches_is_reported() {
    for target in TARGETS {
        for schedule in 0..4 {
            let text = run(target, "wrong_barrier", 64, 0, 0, schedule).expect_err("not noticed");
            assert!(text.contains("barrier") && text.contains("end"), "{text}");
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_barrier_in_half_of_a_wave_is_reported() {
    for target in TARGETS {
        says(run(target, "wrong_half_barrier", 64, 0, 16, 0), &["reaches a barrier with lanes 0x0000ffff"]);
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_kernel_that_never_ends_is_stopped() {
    for target in TARGETS {
        let executor = Rdna::new(1).with_step_limit(100_000);
        let module = executor.load(&compile(&probe("wrong.hip"), target), target).unwrap();
        says(
            run_in(&*module, "wrong_endless", 32, 0, 0, 0, COUNT),
            &["wrong_endless", "100000 instructions", "runs away"],
        );
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn the_other_generations_lane_row_gives_a_wrong_matrix() {
    for target in TARGETS {
        let module = load(&probe("wrong.hip"), target);
        let row_numbers: Vec<f32> = (0..256).map(|k| (k / 16 + 1) as f32).collect();
        assert_eq!(run_in(&*module, "wrong_lane_row", 32, 0, 0, 0, 256).unwrap(), row_numbers, "{target}");
        assert_ne!(run_in(&*module, "wrong_lane_row", 32, 0, 1, 0, 256).unwrap(), row_numbers, "{target}");
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_misaligned_word_is_reported() {
    for target in TARGETS {
        says(run(target, "wrong_alignment", 32, 0, 1, 0), &["lane 0", "misaligned"]);
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_code_object_of_another_architecture_and_short_arguments_are_refused() {
    let image = compile(&shipped().join("canary.hip"), "gfx1151");
    let error = |image: &[u8], arch: &str| Rdna::new(1).load(image, arch).err().expect("must be refused");
    assert!(error(&image, "gfx1201").contains("gfx1151"));
    assert!(error(&image, "gfx1100").contains("gfx1100"));
    assert!(error(b"no code object", "gfx1151").contains("ELF"));
    // Cut and damaged files must give errors, never a panic.
    for keep in (0..image.len()).step_by(97) {
        let _ = Rdna::new(1).load(&image[..keep], "gfx1151");
    }
    let module = load(&shipped().join("canary.hip"), "gfx1151");
    let launch =
        Launch { kernel: "canary", grid: [1; 3], block: [256, 1, 1], dynamic_lds: 0, arguments: &[0; 8], schedule: 0 };
    assert!(module.launch(&launch, &Buffers::default()).unwrap_err().contains("bytes of arguments"));
}
