//! The device layer without a device: no library, a library that is none, and Debian's real one of ROCm 5.2.

use std::ffi::OsStr;
use std::path::Path;

use hipfire::device::{Context, Library};
use hipfire::error::Error;

/// Debian's package libamdhip64-5, the only real HIP library that a machine without ROCm can easily have.
const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5";

#[test]
fn no_library_is_an_error_that_lists_what_was_tried() {
    let missing = Library::find(Some(OsStr::new("/nowhere/libamdhip64.so.7")), None).err().unwrap();
    assert!(missing.named && missing.tried.len() == 1, "{missing:?}");
    let error = Error::from(missing);
    assert!(matches!(error, Error::Device(_)));
    let text = error.to_string();
    assert!(["HIPFIRE_HIP_LIBRARY", "/nowhere/libamdhip64.so.7", "unset"].iter().all(|p| text.contains(p)), "{text}");
}

#[test]
#[ignore = "needs Debian's package libamdhip64-5"]
fn debians_real_library_loads_and_says_that_there_is_no_device() {
    let library = Library::load(Path::new(DEBIAN)).unwrap();
    assert!(library.path().to_string_lossy().contains("libamdhip64.so.5.2"), "{}", library.path().display());
    let failure = library.device_count().unwrap_err();
    assert!(failure.is_no_device(), "{failure}");
    let text = Context::new(&library, 0).err().unwrap().to_string();
    assert!(text.contains("hipErrorNoDevice (100)") && text.contains("sees no AMD GPU"), "{text}");
    // A symbol that ROCm 5 does not have is a sentence, not the end of the process.
    assert!(library.missing().contains(&"hipGetDevicePropertiesR0600"), "{:?}", library.missing());
    let text = library.properties(0).unwrap_err().to_string();
    assert!(text.contains("has no hipGetDevicePropertiesR0600") && text.contains("ROCm 6"), "{text}");
}
