//! Rounds of speculation among the engine's steps: drafts before a step, what is taken back after it.
//!
//! Owns: which answers draft together, whose failure is whose.
//! Always true: after a step a slot's state holds tokens of its request only; want of memory for drafts costs the drafts,
//! not the request.
//! Not here: how drafts are chosen and judged (`speculate`), the step between (`worker`).

use std::time::Duration;

use super::{Slot, Worker};
use crate::engine::scheduler::Share;
use crate::engine::speculate::{self, Lane};
use crate::engine::work::Ending;
use crate::error::{Error, Result};
use crate::model::LOGIT_ROWS;

impl Worker {
    /// Lets every answer draft that may. The drafts of one step may be fed by a later one.
    pub(super) fn draft(&mut self) {
        let slots: Vec<usize> = (0..self.slots.len()).collect();
        for group in slots.chunks(LOGIT_ROWS) {
            if self.draft_for(group).is_ok() {
                continue;
            }
            // One state's numbers are damaged, or there is no memory for all: each for itself.
            for &slot in group {
                match self.draft_for(&[slot]) {
                    Ok(()) => {}
                    Err(Error::InsufficientMemory(message)) => {
                        tracing::debug!(slot, "no memory for drafts: {message}");
                    }
                    Err(error) => self.end(slot, Ending::Failed(error)),
                }
            }
        }
    }

    /// Drafts for those of `slots`, in ascending order, that may; none of them has drafts after an error.
    fn draft_for(&mut self, slots: &[usize]) -> Result<()> {
        let Some((&first, &last)) = slots.first().zip(slots.last()) else { return Ok(()) };
        let mut lanes: Vec<Lane<'_>> = self.slots[first..=last]
            .iter_mut()
            .filter_map(|slot| slot.work.as_mut()?.lane(slot.sequence.as_mut()?))
            .collect();
        if lanes.is_empty() {
            return Ok(());
        }
        speculate::draft(&mut *self.model, &mut lanes)?;
        for slot in &mut self.slots[first..=last] {
            let held = slot.held();
            if let Some(work) = &mut slot.work {
                work.take_drafts(held);
            }
        }
        Ok(())
    }

    /// After the logits of a step: the states lose what was refused, and everyone learns what it took; `alone` says that
    /// no prompt was read in it.
    pub(super) fn end_rounds(&mut self, shares: &[Share], times: [Duration; 3], alone: bool) {
        for share in shares {
            self.take_back(share.slot);
            if let Some(work) = &mut self.slots[share.slot].work {
                work.round_ended(times, alone);
            }
        }
    }

    /// Takes rows of refused drafts out of a slot's state.
    pub(super) fn take_back(&mut self, slot: usize) {
        let Slot { sequence: Some(sequence), work: Some(work), .. } = &mut self.slots[slot] else { return };
        let held = sequence.len();
        let refused = held.saturating_sub(work.kept(held));
        if refused > 0
            && let Err(error) = sequence.rewind(refused)
        {
            // Rows that the plan made revocable: this cannot be, and if it is, the state must not be used.
            tracing::error!(slot, "refused drafts could not be taken back: {error}");
            self.slots[slot].clear();
        }
    }
}
