//! Finding and loading `libamdhip64`.
//!
//! Owns: the order of the search, and the library, which stays loaded until the process ends (a HIP runtime has threads
//! of its own and does not survive being unloaded).
//! Always true: not finding one is a value that lists every name tried with the loader's reason.
//! Not here: calling it (`api`), what it needs from the system (`engine::doctor`).

use std::error::Error as _;
use std::ffi::OsStr;
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::api::{Api, BASIC, GRAPHS, VIRTUAL_MEMORY};
use super::properties::{Properties, Versions};
use super::{Failure, sys};
use crate::error::{Error, Result};

/// Names one library; nothing else is tried then.
pub const VARIABLE: &str = "HIPFIRE_HIP_LIBRARY";
/// ROCm's own variable for where it is installed.
const ROCM_PATH: &str = "ROCM_PATH";
/// ROCm 7, ROCm 6, and the name that development packages add.
const NAMES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"];

/// A name that was tried, and why it was not taken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Attempt {
    /// File name or path.
    pub name: PathBuf,
    /// The loader's reason.
    pub reason: String,
}

/// No library was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    /// What was tried, in order.
    pub tried: Vec<Attempt>,
    /// The user named the library.
    pub named: bool,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.named {
            let attempt = self.tried.first().map(|a| format!("'{}': {}", a.name.display(), a.reason));
            let attempt = attempt.unwrap_or_default();
            return write!(f, "{VARIABLE} names a library that cannot be loaded, {attempt}; correct it or unset it");
        }
        f.write_str(
            "no HIP library was found: install ROCm 6.4 or newer (the package with libamdhip64), or name the ",
        )?;
        write!(f, "library in {VARIABLE}. Tried")?;
        for (i, attempt) in self.tried.iter().enumerate() {
            write!(f, "{} {} ({})", if i == 0 { ":" } else { "," }, attempt.name.display(), attempt.reason)?;
        }
        Ok(())
    }
}

impl From<NotFound> for Error {
    fn from(missing: NotFound) -> Error {
        Error::Device(missing.to_string())
    }
}

/// What to try, in order.
pub fn candidates(named: Option<&OsStr>, rocm: Option<&OsStr>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.into()];
    }
    let folder = Path::new(rocm.unwrap_or(OsStr::new("/opt/rocm"))).join("lib");
    NAMES.iter().map(PathBuf::from).chain(NAMES.iter().map(|name| folder.join(name))).collect()
}

/// A loaded `libamdhip64`. Cheap to clone.
#[derive(Clone)]
pub struct Library {
    pub(super) api: Arc<Api>,
}

impl Library {
    /// Searches as the environment says: `HIPFIRE_HIP_LIBRARY` alone if it is set, else the loader's path and ROCm's
    /// folder.
    pub fn open() -> Result<Library, NotFound> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Library::find(set(VARIABLE).as_deref(), set(ROCM_PATH).as_deref())
    }

    /// Searches as these values of the two variables say.
    pub fn find(named: Option<&OsStr>, rocm: Option<&OsStr>) -> Result<Library, NotFound> {
        let mut tried = Vec::new();
        for name in candidates(named, rocm) {
            match Library::load(&name) {
                Ok(library) => return Ok(library),
                Err(attempt) => tried.push(attempt),
            }
        }
        Err(NotFound { tried, named: named.is_some() })
    }

    /// One library by file name or path.
    pub fn load(name: &Path) -> Result<Library, Attempt> {
        use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};
        let refused = |error: libloading::Error| {
            // The loader's own words are the innermost source. They repeat the name, which stands beside the reason.
            let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            let reason = text.strip_prefix(&format!("{}: ", name.display())).unwrap_or(&text).to_string();
            Attempt { name: name.into(), reason }
        };
        // NOW, so that a dependency that lacks a symbol is an error here and not the end of the process later.
        // SAFETY: loading runs the library's initialisers. The user or the system installed it as its HIP runtime.
        let object = unsafe { Object::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map_err(refused)?;
        // SAFETY: each field gets the address of the symbol of its own name, whose C signature is HIP's header's.
        let entry = unsafe { sys::Hip::from_library(object) }.map_err(refused)?;
        if entry.hipGetDeviceCount.is_err() {
            return Err(Attempt {
                name: name.into(),
                reason: "it has no hipGetDeviceCount, so it is no HIP library".into(),
            });
        }
        let path = entry.hipGetDeviceCount.as_ref().ok().and_then(|f| object_of(*f as *const libc::c_void));
        let path = path.unwrap_or_else(|| name.into());
        Ok(Library { api: Arc::new(Api::new(ManuallyDrop::new(entry), path)) })
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        self.api.path()
    }

    /// Calls that this program may make and the library does not have.
    pub fn missing(&self) -> Vec<&'static str> {
        self.api.missing(&[BASIC, GRAPHS, VIRTUAL_MEMORY])
    }

    /// Calls of virtual memory that the library does not have.
    pub fn missing_virtual_memory(&self) -> Vec<&'static str> {
        self.api.missing(&[VIRTUAL_MEMORY])
    }

    /// What the library says of itself and of its driver.
    pub fn versions(&self) -> Versions {
        Versions { runtime: self.api.runtime_version().ok(), driver: self.api.driver_version().ok() }
    }

    /// A refusal to list devices as a sentence, with the library that said so.
    pub fn no_device(&self, failure: &Failure) -> String {
        match failure.is_no_device() {
            true => format!(
                "there is no device: {} works and sees no AMD GPU (hipErrorNoDevice). Either there is none, the amdgpu \
                 driver does not know it, or /dev/kfd may not be opened",
                self.path().display()
            ),
            false => format!("{} cannot list devices: {failure}", self.path().display()),
        }
    }

    /// How many devices there are. None at all is HIP's own error, `hipErrorNoDevice`. It initialises the library, as any
    /// call does; `hipInit` is not used because ROCm 5 answers it with `hipErrorInvalidDevice` when there is none.
    pub fn device_count(&self) -> Result<i32, Failure> {
        self.api.device_count()
    }

    /// What a device is.
    pub fn properties(&self, device: i32) -> Result<Properties, Failure> {
        Properties::read(&self.api, device)
    }
}

/// The file that an address was loaded from.
fn object_of(address: *const libc::c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: `Dl_info` is pointers, for which all zeros is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the call looks the address up and writes the struct, which is ours.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's string ends in a zero byte and lives as long as the library, which is never unloaded.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    Some(std::fs::canonicalize(&path).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_library_is_the_only_one_tried_and_rocms_folder_comes_last() {
        let named = candidates(Some(OsStr::new("/x/lib.so")), Some(OsStr::new("/rocm")));
        assert_eq!(named, [PathBuf::from("/x/lib.so")]);
        let all = candidates(None, Some(OsStr::new("/rocm")));
        assert_eq!(all.first(), Some(&PathBuf::from("libamdhip64.so.7")));
        assert_eq!(all.last(), Some(&PathBuf::from("/rocm/lib/libamdhip64.so")));
        assert!(candidates(None, None).contains(&PathBuf::from("/opt/rocm/lib/libamdhip64.so.6")));
    }

    #[test]
    fn a_missing_library_says_what_was_tried_and_what_to_do() {
        let attempt = Library::load(Path::new("/nowhere/libamdhip64.so.7")).err().unwrap();
        assert!(attempt.reason.contains("cannot open") && !attempt.reason.contains("/nowhere"), "{attempt:?}");
        let text = NotFound { tried: vec![attempt.clone()], named: false }.to_string();
        assert!(["install ROCm", VARIABLE, "/nowhere/libamdhip64.so.7"].iter().all(|p| text.contains(p)), "{text}");
        let text = NotFound { tried: vec![attempt], named: true }.to_string();
        assert!(text.contains("correct it or unset it") && text.contains("/nowhere"), "{text}");
    }

    #[test]
    fn a_library_that_is_not_hip_is_refused_with_the_reason() {
        let attempt = Library::load(Path::new("libc.so.6")).err().unwrap();
        assert!(attempt.reason.contains("no hipGetDeviceCount"), "{attempt:?}");
    }
}
