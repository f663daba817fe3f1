//! Qwen Sparse Attention on the device (spec 2.4): index, scores, selection, attention.
//!
//! Owns: the launches, their scratch, which of the two attention families a segment takes.
//! Always true: a step of few rows has the same launches at every context length, sized by the plan; scratch is planned at
//! load. The few-row family is *ordered* and reads the state as it is stored; the gathered family is *rounding*: it reads F16
//! copies, and takes segments of at least [`GATHER_ROWS`] rows of sparse attention.
//! Not here: what the kernels compute (`hip/qsa_*.hip`).

use super::Hip;
use super::abi::{
    GatherAttendArgs, QsaAttendArgs, QsaMergeArgs, QsaPackArgs, QsaPrepareArgs, QsaScoreArgs, QsaSelectArgs,
};
use super::matrix::GEMV_ROWS;
use super::memory::Cutter;
use super::options::HipOptions;
use crate::backend::{Qsa, Segment};
use crate::config::{AttentionMode, KvMode, Shape};
use crate::error::Result;

/// From this many rows of a sequence on, attention gathers from F16 copies of the whole context.
pub const GATHER_ROWS: usize = 512;
/// Rows whose scores are kept at once.
const SCORE_ROWS: usize = 256;
/// Rows of the wide scoring kernel.
const WIDE_ROWS: usize = 16;
/// Blocks that a workgroup scores.
const SCORE_BLOCKS: usize = 256;
/// Blocks among which a workgroup finds candidates (PART_BLOCKS of hip/qsa_select.hip).
pub(super) const NARROW_BLOCKS: usize = 4096;
/// The least entries of a list that a workgroup attends to.
const SPLIT_ENTRIES: usize = 64;
/// The most workgroups a row and KV head: enough for one row to fill the larger device twice (64 compute units).
const MOST_SPLITS: usize = 64;

/// Scratch of a QSA layer.
#[derive(Debug, Clone, Copy)]
pub struct QsaScratch {
    /// `[rows, heads, 2, dim]`, products
    query_gate: u64,
    /// `[rows, kv_heads, dim]`, products
    keys: u64,
    /// `[rows, kv_heads, dim]`, products
    values: u64,
    /// `[rows, index_heads, index_dim]`, products
    index_query: u64,
    /// `[rows, index_dim]`, products
    index_key: u64,
    /// `[rows, heads, dim]`
    queries: u64,
    /// `[rows, index_heads, index_dim]`
    index_queries: u64,
    /// `[SCORE_ROWS, blocks of the longest sequence]`
    scores: u64,
    /// `[SCORE_ROWS, parts of the longest sequence, budget]` u32
    candidates: u64,
    /// `[rows, budget]` u32
    blocks: u64,
    /// `[rows]` u32
    counts: u64,
    /// `[few rows, kv_heads, splits, group, dim]`
    partial: u64,
    /// `[few rows, kv_heads, splits, group, 2]`
    partial_sums: u64,
    /// `[rows, heads, dim]`
    attended: u64,
    /// `[tokens of the longest sequence, kv_heads, dim]` F16, where the gathered family is planned
    packed_keys: u64,
    /// The same for values.
    packed_values: u64,
}

impl QsaScratch {
    /// For steps of up to `rows` rows.
    pub fn lay_out(cut: &mut Cutter, shape: &Shape, options: &HipOptions) -> QsaScratch {
        let (a, i, rows) = (&shape.attention, &shape.indexer, options.max_rows);
        let splits = Splits::of(shape, options);
        let (heads, kv) = (a.query_heads * a.head_dim, a.kv_heads * a.head_dim);
        let few = GEMV_ROWS.min(rows);
        let packed = if gathers(shape, options) { options.max_sequence.next_multiple_of(4) * kv } else { 0 };
        let scored = if options.attention == AttentionMode::Sparse { SCORE_ROWS.min(rows) } else { 0 };
        let blocks = most_blocks(shape, options);
        QsaScratch {
            query_gate: cut.floats(rows * 2 * heads),
            keys: cut.floats(rows * kv),
            values: cut.floats(rows * kv),
            index_query: cut.floats(rows * i.heads * i.head_dim),
            index_key: cut.floats(rows * i.head_dim),
            queries: cut.floats(rows * heads),
            index_queries: cut.floats(rows * i.heads * i.head_dim),
            scores: cut.floats(scored * blocks),
            candidates: cut.take(scored * parts(blocks) * i.budget_blocks(), 4),
            blocks: cut.take(rows * i.budget_blocks(), 4),
            counts: cut.take(rows, 4),
            partial: cut.floats(few * splits.count * heads),
            partial_sums: cut.floats(few * splits.count * a.query_heads * 2),
            attended: cut.floats(rows * heads),
            packed_keys: cut.take(packed, 2),
            packed_values: cut.take(packed, 2),
        }
    }
}

/// How a row's list is cut among workgroups: by the plan, so that the sums are cut alike in every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Splits {
    count: usize,
    entries: usize,
}

impl Splits {
    fn of(shape: &Shape, options: &HipOptions) -> Splits {
        let longest = match options.attention {
            AttentionMode::Sparse => shape.indexer.max_selected().min(options.max_sequence),
            AttentionMode::Dense => options.max_sequence,
        };
        let entries = longest.div_ceil(MOST_SPLITS).next_multiple_of(SPLIT_ENTRIES);
        Splits { count: longest.div_ceil(entries), entries }
    }
}

/// Blocks of the longest sequence, a whole number of the scoring kernel's.
fn most_blocks(shape: &Shape, options: &HipOptions) -> usize {
    (options.max_sequence / shape.indexer.ratio).max(1).next_multiple_of(SCORE_BLOCKS)
}

/// Workgroups that find a row's candidates; 0 where one selects from all blocks.
fn parts(blocks: usize) -> usize {
    if blocks > NARROW_BLOCKS { blocks.div_ceil(NARROW_BLOCKS) } else { 0 }
}

/// Whether long segments gather.
pub fn gathers(shape: &Shape, options: &HipOptions) -> bool {
    let a = &shape.attention;
    options.gather
        && options.attention == AttentionMode::Sparse
        && options.max_rows >= GATHER_ROWS
        && matches!(a.head_dim, 64 | 256)
        && a.query_heads / a.kv_heads <= 16
}

/// What kernels of a state are called.
fn suffix(mode: KvMode) -> &'static str {
    match mode {
        KvMode::F32 => "f32",
        KvMode::Fp8 => "fp8",
        KvMode::Q8 => "q8",
    }
}

/// An address `count` elements of `size` bytes further on.
fn ahead(address: u64, count: usize, size: usize) -> u64 {
    address + (count * size) as u64
}

impl Hip {
    /// Projections, norms, rotations and the new rows of the state.
    pub(super) fn index(&self, w: &Qsa<Hip>, cache: usize, x: u64) -> Result<()> {
        let (a, i, s, step) = (&self.shape.attention, &self.shape.indexer, &self.scratch.qsa, &self.step);
        let list = [
            (&w.q, s.query_gate),
            (&w.k, s.keys),
            (&w.v, s.values),
            (&w.index_q, s.index_query),
            (&w.index_k, s.index_key),
        ];
        self.products(x, step.rows, &list)?;
        let t = &step.tables;
        let arguments = QsaPrepareArgs {
            queries: s.queries,
            index_queries: s.index_queries,
            planes: t.kv(cache),
            sequence: t.sequence,
            positions: t.positions,
            query_gate: s.query_gate,
            keys: s.keys,
            values: s.values,
            index_query: s.index_query,
            index_key: s.index_key,
            query_norm: w.q_norm.0,
            key_norm: w.k_norm.0,
            index_query_norm: w.index_q_norm.0,
            index_key_norm: w.index_k_norm.0,
            cos: t.cos,
            sin: t.sin,
            block_cos: t.block_cos,
            block_sin: t.block_sin,
            rows: step.rows as u32,
            heads: a.query_heads as u32,
            kv_heads: a.kv_heads as u32,
            dim: a.head_dim as u32,
            index_heads: i.heads as u32,
            index_dim: i.head_dim as u32,
            half: (self.shape.rope.rotary_dim / 2) as u32,
            ratio: i.ratio as u32,
            eps: self.shape.norm_eps,
            unused: 0,
        };
        let heads = a.query_heads + 2 * a.kv_heads + i.heads + 1;
        self.launch(
            &format!("qsa_prepare_{}", suffix(self.options.kv_mode)),
            (step.rows * heads).div_ceil(8),
            &arguments,
        )
    }

    /// What each row reads, but in dense mode.
    pub(super) fn select(&self, cache: usize) -> Result<()> {
        if self.options.attention == AttentionMode::Dense {
            return Ok(());
        }
        let (i, s, step) = (&self.shape.indexer, &self.scratch.qsa, &self.step);
        let few = step.rows <= GEMV_ROWS;
        let planned = most_blocks(&self.shape, &self.options);
        for first in (0..step.rows).step_by(SCORE_ROWS) {
            let count = SCORE_ROWS.min(step.rows - first);
            // Launches of few rows serve every context; those of many rows are made for this one.
            let complete = if few { planned } else { self.complete_blocks(first..first + count) };
            if complete > i.budget_blocks() {
                let rows = match count {
                    1 => 1,
                    2..=4 => 4,
                    5..=GEMV_ROWS => GEMV_ROWS,
                    _ => WIDE_ROWS,
                };
                let arguments = QsaScoreArgs {
                    scores: s.scores,
                    queries: s.index_queries,
                    planes: step.tables.kv(cache),
                    sequence: step.tables.sequence,
                    positions: step.tables.positions,
                    first: first as u32,
                    count: count as u32,
                    max_blocks: complete as u32,
                    heads: i.heads as u32,
                    dim: i.head_dim as u32,
                    ratio: i.ratio as u32,
                };
                let keys = if self.options.kv_mode == KvMode::F32 { "f32" } else { "bf16" };
                let grid = count.div_ceil(rows) * complete.div_ceil(SCORE_BLOCKS);
                self.launch(&format!("qsa_score_{keys}_r{rows}"), grid, &arguments)?;
            }
            let parts = parts(complete);
            let arguments = QsaSelectArgs {
                blocks: s.blocks,
                counts: s.counts,
                candidates: s.candidates,
                scores: s.scores,
                positions: step.tables.positions,
                first: first as u32,
                count: count as u32,
                max_blocks: complete as u32,
                budget: i.budget_blocks() as u32,
                ratio: i.ratio as u32,
                parts: parts as u32,
            };
            if parts > 0 {
                self.launch("qsa_narrow", count * parts, &arguments)?;
            }
            self.launch("qsa_select", count, &arguments)?;
        }
        Ok(())
    }

    /// The most complete blocks that a row of these sees, at least 1.
    fn complete_blocks(&self, rows: std::ops::Range<usize>) -> usize {
        let ratio = self.shape.indexer.ratio;
        let seen = self.step.segments.iter().filter_map(|segment| {
            let last = segment.range().end.min(rows.end).checked_sub(1)?;
            (last >= segment.first.max(rows.start)).then(|| (segment.position + last - segment.first + 1) / ratio)
        });
        seen.max().unwrap_or(0).max(1)
    }

    /// Attention over the selection, gate, output projection.
    pub(super) fn attend(&self, w: &Qsa<Hip>, cache: usize, y: u64) -> Result<()> {
        let (step, s) = (&self.step, &self.scratch.qsa);
        if step.rows <= GEMV_ROWS {
            // One launch for all sequences.
            self.attend_few(cache, 0..step.rows)?;
        } else {
            for (sequence, &segment) in step.segments.iter().enumerate() {
                if segment.rows >= GATHER_ROWS && gathers(&self.shape, &self.options) {
                    self.attend_gathered(cache, sequence, segment)?;
                    continue;
                }
                for first in segment.range().step_by(GEMV_ROWS) {
                    self.attend_few(cache, first..(first + GEMV_ROWS).min(segment.range().end))?;
                }
            }
        }
        self.products(s.attended, step.rows, &[(&w.o, y)])
    }

    fn attend_few(&self, cache: usize, rows: std::ops::Range<usize>) -> Result<()> {
        let (a, i, s, t) = (&self.shape.attention, &self.shape.indexer, &self.scratch.qsa, &self.step.tables);
        let sparse = self.options.attention == AttentionMode::Sparse;
        let (first, count, splits) = (rows.start, rows.len(), Splits::of(&self.shape, &self.options));
        let width = a.query_heads * a.head_dim;
        let positions = ahead(t.positions, first, 4);
        let counts = if sparse { ahead(s.counts, first, 4) } else { 0 };
        let attend = QsaAttendArgs {
            partial: s.partial,
            partial_sums: s.partial_sums,
            queries: ahead(s.queries, first * width, 4),
            planes: t.kv(cache),
            sequence: ahead(t.sequence, first, 4),
            positions,
            blocks: if sparse { ahead(s.blocks, first * i.budget_blocks(), 4) } else { 0 },
            counts,
            heads: a.query_heads as u32,
            kv_heads: a.kv_heads as u32,
            max_blocks: i.budget_blocks() as u32,
            splits: splits.count as u32,
            split_entries: splits.entries as u32,
            ratio: i.ratio as u32,
            dim: a.head_dim as u32,
            scale: 1.0 / (a.head_dim as f32).sqrt(),
        };
        let group = if a.query_heads / a.kv_heads > 4 { 12 } else { 4 };
        let kernel = format!("qsa_attend_{}_g{group}", suffix(self.options.kv_mode));
        self.launch(&kernel, count * a.kv_heads * splits.count, &attend)?;
        let merge = QsaMergeArgs {
            out: ahead(s.attended, first * width, 4),
            partial: s.partial,
            partial_sums: s.partial_sums,
            query_gate: ahead(s.query_gate, first * 2 * width, 4),
            positions,
            counts,
            heads: a.query_heads as u32,
            kv_heads: a.kv_heads as u32,
            splits: splits.count as u32,
            split_entries: splits.entries as u32,
            ratio: i.ratio as u32,
            dim: a.head_dim as u32,
        };
        self.launch("qsa_merge", count * a.query_heads, &merge)
    }

    fn attend_gathered(&self, cache: usize, sequence: usize, segment: Segment) -> Result<()> {
        let (a, i, s, t) = (&self.shape.attention, &self.shape.indexer, &self.scratch.qsa, &self.step.tables);
        let (kv, width) = (a.kv_heads * a.head_dim, a.query_heads * a.head_dim);
        let tokens = segment.position + segment.rows;
        let pack = QsaPackArgs {
            k_out: s.packed_keys,
            v_out: s.packed_values,
            planes: t.kv(cache),
            sequence: sequence as u32,
            first: 0,
            tokens: tokens as u32,
            kv_heads: a.kv_heads as u32,
            dim: a.head_dim as u32,
            unused: 0,
        };
        let columns = if self.options.kv_mode == KvMode::F32 { 8 } else { 16 };
        let threads = tokens.div_ceil(4) * (kv / columns);
        self.launch(&format!("qsa_pack_{}", suffix(self.options.kv_mode)), 2 * threads.div_ceil(64), &pack)?;
        let first = segment.first;
        let gather = GatherAttendArgs {
            out: ahead(s.attended, first * width, 4),
            q: ahead(s.queries, first * width, 4),
            gate: ahead(s.query_gate, first * 2 * width + a.head_dim, 4),
            k: s.packed_keys,
            v: s.packed_values,
            blocks: ahead(s.blocks, first * i.budget_blocks(), 4),
            counts: ahead(s.counts, first, 4),
            positions: ahead(t.positions, first, 4),
            heads: a.query_heads as u32,
            kv_heads: a.kv_heads as u32,
            max_blocks: i.budget_blocks() as u32,
            gate_row_stride: (2 * width) as u32,
            gate_head_stride: (2 * a.head_dim) as u32,
            scale: 1.0 / (a.head_dim as f32).sqrt(),
        };
        self.launch(&format!("qsa_gather_attend_{}", a.head_dim), segment.rows * a.kv_heads, &gather)
    }
}
