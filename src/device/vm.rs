//! A device's virtual memory: address ranges, pieces of memory, and putting one behind the other.
//!
//! Owns: the handles, and the conditions under which HIP's calls are sound.
//! Always true: an address range is never freed, so nobody gets its addresses again (VMM.md row 1); nothing is mapped,
//! unmapped or released while a capture runs (row 7); memory is released only after it was unmapped (row 6).
//! Not here: how much is mapped and when (`arena`), whether mapped memory works (`canary`).

use super::context::Context;
use super::memory::DeviceSpan;
use super::sys;
use crate::error::{Error, Result};

/// The least size of a piece, as HIP says. Not to be trusted everywhere (VMM.md row 9).
pub fn granularity(context: &Context) -> Result<usize> {
    Ok(context.calls()?.granularity(context.device())?)
}

/// Memory without an address.
struct Memory {
    handle: sys::hipMemGenericAllocationHandle_t,
    bytes: usize,
    mapped: bool,
}

/// Addresses, kept for the life of the process, and pieces of memory behind a prefix of them.
pub struct AddressRange {
    context: Context,
    base: u64,
    bytes: usize,
    pieces: Vec<Memory>,
    /// End of the last piece.
    end: usize,
    /// Prefix that the device may touch.
    accessible: usize,
}

// SAFETY: HIP's calls may come from any thread; which one does is the context's check.
unsafe impl Send for AddressRange {}
// SAFETY: as above; a shared borrow changes nothing.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Reserves `bytes` of addresses.
    pub fn reserve(context: &Context, bytes: usize, alignment: usize) -> Result<AddressRange> {
        let base = context.calls()?.reserve(bytes, alignment)?;
        Ok(AddressRange { context: context.clone(), base, bytes, pieces: Vec::new(), end: 0, accessible: 0 })
    }

    /// First address.
    pub fn base(&self) -> u64 {
        self.base
    }
    /// Bytes with memory behind them, mapped or about to be.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Obtains memory for the `bytes` that follow the last piece. Nothing is mapped yet.
    pub fn obtain(&mut self, bytes: usize) -> Result<()> {
        if bytes == 0 || self.end.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Error::invalid(format!("{bytes} bytes do not fit behind {} of {}", self.end, self.bytes)));
        }
        no_capture(&self.context, "obtain")?;
        let handle = self.context.calls()?.create(bytes, self.context.device())?;
        self.pieces.push(Memory { handle, bytes, mapped: false });
        self.end += bytes;
        Ok(())
    }

    /// Maps every piece that is not mapped yet, then gives the device access from the base to the end: drivers refuse a
    /// part of a range, or forget the access of all mappings but the first (VMM.md rows 3 and 4).
    pub fn map(&mut self) -> Result<()> {
        no_capture(&self.context, "map")?;
        let api = self.context.calls()?;
        let mut at = self.base;
        for piece in &mut self.pieces {
            if !piece.mapped {
                // SAFETY: the range is reserved, its part from `at` is not mapped, and the handle is of that size.
                unsafe { api.map(at, piece.bytes, piece.handle) }?;
                piece.mapped = true;
            }
            at += piece.bytes as u64;
        }
        // SAFETY: everything up to the end was mapped above or before.
        unsafe { api.set_access(self.base, self.end, self.context.device()) }?;
        self.accessible = self.end;
        Ok(())
    }

    /// What the device may touch. The borrow keeps it mapped.
    pub fn span(&self) -> DeviceSpan<'_> {
        // SAFETY: the prefix was mapped with access, and pieces are given back through an exclusive borrow only.
        unsafe { DeviceSpan::from_raw(self.base, self.accessible) }
    }

    /// Gives the last piece back: waits for the device, unmaps that piece alone (VMM.md row 5), then releases it. Returns
    /// whether its addresses are as new, because it was never mapped. Any thread may do it, so that a `Drop` can. If the
    /// unmapping fails, the memory stays lost: releasing a mapped handle would leak it for good (row 6).
    pub fn give_back(&mut self) -> Result<bool> {
        no_capture(&self.context, "unmap")?;
        let Some(Memory { handle, bytes, mapped }) = self.pieces.pop() else { return Ok(true) };
        self.end -= bytes;
        self.accessible = self.accessible.min(self.end);
        let api = self.context.api();
        if mapped {
            self.context.finish()?;
            // SAFETY: this is one mapped handle, and the device has finished.
            unsafe { api.unmap(self.base + self.end as u64, bytes) }?;
        }
        // SAFETY: the handle is mapped nowhere, and forgotten.
        unsafe { api.release(handle) }?;
        Ok(!mapped)
    }
}

/// Mapping submits to the null stream and would spoil or deadlock a capture.
fn no_capture(context: &Context, verb: &str) -> Result<()> {
    match context.is_capturing() {
        false => Ok(()),
        true => Err(Error::Device(format!(
            "cannot {verb} device memory while a graph is being captured: commit what it touches before the capture"
        ))),
    }
}
