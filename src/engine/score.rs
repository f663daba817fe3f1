//! Scoring: the log-probability of every token given those before it.
//!
//! Owns: the rows of a score, and the sums.
//! Always true: position 0 has no log-probability; a token's number does not depend on the chunk size.
//! Not here: the steps (`worker`), text and output (`cli::score`).

use std::sync::mpsc::SyncSender;
use std::time::Instant;

use super::logits::{LogSoftmax, Ranked};
use super::request::{Cancel, StopReason};
use super::work::{Ending, Verdict};
use crate::error::{Error, Result};

/// How to score.
#[derive(Debug, Clone, Default)]
pub struct ScoreOptions {
    /// How many of the most likely ids each row lists.
    pub top: usize,
    /// Tokens a step takes; 0 is the engine's choice.
    pub chunk: usize,
    /// Stops the work from outside.
    pub cancel: Cancel,
}

/// One token's score.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Index of the token, from 0.
    pub position: usize,
    /// Its id.
    pub id: u32,
    /// Natural log of its probability given the tokens before it; `None` at position 0.
    pub logprob: Option<f32>,
    /// The most likely ids at this position, best first; empty at position 0.
    pub top: Vec<Ranked>,
}

/// Sums over a text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ScoreTotals {
    /// Tokens of the text.
    pub tokens: usize,
    /// Minus the sum of the log-probabilities, in nats.
    pub nll: f64,
}

impl ScoreTotals {
    pub(super) fn add(&mut self, row: &Row) {
        self.tokens += 1;
        self.nll -= row.logprob.map_or(0.0, f64::from);
    }
    /// e to the mean negative log-probability of the tokens that have one; `None` if there are none.
    pub fn perplexity(&self) -> Option<f64> {
        (self.tokens > 1).then(|| (self.nll / (self.tokens - 1) as f64).exp())
    }
}

/// A text while it is scored.
pub(super) struct Scoring {
    options: ScoreOptions,
    /// Bounded: a reader that is slower than the model must not pile up rows. A full one makes the engine wait, which
    /// is why scoring is for programs that score alone.
    rows: SyncSender<Result<Row>>,
    submitted: Instant,
    /// Position whose row comes next.
    position: usize,
}

impl Scoring {
    pub fn new(options: ScoreOptions, rows: SyncSender<Result<Row>>) -> Scoring {
        Scoring { options, rows, submitted: Instant::now(), position: 0 }
    }

    pub fn cancelled(&self) -> bool {
        self.options.cancel.is_cancelled()
    }
    pub fn submitted(&self) -> Instant {
        self.submitted
    }

    /// Tokens it takes of one step.
    pub fn chunk(&self) -> usize {
        if self.options.chunk == 0 { usize::MAX } else { self.options.chunk }
    }

    /// The first token has no predecessor.
    pub fn begin(&mut self, ids: &[u32]) -> Verdict {
        self.say(Row { position: 0, id: ids[0], logprob: None, top: Vec::new() }, ids.len())
    }

    /// `logits` `[vocab]` are those before the next position.
    pub fn take(&mut self, logits: &[f32], ids: &[u32]) -> Verdict {
        let (position, id) = (self.position, ids[self.position]);
        let softmax = LogSoftmax::of(logits);
        let logprob = softmax.log_probability(logits[id as usize]);
        if !logprob.is_finite() {
            return Verdict::End(Ending::Failed(Error::Numeric(format!(
                "token {position} (id {id}) has log-probability {logprob}: its logits are not finite"
            ))));
        }
        let top = softmax.top(logits, self.options.top);
        self.say(Row { position, id, logprob: Some(logprob), top }, ids.len())
    }

    fn say(&mut self, row: Row, total: usize) -> Verdict {
        self.position = row.position + 1;
        match self.rows.send(Ok(row)) {
            Err(_) => Verdict::End(Ending::Gone),
            Ok(()) if self.position == total => Verdict::End(Ending::Finished(StopReason::Length)),
            Ok(()) => Verdict::Continue,
        }
    }

    /// The rows end where the sender goes; an error is said before.
    pub fn finish(self, ending: Ending) {
        let error = match ending {
            Ending::Finished(StopReason::Cancelled) => Error::Cancelled,
            Ending::Failed(error) => error,
            Ending::Finished(_) | Ending::Gone => return,
        };
        // Whoever went away needs no answer.
        let _ = self.rows.send(Err(error));
    }
}
