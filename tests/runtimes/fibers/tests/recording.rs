//! Launches are recorded where the environment says so. A file of its own, as it changes the environment.
#![cfg_attr(not(hip_fibers_sanitizers), allow(dead_code, unused_imports))]

mod support;

use hip_facade::executor::Memory;
use hip_fibers::{Layout, RECORD_LIMIT, RECORD_VARIABLE, Sanitizer, replay};
use support::{Arguments, Device, launch, run};

#[test]
#[cfg_attr(not(hip_fibers_sanitizers), ignore = "no clang++ 19 or newer with its sanitizer runtimes")]
fn launches_are_recorded_and_replayed_and_damaged_records_refused() {
    let folder = tempfile::tempdir().unwrap();
    // SAFETY: this process has one test, and no other thread reads the environment.
    unsafe { std::env::set_var(RECORD_VARIABLE, folder.path()) };
    let device = Device::default();
    let out = device.upload(&[0.0_f32; 128]);
    let arguments = Arguments::default().u64(out).u64(out + 256).u32(3).u32(0);
    let launches = || {
        for kernel in ["wrong_division", "wrong_workgroup_race"] {
            run(Layout::Gfx11, &launch(kernel, 2, 64, &arguments), &device).unwrap();
        }
    };
    launches();
    let race = folder.path().join("wrong_workgroup_race.11");
    let first = std::fs::metadata(&race).unwrap().len();
    // A launch with more memory does not take the place of one with less.
    device.upload(&[0.0_f32; 128]);
    launches();
    assert_eq!(std::fs::metadata(&race).unwrap().len(), first);
    let mut records: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    records.sort();
    assert_eq!(records.len(), 2);

    // The workgroups of the first store the same values: a race as well.
    for record in &records {
        let error = replay(record, Layout::Gfx11, Sanitizer::Thread).unwrap_err();
        assert!(error.contains("data race"), "{error}");
        replay(record, Layout::Gfx11, Sanitizer::Undefined).unwrap();
    }

    let whole = std::fs::read(&records[0]).unwrap();
    for length in [0, 7, 20, 60, whole.len() - 1] {
        std::fs::write(&records[0], &whole[..length]).unwrap();
        let error = replay(&records[0], Layout::Gfx11, Sanitizer::Thread).unwrap_err();
        assert!(error.contains("is not a record of a launch") || error.contains("ends too early"), "{length}: {error}");
    }

    let too_much = vec![(0x10_0000_0000, 0x10_0000_0000 + RECORD_LIMIT + 1)];
    let path = folder.path().join("never");
    let error = hip_fibers::write_record(&path, &launch("canary", 1, 256, &arguments), &too_much).unwrap_err();
    assert!(error.contains("is the limit") && !path.exists(), "{error}");
    assert_eq!(device.ranges().len(), 2);
}
