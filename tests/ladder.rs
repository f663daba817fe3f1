//! The ladder: every kernel against its oracle on stand-ins for both targets, under several schedules.
//!
//! A stand-in imitates one card a process, so each run is a process of its own: this test's executable, as `child`.

mod support;

use std::process::Command;

use hipfire::backend::hip::check::{self, Class, Outcome};
use hipfire::backend::hip::pack::Pack;
use hipfire::device::{Context, Library};
use serde::Deserialize;
use support::standin::standin;

/// What a parent reads of an outcome.
#[derive(Debug, Clone, Deserialize)]
struct Line {
    kernel: String,
    case: String,
    class: String,
    worst: f64,
    passed: bool,
    digest: String,
    message: Option<String>,
}

const MARK: &str = "outcome: ";

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn child() {
    let library = Library::open().unwrap();
    let context = Context::new(&library, 0).unwrap();
    let mut progress = |outcome: &Outcome| println!("{MARK}{}", serde_json::to_string(outcome).unwrap());
    check::run(&context, &Pack::embedded().unwrap(), &mut progress).unwrap();
}

fn run(runtime: &str, arch: &str, schedule: u64) -> Vec<Line> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env("HIPFIRE_HIP_LIBRARY", standin(runtime))
        .env("HIPFIRE_STANDIN_ARCH", arch)
        .env("HIPFIRE_STANDIN", format!("schedule={schedule}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Line> =
        text.lines().filter_map(|line| line.split_once(MARK)).map(|(_, j)| serde_json::from_str(j).unwrap()).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{runtime} as {arch}, schedule {schedule}:\n{text}\n{errors}");
    assert!(lines.len() > 20, "the checks ran:\n{text}");
    for line in &lines {
        let Line { kernel, case, worst, passed, message, .. } = line;
        assert!(
            passed,
            "{runtime} as {arch}, schedule {schedule}: {kernel}, {case}: {worst} of its bound: {message:?}"
        );
    }
    lines
}

/// All schedules give the same bits where a kernel promises them.
fn same_bits(runs: &[Vec<Line>]) {
    for other in &runs[1..] {
        for (a, b) in runs[0].iter().zip(other) {
            assert_eq!((&a.kernel, &a.case), (&b.kernel, &b.case));
            if a.class != "rounding" {
                assert_eq!(a.digest, b.digest, "{}, {}: bits depend on the schedule", a.kernel, a.case);
            }
        }
    }
    assert_eq!(serde_json::to_value(Class::Rounding).unwrap(), "rounding");
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
