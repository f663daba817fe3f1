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

use crate::backend::KernelTime;
use crate::backend::dense::DensePasses;
use crate::config::Shape;
use crate::error::{Error, Result};
use crate::state::Sequence;

pub use crate::backend::LOGIT_ROWS;

/// Tokens to feed to one sequence in a step.
pub struct Feed<'a> {
    /// The state to extend.
    pub sequence: &'a mut Sequence,
    /// At least one id, each below the vocabulary size.
    pub ids: &'a [u32],
}

/// A sequence to draft for (spec 4.3).
pub struct Draft<'a> {
    /// Its head follows, and it is not empty.
    pub sequence: &'a mut Sequence,
    /// The token that comes next: chosen from the trunk's logits, or the draft before.
    pub next: u32,
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

    /// Bytes of a device's own memory that the model takes now; `None` on the host.
    fn device_bytes(&self) -> Option<u64> {
        None
    }
    /// Starts to time every kernel launch, or ends it; returns what was timed since it started.
    fn profile(&mut self, _on: bool) -> Result<Vec<KernelTime>> {
        Ok(Vec::new())
    }

    /// The most tokens that may be drafted for a step, so that the step can be taken back: 0 without an MTP head.
    fn max_drafts(&self) -> usize {
        0
    }
    /// How dense attention cuts a step of `rows` rows; `None`, if queries read a selection.
    fn dense_passes(&self, _rows: usize) -> Option<DensePasses> {
        None
    }
    /// Begins to draft: the MTP head reads what it has not read yet of each sequence, `next` included. Logits of the
    /// trunk's last step are gone after it; the sequences' tokens do not change.
    ///
    /// # Errors
    /// `Invalid` for a sequence without drafts, or for more than [`LOGIT_ROWS`] of them.
    fn draft_first(&mut self, _drafts: &mut [Draft<'_>]) -> Result<()> {
        Err(Error::invalid("this model does not draft"))
    }
    /// Goes on: each `next` is the draft that was chosen from the call before. The sequences are those of that call, in
    /// the same order; the last ones may be left out.
    fn draft_next(&mut self, _drafts: &mut [Draft<'_>]) -> Result<()> {
        Err(Error::invalid("this model does not draft"))
    }
    /// Logits `[drafts.len(), vocab]` for the next draft of sequences of the last call, named by their place in it.
    fn draft_logits(&mut self, _drafts: &[usize]) -> Result<&[f32]> {
        Err(Error::invalid("this model does not draft"))
    }
}
