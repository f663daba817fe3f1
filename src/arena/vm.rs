//! What the arena needs of a virtual memory: the primitives, without policy.
//!
//! Owns: the two traits a provider implements (the host's in `host`, a device's beside its driver, a fake in tests).
//! Always true: the arena alone decides when to map and unmap; a provider does one thing a call and undoes nothing on
//! its own. Pieces are the same ones for `map` and `unmap`, the last first, so a provider may hold one handle a piece.
//! Not here: accounting, rollback and limits (`arena`).

use std::ops::Range;

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

    /// Copies accessible bytes from `at` on to the host, after everything that may still write them.
    fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.bytes()[at..at + out.len()]);
        Ok(())
    }
    /// Overwrites accessible bytes from `at` on.
    fn write(&mut self, at: usize, from: &[u8]) -> Result<()> {
        self.bytes_mut()[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }
    /// Makes the first `count` accessible bytes those of another mapping of the same provider.
    fn copy_from(&mut self, from: &dyn Mapping, count: usize) -> Result<()> {
        self.bytes_mut()[..count].copy_from_slice(&from.bytes()[..count]);
        Ok(())
    }
    /// Zeroes the first `count` accessible bytes.
    fn zero(&mut self, count: usize) -> Result<()> {
        self.bytes_mut()[..count].fill(0);
        Ok(())
    }
}
