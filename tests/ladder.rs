//! The ladder: every kernel against its oracle on stand-ins for both targets, under several schedules.
//!
//! A stand-in imitates one card a process, so each run is a process of its own: `hipfire doctor --self-test`.

mod support;

use std::process::Command;

use hipfire::backend::hip::check::{Class, Outcome};
use support::standin::standin;

fn run(runtime: &str, arch: &str, schedule: u64) -> Vec<Outcome> {
    let output = Command::new(env!("CARGO_BIN_EXE_hipfire"))
        .args(["doctor", "--self-test", "--json"])
        .env("HIPFIRE_HIP_LIBRARY", standin(runtime))
        .env("HIPFIRE_STANDIN_ARCH", arch)
        .env("HIPFIRE_STANDIN", format!("schedule={schedule}"))
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let receipt: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{errors}"));
    let outcomes = &receipt["devices"][0]["self_test"]["outcomes"];
    let outcomes: Vec<Outcome> =
        serde_json::from_value(outcomes.clone()).unwrap_or_else(|e| panic!("{e}: {receipt:#}\n{errors}"));
    for outcome in &outcomes {
        let Outcome { kernel, case, worst, passed, message, .. } = outcome;
        assert!(
            passed,
            "{runtime} as {arch}, schedule {schedule}: {kernel}, {case}: {worst} of its bound: {message:?}"
        );
    }
    assert!(outcomes.len() > 100, "the checks ran: {receipt:#}");
    outcomes
}

/// All schedules give the same bits where a kernel promises them.
fn same_bits(runs: &[Vec<Outcome>]) {
    for other in &runs[1..] {
        for (a, b) in runs[0].iter().zip(other) {
            assert_eq!((&a.kernel, &a.case), (&b.kernel, &b.case));
            if a.class != Class::Rounding {
                assert_eq!(a.digest, b.digest, "{}, {}: bits depend on the schedule", a.kernel, a.case);
            }
        }
    }
}

fn climb(runtime: &str, arch: &str, schedules: &[u64]) {
    same_bits(&schedules.iter().map(|&schedule| run(runtime, arch, schedule)).collect::<Vec<_>>());
}

#[test]
#[cfg_attr(not(hipfire_kernels), ignore = "built without GPU kernels: install clang-22 and lld-22")]
fn every_kernel_agrees_with_its_oracle_as_fibers_in_the_layout_of_gfx1151() {
    climb("fibers", "gfx1151", &[0, 1, 2, 3]);
}

#[test]
#[cfg_attr(not(hipfire_kernels), ignore = "built without GPU kernels: install clang-22 and lld-22")]
fn every_kernel_agrees_with_its_oracle_as_fibers_in_the_layout_of_gfx1201() {
    climb("fibers", "gfx1201", &[0, 1, 2, 3]);
}

#[test]
#[cfg_attr(not(hipfire_kernels), ignore = "built without GPU kernels: install clang-22 and lld-22")]
fn every_kernel_agrees_with_its_oracle_as_machine_code_of_gfx1151() {
    climb("rdna", "gfx1151", &[0, 1, 7]);
}

#[test]
#[cfg_attr(not(hipfire_kernels), ignore = "built without GPU kernels: install clang-22 and lld-22")]
fn every_kernel_agrees_with_its_oracle_as_machine_code_of_gfx1201() {
    climb("rdna", "gfx1201", &[0, 1, 7]);
}
