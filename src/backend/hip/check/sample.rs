//! Sampling: adjusted logits, the greatest, draws, log-probabilities.

use super::super::abi::{
    SampleAdjustArgs, SampleBias, SampleCount, SampleDrawArgs, SampleLogprobsArgs, SampleParams, SampleResult,
};
use super::Class;
use super::bench::{Bench, Expected, Output, U32, gamma};
use crate::error::Result;

const GROUP: usize = 256;
const CHUNK: usize = 2048;
const MAX_TOP: usize = 20;

/// Order of numbers as order of integers: -0 and 0 are one, a NaN is above all.
fn key(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    match (x.is_nan(), bits >> 31) {
        (true, _) => u32::MAX,
        (_, 1) => !bits,
        _ => bits | 1 << 31,
    }
}

/// The greatest key of every group.
fn maxima(logits: &[f32]) -> Vec<u32> {
    logits.chunks(GROUP).map(|group| group.iter().map(|&x| key(x)).max().unwrap_or(0)).collect()
}

/// Ids in rank order: the greatest logit first, the lowest id among equals.
fn ranked(logits: &[f32]) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by_key(|&id| (!key(logits[id]), id));
    ids
}

/// What cannot be drawn from, or the lowest id among the greatest.
fn greedy(logits: &[f32]) -> SampleResult {
    let best = ranked(logits)[0];
    match logits[best] {
        x if x.is_nan() => SampleResult { id: best as u32, status: 1 },
        f32::NEG_INFINITY => SampleResult { id: 0, status: 2 },
        _ => SampleResult { id: best as u32, status: 0 },
    }
}

/// The first 64 bits of Philox4x32-10 with the seed as its key and the step as its counter.
fn random(seed: u64, step: u64) -> u64 {
    let mut c = [step as u32, (step >> 32) as u32, 0, 0];
    let (mut k0, mut k1) = (seed as u32, (seed >> 32) as u32);
    for _ in 0..10 {
        let (a, b) = (0xd251_1f53 * u64::from(c[0]), 0xcd9e_8d57 * u64::from(c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ k0, b as u32, (a >> 32) as u32 ^ c[3] ^ k1, a as u32];
        (k0, k1) = (k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85));
    }
    u64::from(c[1]) << 32 | u64::from(c[0])
}

/// One row of a case.
struct Row {
    logits: Vec<f32>,
    history: Vec<SampleCount>,
    bias: Vec<SampleBias>,
    /// Whether each id is allowed; empty: all.
    mask: Vec<bool>,
    params: SampleParams,
}

impl Row {
    fn new(logits: Vec<f32>, params: SampleParams) -> Row {
        Row { logits, history: Vec::new(), bias: Vec::new(), mask: Vec::new(), params }
    }

    /// The row after penalties, bias and mask.
    fn adjusted(&self) -> Vec<f32> {
        let (mut row, p) = (self.logits.clone(), &self.params);
        for &SampleCount { id, count } in &self.history {
            let l = &mut row[id as usize];
            *l = if *l < 0.0 { *l * p.repetition_penalty } else { *l / p.repetition_penalty };
            if count > 0 {
                *l -= p.presence_penalty + p.frequency_penalty * count as f32;
            }
        }
        self.bias.iter().for_each(|b| row[b.id as usize] += b.bias);
        let forbidden = row.iter_mut().zip(&self.mask).filter(|(l, allowed)| !**allowed && !l.is_nan());
        forbidden.for_each(|(l, _)| *l = f32::NEG_INFINITY);
        row
    }
}

/// Parameters that change nothing.
fn neutral(temperature: f32) -> SampleParams {
    SampleParams { temperature, top_p: 1.0, repetition_penalty: 1.0, ..SampleParams::default() }
}

/// What the plain arithmetic in F64 says of a draw, and whether the device's may differ from it: it may where a limit is
/// no further off than the errors of the weights that the kernel's contract states.
fn judge(row: &[f32], p: &SampleParams, got: SampleResult) -> SampleResult {
    let greedy = greedy(row);
    if greedy.status != 0 || p.temperature == 0.0 {
        return greedy;
    }
    let max = row[greedy.id as usize];
    let exponent = |id: usize| match row[id] {
        l if l == max => 0.0,
        _ if max == f32::INFINITY => f64::NEG_INFINITY,
        l => (f64::from(l) - f64::from(max)) / f64::from(p.temperature),
    };
    let cut = p.top_k != 0 && (p.top_k as usize) < row.len();
    let filtered = cut || p.top_p < 1.0 || p.min_p > 0.0;
    let mut order = if filtered { ranked(row) } else { (0..row.len()).collect() };
    if cut {
        order.truncate(p.top_k as usize);
    }
    let mut through = vec![0.0];
    let mut slack = 0.0;
    for &id in &order {
        let x = exponent(id);
        let weight = x.exp();
        // An exponent's error counts only where the weight is not zero on both sides.
        slack += if x > -100.0 { weight * (8.0 - x) * U32 + 1.0 / (1u64 << 40) as f64 } else { 0.0 };
        through.push(through[through.len() - 1] + weight);
    }
    // How many ids are kept at least and at most.
    let (mut least, mut most) = (order.len(), order.len());
    if p.top_p < 1.0 {
        let enough = f64::from(p.top_p) * through[order.len()];
        let kept = |enough: f64| through[..order.len()].iter().filter(|&&before| before < enough).count().max(1);
        (least, most) = (kept(enough - 2.0 * slack), kept(enough + 2.0 * slack));
    }
    if p.min_p > 0.0 {
        let limit = f64::from(p.min_p).ln();
        let error = 8.0 * U32 * (limit.abs() + 1.0 + f64::from(max.abs()) / f64::from(p.temperature));
        let kept = |limit: f64| order.iter().filter(|&&id| exponent(id) >= limit).count().max(1);
        (least, most) = (least.min(kept(limit + error)), most.min(kept(limit - error)));
    }
    let share = random(p.seed, p.step) as f64 / 2f64.powi(64);
    let (low, high) = (share * through[least] - 2.0 * slack, share * through[most] + 2.0 * slack);
    let fits = |at: usize| at < most && through[at] <= high && through[at + 1] >= low && exponent(order[at]) > -100.0;
    if got.status == 0 && order.iter().position(|&id| id == got.id as usize).is_some_and(fits) {
        return got;
    }
    let chosen = (0..most).find(|&at| through[at + 1] > share * through[most]).unwrap_or(most - 1);
    SampleResult { id: order[chosen] as u32, status: 0 }
}

/// Rows that end within a group and a chunk, with equal maxima in several groups, with NaNs and with nothing to choose.
pub fn argmax(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(90);
    for vocabulary in [4, 260, 2048, 4100] {
        let mut rows: Vec<Vec<f32>> = (0..6).map(|_| bench.signed(vocabulary)).collect();
        rows[1].iter_mut().for_each(|l| *l = (*l * 3.0).round());
        rows[2].fill(-0.0);
        rows[2][vocabulary - 1] = 0.0;
        rows[3][vocabulary / 2] = f32::NAN;
        rows[3][vocabulary - 1] = -f32::NAN;
        rows[4].fill(f32::NEG_INFINITY);
        rows[5][vocabulary - 2] = f32::INFINITY;
        let groups = vocabulary.div_ceil(GROUP);
        let logits = bench.upload(&rows.concat())?;
        let greatest = bench.output::<u32>(rows.len() * groups)?;
        let sums = bench.output::<f32>(rows.len() * groups)?;
        let results = bench.output::<SampleResult>(rows.len())?;
        let arguments = SampleAdjustArgs {
            maxima: greatest.address(),
            sums: sums.address(),
            logits: logits.address(),
            vocabulary: vocabulary as u32,
            ..SampleAdjustArgs::default()
        };
        bench.launch("sample_adjust", rows.len() * vocabulary.div_ceil(CHUNK), &arguments)?;
        let arguments = SampleDrawArgs {
            results: results.address(),
            logits: logits.address(),
            maxima: greatest.address(),
            vocabulary: vocabulary as u32,
            ..SampleDrawArgs::default()
        };
        bench.launch("sample_argmax", rows.len(), &arguments)?;
        let case = format!("{} rows of {vocabulary}", rows.len());
        let want: Vec<u32> = rows.iter().flat_map(|row| maxima(row)).collect();
        let got = bench.read::<u32>(&greatest)?;
        bench.exact("sample_adjust", format!("{case}, maxima"), &got, &want);
        let want: Vec<SampleResult> = rows.iter().map(|row| greedy(row)).collect();
        let got = bench.read::<SampleResult>(&results)?;
        bench.exact("sample_argmax", case, &got, &want);
    }
    Ok(())
}

/// Every filter alone and with others, over peaked, flat and tied rows; what changes logits; rows that allow little or
/// nothing; log-probabilities of each.
pub fn draw(bench: &mut Bench<'_>) -> Result<()> {
    for (vocabulary, draws) in [(4, 3), (260, 4), (4096, 6), (248_320, 1)] {
        bench.seed(91 + vocabulary as u64);
        let rows = rows(bench, vocabulary, draws);
        draw_case(bench, vocabulary, &rows)?;
    }
    Ok(())
}

fn rows(bench: &mut Bench<'_>, vocabulary: usize, draws: u64) -> Vec<Row> {
    let peaked =
        |bench: &mut Bench<'_>| bench.signed(vocabulary).into_iter().map(|l| 12.0 * l * l * l).collect::<Vec<_>>();
    let tied = |bench: &mut Bench<'_>| peaked(bench).into_iter().map(|l| l.round()).collect::<Vec<_>>();
    let filters: [fn(&mut SampleParams); 14] = [
        |_| {},
        |p| p.temperature = 0.0,
        |p| p.temperature = 1e30,
        |p| (p.temperature, p.top_p) = (1e30, 0.5),
        |p| (p.temperature, p.top_k) = (1e-3, 3),
        |p| p.top_k = 1,
        |p| (p.top_k, p.top_p) = (20, 0.95),
        |p| (p.top_k, p.top_p, p.min_p) = (50, 0.9, 0.1),
        |p| p.top_k = 1000,
        |p| p.top_p = 0.0,
        |p| p.top_p = 0.7,
        |p| p.min_p = 1.0,
        |p| p.min_p = 0.05,
        |p| (p.top_k, p.temperature) = (u32::MAX, 0.7),
    ];
    let mut rows = Vec::new();
    let step = |rows: &Vec<Row>| (rows.len() as u64 + 1) << 31;
    for filter in filters {
        for draw in 0..draws {
            let logits = if draw % 2 == 0 { peaked(bench) } else { tied(bench) };
            let mut params = SampleParams { seed: draw << 33 | 7, step: step(&rows), ..neutral(1.0) };
            params.top_count = [0, 1, 20][rows.len() % 3];
            filter(&mut params);
            rows.push(Row::new(logits, params));
        }
    }
    for change in 0..7 {
        let mut row = Row::new(peaked(bench), SampleParams { step: step(&rows), top_count: 20, ..neutral(0.8) });
        let some = |bench: &mut Bench<'_>| (bench.uniform() * vocabulary as f32) as u32 % vocabulary as u32;
        let (first, second) = (some(bench), some(bench));
        match change {
            0 => {
                let p = &mut row.params;
                (p.repetition_penalty, p.presence_penalty, p.frequency_penalty) = (1.3, 0.5, -0.25);
                let ids = (0..vocabulary as u32).step_by(vocabulary.div_ceil(700));
                row.history = ids.map(|id| SampleCount { id, count: id % 4 }).collect();
                row.params.top_k = 20;
            }
            1 => {
                row.bias = vec![SampleBias { id: first, bias: 100.0 }];
                if second != first {
                    row.bias.push(SampleBias { id: second, bias: f32::NEG_INFINITY });
                }
            }
            2 => row.mask = (0..vocabulary as u32).map(|id| id == first).collect(),
            3 => row.mask = (0..vocabulary).map(|id| id % 3 == 1).collect(),
            4 => row.mask = vec![false; vocabulary],
            5 => {
                row.logits.fill(2.5);
                (row.params.top_k, row.params.top_p) = (37, 0.5);
            }
            _ => {
                row.logits[first as usize] = f32::INFINITY;
                row.logits[second as usize] = f32::INFINITY;
                row.params.top_p = 0.9;
            }
        }
        rows.push(row);
    }
    rows
}

fn draw_case(bench: &mut Bench<'_>, vocabulary: usize, rows: &[Row]) -> Result<()> {
    let groups = vocabulary.div_ceil(GROUP);
    let mut kept = Vec::new();
    let mut params = Vec::new();
    for row in rows {
        let mut words = vec![0u32; vocabulary.div_ceil(32)];
        row.mask.iter().enumerate().for_each(|(id, &allowed)| words[id / 32] |= u32::from(allowed) << (id % 32));
        // An empty list has no address.
        let history = (!row.history.is_empty()).then(|| bench.upload(&row.history)).transpose()?;
        let bias = (!row.bias.is_empty()).then(|| bench.upload(&row.bias)).transpose()?;
        let mask = bench.upload(&words)?;
        params.push(SampleParams {
            history: history.as_ref().map_or(0, |memory| memory.address()),
            bias: bias.as_ref().map_or(0, |memory| memory.address()),
            mask: if row.mask.is_empty() { 0 } else { mask.address() },
            history_count: row.history.len() as u32,
            bias_count: row.bias.len() as u32,
            ..row.params
        });
        kept.push((history, bias, mask));
    }
    let logits: Vec<f32> = rows.iter().flat_map(|row| row.logits.iter().copied()).collect();
    let (logits, table) = (bench.upload(&logits)?, bench.upload(&params)?);
    let adjusted = bench.output::<f32>(rows.len() * vocabulary)?;
    let (adjusted_maxima, greatest) =
        (bench.output::<u32>(rows.len() * groups)?, bench.output::<u32>(rows.len() * groups)?);
    let (sums, results) = (bench.output::<f32>(rows.len() * groups)?, bench.output::<SampleResult>(rows.len())?);
    let arguments = SampleAdjustArgs {
        adjusted: adjusted.address(),
        adjusted_maxima: adjusted_maxima.address(),
        maxima: greatest.address(),
        sums: sums.address(),
        logits: logits.address(),
        params: table.address(),
        vocabulary: vocabulary as u32,
        unused: 0,
    };
    bench.launch("sample_adjust", rows.len() * vocabulary.div_ceil(CHUNK), &arguments)?;
    let arguments = SampleDrawArgs {
        results: results.address(),
        logits: adjusted.address(),
        maxima: adjusted_maxima.address(),
        params: table.address(),
        vocabulary: vocabulary as u32,
        unused: 0,
    };
    bench.launch("sample_draw", rows.len(), &arguments)?;
    let out = Logprobs {
        chosen: bench.output::<f32>(rows.len())?,
        ids: bench.output::<u32>(rows.len() * MAX_TOP)?,
        top: bench.output::<f32>(rows.len() * MAX_TOP)?,
    };
    let arguments = SampleLogprobsArgs {
        chosen: out.chosen.address(),
        top_ids: out.ids.address(),
        top: out.top.address(),
        results: results.address(),
        logits: logits.address(),
        maxima: greatest.address(),
        sums: sums.address(),
        params: table.address(),
        vocabulary: vocabulary as u32,
        unused: 0,
    };
    bench.launch("sample_logprobs", rows.len(), &arguments)?;

    let case = format!("{} rows of {vocabulary}", rows.len());
    let want: Vec<Vec<f32>> = rows.iter().map(Row::adjusted).collect();
    let got = bench.read::<f32>(&adjusted)?;
    bench.exact("sample_adjust", format!("{case}, adjusted"), &got, &want.concat());
    let got = bench.read::<u32>(&adjusted_maxima)?;
    let keys: Vec<u32> = want.iter().flat_map(|row| maxima(row)).collect();
    bench.exact("sample_adjust", format!("{case}, adjusted maxima"), &got, &keys);
    let got = bench.read::<f32>(&sums)?;
    let expected: Vec<Expected> = rows.iter().flat_map(|row| row.logits.chunks(GROUP).map(group_sum)).collect();
    bench.close("sample_adjust", format!("{case}, sums"), Class::Ordered, &got, &expected);
    let got = bench.read::<SampleResult>(&results)?;
    let judged: Vec<SampleResult> =
        want.iter().zip(rows).zip(&got).map(|((adjusted, row), &got)| judge(adjusted, &row.params, got)).collect();
    bench.same("sample_draw", case.clone(), Class::Ordered, &got, &judged);
    logprobs(bench, &case, rows, &got, &out)
}

/// `exp` of every logit relative to the greatest of its group, in the kernel's arithmetic: an exponent scaled for exp2,
/// exp2, eight additions and five across lanes.
fn group_sum(group: &[f32]) -> Expected {
    let max = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut value, mut bound) = (0.0, 0.0);
    for &l in group.iter().filter(|l| **l != f32::NEG_INFINITY) {
        let x = if l == max { 0.0 } else { f64::from(l) - f64::from(max) };
        value += x.exp();
        bound += x.exp() * ((8.0 + x.abs().min(200.0)) * U32 + gamma(13));
    }
    Expected { value, bound }
}

/// What `sample_logprobs` writes.
struct Logprobs {
    chosen: Output,
    ids: Output,
    top: Output,
}

fn logprobs(bench: &mut Bench<'_>, case: &str, rows: &[Row], results: &[SampleResult], out: &Logprobs) -> Result<()> {
    let poison = f32::from_bits(u32::MAX);
    let (got_ids, got_top) = (bench.read::<u32>(&out.ids)?, bench.read::<f32>(&out.top)?);
    let (mut ids, mut chosen, mut top, mut written) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (r, (row, result)) in rows.iter().zip(results).enumerate() {
        let best = ranked(&row.logits);
        let max = row.logits[best[0]];
        let exponent = |l: f32| if l == max { 0.0 } else { f64::from(l) - f64::from(max) };
        let sum: f64 = row.logits.iter().map(|&l| exponent(l).exp()).sum();
        // As in a group, with the group's exponent beside an element's own, and the sum over groups.
        let weighted = |l: f32| exponent(l).exp() * (16.0 + exponent(l).abs().min(200.0)) * U32;
        let share = row.logits.iter().map(|&l| weighted(l)).sum::<f64>() / sum + gamma(64);
        let expect = |id: usize| {
            let value = exponent(row.logits[id]) - sum.ln();
            Expected { value, bound: share + 4.0 * U32 * (1.0 + sum.ln().abs() + exponent(row.logits[id]).abs()) }
        };
        // Beside an infinite logit a finite one has no probability: both sides are minus infinity, and their difference
        // is no number.
        let finite = |id: usize| exponent(row.logits[id]).is_finite();
        if finite(result.id as usize) {
            chosen.push((r, expect(result.id as usize)));
        }
        let wanted = (row.params.top_count as usize).min(row.logits.len());
        ids.extend((0..MAX_TOP).map(|i| if i < wanted { best[i] as u32 } else { u32::MAX }));
        for (i, &id) in best[..wanted].iter().enumerate().filter(|(_, id)| finite(**id)) {
            top.push(expect(id));
            written.push(got_top[r * MAX_TOP + i]);
        }
        let rest = &got_top[r * MAX_TOP + wanted..][..MAX_TOP - wanted];
        if rest.iter().any(|x| x.to_bits() != poison.to_bits()) {
            top.push(Expected { value: f64::NAN, bound: 0.0 });
            written.push(rest[0]);
        }
    }
    bench.exact("sample_logprobs", format!("{case}, most likely ids"), &got_ids, &ids);
    bench.close("sample_logprobs", format!("{case}, most likely"), Class::Ordered, &written, &top);
    let got = bench.read::<f32>(&out.chosen)?;
    let (rows, want): (Vec<usize>, Vec<Expected>) = chosen.into_iter().unzip();
    let got: Vec<f32> = rows.into_iter().map(|r| got[r]).collect();
    bench.close("sample_logprobs", format!("{case}, chosen"), Class::Ordered, &got, &want);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_the_published_vectors() {
        // Random123's known answers for philox4x32-10; of the second only key and half of the counter can be set.
        assert_eq!(random(0, 0), 0xe169_c58d_6627_e8d5);
    }
}
