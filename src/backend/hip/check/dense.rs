//! Canary, embedding rows, grouped norm, products with few rows.

use half::bf16;

use super::super::abi::{CanaryArgs, EmbedArgs, GemvArgs, GroupedNormArgs};
use super::Class;
use super::bench::{Bench, Expected, U32, gamma};
use crate::backend::cpu::norm;
use crate::error::Result;

/// What `canary` writes, word by word.
fn canary_word(seed: u64, i: u64) -> u64 {
    let mut x = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x ^= x >> 31;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 29)
}

/// Writes, reads back, and notices a word that changed in between.
pub fn canary(bench: &mut Bench<'_>) -> Result<()> {
    let (seed, count) = (77, 1000usize);
    let words = bench.output::<u64>(count)?;
    let mismatches = bench.update(&[0u32])?;
    let mut arguments =
        CanaryArgs { words: words.address(), seed, mismatches: mismatches.address(), count: count as u32, phase: 0 };
    bench.launch("canary", count.div_ceil(256), &arguments)?;
    let mut want: Vec<u64> = (0..count as u64).map(|i| canary_word(seed, i)).collect();
    let got = bench.read::<u64>(&words)?;
    bench.exact("canary", format!("{count} words, written"), &got, &want);
    want[999] ^= 1;
    let damaged = bench.upload(&want)?;
    arguments.phase = 1;
    bench.launch("canary", count.div_ceil(256), &arguments)?;
    arguments.words = damaged.address();
    bench.launch("canary", count.div_ceil(256), &arguments)?;
    let got = bench.read::<u32>(&mismatches)?;
    bench.exact("canary", format!("{count} words, one of them damaged"), &got, &[1u32]);
    Ok(())
}

/// Rows of a table in every stream.
pub fn embed(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(1);
    for (rows, streams, hidden) in [(1, 1, 8), (3, 4, 264), (2, 4, 2560)] {
        let vocabulary = 11;
        let table: Vec<bf16> = bench.signed(vocabulary * hidden).into_iter().map(bf16::from_f32).collect();
        let bits: Vec<u16> = table.iter().map(|v| v.to_bits()).collect();
        let ids: Vec<u32> = (0..rows as u32).map(|r| (r * 7 + 10) % vocabulary as u32).collect();
        let (w, i) = (bench.upload(&bits)?, bench.upload(&ids)?);
        let wide = bench.output::<f32>(rows * streams * hidden)?;
        let arguments = EmbedArgs {
            wide: wide.address(),
            table: w.address(),
            ids: i.address(),
            streams: streams as u32,
            hidden: hidden as u32,
        };
        bench.launch("embed_bf16", rows, &arguments)?;
        let row = |id: u32| table[id as usize * hidden..][..hidden].iter().map(|v| v.to_f32());
        let want: Vec<f32> = ids.iter().flat_map(|&id| (0..streams).flat_map(move |_| row(id))).collect();
        let got = bench.read::<f32>(&wide)?;
        bench.exact("embed_bf16", format!("{rows} rows, {streams} streams of {hidden}"), &got, &want);
    }
    Ok(())
}

/// Relative error of a norm's result on both sides together: both sums of squares (halved by the root), then mean,
/// root, reciprocal and two products on each side; hardware's reciprocal root is good to one unit in the last place.
pub fn norm_error(gpu_depth: usize, width: usize) -> f64 {
    (gamma(gpu_depth) + gamma(width.div_ceil(8) + 3)) / 2.0 + 12.0 * U32
}

/// One statistic a group.
pub fn norm(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(2);
    for (rows, groups, width) in [(1, 1, 4), (3, 4, 36), (2, 4, 2560), (1, 1, 10240)] {
        let size = rows * groups * width;
        let (x, weight) = (bench.signed(size), bench.signed(groups * width));
        let (input, w) = (bench.upload(&x)?, bench.upload(&weight)?);
        let out = bench.output::<f32>(size)?;
        let arguments = GroupedNormArgs {
            out: out.address(),
            input: input.address(),
            weight: w.address(),
            groups: groups as u32,
            width: width as u32,
            eps: 1e-6,
            unused: 0,
        };
        bench.launch("grouped_norm", rows * groups, &arguments)?;
        let mut want = vec![0.0; size];
        for (x, out) in x.chunks_exact(groups * width).zip(want.chunks_exact_mut(groups * width)) {
            norm::grouped_into(x, &weight, width, 1e-6, out);
        }
        let error = norm_error(width.div_ceil(1024) * 4 + 13, width);
        let want: Vec<_> = want.iter().map(|&v| Expected { value: v as f64, bound: error * v.abs() as f64 }).collect();
        let got = bench.read::<f32>(&out)?;
        bench.close("grouped_norm", format!("{rows} rows, {groups} groups of {width}"), Class::Ordered, &got, &want);
    }
    Ok(())
}

/// Few rows against a matrix: every kernel's own widths, and the same row alone and in company.
pub fn gemv(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(3);
    for (kernel_rows, shapes) in [
        (1, [(1, 5, 8), (1, 324, 2568), (1, 33, 10240)]),
        (2, [(1, 4, 8), (2, 65, 520), (2, 320, 2560)]),
        (4, [(3, 7, 16), (4, 64, 640), (4, 33, 2560)]),
        (8, [(5, 3, 24), (7, 17, 320), (8, 48, 2560)]),
    ] {
        for (rows, outputs, inputs) in shapes {
            let kernel = format!("gemv_bf16_r{kernel_rows}");
            let w: Vec<bf16> = bench.signed(outputs * inputs).into_iter().map(bf16::from_f32).collect();
            let bits: Vec<u16> = w.iter().map(|v| v.to_bits()).collect();
            let x = bench.signed(rows * inputs);
            let (weights, input) = (bench.upload(&bits)?, bench.upload(&x)?);
            let y = bench.output::<f32>(rows * outputs)?;
            let arguments = GemvArgs {
                y: y.address(),
                x: input.address(),
                w: weights.address(),
                rows: rows as u32,
                outputs: outputs as u32,
                inputs: inputs as u32,
                y_stride: outputs as u32,
            };
            let outputs_a_group = if kernel_rows == 8 { 16 } else { 32 };
            bench.launch(&kernel, outputs.div_ceil(outputs_a_group), &arguments)?;
            // A lane's chain of products, then five steps across lanes.
            let depth = (inputs / 8).div_ceil(32) * 8 + 5;
            let mut want = Vec::new();
            for x in x.chunks_exact(inputs) {
                for w in w.chunks_exact(inputs) {
                    let products = || w.iter().zip(x).map(|(w, x)| w.to_f32() as f64 * *x as f64);
                    let bound = gamma(depth) * products().map(f64::abs).sum::<f64>();
                    want.push(Expected { value: products().sum(), bound });
                }
            }
            let got = bench.read::<f32>(&y)?;
            bench.close(&kernel, format!("{rows} rows, {outputs} x {inputs}"), Class::Ordered, &got, &want);
        }
    }
    Ok(())
}
