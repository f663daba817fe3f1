//! One sequence: everything a token leaves behind for the next one, moved, forked and rewound together (spec, section 3).
//!
//! Owns: token ids; keys, values and index keys of every QSA layer (`kv`); state of fixed size (`recurrent`).
//! Always true: after a step every part describes the same tokens; the n-gram context is derived from the ids; a
//! rewind, a restore or a failed step changes all parts or none.
//! Not here: how a part is computed (`backend`).

pub mod file;
pub mod kv;
pub mod recurrent;
pub mod stored;

use crate::arena::{Arena, ensure_all};
use crate::config::{KvMode, Mixer, Shape};
use crate::error::{Error, Result};
use kv::{KvCache, KvLayout, PLANES};
use recurrent::{Recurrent, RecurrentLayout};

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
    /// `Model`, if the KV mode does not fit the head geometry.
    pub fn new(shape: &Shape, mode: KvMode, max_sequence: usize, rewind_rows: usize, mtp: bool) -> Result<StateLayout> {
        let kv = KvLayout::new(mode, shape.attention, shape.indexer)?;
        Ok(StateLayout {
            kv,
            trunk_caches: shape.count(Mixer::Qsa),
            mtp_caches: usize::from(mtp && shape.mtp_layers > 0),
            recurrent: RecurrentLayout::new(shape, rewind_rows),
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
    pending: usize,
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
    pending: usize,
    recurrent: Vec<f32>,
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
        Ok(Sequence { ids: Vec::new(), pending: 0, layout: layout.clone(), arena: arena.clone(), kv, recurrent })
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
        self.pending
    }

    /// Makes room for `tokens` tokens in all caches.
    ///
    /// # Errors
    /// `ContextLength` past the planned size, `InsufficientMemory` if memory cannot be had; the contents stay as they are.
    pub fn ensure(&mut self, tokens: usize) -> Result<()> {
        if tokens > self.layout.max_sequence {
            return Err(Error::ContextLength { prompt: tokens, context: self.layout.max_sequence });
        }
        let mut growth = Vec::with_capacity(4 * self.kv.len());
        for cache in &mut self.kv {
            growth.extend(cache.growth(tokens)?);
        }
        ensure_all(&mut growth)
    }

    /// Records that a step has run: its tokens are part of the sequence now.
    pub fn advance(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
        self.pending = if ids.len() <= self.layout.recurrent.rewind_rows { ids.len() } else { 0 };
    }

    /// Takes the last `rows` tokens back.
    ///
    /// # Errors
    /// `Invalid`, if they are not all of the last step, or the step had more rows than stay revocable; nothing changes.
    pub fn rewind(&mut self, rows: usize) -> Result<()> {
        if rows > self.pending {
            return Err(Error::invalid(format!(
                "cannot take back {rows} tokens: the last step left {} that can be (restore a snapshot instead)",
                self.pending
            )));
        }
        self.pending -= rows;
        self.ids.truncate(self.ids.len() - rows);
        Ok(())
    }

    /// An independent copy.
    ///
    /// # Errors
    /// `InsufficientMemory`.
    pub fn fork(&self) -> Result<Sequence> {
        let mut copy = Sequence::new(&self.arena, &self.layout)?;
        copy.ensure(self.len())?;
        for (to, from) in copy.kv.iter_mut().zip(&self.kv) {
            to.copy_from(from, self.len())?;
        }
        copy.recurrent.floats_mut().copy_from_slice(self.recurrent.floats());
        copy.ids.clone_from(&self.ids);
        copy.pending = self.pending;
        Ok(copy)
    }

    /// Remembers this moment.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { ids: self.ids.clone(), pending: self.pending, recurrent: self.recurrent.floats().to_vec() }
    }

    /// Goes back to a snapshot of this sequence (or of the one it was forked from).
    ///
    /// # Errors
    /// `Invalid`, if the sequence does not start with the snapshot's tokens; nothing changes.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        if !self.ids.starts_with(&snapshot.ids) || snapshot.recurrent.len() != self.recurrent.floats().len() {
            return Err(Error::invalid("the snapshot belongs to another sequence, or to one that was rewritten since"));
        }
        self.recurrent.floats_mut().copy_from_slice(&snapshot.recurrent);
        self.ids.truncate(snapshot.ids.len());
        self.pending = snapshot.pending;
        Ok(())
    }

    /// Empties the sequence and keeps its memory, for the next user of the slot.
    pub fn reset(&mut self) {
        self.ids.clear();
        self.pending = 0;
        self.recurrent.floats_mut().fill(0.0);
    }

    /// Bytes of keys, values and index keys that have memory.
    pub fn committed(&self) -> usize {
        let planes = self.kv.iter().flat_map(|cache| PLANES.map(|plane| cache.plane(plane).committed()));
        planes.sum()
    }

    /// Empties the sequence and gives the memory of its keys and values back. `false`: its addresses cannot get memory
    /// again, so that it is to be dropped.
    pub fn give_back(&mut self) -> bool {
        self.reset();
        self.kv.iter_mut().map(KvCache::give_back).filter(|reusable| !reusable).count() == 0
    }
}
