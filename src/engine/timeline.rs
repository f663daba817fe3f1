//! One mutable timeline of a model: what generation and scoring need of it.
//!
//! Owns: the pairing of a model with the sequence it extends.
//! Always true: `feed` takes at most `max_rows` ids; logits are asked of the last feed only.
//! Not here: batches of sequences, choice of chunks and tokens (`worker`, `score`).

use crate::error::{Error, Result};
use crate::model::{Feed, LanguageModel};
use crate::state::Sequence;

/// A model with one sequence. Tests put a scripted one in its place.
pub(super) trait Timeline: Send {
    /// Moves to the calling thread, which makes all calls from now on.
    fn adopt(&mut self) -> Result<()> {
        Ok(())
    }
    /// Ids are `0..vocab`.
    fn vocab(&self) -> usize;
    /// The most ids that one feed may have.
    fn max_rows(&self) -> usize;
    /// The most ids that the timeline may hold.
    fn max_sequence(&self) -> usize;
    /// Forgets everything that was fed.
    fn restart(&mut self) -> Result<()>;
    /// Extends the timeline.
    fn feed(&mut self, ids: &[u32]) -> Result<()>;
    /// Logits `[rows.len(), vocab]` of rows of the last feed.
    fn logits(&mut self, rows: &[usize]) -> Result<&[f32]>;
}

/// A real model's timeline.
pub(super) struct Single {
    model: Box<dyn LanguageModel>,
    sequence: Option<Sequence>,
}

impl Single {
    /// Without a sequence until `restart`.
    pub(super) fn new(model: Box<dyn LanguageModel>) -> Single {
        Single { model, sequence: None }
    }
}

impl Timeline for Single {
    fn adopt(&mut self) -> Result<()> {
        self.model.adopt()
    }
    fn vocab(&self) -> usize {
        self.model.shape().vocab
    }
    fn max_rows(&self) -> usize {
        self.model.max_rows()
    }
    fn max_sequence(&self) -> usize {
        self.model.max_sequence()
    }
    fn restart(&mut self) -> Result<()> {
        match &mut self.sequence {
            // Its addresses stay in use: a dropped sequence's would be retired.
            Some(sequence) => sequence.reset()?,
            None => self.sequence = Some(self.model.new_sequence()?),
        }
        Ok(())
    }
    fn feed(&mut self, ids: &[u32]) -> Result<()> {
        let Some(sequence) = &mut self.sequence else {
            return Err(Error::invalid("tokens were fed before a sequence was started"));
        };
        self.model.forward(&mut [Feed { sequence, ids }])
    }
    fn logits(&mut self, rows: &[usize]) -> Result<&[f32]> {
        self.model.logits(rows)
    }
}
