//! One sequence's place in the engine, with the request that uses it.
//!
//! Owns: a sequence that outlives its requests, and the moments it can go back to.
//! Always true: the moments ascend in length and are all prefixes of the sequence; a state that may be damaged is
//! emptied at once.
//! Not here: which slot a request gets (`prefix`), what it does there (`work`).

use std::sync::Arc;

use super::counters::SlotStatus;
use super::prefix::{Candidate, IdleSlot, Place, dispensable, known};
use super::scheduler::Seen;
use super::work::Work;
use crate::state::stored::common;
use crate::state::{Sequence, Snapshot};

/// See the head.
#[derive(Default)]
pub(super) struct Slot {
    /// Kept between requests: the addresses of a dropped one would be retired.
    pub sequence: Option<Sequence>,
    pub work: Option<Work>,
    /// The step it was last served in.
    pub served: u64,
    /// Request that it last worked for.
    pub request: u64,
    moments: Vec<Arc<Snapshot>>,
}

impl Slot {
    /// Tokens of its state.
    pub fn held(&self) -> usize {
        self.sequence.as_ref().map_or(0, Sequence::len)
    }
    pub fn moments(&self) -> &[Arc<Snapshot>] {
        &self.moments
    }
    /// Bytes of all moments.
    pub fn moment_bytes(&self) -> usize {
        self.moments.iter().map(|moment| moment.bytes()).sum()
    }

    pub fn seen(&self, number: usize) -> Option<Seen> {
        self.work.as_ref().map(|work| work.seen(number, self.held(), self.served))
    }

    pub fn idle(&self, number: usize) -> Option<IdleSlot> {
        self.work.is_none().then(|| IdleSlot { slot: number, held: self.held(), served: self.served })
    }

    /// What a prompt could take over from here.
    pub fn candidate(&self, number: usize, prompt: &[u32]) -> Option<Candidate> {
        let sequence = self.sequence.as_ref()?;
        let (same, held) = (common(sequence.ids(), prompt), sequence.len());
        let (place, whole) = match self.work {
            None => (Place::Idle(number), Some(held)),
            Some(_) => (Place::Busy(number), None),
        };
        let lengths = self.moments.iter().map(|moment| moment.ids().len());
        Some(Candidate { place, same, known: known(same, prompt.len(), whole, lengths), held })
    }

    /// The moment after so many tokens.
    pub fn moment(&self, tokens: usize) -> Option<&Arc<Snapshot>> {
        self.moments.iter().find(|moment| moment.ids().len() == tokens)
    }

    /// Keeps this moment, and thins the others out: all of them take `budget` bytes at the most, unless one takes more.
    pub fn mark(&mut self, budget: usize) {
        let Some(sequence) = self.sequence.as_ref().filter(|sequence| !sequence.is_empty()) else { return };
        if self.moment(sequence.len()).is_some() {
            return;
        }
        let moment = match sequence.snapshot() {
            Ok(moment) => moment,
            // What is not kept is read again.
            Err(error) => return tracing::warn!("a moment could not be kept: {error}"),
        };
        let room = budget / moment.bytes().max(1);
        self.moments.push(Arc::new(moment));
        let mut lengths: Vec<usize> = self.moments.iter().map(|moment| moment.ids().len()).collect();
        while let Some(at) = dispensable(&lengths, room) {
            self.moments.remove(at);
            lengths.remove(at);
        }
    }

    /// Forgets its first moment. `false`: it has none.
    pub fn forget_one(&mut self) -> bool {
        let any = !self.moments.is_empty();
        self.moments.drain(..usize::from(any));
        any
    }

    /// Goes back to `tokens` tokens: to a moment, to the whole, or to nothing where there is neither.
    pub fn go_back(&mut self, tokens: usize) {
        let moment = self.moment(tokens).cloned();
        self.moments.retain(|moment| moment.ids().len() <= tokens);
        let Some(sequence) = self.sequence.as_mut().filter(|sequence| sequence.len() != tokens) else { return };
        // A moment of this slot is a prefix of its sequence; were it not, an empty state would still be right.
        if moment.is_none_or(|moment| sequence.restore(&moment).is_err()) {
            self.clear();
        }
    }

    /// Takes moments over that its new state has.
    pub fn inherit(&mut self, moments: &[Arc<Snapshot>]) {
        let held = self.held();
        self.moments = moments.iter().filter(|moment| moment.ids().len() <= held).cloned().collect();
    }

    /// Empties the state and keeps its memory.
    pub fn clear(&mut self) {
        self.moments.clear();
        if let Some(sequence) = &mut self.sequence
            && let Err(error) = sequence.reset()
        {
            tracing::error!("a sequence could not be emptied and is given up: {error}");
            self.sequence = None;
        }
    }

    /// Whether its state has memory that could be of use elsewhere.
    pub fn has_memory(&self) -> bool {
        self.sequence.as_ref().is_some_and(|sequence| sequence.committed() > 0)
    }

    /// Gives the state's memory back, and its addresses up where they are of no more use.
    pub fn give_up(&mut self) {
        self.moments.clear();
        if self.sequence.as_mut().is_some_and(|sequence| !sequence.give_back()) {
            self.sequence = None;
        }
    }

    pub fn status(&self) -> SlotStatus {
        let (activity, generated) = self.work.as_ref().map(Work::activity).unwrap_or_default();
        let (prompt, cached) = self.work.as_ref().map_or((0, 0), |work| (work.prompt(), work.cached()));
        SlotStatus { activity, request: self.request, prompt, cached, generated, held: self.held() }
    }
}
