//! The host's virtual memory: files mapped for reading, and anonymous ranges reserved without access.
//!
//! Owns: every `mmap` of the process, and the `unsafe` that comes with it.
//! Not here: the accounting and policy (`arena`).

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// A whole file mapped read-only. The file must not be truncated while mapped.
pub struct FileMap {
    map: memmap2::Mmap,
}

impl FileMap {
    /// Maps `path`.
    pub fn open(path: &Path) -> Result<FileMap> {
        let what = || format!("cannot open {}", path.display());
        let file = File::open(path).map_err(Error::io(what()))?;
        // SAFETY: the mapping is read-only; a checkpoint is not rewritten while it is in use (documented above).
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(Error::io(what()))?;
        Ok(FileMap { map })
    }
    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }
}
