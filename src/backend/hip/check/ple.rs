//! Injection of the n-gram embedding: gate, convolution, the window it leaves.

use super::super::abi::{PleConvArgs, PleGateArgs, PleSegment, PleSlideArgs};
use super::Class;
use super::bench::{Bench, Expected, Output, U32, gamma, sigmoid, sigmoid_error};
use super::dense::norm_error;
use crate::error::Result;
use crate::state::recurrent::slide;

/// What the gate makes of the product of key and query; it grows with it.
fn gate_of(d: f64) -> f64 {
    sigmoid(if d == 0.0 { 0.0 } else { d.signum() * d.abs().max(1e-6).sqrt() })
}

/// Products of all sizes: large ones, and ones so near zero that only an interval of gates can be promised; zero itself.
pub fn gate(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(80);
    for (rows, streams, hidden) in [(1, 1, 4), (3, 4, 260), (2, 4, 2560)] {
        let (size, eps) = (rows * streams * hidden, 1e-6f32);
        let mut key = bench.signed(size);
        let (mut wide, value) = (bench.signed(size), bench.signed(rows * hidden));
        // A key along its query, and one of zeros.
        wide[..hidden].iter_mut().zip(&key).for_each(|(q, k)| *q = 3.0 * k);
        key[size - hidden..].fill(0.0);
        let weights: Vec<f32> = bench.signed(3 * streams * hidden).into_iter().map(|w| 1.0 + 0.5 * w).collect();
        let (k, x, v) = (bench.upload(&key)?, bench.upload(&wide)?, bench.upload(&value)?);
        let norms = bench.upload(&weights)?;
        let (gated, normed) = (bench.output::<f32>(size)?, bench.output::<f32>(size)?);
        let norm = |i: usize| norms.address() + (4 * i * streams * hidden) as u64;
        let arguments = PleGateArgs {
            gated: gated.address(),
            normed: normed.address(),
            key: k.address(),
            value: v.address(),
            wide: x.address(),
            norm_key: norm(0),
            norm_query: norm(1),
            norm_conv: norm(2),
            streams: streams as u32,
            hidden: hidden as u32,
            eps,
            unused: 0,
        };
        bench.launch("ple_gate", rows * streams, &arguments)?;
        let depth = hidden.div_ceil(1024) * 4 + 13;
        let (mut gates, mut norms) = (Vec::new(), Vec::new());
        for (i, (key, wide)) in key.chunks(hidden).zip(wide.chunks(hidden)).enumerate() {
            let part = |norm: usize| &weights[(norm * streams + i % streams) * hidden..][..hidden];
            let scale = |x: &mut dyn Iterator<Item = f64>| {
                (x.map(|x| x * x).sum::<f64>() / hidden as f64 + eps as f64).sqrt().recip()
            };
            let scales = scale(&mut key.iter().map(|&x| x as f64)) * scale(&mut wide.iter().map(|&x| x as f64));
            let factor = scales / (hidden as f64).sqrt();
            let products = || {
                let weighted = part(0).iter().zip(part(1)).map(|(a, b)| *a as f64 * *b as f64);
                key.iter().zip(wide).zip(weighted).map(|((k, q), w)| *k as f64 * *q as f64 * w)
            };
            let d = products().sum::<f64>() * factor;
            // Two products of each term, their sum, the two scales, three more operations.
            let error = (gamma(depth + 2) + 2.0 * norm_error(depth, hidden) + 4.0 * U32)
                * products().map(f64::abs).sum::<f64>()
                * factor;
            let gate = gate_of(d);
            let spread = (gate_of(d + error) - gate).max(gate - gate_of(d - error));
            // Root, then sigmoid of at most sqrt(hidden).
            let relative = spread / gate + sigmoid_error(d.abs().sqrt().max(1.0)) + 2.0 * d.abs().sqrt() * U32;
            let value = &value[i / streams * hidden..][..hidden];
            let scale = scale(&mut value.iter().map(|&v| gate * v as f64));
            for (v, w) in value.iter().zip(part(2)) {
                let g = gate * *v as f64;
                gates.push(Expected { value: g, bound: (relative + 2.0 * U32) * g.abs() });
                let n = g * scale * *w as f64;
                norms.push(Expected { value: n, bound: (relative + norm_error(depth, hidden)) * n.abs() });
            }
        }
        let case = format!("{rows} rows, {streams} streams of {hidden}");
        let got = bench.read::<f32>(&gated)?;
        bench.close("ple_gate", format!("{case}, gated value"), Class::Ordered, &got, &gates);
        let got = bench.read::<f32>(&normed)?;
        bench.close("ple_gate", format!("{case}, its norm"), Class::Ordered, &got, &norms);
    }
    Ok(())
}

struct Case {
    width: usize,
    taps: usize,
    dilation: usize,
    revocable: usize,
    /// Rows and pending columns of each sequence.
    sequences: &'static [(usize, usize)],
}

/// Steps shorter and longer than what stays revocable, with columns pending, of several sequences; one takes no part.
pub fn convolution(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(81);
    for case in [
        Case { width: 4, taps: 4, dilation: 3, revocable: 4, sequences: &[(1, 0)] },
        Case { width: 1028, taps: 4, dilation: 3, revocable: 5, sequences: &[(5, 2), (0, 3), (1, 5), (7, 4)] },
        Case { width: 64, taps: 2, dilation: 2, revocable: 0, sequences: &[(1, 0), (3, 0)] },
        Case { width: 64, taps: 3, dilation: 1, revocable: 8, sequences: &[(8, 8), (9, 8)] },
        Case { width: 10240, taps: 4, dilation: 3, revocable: 4, sequences: &[(4, 3), (17, 1)] },
    ] {
        conv_case(bench, &case)?;
    }
    Ok(())
}

fn conv_case(bench: &mut Bench<'_>, case: &Case) -> Result<()> {
    let &Case { width, taps, dilation, revocable, sequences } = case;
    let history = (taps - 1) * dilation;
    let rows: usize = sequences.iter().map(|(rows, _)| rows).sum();
    let (normed, gated) = (bench.signed(rows * width), bench.signed(rows * width));
    let (wide, weights) = (bench.signed(rows * width), bench.signed(taps * width));
    let windows: Vec<Vec<f32>> = sequences.iter().map(|_| bench.signed((history + revocable) * width)).collect();
    let kept: Vec<Output> = windows.iter().map(|w| bench.update(w)).collect::<Result<_>>()?;
    let (mut segments, mut sequence) = (Vec::new(), Vec::new());
    for (i, (&(count, pending), window)) in sequences.iter().zip(&kept).enumerate() {
        let (first, window) = (sequence.len() as u32, window.address());
        segments.push(PleSegment { window, first, rows: count as u32, pending: pending as u32, unused: 0 });
        sequence.extend(std::iter::repeat_n(i as u32, count));
    }
    let (n, g, w) = (bench.upload(&normed)?, bench.upload(&gated)?, bench.upload(&weights)?);
    let (table, of_row, updated) = (bench.upload(&segments)?, bench.upload(&sequence)?, bench.update(&wide)?);
    let arguments = PleConvArgs {
        wide: updated.address(),
        gated: g.address(),
        normed: n.address(),
        weights: w.address(),
        segments: table.address(),
        sequence: of_row.address(),
        width: width as u32,
        taps: taps as u32,
        dilation: dilation as u32,
        unused: 0,
    };
    bench.launch("ple_conv", rows * width.div_ceil(1024), &arguments)?;
    let arguments = PleSlideArgs {
        normed: n.address(),
        segments: table.address(),
        width: width as u32,
        history: history as u32,
        revocable: revocable as u32,
        unused: 0,
    };
    bench.launch("ple_slide", sequences.len() * width.div_ceil(1024), &arguments)?;

    let mut want = Vec::with_capacity(rows * width);
    let mut left = Vec::new();
    for (segment, window) in segments.iter().zip(&windows) {
        let (first, count, pending) = (segment.first as usize, segment.rows as usize, segment.pending as usize);
        let fresh = &normed[first * width..][..count * width];
        let columns = [&window[pending * width..][..history * width], fresh].concat();
        for row in 0..count {
            for c in 0..width {
                let tap = |sum: f32, tap: usize| {
                    weights[tap * width + c].mul_add(columns[(row + tap * dilation) * width + c], sum)
                };
                let sum = (0..taps).fold(0.0, tap) as f64;
                let at = (first + row) * width + c;
                let (silu, gated, wide) = (sum * sigmoid(sum), gated[at] as f64, wide[at] as f64);
                let value = wide + (silu + gated);
                let bound = sigmoid_error(sum.abs()) * silu.abs() + U32 * ((silu + gated).abs() + value.abs()) * 1.001;
                want.push(Expected { value, bound });
            }
        }
        let mut window = window.clone();
        if count > 0 {
            slide(&mut window, width, history, pending, fresh);
        }
        left.push(window);
    }
    let name = format!("{width} channels, {taps} taps {dilation} apart, (rows, pending) {sequences:?}");
    let got = bench.read::<f32>(&updated)?;
    bench.close("ple_conv", name.clone(), Class::Ordered, &got, &want);
    let windows: Vec<Vec<f32>> = kept.iter().map(|window| bench.read::<f32>(window)).collect::<Result<_>>()?;
    bench.exact("ple_slide", name, &windows.concat(), &left.concat());
    Ok(())
}
