//! QSA attention of few rows over each stored state.

use super::super::abi::{KvPlanes, QsaAttendArgs, QsaMergeArgs};
use super::Class;
use super::bench::{Bench, Expected, SIGMOID, U32, gamma, sigmoid};
use super::qsa_index::{decode, encode, layout, suffix};
use crate::config::KvMode;
use crate::error::Result;

/// What an F32 exponential adds, relative.
const EXPONENTIAL: f64 = 24.0 * U32;

struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    positions: Vec<usize>,
    /// Every how many-th block is read; 0: all, without a list.
    stride: usize,
    split_entries: usize,
}

/// Lists that end within a tile, a split and a block, of one row and of several sequences; dense reading.
pub fn attend(bench: &mut Bench<'_>) -> Result<()> {
    for mode in [KvMode::F32, KvMode::Fp8, KvMode::Q8] {
        for case in [
            Case { heads: 24, kv_heads: 2, dim: 256, positions: vec![530], stride: 2, split_entries: 64 },
            Case { heads: 24, kv_heads: 2, dim: 256, positions: vec![0, 3, 130], stride: 1, split_entries: 64 },
            Case { heads: 24, kv_heads: 2, dim: 256, positions: vec![200, 201], stride: 0, split_entries: 128 },
            Case { heads: 4, kv_heads: 2, dim: 64, positions: vec![5, 66, 67, 300], stride: 3, split_entries: 64 },
            Case { heads: 3, kv_heads: 1, dim: 32, positions: vec![63, 64], stride: 1, split_entries: 64 },
            Case { heads: 2, kv_heads: 1, dim: 32, positions: (0..6).collect(), stride: 1, split_entries: 64 },
            Case { heads: 2, kv_heads: 1, dim: 32, positions: (2046..2056).collect(), stride: 1, split_entries: 64 },
        ] {
            bench.seed(50 + case.dim as u64);
            run(bench, mode, &case)?;
        }
    }
    Ok(())
}

fn run(bench: &mut Bench<'_>, mode: KvMode, case: &Case) -> Result<()> {
    let &Case { heads, kv_heads, dim, ref positions, stride, split_entries } = case;
    let l = layout(mode, heads, kv_heads, dim, 32)?;
    let (rows, width, group) = (positions.len(), kv_heads * dim, heads / kv_heads);
    let tokens = positions.iter().max().unwrap_or(&0) + 1;
    // Two sequences of the same length; odd rows read the second.
    let sequence: Vec<u32> = (0..rows as u32).map(|r| r % 2).collect();
    let state = |bench: &mut Bench<'_>| -> (Vec<u8>, Vec<f32>) {
        let rows: Vec<Vec<u8>> = (0..tokens).map(|_| encode(&l, &bench.signed(width))).collect();
        (rows.concat(), rows.iter().flat_map(|row| decode(&l, row)).collect())
    };
    let states = [0, 1].map(|_| (state(bench), state(bench)));
    let mut kept = Vec::new();
    for (keys, values) in &states {
        kept.push((bench.upload(&keys.0)?, bench.upload(&values.0)?));
    }
    let planes: Vec<KvPlanes> =
        kept.iter().map(|(k, v)| KvPlanes { keys: k.address(), values: v.address(), raw: 0, blocks: 0 }).collect();
    let lists: Vec<Vec<u32>> =
        positions.iter().map(|p| (0..((p + 1) / 4) as u32).step_by(stride.max(1)).collect()).collect();
    let max_blocks = lists.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let padded: Vec<u32> =
        lists.iter().flat_map(|l| l.iter().copied().chain(std::iter::repeat(u32::MAX)).take(max_blocks)).collect();
    let counts: Vec<u32> = lists.iter().map(|l| l.len() as u32).collect();
    let positions_u32: Vec<u32> = positions.iter().map(|&p| p as u32).collect();
    let splits = (4 * max_blocks + 3).div_ceil(split_entries);
    let queries: Vec<f32> = bench.signed(rows * heads * dim).into_iter().map(|q| 3.0 * q).collect();
    let gate = bench.signed(rows * heads * 2 * dim);
    let (q, g, t) = (bench.upload(&queries)?, bench.upload(&gate)?, bench.upload(&planes)?);
    let (s, p) = (bench.upload(&sequence)?, bench.upload(&positions_u32)?);
    let (b, c) = (bench.upload(&padded)?, bench.upload(&counts)?);
    let partial = bench.output::<f32>(rows * kv_heads * splits * group * dim)?;
    let sums = bench.output::<f32>(rows * kv_heads * splits * group * 2)?;
    let out = bench.output::<f32>(rows * heads * dim)?;
    let listed = |address: u64| if stride == 0 { 0 } else { address };
    let attend = QsaAttendArgs {
        partial: partial.address(),
        partial_sums: sums.address(),
        queries: q.address(),
        planes: t.address(),
        sequence: s.address(),
        positions: p.address(),
        blocks: listed(b.address()),
        counts: listed(c.address()),
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        max_blocks: max_blocks as u32,
        splits: splits as u32,
        split_entries: split_entries as u32,
        ratio: 4,
        dim: dim as u32,
        scale: 1.0 / (dim as f32).sqrt(),
    };
    let merge = QsaMergeArgs {
        out: out.address(),
        partial: partial.address(),
        partial_sums: sums.address(),
        query_gate: g.address(),
        positions: p.address(),
        counts: listed(c.address()),
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        splits: splits as u32,
        split_entries: split_entries as u32,
        ratio: 4,
        dim: dim as u32,
    };
    let kernel = format!("qsa_attend_{}_g{}", suffix(mode), if group > 4 { 12 } else { 4 });
    bench.launch(&kernel, rows * kv_heads * splits, &attend)?;
    bench.launch("qsa_merge", rows * heads, &merge)?;

    let mut want = Vec::with_capacity(rows * heads * dim);
    for (row, &position) in positions.iter().enumerate() {
        let whole = lists[row].iter().flat_map(|&block| 4 * block as usize..4 * block as usize + 4);
        let entries: Vec<usize> = whole.chain((position + 1) / 4 * 4..position + 1).collect();
        let ((_, keys), (_, values)) = &states[sequence[row] as usize];
        for head in 0..heads {
            let at = head / group * dim;
            let rows: Vec<_> = entries.iter().map(|t| (&keys[t * width + at..], &values[t * width + at..])).collect();
            let query = &queries[(row * heads + head) * dim..][..dim];
            let gate = &gate[((row * heads + head) * 2 + 1) * dim..][..dim];
            want.extend(head_of(query, gate, attend.scale, &rows));
        }
    }
    let got = bench.read::<f32>(&out)?;
    let list = if stride == 0 { "everything".to_string() } else { format!("every block in {stride}") };
    let case = format!("{heads}/{kv_heads} heads of {dim}, positions {positions:?}, {list}");
    bench.close(&kernel, case, Class::Ordered, &got, &want);
    Ok(())
}

/// Lists that fill no split, one and several, selected and dense, with splits behind their end that hold no numbers.
pub fn merge(bench: &mut Bench<'_>) -> Result<()> {
    for (heads, kv_heads, dim, lists) in [
        (24, 2, 256, &[(2048, 2051), (16, 66), (0, 1)][..]),
        (4, 2, 64, &[(15, 63), (16, 64), (31, 127)]),
        (3, 1, 32, &[(1, 4)]),
    ] {
        for dense in [false, true] {
            bench.seed(90 + dim as u64);
            merge_case(bench, heads, kv_heads, dim, lists, dense)?;
        }
    }
    Ok(())
}

/// `lists`: of each row the selected blocks and the tokens it sees; `dense`: it reads all of them.
fn merge_case(
    bench: &mut Bench<'_>,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    lists: &[(usize, usize)],
    dense: bool,
) -> Result<()> {
    let (rows, group, split_entries) = (lists.len(), heads / kv_heads, 64);
    let entries = |&(selected, seen): &(usize, usize)| {
        if dense { seen } else { 4 * selected.min(seen / 4) + seen % 4 }
    };
    let splits = lists.iter().map(|list| entries(list).div_ceil(split_entries)).max().unwrap_or(1) + 1;
    let mut partial = bench.signed(rows * kv_heads * splits * group * dim);
    let mut sums: Vec<f32> = bench.signed(rows * kv_heads * splits * group * 2);
    // A greatest score in [-4, 4), a sum of weights in [1, 3).
    sums.chunks_mut(2).for_each(|pair| (pair[0], pair[1]) = (4.0 * pair[0], 2.0 + pair[1]));
    let place = |row: usize, head: usize, split: usize| {
        ((row * kv_heads + head / group) * splits + split) * group + head % group
    };
    for (row, list) in lists.iter().enumerate() {
        for (head, split) in
            (0..heads).flat_map(|h| (entries(list).div_ceil(split_entries)..splits).map(move |s| (h, s)))
        {
            let at = place(row, head, split);
            partial[at * dim..(at + 1) * dim].fill(f32::NAN);
            sums[2 * at..2 * at + 2].fill(f32::NAN);
        }
    }
    let gate = bench.signed(rows * heads * 2 * dim);
    let positions: Vec<u32> = lists.iter().map(|(_, seen)| *seen as u32 - 1).collect();
    let counts: Vec<u32> = lists.iter().map(|(selected, seen)| (*selected).min(seen / 4) as u32).collect();
    let (p, m, g) = (bench.upload(&partial)?, bench.upload(&sums)?, bench.upload(&gate)?);
    let (at, c) = (bench.upload(&positions)?, bench.upload(&counts)?);
    let out = bench.output::<f32>(rows * heads * dim)?;
    let arguments = QsaMergeArgs {
        out: out.address(),
        partial: p.address(),
        partial_sums: m.address(),
        query_gate: g.address(),
        positions: at.address(),
        counts: if dense { 0 } else { c.address() },
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        splits: splits as u32,
        split_entries: split_entries as u32,
        ratio: 4,
        dim: dim as u32,
    };
    bench.launch("qsa_merge", rows * heads, &arguments)?;
    let mut want = Vec::with_capacity(rows * heads * dim);
    for (row, head) in (0..rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
        let used = entries(&lists[row]).div_ceil(split_entries);
        let places: Vec<usize> = (0..used).map(|split| place(row, head, split)).collect();
        let high = places.iter().map(|&at| sums[2 * at] as f64).fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = places.iter().map(|&at| (sums[2 * at] as f64 - high).exp()).collect();
        let total: f64 = weights.iter().zip(&places).map(|(w, &at)| w * sums[2 * at + 1] as f64).sum();
        // Weights are off by an exponential and by the rounding of its argument, at most 8; sums by γ of their length.
        let relative = 2.0 * (EXPONENTIAL + 8.0 * U32 + gamma(used + 1)) + 2.0 * U32 + SIGMOID;
        for i in 0..dim {
            let sum = |f: fn(f64) -> f64| -> f64 {
                weights.iter().zip(&places).map(|(w, &at)| w * f(partial[at * dim + i] as f64)).sum()
            };
            let gate = sigmoid(gate[((row * heads + head) * 2 + 1) * dim + i] as f64);
            want.push(Expected { value: sum(|x| x) / total * gate, bound: relative * sum(f64::abs) / total * gate });
        }
    }
    let got = bench.read::<f32>(&out)?;
    let case = format!("{heads}/{kv_heads} heads of {dim}, lists {lists:?}{}", if dense { ", everything" } else { "" });
    bench.close("qsa_merge", case, Class::Ordered, &got, &want);
    Ok(())
}

/// One head in F64 over decoded rows, with the bound of F32: a score is off by `δ = γ(dim + 2) Σ|q k| scale` (the scale
/// and the query's product with it are rounded too), a weight by the factor e^±δ and by its exponential, sums by γ of
/// their length.
fn head_of(query: &[f32], gate: &[f32], scale: f32, rows: &[(&[f32], &[f32])]) -> Vec<Expected> {
    let dot = |key: &[f32], f: fn(f64) -> f64| -> f64 {
        query.iter().zip(key).map(|(q, k)| f(*q as f64 * *k as f64)).sum::<f64>() * scale as f64
    };
    let scores: Vec<f64> = rows.iter().map(|(key, _)| dot(key, |x| x)).collect();
    let sizes = rows.iter().map(|(key, _)| dot(key, f64::abs)).fold(0.0, f64::max);
    let delta = gamma(query.len() + 2) * sizes;
    let high = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - high).exp()).collect();
    let total: f64 = weights.iter().sum();
    let relative = 2.0 * (delta.exp_m1() + 2.0 * EXPONENTIAL + gamma(rows.len() + 64)) + EXPONENTIAL;
    (0..query.len())
        .map(|i| {
            let sum = |f: fn(f64) -> f64| weights.iter().zip(rows).map(|(w, (_, v))| w * f(v[i] as f64)).sum::<f64>();
            let gate = sigmoid(gate[i] as f64);
            Expected { value: sum(|x| x) / total * gate, bound: relative * sum(f64::abs) / total * gate }
        })
        .collect()
}
