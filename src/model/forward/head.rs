//! The MTP head (spec 4): one more QSA layer that follows the trunk and guesses the token after the next.
//!
//! Owns: which hidden rows the head runs on, and when: on a long step's own rows at once, on a short step's later, out
//! of the ring that the sequence keeps; the chain of drafts.
//! Always true: a final row of the head's cache was computed from the trunk's hidden row; what drafting writes behind
//! them is never read by a row that is final. The step a device would capture takes positions and rows as data.
//! Not here: which rows are final (`state::head`), how drafts are chosen and verified (`engine::speculate`).

use std::ops::Range;

use super::{Model, Stream, check_ids, experts, head, qsa};
use crate::backend::{Backend, Program};
use crate::error::{Error, Result};
use crate::model::{Draft, Feed, LOGIT_ROWS};
use crate::state::Sequence;
use crate::state::head::HIDDEN_ROWS;

/// The most rows of the head's step: a longer one of the trunk is followed in pieces, so that the head's streams take a
/// fraction of the trunk's memory.
const MOST_ROWS: usize = 512;

/// Rows of the head's step where the trunk's has up to `max_rows`.
pub(super) fn most_rows(max_rows: usize) -> usize {
    max_rows.min(MOST_ROWS)
}

/// The head's last step.
#[derive(Default)]
pub(super) struct LastStep {
    /// Position of every row.
    pub(super) positions: Vec<u32>,
    /// The last row of each sequence.
    ends: Vec<usize>,
    /// The rows that its hidden states came from.
    sources: Vec<usize>,
    /// Next tokens of one sequence's rows, while a step is put together.
    ids: Vec<u32>,
    /// A row of logits of the draft vocabulary, while rows are spread.
    logits: Vec<f32>,
}

/// Where the hidden rows of a step come from.
enum Source {
    /// Rows of the trunk's last step.
    Trunk(Range<usize>),
    /// The sequences' rings.
    Kept,
    /// The last row of each sequence in the head's own last step.
    Chain,
}

/// Whether a feed has more rows than the ring keeps, so that the head must run on them within the step.
pub(super) fn is_long(feed: &Feed<'_>) -> bool {
    feed.sequence.head().follows() && feed.ids.len() + feed.sequence.len().min(1) > HIDDEN_ROWS
}

impl<B: Backend> Model<B> {
    /// Before a step: runs the head where the step would push hidden rows out of the ring that it still needs.
    pub(super) fn catch_up(&mut self, feeds: &mut [Feed<'_>]) -> Result<()> {
        for feed in feeds {
            let (sequence, next) = (&mut *feed.sequence, feed.ids[0]);
            let len = sequence.len();
            if !sequence.head().is_full(len, feed.ids.len()) {
                continue;
            }
            let missing = sequence.head().missing(len, next);
            if !missing.is_empty() {
                self.rows.clear();
                self.push_missing(sequence, missing, next);
                self.head_step(Source::Kept, &mut [&mut *sequence])?;
            }
            if len > 0 {
                sequence.promise(next);
            }
        }
        Ok(())
    }

    /// After a step: runs the head on the rows of long feeds, all but the last, whose next token is not known yet.
    pub(super) fn follow(&mut self, feeds: &mut [Feed<'_>]) -> Result<()> {
        let (mut first, most) = (0, most_rows(self.max_rows));
        for feed in feeds {
            if is_long(feed) {
                let (mut row, mut position) = (first, feed.sequence.len());
                for ids in feed.ids[1..].chunks(most) {
                    self.rows.clear();
                    self.rows.push(position, ids);
                    self.head_step(Source::Trunk(row..row + ids.len()), &mut [&mut *feed.sequence])?;
                    row += ids.len();
                    position += ids.len();
                }
            }
            first += feed.ids.len();
        }
        Ok(())
    }

    /// See [`crate::model::LanguageModel::draft_first`].
    pub(super) fn first_drafts(&mut self, drafts: &mut [Draft<'_>]) -> Result<()> {
        self.check_drafts(drafts)?;
        let rows: usize = drafts.iter().map(|d| d.sequence.len() - d.sequence.head().rows()).sum();
        let most = most_rows(self.max_rows);
        if rows > most {
            return Err(Error::invalid(format!(
                "the MTP head would have to read {rows} rows at once and its step takes {most}: draft for fewer sequences"
            )));
        }
        // The rows of the trunk's step make room for those of the rings.
        self.trunk_positions.clear();
        self.rows.clear();
        for draft in drafts.iter() {
            let missing = draft.sequence.head().rows()..draft.sequence.len();
            self.push_missing(draft.sequence, missing, draft.next);
        }
        let mut sequences: Vec<&mut Sequence> = drafts.iter_mut().map(|draft| &mut *draft.sequence).collect();
        self.head_step(Source::Kept, &mut sequences)?;
        drafts.iter_mut().for_each(|draft| draft.sequence.promise(draft.next));
        Ok(())
    }

    /// See [`crate::model::LanguageModel::draft_next`].
    pub(super) fn next_drafts(&mut self, drafts: &mut [Draft<'_>]) -> Result<()> {
        self.check_drafts(drafts)?;
        if drafts.len() > self.head.ends.len() {
            return Err(Error::invalid(format!(
                "{} chains of drafts go on and only {} were begun",
                drafts.len(),
                self.head.ends.len()
            )));
        }
        for (draft, &end) in drafts.iter_mut().zip(&self.head.ends) {
            draft.sequence.ensure(self.head.positions[end] as usize + 2)?;
        }
        self.rows.clear();
        for (draft, &end) in drafts.iter().zip(&self.head.ends) {
            self.rows.push(self.head.positions[end] as usize + 1, &[draft.next]);
        }
        let mut sequences: Vec<&mut Sequence> = drafts.iter_mut().map(|draft| &mut *draft.sequence).collect();
        self.head_step(Source::Chain, &mut sequences)
    }

    /// See [`crate::model::LanguageModel::draft_logits`].
    pub(super) fn logits_of_drafts(&mut self, drafts: &[usize]) -> Result<&[f32]> {
        let mut rows = [0; LOGIT_ROWS];
        let ends = &self.head.ends;
        if drafts.len() > rows.len() || drafts.iter().any(|&draft| draft >= ends.len()) {
            return Err(Error::invalid(format!(
                "logits are kept for up to {LOGIT_ROWS} of the MTP head's last {} drafts",
                ends.len()
            )));
        }
        rows.iter_mut().zip(drafts).for_each(|(row, &draft)| *row = ends[draft]);
        self.head_rows(&rows[..drafts.len()], true)
    }

    /// Logits `[rows.len(), vocab]` of rows of the head's last step, at most [`LOGIT_ROWS`] of them, over the whole
    /// vocabulary.
    ///
    /// # Errors
    /// `Invalid` for rows that the step did not have, `Numeric` for a NaN.
    pub fn head_logits(&mut self, rows: &[usize]) -> Result<&[f32]> {
        self.head_rows(rows, false)
    }

    /// With `reduced`, an id outside the draft vocabulary has a logit of minus infinity: it is never drafted, which
    /// changes no law of the output.
    fn head_rows(&mut self, rows: &[usize], reduced: bool) -> Result<&[f32]> {
        super::check_logit_rows(rows, &self.head.positions)?;
        let Model { weights, backend, buffers: b, shape, .. } = self;
        let Some(mtp) = &weights.mtp else { return Err(no_head()) };
        let part = mtp.vocabulary.as_ref().filter(|_| reduced);
        let (program, matrix) = match part {
            Some(part) => (Program::DraftLogits, &part.head),
            None => (Program::MtpLogits, &weights.head),
        };
        backend.choose(rows)?;
        backend.run(program, &mut |backend| {
            let Some(wide) = &b.mtp_wide else { return Err(no_head()) };
            backend.gather(wide, shape.wide(), &mut b.chosen)?;
            head(backend, &mtp.mixer, matrix, rows.len(), shape.hidden, b)
        })?;
        let Some(part) = part else {
            let vocab = self.shape.vocab;
            return self.read_logits(rows, Stream::Mtp, vocab);
        };
        let count = part.ids.len();
        self.read_logits(rows, Stream::Mtp, count)?;
        self.spread(rows.len());
        Ok(&self.host.logits[..rows.len() * self.shape.vocab])
    }

    /// Takes rows of logits of the draft vocabulary apart into rows of the whole one, the last row first, since they
    /// share their memory.
    fn spread(&mut self, rows: usize) {
        let Some(part) = self.weights.mtp.as_ref().and_then(|mtp| mtp.vocabulary.as_ref()) else { return };
        let (vocab, count) = (self.shape.vocab, part.ids.len());
        for row in (0..rows).rev() {
            self.head.logits.clear();
            self.head.logits.extend_from_slice(&self.host.logits[row * count..(row + 1) * count]);
            let whole = &mut self.host.logits[row * vocab..(row + 1) * vocab];
            whole.fill(f32::NEG_INFINITY);
            for (&id, &logit) in part.ids.iter().zip(&self.head.logits) {
                whole[id as usize] = logit;
            }
        }
    }

    fn check_drafts(&self, drafts: &[Draft<'_>]) -> Result<()> {
        if self.weights.mtp.is_none() || self.layout.mtp_caches == 0 {
            return Err(no_head());
        }
        if drafts.is_empty() || drafts.len() > LOGIT_ROWS {
            return Err(Error::invalid(format!(
                "drafts are made for 1 to {LOGIT_ROWS} sequences at a time; asked for {}",
                drafts.len()
            )));
        }
        for draft in drafts {
            draft.sequence.check()?;
            check_ids(&[draft.next], self.shape.vocab)?;
            if !draft.sequence.head().follows() || draft.sequence.is_empty() {
                return Err(Error::invalid("the MTP head does not follow this sequence: it cannot draft for it"));
            }
        }
        Ok(())
    }

    /// Adds a sequence's rows `missing`, each with the token behind it; behind the last one comes `next`.
    fn push_missing(&mut self, sequence: &Sequence, missing: Range<usize>, next: u32) {
        let ids = &mut self.head.ids;
        ids.clear();
        ids.extend_from_slice(&sequence.ids()[missing.start + 1..]);
        ids.push(next);
        self.rows.push(missing.start, ids);
    }

    /// Runs the head's layer on `self.rows`.
    fn head_step(&mut self, source: Source, sequences: &mut [&mut Sequence]) -> Result<()> {
        let (cache, count) = (self.layout.trunk_caches, self.rows.len());
        let Model { weights, backend, buffers: b, rows, shape, head: last, .. } = self;
        let Some(mtp) = &weights.mtp else { return Err(no_head()) };
        backend.begin(rows, sequences)?;
        last.sources.clear();
        let program = match &source {
            Source::Trunk(range) => {
                last.sources.extend(range.clone());
                Program::Mtp
            }
            Source::Kept => {
                last.sources.extend(0..count);
                Program::MtpKept
            }
            Source::Chain => {
                last.sources.extend_from_slice(&last.ends[..count]);
                Program::MtpChain
            }
        };
        backend.choose(&last.sources)?;
        last.positions.clone_from(&rows.positions);
        last.ends.clear();
        last.ends.extend(rows.segments.iter().map(|segment| segment.first + segment.rows - 1));
        backend.run(program, &mut |backend| {
            backend.enter(format_args!("mtp"));
            if matches!(source, Source::Kept) {
                backend.load_hidden(sequences, &mut b.wide)?;
            }
            let Some(wide) = &mut b.mtp_wide else { return Err(no_head()) };
            // A chain goes on from the head's own rows.
            let trunk = (!matches!(source, Source::Chain)).then_some(&b.wide);
            backend.mtp_fuse(&mtp.fuse, &weights.embedding, trunk, wide)?;
            backend.observe("fused", wide, count, shape.wide());
            backend.hyper_read(&mtp.layer.mixer_hyper, count, wide, &mut b.x, &mut b.inject)?;
            qsa(backend, &mtp.layer, cache, sequences, b)?;
            experts(backend, &mtp.layer, None, count, shape, b, Stream::Mtp)?;
            if let Some(wide) = &b.mtp_wide {
                backend.observe("wide", wide, count, shape.wide());
            }
            Ok(())
        })
    }
}

fn no_head() -> Error {
    Error::invalid("this model was loaded without its MTP head")
}
