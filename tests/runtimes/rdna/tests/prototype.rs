//! The prototype's kernels: a norm in F16, a histogram with atomics, dynamic LDS, and gathered attention on matrix
//! instructions, each against an oracle on both targets.

mod support;

use hip_facade::executor::Launch;
use hip_rdna::float::{f16_to_f32, f32_to_f16};
use support::{Arguments, Buffers, TARGETS, launch, load, noise, probe};

fn halves(count: usize, seed: u64) -> Vec<u16> {
    noise(count, seed).into_iter().map(f32_to_f16).collect()
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_norm_in_f16_is_within_its_last_place() {
    let (rows, n, eps) = (3, 1536, 1e-6f32);
    let (x, w) = (halves(rows * n, 1), halves(n, 2));
    for target in TARGETS {
        let module = load(&probe("prototype.hip"), target);
        let (mut y, mut x, mut w) = (vec![0u16; rows * n], x.clone(), w.clone());
        let memory = Buffers::default();
        let (py, px, pw) = (memory.add(&mut y), memory.add(&mut x), memory.add(&mut w));
        let arguments = Arguments::default().long(py).long(px).long(pw).word(n as u32).float(eps).bytes();
        launch(&*module, "rmsnorm_f16", rows as u32, 256, &arguments, &memory, 5).unwrap();
        for row in 0..rows {
            let values = x[row * n..][..n].iter().map(|h| f64::from(f16_to_f32(*h)));
            let scale = 1.0 / (values.map(|v| v * v).sum::<f64>() / n as f64 + f64::from(eps)).sqrt();
            for i in 0..n {
                let want = f64::from(f16_to_f32(x[row * n + i])) * scale * f64::from(f16_to_f32(w[i]));
                let got = f64::from(f16_to_f32(y[row * n + i]));
                // Half a unit of F16 and what F32 adds: 2^-11 and a few 2^-24 relative, 2^-25 near zero.
                assert!(
                    (got - want).abs() <= want.abs() * (2f64.powi(-11) + 2f64.powi(-20)) + 2f64.powi(-25),
                    "{target} {row} {i}: {got} {want}"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_histogram_counts_every_value_under_every_schedule() {
    let n = 4500usize;
    let mut v: Vec<u32> = noise(n, 7).iter().map(|x| x.to_bits().wrapping_mul(0x9e37_79b9) >> 13).collect();
    let mut want = vec![0u32; 256];
    v.iter().for_each(|x| want[(x & 255) as usize] += 1);
    for target in TARGETS {
        let module = load(&probe("prototype.hip"), target);
        for schedule in 0..5 {
            let (mut bins, mut sum) = (vec![0u32; 256], vec![0f32; 1]);
            let memory = Buffers::default();
            let (pb, pv, ps) = (memory.add(&mut bins), memory.add(&mut v), memory.add(&mut sum));
            let arguments = Arguments::default().long(pb).long(pv).long(ps).word(n as u32).word(0).bytes();
            launch(&*module, "hist_u8", n.div_ceil(1024) as u32, 256, &arguments, &memory, schedule).unwrap();
            assert_eq!(bins, want, "{target} schedule {schedule}");
            assert_eq!(sum[0], n as f32, "{target} schedule {schedule}");
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn rows_turn_around_in_dynamic_lds() {
    let (rows, n) = (2usize, 1000usize);
    for target in TARGETS {
        let module = load(&probe("prototype.hip"), target);
        let (mut x, mut y) = (noise(rows * n, 4), vec![0f32; rows * n]);
        let memory = Buffers::default();
        let arguments =
            Arguments::default().long(memory.add(&mut y)).long(memory.add(&mut x)).word(n as u32).word(0).bytes();
        let launch = Launch {
            kernel: "reverse_dyn",
            grid: [rows as u32, 1, 1],
            block: [256, 1, 1],
            dynamic_lds: 4 * n as u32,
            arguments: &arguments,
            schedule: 3,
        };
        module.launch(&launch, &memory).unwrap();
        let want: Vec<f32> = x.chunks(n).flat_map(|row| row.iter().rev().copied()).collect();
        assert_eq!(y, want, "{target}");
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn gathered_attention_agrees_with_its_oracle() {
    const HEADS: usize = 16;
    const WIDTH: usize = 256;
    let (tokens, selected, keys, scale) = (2usize, 200usize, 300usize, 1.0 / 16.0f32);
    let (q, k, v) = (halves(tokens * HEADS * WIDTH, 1), halves(keys * WIDTH, 2), halves(keys * WIDTH, 3));
    let ids: Vec<i32> =
        (0..tokens * selected).map(|n| if n % 37 == 5 { -1 } else { (n * 7919 % keys) as i32 }).collect();
    let value = |h: u16| f64::from(f16_to_f32(h));
    let mut want = vec![0f64; tokens * HEADS * WIDTH];
    for token in 0..tokens {
        for head in 0..HEADS {
            let row = (token * HEADS + head) * WIDTH;
            let chosen: Vec<usize> =
                ids[token * selected..][..selected].iter().filter(|&&i| i >= 0).map(|&i| i as usize).collect();
            let scores: Vec<f64> = chosen
                .iter()
                .map(|key| {
                    (0..WIDTH).map(|d| value(q[row + d]) * value(k[key * WIDTH + d])).sum::<f64>() * f64::from(scale)
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..WIDTH {
                want[row + d] = chosen.iter().zip(&weights).map(|(key, w)| w / sum * value(v[key * WIDTH + d])).sum();
            }
        }
    }
    // Weights are rounded to F16 (2^-11 each, against a sum of the same rounded weights); scores and sums of at most 256
    // terms in F32 add 2^-24 · 256 · |score| at most. |v| < 1.
    let bound = 2f64.powi(-11) + 256.0 * 2f64.powi(-24) * 4.0;
    for target in TARGETS {
        let module = load(&probe("prototype.hip"), target);
        let (mut out, mut q, mut k, mut v, mut ids) =
            (vec![f32::NAN; want.len()], q.clone(), k.clone(), v.clone(), ids.clone());
        let memory = Buffers::default();
        let pointers =
            [memory.add(&mut out), memory.add(&mut q), memory.add(&mut k), memory.add(&mut v), memory.add(&mut ids)];
        let arguments = pointers.iter().fold(Arguments::default(), |a, p| a.long(*p));
        let arguments = arguments.word(selected as u32).float(scale).bytes();
        let mut first: Option<Vec<f32>> = None;
        for schedule in [0, 9] {
            launch(&*module, "attn_gather_f16", tokens as u32, 128, &arguments, &memory, schedule).unwrap();
            for (n, (got, want)) in out.iter().zip(&want).enumerate() {
                assert!((f64::from(*got) - want).abs() <= bound, "{target} [{n}]: {got} {want}");
            }
            assert_eq!(first.get_or_insert_with(|| out.clone()), &out, "{target}: a schedule changed bits");
        }
    }
}
