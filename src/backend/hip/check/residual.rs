//! Hyper-connections: the write with the next norm, and the gated read.

use half::bf16;

use super::super::abi::{HyperGateArgs, HyperWriteArgs};
use super::Class;
use super::bench::{Bench, Expected, SIGMOID, gamma, sigmoid};
use super::dense::norm_error;
use crate::backend::cpu::norm;
use crate::error::Result;

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

/// `x = mean_s sigmoid(up · silu(low / S))_s · normed_s`, and the injection weights.
pub fn gate(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(5);
    for (kernel_rows, rows, streams, hidden, rank) in [
        (1, 1, 4, 36, 8),
        (1, 1, 4, 260, 320),
        (1, 1, 3, 4, 512),
        (8, 1, 1, 32, 16),
        (8, 5, 4, 68, 24),
        (8, 8, 4, 128, 320),
    ] {
        let (wide, count) = (streams * hidden, streams as f64);
        let normed = bench.signed(rows * wide);
        let low: Vec<f32> = bench.signed(rows * rank).into_iter().map(|v| 8.0 * v).collect();
        let raw: Vec<f32> = bench.signed(rows * streams).into_iter().map(|v| 8.0 * v).collect();
        let up: Vec<bf16> = bench.signed(wide * rank).into_iter().map(|v| bf16::from_f32(v * 0.25)).collect();
        let bits: Vec<u16> = up.iter().map(|v| v.to_bits()).collect();
        let (n, l, r, u) = (bench.upload(&normed)?, bench.upload(&low)?, bench.upload(&raw)?, bench.upload(&bits)?);
        let (x, inject) = (bench.output::<f32>(rows * hidden)?, bench.output::<f32>(rows * streams)?);
        let arguments = HyperGateArgs {
            x: x.address(),
            inject: inject.address(),
            normed: n.address(),
            low: l.address(),
            raw: r.address(),
            up: u.address(),
            rows: rows as u32,
            streams: streams as u32,
            hidden: hidden as u32,
            rank: rank as u32,
        };
        let kernel = format!("hyper_gate_bf16_r{kernel_rows}");
        bench.launch(&kernel, hidden.div_ceil(32), &arguments)?;
        let case = format!("{rows} rows, {streams} streams of {hidden}, rank {rank}");

        let depth = (rank / 8).div_ceil(32) * 8 + 5;
        let mut want = Vec::with_capacity(rows * hidden);
        for row in 0..rows {
            let low: Vec<f64> = low[row * rank..][..rank].iter().map(|&v| v as f64 / count).collect();
            let low: Vec<f64> = low.into_iter().map(|v| v * sigmoid(v)).collect();
            for h in 0..hidden {
                let mut expected = Expected { value: 0.0, bound: 0.0 };
                for s in 0..streams {
                    let products =
                        || up[(s * hidden + h) * rank..][..rank].iter().zip(&low).map(|(w, l)| w.to_f32() as f64 * l);
                    let magnitude: f64 = products().map(f64::abs).sum();
                    // A sigmoid moves by at most a quarter of its argument.
                    let argument = (gamma(depth) + SIGMOID) * magnitude / 4.0;
                    let gate = sigmoid(products().sum());
                    let n = normed[row * wide + s * hidden + h] as f64;
                    expected.value += gate * n / count;
                    expected.bound += ((SIGMOID + gamma(streams + 1)) * gate + argument) * n.abs() / count;
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
    }
    Ok(())
}
