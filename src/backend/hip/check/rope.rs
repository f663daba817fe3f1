//! Head norm and rotary embedding.

use super::super::abi::HeadNormRopeArgs;
use super::Class;
use super::bench::{Bench, Expected, U32};
use super::dense::norm_error;
use crate::backend::cpu::norm;
use crate::error::Result;

/// Heads of queries (interleaved with their gates), keys, and indexer heads, with and without the norm.
pub fn rope(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(6);
    // rows, heads, dim, half, head stride, norm
    for (rows, heads, dim, half, head_stride, normed) in [
        (1, 1, 8, 2, 8, true),
        (3, 5, 64, 16, 128, true),
        (2, 24, 256, 32, 512, true),
        (5, 2, 256, 32, 256, true),
        (3, 4, 128, 32, 128, true),
        (2, 3, 128, 64, 128, false),
    ] {
        let row_stride = heads * head_stride + 4;
        let x = bench.signed(rows * row_stride);
        let weight = bench.signed(dim);
        let angles: Vec<f32> = bench.signed(rows * half).into_iter().map(|v| 3.0 * v).collect();
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        let (i, w, c, s) = (bench.upload(&x)?, bench.upload(&weight)?, bench.upload(&cos)?, bench.upload(&sin)?);
        let out = bench.output::<f32>(rows * heads * dim)?;
        let arguments = HeadNormRopeArgs {
            out: out.address(),
            input: i.address(),
            weight: if normed { w.address() } else { 0 },
            cos: c.address(),
            sin: s.address(),
            heads: heads as u32,
            count: (rows * heads) as u32,
            dim: dim as u32,
            half: half as u32,
            row_stride: row_stride as u32,
            head_stride: head_stride as u32,
            eps: 1e-6,
            unused: 0,
        };
        bench.launch("head_norm_rope", (rows * heads).div_ceil(8), &arguments)?;
        let error = if normed { norm_error(dim.div_ceil(32) + 5, dim) } else { 0.0 };
        let mut want = Vec::with_capacity(rows * heads * dim);
        for row in 0..rows {
            let (cos, sin) = (&cos[row * half..][..half], &sin[row * half..][..half]);
            for head in 0..heads {
                let mut n = x[row * row_stride + head * head_stride..][..dim].to_vec();
                if normed {
                    norm::rms(&mut n, &weight, 1e-6);
                }
                want.extend(rotated(&n, cos, sin, error));
                want.extend(n[2 * half..].iter().map(|&v| Expected { value: v as f64, bound: error * v.abs() as f64 }));
            }
        }
        let got = bench.read::<f32>(&out)?;
        let case = format!("{rows} rows, {heads} heads of {dim}, {half} pairs");
        bench.close("head_norm_rope", case, Class::Ordered, &got, &want);
    }
    Ok(())
}

/// A head after half-split rotation, where its elements carry the relative `error` already.
pub fn rotated(n: &[f32], cos: &[f32], sin: &[f32], error: f64) -> Vec<Expected> {
    let half = cos.len();
    let n = |i: usize| n[i] as f64;
    let turn = |i: usize, a: f64, b: f64| {
        let (a, b) = (a * cos[i % half] as f64, b * sin[i % half] as f64);
        Expected { value: a + b, bound: (error + 2.0 * U32) * (a.abs() + b.abs()) }
    };
    let first = (0..half).map(|i| turn(i, n(i), -n(i + half)));
    let second = (half..2 * half).map(|i| turn(i, n(i), n(i - half)));
    first.chain(second).collect()
}
