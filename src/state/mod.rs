//! One sequence: everything a token leaves behind for the next one, moved, forked and rewound together (spec, section 3).
//!
//! Owns: token ids; keys, values and index keys of every QSA layer (`kv`); state of fixed size (`recurrent`); how far the
//! MTP head follows (`head`).
//! Always true: after a step every part describes the same tokens; the n-gram context is derived from the ids; a
//! rewind or a restore changes all parts or none; a step that fails leaves the sequence as it was, but for rows of the step
//! before it that could still be taken back; only one of more rows than can be (a chunk of a prompt) may tear it, and what
//! is torn refuses further work.
//! Not here: how a part is computed (`backend`).

pub mod file;
pub mod head;
pub mod kv;
pub mod recurrent;
pub mod stored;

use crate::arena::{Arena, Range, ensure_ahead, ensure_all};
use crate::config::{KvMode, Mixer, Shape};
use crate::error::{Error, Result};
use head::{HIDDEN_ROWS, Head};
use kv::{KvCache, KvLayout, PLANES};
use recurrent::{Pending, Recurrent, RecurrentLayout};

/// What a sequence of a model needs, before one exists: the memory plan counts with it.
#[derive(Debug, Clone)]
pub struct StateLayout {
    /// One token of one cache.
    pub kv: KvLayout,
    /// QSA layers of the trunk.
    pub trunk_caches: usize,
    /// QSA layers of the MTP head: 0 or 1.
    pub mtp_caches: usize,
    /// The state of fixed size.
    pub recurrent: RecurrentLayout,
    /// The most tokens a sequence has.
    pub max_sequence: usize,
}

impl StateLayout {
    /// Lays out the state of sequences of up to `max_sequence` tokens, whose last step of up to `rewind_rows` rows can
    /// be taken back.
    ///
    /// # Errors
    /// `Model`, if the KV mode does not fit the head geometry; `Invalid` for too many revocable rows.
    pub fn new(shape: &Shape, mode: KvMode, max_sequence: usize, rewind_rows: usize, mtp: bool) -> Result<StateLayout> {
        let kv = KvLayout::new(mode, shape.attention, shape.indexer)?;
        let mtp = mtp && shape.mtp_layers > 0;
        if mtp && rewind_rows >= HIDDEN_ROWS {
            return Err(Error::invalid(format!(
                "{rewind_rows} revocable rows were asked for, and with an MTP head at most {} can be",
                HIDDEN_ROWS - 1
            )));
        }
        Ok(StateLayout {
            kv,
            trunk_caches: shape.count(Mixer::Qsa),
            mtp_caches: usize::from(mtp),
            recurrent: RecurrentLayout::new(shape, rewind_rows, mtp),
            max_sequence,
        })
    }

    /// Bytes of keys, values and index keys of a sequence of `tokens` tokens.
    pub fn context_bytes(&self, tokens: usize) -> usize {
        let planes = PLANES.iter().map(|&plane| self.kv.rows(plane, tokens) * self.kv.row_bytes(plane));
        planes.sum::<usize>() * self.caches()
    }

    /// QSA caches of a sequence; the MTP head's is the last.
    pub fn caches(&self) -> usize {
        self.trunk_caches + self.mtp_caches
    }
}

/// One sequence's state.
pub struct Sequence {
    ids: Vec<u32>,
    head: Head,
    layout: StateLayout,
    arena: Arena,
    /// One a QSA layer of the trunk, then the MTP head's. Row t describes position t.
    pub kv: Vec<KvCache>,
    /// GDN and PLE state.
    pub recurrent: Recurrent,
}

/// A copy of what cannot be recomputed by cutting: restoring it takes a sequence back to the moment it was made.
/// Keys and values stay where they are, since later tokens never change them.
pub struct Snapshot {
    ids: Vec<u32>,
    head: Head,
    recurrent: Vec<f32>,
    pending: Pending,
}

impl Snapshot {
    /// Tokens the sequence had.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.recurrent.len() * size_of::<f32>() + self.ids.len() * size_of::<u32>()
    }
}

impl Sequence {
    /// An empty sequence; addresses for its largest size are reserved now.
    ///
    /// # Errors
    /// `InsufficientMemory`, if the state of fixed size does not fit.
    pub fn new(arena: &Arena, layout: &StateLayout) -> Result<Sequence> {
        let kv = (0..layout.caches())
            .map(|i| KvCache::new(arena, &format!("QSA cache {i}"), layout.kv, layout.max_sequence))
            .collect::<Result<_>>()?;
        let recurrent = Recurrent::new(arena, &layout.recurrent)?;
        Ok(Sequence {
            ids: Vec::new(),
            head: Head::new(layout.mtp_caches > 0),
            layout: layout.clone(),
            arena: arena.clone(),
            kv,
            recurrent,
        })
    }

    /// The tokens this state has seen, in order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
    /// Number of tokens seen.
    pub fn len(&self) -> usize {
        self.ids.len()
    }
    /// Whether nothing was fed yet.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
    /// Rows of the last step that are not folded into the recurrent matrices: the most that [`Sequence::rewind`] takes.
    pub fn pending(&self) -> usize {
        self.recurrent.revocable()
    }

    /// How far the MTP head follows.
    pub fn head(&self) -> &Head {
        &self.head
    }
    /// Gives drafting up until the next [`Sequence::reset`]: steps compute nothing for the MTP head any more.
    pub fn stop_following(&mut self) {
        self.head.stop();
    }
    /// Records that the head's rows up to the last token are computed, given that `next` is fed next.
    pub fn promise(&mut self, next: u32) {
        self.head.promise(self.ids.len(), next);
    }
    /// Records that all rows of the head below `rows` are computed.
    pub fn head_reached(&mut self, rows: usize) {
        self.head.reached(rows);
    }

    /// Refuses a sequence that a step has torn.
    ///
    /// # Errors
    /// `Invalid`, saying what helps.
    pub fn check(&self) -> Result<()> {
        match self.recurrent.is_torn() {
            false => Ok(()),
            true => Err(Error::invalid(
                "a long step failed inside this sequence, so its layers disagree: empty it or restore a snapshot",
            )),
        }
    }

    /// Makes room for `tokens` tokens in all caches.
    ///
    /// # Errors
    /// `ContextLength` past the planned size, `InsufficientMemory` if memory cannot be had; the contents stay as they are.
    pub fn ensure(&mut self, tokens: usize) -> Result<()> {
        if tokens > self.layout.max_sequence {
            return Err(Error::ContextLength { prompt: tokens, context: self.layout.max_sequence });
        }
        ensure_all(&mut self.growth(tokens)?)
    }

    /// What room for `tokens` tokens would grow, in all caches.
    fn growth(&mut self, tokens: usize) -> Result<Vec<(&mut Range, usize)>> {
        let mut growth = Vec::with_capacity(4 * self.kv.len());
        for cache in &mut self.kv {
            growth.extend(cache.growth(tokens)?);
        }
        Ok(growth)
    }

    /// Makes room for `rows` more tokens if there is memory for them, while the device still computes: so no later step waits
    /// for a mapping to work. What cannot be had now is asked for again by the step that needs it.
    pub fn ensure_ahead(&mut self, rows: usize) {
        let tokens = (self.ids.len() + rows).min(self.layout.max_sequence);
        if self.kv.iter().all(|cache| cache.has_room(tokens)) {
            return;
        }
        match self.growth(tokens).and_then(|mut growth| ensure_ahead(&mut growth)) {
            Ok(true) => {}
            Ok(false) => tracing::debug!(tokens, "no memory ahead of the next step"),
            Err(error) => tracing::warn!(tokens, "memory ahead of the next step cannot be had: {error}"),
        }
    }

    /// Records that a step has run: its tokens are part of the sequence now.
    pub fn advance(&mut self, ids: &[u32]) {
        if let Some(&next) = ids.first() {
            self.head.advance(self.ids.len(), next);
        }
        self.ids.extend_from_slice(ids);
        self.recurrent.settle(if ids.len() <= self.layout.recurrent.rewind_rows { ids.len() } else { 0 });
    }

    /// Takes the last `rows` tokens back.
    ///
    /// # Errors
    /// `Invalid`, if they are not all of the last step, or the step had more rows than stay revocable, or failed; nothing
    /// changes.
    pub fn rewind(&mut self, rows: usize) -> Result<()> {
        self.check()?;
        let pending = self.pending();
        if rows > pending {
            return Err(Error::invalid(format!(
                "cannot take back {rows} tokens: the last step left {pending} that can be (restore a snapshot instead)"
            )));
        }
        if rows > 0 {
            self.recurrent.settle(pending - rows);
            self.ids.truncate(self.ids.len() - rows);
            self.head.rewind(self.ids.len());
        }
        Ok(())
    }

    /// An independent copy.
    ///
    /// # Errors
    /// `InsufficientMemory`.
    pub fn fork(&self) -> Result<Sequence> {
        self.check()?;
        let mut copy = Sequence::new(&self.arena, &self.layout)?;
        copy.ensure(self.len())?;
        for (to, from) in copy.kv.iter_mut().zip(&self.kv) {
            to.copy_from(from, self.len())?;
        }
        copy.recurrent.copy_from(&self.recurrent)?;
        copy.ids.clone_from(&self.ids);
        copy.head = self.head;
        Ok(copy)
    }

    /// Remembers this moment.
    ///
    /// # Errors
    /// `Invalid`, if the sequence is torn; `Device`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.check()?;
        let (recurrent, pending) = (self.recurrent.save()?, self.recurrent.rows_pending().clone());
        Ok(Snapshot { ids: self.ids.clone(), head: self.head.without_promise(), recurrent, pending })
    }

    /// Goes back to a snapshot of this sequence (or of the one it was forked from).
    ///
    /// # Errors
    /// `Invalid`, if the sequence does not start with the snapshot's tokens; nothing changes. `Device`.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        if !self.ids.starts_with(&snapshot.ids) || !self.recurrent.fits(&snapshot.recurrent, &snapshot.pending) {
            return Err(Error::invalid("the snapshot belongs to another sequence, or to one that was rewritten since"));
        }
        self.recurrent.load(&snapshot.recurrent, &snapshot.pending)?;
        self.ids.truncate(snapshot.ids.len());
        self.head = snapshot.head;
        Ok(())
    }

    /// Empties the sequence and keeps its memory, for the next user of the slot.
    ///
    /// # Errors
    /// `Device`; nothing changes.
    pub fn reset(&mut self) -> Result<()> {
        self.recurrent.clear()?;
        self.ids.clear();
        self.head = Head::new(self.layout.mtp_caches > 0);
        Ok(())
    }

    /// Bytes of keys, values and index keys that have memory.
    pub fn committed(&self) -> usize {
        let planes = self.kv.iter().flat_map(|cache| PLANES.map(|plane| cache.plane(plane).committed()));
        planes.sum()
    }

    /// Empties the sequence and gives the memory of its keys and values back. `false`: its addresses cannot get memory
    /// again, so that it is to be dropped.
    pub fn give_back(&mut self) -> bool {
        // A state that could not be emptied is not used again either.
        let emptied = self.reset().is_ok();
        self.kv.iter_mut().map(KvCache::give_back).filter(|reusable| !reusable).count() == 0 && emptied
    }
}
