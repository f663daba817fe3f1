//! What the arena needs of a virtual memory: the primitives, without policy.
//!
//! Owns: the two traits a provider implements (the host's in `host`, a device's beside its driver, a fake in tests).
//! Always true: the arena alone decides when to map and unmap; a provider does one thing a call and undoes nothing on
//! its own. Pieces are the same ones for `map` and `unmap`, the last first, so a provider may hold one handle a piece.
//! Not here: accounting, rollback and limits (`arena`).

use std::ops::Range;

use crate::device::{DeviceSpan, Stream};
use crate::error::Result;

/// A source of address ranges.
pub trait VirtualMemory: Send + Sync {
    /// Reservations and pieces are multiples of this many bytes, a power of two.
    fn granularity(&self) -> usize;
    /// Addresses without memory: `bytes` of them, which nobody else gets as long as the process lives.
    fn reserve(&self, bytes: usize) -> Result<Box<dyn Mapping>>;
    /// Memory in one piece, usable at once, without the calls of a virtual memory. Its single piece is `0..bytes`.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Mapping>>;
    /// Whether the system hands the addresses of an allocation out again once it is unmapped, so that they need not be
    /// counted as retired.
    fn recycles_allocations(&self) -> bool {
        false
    }
    /// Whether reserving turned out not to work here: ranges from now on are allocated.
    fn gave_up(&self) -> bool {
        false
    }
}

/// One reserved range. Dropping it neither unmaps nor frees the addresses.
pub trait Mapping: Send + Sync {
    /// First address, aligned to 64 bytes or more.
    fn base(&self) -> u64;
    /// Bytes of one piece, a multiple of the granularity; only the last piece of a range may be shorter. Larger
    /// segments mean fewer handles, smaller ones less memory committed ahead of need.
    fn segment(&self) -> usize;
    /// Obtains memory for the piece that follows those obtained before. Nobody can reach it before `allow`. On an error
    /// nothing was obtained.
    fn map(&mut self, piece: Range<usize>) -> Result<()>;
    /// Makes the first `prefix` bytes, all that was obtained, readable and writable; what is new reads zero. Always called
    /// from the base, because drivers refuse or forget parts of a range. Returns only when the memory works: a device
    /// whose fresh mappings lose stores for a while proves it here.
    fn allow(&mut self, prefix: usize) -> Result<()>;
    /// Takes the memory of the last piece away, accessible or not, after waiting for whoever may still use it. Says
    /// whether the piece may be obtained again: ROCm keeps reading the first backing of an address, so a device says no
    /// once the piece was mapped, and a range that had to roll back such a growth does not grow again.
    fn unmap(&mut self, piece: Range<usize>) -> Result<bool>;
    /// The accessible prefix, if the host can read it; empty for a device's memory.
    fn bytes(&self) -> &[u8] {
        &[]
    }
    /// See `bytes`.
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }

    /// The accessible prefix, if it is a device's memory.
    fn on_device(&self) -> Option<OnDevice<'_>> {
        None
    }
}

/// The accessible prefix of a device's mapping, and the stream that moves its bytes.
pub struct OnDevice<'a> {
    /// The prefix.
    pub span: DeviceSpan<'a>,
    /// Of the same device.
    pub stream: &'a Stream,
}

impl OnDevice<'_> {
    /// The bytes `part`, after everything that was submitted to the device: any stream may still write them.
    fn settled(&self, part: Range<usize>) -> Result<DeviceSpan<'_>> {
        self.stream.context().synchronize()?;
        self.span.part(part)
    }
    /// Copies the bytes from `at` on to the host.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        self.settled(at..at + out.len())?.download(self.stream, out)
    }
    /// Overwrites the bytes from `at` on.
    pub fn write(&self, at: usize, from: &[u8]) -> Result<()> {
        self.settled(at..at + from.len())?.upload(self.stream, from)
    }
    /// Makes the first `count` bytes those of another mapping.
    pub fn copy_from(&self, from: &OnDevice<'_>, count: usize) -> Result<()> {
        self.settled(0..count)?.copy_from(self.stream, from.span.part(0..count)?)?;
        self.stream.synchronize()
    }
    /// Zeroes the first `count` bytes.
    pub fn zero(&self, count: usize) -> Result<()> {
        self.settled(0..count)?.fill(self.stream, 0)?;
        self.stream.synchronize()
    }
}
