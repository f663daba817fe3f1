//! What ROCm's virtual memory is known to get wrong, as decisions.
//!
//! Owns: how each mode of `modes` changes a step of `vmm`. Always true: with every mode off, nothing here changes
//! anything. Not here: the steps themselves.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::vmm::{GRANULARITY, Piece};
use crate::error::{HipError, Outcome};
use crate::gate::gate;
use crate::modes::Mode;

/// Questions that `vmm` asks.
pub struct Hostile;

impl Hostile {
    /// A reservation takes its whole size from the budget.
    pub fn reserve_commits() -> bool {
        gate().is_on(Mode::ReserveCommitsEverything)
    }

    /// Releasing a mapped handle leaks it.
    pub fn release_leaks() -> bool {
        gate().is_on(Mode::ReleaseWhileMappedLeaks)
    }

    /// Physical memory comes back with the address only.
    pub fn keeps_physical() -> bool {
        gate().is_on(Mode::PhysicalKeptUntilAddressFree)
    }

    /// Unmapping several mappings at once unmaps one.
    pub fn unmaps_first_only() -> bool {
        gate().is_on(Mode::UnmapSpanningHandlesLeavesRange)
    }

    /// Refuses an access range, or cuts it to what ROCm would really do.
    pub fn set_access(range: &mut Vec<u64>, base: u64, bytes: u64, mapped_prefix: u64) -> Outcome {
        let from_base = range.first() == Some(&base);
        let refuse = |why: &str| {
            gate().explain(format!("hipMemSetAccess of {bytes} bytes: {why}"));
            Err(HipError::INVALID_VALUE)
        };
        if gate().is_on(Mode::SetAccessRefusesSubrange) && !(from_base && bytes == mapped_prefix) {
            return refuse("the range is not the whole mapped prefix (mode set_access_refuses_subrange)");
        }
        let limit = match gate().mode(Mode::SetAccessRefusesSize) {
            0 => u64::MAX,
            1 => 64 << 20,
            bytes => bytes,
        };
        if bytes > limit {
            return refuse("the size is refused (mode set_access_refuses_size)");
        }
        match gate().mode(Mode::AccessOnlyFirstMapping) {
            0 => {}
            1 if from_base => {}
            1 => range.clear(),
            _ => range.retain(|start| *start == base),
        }
        Ok(())
    }

    /// How long a mapping that just became accessible is a decoy.
    pub fn decoy_until() -> Option<Instant> {
        match gate().mode(Mode::FreshMappingLosesStores) {
            0 => None,
            1 => Some(Instant::now() + Duration::from_micros(1500)),
            micros => Some(Instant::now() + Duration::from_micros(micros)),
        }
    }

    /// Mapping or unmapping while the null stream is busy: waits as long as the mode says, then answers an error where
    /// ROCm would wait for ever.
    pub fn map_on_busy_null_stream(busy: bool) -> Outcome {
        let bound = match gate().mode(Mode::MapDeadlocksOnBusyNullStream) {
            0 => return Ok(()),
            1 => 100,
            milliseconds => milliseconds.min(1000),
        };
        if !busy {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(bound));
        gate().explain("mapping while the null stream is busy hangs (mode map_deadlocks_on_busy_null_stream)");
        Err(HipError::LAUNCH_TIME_OUT)
    }

    /// The granularity that is reported.
    pub fn granularity() -> u64 {
        if gate().is_on(Mode::Granularity4k) { 4096 } else { GRANULARITY }
    }
}

/// What was mapped first at each page of 2 MiB: file and place in it.
#[derive(Debug, Default)]
pub struct FirstBacking {
    pages: BTreeMap<u64, (Arc<File>, u64)>,
}

impl FirstBacking {
    /// What a kernel reaches when `wanted` is mapped at an address.
    pub fn pieces(&mut self, address: u64, wanted: Piece) -> Vec<Piece> {
        if !gate().is_on(Mode::RemapReadsFirstBacking) {
            return vec![wanted];
        }
        (0..wanted.bytes)
            .step_by(GRANULARITY as usize)
            .map(|offset| {
                let fresh = || (wanted.file.clone(), wanted.offset + offset);
                let (file, offset) = self.pages.entry(address + offset).or_insert_with(fresh).clone();
                Piece { file, offset, bytes: GRANULARITY }
            })
            .collect()
    }
}
