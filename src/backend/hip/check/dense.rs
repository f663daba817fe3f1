//! Canary, grouped norm.

use super::super::abi::{CanaryArgs, GroupedNormArgs};
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
