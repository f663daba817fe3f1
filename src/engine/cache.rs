//! Sequences put aside for later prompts, within a byte budget.
//!
//! Owns: the list, its order of use, what leaves when the budget is reached.
//! Always true: shared pieces are counted once; after `insert` the list keeps the budget; a stored sequence that another
//! one contains with all its moments is not kept twice.
//! Not here: copies (`state::stored`), which of them a request uses (`prefix`), files (`sessions`).

use std::collections::HashSet;

use crate::state::stored::{Stored, common};

/// See the head.
pub(super) struct Cache {
    budget: usize,
    bytes: usize,
    clock: u64,
    entries: Vec<(u64, Stored)>,
}

impl Cache {
    /// Keeps up to `budget` bytes.
    pub fn new(budget: usize) -> Cache {
        Cache { budget, bytes: 0, clock: 0, entries: Vec::new() }
    }

    /// Whether it keeps anything.
    pub fn is_on(&self) -> bool {
        self.budget > 0
    }
    pub fn budget(&self) -> usize {
        self.budget
    }
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    pub fn entries(&self) -> impl Iterator<Item = &Stored> {
        self.entries.iter().map(|(_, stored)| stored)
    }

    /// An entry that is about to be used.
    pub fn touch(&mut self, at: usize) -> &Stored {
        self.clock += 1;
        self.entries[at].0 = self.clock;
        &self.entries[at].1
    }

    /// The entry that begins most like `ids`, to share pieces with.
    pub fn nearest(&self, ids: &[u32]) -> Option<&Stored> {
        self.entries().max_by_key(|stored| common(stored.ids(), ids))
    }

    /// Puts a sequence aside; what it makes superfluous and what is over the budget leaves, the least recently used
    /// first.
    pub fn insert(&mut self, stored: Stored) {
        self.clock += 1;
        self.entries.retain(|(_, old)| !contains(&stored, old));
        match self.entries.iter_mut().find(|(_, old)| contains(old, &stored)) {
            Some((used, _)) => *used = self.clock,
            None => self.entries.push((self.clock, stored)),
        }
        self.keep_within(self.budget);
    }

    /// Forgets the least recently used until what is left takes `limit` bytes at the most.
    pub fn keep_within(&mut self, limit: usize) {
        self.bytes = self.count();
        while self.bytes > limit {
            let Some(oldest) = (0..self.entries.len()).min_by_key(|&at| self.entries[at].0) else { return };
            self.entries.swap_remove(oldest);
            self.bytes = self.count();
        }
    }

    fn count(&self) -> usize {
        let mut seen = HashSet::new();
        self.entries().flat_map(Stored::pieces).filter(|(at, _)| seen.insert(*at)).map(|(_, bytes)| bytes).sum()
    }
}

/// Whether everything `small` can be used for is possible with `large`.
fn contains(large: &Stored, small: &Stored) -> bool {
    let has = |length: usize| large.moments().iter().any(|moment| moment.ids().len() == length);
    large.ids().starts_with(small.ids()) && small.moments().iter().all(|moment| has(moment.ids().len()))
}
