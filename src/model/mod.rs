//! The model: one readable tape over the operations of a backend.
//!
//! Owns: config.json → `Shape`, checkpoint names → typed weights, the order of operations in a forward pass.
//! Always true: the same tape runs on every backend.
//! Not here: arithmetic (`backend`), text (`text`), scheduling and sampling (`engine`).

pub mod bind;
pub mod config;
pub mod config_gguf;
pub mod forward;
pub mod load;
pub mod names;
pub mod quantize;

use crate::config::Shape;
use crate::error::Result;
use crate::state::Sequence;

pub use crate::backend::LOGIT_ROWS;

/// Tokens to feed to one sequence in a step.
pub struct Feed<'a> {
    /// The state to extend.
    pub sequence: &'a mut Sequence,
    /// At least one id, each below the vocabulary size.
    pub ids: &'a [u32],
}

/// A loaded model, whatever runs it.
pub trait LanguageModel: Send {
    /// The checked shape.
    fn shape(&self) -> &Shape;
    /// The most rows (all feeds together) that one step may have.
    fn max_rows(&self) -> usize;
    /// The most tokens that a sequence may hold.
    fn max_sequence(&self) -> usize;
    /// Moves to the calling thread, which makes all calls from now on.
    fn adopt(&mut self) -> Result<()> {
        Ok(())
    }
    /// An empty sequence. Fails with `InsufficientMemory` if its state does not fit.
    fn new_sequence(&mut self) -> Result<Sequence>;
    /// Runs one step: rows of several sequences, in the order given. On an error no sequence has changed its length.
    fn forward(&mut self, feeds: &mut [Feed<'_>]) -> Result<()>;
    /// Logits `[rows.len(), vocab]` of rows of the last step (counted over all feeds), at most [`LOGIT_ROWS`] of them.
    /// A NaN is an error that names the position.
    fn logits(&mut self, rows: &[usize]) -> Result<&[f32]>;
}
