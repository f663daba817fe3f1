//! What the engine does now and has done, for whoever watches it: metrics, slots, health.
//!
//! Owns: the counters shared between the engine's thread and everybody else, and the count of requests inside.
//! Always true: reading them never waits for a step; totals only grow; a request is inside from its submission until its
//! last event.
//! Not here: who runs next (`scheduler`), memory (`MemoryProbe`), how a number is shown (`server`, `cli`).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::request::StopReason;
use super::scheduler::{Limits, admits, retry_after};
use super::speculate::Receipts;
use crate::error::{Error, Result};

/// A look at the engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Status {
    /// Requests that may run at a time.
    pub parallel: usize,
    /// Requests that may wait at a time.
    pub max_queue: usize,
    /// Requests that wait for a slot.
    pub waiting: usize,
    /// Requests that run.
    pub running: usize,
    /// How long the step that runs now has been running; `None` between steps. A watchdog looks at it.
    pub in_step: Option<Duration>,
    /// What is kept of earlier requests.
    pub cache: CacheStatus,
    /// One entry a slot.
    pub slots: Vec<SlotStatus>,
    /// Sums since the start.
    pub totals: Totals,
    /// What the drafts of all answers that have ended came to.
    pub speculation: Receipts,
}

/// What a slot does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Nothing.
    #[default]
    Idle,
    /// Reads a prompt.
    Reading,
    /// Generates.
    Answering,
    /// Scores a text.
    Scoring,
}

/// One slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SlotStatus {
    /// What it does.
    pub activity: Activity,
    /// Number of its request, in the order of submission from 1; of the last one, if it is idle; 0 before the first.
    pub request: u64,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the prompt that were known.
    pub cached: usize,
    /// Tokens of the answer so far.
    pub generated: usize,
    /// Tokens its state holds now, from this request or an earlier one.
    pub held: usize,
}

/// What is kept of earlier requests, beside the slots' own states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CacheStatus {
    /// Bytes it may take.
    pub limit: usize,
    /// Bytes it takes: sequences put aside, and the moments of the slots.
    pub bytes: usize,
    /// Sequences put aside.
    pub stored: usize,
    /// Sessions on the disk.
    pub on_disk: usize,
}

/// Sums since the engine started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Requests taken in.
    pub requests: u64,
    /// Requests turned away because the queue was full.
    pub refused: u64,
    /// Answers that ended at a stop id.
    pub stopped: u64,
    /// Answers that ended at a length.
    pub cut: u64,
    /// Requests that somebody cancelled, or whose listener went away.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Prompt tokens of all requests that began.
    pub prompt_tokens: u64,
    /// Prompt tokens that were known already.
    pub cached_tokens: u64,
    /// Answers whose prompt's beginning was known.
    pub prefix_hits: u64,
    /// Prompt tokens that were read.
    pub prefill_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Steps of the model.
    pub steps: u64,
    /// Rows of all steps; divided by `steps`, how full they were.
    pub rows: u64,
}

/// The shared side of the counters.
pub(super) struct Board {
    limits: Limits,
    inner: Mutex<Inner>,
}

struct Inner {
    status: Status,
    inside: usize,
    step_began: Option<Instant>,
    /// Running mean of how long a request stays, newest a quarter.
    typical: Duration,
}

impl Board {
    pub fn new(limits: Limits) -> Board {
        let status = Status {
            parallel: limits.parallel,
            max_queue: limits.queue,
            slots: vec![SlotStatus::default(); limits.parallel],
            ..Status::default()
        };
        Board { limits, inner: Mutex::new(Inner { status, inside: 0, step_began: None, typical: Duration::ZERO }) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every critical section is plain assignment, so a poisoned lock still guards consistent numbers.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `count` requests in, all or none, and numbers them from what is returned; or says that the engine is full.
    pub fn enter(&self, count: usize) -> Result<u64> {
        let mut inner = self.inner();
        if !admits(inner.inside, count, self.limits) {
            inner.status.totals.refused += count as u64;
            let Limits { parallel, queue, .. } = self.limits;
            return Err(Error::Busy { parallel, queue, retry: retry_after(parallel, inner.typical) });
        }
        inner.inside += count;
        inner.status.waiting += count;
        inner.status.totals.requests += count as u64;
        Ok(inner.status.totals.requests + 1 - count as u64)
    }

    /// A request of `prompt` tokens, `cached` of them known, has got a slot.
    pub fn began(&self, prompt: usize, cached: usize) {
        let mut inner = self.inner();
        inner.status.waiting -= 1;
        inner.status.running += 1;
        inner.status.totals.prompt_tokens += prompt as u64;
        inner.status.totals.cached_tokens += cached as u64;
        inner.status.totals.prefix_hits += u64::from(cached > 0);
    }

    /// A request has ended, and its drafts came to `receipts`; `ran` says whether it had a slot.
    pub fn left(&self, ran: bool, end: End, receipts: &Receipts, stayed: Duration) {
        let mut inner = self.inner();
        inner.status.speculation.add(receipts);
        inner.inside -= 1;
        match ran {
            true => inner.status.running -= 1,
            false => inner.status.waiting -= 1,
        }
        let totals = &mut inner.status.totals;
        match end {
            End::Answered(reason, _) => match reason {
                StopReason::Stop | StopReason::StopString => totals.stopped += 1,
                StopReason::Length => totals.cut += 1,
                StopReason::Cancelled => totals.cancelled += 1,
            },
            End::Gone(_) => totals.cancelled += 1,
            End::Failed(_) => totals.failed += 1,
        }
        let (End::Answered(_, generated) | End::Gone(generated) | End::Failed(generated)) = end;
        totals.generated_tokens += generated as u64;
        inner.typical = (inner.typical * 3 + stayed) / 4;
    }

    /// A step of `rows` rows begins, `read` of them of prompts.
    pub fn step_begins(&self, rows: usize, read: usize) {
        let mut inner = self.inner();
        inner.step_began = Some(Instant::now());
        inner.status.totals.steps += 1;
        inner.status.totals.rows += rows as u64;
        inner.status.totals.prefill_tokens += read as u64;
    }

    /// Between steps: how the slots stand.
    pub fn step_ended(&self, slots: impl Iterator<Item = SlotStatus>, cache: CacheStatus) {
        let mut inner = self.inner();
        inner.status.cache = cache;
        inner.step_began = None;
        inner.status.slots.clear();
        inner.status.slots.extend(slots);
    }

    /// A look at everything.
    pub fn status(&self) -> Status {
        let inner = self.inner();
        Status { in_step: inner.step_began.map(|began| began.elapsed()), ..inner.status.clone() }
    }
}

/// How a request left, after so many generated tokens.
pub(super) enum End {
    /// With its `Done`.
    Answered(StopReason, usize),
    /// Nobody listened any more.
    Gone(usize),
    /// With its `Failed`.
    Failed(usize),
}
