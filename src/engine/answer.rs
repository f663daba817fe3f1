//! One answer while it is generated: what is sampled from a row of logits, and when it ends.
//!
//! Owns: the request, its sampler, its drafts, its events and its usage.
//! Always true: an id that was taken is either the end or the last of `ids`, where the next step finds it; drafts stand
//! behind it from their choice until the step that feeds them has run.
//! Not here: the steps (`worker`), how an id is chosen (`sampler`), whether a draft is good (`speculate`).

use std::sync::mpsc::Sender;
use std::time::Instant;

use super::MemoryProbe;
use super::constrain::Constrained;
use super::logits::LogSoftmax;
use super::request::{Cancel, Done, Event, Request, StopReason, Token, Usage};
use super::sampler::Sampler;
use super::speculate::{Judged, Lane, Receipts, Speculation, Speculator};
use super::work::{Ending, Verdict};
use crate::error::Result;
use crate::state::Sequence;

/// An answer in a slot.
pub(super) struct Answer {
    request: Request,
    events: Sender<Event>,
    /// Set by the stream's holder, or by its end.
    stop: Cancel,
    sampler: Sampler,
    constrained: Option<Constrained>,
    speculator: Speculator,
    /// Nothing more is wanted of the rows of the last step.
    over: bool,
    /// Tokens in the state that are the prompt's or the answer's; what the state holds beyond them is to be taken back.
    kept: usize,
    /// The most tokens it may get.
    limit: usize,
    submitted: Instant,
    started: Instant,
    read: Option<Instant>,
    usage: Usage,
}

/// A token that was drawn.
struct Drawn {
    id: u32,
    /// It was a draft: the state has it, and the next row is wanted.
    goes_on: bool,
    /// The grammar allows nothing behind it.
    ended: bool,
}

impl Answer {
    /// An answer to a checked request, whose grammar was compiled.
    pub fn new(request: Request, constrained: Option<Constrained>, events: Sender<Event>, stop: Cancel) -> Answer {
        let usage = Usage { prompt: request.ids.len(), ..Usage::default() };
        let sampler = Sampler::new(request.params.clone(), &request.ids);
        let now = Instant::now();
        let (submitted, started) = (now, now);
        Answer {
            request,
            events,
            stop,
            sampler,
            constrained,
            speculator: Speculator::new(Speculation::default(), 0),
            over: false,
            kept: 0,
            limit: 0,
            submitted,
            started,
            read: None,
            usage,
        }
    }

    pub fn cancelled(&self) -> bool {
        self.request.cancel.is_cancelled() || self.stop.is_cancelled()
    }
    pub fn submitted(&self) -> Instant {
        self.submitted
    }
    pub fn generated(&self) -> usize {
        self.usage.generated
    }
    pub fn reads(&self) -> bool {
        self.read.is_none()
    }

    /// Tokens to keep of a state that holds `held`.
    pub fn kept(&self, held: usize) -> usize {
        if self.reads() { held } else { self.kept }
    }
    pub fn speculator(&mut self) -> &mut Speculator {
        &mut self.speculator
    }
    pub fn receipts(&self) -> &Receipts {
        self.speculator.receipts()
    }

    /// It has got a slot of a model that holds `context` tokens, and may draft by `speculator`; `cached` of the prompt
    /// need no reading.
    pub fn begin(&mut self, context: usize, cached: usize, speculator: Speculator) -> Verdict {
        self.speculator = speculator;
        let prompt = self.usage.prompt;
        self.started = Instant::now();
        self.usage.queued = self.started - self.submitted;
        self.limit = self.request.max_tokens.unwrap_or(usize::MAX).min(context - prompt);
        self.usage.cached = cached;
        self.say(Event::Prefill { done: cached, total: prompt })
    }

    /// What to draft for, if that is possible and pays; `ids` are all but `sequence`'s last one.
    pub fn lane<'a>(&'a mut self, ids: &[u32], sequence: &'a mut Sequence) -> Option<Lane<'a>> {
        let next = *ids.last().filter(|_| !self.reads() && sequence.len() + 1 == ids.len())?;
        if self.speculator.gave_up() {
            sequence.stop_following();
        }
        // The last token that may be generated is never fed.
        let room = self.limit.saturating_sub(self.usage.generated + 1);
        let depth = self.speculator.depth(room);
        let (speculator, sampler) = (&mut self.speculator, &mut self.sampler);
        (depth > 0 && sequence.head().follows()).then_some(Lane { sequence, speculator, sampler, next, depth })
    }

    /// `rows` more of its `ids` were fed, so that the state holds `held` now. Says of how many rows, counted from the
    /// last, the logits are wanted.
    pub fn stepped(&mut self, held: usize, rows: usize, ids: &mut Vec<u32>) -> (usize, Verdict) {
        self.kept = held;
        self.over = false;
        if !self.reads() {
            self.usage.steps += 1;
            // The drafts left `ids`: each comes back when it is judged as good.
            self.speculator.truncate(rows - 1);
            self.kept = held - self.speculator.drafts().len();
            ids.truncate(self.kept);
            return (rows, Verdict::Continue);
        }
        self.usage.prefill = self.started.elapsed();
        let verdict = self.say(Event::Prefill { done: held, total: self.usage.prompt });
        if held < self.usage.prompt || !matches!(verdict, Verdict::Continue) {
            return (0, verdict);
        }
        self.read = Some(Instant::now());
        match self.limit {
            0 => (0, Verdict::End(Ending::Finished(StopReason::Length))),
            _ => (1, verdict),
        }
    }

    /// Draws the next token from its row of `logits` `[vocab]` and appends it to `ids`. Rows behind a draft that was
    /// refused mean nothing.
    pub fn take(&mut self, logits: &[f32], ids: &mut Vec<u32>) -> Verdict {
        if self.over {
            return Verdict::Continue;
        }
        match self.draw(logits) {
            Ok(drawn) => self.give(drawn, logits, ids),
            Err(error) => Verdict::End(Ending::Failed(error)),
        }
    }

    fn draw(&mut self, logits: &[f32]) -> Result<Drawn> {
        let Some(constrained) = &mut self.constrained else {
            let Judged { id, goes_on } = self.speculator.judge(&mut self.sampler, logits)?;
            return Ok(Drawn { id, goes_on, ended: false });
        };
        // Drafts are chosen without the grammar: one that it forbids has no weight in the masked law.
        let masked = constrained.mask(logits, &self.request.stop_ids)?;
        let Judged { id, goes_on } = self.speculator.judge(&mut self.sampler, masked)?;
        let ended = !self.request.stop_ids.contains(&id) && constrained.take(id)?;
        Ok(Drawn { id, goes_on, ended })
    }

    fn give(&mut self, drawn: Drawn, logits: &[f32], ids: &mut Vec<u32>) -> Verdict {
        let Drawn { id, goes_on, ended } = drawn;
        self.over = !goes_on;
        self.usage.decode = self.read.map(|read| read.elapsed()).unwrap_or_default();
        if self.request.stop_ids.contains(&id) {
            return Verdict::End(Ending::Finished(StopReason::Stop));
        }
        let mut token = Token { id, logprob: None, top: Vec::new() };
        if let Some(count) = self.request.logprobs {
            let softmax = LogSoftmax::of(logits);
            token.logprob = Some(softmax.log_probability(logits[id as usize]));
            token.top = softmax.top(logits, count);
        }
        if self.usage.generated == 0 {
            self.usage.first_token = self.submitted.elapsed();
        }
        self.usage.generated += 1;
        self.kept += usize::from(goes_on);
        ids.push(id);
        match self.say(Event::Token(token)) {
            Verdict::Continue if ended => Verdict::End(Ending::Finished(StopReason::Stop)),
            Verdict::Continue if self.usage.generated == self.limit => {
                Verdict::End(Ending::Finished(StopReason::Length))
            }
            verdict => verdict,
        }
    }

    /// Sends the last event.
    pub fn finish(mut self, ending: Ending, memory: &MemoryProbe) {
        self.usage.speculation = *self.speculator.receipts();
        let last = match ending {
            Ending::Finished(reason) => Event::Done(Done { reason, usage: self.usage, memory: memory() }),
            Ending::Failed(error) => Event::Failed(error),
            Ending::Gone => return,
        };
        // A receiver that has just gone needs no last word.
        let _ = self.events.send(last);
    }

    fn say(&self, event: Event) -> Verdict {
        match self.events.send(event) {
            Ok(()) => Verdict::Continue,
            Err(_) => Verdict::End(Ending::Gone),
        }
    }
}
