//! Memory for everything that grows with context: reserve an address range for its largest size, commit pages as it
//! is written, never move it and never give the address back.
//!
//! Owns: address ranges and their accounting (reserved, committed, retired), growth and its rollback, the memory plan.
//! Always true: `Range::base` never changes; committed memory is a prefix of the range and reads as zero until
//! written; a growth that fails leaves every range and counter as it was; a dropped range is retired, its address is
//! not used again in this process.
//! Not here: what the bytes mean (`state`), the host's system calls (`host`), a device's mappings (`vmm`).

pub mod host;
mod ledger;
pub mod plan;
pub mod vm;
pub mod vmm;

use std::sync::Arc;

pub use crate::config::KvBackend;
use crate::error::{Error, Result};
pub use ledger::Limits;
use ledger::{Ledger, size};
use vm::{Mapping, VirtualMemory};

/// A source of ranges with one account. Cheap to clone; clones share the account.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

struct Shared {
    memory: Box<dyn VirtualMemory>,
    backend: KvBackend,
    ledger: Ledger,
}

impl Shared {
    /// How the next range is obtained.
    fn backend(&self) -> KvBackend {
        if self.memory.gave_up() { KvBackend::Legacy } else { self.backend }
    }
}

/// What an arena holds, in bytes and ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Addresses of living ranges.
    pub reserved: usize,
    /// Memory behind them, counted when it is committed, resident or not.
    pub committed: usize,
    /// Addresses of dropped ranges.
    pub retired: usize,
    /// Living ranges.
    pub ranges: usize,
    /// Dropped ranges.
    pub retired_ranges: usize,
    /// Times that a range's memory grew.
    pub growths: u64,
    /// How the next range's memory is obtained.
    pub backend: KvBackend,
}

impl Arena {
    /// The host's memory, limited by the system only.
    pub fn host(backend: KvBackend) -> Arena {
        Arena::new(Box::new(host::HostMemory::new()), backend, Limits::default())
    }

    /// Any memory, with limits.
    pub fn new(memory: Box<dyn VirtualMemory>, backend: KvBackend, limits: Limits) -> Arena {
        Arena { shared: Arc::new(Shared { memory, backend, ledger: Ledger::new(limits) }) }
    }

    /// Reserves `bytes`, rounded up to the granularity; `label` names the range in messages. With
    /// [`KvBackend::Legacy`] all of it is allocated and committed now. Fails with `InsufficientMemory` if the limit or
    /// the system refuses, or too many addresses were retired; returns the error of an earlier `Drop`, if there was
    /// one.
    pub fn reserve(&self, label: &str, bytes: usize) -> Result<Range> {
        let Shared { memory, ledger, .. } = &*self.shared;
        let backend = self.shared.backend();
        let reserved = match bytes.checked_next_multiple_of(memory.granularity()) {
            Some(0) => return Err(Error::invalid(format!("cannot reserve 0 bytes for '{label}'"))),
            Some(reserved) => reserved,
            None => return Err(Error::InsufficientMemory(format!("'{label}' asks for more addresses than exist"))),
        };
        let committed = match backend {
            KvBackend::Vmm => 0,
            KvBackend::Legacy => reserved,
        };
        ledger.open(label, reserved)?;
        let obtained = ledger.charge(label, committed).and_then(|()| {
            match backend {
                KvBackend::Vmm => memory.reserve(reserved),
                KvBackend::Legacy => memory.allocate(reserved),
            }
            .map_err(|error| {
                ledger.refund(committed);
                named(label, error)
            })
        });
        let mapping = obtained.inspect_err(|_| ledger.close(reserved))?;
        let (shared, label) = (self.shared.clone(), label.to_string());
        let step = match backend {
            KvBackend::Vmm => mapping.segment(),
            KvBackend::Legacy => reserved,
        };
        Ok(Range {
            shared,
            backend,
            label,
            mapping,
            reserved,
            committed,
            mapped: committed,
            charged: committed,
            step,
            sealed: false,
        })
    }

    /// The account now. While another thread grows a range, its growth is counted already.
    pub fn usage(&self) -> Usage {
        let counters = self.shared.ledger.counters();
        Usage {
            reserved: counters.reserved,
            committed: counters.committed,
            retired: counters.retired,
            ranges: counters.ranges,
            retired_ranges: counters.retired_ranges,
            growths: counters.growths,
            backend: self.shared.backend(),
        }
    }
}

/// Addresses that belong to the holder until the process ends, and memory behind a prefix of them.
pub struct Range {
    shared: Arc<Shared>,
    backend: KvBackend,
    label: String,
    mapping: Box<dyn Mapping>,
    reserved: usize,
    /// Usable prefix: whole pieces.
    committed: usize,
    /// Prefix with memory behind it; more than `committed` only within `ensure_all`.
    mapped: usize,
    /// Prefix that the ledger counts; more than `committed` only within `ensure_all`.
    charged: usize,
    /// Bytes of a piece; piece i is `i * step..min((i + 1) * step, reserved)`.
    step: usize,
    /// A rollback unmapped addresses that must not be mapped again.
    sealed: bool,
}

impl Range {
    /// First address: a host or a device address, aligned to 64 bytes or more.
    pub fn base(&self) -> u64 {
        self.mapping.base()
    }
    /// Bytes of addresses: what was asked for, rounded up to the granularity.
    pub fn reserved(&self) -> usize {
        self.reserved
    }
    /// Bytes usable from the base.
    pub fn committed(&self) -> usize {
        self.committed
    }
    /// Names the range in messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Commits whole segments until at least `bytes` from the base are usable. Fails with `Invalid` beyond the
    /// reservation and with `InsufficientMemory` if the limit or the system refuses.
    pub fn ensure(&mut self, bytes: usize) -> Result<()> {
        ensure_all(&mut [(self, bytes)])
    }

    /// The committed prefix. Host memory only: a device's range gives an empty slice.
    pub fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }
    /// The committed prefix, to write. Host memory only: a device's range gives an empty slice.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.mapping.bytes_mut()
    }

    /// Copies usable bytes from `at` on to the host, wherever they lie, after everything that may still write them.
    ///
    /// # Errors
    /// `Invalid` beyond the committed prefix, `Device` if the device failed; the same for the three below.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        self.usable(at, out.len())?;
        match self.mapping.on_device() {
            Some(device) => device.read(at, out)?,
            None => out.copy_from_slice(&self.bytes()[at..at + out.len()]),
        }
        Ok(())
    }
    /// Overwrites usable bytes from `at` on.
    pub fn write(&mut self, at: usize, from: &[u8]) -> Result<()> {
        self.usable(at, from.len())?;
        match self.mapping.on_device() {
            Some(device) => device.write(at, from)?,
            None => self.bytes_mut()[at..at + from.len()].copy_from_slice(from),
        }
        Ok(())
    }
    /// Makes the first `count` bytes those of another range of the same arena.
    pub fn copy_from(&mut self, from: &Range, count: usize) -> Result<()> {
        self.usable(0, count)?;
        from.usable(0, count)?;
        match (self.mapping.on_device(), from.mapping.on_device()) {
            (Some(to), Some(from)) => to.copy_from(&from, count)?,
            _ => self.bytes_mut()[..count].copy_from_slice(&from.bytes()[..count]),
        }
        Ok(())
    }
    /// Zeroes the first `count` bytes.
    pub fn zero(&mut self, count: usize) -> Result<()> {
        self.usable(0, count)?;
        match self.mapping.on_device() {
            Some(device) => device.zero(count)?,
            None => self.bytes_mut()[..count].fill(0),
        }
        Ok(())
    }

    fn usable(&self, at: usize, count: usize) -> Result<()> {
        match at.checked_add(count) {
            Some(end) if end <= self.committed => Ok(()),
            _ => Err(Error::invalid(format!(
                "bytes {at} to {} of '{}' were asked for and {} are usable",
                at.saturating_add(count),
                self.label,
                self.committed
            ))),
        }
    }

    /// Charges the growth to `bytes` without mapping anything.
    fn charge(&mut self, bytes: usize) -> Result<()> {
        let Range { label, reserved, committed, .. } = self;
        if bytes > *reserved {
            return Err(Error::invalid(format!(
                "'{label}' holds at most {} and {} were asked for: load the model with a larger --max-seq",
                size(*reserved),
                size(bytes)
            )));
        }
        if bytes <= *committed {
            return Ok(());
        }
        if self.sealed {
            return Err(Error::InsufficientMemory(format!(
                "'{label}' cannot grow beyond {}: an earlier growth was rolled back and its addresses cannot be mapped \
                 again; start a new sequence",
                size(*committed)
            )));
        }
        let target = bytes.div_ceil(self.step).saturating_mul(self.step).min(*reserved);
        self.shared.ledger.charge(label, target - *committed)?;
        self.charged = target;
        Ok(())
    }

    /// Obtains memory for what was charged.
    fn obtain_charged(&mut self) -> Result<()> {
        while self.mapped < self.charged {
            let end = self.mapped.saturating_add(self.step).min(self.reserved);
            self.mapping.map(self.mapped..end).map_err(|error| named(&self.label, error))?;
            self.mapped = end;
        }
        Ok(())
    }

    /// Makes it usable.
    fn allow_charged(&mut self) -> Result<()> {
        if self.charged == self.committed {
            return Ok(());
        }
        self.mapping.allow(self.charged).map_err(|error| named(&self.label, error))
    }

    /// Back to the committed prefix.
    fn roll_back(&mut self) {
        let kept = self.unmap_to(self.committed);
        self.shared.ledger.refund(self.charged - self.committed - kept);
        self.charged = self.committed;
    }

    /// Gives all memory back to the system; the addresses stay. `false`: they cannot get memory again, as on a device that
    /// keeps reading the first backing of an address, and the range is good for nothing but to be dropped.
    pub fn give_back(&mut self) -> bool {
        let kept = self.unmap_to(0);
        self.shared.ledger.refund(self.committed - kept);
        (self.committed, self.charged) = (0, 0);
        !self.sealed
    }

    /// Unmaps the pieces beyond `prefix`, the last first and each by itself: a driver may leave a range in use when one
    /// call spans several handles. Returns the bytes that stayed; their error is recorded.
    fn unmap_to(&mut self, prefix: usize) -> usize {
        let mut kept = 0;
        while self.mapped > prefix {
            let start = (self.mapped - 1) / self.step * self.step;
            let outcome = self.mapping.unmap(start..self.mapped);
            self.sealed |= !matches!(outcome, Ok(true));
            if let Err(error) = outcome {
                kept += self.mapped - start;
                self.shared.ledger.record(named(&self.label, error));
            }
            self.mapped = start;
        }
        kept
    }
}

/// Grows several ranges, or none: after an error every one is as it was. Ranges of a sequence belong together, so a
/// caller that grows them one by one would leave some larger than the others when memory runs out.
pub fn ensure_all(growths: &mut [(&mut Range, usize)]) -> Result<()> {
    let charged = growths.iter_mut().try_for_each(|(range, bytes)| range.charge(*bytes));
    // Memory for all of them first: that is what runs out, and until an address was mapped its range can try again.
    let obtained = charged.and_then(|()| growths.iter_mut().try_for_each(|(range, _)| range.obtain_charged()));
    let mapped = obtained.and_then(|()| growths.iter_mut().try_for_each(|(range, _)| range.allow_charged()));
    for (range, _) in growths.iter_mut() {
        match mapped {
            Ok(()) => {
                if range.committed < range.charged {
                    range.shared.ledger.grew();
                }
                range.committed = range.charged;
            }
            Err(_) => range.roll_back(),
        }
    }
    mapped
}

/// Grows several ranges for the step after this one, as far as they reach, so that no step waits for a mapping to work.
/// Says whether there was memory for it: if not, nothing changed, and the step that needs it will fail or find it freed.
pub fn ensure_ahead(growths: &mut [(&mut Range, usize)]) -> Result<bool> {
    for (range, bytes) in growths.iter_mut() {
        *bytes = (*bytes).min(range.reserved);
    }
    match ensure_all(growths) {
        Ok(()) => Ok(true),
        Err(Error::InsufficientMemory(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let kept = self.unmap_to(0);
        self.shared.ledger.refund(self.committed - kept);
        match self.backend == KvBackend::Legacy && self.shared.memory.recycles_allocations() {
            true => self.shared.ledger.close(self.reserved),
            false => self.shared.ledger.retire(self.reserved),
        }
    }
}

/// Puts the range's name in front of a provider's sentence.
fn named(label: &str, error: Error) -> Error {
    match error {
        Error::InsufficientMemory(message) => Error::InsufficientMemory(format!("'{label}': {message}")),
        Error::Invalid(message) => Error::Invalid(format!("'{label}': {message}")),
        Error::Device(message) => Error::Device(format!("'{label}': {message}")),
        other => other,
    }
}
