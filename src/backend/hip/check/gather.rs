//! Gathered attention over packed keys and values.

use super::super::abi::{GatherAttendArgs, KvPlanes};
use super::Class;
use super::bench::{Bench, Expected, U16, gamma, sigmoid};
use super::pack::{Packed, pack};
use super::qsa_index::layout;
use crate::config::KvMode;
use crate::error::Result;

/// Attention, over what `qsa_pack_f32` made, of rows whose selections end in every way.
pub fn gather(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(7);
    // tokens, dim, heads, KV heads, positions of the rows, blocks that a row selects at most
    for (tokens, dim, heads, kv_heads, positions, budget) in [
        (1, 64, 4, 2, vec![0], 512),
        (7, 256, 24, 2, vec![0, 2, 3, 6], 512),
        (301, 64, 4, 2, vec![126, 127, 128, 300], 32),
        (150, 256, 24, 2, vec![99, 149], 512),
        (1100, 256, 24, 2, vec![1097], 200),
        (6, 64, 4, 2, (0..6).collect(), 512),
        (2056, 64, 4, 2, (2046..2056).collect(), 512),
        (61_448, 64, 4, 1, vec![61_435, 61_440, 61_446, 61_447], 512),
    ] {
        let width = kv_heads * dim;
        let (k, v) = (bench.signed(tokens * width), bench.signed(tokens * width));
        let (k_in, v_in) = (bench.upload(&k)?, bench.upload(&v)?);
        let planes = [KvPlanes { keys: k_in.address(), values: v_in.address(), raw: 0, blocks: 0 }];
        let Packed { keys, values } =
            pack(bench, &layout(KvMode::F32, heads, kv_heads, dim, 32)?, &planes, 0, 0..tokens)?;

        let rows = positions.len();
        let selections: Vec<Vec<u32>> =
            positions.iter().map(|&position| select(bench, (position + 1) / 4, budget)).collect();
        let max_blocks = budget.max(1);
        let blocks: Vec<u32> = selections
            .iter()
            .flat_map(|s| s.iter().copied().chain(std::iter::repeat(u32::MAX)).take(max_blocks))
            .collect();
        let counts: Vec<u32> = selections.iter().map(|s| s.len() as u32).collect();
        let positions_u32: Vec<u32> = positions.iter().map(|&p| p as u32).collect();
        let q: Vec<f32> = bench.signed(rows * heads * dim).into_iter().map(|v| 3.0 * v).collect();
        let gate = bench.signed(rows * heads * 2 * dim);
        let (q_in, g, b) = (bench.upload(&q)?, bench.upload(&gate)?, bench.upload(&blocks)?);
        let (c, p) = (bench.upload(&counts)?, bench.upload(&positions_u32)?);
        let out = bench.output::<f32>(rows * heads * dim)?;
        let scale = 1.0 / (dim as f32).sqrt();
        let arguments = GatherAttendArgs {
            out: out.address(),
            q: q_in.address(),
            gate: g.address() + 4 * dim as u64,
            k: keys.address(),
            v: values.address(),
            blocks: b.address(),
            counts: c.address(),
            positions: p.address(),
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            max_blocks: max_blocks as u32,
            gate_row_stride: (heads * 2 * dim) as u32,
            gate_head_stride: 2 * dim as u32,
            scale,
        };
        let kernel = format!("qsa_gather_attend_{dim}");
        bench.launch(&kernel, rows * kv_heads, &arguments)?;
        let mut want = Vec::with_capacity(rows * heads * dim);
        for (row, &position) in positions.iter().enumerate() {
            let whole = selections[row].iter().flat_map(|&b| 4 * b as usize..4 * b as usize + 4);
            let entries: Vec<usize> = whole.chain((position + 1) / 4 * 4..position + 1).collect();
            for head in 0..heads {
                let at = (row * heads + head) * dim;
                let kv = head / (heads / kv_heads);
                let vector = |x: &'_ [f32], token: usize| x[token * width + kv * dim..][..dim].to_vec();
                let gate = &gate[(row * heads + head) * 2 * dim + dim..][..dim];
                want.extend(attend(&q[at..][..dim], gate, scale, &entries, |t| (vector(&k, t), vector(&v, t))));
            }
        }
        let got = bench.read::<f32>(&out)?;
        let case = format!("{rows} rows, {heads}/{kv_heads} heads of {dim}, {tokens} tokens, {budget} blocks");
        bench.close(&kernel, case, Class::Ordered, &got, &want);
    }
    Ok(())
}

/// `budget` of the `complete` blocks, or all, in no order.
fn select(bench: &mut Bench<'_>, complete: usize, budget: usize) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..complete as u32).collect();
    for i in (1..blocks.len()).rev() {
        let j = (bench.uniform() * (i + 1) as f32) as usize;
        blocks.swap(i, j.min(i));
    }
    blocks.truncate(budget);
    blocks
}

/// One head in F64 from unrounded operands, with the bound that F16 operands have.
///
/// A score is a sum of products of two rounded factors: off by `δ = (2 U16 + U16² + γ(dim)) Σ|q k| scale`. A weight is
/// then off by the factor e^±δ and its own rounding, or by half a unit of F16's smallest number; so is their sum. A
/// value is rounded once. exp2 and the sums in F32 (chain: all entries of a wave, eight waves) add γ.
fn attend(
    q: &[f32],
    gate: &[f32],
    scale: f32,
    entries: &[usize],
    row: impl Fn(usize) -> (Vec<f32>, Vec<f32>),
) -> Vec<Expected> {
    let dot = |k: &[f32], f: fn(f64) -> f64| q.iter().zip(k).map(|(q, k)| f(*q as f64 * *k as f64)).sum::<f64>();
    let rows: Vec<_> = entries.iter().map(|&token| row(token)).collect();
    let scores: Vec<f64> = rows.iter().map(|(k, _)| dot(k, |x| x) * scale as f64).collect();
    let sizes = rows.iter().map(|(k, _)| dot(k, f64::abs) * scale as f64).fold(0.0, f64::max);
    let delta = (2.0 * U16 + U16 * U16 + gamma(q.len() + 1)) * sizes;
    let high = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - high).exp()).collect();
    let total: f64 = weights.iter().sum();
    let chain = gamma(entries.len() + 64);
    let relative = 2.0 * (delta.exp_m1() + U16 + chain) + U16 + chain;
    // Half of F16's least number, for each entry, as a share of the total.
    let least = entries.len() as f64 / (1u64 << 25) as f64 / total;
    (0..q.len())
        .map(|i| {
            let sum = |f: fn(f64) -> f64| weights.iter().zip(&rows).map(|(w, (_, v))| w * f(v[i] as f64)).sum::<f64>();
            let gate = sigmoid(gate[i] as f64);
            let largest = rows.iter().map(|(_, v)| (v[i] as f64).abs()).fold(0.0, f64::max);
            let bound = (relative * sum(f64::abs) / total + 2.0 * least * largest) * gate;
            Expected { value: sum(|x| x) / total * gate, bound }
        })
        .collect()
}
