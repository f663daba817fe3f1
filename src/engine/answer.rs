//! One answer while it is generated: what is sampled from a row of logits, and when it ends.
//!
//! Owns: the request, its sampler, its events and its usage.
//! Always true: an id that was taken is either the end or the last of `ids`, where the next step finds it.
//! Not here: the steps (`worker`), how an id is chosen (`sampler`).

use std::sync::mpsc::Sender;
use std::time::Instant;

use super::MemoryProbe;
use super::constrain::Constrained;
use super::logits::LogSoftmax;
use super::request::{Cancel, Done, Event, Request, StopReason, Token, Usage};
use super::sampler::Sampler;
use super::work::{Ending, Verdict};
use crate::error::Result;

/// An answer in a slot.
pub(super) struct Answer {
    request: Request,
    events: Sender<Event>,
    /// Set by the stream's holder, or by its end.
    stop: Cancel,
    sampler: Sampler,
    constrained: Option<Constrained>,
    /// The most tokens it may get.
    limit: usize,
    submitted: Instant,
    started: Instant,
    read: Option<Instant>,
    usage: Usage,
}

/// A token that was drawn, and whether the grammar allows nothing behind it.
struct Drawn {
    id: u32,
    ended: bool,
}

impl Answer {
    /// An answer to a checked request, whose grammar was compiled.
    pub fn new(request: Request, constrained: Option<Constrained>, events: Sender<Event>, stop: Cancel) -> Answer {
        let usage = Usage { prompt: request.ids.len(), ..Usage::default() };
        let sampler = Sampler::new(request.params.clone(), &request.ids);
        let now = Instant::now();
        let (submitted, started) = (now, now);
        Answer { request, events, stop, sampler, constrained, limit: 0, submitted, started, read: None, usage }
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

    /// It has got a slot of a model that holds `context` tokens; `cached` of the prompt need no reading.
    pub fn begin(&mut self, context: usize, cached: usize) -> Verdict {
        let prompt = self.usage.prompt;
        self.started = Instant::now();
        self.usage.queued = self.started - self.submitted;
        self.limit = self.request.max_tokens.unwrap_or(usize::MAX).min(context - prompt);
        self.usage.cached = cached;
        self.say(Event::Prefill { done: cached, total: prompt })
    }

    /// The first `held` of its tokens are in the state now. Says whether the row of the last one is wanted.
    pub fn stepped(&mut self, held: usize) -> (bool, Verdict) {
        if !self.reads() {
            self.usage.steps += 1;
            return (true, Verdict::Continue);
        }
        self.usage.prefill = self.started.elapsed();
        let verdict = self.say(Event::Prefill { done: held, total: self.usage.prompt });
        if held < self.usage.prompt || !matches!(verdict, Verdict::Continue) {
            return (false, verdict);
        }
        self.read = Some(Instant::now());
        match self.limit {
            0 => (false, Verdict::End(Ending::Finished(StopReason::Length))),
            _ => (true, verdict),
        }
    }

    /// Draws the next token from its row of `logits` `[vocab]` and appends it to `ids`.
    pub fn take(&mut self, logits: &[f32], ids: &mut Vec<u32>) -> Verdict {
        match self.draw(logits) {
            Ok(Drawn { id, ended }) => self.give(id, ended, logits, ids),
            Err(error) => Verdict::End(Ending::Failed(error)),
        }
    }

    fn draw(&mut self, logits: &[f32]) -> Result<Drawn> {
        let Some(constrained) = &mut self.constrained else {
            return Ok(Drawn { id: self.sampler.sample(logits)?, ended: false });
        };
        let id = self.sampler.sample(constrained.mask(logits, &self.request.stop_ids)?)?;
        let ended = !self.request.stop_ids.contains(&id) && constrained.take(id)?;
        Ok(Drawn { id, ended })
    }

    fn give(&mut self, id: u32, ended: bool, logits: &[f32], ids: &mut Vec<u32>) -> Verdict {
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
    pub fn finish(self, ending: Ending, memory: &MemoryProbe) {
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
