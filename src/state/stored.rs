//! A sequence put aside: its rows in host memory, cut into segments that several of them share, and the moments it can
//! be taken up again at.
//!
//! Owns: the copy out of a sequence and back into one.
//! Always true: every moment lies within the stored rows; a segment never changes once it exists, so whoever has the
//! same tokens before and in it holds the same one.
//! Not here: which sequences are kept (`engine`), files (`state::file`).

use std::ops::Range;
use std::sync::Arc;

use super::{Sequence, Snapshot};
use crate::error::{Error, Result};

/// Tokens of a segment, before rounding up to whole blocks: large enough that a copy runs at the memory's speed, small
/// enough that two conversations share most of what they have in common.
const SEGMENT_TOKENS: usize = 256;

/// See the head.
#[derive(Clone)]
pub struct Stored {
    pub(super) ids: Vec<u32>,
    /// Tokens of a whole segment.
    pub(super) stride: usize,
    /// Rows of every cache for `stride` tokens, the last for what is left.
    pub(super) segments: Vec<Arc<Vec<u8>>>,
    /// Ascending in length; the last is as long as `ids`.
    pub(super) moments: Vec<Arc<Snapshot>>,
}

impl Stored {
    /// Copies `sequence` up to the last of `moments`, which are its own and ascend; what `like` has in common with it
    /// is shared. `None`, if there is no moment to come back to.
    ///
    /// # Errors
    /// `Device`.
    pub fn of(sequence: &Sequence, moments: &[Arc<Snapshot>], like: Option<&Stored>) -> Result<Option<Stored>> {
        let Some(ids) = moments.last().map(|moment| moment.ids().to_vec()) else { return Ok(None) };
        let stride = SEGMENT_TOKENS.next_multiple_of(sequence.layout.kv.ratio());
        let shared = like.filter(|like| like.stride == stride);
        let same = shared.map_or(0, |like| like.final_rows(common(&like.ids, &ids)));
        let segments = spans(ids.len(), stride).enumerate().map(|(at, span)| {
            let shared = shared.filter(|_| span.end <= same && span.len() == stride);
            match shared.and_then(|like| like.segments.get(at)) {
                Some(segment) => Ok(segment.clone()),
                None => {
                    let mut bytes = Vec::with_capacity(span.len() * sequence.layout.kv.bytes_per_token());
                    sequence.kv.iter().try_for_each(|cache| cache.copy_out(span.clone(), &mut bytes))?;
                    Ok(Arc::new(bytes))
                }
            }
        });
        let segments = segments.collect::<Result<_>>()?;
        Ok(Some(Stored { segments, stride, moments: moments.to_vec(), ids }))
    }

    /// Bytes that [`Stored::of`] would hold, those that it shares included.
    pub fn bytes_of(sequence: &Sequence, moments: &[Arc<Snapshot>]) -> usize {
        let tokens = moments.last().map_or(0, |moment| moment.ids().len());
        let moments: usize = moments.iter().map(|moment| moment.bytes()).sum();
        tokens * sequence.kv.len() * sequence.layout.kv.bytes_per_token() + moments
    }

    /// Rows that whoever begins with the same `tokens` tokens has in every cache: where an MTP head follows, its row
    /// needs the token behind, and those it had not written yet are nothing.
    fn final_rows(&self, tokens: usize) -> usize {
        match self.moments.last().map(|moment| moment.head) {
            Some(head) if head.follows() => tokens.saturating_sub(1).min(head.rows()),
            _ => tokens,
        }
    }

    /// Its tokens.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
    /// The moments it can be taken up at, ascending in length.
    pub fn moments(&self) -> &[Arc<Snapshot>] {
        &self.moments
    }
    /// Every piece of memory it holds, with its address (equal for what is shared) and bytes.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        let segments = self.segments.iter().map(|segment| (Arc::as_ptr(segment) as usize, segment.len()));
        segments.chain(self.moments.iter().map(|moment| (Arc::as_ptr(moment) as usize, moment.bytes())))
    }
}

/// Number of tokens that two sequences begin with alike.
pub fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn spans(tokens: usize, stride: usize) -> impl Iterator<Item = Range<usize>> {
    (0..tokens).step_by(stride).map(move |first| first..tokens.min(first + stride))
}

impl Sequence {
    /// Becomes `stored` at one of its moments.
    ///
    /// # Errors
    /// `InsufficientMemory`, or `Invalid` for a moment that is not one of its; the sequence is empty then.
    pub fn take_up(&mut self, stored: &Stored, moment: &Snapshot) -> Result<()> {
        self.begin_at(moment, stored.ids())?;
        let taken = self.copy_rows(stored, moment.ids().len()).and_then(|()| self.end_at(moment));
        self.or_empty(taken)
    }

    fn copy_rows(&mut self, stored: &Stored, tokens: usize) -> Result<()> {
        for (span, bytes) in spans(stored.ids.len(), stored.stride).zip(&stored.segments) {
            if span.start >= tokens {
                break;
            }
            let mut rest = bytes.as_slice();
            for cache in &mut self.kv {
                rest = cache.copy_in(span.clone(), tokens, rest)?;
            }
        }
        Ok(())
    }

    /// Becomes another sequence of the same model at one of that one's moments.
    ///
    /// # Errors
    /// As [`Sequence::take_up`].
    pub fn take_after(&mut self, other: &Sequence, moment: &Snapshot) -> Result<()> {
        self.begin_at(moment, other.ids())?;
        let mut pairs = self.kv.iter_mut().zip(&other.kv);
        let copied = pairs.try_for_each(|(to, from)| to.copy_from(from, moment.ids().len()));
        let taken = copied.and_then(|()| self.end_at(moment));
        self.or_empty(taken)
    }

    /// Empties the sequence if it could not be taken over.
    fn or_empty(&mut self, taken: Result<()>) -> Result<()> {
        match taken {
            Ok(()) => Ok(()),
            Err(error) => self.reset().and(Err(error)),
        }
    }

    fn begin_at(&mut self, moment: &Snapshot, ids: &[u32]) -> Result<()> {
        self.reset()?;
        if !ids.starts_with(moment.ids()) {
            return Err(Error::invalid("the moment belongs to another sequence"));
        }
        self.ensure(moment.ids().len())
    }

    fn end_at(&mut self, moment: &Snapshot) -> Result<()> {
        self.ids.extend_from_slice(moment.ids());
        self.restore(moment)
    }
}
