//! Virtual memory: reservations, physical memory in anonymous files, mappings.
//!
//! Owns: which file is mapped where, and who has access. Always true: a handle is a file and holds a descriptor, so
//! remapping moves real contents and a low `RLIMIT_NOFILE` ends in `hipErrorOutOfMemory`; a mapping keeps its handle's
//! memory alive; access is given to whole mappings. Not here: what ROCm gets wrong in it (`hostile`).
//!
//! Differences from ROCm on purpose: read-only access is not offered, the address hint is not used.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use super::hostile::{FirstBacking, Hostile};
use super::memory::Allocations;
use super::{HostRuntime, State, pages};
use crate::abi::{
    ACCESS_NONE, ACCESS_READ_WRITE, ALLOCATION_PINNED, LOCATION_DEVICE, MemoryAccess, MemoryLocation, Physical,
    PhysicalProperties,
};
use crate::calls::VirtualMemoryCalls;
use crate::card;
use crate::error::{HipError, Outcome};
use crate::gate::gate;
use crate::modes::Mode;

/// What every address and size is a multiple of.
pub const GRANULARITY: u64 = 2 << 20;

/// Addresses that are set aside.
#[derive(Debug)]
struct Reservation {
    bytes: u64,
    /// All that was asked of the operating system: a gap before the base, so that no two reservations touch.
    mapping: (u64, u64),
    /// Budget that comes back only with the address (modes).
    kept: u64,
}

/// Physical memory.
#[derive(Debug)]
struct PhysicalState {
    file: Arc<File>,
    bytes: u64,
    /// The host's references.
    references: u32,
    /// Mappings of it.
    mappings: u32,
    /// Where it was mapped last.
    mapped_at: Option<u64>,
}

/// A piece of a file at a place.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Whose memory it is.
    pub file: Arc<File>,
    /// Where in it.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
}

/// Physical memory at an address.
#[derive(Debug)]
pub struct Mapping {
    /// Its size.
    pub bytes: u64,
    physical: u64,
    /// What kernels reach there.
    pieces: Vec<Piece>,
    /// Kernels may touch it.
    accessible: bool,
    /// Until then kernels reach something else there (mode `fresh_mapping_loses_stores`).
    decoy_until: Option<Instant>,
}

/// All virtual memory of the device.
#[derive(Debug, Default)]
pub struct VirtualMemory {
    reservations: BTreeMap<u64, Reservation>,
    physicals: BTreeMap<u64, PhysicalState>,
    mappings: BTreeMap<u64, Mapping>,
    first: FirstBacking,
}

fn aligned(number: u64) -> bool {
    number.is_multiple_of(GRANULARITY)
}

fn refuse<T>(code: HipError, why: String) -> Outcome<T> {
    gate().explain(why);
    Err(code)
}

fn invalid<T>(why: String) -> Outcome<T> {
    refuse(HipError::INVALID_VALUE, why)
}

/// Checks what a physical allocation is asked to be.
pub fn check_properties(properties: &PhysicalProperties, devices: i32) -> Outcome {
    let location = properties.location;
    if properties.kind != ALLOCATION_PINNED || location.kind != LOCATION_DEVICE {
        return invalid("physical memory must be of type pinned, on a device".to_owned());
    }
    if !(0..devices).contains(&location.id) {
        return Err(HipError::INVALID_DEVICE);
    }
    Ok(())
}

impl VirtualMemory {
    /// Whether an address is in a reservation.
    pub fn is_reserved(&self, address: u64) -> bool {
        self.reservation_of(address, 1).is_some()
    }

    fn reservation_of(&self, address: u64, bytes: u64) -> Option<u64> {
        let (base, reservation) = self.reservations.range(..=address).next_back()?;
        let end = address.checked_add(bytes)?;
        (end <= base + reservation.bytes).then_some(*base)
    }

    /// Accessible ranges, neighbours joined.
    pub fn accessible(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (start, mapping) in self.mappings.iter().filter(|(_, mapping)| mapping.accessible) {
            let end = start + mapping.bytes;
            match ranges.last_mut() {
                Some(last) if last.1 == *start => last.1 = end,
                _ => ranges.push((*start, end)),
            }
        }
        ranges
    }

    /// `hipMemAddressReserve`
    pub fn reserve(&mut self, budget: &mut Allocations, bytes: u64, alignment: u64) -> Outcome<u64> {
        if bytes == 0 || !aligned(bytes) || (alignment != 0 && !alignment.is_power_of_two()) {
            return invalid(format!("{bytes} bytes, alignment {alignment}: not multiples of {GRANULARITY}"));
        }
        let alignment = alignment.max(GRANULARITY);
        let committed = if Hostile::reserve_commits() { bytes } else { 0 };
        budget.take(committed)?;
        let gap = alignment.saturating_add(pages::PAGE as u64);
        let padded = bytes.checked_add(gap).and_then(|padded| usize::try_from(padded).ok());
        let Some((padded, address)) = padded.and_then(|padded| Some((padded as u64, pages::reserve(padded)? as u64)))
        else {
            budget.give_back(committed);
            return refuse(HipError::OUT_OF_MEMORY, format!("the operating system has no {bytes} bytes of addresses"));
        };
        let base = (address + pages::PAGE as u64).next_multiple_of(alignment);
        self.reservations.insert(base, Reservation { bytes, mapping: (address, padded), kept: committed });
        Ok(base)
    }

    /// `hipMemAddressFree`
    pub fn free(&mut self, budget: &mut Allocations, address: u64, bytes: u64) -> Outcome {
        if self.reservations.get(&address).is_none_or(|reservation| reservation.bytes != bytes) {
            return invalid(format!("{address:#x} with {bytes} bytes is no reservation"));
        }
        if let Some((mapped, _)) = self.mappings.range(address..address + bytes).next() {
            return invalid(format!("the reservation at {address:#x} is still mapped at {mapped:#x}"));
        }
        if let Some(reservation) = self.reservations.remove(&address) {
            budget.give_back(reservation.kept);
            pages::unreserve(reservation.mapping.0, reservation.mapping.1);
        }
        Ok(())
    }

    /// `hipMemCreate` under a handle.
    pub fn create(&mut self, budget: &mut Allocations, handle: u64, bytes: u64) -> Outcome {
        if bytes == 0 || !aligned(bytes) {
            return invalid(format!("{bytes} bytes are not a multiple of {GRANULARITY}"));
        }
        budget.take(bytes)?;
        let file = pages::memory_file(bytes as usize);
        match file.and_then(|file| pages::poison_samples(&file, bytes as usize).map(|()| file)) {
            Ok(file) => {
                let state = PhysicalState { file: Arc::new(file), bytes, references: 1, mappings: 0, mapped_at: None };
                self.physicals.insert(handle, state);
                Ok(())
            }
            Err(problem) => {
                budget.give_back(bytes);
                refuse(HipError::OUT_OF_MEMORY, format!("no file for {bytes} bytes of physical memory: {problem}"))
            }
        }
    }

    /// `hipMemRelease`
    pub fn release(&mut self, budget: &mut Allocations, handle: u64) -> Outcome {
        let state = self.physicals.get_mut(&handle).filter(|state| state.references > 0);
        let state = state.ok_or(HipError::INVALID_VALUE)?;
        state.references -= 1;
        if state.mappings > 0 && Hostile::release_leaks() {
            // A use that nobody can give back.
            state.mappings += 1;
        }
        self.drop_if_unused(budget, handle);
        Ok(())
    }

    fn drop_if_unused(&mut self, budget: &mut Allocations, handle: u64) {
        let unused = self.physicals.get(&handle).is_some_and(|state| state.references == 0 && state.mappings == 0);
        if !unused {
            return;
        }
        let Some(state) = self.physicals.remove(&handle) else { return };
        let reservation = state.mapped_at.and_then(|address| self.reservation_of(address, 1));
        match reservation.and_then(|base| self.reservations.get_mut(&base)) {
            Some(reservation) if Hostile::keeps_physical() => reservation.kept += state.bytes,
            _ => budget.give_back(state.bytes),
        }
    }

    /// `hipMemMap`
    pub fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: u64, flags: u64) -> Outcome {
        let physical = self.physicals.get(&handle).filter(|state| state.references > 0);
        let physical = physical.ok_or(HipError::INVALID_VALUE)?;
        if bytes == 0 || !aligned(bytes) || !aligned(address) || offset != 0 || flags != 0 || bytes > physical.bytes {
            let whole = physical.bytes;
            return invalid(format!("cannot map {bytes} bytes from {offset} of a handle of {whole} at {address:#x}"));
        }
        if self.reservation_of(address, bytes).is_none() {
            return invalid(format!("{address:#x} with {bytes} bytes is not inside one reservation"));
        }
        if self.mapped_before(address + bytes).is_some_and(|(start, mapping)| start + mapping.bytes > address) {
            return invalid(format!("{address:#x} with {bytes} bytes is mapped already"));
        }
        let pieces = self.first.pieces(address, Piece { file: physical.file.clone(), offset: 0, bytes });
        let mapping = Mapping { bytes, physical: handle, pieces, accessible: false, decoy_until: None };
        mapping.attach(address, libc::PROT_NONE)?;
        self.mappings.insert(address, mapping);
        if let Some(physical) = self.physicals.get_mut(&handle) {
            physical.mappings += 1;
            physical.mapped_at = Some(address);
        }
        Ok(())
    }

    fn mapped_before(&self, end: u64) -> Option<(u64, &Mapping)> {
        self.mappings.range(..end).next_back().map(|(start, mapping)| (*start, mapping))
    }

    /// The mappings that a range consists of; it must not cut one or leave a hole.
    fn whole_mappings(&self, address: u64, bytes: u64) -> Outcome<Vec<u64>> {
        let end = address.checked_add(bytes).ok_or(HipError::INVALID_VALUE)?;
        let (mut at, mut found) = (address, Vec::new());
        while at < end {
            let Some(mapping) = self.mappings.get(&at) else {
                return invalid(format!("no mapping begins at {at:#x}"));
            };
            found.push(at);
            at += mapping.bytes;
        }
        if at != end || found.is_empty() {
            return invalid(format!("{address:#x} with {bytes} bytes does not end where a mapping ends"));
        }
        Ok(found)
    }

    /// `hipMemUnmap`
    pub fn unmap(&mut self, budget: &mut Allocations, address: u64, bytes: u64) -> Outcome {
        let mut range = self.whole_mappings(address, bytes)?;
        if Hostile::unmaps_first_only() {
            range.truncate(1);
        }
        for start in range {
            let Some(mapping) = self.mappings.remove(&start) else { continue };
            pages::forbid(start, mapping.bytes);
            if let Some(physical) = self.physicals.get_mut(&mapping.physical) {
                physical.mappings -= 1;
            }
            self.drop_if_unused(budget, mapping.physical);
        }
        Ok(())
    }

    /// `hipMemSetAccess`
    pub fn set_access(&mut self, address: u64, bytes: u64, access: &[MemoryAccess], devices: i32) -> Outcome {
        let mut accessible = false;
        for entry in access {
            if entry.location.kind != LOCATION_DEVICE || !(0..devices).contains(&entry.location.id) {
                return Err(HipError::INVALID_DEVICE);
            }
            accessible = match entry.flags {
                ACCESS_NONE => false,
                ACCESS_READ_WRITE => true,
                _ => return refuse(HipError::NOT_SUPPORTED, "the stand-ins offer no read-only access".to_owned()),
            };
        }
        let mut range = self.whole_mappings(address, bytes)?;
        let base = self.reservation_of(address, bytes).ok_or(HipError::INVALID_VALUE)?;
        Hostile::set_access(&mut range, base, bytes, self.mapped_prefix(base))?;
        for start in range {
            let Some(mapping) = self.mappings.get_mut(&start) else { continue };
            if accessible && !mapping.accessible {
                mapping.decoy_until = Hostile::decoy_until();
            }
            let protection = if accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
            match mapping.decoy_until {
                Some(_) if accessible => pages::decoy(start, mapping.bytes)?,
                _ => mapping.attach(start, protection)?,
            }
            mapping.accessible = accessible;
        }
        Ok(())
    }

    /// Bytes mapped without a hole from a reservation's base.
    fn mapped_prefix(&self, base: u64) -> u64 {
        let mut end = base;
        while let Some(mapping) = self.mappings.get(&end) {
            end += mapping.bytes;
        }
        end - base
    }

    /// `hipMemGetAccess`
    pub fn access(&self, address: u64) -> Outcome<u64> {
        let mapping = self.mapping_at(address)?.1;
        Ok(if mapping.accessible { ACCESS_READ_WRITE as u64 } else { ACCESS_NONE as u64 })
    }

    fn mapping_at(&self, address: u64) -> Outcome<(u64, &Mapping)> {
        let found = self.mapped_before(address.saturating_add(1));
        found.filter(|(start, mapping)| address < start + mapping.bytes).ok_or(HipError::INVALID_VALUE)
    }

    /// `hipMemRetainAllocationHandle`
    pub fn retain(&mut self, address: u64) -> Outcome<u64> {
        let handle = self.mapping_at(address)?.1.physical;
        let physical = self.physicals.get_mut(&handle).ok_or(HipError::INVALID_VALUE)?;
        physical.references += 1;
        Ok(handle)
    }

    /// Before work runs: lets decoys forget, and ends those whose time is up.
    pub fn settle(&mut self) -> Outcome {
        let now = Instant::now();
        for (start, mapping) in &mut self.mappings {
            match mapping.decoy_until {
                Some(until) if now >= until => {
                    mapping.decoy_until = None;
                    mapping.attach(*start, libc::PROT_READ | libc::PROT_WRITE)?;
                }
                Some(_) if mapping.accessible => pages::decoy(*start, mapping.bytes)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Mapping {
    /// Puts the files' memory at the address.
    fn attach(&self, address: u64, protection: i32) -> Outcome {
        let mut at = address;
        for piece in &self.pieces {
            if !pages::map_file(at, piece.bytes, protection, piece.file.as_raw_fd(), piece.offset) {
                return refuse(HipError::MAP_FAILED, format!("the operating system cannot map at {at:#x}"));
            }
            at += piece.bytes;
        }
        Ok(())
    }
}

impl HostRuntime {
    /// Checks that hold for every call but the queries; answers the state.
    fn virtual_state(&self, call: &str) -> Outcome<MutexGuard<'_, State>> {
        if gate().is_on(Mode::VmmNotSupported) {
            return Err(HipError::NOT_SUPPORTED);
        }
        let mut state = self.state();
        state.forbid_in_capture(call)?;
        Ok(state)
    }
}

impl VirtualMemoryCalls for HostRuntime {
    fn address_reserve(&self, bytes: usize, alignment: usize, _hint: u64, flags: u64) -> Outcome<u64> {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let mut state = self.virtual_state("hipMemAddressReserve")?;
        let (allocations, memory) = state.memory();
        memory.reserve(allocations, bytes as u64, alignment as u64)
    }

    fn address_free(&self, address: u64, bytes: usize) -> Outcome {
        let mut state = self.virtual_state("hipMemAddressFree")?;
        let (allocations, memory) = state.memory();
        memory.free(allocations, address, bytes as u64)
    }

    fn physical_create(&self, bytes: usize, properties: &PhysicalProperties, flags: u64) -> Outcome<Physical> {
        check_properties(properties, card::device_count())?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let mut state = self.virtual_state("hipMemCreate")?;
        let handle = state.new_handle();
        let (allocations, memory) = state.memory();
        memory.create(allocations, handle, bytes as u64)?;
        Ok(handle as Physical)
    }

    fn physical_release(&self, physical: Physical) -> Outcome {
        let mut state = self.virtual_state("hipMemRelease")?;
        let (allocations, memory) = state.memory();
        memory.release(allocations, physical as u64)
    }

    fn map(&self, address: u64, bytes: usize, offset: usize, physical: Physical, flags: u64) -> Outcome {
        let mut state = self.virtual_state("hipMemMap")?;
        Hostile::map_on_busy_null_stream(state.queue.null_stream_is_busy())?;
        state.memory().1.map(address, bytes as u64, offset as u64, physical as u64, flags)
    }

    fn unmap(&self, address: u64, bytes: usize) -> Outcome {
        let mut state = self.virtual_state("hipMemUnmap")?;
        Hostile::map_on_busy_null_stream(state.queue.null_stream_is_busy())?;
        let (allocations, memory) = state.memory();
        memory.unmap(allocations, address, bytes as u64)
    }

    fn set_access(&self, address: u64, bytes: usize, access: &[MemoryAccess]) -> Outcome {
        let mut state = self.virtual_state("hipMemSetAccess")?;
        state.memory().1.set_access(address, bytes as u64, access, card::device_count())
    }

    fn access(&self, location: &MemoryLocation, address: u64) -> Outcome<u64> {
        if location.kind != LOCATION_DEVICE {
            return Err(HipError::INVALID_VALUE);
        }
        self.check_device(location.id)?;
        self.virtual_state("hipMemGetAccess")?.memory().1.access(address)
    }

    fn granularity(&self, properties: &PhysicalProperties, option: i32) -> Outcome<usize> {
        check_properties(properties, card::device_count())?;
        if gate().is_on(Mode::VmmNotSupported) {
            return Err(HipError::NOT_SUPPORTED);
        }
        match option {
            0 | 1 => Ok(Hostile::granularity() as usize),
            _ => Err(HipError::INVALID_VALUE),
        }
    }

    fn physical_of(&self, address: u64) -> Outcome<Physical> {
        let mut state = self.virtual_state("hipMemRetainAllocationHandle")?;
        Ok(state.memory().1.retain(address)? as Physical)
    }
}
