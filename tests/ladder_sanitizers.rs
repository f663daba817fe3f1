//! The ladder's rung for races and undefined behaviour: a launch of every kernel, recorded from the self-test on fibers
//! and replayed under TSan and UBSan (with ASan), in the lane layouts of both targets.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use hip_fibers::{Layout, RECORD_VARIABLE, Sanitizer, replay, sanitizers_missing};
use hipfire::backend::hip::pack::Pack;
use support::standin::standin;

/// A record of each kernel.
fn records(arch: &str, folder: &std::path::Path) -> BTreeMap<String, PathBuf> {
    let output = Command::new(env!("CARGO_BIN_EXE_hipfire"))
        .args(["doctor", "--self-test", "--json"])
        .env("HIPFIRE_HIP_LIBRARY", standin("fibers"))
        .env("HIPFIRE_STANDIN_ARCH", arch)
        .env(RECORD_VARIABLE, folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let records = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let records: BTreeMap<String, PathBuf> =
        records.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path)).collect();
    let kernels = Pack::embedded().unwrap();
    for kernel in kernels.objects(arch).flat_map(|(object, _)| &object.kernels) {
        assert!(records.contains_key(&kernel.name), "the self-test does not launch {}:\n{errors}", kernel.name);
    }
    records
}

fn clean(arch: &str, layout: Layout) {
    if let Some(why) = sanitizers_missing() {
        panic!("no sanitizers: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    for (kernel, record) in records(arch, folder.path()) {
        for sanitizer in [Sanitizer::Thread, Sanitizer::Undefined] {
            replay(&record, layout, sanitizer).unwrap_or_else(|report| panic!("{kernel}: {report}"));
        }
    }
}

#[test]
#[cfg_attr(not(hipfire_kernels), ignore = "built without GPU kernels: install clang-22, lld-22 and libclang-rt-22-dev")]
fn no_kernel_races_or_leaves_the_language_in_the_layout_of_gfx1151() {
    clean("gfx1151", Layout::Gfx11);
}

#[test]
#[cfg_attr(not(hipfire_kernels), ignore = "built without GPU kernels: install clang-22, lld-22 and libclang-rt-22-dev")]
fn no_kernel_races_or_leaves_the_language_in_the_layout_of_gfx1201() {
    clean("gfx1201", Layout::Gfx12);
}
