//! Hyper-connections: the write with the next norm, and the gated read.

use super::super::abi::{HyperGateArgs, HyperLowArgs, HyperMixArgs, HyperWriteArgs};
use super::Class;
use super::bench::{Bench, Expected, SIGMOID, gamma, sigmoid, sigmoid_error};
use super::dense::norm_error;
use super::matrix::{formats, store, usual};
use crate::backend::cpu::norm;
use crate::backend::hip::matrix::GATE_COLUMNS;
use crate::error::Result;
use crate::weights::Format;

/// `wide_s += inject_s · y`, with and without the norm behind it.
pub fn write(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(4);
    for (rows, streams, hidden, normed) in [(1, 1, 4, true), (2, 4, 260, false), (3, 4, 2560, true)] {
        let size = rows * streams * hidden;
        let (wide, inject) = (bench.signed(size), bench.signed(rows * streams));
        let (y, weight) = (bench.signed(rows * hidden), bench.signed(streams * hidden));
        let (i, y_, w) = (bench.upload(&inject)?, bench.upload(&y)?, bench.upload(&weight)?);
        let (updated, out) = (bench.update(&wide)?, bench.output::<f32>(size)?);
        let arguments = HyperWriteArgs {
            wide: updated.address(),
            inject: i.address(),
            y: y_.address(),
            normed: if normed { out.address() } else { 0 },
            weight: w.address(),
            streams: streams as u32,
            hidden: hidden as u32,
            eps: 1e-6,
            unused: 0,
        };
        bench.launch("hyper_write", rows * streams, &arguments)?;
        let mut want = wide.clone();
        for (r, row) in want.chunks_exact_mut(streams * hidden).enumerate() {
            for (stream, factor) in row.chunks_exact_mut(hidden).zip(&inject[r * streams..]) {
                stream.iter_mut().zip(&y[r * hidden..]).for_each(|(v, y)| *v += factor * y);
            }
        }
        let case = format!("{rows} rows, {streams} streams of {hidden}");
        let got = bench.read::<f32>(&updated)?;
        bench.exact("hyper_write", format!("{case}, streams"), &got, &want);
        if normed {
            let mut expected = vec![0.0; size];
            for (x, out) in want.chunks_exact(streams * hidden).zip(expected.chunks_exact_mut(streams * hidden)) {
                norm::grouped_into(x, &weight, hidden, 1e-6, out);
            }
            let error = norm_error(hidden.div_ceil(1024) * 4 + 13, hidden);
            let expected: Vec<_> =
                expected.iter().map(|&v| Expected { value: v as f64, bound: error * v.abs() as f64 }).collect();
            let got = bench.read::<f32>(&out)?;
            bench.close("hyper_write", format!("{case}, norm"), Class::Ordered, &got, &expected);
        }
    }
    Ok(())
}

/// The gated read from matrices in every format, at the kernels' edges in BF16.
pub fn gate(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(5);
    for format in formats() {
        gate_case(bench, format, 1, [1, 4, 36, 264])?;
        gate_case(bench, format, 8, [5, 3, 68, 24])?;
    }
    for (kernel_rows, sizes) in
        [(1, [1, 4, 260, 320]), (1, [1, 3, 4, 512]), (8, [1, 1, 32, 16]), (8, [8, 4, 128, 320]), (8, [2, 2, 33, 8])]
    {
        gate_case(bench, (Format::Bf16, "bf16", 8), kernel_rows, sizes)?;
    }
    Ok(())
}

/// `x = mean_s sigmoid(up · silu(low / S))_s · normed_s`, and the injection weights.
fn gate_case(
    bench: &mut Bench<'_>,
    (format, name, multiple): (Format, &'static str, usize),
    kernel_rows: usize,
    [rows, streams, hidden, rank]: [usize; 4],
) -> Result<()> {
    let rank = rank.next_multiple_of(multiple);
    let (wide, count) = (streams * hidden, streams as f64);
    let normed = bench.signed(rows * wide);
    let low: Vec<f32> = bench.signed(rows * rank).into_iter().map(|v| 8.0 * v).collect();
    let raw: Vec<f32> = bench.signed(rows * streams).into_iter().map(|v| 8.0 * v).collect();
    let mut blocks = usual(bench, format);
    let up = store(bench, format, [wide, rank], 0, &mut blocks)?;
    let (n, l, r) = (bench.upload(&normed)?, bench.upload(&low)?, bench.upload(&raw)?);
    let (x, inject) = (bench.output::<f32>(rows * hidden)?, bench.output::<f32>(rows * streams)?);
    let arguments = HyperGateArgs {
        x: x.address(),
        inject: inject.address(),
        normed: n.address(),
        low: l.address(),
        raw: r.address(),
        up: up.weights.address(),
        scales: up.scales(),
        rows: rows as u32,
        streams: streams as u32,
        hidden: hidden as u32,
        rank: rank as u32,
    };
    let kernel = format!("hyper_gate_{name}_r{kernel_rows}");
    bench.launch(&kernel, hidden.div_ceil(GATE_COLUMNS), &arguments)?;
    let case = format!("{rows} rows, {streams} streams of {hidden}, rank {rank}");

    let group = multiple.min(32);
    let depth = (rank / group).div_ceil(32) * group + 5;
    let mut want = Vec::with_capacity(rows * hidden);
    for row in 0..rows {
        let low: Vec<f64> = low[row * rank..][..rank].iter().map(|&v| v as f64 / count).collect();
        let low: Vec<f64> = low.into_iter().map(|v| v * sigmoid(v)).collect();
        for h in 0..hidden {
            let mut expected = Expected { value: 0.0, bound: 0.0 };
            for s in 0..streams {
                let products =
                    || up.values[(s * hidden + h) * rank..][..rank].iter().zip(&low).map(|(w, l)| *w as f64 * l);
                let (sum, magnitude): (f64, f64) = (products().sum(), products().map(f64::abs).sum());
                // A sigmoid moves by at most a quarter of its argument.
                let argument = (gamma(depth) + SIGMOID) * magnitude / 4.0;
                let gate = sigmoid(sum);
                let n = normed[row * wide + s * hidden + h] as f64;
                expected.value += gate * n / count;
                expected.bound += ((sigmoid_error(sum.abs()) + gamma(streams + 1)) * gate + argument) * n.abs() / count;
            }
            want.push(expected);
        }
    }
    let got = bench.read::<f32>(&x)?;
    bench.close(&kernel, format!("{case}, x"), Class::Ordered, &got, &want);
    let want: Vec<_> = raw
        .iter()
        .map(|&v| 2.0 * sigmoid(v as f64 / count))
        .map(|value| Expected { value, bound: SIGMOID * value })
        .collect();
    let got = bench.read::<f32>(&inject)?;
    bench.close(&kernel, format!("{case}, inject"), Class::Ordered, &got, &want);
    Ok(())
}

/// The read of many rows, around its product with `up`.
pub fn read_many(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(24);
    for (rows, streams, hidden, rank) in [(1, 4, 4, 8), (9, 3, 1028, 24), (17, 4, 260, 320)] {
        let count = streams as f64;
        let low: Vec<f32> = bench.signed(rows * rank).into_iter().map(|v| 8.0 * v).collect();
        let raw: Vec<f32> = bench.signed(rows * streams).into_iter().map(|v| 8.0 * v).collect();
        let (l, r, inject) = (bench.update(&low)?, bench.upload(&raw)?, bench.output::<f32>(rows * streams)?);
        let arguments = HyperLowArgs {
            low: l.address(),
            inject: inject.address(),
            raw: r.address(),
            rows: rows as u32,
            streams: streams as u32,
            rank: rank as u32,
            unused: 0,
        };
        bench.launch("hyper_low", rows, &arguments)?;
        let case = format!("{rows} rows, {streams} streams of {hidden}, rank {rank}");
        let of = |value: f64| Expected { value, bound: SIGMOID * value.abs() };
        let want: Vec<_> = low.iter().map(|&v| v as f64 / count).map(|v| of(v * sigmoid(v))).collect();
        let got = bench.read::<f32>(&l)?;
        bench.close("hyper_low", format!("{case}, low"), Class::Ordered, &got, &want);
        let want: Vec<_> = raw.iter().map(|&v| of(2.0 * sigmoid(v as f64 / count))).collect();
        let got = bench.read::<f32>(&inject)?;
        bench.close("hyper_low", format!("{case}, inject"), Class::Ordered, &got, &want);

        let wide = streams * hidden;
        let (normed, gate) = (bench.signed(rows * wide), bench.signed(rows * wide));
        let (n, g, x) = (bench.upload(&normed)?, bench.upload(&gate)?, bench.output::<f32>(rows * hidden)?);
        let arguments = HyperMixArgs {
            x: x.address(),
            normed: n.address(),
            gate: g.address(),
            streams: streams as u32,
            hidden: hidden as u32,
        };
        bench.launch("hyper_mix", rows * hidden.div_ceil(1024), &arguments)?;
        let mut want = Vec::with_capacity(rows * hidden);
        for i in 0..rows * hidden {
            let at = |s: usize| i / hidden * wide + s * hidden + i % hidden;
            let terms = || (0..streams).map(|s| sigmoid(gate[at(s)] as f64) * normed[at(s)] as f64 / count);
            let magnitude: f64 = terms().map(f64::abs).sum();
            want.push(Expected { value: terms().sum(), bound: (SIGMOID + gamma(streams + 1)) * magnitude });
        }
        let got = bench.read::<f32>(&x)?;
        bench.close("hyper_mix", case, Class::Ordered, &got, &want);
    }
    Ok(())
}
