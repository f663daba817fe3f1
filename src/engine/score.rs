//! Scoring: the log-probability of every token given those before it.
//!
//! Owns: which rows are asked for, and the sums.
//! Always true: position 0 has no log-probability; a token's number does not depend on the chunk size.
//! Not here: text and output (`cli::score`).

use super::Cancel;
use super::logits::{LogSoftmax, Ranked};
use super::timeline::Timeline;
use crate::error::{Error, Result};
use crate::model::LOGIT_ROWS;

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

/// Feeds `ids` in chunks and hands every row to `on_row` in order.
pub(super) fn score(
    timeline: &mut dyn Timeline,
    ids: &[u32],
    chunk: usize,
    top: usize,
    on_row: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<()> {
    let vocab = timeline.vocab();
    timeline.restart()?;
    let Some(&first) = ids.first() else { return Ok(()) };
    on_row(Row { position: 0, id: first, logprob: None, top: Vec::new() })?;
    // The last token predicts nothing that is asked for.
    let inputs = &ids[..ids.len() - 1];
    let mut position = 1;
    for fed in inputs.chunks(chunk) {
        timeline.feed(fed)?;
        let rows: Vec<usize> = (0..fed.len()).collect();
        for block in rows.chunks(LOGIT_ROWS) {
            let logits = timeline.logits(block)?;
            for row in logits.chunks_exact(vocab) {
                let id = ids[position];
                let softmax = LogSoftmax::of(row);
                let logprob = softmax.log_probability(row[id as usize]);
                if !logprob.is_finite() {
                    return Err(Error::Numeric(format!(
                        "token {position} (id {id}) has log-probability {logprob}: its logits are not finite"
                    )));
                }
                on_row(Row { position, id, logprob: Some(logprob), top: softmax.top(row, top) })?;
                position += 1;
            }
        }
    }
    Ok(())
}
