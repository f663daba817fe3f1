//! What a backend has run so far, for receipts.
//!
//! Owns: the names of the kernels by phase, the number of replays.
//! Always true: reading waits for no step; a program that is replayed was noted when it ran as it is.
//! Not here: how long kernels take (`LanguageModel::profile`), who shows it (`engine`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// What has run since a backend was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ran {
    /// How often recorded programs were replayed.
    pub graph_replays: u64,
    /// Kernels of steps of many rows: prompts.
    pub prefill_kernels: BTreeSet<String>,
    /// Kernels of steps of few rows: answers, and their drafts.
    pub decode_kernels: BTreeSet<String>,
}

/// Written by a backend, read by anyone.
#[derive(Debug, Default)]
pub struct Journal {
    replays: AtomicU64,
    /// Of few rows, of many.
    kernels: Mutex<[BTreeSet<String>; 2]>,
}

impl Journal {
    /// A launch in a step of few rows, or of many.
    pub fn launched(&self, kernel: &str, many: bool) {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = &mut kernels[usize::from(many)];
        if !seen.contains(kernel) {
            seen.insert(kernel.to_string());
        }
    }
    /// A recorded program was replayed.
    pub fn replayed(&self) {
        self.replays.fetch_add(1, Ordering::Relaxed);
    }
    /// Replays so far.
    pub fn replays(&self) -> u64 {
        self.replays.load(Ordering::Relaxed)
    }
    /// All of it.
    pub fn ran(&self) -> Ran {
        let [decode_kernels, prefill_kernels] = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ran { graph_replays: self.replays(), prefill_kernels, decode_kernels }
    }
}
