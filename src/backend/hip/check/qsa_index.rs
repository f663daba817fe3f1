//! QSA before its attention: new rows of the state, block scores, selection.

use std::collections::BTreeSet;

use half::bf16;

use super::super::abi::{KvPlanes, QsaPrepareArgs, QsaScoreArgs, QsaSelectArgs};
use super::super::qsa::NARROW_BLOCKS;
use super::Class;
use super::bench::{Bench, Expected, Output, gamma};
use super::dense::norm_error;
use super::rope::rotated;
use crate::backend::cpu::{norm, select as rule};
use crate::config::{AttentionShape, IndexerShape, KvMode};
use crate::error::Result;
use crate::state::kv::{KvLayout, Plane, codec};

/// Name of a mode in kernels' names.
pub fn suffix(mode: KvMode) -> &'static str {
    match mode {
        KvMode::F32 => "f32",
        KvMode::Fp8 => "fp8",
        KvMode::Q8 => "q8",
    }
}

/// A layout of `kv_heads` heads of `dim` and index keys of `index_dim`, four tokens a block.
pub fn layout(mode: KvMode, heads: usize, kv_heads: usize, dim: usize, index_dim: usize) -> Result<KvLayout> {
    KvLayout::new(
        mode,
        AttentionShape { query_heads: heads, kv_heads, head_dim: dim },
        IndexerShape { heads: 4, head_dim: index_dim, budget: 2048, ratio: 4 },
    )
}

/// Decodes a row of keys or values.
pub fn decode(layout: &KvLayout, bytes: &[u8]) -> Vec<f32> {
    let (heads, dim) = (layout.kv_heads(), layout.head_dim());
    let mut out = vec![0.0; heads * dim];
    match layout.mode() {
        KvMode::F32 => out.copy_from_slice(&bytemuck::pod_collect_to_vec(bytes)),
        KvMode::Q8 => {
            let (codes, scales) = bytes.split_at(heads * dim);
            codec::decode_q8(codes, scales, &mut out);
        }
        KvMode::Fp8 => {
            let (codes, scales) = bytes.split_at(heads * dim);
            for ((codes, scale), out) in codes.chunks(dim).zip(scales.chunks(2)).zip(out.chunks_mut(dim)) {
                codec::decode_fp8(codes, half::f16::from_le_bytes([scale[0], scale[1]]), out);
            }
        }
    }
    out
}

/// Encodes a row of keys or values.
pub fn encode(layout: &KvLayout, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; layout.row_bytes(Plane::Keys)];
    match layout.mode() {
        KvMode::F32 => bytes.copy_from_slice(bytemuck::cast_slice(values)),
        KvMode::Q8 => {
            let (codes, scales) = bytes.split_at_mut(values.len());
            codec::encode_q8(values, codes, scales);
        }
        KvMode::Fp8 => {
            let dim = layout.head_dim();
            let (codes, scales) = bytes.split_at_mut(values.len());
            for ((head, codes), scale) in values.chunks(dim).zip(codes.chunks_mut(dim)).zip(scales.chunks_mut(2)) {
                scale.copy_from_slice(&codec::encode_fp8(head, codes).to_le_bytes());
            }
        }
    }
    bytes
}

/// How far a decoded head may be from its values (codec.rs), which carry bounds of their own.
fn stored(mode: KvMode, head: &[Expected]) -> Vec<Expected> {
    let most = head.iter().map(|e| e.value.abs() + e.bound).fold(0.0, f64::max);
    let step = |e: &Expected| match mode {
        KvMode::F32 => 0.0,
        // Half a step of three mantissa bits or of subnormals, after a scale rounded up to F16.
        KvMode::Fp8 => ((e.value.abs() + e.bound) / 16.0).max(most / 448.0 * 1.001 / 1024.0) * 1.000_001,
        KvMode::Q8 => most / 127.0 * 1.001 / 2.0,
    };
    head.iter().map(|e| Expected { value: e.value, bound: e.bound + step(e) }).collect()
}

/// An index element as it is stored.
fn index_stored(mode: KvMode, x: f32) -> f32 {
    if mode == KvMode::F32 { x } else { bf16::from_f32(x).to_f32() }
}

fn index_bytes(mode: KvMode, values: &[f32]) -> Vec<u8> {
    match mode {
        KvMode::F32 => bytemuck::cast_slice(values).to_vec(),
        _ => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
    }
}

fn index_values(mode: KvMode, bytes: &[u8]) -> Vec<f32> {
    match mode {
        KvMode::F32 => bytemuck::pod_collect_to_vec(bytes),
        _ => bytes.chunks(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
    }
}

/// The planes of a sequence on the device.
struct State {
    planes: [Output; 4],
}

impl State {
    fn new(bench: &Bench<'_>, layout: &KvLayout, tokens: usize, raw: &[f32]) -> Result<State> {
        let empty = |plane: Plane| bench.output::<u8>(layout.rows(plane, tokens) * layout.row_bytes(plane));
        let mut raw = index_bytes(layout.mode(), raw);
        raw.resize(tokens * layout.row_bytes(Plane::RawIndex), 0xff);
        let raw = bench.update(&raw)?;
        Ok(State { planes: [empty(Plane::Keys)?, empty(Plane::Values)?, raw, empty(Plane::BlockKeys)?] })
    }
    fn addresses(&self) -> KvPlanes {
        let [keys, values, raw, blocks] = self.planes.each_ref().map(Output::address);
        KvPlanes { keys, values, raw, blocks }
    }
    fn row(&self, bench: &Bench<'_>, layout: &KvLayout, plane: Plane, row: usize) -> Result<Vec<u8>> {
        let (bytes, size) = (bench.read::<u8>(&self.planes[plane as usize])?, layout.row_bytes(plane));
        Ok(bytes[row * size..(row + 1) * size].to_vec())
    }
}

/// Two sequences whose rows close blocks begun in this step and in earlier ones.
pub fn prepare(bench: &mut Bench<'_>) -> Result<()> {
    for mode in [KvMode::F32, KvMode::Fp8, KvMode::Q8] {
        for (heads, kv_heads, dim, index_heads, index_dim, half) in
            [(24, 2, 256, 4, 128, 32), (4, 2, 64, 4, 32, 16), (3, 1, 32, 2, 16, 8)]
        {
            bench.seed(20 + dim as u64);
            prepare_case(bench, &layout(mode, heads, kv_heads, dim, index_dim)?, heads, index_heads, half)?;
        }
    }
    Ok(())
}

fn prepare_case(bench: &mut Bench<'_>, l: &KvLayout, heads: usize, index_heads: usize, half: usize) -> Result<()> {
    let (kv_heads, dim, index_dim, mode) = (l.kv_heads(), l.head_dim(), l.index_dim(), l.mode());
    let (positions, sequence): (&[u32], &[u32]) = (&[2, 3, 4, 7, 8], &[0, 0, 0, 1, 1]);
    let (rows, tokens) = (positions.len(), 9);
    let olds = [bench.signed(2 * index_dim), bench.signed(7 * index_dim)];
    let states = [State::new(bench, l, tokens, &olds[0])?, State::new(bench, l, tokens, &olds[1])?];
    let gate = bench.signed(rows * heads * 2 * dim);
    let (keys, values) = (bench.signed(rows * kv_heads * dim), bench.signed(rows * kv_heads * dim));
    let (iq, ik) = (bench.signed(rows * index_heads * index_dim), bench.signed(rows * index_dim));
    let norms = [dim, dim, index_dim, index_dim].map(|width| bench.signed(width));
    let tables: [(Vec<f32>, Vec<f32>); 2] = [0, 1].map(|_| {
        let angles = bench.signed(rows * half);
        angles.iter().map(|a| ((3.0 * a).cos(), (3.0 * a).sin())).unzip()
    });
    let planes = bench.upload(&states.each_ref().map(State::addresses))?;
    let (s, p) = (bench.upload(sequence)?, bench.upload(positions)?);
    let (g, k, v, q, i) =
        (bench.upload(&gate)?, bench.upload(&keys)?, bench.upload(&values)?, bench.upload(&iq)?, bench.upload(&ik)?);
    let [qn, kn, iqn, ikn] = [0, 1, 2, 3].map(|n| bench.upload(&norms[n]));
    let (qn, kn, iqn, ikn) = (qn?, kn?, iqn?, ikn?);
    let (c, n) = (bench.upload(&tables[0].0)?, bench.upload(&tables[0].1)?);
    let (bc, bn) = (bench.upload(&tables[1].0)?, bench.upload(&tables[1].1)?);
    let queries = bench.output::<f32>(rows * heads * dim)?;
    let index_queries = bench.output::<f32>(rows * index_heads * index_dim)?;
    let arguments = QsaPrepareArgs {
        queries: queries.address(),
        index_queries: index_queries.address(),
        planes: planes.address(),
        sequence: s.address(),
        positions: p.address(),
        query_gate: g.address(),
        keys: k.address(),
        values: v.address(),
        index_query: q.address(),
        index_key: i.address(),
        query_norm: qn.address(),
        key_norm: kn.address(),
        index_query_norm: iqn.address(),
        index_key_norm: ikn.address(),
        cos: c.address(),
        sin: n.address(),
        block_cos: bc.address(),
        block_sin: bn.address(),
        rows: rows as u32,
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        dim: dim as u32,
        index_heads: index_heads as u32,
        index_dim: index_dim as u32,
        half: half as u32,
        ratio: 4,
        eps: 1e-6,
        unused: 0,
    };
    let kernel = format!("qsa_prepare_{}", suffix(mode));
    bench.launch(&kernel, (rows * (heads + 2 * kv_heads + index_heads + 1)).div_ceil(8), &arguments)?;

    let head = |x: &[f32], weight: &[f32], table: &(Vec<f32>, Vec<f32>), row: usize, extra: f64| {
        let mut x = x.to_vec();
        norm::rms(&mut x, weight, 1e-6);
        let error = norm_error(x.len().div_ceil(32) + 5, x.len()) + extra;
        let part = row * half..(row + 1) * half;
        let mut want = rotated(&x, &table.0[part.clone()], &table.1[part], error);
        want.extend(x[2 * half..].iter().map(|&v| Expected { value: v as f64, bound: error * v.abs() as f64 }));
        want
    };
    let case = format!("{heads}/{kv_heads} heads of {dim}, index {index_heads} of {index_dim}");
    let heads_of = |x: &[f32], width: usize, stride: usize, weight: &[f32], count: usize| -> Vec<Expected> {
        let heads = x.chunks(stride).enumerate();
        heads.flat_map(|(i, x)| head(&x[..width], weight, &tables[0], i / count, 0.0)).collect()
    };
    let got = bench.read::<f32>(&queries)?;
    let want = heads_of(&gate, dim, 2 * dim, &norms[0], heads);
    bench.close(&kernel, format!("{case}, queries"), Class::Ordered, &got, &want);
    let got = bench.read::<f32>(&index_queries)?;
    let want = heads_of(&iq, index_dim, index_dim, &norms[2], index_heads);
    bench.close(&kernel, format!("{case}, index queries"), Class::Ordered, &got, &want);

    let (mut key_got, mut key_want, mut exact_got, mut exact_want) = (vec![], vec![], vec![], vec![]);
    let (mut block_got, mut block_want) = (vec![], vec![]);
    for row in 0..rows {
        let (state, token) = (&states[sequence[row] as usize], positions[row] as usize);
        let width = kv_heads * dim;
        key_got.extend(decode(l, &state.row(bench, l, Plane::Keys, token)?));
        for x in keys[row * width..][..width].chunks(dim) {
            key_want.extend(stored(mode, &head(x, &norms[1], &tables[0], row, 0.0)));
        }
        let raw = &ik[row * index_dim..][..index_dim];
        exact_got.extend(state.row(bench, l, Plane::Values, token)?);
        exact_got.extend(state.row(bench, l, Plane::RawIndex, token)?);
        exact_want.extend(encode(l, &values[row * width..][..width]));
        exact_want.extend(index_bytes(mode, raw));
        if token % 4 != 3 {
            continue;
        }
        let mut mean = vec![0.0f32; index_dim];
        for back in (0..4).rev() {
            let at = token - back;
            let first = positions[sequence.iter().position(|&s| s == sequence[row]).unwrap_or(0)] as usize;
            let source = match at.checked_sub(first) {
                Some(ahead) => &ik[(row - back) * index_dim..][..index_dim * usize::from(ahead < rows)],
                None => &olds[sequence[row] as usize][at * index_dim..][..index_dim],
            };
            mean.iter_mut().zip(source).for_each(|(m, &x)| *m += index_stored(mode, x));
        }
        mean.iter_mut().for_each(|m| *m /= 4.0);
        // Sums of at most four, in the same order on both sides: the mean has the same bits.
        let rounded = if mode == KvMode::F32 { 0.0 } else { 1.0 / 256.0 };
        let want = head(&mean, &norms[3], &tables[1], row, 0.0);
        block_want.extend(
            want.iter().map(|e| Expected { value: e.value, bound: e.bound + rounded * (e.value.abs() + e.bound) }),
        );
        block_got.extend(index_values(mode, &state.row(bench, l, Plane::BlockKeys, token / 4)?));
    }
    bench.close(&kernel, format!("{case}, keys"), Class::Ordered, &key_got, &key_want);
    bench.exact(&kernel, format!("{case}, values and raw index keys"), &exact_got, &exact_want);
    bench.close(&kernel, format!("{case}, block keys"), Class::Ordered, &block_got, &block_want);
    Ok(())
}

/// Scores of rows of two sequences by every kernel: within a bound, and the same bits whatever the rows' company.
pub fn score(bench: &mut Bench<'_>) -> Result<()> {
    for mode in [KvMode::F32, KvMode::Fp8] {
        for (heads, dim, positions, sequence) in [
            (4, 128, vec![2056u32, 2057], vec![0u32, 0]),
            (4, 32, (1..20).map(|p| 3 * p).collect(), vec![0; 19]),
            (4, 128, vec![1020, 1021, 1022, 1023, 1024, 3, 4, 5, 1500], vec![0, 0, 0, 0, 0, 1, 1, 1, 0]),
            (2, 16, vec![0, 1, 2, 3], vec![0; 4]),
            (2, 16, (0..6).chain(2046..2056).collect(), vec![0; 16]),
            (1, 16, (61_435..61_448).collect(), vec![1; 13]),
        ] {
            bench.seed(30 + dim as u64);
            let blocks = (positions.iter().max().map_or(0, |&p| p as usize) / 4 + 1).max(520);
            let keys = [0, 1].map(|_| bench.signed(blocks * dim));
            let planes: [Output; 2] = {
                let [a, b] = keys.each_ref().map(|keys| bench.update(&index_bytes(mode, keys)));
                [a?, b?]
            };
            let queries = bench.signed(positions.len() * heads * dim);
            let table = planes.each_ref().map(|p| KvPlanes { keys: 0, values: 0, raw: 0, blocks: p.address() });
            let (q, t) = (bench.upload(&queries)?, bench.upload(&table)?);
            let (s, p) = (bench.upload(&sequence)?, bench.upload(&positions)?);
            let count = positions.len();
            let element = if mode == KvMode::F32 { "f32" } else { "bf16" };
            let mut bits: Option<Vec<f32>> = None;
            for rows in [1, 4, 8, 16] {
                let kernel = format!("qsa_score_{element}_r{rows}");
                let scores = bench.output::<f32>(count * blocks)?;
                let arguments = QsaScoreArgs {
                    scores: scores.address(),
                    queries: q.address(),
                    planes: t.address(),
                    sequence: s.address(),
                    positions: p.address(),
                    first: 0,
                    count: count as u32,
                    max_blocks: blocks as u32,
                    heads: heads as u32,
                    dim: dim as u32,
                    ratio: 4,
                };
                bench.launch(&kernel, count.div_ceil(rows) * blocks.div_ceil(256), &arguments)?;
                let all = bench.read::<f32>(&scores)?;
                let (mut got, mut want) = (Vec::new(), Vec::new());
                for row in 0..count {
                    let keys = &keys[sequence[row] as usize];
                    for block in 0..blocks {
                        let value = all[row * blocks + block];
                        if block >= (positions[row] as usize + 1) / 4 {
                            // Not written: still poison, which no score is.
                            want.push(Expected { value: 0.0, bound: 0.0 });
                            got.push(if value.is_nan() { 0.0 } else { 1.0 });
                            continue;
                        }
                        let key = &keys[block * dim..][..dim];
                        let mut expected = Expected { value: 0.0, bound: 0.0 };
                        for h in 0..heads {
                            let query = &queries[(row * heads + h) * dim..][..dim];
                            let products =
                                || query.iter().zip(key).map(|(q, &k)| *q as f64 * index_stored(mode, k) as f64);
                            expected.value += products().sum::<f64>().max(0.0);
                            expected.bound += gamma(dim + heads) * products().map(f64::abs).sum::<f64>();
                        }
                        got.push(value);
                        want.push(expected);
                    }
                }
                let case = format!("{count} rows, {heads} heads of {dim}, {blocks} blocks");
                bench.close(&kernel, case.clone(), Class::Ordered, &got, &want);
                match &bits {
                    None => bits = Some(got),
                    Some(first) => bench.exact(&kernel, format!("{case}, as row by row"), &got, first),
                }
            }
        }
    }
    Ok(())
}

/// What qsa_narrow leaves: a row's candidates one behind the other.
fn candidates_of(shape: &IndexerShape, positions: &[u32], scores: &[f32], parts: usize) -> Vec<u32> {
    let (budget, ratio) = (shape.budget_blocks(), shape.ratio);
    let mut all = vec![u32::MAX; positions.len() * parts * budget];
    let (mut order, mut tokens) = (Vec::new(), Vec::new());
    let rows = scores.chunks(scores.len() / positions.len()).zip(positions);
    for ((scores, &position), out) in rows.zip(all.chunks_mut(parts * budget)) {
        let scores = &scores[..(position as usize + 1) / ratio];
        if scores.len() <= NARROW_BLOCKS {
            continue;
        }
        let mut blocks = Vec::new();
        for (part, scores) in scores.chunks(NARROW_BLOCKS).enumerate() {
            rule::select(shape, scores.len() * ratio - 1, scores, &mut order, &mut tokens);
            blocks.extend(tokens.chunks(ratio).map(|t| (part * NARROW_BLOCKS + t[0] as usize / ratio) as u32));
        }
        out[..blocks.len()].copy_from_slice(&blocks);
    }
    all
}

/// Selections at the edges of the budget, of a list of candidates and of the longest context, with and without ties; out of
/// candidates and out of all blocks.
pub fn select(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(40);
    for (budget, positions, kinds) in [
        (512, (0..6).chain(2046..2056).collect::<Vec<u32>>(), 3),
        (512, vec![16_382, 16_383, 16_386, 16_387, 18_000, 35_000], 3),
        (512, vec![61_435, 61_440, 61_443, 61_447], 3),
        (512, vec![262_143, 300_001], 2),
        (32, vec![126, 127, 131, 132, 300], 3),
        (1, vec![3, 7, 255], 3),
    ] {
        let ratio = 4;
        let max_blocks = *positions.iter().max().unwrap_or(&0) as usize / ratio + 1;
        let shape = IndexerShape { heads: 4, head_dim: 128, budget: budget * ratio, ratio };
        for kind in 0..kinds {
            let count = positions.len();
            let mut scores = bench.signed(count * max_blocks);
            for score in &mut scores {
                *score = match kind {
                    0 => score.max(0.0),                  // half of them exactly zero
                    1 => (*score * 4.0).round().max(0.0), // five values
                    _ => 0.0,                             // all equal
                };
            }
            let (s, p) = (bench.upload(&scores)?, bench.upload(&positions)?);
            let (mut want, mut want_counts) = (vec![u32::MAX; count * budget], Vec::new());
            let (mut order, mut tokens) = (Vec::new(), Vec::new());
            for (row, &position) in positions.iter().enumerate() {
                let complete = (position as usize + 1) / ratio;
                rule::select(
                    &shape,
                    position as usize,
                    &scores[row * max_blocks..][..complete],
                    &mut order,
                    &mut tokens,
                );
                let chosen = complete.min(budget);
                want_counts.push(chosen as u32);
                for (out, tokens) in want[row * budget..].iter_mut().zip(tokens.chunks(ratio)).take(chosen) {
                    *out = tokens[0] / ratio as u32;
                }
            }
            let case = format!("{count} rows, budget {budget}, up to {max_blocks} blocks, ties {kind}");
            let parts = max_blocks.div_ceil(NARROW_BLOCKS);
            // One workgroup for all blocks is what short contexts have; of long ones it is slow on the emulator.
            let directly = if max_blocks < 10_000 { 0 } else { parts };
            for parts in BTreeSet::from([directly, parts]) {
                let (blocks, counts) = (bench.output::<u32>(count * budget)?, bench.output::<u32>(count)?);
                let candidates = bench.output::<u32>((count * parts * budget).max(1))?;
                let arguments = QsaSelectArgs {
                    blocks: blocks.address(),
                    counts: counts.address(),
                    candidates: candidates.address(),
                    scores: s.address(),
                    positions: p.address(),
                    first: 0,
                    count: count as u32,
                    max_blocks: max_blocks as u32,
                    budget: budget as u32,
                    ratio: ratio as u32,
                    parts: parts as u32,
                };
                let case = format!("{case}, {parts} parts");
                if parts > 0 {
                    bench.launch("qsa_narrow", count * parts, &arguments)?;
                    let want = candidates_of(&shape, &positions, &scores, parts);
                    bench.exact("qsa_narrow", case.clone(), &bench.read::<u32>(&candidates)?, &want);
                }
                bench.launch("qsa_select", count, &arguments)?;
                bench.exact("qsa_select", format!("{case}, counts"), &bench.read::<u32>(&counts)?, &want_counts);
                bench.exact("qsa_select", case, &bench.read::<u32>(&blocks)?, &want);
            }
        }
    }
    Ok(())
}
