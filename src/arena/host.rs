//! The host's virtual memory: files mapped for reading, and anonymous ranges reserved without access.
//!
//! Owns: every `mmap` of the process, and the `unsafe` that comes with it.
//! Not here: the accounting and policy (`arena`).

use std::fs::File;
use std::ops::Range;
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
    /// Tells the system that `part` is read at random places, so that it reads no pages ahead. Best effort: advice that
    /// the system does not take, or a part outside the file, changes nothing.
    pub fn expect_random(&self, part: Range<usize>) {
        self.advise(memmap2::Advice::Random, part);
    }
    /// Starts reading `part` from the disk without waiting for it. Best effort.
    pub fn prefetch(&self, part: Range<usize>) {
        self.advise(memmap2::Advice::WillNeed, part);
    }
    /// Takes the pages of `part` out of this process; the next read of one brings it back. Best effort.
    pub fn release(&self, part: Range<usize>) {
        if part.is_empty() || part.end > self.map.len() {
            return;
        }
        // SAFETY: DontNeed loses what was written to private pages. This mapping is read-only and of a file, so there
        // is nothing to lose: a released page is read again with the same content. memmap2 checks offset and length
        // each alone, `part.end` above is the check of their sum.
        let _ = unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, part.start, part.len()) };
    }

    fn advise(&self, advice: memmap2::Advice, part: Range<usize>) {
        if !part.is_empty() && part.end <= self.map.len() {
            let _ = self.map.advise_range(advice, part.start, part.len());
        }
    }
}
