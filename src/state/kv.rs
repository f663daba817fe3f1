//! Keys, values and index keys of one QSA layer for one sequence: four planes that grow with the context (spec 3.1).
//!
//! Owns: the layout of a row in every mode, as the contract that kernels follow, and reading and writing on the host.
//! Always true: a plane is one arena range whose row r starts at `r * row bytes`; rows that were never written decode
//! to zeros; nothing is cleared when a sequence is cut, because its length lives in the sequence.
//! Not here: computing rows (`backend`), lengths, fork and rewind of a whole sequence (`state`).
//!
//! | plane | a row | f32 | q8 | fp8 |
//! |---|---|---|---|---|
//! | keys, values | a token: `[kv_heads, head_dim]` | F32 | codes, then an f16 for 32 of them | codes, then an f16 a head |
//! | raw index keys | a token: `[index_dim]` | F32 | BF16 | BF16 |
//! | block keys | `ratio` tokens: `[index_dim]` | F32 | BF16 | BF16 |
//!
//! Index keys are never below 16 bits: selection fails on coarser ones.

pub mod codec;

use std::ops;

use half::f16;

use crate::arena::{Arena, Range, ensure_all};
use crate::config::{AttentionShape, IndexerShape, KvMode};
use crate::error::{Error, Result};
use codec::Q8_BLOCK;

/// Sizes of a layer's rows, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    mode: KvMode,
    kv_heads: usize,
    head_dim: usize,
    index_dim: usize,
    ratio: usize,
}

impl KvLayout {
    /// Fails with `Model` if the heads cannot be stored in this mode.
    pub fn new(mode: KvMode, attention: AttentionShape, indexer: IndexerShape) -> Result<KvLayout> {
        let AttentionShape { kv_heads, head_dim, .. } = attention;
        let IndexerShape { head_dim: index_dim, ratio, .. } = indexer;
        if kv_heads == 0 || head_dim == 0 || index_dim == 0 || ratio == 0 {
            return Err(Error::model(format!(
                "keys of {kv_heads} heads x {head_dim} and index keys of {index_dim}, one block every {ratio} tokens, \
                 cannot be stored: check config.json"
            )));
        }
        if mode == KvMode::Q8 && !head_dim.is_multiple_of(Q8_BLOCK) {
            return Err(Error::model(format!(
                "KV mode q8 stores blocks of {Q8_BLOCK} values and the model has head_dim {head_dim}: use --kv-mode \
                 f32 or fp8"
            )));
        }
        Ok(KvLayout { mode, kv_heads, head_dim, index_dim, ratio })
    }

    /// How rows are stored.
    pub fn mode(&self) -> KvMode {
        self.mode
    }
    /// Key/value heads.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }
    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }
    /// Width of an index key.
    pub fn index_dim(&self) -> usize {
        self.index_dim
    }
    /// Tokens of a block.
    pub fn ratio(&self) -> usize {
        self.ratio
    }

    /// Bytes of a row of `plane`.
    pub fn row_bytes(&self, plane: Plane) -> usize {
        let values = self.kv_heads * self.head_dim;
        match (plane, self.mode) {
            (Plane::Keys | Plane::Values, KvMode::F32) => values * 4,
            (Plane::Keys | Plane::Values, KvMode::Q8) => values + values / Q8_BLOCK * 2,
            (Plane::Keys | Plane::Values, KvMode::Fp8) => values + 2 * self.kv_heads,
            (Plane::RawIndex | Plane::BlockKeys, KvMode::F32) => self.index_dim * 4,
            (Plane::RawIndex | Plane::BlockKeys, KvMode::Q8 | KvMode::Fp8) => self.index_dim * 2,
        }
    }

    /// Rows of `plane` that `tokens` need; an open block has a row already.
    pub fn rows(&self, plane: Plane, tokens: usize) -> usize {
        match plane {
            Plane::BlockKeys => tokens.div_ceil(self.ratio),
            _ => tokens,
        }
    }

    /// Bytes that one more token adds in the mean: a block key counts by its share, rounded up.
    pub fn bytes_per_token(&self) -> usize {
        let of = |plane| self.row_bytes(plane);
        of(Plane::Keys) + of(Plane::Values) + of(Plane::RawIndex) + of(Plane::BlockKeys).div_ceil(self.ratio)
    }

    /// Bytes of `plane` for `tokens`, or a sentence if no machine has that many.
    fn bytes(&self, plane: Plane, tokens: usize) -> Result<usize> {
        self.rows(plane, tokens).checked_mul(self.row_bytes(plane)).ok_or_else(|| {
            Error::InsufficientMemory(format!("{tokens} tokens need more addresses than exist: lower --max-seq"))
        })
    }
}

/// One of the four planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    /// Normed and rotated keys, a row a token.
    Keys,
    /// Values as projected, a row a token.
    Values,
    /// Index keys as projected, a row a token.
    RawIndex,
    /// Pooled, normed and rotated index keys, a row a block.
    BlockKeys,
}

/// All planes, in the order of their discriminants.
pub const PLANES: [Plane; 4] = [Plane::Keys, Plane::Values, Plane::RawIndex, Plane::BlockKeys];

/// The planes of one layer. Rows below the last `ensure` may be read and written; beyond it a call panics, as an index
/// out of a slice does. Reading and writing are for host memory; kernels take the planes' bases.
pub struct KvCache {
    layout: KvLayout,
    max_tokens: usize,
    planes: [Range; 4],
}

impl KvCache {
    /// Reserves `max_tokens`; `label` names the layer in messages.
    pub fn new(arena: &Arena, label: &str, layout: KvLayout, max_tokens: usize) -> Result<KvCache> {
        let plane = |plane: Plane, name: &str| -> Result<Range> {
            arena.reserve(&format!("{label} {name}"), layout.bytes(plane, max_tokens)?)
        };
        let planes = [
            plane(Plane::Keys, "keys")?,
            plane(Plane::Values, "values")?,
            plane(Plane::RawIndex, "raw index keys")?,
            plane(Plane::BlockKeys, "block keys")?,
        ];
        Ok(KvCache { layout, max_tokens, planes })
    }

    /// Sizes of the rows.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }
    /// Tokens reserved for.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }
    /// The range behind a plane: its base for kernels, its bytes for a snapshot.
    pub fn plane(&self, plane: Plane) -> &Range {
        &self.planes[plane as usize]
    }

    /// Makes `tokens` rows usable in every plane, or changes nothing.
    pub fn ensure(&mut self, tokens: usize) -> Result<()> {
        ensure_all(&mut self.growth(tokens)?)
    }

    /// Gives the memory of every plane back and keeps the addresses; `false`, if one of them cannot get memory again.
    pub fn give_back(&mut self) -> bool {
        self.planes.iter_mut().map(Range::give_back).filter(|reusable| !reusable).count() == 0
    }

    /// Whether there is memory for so many tokens already.
    pub fn has_room(&self, tokens: usize) -> bool {
        PLANES
            .iter()
            .zip(&self.planes)
            .all(|(&plane, range)| self.plane_bytes(plane, tokens).min(range.reserved()) <= range.committed())
    }

    /// Bytes of a plane that so many tokens need.
    fn plane_bytes(&self, plane: Plane, tokens: usize) -> usize {
        self.layout.rows(plane, tokens) * self.layout.row_bytes(plane)
    }

    /// What `ensure` would grow, so that a sequence can grow all its layers or none (`arena::ensure_all`).
    pub fn growth(&mut self, tokens: usize) -> Result<[(&mut Range, usize); 4]> {
        if tokens > self.max_tokens {
            return Err(Error::invalid(format!(
                "{tokens} tokens were asked for and the context holds {}: raise --max-seq",
                self.max_tokens
            )));
        }
        let bytes = PLANES.map(|plane| self.plane_bytes(plane, tokens));
        let [keys, values, raw, blocks] = &mut self.planes;
        Ok([(keys, bytes[0]), (values, bytes[1]), (raw, bytes[2]), (blocks, bytes[3])])
    }

    fn row(&self, plane: Plane, row: usize) -> &[u8] {
        let bytes = self.layout.row_bytes(plane);
        &self.planes[plane as usize].bytes()[row * bytes..][..bytes]
    }
    fn row_mut(&mut self, plane: Plane, row: usize) -> &mut [u8] {
        let bytes = self.layout.row_bytes(plane);
        &mut self.planes[plane as usize].bytes_mut()[row * bytes..][..bytes]
    }

    /// Stores a token's keys and values, `[kv_heads, head_dim]` each.
    pub fn write(&mut self, token: usize, keys: &[f32], values: &[f32]) {
        self.write_heads(Plane::Keys, token, keys);
        self.write_heads(Plane::Values, token, values);
    }

    fn write_heads(&mut self, plane: Plane, token: usize, values: &[f32]) {
        let KvLayout { mode, kv_heads, head_dim, .. } = self.layout;
        assert_eq!(values.len(), kv_heads * head_dim, "a row has [kv_heads, head_dim] values");
        let row = self.row_mut(plane, token);
        match mode {
            KvMode::F32 => row.copy_from_slice(bytemuck::cast_slice(values)),
            KvMode::Q8 => {
                let (codes, scales) = row.split_at_mut(kv_heads * head_dim);
                codec::encode_q8(values, codes, scales);
            }
            KvMode::Fp8 => {
                let (codes, scales) = row.split_at_mut(kv_heads * head_dim);
                let heads = values.chunks_exact(head_dim).zip(codes.chunks_exact_mut(head_dim));
                for ((values, codes), scale) in heads.zip(scales.chunks_exact_mut(2)) {
                    scale.copy_from_slice(&codec::encode_fp8(values, codes).to_le_bytes());
                }
            }
        }
    }

    /// Stores a token's raw index key, `[index_dim]`.
    pub fn write_index(&mut self, token: usize, raw: &[f32]) {
        self.write_index_row(Plane::RawIndex, token, raw);
    }
    /// Stores a complete block's key, `[index_dim]`.
    pub fn write_block(&mut self, block: usize, key: &[f32]) {
        self.write_index_row(Plane::BlockKeys, block, key);
    }

    fn write_index_row(&mut self, plane: Plane, row: usize, values: &[f32]) {
        let KvLayout { mode, index_dim, .. } = self.layout;
        assert_eq!(values.len(), index_dim, "an index key has [index_dim] values");
        let row = self.row_mut(plane, row);
        match mode {
            KvMode::F32 => row.copy_from_slice(bytemuck::cast_slice(values)),
            KvMode::Q8 | KvMode::Fp8 => codec::encode_bf16(values, row),
        }
    }

    /// The committed keys, to read many of them.
    pub fn keys(&self) -> Rows<'_> {
        Rows { layout: self.layout, bytes: self.planes[Plane::Keys as usize].bytes() }
    }
    /// The committed values, to read many of them.
    pub fn values(&self) -> Rows<'_> {
        Rows { layout: self.layout, bytes: self.planes[Plane::Values as usize].bytes() }
    }
    /// One head's key of a token, decoded into `out` `[head_dim]`.
    pub fn key(&self, token: usize, head: usize, out: &mut [f32]) {
        self.keys().read(token, head, out);
    }
    /// One head's value of a token, decoded into `out` `[head_dim]`.
    pub fn value(&self, token: usize, head: usize, out: &mut [f32]) {
        self.values().read(token, head, out);
    }

    /// A token's raw index key, decoded into `out` `[index_dim]`.
    pub fn raw_index(&self, token: usize, out: &mut [f32]) {
        self.decode_index(self.row(Plane::RawIndex, token), out);
    }
    /// A block's key, decoded into `out` `[index_dim]`.
    pub fn block_key(&self, block: usize, out: &mut [f32]) {
        self.decode_index(self.row(Plane::BlockKeys, block), out);
    }
    /// Keys of consecutive blocks, decoded into `out` `[blocks.len(), index_dim]`.
    pub fn block_keys(&self, blocks: ops::Range<usize>, out: &mut [f32]) {
        let bytes = self.layout.row_bytes(Plane::BlockKeys);
        self.decode_index(&self.plane(Plane::BlockKeys).bytes()[blocks.start * bytes..blocks.end * bytes], out);
    }
    /// All committed block keys `[blocks, index_dim]` without a copy, where they are stored as F32. Rows of blocks that
    /// are not complete mean nothing.
    pub fn block_keys_f32(&self) -> Option<&[f32]> {
        let bytes = self.plane(Plane::BlockKeys).bytes();
        (self.layout.mode == KvMode::F32).then(|| bytemuck::cast_slice(bytes))
    }

    fn decode_index(&self, bytes: &[u8], out: &mut [f32]) {
        match self.layout.mode {
            KvMode::F32 => out.copy_from_slice(bytemuck::cast_slice(bytes)),
            KvMode::Q8 | KvMode::Fp8 => {
                assert_eq!(out.len() * 2, bytes.len(), "an index key has [index_dim] values");
                codec::decode_bf16(bytes, out);
            }
        }
    }

    /// Rows of `plane` that belong to `tokens`; of blocks, the complete ones.
    fn whole_rows(&self, plane: Plane, tokens: &ops::Range<usize>) -> ops::Range<usize> {
        match plane {
            Plane::BlockKeys => tokens.start / self.layout.ratio..tokens.end / self.layout.ratio,
            _ => tokens.clone(),
        }
    }

    /// Appends the rows of `tokens`, plane by plane, as they are stored. They begin at a block.
    ///
    /// # Errors
    /// `Device`.
    pub fn copy_out(&self, tokens: ops::Range<usize>, into: &mut Vec<u8>) -> Result<()> {
        for plane in PLANES {
            let (rows, bytes) = (self.whole_rows(plane, &tokens), self.layout.row_bytes(plane));
            let at = into.len();
            into.resize(at + rows.len() * bytes, 0);
            self.plane(plane).read(rows.start * bytes, &mut into[at..])?;
        }
        Ok(())
    }

    /// Writes rows that `copy_out` gave for `tokens` back, but none at or behind token `end`, and returns what is left
    /// of `from`. Fails, with some rows written, if `from` is too short.
    pub fn copy_in<'a>(&mut self, tokens: ops::Range<usize>, end: usize, from: &'a [u8]) -> Result<&'a [u8]> {
        let mut rest = from;
        for plane in PLANES {
            let bytes = self.layout.row_bytes(plane);
            let stored = self.whole_rows(plane, &tokens);
            let wanted = self.whole_rows(plane, &(tokens.start..tokens.end.min(end)));
            let Some((rows, behind)) = rest.split_at_checked(stored.len() * bytes) else {
                return Err(Error::invalid("stored keys and values are shorter than their tokens"));
            };
            self.planes[plane as usize].write(wanted.start * bytes, &rows[..wanted.len() * bytes])?;
            rest = behind;
        }
        Ok(rest)
    }

    /// Makes the first `tokens` of this cache those of `other`, bit for bit, growing as needed. Block keys are copied
    /// for the complete blocks. Fails without a change if the layouts differ or `other` is shorter.
    pub fn copy_from(&mut self, other: &KvCache, tokens: usize) -> Result<()> {
        if self.layout != other.layout {
            return Err(Error::invalid(format!(
                "a cache of {:?} cannot be filled from one of {:?}",
                self.layout, other.layout
            )));
        }
        let layout = self.layout;
        let bytes = PLANES.map(|plane| match plane {
            Plane::BlockKeys => tokens / layout.ratio * layout.row_bytes(plane),
            _ => tokens * layout.row_bytes(plane),
        });
        if tokens > other.max_tokens || PLANES.iter().zip(bytes).any(|(&p, n)| other.plane(p).committed() < n) {
            return Err(Error::invalid(format!(
                "cannot fork {tokens} tokens: '{}' has fewer",
                other.planes[0].label()
            )));
        }
        self.ensure(tokens)?;
        for ((to, from), n) in self.planes.iter_mut().zip(&other.planes).zip(bytes) {
            to.copy_from(from, n)?;
        }
        Ok(())
    }
}

/// Keys or values of a cache, `[tokens, kv_heads, head_dim]`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    layout: KvLayout,
    bytes: &'a [u8],
}

impl<'a> Rows<'a> {
    /// One head of a token: borrowed where rows are F32, else decoded into `scratch`, `[head_dim]`.
    #[inline]
    pub fn get<'s>(&self, token: usize, head: usize, scratch: &'s mut [f32]) -> &'s [f32]
    where
        'a: 's,
    {
        match self.as_f32() {
            Some(rows) => {
                let KvLayout { kv_heads, head_dim, .. } = self.layout;
                assert!(head < kv_heads, "head {head} of {kv_heads}");
                &rows[(token * kv_heads + head) * head_dim..][..head_dim]
            }
            None => {
                self.read(token, head, scratch);
                scratch
            }
        }
    }

    /// One head of a token, decoded into `out` `[head_dim]`.
    pub fn read(&self, token: usize, head: usize, out: &mut [f32]) {
        let KvLayout { mode, kv_heads, head_dim, .. } = self.layout;
        assert!(head < kv_heads && out.len() == head_dim, "head {head} of {kv_heads} into {} values", out.len());
        let row_bytes = self.layout.row_bytes(Plane::Keys);
        let row = &self.bytes[token * row_bytes..][..row_bytes];
        match mode {
            KvMode::F32 => out.copy_from_slice(bytemuck::cast_slice(&row[head * head_dim * 4..][..head_dim * 4])),
            KvMode::Q8 => {
                let (codes, scales) = row.split_at(kv_heads * head_dim);
                let scale_bytes = head_dim / Q8_BLOCK * 2;
                let scales = &scales[head * scale_bytes..][..scale_bytes];
                codec::decode_q8(&codes[head * head_dim..][..head_dim], scales, out);
            }
            KvMode::Fp8 => {
                let (codes, scales) = row.split_at(kv_heads * head_dim);
                let scale = f16::from_le_bytes([scales[2 * head], scales[2 * head + 1]]);
                codec::decode_fp8(&codes[head * head_dim..][..head_dim], scale, out);
            }
        }
    }

    /// All committed rows without a copy, where they are stored as F32.
    #[inline]
    pub fn as_f32(&self) -> Option<&'a [f32]> {
        (self.layout.mode == KvMode::F32).then(|| bytemuck::cast_slice(self.bytes))
    }
}
