//! The engine's thread: takes one job after another and runs it on the model.
//!
//! Owns: the order of steps of one request (prefill in chunks, then a token a step) and when to stop.
//! Always true: before every step it is asked whether anyone still wants the result; a failed job leaves the thread
//! ready for the next one.
//! Not here: checks of a request (`Engine::submit`), how a token is chosen (`sampler`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::time::Instant;

use super::logits::LogSoftmax;
use super::sampler::Sampler;
use super::score::{Row, ScoreOptions, score};
use super::timeline::Timeline;
use super::{Cancel, Done, Event, MemoryProbe, Options, Request, StopReason, Token, Usage};
use crate::error::{Error, Result};

/// Work for the thread.
pub(super) enum Job {
    /// Generate; the ids are known to be good.
    Generate { request: Request, events: Sender<Event>, stop: Cancel, submitted: Instant },
    /// Score; the ids are known to be good.
    Score { ids: Vec<u32>, options: ScoreOptions, rows: SyncSender<Result<Row>> },
}

/// The thread's state.
pub(super) struct Worker {
    timeline: Box<dyn Timeline>,
    chunk: usize,
    memory: MemoryProbe,
    stop: Cancel,
}

/// Why a request ended early without an error.
enum Halt {
    /// Somebody asked; the stream is told.
    Cancelled,
    /// Nobody listens any more.
    Dropped,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Failed(error)
    }
}

impl Worker {
    /// `stop` ends everything.
    pub(super) fn new(timeline: Box<dyn Timeline>, options: Options, stop: Cancel) -> Worker {
        let rows = timeline.max_rows().max(1);
        let chunk = if options.prefill_chunk == 0 { rows } else { options.prefill_chunk.min(rows) };
        Worker { timeline, chunk, memory: options.memory, stop }
    }

    /// Until every sender is gone.
    pub(super) fn run(mut self, jobs: Receiver<Job>) {
        if let Err(error) = self.timeline.adopt() {
            // What is wrong with the device is said again by the first job's own call.
            tracing::error!("the engine's thread cannot use the device: {error}");
        }
        for job in jobs {
            // A panic would be our bug. The job that met it fails, and the next one starts from a fresh sequence.
            let outcome = catch_unwind(AssertUnwindSafe(|| match job {
                Job::Generate { request, events, stop, submitted } => {
                    self.generate(&request, &events, &stop, submitted)
                }
                Job::Score { ids, options, rows } => self.score(&ids, &options, &rows),
            }));
            if outcome.is_err() {
                tracing::error!("a request met a bug in the engine; the message above says where");
            }
        }
    }

    fn generate(&mut self, request: &Request, events: &Sender<Event>, stop: &Cancel, submitted: Instant) {
        let mut usage = Usage { prompt: request.ids.len(), queued: submitted.elapsed(), ..Usage::default() };
        let reason = match self.answer(request, events, stop, submitted, &mut usage) {
            Ok(reason) => Ok(reason),
            Err(Halt::Cancelled) => Ok(StopReason::Cancelled),
            Err(Halt::Failed(error)) => Err(error),
            Err(Halt::Dropped) => return,
        };
        let last = match reason {
            Ok(reason) => Event::Done(Done { reason, usage, memory: (self.memory)() }),
            Err(error) => Event::Failed(error),
        };
        // A receiver that has just gone needs no last word.
        let _ = events.send(last);
    }

    fn answer(
        &mut self,
        request: &Request,
        events: &Sender<Event>,
        stop: &Cancel,
        submitted: Instant,
        usage: &mut Usage,
    ) -> Result<StopReason, Halt> {
        let say = |event| events.send(event).map_err(|_| Halt::Dropped);
        let wanted = || match [&request.cancel, stop, &self.stop].iter().any(|flag| flag.is_cancelled()) {
            true => Err(Halt::Cancelled),
            false => Ok(()),
        };
        let total = request.ids.len();
        let timeline = &mut self.timeline;
        let started = Instant::now();
        say(Event::Prefill { done: 0, total })?;
        wanted()?;
        timeline.restart()?;
        let mut done = 0;
        let mut row = 0;
        for ids in request.ids.chunks(self.chunk) {
            wanted()?;
            timeline.feed(ids)?;
            row = ids.len() - 1;
            done += ids.len();
            usage.prefill = started.elapsed();
            say(Event::Prefill { done, total })?;
        }

        let mut sampler = Sampler::new(request.params.clone(), &request.ids);
        let limit = request.max_tokens.unwrap_or(usize::MAX).min(timeline.max_sequence() - total);
        let decoding = Instant::now();
        while usage.generated < limit {
            wanted()?;
            let logits = timeline.logits(&[row])?;
            let id = sampler.sample(logits)?;
            usage.decode = decoding.elapsed();
            if request.stop_ids.contains(&id) {
                return Ok(StopReason::Stop);
            }
            let mut token = Token { id, logprob: None, top: Vec::new() };
            if let Some(count) = request.logprobs {
                let softmax = LogSoftmax::of(logits);
                token.logprob = Some(softmax.log_probability(logits[id as usize]));
                token.top = softmax.top(logits, count);
            }
            if usage.generated == 0 {
                usage.first_token = submitted.elapsed();
            }
            usage.generated += 1;
            say(Event::Token(token))?;
            if usage.generated < limit {
                wanted()?;
                timeline.feed(&[id])?;
                usage.steps += 1;
                row = 0;
            }
        }
        Ok(StopReason::Length)
    }

    fn score(&mut self, ids: &[u32], options: &ScoreOptions, rows: &SyncSender<Result<Row>>) {
        let chunk = if options.chunk == 0 { self.chunk } else { options.chunk.min(self.timeline.max_rows().max(1)) };
        let stop = |cancel: &Cancel| cancel.is_cancelled();
        let result = score(&mut *self.timeline, ids, chunk, options.top, &mut |row| {
            if stop(&self.stop) || stop(&options.cancel) {
                return Err(Error::Cancelled);
            }
            rows.send(Ok(row)).map_err(|_| Error::Cancelled)
        });
        if let Err(error) = result {
            // Whoever went away needs no answer.
            let _ = rows.send(Err(error));
        }
    }
}
