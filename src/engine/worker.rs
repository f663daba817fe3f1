//! The engine's thread: owns the model, keeps the slots and runs one step after another.
//!
//! Owns: the order of a step: intake, cancellations, admission, rows, model, logits.
//! Always true: before every step it is asked who still wants a result; a request that fails, for want of memory or by
//! an error, fails alone, and its slot is clean for the next one; a step that fails takes only its own rows' requests
//! along.
//! Not here: checks of a request (`Engine::submit`), who gets which rows (`scheduler`), what a row of logits means
//! (`work`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use super::counters::{Board, SlotStatus};
use super::request::{Cancel, StopReason};
use super::scheduler::{Limits, Seen, Share, next_step};
use super::work::{Ending, Verdict, Work};
use super::{MemoryProbe, Options};
use crate::error::{Error, Result};
use crate::model::{Feed, LOGIT_ROWS, LanguageModel};
use crate::state::Sequence;

/// One sequence's place, with the request that uses it.
#[derive(Default)]
struct Slot {
    /// Kept between requests: the addresses of a dropped one would be retired.
    sequence: Option<Sequence>,
    work: Option<Work>,
    /// The step it was last served in.
    served: u64,
    /// Request that it last worked for.
    request: u64,
}

impl Slot {
    fn held(&self) -> usize {
        self.sequence.as_ref().map_or(0, Sequence::len)
    }

    fn seen(&self, number: usize) -> Option<Seen> {
        self.work.as_ref().map(|work| work.seen(number, self.held(), self.served))
    }

    fn status(&self) -> SlotStatus {
        let (activity, generated) = self.work.as_ref().map(Work::activity).unwrap_or_default();
        let prompt = self.work.as_ref().map_or(0, Work::prompt);
        SlotStatus { activity, request: self.request, prompt, generated, held: self.held() }
    }
}

/// The thread's state.
pub(super) struct Worker {
    model: Box<dyn LanguageModel>,
    limits: Limits,
    slots: Vec<Slot>,
    queue: VecDeque<Work>,
    board: Arc<Board>,
    memory: MemoryProbe,
    stop: Cancel,
    steps: u64,
}

impl Worker {
    /// `stop` ends everything.
    pub fn new(
        model: Box<dyn LanguageModel>,
        limits: Limits,
        options: Options,
        board: Arc<Board>,
        stop: Cancel,
    ) -> Worker {
        let slots = (0..limits.parallel).map(|_| Slot::default()).collect();
        Worker { model, limits, slots, queue: VecDeque::new(), board, memory: options.memory, stop, steps: 0 }
    }

    /// Until every sender is gone and nothing is left to do.
    pub fn run(mut self, jobs: Receiver<Work>) {
        while self.take_in(&jobs) {
            self.drop_cancelled();
            self.admit();
            self.step();
            self.board.step_ended(self.slots.iter().map(Slot::status));
        }
    }

    /// Takes what has come; waits for it only if there is nothing else to do. `false`: nothing will come any more.
    fn take_in(&mut self, jobs: &Receiver<Work>) -> bool {
        let mut busy = !self.queue.is_empty() || self.slots.iter().any(|slot| slot.work.is_some());
        loop {
            let next = if busy { jobs.try_recv() } else { jobs.recv().map_err(|_| TryRecvError::Disconnected) };
            match next {
                Ok(work) => self.queue.push_back(work),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return busy,
            }
            busy = true;
        }
    }

    fn drop_cancelled(&mut self) {
        let all = self.stop.is_cancelled();
        for slot in 0..self.slots.len() {
            if self.slots[slot].work.as_ref().is_some_and(|work| all || work.cancelled()) {
                self.end(slot, Ending::Finished(StopReason::Cancelled));
            }
        }
        let (gone, kept): (VecDeque<Work>, _) = self.queue.drain(..).partition(|work| all || work.cancelled());
        self.queue = kept;
        for work in gone {
            self.leave(work, false, Ending::Finished(StopReason::Cancelled));
        }
    }

    fn admit(&mut self) {
        while let Some(slot) = self.slots.iter().position(|slot| slot.work.is_none()) {
            let Some(mut work) = self.queue.pop_front() else { return };
            self.board.began(work.prompt());
            let begun = work.begin(self.model.max_sequence());
            self.slots[slot].request = work.number;
            let tokens = work.prompt();
            self.slots[slot].work = Some(work);
            self.obey(slot, begun);
            if self.slots[slot].work.is_some()
                && let Err(error) = self.prepare(slot, tokens)
            {
                self.end(slot, Ending::Failed(error));
            }
        }
    }

    /// Gives a slot an empty state with room for a prompt.
    fn prepare(&mut self, slot: usize, tokens: usize) -> Result<()> {
        if let Some(sequence) = &mut self.slots[slot].sequence {
            sequence.reset();
        }
        self.make_room(slot, tokens)
    }

    /// Room for `tokens` in a slot's state, at the cost of idle ones.
    fn make_room(&mut self, slot: usize, tokens: usize) -> Result<()> {
        loop {
            let sequence = &mut self.slots[slot].sequence;
            let grown = match sequence {
                Some(sequence) => sequence.ensure(tokens),
                None => self.model.new_sequence().and_then(|new| sequence.insert(new).ensure(tokens)),
            };
            match grown {
                Err(Error::InsufficientMemory(message)) if self.shed() => {
                    tracing::debug!(slot, tokens, "gave an idle state up: {message}");
                }
                grown => return grown,
            }
        }
    }

    /// Gives memory of the idle slot that was served longest ago back to the system. `false`: there is none.
    fn shed(&mut self) -> bool {
        let idle = self.slots.iter_mut().filter(|slot| slot.work.is_none() && slot.sequence.is_some());
        idle.min_by_key(|slot| slot.served).and_then(|slot| slot.sequence.take()).is_some()
    }

    fn step(&mut self) {
        let seen: Vec<Seen> = self.slots.iter().enumerate().filter_map(|(i, slot)| slot.seen(i)).collect();
        let mut shares = next_step(&seen, self.limits);
        // The order of the slots, which is the order in which they can be borrowed together.
        shares.sort_by_key(|share| share.slot);
        shares.retain(|share| match self.make_room(share.slot, self.slots[share.slot].held() + share.rows) {
            Ok(()) => true,
            Err(error) => {
                self.end(share.slot, Ending::Failed(error));
                false
            }
        });
        if shares.is_empty() {
            return;
        }
        self.steps += 1;
        let reads = |share: &&Share| seen.iter().any(|seen| seen.slot == share.slot && seen.reads);
        let rows = |shares: &mut dyn Iterator<Item = &Share>| shares.map(|share| share.rows).sum();
        self.board.step_begins(rows(&mut shares.iter()), rows(&mut shares.iter().filter(reads)));
        // A panic would be our bug. The requests that met it fail, the others go on.
        let failure = match catch_unwind(AssertUnwindSafe(|| self.compute(&shares))) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => Error::model(
                "the request met a bug in the engine: the log says where; please report it with the prompt",
            ),
        };
        for share in &shares {
            if let Some(sequence) = &mut self.slots[share.slot].sequence {
                sequence.reset();
            }
            self.end(share.slot, Ending::Failed(failure.again()));
        }
    }

    /// Feeds every share, then hands out the logits of the rows that their requests want.
    fn compute(&mut self, shares: &[Share]) -> Result<()> {
        let mut feeds = Vec::with_capacity(shares.len());
        let mut rest = shares.iter().peekable();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Some(share) = rest.next_if(|share| share.slot == number) else { continue };
            let (Some(sequence), Some(work)) = (&mut slot.sequence, &slot.work) else { continue };
            slot.served = self.steps;
            feeds.push(Feed { ids: work.next(sequence.len(), share.rows), sequence });
        }
        self.model.forward(&mut feeds)?;

        let mut wanted = Vec::new();
        let mut first = 0;
        for share in shares {
            first += share.rows;
            let held = self.slots[share.slot].held();
            let Some(work) = &mut self.slots[share.slot].work else { continue };
            let (rows, verdict) = work.stepped(held, share.rows);
            wanted.extend((first - rows..first).map(|row| (share.slot, row)));
            self.obey(share.slot, verdict);
        }
        wanted.chunks(LOGIT_ROWS).for_each(|block| self.take_logits(block));
        Ok(())
    }

    /// Hands rows of logits to their slots. Rows of one slot come in order, and what is left of them once a request has
    /// ended is ignored.
    fn take_logits(&mut self, wanted: &[(usize, usize)]) {
        let rows: Vec<usize> = wanted.iter().map(|(_, row)| *row).collect();
        let vocab = self.model.shape().vocab;
        let mut verdicts = Vec::with_capacity(wanted.len());
        match self.model.logits(&rows) {
            Ok(logits) => {
                for ((slot, _), logits) in wanted.iter().zip(logits.chunks_exact(vocab)) {
                    let Some(work) = &mut self.slots[*slot].work else { continue };
                    if !verdicts.iter().any(|(ended, _)| ended == slot)
                        && let Verdict::End(ending) = work.take(logits)
                    {
                        verdicts.push((*slot, ending));
                    }
                }
            }
            // One row's numbers are damaged: the others must not suffer for it.
            Err(_) if wanted.len() > 1 => return wanted.iter().for_each(|one| self.take_logits(&[*one])),
            Err(error) => verdicts.extend(wanted.iter().map(|(slot, _)| (*slot, Ending::Failed(error.again())))),
        }
        verdicts.into_iter().for_each(|(slot, ending)| self.end(slot, ending));
    }

    fn obey(&mut self, slot: usize, verdict: Verdict) {
        if let Verdict::End(ending) = verdict {
            self.end(slot, ending);
        }
    }

    fn end(&mut self, slot: usize, ending: Ending) {
        if let Some(work) = self.slots[slot].work.take() {
            self.leave(work, true, ending);
        }
    }

    fn leave(&self, work: Work, ran: bool, ending: Ending) {
        // First the books, then the last word: whoever hears it may ask again at once.
        self.board.left(ran, work.outcome(&ending), work.submitted().elapsed());
        work.finish(ending, &self.memory);
    }
}
