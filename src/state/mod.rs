//! One sequence: everything a token leaves behind for the next one, moved, forked and rewound together (spec, section 3).
//!
//! Owns: keys, values and index keys a QSA layer; recurrent and convolution state a GDN layer; PLE windows; token ids.
//! Always true: all parts describe the same number of tokens; the n-gram context is derived from the ids.
//! Not here: how a part is computed (`backend`).

pub mod kv;

/// One sequence's state.
pub struct Sequence {
    ids: Vec<u32>,
}

impl Sequence {
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
}
