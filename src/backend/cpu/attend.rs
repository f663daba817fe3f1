//! Attention of one group of query heads over selected rows, and block scores (spec 2.4).
//!
//! Owns: products of a few query vectors with many stored rows, softmax, the weighted sum of values.
//! Always true: each selected row is read once for all heads of its group; sums run in a fixed order (eight lanes over
//! a head's dimensions, the selection's order over tokens), so a row's bits depend on nothing but its own data.
//! Not here: which rows are selected (`select`), projections and gates (`qsa`).

use super::activation;
use super::lanes::{Lanes, WIDTH, vectorised};
use super::target::multiversioned;
use crate::state::kv::{KvCache, Rows};

/// Selected rows that are decoded and used together: 64 rows of 256 values stay in the second-level cache.
const TILE: usize = 64;

/// Scratch of one group of heads.
pub struct AttendScratch {
    queries: Vec<f32>,
    scores: Vec<f32>,
    decoded: Vec<f32>,
}

impl AttendScratch {
    /// Plans for `heads` query heads of width `dim` and up to `selected` rows.
    pub fn new(heads: usize, dim: usize, selected: usize) -> AttendScratch {
        AttendScratch {
            queries: vec![0.0; heads * dim],
            scores: vec![0.0; heads * selected],
            decoded: vec![0.0; TILE * dim],
        }
    }
    /// Bytes of a scratch so planned.
    pub fn bytes(heads: usize, dim: usize, selected: usize) -> usize {
        (heads * (dim + selected) + TILE * dim) * size_of::<f32>()
    }

    /// `out[h] = sigmoid(gate_h) · Σ_j softmax_j(q_h · key_j / √dim) value_j` over the selected tokens; `heads` holds
    /// query and gate of each head, `[heads, 2, dim]`; `out` is `[heads, dim]`; all of them share KV head `kv_head`.
    pub fn attend(&mut self, heads: &[f32], selected: &[u32], kv_head: usize, cache: &KvCache, out: &mut [f32]) {
        let dim = cache.layout().head_dim();
        let (count, scale) = (selected.len(), 1.0 / (dim as f32).sqrt());
        let AttendScratch { queries, scores, decoded } = self;
        let scores = &mut scores[..out.len() / dim * count];
        for (query, head) in queries.chunks_exact_mut(dim).zip(heads.chunks_exact(2 * dim)) {
            query.copy_from_slice(&head[..dim]);
        }
        for (t, tokens) in selected.chunks(TILE).enumerate() {
            with_rows(cache.keys(), tokens, kv_head, dim, decoded, |rows| {
                dots(queries, dim, rows, scale, &mut scores[t * TILE..], count);
            });
        }
        scores.chunks_exact_mut(count).for_each(activation::softmax);
        out.fill(0.0);
        for (t, tokens) in selected.chunks(TILE).enumerate() {
            with_rows(cache.values(), tokens, kv_head, dim, decoded, |rows| {
                weigh(&scores[t * TILE..], count, rows, dim, out);
            });
        }
        for (out, head) in out.chunks_exact_mut(dim).zip(heads.chunks_exact(2 * dim)) {
            activation::sigmoid_multiply(out, &head[dim..]);
        }
    }
}

/// Scores of complete blocks for one query row: `Σ_h relu(q_h · key_j)`. q is `[heads, dim]`, `keys` `[blocks, dim]`.
/// The positive factor of the reference is left out: it does not change an order.
pub fn index_scores(q: &[f32], dim: usize, keys: &[f32], products: &mut Vec<f32>, out: &mut [f32]) {
    let heads = q.len() / dim;
    products.resize(heads * TILE, 0.0);
    for (keys, out) in keys.chunks(TILE * dim).zip(out.chunks_mut(TILE)) {
        let count = keys.len() / dim;
        let rows: [&[f32]; TILE] = std::array::from_fn(|j| keys.get(j * dim..(j + 1) * dim).unwrap_or(&[]));
        dots(q, dim, &rows[..count], 1.0, products, TILE);
        for (j, score) in out.iter_mut().enumerate() {
            *score = (0..heads).map(|h| products[h * TILE + j].max(0.0)).fold(0.0, |sum, x| sum + x);
        }
    }
}

fn with_rows(
    stored: Rows<'_>,
    tokens: &[u32],
    head: usize,
    dim: usize,
    decoded: &mut [f32],
    work: impl FnOnce(&[&[f32]]),
) {
    let mut rows: [&[f32]; TILE] = [&[]; TILE];
    if stored.as_f32().is_some() {
        for (row, &token) in rows.iter_mut().zip(tokens) {
            *row = stored.get(token as usize, head, &mut []);
        }
    } else {
        for (out, &token) in decoded.chunks_exact_mut(dim).zip(tokens) {
            stored.read(token as usize, head, out);
        }
        for (row, decoded) in rows.iter_mut().zip(decoded.chunks_exact(dim)) {
            *row = decoded;
        }
    }
    work(&rows[..tokens.len()]);
}

vectorised! {
    /// `out[h * stride + j] = scale · (q_h · row_j)`, each product with the bits of `simd::dot`; q is `[heads, dim]`.
    pub fn dots(q: &[f32], dim: usize, rows: &[&[f32]], scale: f32, out: &mut [f32], stride: usize) = dots_lanes;
}

#[inline(always)]
fn dots_lanes<L: Lanes>(q: &[f32], dim: usize, rows: &[&[f32]], scale: f32, out: &mut [f32], stride: usize) {
    let mut h = 0;
    while h < q.len() / dim {
        let tall = if q.len() / dim - h >= 4 { 4 } else { 1 };
        let (queries, out) = (&q[h * dim..(h + tall) * dim], &mut out[h * stride..]);
        let mut j = 0;
        while j < rows.len() {
            let wide = if rows.len() - j >= 2 { 2 } else { 1 };
            let (rows, out) = (&rows[j..j + wide], &mut out[j..]);
            match (tall, wide) {
                (4, 2) => dot_tile::<L, 4, 2>(queries, dim, rows, scale, out, stride),
                (4, _) => dot_tile::<L, 4, 1>(queries, dim, rows, scale, out, stride),
                (_, 2) => dot_tile::<L, 1, 2>(queries, dim, rows, scale, out, stride),
                _ => dot_tile::<L, 1, 1>(queries, dim, rows, scale, out, stride),
            }
            j += wide;
        }
        h += tall;
    }
}

/// H queries times J rows: eight independent sums hide the latency of the multiply-add.
#[inline(always)]
fn dot_tile<L: Lanes, const H: usize, const J: usize>(
    q: &[f32],
    dim: usize,
    rows: &[&[f32]],
    scale: f32,
    out: &mut [f32],
    stride: usize,
) {
    let groups = dim / WIDTH;
    let queries: [_; H] = std::array::from_fn(|h| q[h * dim..(h + 1) * dim].as_chunks::<WIDTH>());
    let keys: [_; J] = std::array::from_fn(|j| rows[j][..dim].as_chunks::<WIDTH>());
    let (query_groups, key_groups) = (queries.map(|q| &q.0[..groups]), keys.map(|k| &k.0[..groups]));
    let mut sums = [[L::splat(0.0); J]; H];
    for c in 0..groups {
        let keys = key_groups.map(|key| L::load(&key[c]));
        for (sums, query) in sums.iter_mut().zip(query_groups) {
            let query = L::load(&query[c]);
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum = query.mul_add(key, *sum);
            }
        }
    }
    for (h, (sums, query)) in sums.into_iter().zip(queries).enumerate() {
        for (j, (mut sum, key)) in sums.into_iter().zip(keys).enumerate() {
            if !query.1.is_empty() {
                sum = L::load_tail(query.1).mul_add(L::load_tail(key.1), sum);
            }
            out[h * stride + j] = scale * sum.sum();
        }
    }
}

multiversioned! {
    /// `out[h] += Σ_j weight[h * stride + j] · row_j`, in ascending j; out is `[heads, dim]`.
    pub fn weigh(weights: &[f32], stride: usize, rows: &[&[f32]], dim: usize, out: &mut [f32]) {
        let heads = out.len() / dim;
        let mut h = 0;
        while h < heads {
            let tall = if heads - h >= 4 { 4 } else { 1 };
            let mut c = 0;
            while c < dim {
                let wide = if dim - c >= 16 { 16 } else { 1 };
                match (tall, wide) {
                    (4, 16) => weigh_tile::<4, 16>(weights, stride, rows, dim, out, h, c),
                    (_, 16) => weigh_tile::<1, 16>(weights, stride, rows, dim, out, h, c),
                    (4, _) => weigh_tile::<4, 1>(weights, stride, rows, dim, out, h, c),
                    _ => weigh_tile::<1, 1>(weights, stride, rows, dim, out, h, c),
                }
                c += wide;
            }
            h += tall;
        }
    }
}

#[inline(always)]
fn weigh_tile<const H: usize, const N: usize>(
    weights: &[f32],
    stride: usize,
    rows: &[&[f32]],
    dim: usize,
    out: &mut [f32],
    h: usize,
    c: usize,
) {
    let mut sums = [[0f32; N]; H];
    for (i, sum) in sums.iter_mut().enumerate() {
        sum.copy_from_slice(&out[(h + i) * dim + c..][..N]);
    }
    for (j, row) in rows.iter().enumerate() {
        let value: &[f32; N] = row[c..].first_chunk().unwrap_or(&[0.0; N]);
        for (i, sum) in sums.iter_mut().enumerate() {
            let weight = weights[(h + i) * stride + j];
            for n in 0..N {
                sum[n] = weight.mul_add(value[n], sum[n]);
            }
        }
    }
    for (i, sum) in sums.iter().enumerate() {
        out[(h + i) * dim + c..][..N].copy_from_slice(sum);
    }
}
