//! A request, its events, and what it took.
//!
//! Owns: the values that pass between the engine and whoever asks it.
//! Always true: the events of a request end with exactly one `Done` or `Failed`.
//! Not here: who runs a request (`worker`), text (`text_stream`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::MemoryUse;
use super::constrain::Constraint;
use super::logits::Ranked;
use super::sampler::SamplingParams;
use super::speculate::Receipts;
use crate::error::Error;

/// A flag that stops a request within one step, shared with whoever may want to (a signal handler, a connection).
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Over a flag that something else sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Cancel {
        Cancel(flag)
    }
    /// Asks to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What to generate.
#[derive(Debug, Clone)]
pub struct Request {
    /// The prompt: at least one id, fewer than the context holds.
    pub ids: Vec<u32>,
    /// The most tokens to generate; `None` is as many as the context holds.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub params: SamplingParams,
    /// Ids that end the answer; they are not part of it.
    pub stop_ids: Vec<u32>,
    /// With `Some(n)`, every token comes with its log-probability and the `n` most likely ids, by the model alone
    /// (before penalties, temperature and filters).
    pub logprobs: Option<usize>,
    /// The form that the answer must have; `None` leaves it free.
    pub constraint: Option<Constraint>,
    /// Stops the request from outside.
    pub cancel: Cancel,
}

/// What happens while a request runs.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // the large one comes once a request
pub enum Event {
    /// The prompt is being read. The first one has `done` at the tokens that need no reading, the last one
    /// `done == total`.
    Prefill {
        /// Prompt tokens read.
        done: usize,
        /// Prompt tokens.
        total: usize,
    },
    /// One more token.
    Token(Token),
    /// The end. Nothing follows.
    Done(Done),
    /// The end, by an error. Nothing follows.
    Failed(Error),
}

/// A generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Natural log of its probability, if asked for.
    pub logprob: Option<f32>,
    /// The most likely ids with theirs, if asked for.
    pub top: Vec<Ranked>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model produced a stop id.
    Stop,
    /// `max_tokens` or the context was reached.
    Length,
    /// The text reached a stop string (decided above the engine).
    StopString,
    /// Somebody cancelled.
    Cancelled,
}

impl StopReason {
    /// The word that outputs use.
    pub fn name(self) -> &'static str {
        match self {
            StopReason::Stop => "stop",
            StopReason::Length => "length",
            StopReason::StopString => "stop_string",
            StopReason::Cancelled => "cancelled",
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Why.
    pub reason: StopReason,
    /// What it took.
    pub usage: Usage,
    /// What the model held at the end, the request's own state included.
    pub memory: MemoryUse,
}

/// Counts and times of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: usize,
    /// Prompt tokens that were known from an earlier request and not read again.
    pub cached: usize,
    /// Tokens of the answer, without a stop id.
    pub generated: usize,
    /// Steps after the prompt.
    pub steps: usize,
    /// From submission until the model began.
    pub queued: Duration,
    /// Reading the prompt.
    pub prefill: Duration,
    /// From submission to the first token; zero without one.
    pub first_token: Duration,
    /// From the end of the prompt to the end.
    pub decode: Duration,
    /// What drafts came to.
    pub speculation: Receipts,
}

impl Usage {
    /// Prompt tokens read a second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt - self.cached, self.prefill)
    }
    /// Tokens a second that steps gave: one each, and the drafts that were accepted. The first token needs no step: its
    /// logits come with the prompt.
    pub fn decode_rate(&self) -> f64 {
        rate(self.steps + self.speculation.total_accepted() as usize, self.decode)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
