//! The host's virtual memory: files mapped for reading, and anonymous ranges reserved without access.
//!
//! Owns: every `mmap` of the process, and the `unsafe` that comes with it.
//! Always true: a slice covers only bytes that are readable and writable; an anonymous range is never unmapped, so its
//! addresses cannot be given to anybody else.
//! Not here: the accounting and policy (`arena`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::{self, NonNull};

use super::ledger::size;
use super::vm::{Mapping, VirtualMemory};
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

/// Bytes that this process may still write to the disk under `folder`.
pub fn free_bytes(folder: &Path) -> Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let what = || format!("cannot ask for the free space of {}", folder.display());
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).map_err(|e| Error::io(what())(e.into()))?;
    // SAFETY: `statvfs` is plain numbers, for which all zeros is a value.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in a zero byte and the struct is ours; the call writes nothing else.
    if unsafe { libc::statvfs(path.as_ptr(), &mut disk) } != 0 {
        return Err(Error::io(what())(io::Error::last_os_error()));
    }
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes made accessible at a time. Memory becomes resident a page at a time when it is touched, so a larger step costs
/// nothing but the number that `committed` shows.
const SEGMENT: usize = 2 << 20;

/// Anonymous memory of this process.
pub struct HostMemory {
    page: usize,
}

impl HostMemory {
    /// Asks the system for its page size.
    pub fn new() -> HostMemory {
        // SAFETY: `sysconf` reads a constant of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        HostMemory { page: usize::try_from(page).unwrap_or(SEGMENT) }
    }

    fn map(&self, bytes: usize, protection: libc::c_int, flags: libc::c_int, attempt: &str) -> Result<HostMapping> {
        let base = map_anonymous(ptr::null_mut(), bytes, protection, flags).map_err(|error| {
            Error::InsufficientMemory(format!(
                "the system refused to {attempt} {}: {error}; lower --max-seq or lift the limit on address space",
                size(bytes)
            ))
        })?;
        Ok(HostMapping { base, reserved: bytes, usable: 0, page: self.page })
    }
}

impl Default for HostMemory {
    fn default() -> HostMemory {
        HostMemory::new()
    }
}

impl VirtualMemory for HostMemory {
    fn granularity(&self) -> usize {
        self.page
    }
    fn reserve(&self, bytes: usize) -> Result<Box<dyn Mapping>> {
        Ok(Box::new(self.map(bytes, libc::PROT_NONE, libc::MAP_NORESERVE, "reserve addresses of")?))
    }
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Mapping>> {
        // Without NORESERVE, so that a size the machine can never hold is refused now and not by a kill later.
        let mut mapping = self.map(bytes, libc::PROT_READ | libc::PROT_WRITE, 0, "allocate")?;
        mapping.usable = bytes;
        Ok(Box::new(mapping))
    }
}

/// `mmap` of anonymous private memory: anywhere, or over `at` if that is not null.
///
/// Over a range, it must be one that this file mapped and to which no slice exists.
fn map_anonymous(
    at: *mut libc::c_void,
    bytes: usize,
    protection: libc::c_int,
    flags: libc::c_int,
) -> io::Result<NonNull<u8>> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags | fixed;
    // SAFETY: without an address the kernel chooses one that is free; with one, the caller owns those pages.
    let base = unsafe { libc::mmap(at, bytes, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// Pages of this process, mapped until it ends.
struct HostMapping {
    base: NonNull<u8>,
    reserved: usize,
    /// Bytes from the base that are readable and writable.
    usable: usize,
    page: usize,
}

// SAFETY: the pages belong to this value alone and are reached only through its borrows.
unsafe impl Send for HostMapping {}
// SAFETY: see above; a shared borrow only reads.
unsafe impl Sync for HostMapping {}

impl HostMapping {
    /// Refuses pieces that are not pages of this range.
    fn check(&self, piece: &Range<usize>) -> Result<()> {
        let aligned = piece.start.is_multiple_of(self.page) && piece.end.is_multiple_of(self.page);
        if aligned && piece.start < piece.end && piece.end <= self.reserved {
            return Ok(());
        }
        Err(Error::invalid(format!("bytes {piece:?} are not pages of a range of {} bytes", self.reserved)))
    }
}

impl Mapping for HostMapping {
    fn base(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    fn segment(&self) -> usize {
        SEGMENT.max(self.page)
    }

    /// Nothing to do: the kernel puts a zeroed page behind an address at its first touch.
    fn map(&mut self, piece: Range<usize>) -> Result<()> {
        self.check(&piece)
    }

    fn allow(&mut self, prefix: usize) -> Result<()> {
        self.check(&(0..prefix))?;
        // SAFETY: the prefix lies in pages that this value owns, and gains access without losing content.
        let code = unsafe { libc::mprotect(self.base.as_ptr().cast(), prefix, libc::PROT_READ | libc::PROT_WRITE) };
        if code != 0 {
            let error = io::Error::last_os_error();
            let message = format!("the system refused to commit {}: {error}; free memory", size(prefix));
            return Err(Error::InsufficientMemory(message));
        }
        self.usable = self.usable.max(prefix);
        Ok(())
    }

    /// Maps fresh inaccessible pages over the piece. That does what `madvise(DONTNEED)` and `mprotect(NONE)` do, and
    /// also gives back the memory that a strictly accounting kernel charged, and lets retired neighbours merge into
    /// one mapping of the kernel's limited number.
    fn unmap(&mut self, piece: Range<usize>) -> Result<bool> {
        self.check(&piece)?;
        self.usable = self.usable.min(piece.start);
        let at = self.base.as_ptr().wrapping_add(piece.start).cast();
        map_anonymous(at, piece.len(), libc::PROT_NONE, libc::MAP_NORESERVE)
            .map(|_| true)
            .map_err(Error::io(format!("cannot give {} back to the system", size(piece.len()))))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `usable` bytes from the base are readable, initialised (zero or written) and owned by this value.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.usable) }
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and writable; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.usable) }
    }
}
