//! The arena's books: what is reserved, committed and retired, and what may still be.
//!
//! Owns: the counters, the limits and the sentences of a refusal.
//! Always true: a refused call changes no counter; an error of a `Drop` is kept and returned by the next reservation.
//! Not here: memory (`vm`), the order of calls (`arena`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// What an arena may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes committed at a time, all ranges together; `None` leaves it to the system.
    pub committed: Option<usize>,
    /// Ranges retired in the life of the process.
    pub retired_ranges: usize,
    /// Bytes of addresses retired in the life of the process.
    pub retired_bytes: usize,
}

impl Default for Limits {
    /// 32,768 ranges, half of the mappings that Linux gives a process (`vm.max_map_count` 65,530); 64 TiB, half of its
    /// 47-bit addresses.
    fn default() -> Limits {
        Limits { committed: None, retired_ranges: 32_768, retired_bytes: 64 << 40 }
    }
}

/// Counters of one arena.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub reserved: usize,
    pub committed: usize,
    pub retired: usize,
    pub ranges: usize,
    pub retired_ranges: usize,
    pub growths: u64,
}

pub(super) struct Ledger {
    limits: Limits,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    counters: Counters,
    failure: Option<Error>,
}

impl Ledger {
    pub fn new(limits: Limits) -> Ledger {
        Ledger { limits, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Every critical section is plain arithmetic, so a poisoned lock still guards consistent numbers.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counters(&self) -> Counters {
        self.books().counters
    }

    /// Admits a range of `reserved` bytes.
    pub fn open(&self, label: &str, reserved: usize) -> Result<()> {
        let mut books = self.books();
        if let Some(failure) = books.failure.take() {
            return Err(failure);
        }
        let Counters { retired, retired_ranges, .. } = books.counters;
        if retired_ranges >= self.limits.retired_ranges || retired >= self.limits.retired_bytes {
            return Err(Error::InsufficientMemory(format!(
                "cannot reserve {} for '{label}': {retired_ranges} ranges ({} of addresses) were retired and a retired \
                 address is never used again; restart the process to get them back",
                size(reserved),
                size(retired)
            )));
        }
        books.counters.ranges += 1;
        books.counters.reserved += reserved;
        Ok(())
    }

    /// Takes `open` back: the system had no such range, or has it again.
    pub fn close(&self, reserved: usize) {
        let mut books = self.books();
        books.counters.ranges -= 1;
        books.counters.reserved -= reserved;
    }

    /// Closes a range: its addresses are retired.
    pub fn retire(&self, reserved: usize) {
        let mut books = self.books();
        books.counters.ranges -= 1;
        books.counters.reserved -= reserved;
        books.counters.retired_ranges += 1;
        books.counters.retired = books.counters.retired.saturating_add(reserved);
    }

    /// Counts `bytes` as committed, if the limit allows them.
    pub fn charge(&self, label: &str, bytes: usize) -> Result<()> {
        let mut books = self.books();
        let committed = books.counters.committed;
        let total = committed.saturating_add(bytes);
        if let Some(limit) = self.limits.committed.filter(|&limit| bytes > 0 && total > limit) {
            return Err(Error::InsufficientMemory(format!(
                "'{label}' asks for {} more, but {} of at most {} are committed: end another sequence, lower --max-seq \
                 or raise --memory-limit",
                size(bytes),
                size(committed),
                size(limit)
            )));
        }
        books.counters.committed = total;
        Ok(())
    }

    /// Counts a range's growth that is there to stay.
    pub fn grew(&self) {
        self.books().counters.growths += 1;
    }

    /// Counts `bytes` as no longer committed.
    pub fn refund(&self, bytes: usize) {
        self.books().counters.committed -= bytes;
    }

    /// Keeps the first error that had nobody to go to.
    pub fn record(&self, error: Error) {
        self.books().failure.get_or_insert(error);
    }
}

/// Bytes in the largest binary unit that keeps them above one, for messages.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{:.2} GiB", b as f64 / (1u64 << 30) as f64),
        b if b >= 1 << 20 => format!("{:.2} MiB", b as f64 / (1u64 << 20) as f64),
        b if b >= 1 << 10 => format!("{:.2} KiB", b as f64 / (1u64 << 10) as f64),
        b => format!("{b} B"),
    }
}
