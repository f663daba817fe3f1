//! QSA mixer (spec 2.4): projections, norms, rotary embedding, index keys, selection, attention, gate.
//!
//! Owns: what the three operations of a QSA layer hand to each other.
//! Always true: a row's key, raw index key and, if it is the last of its block, the block's key are stored before any
//! row of the step is scored, so a query that closes a block sees it.
//! Not here: the attention arithmetic (`attend`), the rule of selection (`select`).

use rayon::prelude::*;

use super::attend::{self, AttendScratch};
use super::{Cpu, linear, norm, select as rule, show};
use crate::backend::{BackendOptions, Observed, Qsa};
use crate::config::{AttentionMode, Shape};
use crate::state::Sequence;
use crate::state::kv::KvCache;

/// Values that live from `project` to `attend`, and scratch a worker.
pub struct Scratch {
    mode: AttentionMode,
    /// Queries and gates, interleaved by head, `[rows, query_heads · 2 · head_dim]`.
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Indexer queries, `[rows, heads · index_dim]`.
    index_queries: Vec<f32>,
    /// Raw index keys, `[rows, index_dim]`.
    index_keys: Vec<f32>,
    /// Attention output before the projection, `[rows, query_heads · head_dim]`.
    attended: Vec<f32>,
    /// Selected tokens of each row, ascending.
    selected: Vec<Vec<u32>>,
    /// Scores, order and decoded block keys of each worker.
    selecting: Vec<SelectScratch>,
    attending: Vec<AttendScratch>,
}

#[derive(Default, Clone)]
struct SelectScratch {
    scores: Vec<f32>,
    order: Vec<u32>,
    products: Vec<f32>,
    decoded: Vec<f32>,
}

/// Block keys decoded at a time where they are not stored as F32.
const DECODED_BLOCKS: usize = 1024;

impl Scratch {
    /// Plans for the largest step and context.
    pub fn new(shape: &Shape, options: &BackendOptions) -> Scratch {
        let (a, i, rows) = (&shape.attention, &shape.indexer, options.max_rows);
        let workers = options.threads.max(1);
        let (group, widest) = (a.query_heads / a.kv_heads, widest(shape, options));
        let blocks = options.max_sequence / i.ratio;
        Scratch {
            mode: options.attention,
            queries: vec![0.0; rows * a.query_heads * 2 * a.head_dim],
            keys: vec![0.0; rows * a.kv_heads * a.head_dim],
            values: vec![0.0; rows * a.kv_heads * a.head_dim],
            index_queries: vec![0.0; rows * i.heads * i.head_dim],
            index_keys: vec![0.0; rows * i.head_dim],
            attended: vec![0.0; rows * a.query_heads * a.head_dim],
            selected: vec![Vec::with_capacity(widest); rows],
            selecting: vec![
                SelectScratch {
                    scores: Vec::with_capacity(blocks),
                    order: Vec::with_capacity(blocks),
                    products: Vec::new(),
                    decoded: Vec::with_capacity(DECODED_BLOCKS * i.head_dim),
                };
                workers
            ],
            attending: (0..workers).map(|_| AttendScratch::new(group, a.head_dim, widest)).collect(),
        }
    }

    /// Whether every query reads every visible token.
    pub fn is_dense(&self) -> bool {
        self.mode == AttentionMode::Dense
    }

    /// Bytes of a scratch so planned.
    pub fn bytes(shape: &Shape, options: &BackendOptions) -> usize {
        let (a, i) = (&shape.attention, &shape.indexer);
        let row = (3 * a.query_heads + 2 * a.kv_heads) * a.head_dim + (i.heads + 1) * i.head_dim;
        let widest = widest(shape, options);
        let worker = AttendScratch::bytes(a.query_heads / a.kv_heads, a.head_dim, widest)
            + 8 * (options.max_sequence / i.ratio)
            + 4 * DECODED_BLOCKS * i.head_dim;
        options.max_rows * (row + widest) * size_of::<f32>() + options.threads.max(1) * worker
    }
}

/// The most tokens one row can read.
fn widest(shape: &Shape, options: &BackendOptions) -> usize {
    match options.attention {
        AttentionMode::Sparse => shape.indexer.max_selected().min(options.max_sequence),
        AttentionMode::Dense => options.max_sequence,
    }
}

/// Projections, norms and rotations; writes keys, values, raw index keys and completed block keys.
pub fn project(cpu: &mut Cpu, w: &Qsa<Cpu>, cache: usize, x: &[f32], sequences: &mut [&mut Sequence]) {
    let (a, i, rows) = (cpu.shape.attention, cpu.shape.indexer, cpu.rows.len());
    let (eps, rope, s) = (cpu.shape.norm_eps, &cpu.rope, &mut cpu.qsa);
    let x = &x[..rows * cpu.shape.hidden];
    let wide = a.query_heads * 2 * a.head_dim;
    let kv = a.kv_heads * a.head_dim;
    linear::linear_many(
        &mut [
            (&w.q, &mut s.queries[..rows * wide]),
            (&w.k, &mut s.keys[..rows * kv]),
            (&w.v, &mut s.values[..rows * kv]),
            (&w.index_q, &mut s.index_queries[..rows * i.heads * i.head_dim]),
            (&w.index_k, &mut s.index_keys[..rows * i.head_dim]),
        ],
        x,
        rows,
    );
    s.queries[..rows * wide].par_chunks_exact_mut(wide).enumerate().for_each(|(row, heads)| {
        for head in heads.chunks_exact_mut(2 * a.head_dim) {
            let query = &mut head[..a.head_dim];
            norm::rms(query, &w.q_norm, eps);
            rope.rotate(row, query);
        }
    });
    for (row, heads) in s.keys[..rows * kv].chunks_exact_mut(kv).enumerate() {
        for head in heads.chunks_exact_mut(a.head_dim) {
            norm::rms(head, &w.k_norm, eps);
            rope.rotate(row, head);
        }
    }
    let index = i.heads * i.head_dim;
    for (row, heads) in s.index_queries[..rows * index].chunks_exact_mut(index).enumerate() {
        for head in heads.chunks_exact_mut(i.head_dim) {
            norm::rms(head, &w.index_q_norm, eps);
        }
        show_index_queries(&mut cpu.observer, &cpu.layer, row, heads);
        heads.chunks_exact_mut(i.head_dim).for_each(|head| rope.rotate(row, head));
    }
    let (mut raw, mut mean) = (vec![0.0; i.head_dim], vec![0.0; i.head_dim]);
    for (segment, sequence) in cpu.rows.segments.iter().zip(sequences) {
        let cache = &mut sequence.kv[cache];
        for row in segment.range() {
            let token = segment.position + row - segment.first;
            cache.write(token, &s.keys[row * kv..][..kv], &s.values[row * kv..][..kv]);
            cache.write_index(token, &s.index_keys[row * i.head_dim..][..i.head_dim]);
            if (token + 1) % i.ratio == 0 {
                let first = token + 1 - i.ratio;
                block_mean(cache, first..token + 1, &mut raw, &mut mean);
                norm::rms(&mut mean, &w.index_k_norm, eps);
                rope.rotate_at(first as u32, &mut mean);
                cache.write_block(first / i.ratio, &mean);
            }
        }
    }
}

/// F32 mean of raw index keys as they are stored.
fn block_mean(cache: &KvCache, tokens: std::ops::Range<usize>, raw: &mut [f32], mean: &mut [f32]) {
    let count = tokens.len() as f32;
    mean.fill(0.0);
    for token in tokens {
        cache.raw_index(token, raw);
        mean.iter_mut().zip(&*raw).for_each(|(m, r)| *m += r);
    }
    mean.iter_mut().for_each(|m| *m /= count);
}

fn show_index_queries(observer: &mut Option<crate::backend::Observer>, layer: &str, row: usize, heads: &[f32]) {
    if observer.is_some() {
        show(observer, layer, &format!("qsa_q_normed.{row}"), Observed::F32(heads));
    }
}

/// Decides what each row reads.
pub fn select(cpu: &mut Cpu, cache: usize, sequences: &[&mut Sequence]) {
    let i = cpu.shape.indexer;
    let width = i.heads * i.head_dim;
    let s = &mut cpu.qsa;
    for (segment, sequence) in cpu.rows.segments.iter().zip(sequences) {
        let cache = &sequence.kv[cache];
        let (mode, queries) = (s.mode, &s.index_queries);
        let rows = &mut s.selected[segment.range()];
        let share = rows.len().div_ceil(s.selecting.len());
        rows.par_chunks_mut(share).zip(s.selecting.par_iter_mut()).enumerate().for_each(|(part, (rows, scratch))| {
            for (r, tokens) in rows.iter_mut().enumerate() {
                let row = part * share + r;
                let position = segment.position + row;
                if mode == AttentionMode::Dense || rule::reads_everything(&i, position) {
                    rule::everything(position, tokens);
                    continue;
                }
                let query = &queries[(segment.first + row) * width..][..width];
                score(query, i.head_dim, (position + 1) / i.ratio, cache, scratch);
                rule::select(&i, position, &scratch.scores, &mut scratch.order, tokens);
            }
        });
    }
    if cpu.observer.is_some() {
        for row in 0..cpu.rows.len() {
            let name = format!("qsa_selected.{row}");
            show(&mut cpu.observer, &cpu.layer, &name, Observed::U32(&cpu.qsa.selected[row]));
        }
    }
}

fn score(query: &[f32], dim: usize, blocks: usize, cache: &KvCache, scratch: &mut SelectScratch) {
    scratch.scores.resize(blocks, 0.0);
    if let Some(keys) = cache.block_keys_f32() {
        attend::index_scores(query, dim, &keys[..blocks * dim], &mut scratch.products, &mut scratch.scores);
        return;
    }
    for (part, scores) in scratch.scores.chunks_mut(DECODED_BLOCKS).enumerate() {
        let first = part * DECODED_BLOCKS;
        scratch.decoded.resize(scores.len() * dim, 0.0);
        cache.block_keys(first..first + scores.len(), &mut scratch.decoded);
        attend::index_scores(query, dim, &scratch.decoded, &mut scratch.products, scores);
    }
}

/// Attention over the selection, gate, output projection.
pub fn attend(cpu: &mut Cpu, w: &Qsa<Cpu>, cache: usize, sequences: &[&mut Sequence], y: &mut [f32]) {
    let (a, rows) = (cpu.shape.attention, cpu.rows.len());
    let (group, width) = (a.query_heads / a.kv_heads, a.query_heads * a.head_dim);
    let s = &mut cpu.qsa;
    for (segment, sequence) in cpu.rows.segments.iter().zip(sequences) {
        let cache = &sequence.kv[cache];
        let out = &mut s.attended[segment.first * width..(segment.first + segment.rows) * width];
        let (queries, selected) = (&s.queries, &s.selected);
        // One task a row and KV head, in as many shares as there are workers.
        let task = group * a.head_dim;
        let share = (segment.rows * a.kv_heads).div_ceil(s.attending.len());
        out.par_chunks_mut(share * task).zip(s.attending.par_iter_mut()).enumerate().for_each(
            |(part, (out, scratch))| {
                for (t, out) in out.chunks_exact_mut(task).enumerate() {
                    let (row, head) = ((part * share + t) / a.kv_heads, (part * share + t) % a.kv_heads);
                    let row = segment.first + row;
                    let heads = &queries[(row * a.query_heads + head * group) * 2 * a.head_dim..][..2 * task];
                    scratch.attend(heads, &selected[row], head, cache, out);
                }
            },
        );
    }
    linear::linear(&w.o, &s.attended[..rows * width], rows, &mut y[..rows * cpu.shape.hidden]);
}
