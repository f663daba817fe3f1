//! `hipfire doctor` and `--device hip` as a process: without a library, with Debian's real one, and on a stand-in.

mod cli_support;
mod support;

use cli_support::{Outcome, Program};
use serde_json::Value;
use support::standin::standin;

/// Debian's package libamdhip64-5.
const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5";

fn on_fibers(arch: &str, settings: &str) -> Program {
    Program::new()
        .env("HIPFIRE_HIP_LIBRARY", standin("fibers").to_str().unwrap())
        .env("HIPFIRE_STANDIN_ARCH", arch)
        .env("HIPFIRE_STANDIN", settings)
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// Whether this build has kernels; without a compiler there is no self-test and no probe.
fn has_kernels(diagnosis: &Value) -> bool {
    !diagnosis["pack"]["architectures"].as_array().unwrap().is_empty()
}

#[test]
fn without_a_library_everyone_says_what_is_missing_and_what_was_tried() {
    let program = Program::new().env("HIPFIRE_HIP_LIBRARY", "/nowhere/libamdhip64.so.7");
    let outcome = program.run(&["doctor"]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.out.contains("/nowhere/libamdhip64.so.7") && outcome.out.contains("System"), "{outcome:?}");
    assert!(outcome.err.contains("HIPFIRE_HIP_LIBRARY") && outcome.err.contains("unset it"), "{outcome:?}");
    for args in [&["run", "--device", "hip", "x"][..], &["score", "--device", "hip:1", "x"][..]] {
        let outcome = program.run(args);
        assert_eq!((outcome.code, outcome.out.as_str()), (1, ""), "{outcome:?}");
        assert!(outcome.err.contains("/nowhere/libamdhip64.so.7"), "{outcome:?}");
    }
    let found = json(&program.run(&["doctor", "--json"]));
    assert_eq!(found["library"]["tried"][0]["name"], "/nowhere/libamdhip64.so.7");
    assert!(!found["problems"].as_array().unwrap().is_empty() && found["devices"] == Value::Array(vec![]));
    assert!(found["system"].as_array().unwrap().iter().any(|finding| finding["name"] == "open files"));
}

#[test]
fn a_search_that_finds_nothing_lists_every_name() {
    // Nothing at the end of ROCM_PATH; the loader's own path has no ROCm 6 or 7 on a machine that runs these tests
    // without a GPU, and where it has, there is nothing to list.
    let outcome = Program::new().env("ROCM_PATH", "/nowhere/rocm").run(&["doctor", "--json"]);
    let found = json(&outcome);
    if found["library"]["path"].is_null() {
        let tried: Vec<&str> =
            found["library"]["tried"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect();
        assert!(
            tried.contains(&"libamdhip64.so.6") && tried.contains(&"/nowhere/rocm/lib/libamdhip64.so.7"),
            "{tried:?}"
        );
        assert!(outcome.err.contains("install ROCm"), "{outcome:?}");
    }
}

#[test]
#[ignore = "needs Debian's package libamdhip64-5"]
fn with_debians_real_library_everyone_says_that_there_is_no_device() {
    let program = Program::new().env("HIPFIRE_HIP_LIBRARY", DEBIAN);
    for args in [&["doctor"][..], &["run", "--device", "hip", "x"][..], &["score", "--device", "hip", "x"][..]] {
        let outcome = program.run(args);
        assert_eq!(outcome.code, 1, "{outcome:?}");
        assert!(outcome.err.contains("there is no device") && outcome.err.contains("hipErrorNoDevice"), "{outcome:?}");
    }
    assert_eq!(json(&program.run(&["doctor", "--json"]))["library"]["runtime"], "5.2.21153");
}

#[test]
fn a_device_is_described_probed_and_matched_with_the_kernels() {
    for arch in ["gfx1151", "gfx1201"] {
        let outcome = on_fibers(arch, "").run(&["doctor", "--json"]);
        let found = json(&outcome);
        let device = &found["devices"][0];
        assert_eq!(device["arch"], arch);
        assert!(device["memory"]["free"].as_u64().unwrap() > 1 << 30);
        if !has_kernels(&found) {
            assert!(outcome.code == 1 && outcome.err.contains("without GPU kernels"), "{outcome:?}");
            continue;
        }
        assert_eq!((outcome.code, &device["kernels"], &device["kv_backend"]), (0, &arch.into(), &"vmm".into()));
        assert!(device["probe"].as_array().unwrap().iter().all(|step| step["passed"] == true), "{device}");
        let text = on_fibers(arch, "").run(&["doctor"]).out;
        for part in ["HIP library", arch, "unmap each piece and release it", "System"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_device_is_said() {
    let none = on_fibers("gfx1201", "mode=device_count").run(&["doctor"]);
    assert!(none.code == 1 && none.err.contains("there is no device"), "{none:?}");
    let run = on_fibers("gfx1201", "mode=device_count").run(&["run", "--device", "hip", "x"]);
    assert!(run.code == 1 && run.err.contains("there is no device"), "{run:?}");
    let second = on_fibers("gfx1201", "").run(&["run", "--device", "hip:7", "x"]);
    assert!(second.code == 1 && second.err.contains("no HIP device 7"), "{second:?}");

    let outcome = on_fibers("gfx1201", "fail=hipMemSetAccess:2:1").run(&["doctor", "--json"]);
    let found = json(&outcome);
    if has_kernels(&found) {
        let backend = found["devices"][0]["kv_backend"].as_str().unwrap();
        assert!(backend.starts_with("legacy: map a second piece") && outcome.code == 0, "{outcome:?}");
    }
}

#[test]
fn a_self_test_leaves_a_receipt() {
    let program = on_fibers("gfx1201", "");
    let receipt = program.path().join("receipt.json");
    let outcome = program.run(&["doctor", "--self-test", "-o", receipt.to_str().unwrap()]);
    let found: Value = serde_json::from_str(&std::fs::read_to_string(receipt).unwrap()).unwrap();
    if !has_kernels(&found) {
        return;
    }
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let checks = found["devices"][0]["self_test"]["outcomes"].as_array().unwrap();
    assert!(checks.len() > 5 && checks.iter().all(|check| check["passed"] == true));
    for key in ["kernel", "case", "class", "worst", "digest"] {
        assert!(!checks[0][key].is_null(), "{key}");
    }
    assert!(found["date"].as_str().unwrap().ends_with('Z') && !found["version"].is_null());
    assert!(outcome.out.contains(&format!("{} checks, 0 failed", checks.len())), "{}", outcome.out);
}
