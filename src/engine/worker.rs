//! The engine's thread: owns the model, keeps the slots and runs one step after another.
//!
//! Owns: the order of a step: intake, cancellations, admission, drafts, rows, model, logits, what is taken back.
//! Always true: before every step it is asked who still wants a result; a request that fails, for want of memory or by
//! an error, fails alone, and its slot is clean for the next one; a step that fails takes only its own rows' requests
//! along.
//! Not here: checks of a request (`Engine::submit`), who gets which rows (`scheduler`) and which slot (`prefix`), what
//! a row of logits means (`work`).

mod drafting;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use super::cache::Cache;
use super::counters::{Board, CacheStatus};
use super::prefix::{Candidate, Choice, Place, choose, is_put_aside, known};
use super::request::{Cancel, StopReason};
use super::scheduler::{Limits, Seen, Share, next_step};
use super::sessions::Sessions;
use super::slot::Slot;
use super::speculate::{Clock, Speculation, Speculator};
use super::work::{Ending, Verdict, Work};
use super::{MemoryProbe, Options};
use crate::error::{Error, Result};
use crate::model::{Feed, LOGIT_ROWS, LanguageModel};
use crate::state::Sequence;
use crate::state::stored::{Stored, common};

/// The thread's state.
pub(super) struct Worker {
    model: Box<dyn LanguageModel>,
    limits: Limits,
    slots: Vec<Slot>,
    queue: VecDeque<Work>,
    cache: Cache,
    sessions: Option<Sessions>,
    board: Arc<Board>,
    memory: MemoryProbe,
    speculation: Speculation,
    stop: Cancel,
    /// The first who waits needs memory that those who run hold: nobody begins until one of them has ended.
    starved: bool,
    steps: u64,
}

impl Worker {
    /// `stop` ends everything.
    ///
    /// # Errors
    /// `Io`, if the session folder cannot be used.
    pub fn new(
        model: Box<dyn LanguageModel>,
        limits: Limits,
        options: Options,
        board: Arc<Board>,
        stop: Cancel,
    ) -> Result<Worker> {
        let mut cache = Cache::new(options.cache_memory);
        let mut sessions = None;
        if let Some(folder) = options.sessions.clone() {
            let (open, stored) = Sessions::open(folder, cache.budget())?;
            stored.into_iter().for_each(|stored| cache.insert(stored));
            sessions = Some(open);
        }
        let slots = (0..limits.parallel).map(|_| Slot::default()).collect();
        let Options { memory, speculation, .. } = options;
        let (queue, starved, steps) = (VecDeque::new(), false, 0);
        let worker =
            Worker { model, limits, slots, queue, cache, sessions, board, memory, speculation, stop, starved, steps };
        worker.publish();
        Ok(worker)
    }

    /// Until every sender is gone and nothing is left to do.
    pub fn run(mut self, jobs: Receiver<Work>) {
        if let Err(error) = self.model.adopt() {
            // What is wrong with the device is said again by the first request's own call.
            tracing::error!("the engine's thread cannot use the device: {error}");
        }
        while self.take_in(&jobs) {
            self.drop_cancelled();
            self.admit();
            self.step();
            self.publish();
        }
    }

    fn publish(&self) {
        self.board.step_ended(self.slots.iter().map(Slot::status), self.cache_status());
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

    /// Gives idle slots to those who wait, in their order. Who cannot have memory now waits for what others hold, and
    /// is refused where nobody holds any.
    fn admit(&mut self) {
        while !self.starved
            && let Some(at) = self.queue.iter().position(|work| !self.is_held_back(work))
        {
            let Some(choice) = self.choose(&self.queue[at]) else { return };
            let slot = choice.into;
            let prepared = self.prepare(choice, self.queue[at].prompt());
            let shared = self.slots.iter().any(|slot| slot.work.is_some());
            if shared && matches!(prepared, Err(Error::InsufficientMemory(_))) {
                self.starved = true;
                return;
            }
            let Some(mut work) = self.queue.remove(at) else { return };
            let cached = self.slots[slot].held();
            self.board.began(work.prompt(), cached);
            let speculator = Speculator::of(self.speculation, &*self.model);
            let begun = work.begin(self.model.max_sequence(), cached, self.cache.is_on(), speculator);
            self.slots[slot].request = work.number;
            if let Some(sequence) = self.slots[slot].sequence.as_mut().filter(|_| !work.drafts()) {
                sequence.stop_following();
            }
            self.slots[slot].work = Some(work);
            match prepared {
                Ok(()) => self.obey(slot, begun),
                Err(error) => self.end(slot, Ending::Failed(error)),
            }
        }
    }

    /// Whether it waits for the one whose prompt it shares to have read it.
    fn is_held_back(&self, work: &Work) -> bool {
        let leads = |other: &Work| work.follows == Some(other.number) && other.reads();
        self.slots.iter().filter_map(|slot| slot.work.as_ref()).chain(&self.queue).any(leads)
    }

    /// The slot a request gets, with the longest beginning of its prompt that is known.
    fn choose(&self, work: &Work) -> Option<Choice> {
        let idle: Vec<_> = self.slots.iter().enumerate().filter_map(|(at, slot)| slot.idle(at)).collect();
        if idle.is_empty() || !work.reuses() {
            return choose(&[], &idle);
        }
        let prompt = work.ids();
        let live = self.slots.iter().enumerate().filter_map(|(at, slot)| slot.candidate(at, prompt));
        let stored = self.cache.entries().enumerate().map(|(at, stored)| {
            let same = common(stored.ids(), prompt);
            let moments = stored.moments().iter().map(|moment| moment.ids().len());
            let known = known(same, prompt.len(), None, moments);
            Candidate { place: Place::Stored(at), same, known, held: stored.ids().len() }
        });
        let candidates: Vec<_> = live.chain(stored).collect();
        let choice = choose(&candidates, &idle);
        if let Some(choice) = choice {
            self.explain(work, &candidates, choice.known);
        }
        choice
    }

    /// Says why no more of a prompt was known, by the first token that differs from the nearest state.
    fn explain(&self, work: &Work, candidates: &[Candidate], known: usize) {
        let Some(nearest) = candidates.iter().filter(|c| c.held > 0).max_by_key(|c| c.same) else { return };
        let held = match nearest.place {
            Place::Idle(slot) | Place::Busy(slot) => self.slots[slot].sequence.as_ref().map(Sequence::ids),
            Place::Stored(at) => self.cache.entries().nth(at).map(Stored::ids),
        };
        let (before, now) = (held.and_then(|ids| ids.get(nearest.same)), work.ids().get(nearest.same));
        if let (Some(before), Some(now)) = (before, now) {
            tracing::info!(
                request = work.number,
                reused = known,
                prompt = work.prompt(),
                "the prompt differs from what is known at token {}: id {now}, not {before}",
                nearest.same
            );
        }
    }

    /// Makes a slot's state the beginning that was chosen, with room for the whole prompt of `tokens` tokens.
    fn prepare(&mut self, Choice { into, from, known }: Choice, tokens: usize) -> Result<()> {
        // Before anything is put aside: that changes the list.
        let stored = match from {
            Some(Place::Stored(at)) => Some(self.cache.touch(at).clone()),
            _ => None,
        };
        let held = self.slots[into].held();
        let lost = if from.is_some() { held } else { held - known };
        if is_put_aside(held, lost) {
            self.put_aside(into);
        }
        if from.is_none() {
            self.slots[into].go_back(known);
            return self.make_room(into, tokens);
        }
        self.slots[into].clear();
        self.make_room(into, tokens)?;
        let Some(mut sequence) = self.slots[into].sequence.take() else { return Ok(()) };
        let (taken, moments) = match (from, &stored) {
            (_, Some(stored)) => {
                let moment = stored.moments().iter().find(|moment| moment.ids().len() == known);
                (moment.map(|moment| sequence.take_up(stored, moment)), stored.moments().to_vec())
            }
            (Some(Place::Busy(slot) | Place::Idle(slot)), None) => {
                let slot = &self.slots[slot];
                let parts = slot.sequence.as_ref().zip(slot.moment(known));
                (parts.map(|(other, moment)| sequence.take_after(other, moment)), slot.moments().to_vec())
            }
            (_, None) => (None, Vec::new()),
        };
        if let Some(Err(error)) = taken {
            // The prompt is read from its beginning instead.
            tracing::warn!(tokens = known, "a known beginning could not be taken over: {error}");
        }
        self.slots[into].sequence = Some(sequence);
        self.slots[into].inherit(&moments);
        Ok(())
    }

    /// Keeps what a slot holds, where there is a budget for it.
    fn put_aside(&mut self, slot: usize) -> Option<Stored> {
        let sequence = self.slots[slot].sequence.as_ref().filter(|_| self.cache.is_on())?;
        let (moments, budget) = (self.slots[slot].moments(), self.cache.budget());
        let bytes = Stored::bytes_of(sequence, moments);
        if bytes > budget {
            let tokens = sequence.len();
            tracing::info!("{tokens} tokens are not kept: they take {bytes} bytes, --cache-memory allows {budget}");
            return None;
        }
        let stored = Stored::of(sequence, moments, self.cache.nearest(sequence.ids()));
        let stored = stored.inspect_err(|error| tracing::warn!("a state could not be kept: {error}")).ok()??;
        self.cache.insert(stored.clone());
        Some(stored)
    }

    /// Keeps the moment that a slot's state is in, within the budget.
    fn mark(&mut self, slot: usize) {
        self.slots[slot].mark(self.cache.budget());
        while self.moment_bytes() > self.cache.budget().max(self.slots[slot].moment_bytes()) {
            let others = self.slots.iter_mut().enumerate().filter(|(at, _)| *at != slot).map(|(_, slot)| slot);
            let most = others.max_by_key(|slot| slot.moment_bytes());
            if !most.is_some_and(Slot::forget_one) {
                break;
            }
        }
        self.cache.keep_within(self.cache.budget().saturating_sub(self.moment_bytes()));
    }

    fn moment_bytes(&self) -> usize {
        self.slots.iter().map(Slot::moment_bytes).sum()
    }

    fn cache_status(&self) -> CacheStatus {
        CacheStatus {
            limit: self.cache.budget(),
            bytes: self.cache.bytes() + self.moment_bytes(),
            stored: self.cache.len(),
            on_disk: self.sessions.as_ref().map_or(0, Sessions::kept),
        }
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
                Err(Error::InsufficientMemory(message)) if self.shed(slot) => {
                    tracing::debug!(slot, tokens, "gave an idle state up: {message}");
                }
                grown => return grown,
            }
        }
    }

    /// Gives the memory of an idle slot other than `but` back to the system, of the one that was served longest ago;
    /// what it holds is put aside. `false`: there is none.
    fn shed(&mut self, but: usize) -> bool {
        let idle = |(at, slot): &(usize, &Slot)| *at != but && slot.work.is_none() && slot.has_memory();
        let oldest = self.slots.iter().enumerate().filter(idle).min_by_key(|(_, slot)| slot.served);
        let Some((at, _)) = oldest else { return false };
        self.put_aside(at);
        self.slots[at].give_up();
        true
    }

    fn step(&mut self) {
        let mut clock = Clock::start();
        self.draft();
        let drafting = clock.lap();
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
        let alone = !shares.iter().any(|share| reads(&share));
        // A panic would be our bug. The requests that met it fail, the others go on.
        let failure = match catch_unwind(AssertUnwindSafe(|| self.compute(&shares, drafting, alone))) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => Error::model(
                "the request met a bug in the engine: the log says where; please report it with the prompt",
            ),
        };
        for share in &shares {
            self.slots[share.slot].clear();
            self.end(share.slot, Ending::Failed(failure.again()));
        }
    }

    /// Feeds every share, then hands out the logits of the rows that their requests want.
    fn compute(&mut self, shares: &[Share], drafting: Duration, alone: bool) -> Result<()> {
        let mut clock = Clock::start();
        let mut feeds = Vec::with_capacity(shares.len());
        let mut rest = shares.iter().peekable();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Some(share) = rest.next_if(|share| share.slot == number) else { continue };
            let (Some(sequence), Some(work)) = (&mut slot.sequence, &slot.work) else { continue };
            slot.served = self.steps;
            feeds.push(Feed { ids: work.next(sequence.len(), share.rows), sequence });
        }
        self.model.forward(&mut feeds)?;
        let verifying = clock.lap();

        let mut wanted = Vec::new();
        let mut first = 0;
        for share in shares {
            first += share.rows;
            let held = self.slots[share.slot].held();
            let Some(work) = &mut self.slots[share.slot].work else { continue };
            let (rows, verdict) = work.stepped(held, share.rows);
            wanted.extend((first - rows..first).map(|row| (share.slot, row)));
            let keeps = work.keeps(held);
            if keeps {
                self.mark(share.slot);
            }
            self.obey(share.slot, verdict);
        }
        wanted.chunks(LOGIT_ROWS).for_each(|block| self.take_logits(block));
        self.end_rounds(shares, [drafting, verifying, clock.lap()], alone);
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
        self.take_back(slot);
        let Some(work) = self.slots[slot].work.take() else { return };
        self.starved = false;
        let kept = work.is_kept();
        // What gave a wrong number once would give it to whoever goes on from there.
        let sound = !matches!(&ending, Ending::Failed(error) if !matches!(error, Error::InsufficientMemory(_)));
        self.leave(work, true, ending);
        if !sound {
            self.slots[slot].clear();
        } else if kept {
            self.keep(slot);
        }
    }

    /// Keeps what a request leaves behind.
    fn keep(&mut self, slot: usize) {
        self.mark(slot);
        if self.sessions.is_some()
            && let Some((session, sessions)) = self.put_aside(slot).zip(self.sessions.as_ref())
        {
            sessions.keep(session);
        }
    }

    fn leave(&self, work: Work, ran: bool, ending: Ending) {
        // First the books, then the last word: whoever hears it may ask again at once.
        self.board.left(ran, work.outcome(&ending), &work.receipts(), work.submitted().elapsed());
        work.finish(ending, &self.memory);
    }
}
