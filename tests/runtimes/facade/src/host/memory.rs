//! Device memory, pinned memory, registered memory.
//!
//! Owns: live allocations, the device's budget, and which addresses a kernel may touch. Always true: `used` is the sum
//! of what the device has given out, rounded to pages; pinned and registered host memory costs nothing of it; ordinary
//! host memory is not reachable by kernels. Not here: virtual memory (`vmm`), moving bytes (`work`).
//!
//! Waiting, as ROCm does it: `hipMemcpy` waits unless both ends are on the device; fills never wait; `hipMemcpyAsync`
//! from pageable memory reads the source at the call, and to pageable memory is done when it returns; `hipFree` and its
//! kin wait for the whole device.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pages::{PAGE, Pages};
use super::queue::NULL_STREAM;
use super::work::{Place, Work, fill_bytes};
use super::{HostRuntime, State};
use crate::abi::{
    COPY_DEFAULT, COPY_DEVICE_TO_DEVICE, COPY_DEVICE_TO_DEVICE_NO_CU, COPY_DEVICE_TO_HOST, COPY_HOST_TO_DEVICE,
    COPY_HOST_TO_HOST, Stream,
};
use crate::calls::{MemoryCalls, Pattern};
use crate::card;
use crate::error::{HipError, Outcome};
use crate::executor::Memory;
use crate::gate::gate;

/// Allocations of one device.
#[derive(Debug, Default)]
pub struct Allocations {
    device: BTreeMap<u64, Pages>,
    pinned: BTreeMap<u64, Pages>,
    registered: BTreeMap<u64, usize>,
    /// Bytes of the device that are given out.
    pub used: u64,
}

/// Accessible ranges at one moment, ascending and apart.
#[derive(Debug, Default)]
pub struct Ranges(Vec<(u64, u64)>);

impl Memory for Ranges {
    fn find(&self, address: u64) -> Option<(u64, u64)> {
        let after = self.0.partition_point(|range| range.0 <= address);
        self.0[..after].last().filter(|range| address < range.1).copied()
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        self.0.clone()
    }
}

impl Ranges {
    /// Whether all of a range is accessible.
    pub fn covers(&self, address: u64, bytes: usize) -> bool {
        bytes == 0 || self.find(address).is_some_and(|range| bytes as u64 <= range.1 - address)
    }
}

impl Allocations {
    /// Takes from the device's budget, as ROCm refuses it.
    pub fn take(&mut self, bytes: u64) -> Outcome {
        let total = card::total_memory();
        if self.used.saturating_add(bytes) > total {
            gate().explain(format!("{bytes} bytes do not fit: {} of {total} bytes are used", self.used));
            return Err(HipError::OUT_OF_MEMORY);
        }
        self.used += bytes;
        Ok(())
    }

    /// Gives back to the budget.
    pub fn give_back(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// A device allocation. None of zero bytes: HIP answers a null pointer.
    pub fn allocate(&mut self, bytes: usize) -> Outcome<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let cost = bytes.checked_next_multiple_of(PAGE).ok_or(HipError::OUT_OF_MEMORY)? as u64;
        self.take(cost)?;
        let Some(pages) = Pages::new(bytes) else {
            self.give_back(cost);
            gate().explain(format!("the operating system has no {bytes} bytes"));
            return Err(HipError::OUT_OF_MEMORY);
        };
        let start = pages.start;
        self.device.insert(start, pages);
        Ok(start)
    }

    /// Frees a device allocation by its first address; a null pointer is fine.
    pub fn release(&mut self, address: u64) -> Outcome {
        if address == 0 {
            return Ok(());
        }
        let pages = self.device.remove(&address).ok_or(HipError::INVALID_VALUE)?;
        self.give_back(pages.bytes.next_multiple_of(PAGE) as u64);
        Ok(())
    }

    /// A pinned allocation.
    pub fn allocate_pinned(&mut self, bytes: usize) -> Outcome<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let pages = Pages::new(bytes).ok_or(HipError::OUT_OF_MEMORY)?;
        let start = pages.start;
        self.pinned.insert(start, pages);
        Ok(start)
    }

    /// Frees a pinned allocation.
    pub fn release_pinned(&mut self, address: u64) -> Outcome {
        if address == 0 {
            return Ok(());
        }
        self.pinned.remove(&address).map(drop).ok_or(HipError::INVALID_VALUE)
    }

    /// Makes host memory reachable.
    pub fn register(&mut self, address: u64, bytes: usize) -> Outcome {
        let end = address.checked_add(bytes as u64).ok_or(HipError::INVALID_VALUE)?;
        if address == 0 || bytes == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        if self.all().any(|(start, stop)| start < end && address < stop) {
            return Err(HipError::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.registered.insert(address, bytes);
        Ok(())
    }

    /// Takes that back.
    pub fn unregister(&mut self, address: u64) -> Outcome {
        self.registered.remove(&address).map(drop).ok_or(HipError::HOST_MEMORY_NOT_REGISTERED)
    }

    /// Whether the address is in pinned or registered host memory.
    pub fn is_host_memory(&self, address: u64) -> bool {
        let pinned = self.pinned.range(..=address).next_back().map(|(start, pages)| (*start, pages.bytes));
        let registered = self.registered.range(..=address).next_back().map(|(start, bytes)| (*start, *bytes));
        pinned.into_iter().chain(registered).any(|(start, bytes)| address - start < bytes as u64)
    }

    /// Every range but those of virtual memory.
    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        let pages = self.device.values().chain(self.pinned.values());
        let registered = self.registered.iter().map(|(start, bytes)| (*start, start + *bytes as u64));
        pages.map(|pages| (pages.start, pages.start + pages.bytes as u64)).chain(registered)
    }

    /// What is accessible now, with these ranges of virtual memory.
    pub fn ranges(&self, mapped: impl Iterator<Item = (u64, u64)>) -> Arc<Ranges> {
        let mut ranges: Vec<_> = self.all().chain(mapped).collect();
        ranges.sort_unstable();
        Arc::new(Ranges(ranges))
    }
}

impl HostRuntime {
    /// Which kind of place an address is; none if it belongs to this library but is not accessible as a whole now.
    fn place(state: &mut State, address: u64, bytes: usize) -> Outcome<Place> {
        let view = state.memory_view().map_err(|_| HipError::INVALID_VALUE)?;
        if view.covers(address, bytes) && view.find(address).is_some() {
            return Ok(Place::Known(address));
        }
        if view.find(address).is_some() || state.memory().1.is_reserved(address) {
            gate().explain(format!("{bytes} bytes at {address:#x} are not all accessible"));
            return Err(HipError::INVALID_VALUE);
        }
        Ok(Place::Pageable(address))
    }

    /// A copy as work, or none if there is nothing to do; checked as `hipMemcpyKind` asks.
    fn copy_work(state: &mut State, to: u64, from: u64, bytes: usize, kind: i32) -> Outcome<Option<Work>> {
        if !matches!(kind, COPY_HOST_TO_HOST..=COPY_DEFAULT | COPY_DEVICE_TO_DEVICE_NO_CU) {
            return Err(HipError::INVALID_MEMCPY_DIRECTION);
        }
        if bytes == 0 {
            return Ok(None);
        }
        if to == 0 || from == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let (target, source) = (Self::place(state, to, bytes)?, Self::place(state, from, bytes)?);
        // A device end that the library does not know is a stray pointer, which ROCm would touch as host memory.
        let to_device = matches!(kind, COPY_HOST_TO_DEVICE | COPY_DEVICE_TO_DEVICE | COPY_DEVICE_TO_DEVICE_NO_CU);
        let from_device = matches!(kind, COPY_DEVICE_TO_HOST | COPY_DEVICE_TO_DEVICE | COPY_DEVICE_TO_DEVICE_NO_CU);
        for (device, place) in [(to_device, &target), (from_device, &source)] {
            if device && !matches!(place, Place::Known(_)) {
                gate().explain(format!("a copy of kind {kind} between {from:#x} and {to:#x}: no device memory there"));
                return Err(HipError::INVALID_VALUE);
            }
        }
        Ok(Some(Work::Copy { to: target, from: source, bytes }))
    }
}

impl MemoryCalls for HostRuntime {
    fn malloc(&self, bytes: usize) -> Outcome<u64> {
        let mut state = self.state();
        state.forbid_in_capture("hipMalloc")?;
        state.memory().0.allocate(bytes)
    }

    fn free(&self, address: u64) -> Outcome {
        self.wait_for_all("hipFree")?.memory().0.release(address)
    }

    fn host_malloc(&self, bytes: usize, _flags: u32) -> Outcome<u64> {
        let mut state = self.state();
        state.forbid_in_capture("hipHostMalloc")?;
        state.memory().0.allocate_pinned(bytes)
    }

    fn host_free(&self, address: u64) -> Outcome {
        self.wait_for_all("hipHostFree")?.memory().0.release_pinned(address)
    }

    fn host_device_pointer(&self, address: u64) -> Outcome<u64> {
        let mut state = self.state();
        state.memory().0.is_host_memory(address).then_some(address).ok_or(HipError::INVALID_VALUE)
    }

    unsafe fn host_register(&self, address: u64, bytes: usize, _flags: u32) -> Outcome {
        let mut state = self.state();
        state.forbid_in_capture("hipHostRegister")?;
        state.memory().0.register(address, bytes)
    }

    fn host_unregister(&self, address: u64) -> Outcome {
        self.wait_for_all("hipHostUnregister")?.memory().0.unregister(address)
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, kind: i32) -> Outcome {
        let mut state = self.state();
        state.forbid_in_capture("hipMemcpy")?;
        let Some(work) = Self::copy_work(&mut state, to, from, bytes, kind)? else { return Ok(()) };
        let inside = matches!(kind, COPY_DEVICE_TO_DEVICE | COPY_DEVICE_TO_DEVICE_NO_CU);
        match state.submit(NULL_STREAM, work)? {
            // As ROCm: a copy inside the device is ordered on the null stream and not waited for.
            Some(operation) if !inside => self.run_until(state, operation),
            _ => Ok(()),
        }
    }

    unsafe fn copy_async(&self, to: u64, from: u64, bytes: usize, kind: i32, stream: Stream) -> Outcome {
        let (mut state, stream) = (self.state(), stream as u64);
        let Some(mut work) = Self::copy_work(&mut state, to, from, bytes, kind)? else {
            return state.queue.stream(stream).map(drop);
        };
        let capturing = state.queue.stream(stream)?.capture.is_some();
        let mut waits = false;
        if let Work::Copy { to, from, bytes } = &mut work
            && !capturing
        {
            waits = matches!(to, Place::Pageable(_));
            if let Place::Pageable(address) = *from
                && !waits
            {
                // SAFETY: the caller's memory, as the caller says.
                let source = unsafe { core::slice::from_raw_parts(address as *const u8, *bytes) };
                *from = Place::Staged(source.into());
            }
        }
        match state.submit(stream, work)? {
            Some(operation) if waits => self.run_until(state, operation),
            _ => Ok(()),
        }
    }

    fn fill(&self, to: u64, pattern: Pattern, count: usize, stream: Stream) -> Outcome {
        let (mut state, stream) = (self.state(), stream as u64);
        let bytes = fill_bytes(pattern, count).ok_or(HipError::INVALID_VALUE)?;
        state.queue.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let aligned = matches!(pattern, Pattern::Byte(_)) || to.is_multiple_of(4);
        if !aligned || !matches!(Self::place(&mut state, to, bytes)?, Place::Known(_)) {
            return Err(HipError::INVALID_VALUE);
        }
        state.submit(stream, Work::Fill { to, pattern, count }).map(drop)
    }
}
