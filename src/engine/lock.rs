//! One process a GPU: two of them would plan the same memory.
//!
//! Owns: the lock file of a device.
//! Always true: the system gives the lock back when its process ends, however it ends; whoever comes second is told who
//! came first.
//! Not here: which devices there are (`doctor`), the plan (`arena`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A device that is ours until this is dropped.
#[derive(Debug)]
pub struct DeviceLock {
    _file: File,
}

impl DeviceLock {
    /// For a GPU, by HIP's number.
    ///
    /// Errors: `Error::Device` naming the process that has it.
    pub fn hip(number: usize) -> Result<DeviceLock> {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
        DeviceLock::take(&folder.unwrap_or_else(std::env::temp_dir), &format!("hip{number}"))
    }

    fn take(folder: &Path, device: &str) -> Result<DeviceLock> {
        let path = folder.join(format!("hipfire-{device}.lock"));
        let failed = |what: &str| Error::io(format!("cannot {what} the lock of device {device}, {}", path.display()));
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).to_owned();
        let mut file = options.open(&path).map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failed("take")(error)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The file is only a hint: the lock itself says that somebody has it.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.split_whitespace().next().unwrap_or("unknown").to_string();
                return Err(Error::Device(format!(
                    "device {device} is in use by another hipfire, process {holder}: stop it, or name another device"
                )));
            }
        }
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(failed("write"))?;
        Ok(DeviceLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_is_told_who_came_first_and_has_its_turn_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let first = DeviceLock::take(folder.path(), "hip0").unwrap();
        let told = DeviceLock::take(folder.path(), "hip0").unwrap_err().to_string();
        assert!(told.contains("hip0") && told.contains(&std::process::id().to_string()), "{told}");
        assert!(DeviceLock::take(folder.path(), "hip1").is_ok(), "another device is free");
        drop(first);
        assert!(DeviceLock::take(folder.path(), "hip0").is_ok());
        assert!(DeviceLock::take(&folder.path().join("missing"), "hip0").is_err());
    }
}
