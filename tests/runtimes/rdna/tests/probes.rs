//! Probe kernels of the operations that real kernels are made of, compared with host arithmetic on both targets.

// `a & b | c << d` is how the instruction set's own description writes bit fields.
#![allow(clippy::precedence)]

mod support;

use support::{Arguments, Buffers, TARGETS, launch, load, noise, probe};

/// Words with every kind of structure: small, large, sign bits, and noise.
fn words(count: usize) -> Vec<u32> {
    let special = [0, 1, 2, 31, 32, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x0f0f_0f0f, 0xffff, 0x10000, 0x7f80_0000];
    let mut x = 0x1234_5678_9abc_def1u64;
    (0..count)
        .map(|k| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            if k % 3 == 0 { special[(x >> 20) as usize % special.len()] } else { (x >> 32) as u32 }
        })
        .collect()
}

/// Runs a probe over `input`, `per` results a work-item in one workgroup.
fn run(target: &str, kernel: &str, block: u32, input: &[u32], results: usize, count: u32, scale: f32) -> Vec<u32> {
    let module = load(&probe("tour.hip"), target);
    let mut out = vec![0u32; results];
    let mut input = input.to_vec();
    let memory = Buffers::default();
    let (o, i) = (memory.add(&mut out), memory.add(&mut input));
    let arguments = Arguments::default().long(o).long(i).word(count).float(scale).bytes();
    launch(&*module, kernel, 1, block, &arguments, &memory, 0).unwrap();
    out
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn integer_arithmetic_is_exact() {
    let input = words(128);
    for target in TARGETS {
        let out = run(target, "integers", 64, &input, 24 * 64, 0, 0.0);
        for item in 0..64 {
            let (x, y) = (input[2 * item], input[2 * item + 1]);
            let (sx, sy) = (x as i32, y as i32);
            let wide = u64::from(x) << 32 | u64::from(y);
            let both = wide;
            let byte = |n: u32| (both >> (8 * n)) as u32 & 255;
            let perm = byte(1) | byte(5) << 8 | byte(2) << 16 | byte(7) << 24;
            let want = [
                x.wrapping_add(y),
                x.wrapping_sub(y),
                x.wrapping_mul(y),
                (u64::from(x) * u64::from(y) >> 32) as u32,
                (i64::from(sx) * i64::from(sy) >> 32) as u32,
                x / (y | 1),
                x % (y | 1),
                sx.wrapping_div((y & 0xffff) as i32 | 1) as u32,
                x >> (y & 31),
                (sx >> (y & 31)) as u32,
                x << (y & 31),
                x.count_ones() + y.count_ones(),
                x.leading_zeros(),
                x.trailing_zeros(),
                x.reverse_bits(),
                x.swap_bytes(),
                x.max(y),
                sx.min(sy) as u32,
                x & y | !x & 0x0f0f_0f0f,
                (x >> 7 & 0x1ff).wrapping_add(((x << 11) as i32 >> 20) as u32),
                (wide.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17) as u32,
                (wide / u64::from(y | 3)) as u32,
                (wide >> (x & 63) ^ wide << (y & 63)) as u32,
                perm ^ (wide >> 13) as u32,
            ];
            for (k, want) in want.iter().enumerate() {
                assert_eq!(out[24 * item + k], *want, "{target} item {item} result {k} of {x:#x}, {y:#x}");
            }
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn nibbles_unpack_to_exact_floats() {
    let input = words(64);
    for target in TARGETS {
        let out = run(target, "unpack4", 64, &input, 8 * 64, 0, 0.37);
        for (k, got) in out.iter().enumerate() {
            let nibble = input[k / 8] >> (4 * (k % 8)) & 15;
            assert_eq!(f32::from_bits(*got), (nibble as f32 - 8.0) * 0.37, "{target} [{k}]");
        }
    }
}

/// F16 bits to F64 by the format's definition.
fn half(bits: u16) -> f64 {
    let (sign, exponent, mantissa) =
        (if bits >> 15 == 1 { -1.0 } else { 1.0 }, bits >> 10 & 31, f64::from(bits & 1023));
    sign * match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1024.0 + mantissa) * 2f64.powi(i32::from(e) - 25),
    }
}

/// The F16 nearest to a value, ties to even, by searching all of them.
fn nearest_half(x: f64) -> u16 {
    if x.is_nan() {
        return 0x7e00;
    }
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = x.abs();
    // Positive halves are ordered as their bits; 0x7c00 stands for 65536 when rounding.
    let value = |b: u16| if b == 0x7c00 { 65536.0 } else { half(b) };
    let (mut low, mut high) = (0u16, 0x7c00u16);
    if magnitude >= 65536.0 {
        return sign | 0x7c00;
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        if value(middle) <= magnitude { low = middle } else { high = middle }
    }
    let (down, up) = (magnitude - value(low), value(high) - magnitude);
    sign | if down < up || (down == up && low & 1 == 0) { low } else { high }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn halves_are_rounded_once() {
    let scale = 0.731f32;
    let mut input = words(128);
    // Halves near each other, so that sums and products are finite and inexact.
    for (k, x) in noise(128, 9).iter().enumerate().filter(|(k, _)| k % 2 == 0) {
        let pair = [*x, x * 3.7].map(|v| u32::from(nearest_half(f64::from(v))));
        input[k] = pair[0] | pair[1] << 16;
    }
    for target in TARGETS {
        let out = run(target, "halves", 64, &input, 8 * 64, 0, scale);
        for item in 0..64 {
            let pair = |k: usize| [input[2 * item + k] as u16, (input[2 * item + k] >> 16) as u16];
            let ([x0, x1], [y0, y1]) = (pair(0).map(half), pair(1).map(half));
            let got = &out[8 * item..][..8];
            let check = |k: usize, low: f64, high: f64| {
                for (part, want) in [low, high].into_iter().enumerate() {
                    let bits = (got[k] >> (16 * part)) as u16;
                    let same = if want.is_nan() { half(bits).is_nan() } else { bits == nearest_half(want) };
                    assert!(
                        same,
                        "{target} item {item} result {k}.{part}: {bits:#06x}, want {:#06x}",
                        nearest_half(want)
                    );
                }
            };
            check(0, x0 + y0, x1 + y1);
            check(1, x0 * y0, x1 * y1);
            check(2, x0.mul_add(y0, x0), x1.mul_add(y1, x1));
            check(5, f64::from(x1 as f32 * scale), f64::from(y0 as f32 - scale));
            if !(x0.is_nan() || y1.is_nan()) {
                let want = (x0 as f32 * y1 as f32) + scale;
                assert!(f32::from_bits(got[4]) == want || want.is_nan(), "{target} item {item} result 4");
            }
            let want = if x0 > y0 {
                1
            } else if x1 < y1 {
                2
            } else {
                3
            };
            assert_eq!(got[7], want, "{target} item {item} result 7");
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn float_arithmetic_agrees_with_the_hosts() {
    let scale = 1.25f32;
    let special =
        [0.0, -0.0, 1.0, -2.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 3e38, 1e-20, 2.5, 3.5, 1e20];
    let mut input: Vec<u32> = noise(128, 3).iter().map(|x| (x * 20.0).to_bits()).collect();
    special.iter().enumerate().for_each(|(k, x)| input[2 * k] = f32::to_bits(*x));
    special.iter().enumerate().for_each(|(k, x)| input[2 * ((k * 5 + 3) % 13) + 1] = f32::to_bits(*x));
    for target in TARGETS {
        let out = run(target, "floats", 64, &input, 20 * 64, 0, scale);
        for item in 0..64 {
            let (x, y) = (f32::from_bits(input[2 * item]), f32::from_bits(input[2 * item + 1]));
            let bigger = if x.is_nan() {
                y
            } else if y.is_nan() {
                x
            } else {
                x.max(y)
            };
            let smaller = if x.is_nan() {
                y
            } else if y.is_nan() {
                x
            } else {
                x.min(y)
            };
            let middle = {
                let mut three = [x, y, scale];
                three.sort_by(f32::total_cmp);
                three[1]
            };
            let want = [
                x + y,
                x * y,
                x.mul_add(y, scale),
                x / y,
                x.sqrt(),
                x.floor(),
                x.round_ties_even(),
                y.trunc(),
                bigger,
                smaller,
                x.abs() - y.abs(),
                f64::from(y).exp2() as f32,
                f64::from(x).log2() as f32,
                1.0 / y,
                (1.0 / f64::from(x).sqrt()) as f32,
                if y.is_nan() { 1e9 } else { y.clamp(-1e9, 1e9) as i32 as f32 },
                x.abs().min(1e9) as u32 as f32,
                middle,
                (f64::from(x) * 2f64.powi((input[2 * item] & 63) as i32 - 32)) as f32,
                (f64::from(x) * f64::from(y) + f64::from(scale)) as f32,
            ];
            for (k, want) in want.iter().enumerate() {
                if k == 17 && (x.is_nan() || y.is_nan()) {
                    continue;
                }
                let got = f32::from_bits(out[20 * item + k]);
                let same = got == *want || (got.is_nan() && want.is_nan());
                assert!(same, "{target} item {item} result {k} of {x:e}, {y:e}: {got:e}, want {want:e}");
            }
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn lanes_exchange_what_they_should() {
    let input = words(64);
    for target in TARGETS {
        let out = run(target, "lanes", 64, &input, 12 * 64, 0, 0.0);
        for item in 0..64 {
            let (first, l) = (item & 32, item & 31);
            let x = |lane: usize| input[first + lane];
            let ballot = (0..32).fold(0u32, |m, k| m | (x(k) & 1) << k);
            let before = (ballot & ((1u32 << l) - 1)).count_ones();
            let row = (l & 16..=l).fold(0u32, |s, k| s.wrapping_add(x(k)));
            // 0xfac688 is 0, 1, 2, 3, 4, 5, 6, 7 in three bits each, first lane lowest.
            let want = [
                x(l ^ 1),
                x(l ^ 8),
                x(l ^ 16),
                x((l * 7 + 3) & 31),
                ballot,
                before,
                before,
                x(5).wrapping_add(x(0)),
                row,
                x(l ^ 3),
                x(l),
                x(l ^ 1),
            ];
            assert_eq!(out[12 * item..][..12], want, "{target} item {item}");
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_radix_pass_sorts_by_digit_under_every_schedule() {
    let mut input = words(256);
    for target in TARGETS {
        let module = load(&probe("tour.hip"), target);
        for schedule in 0..6 {
            let mut out = vec![0u32; 260];
            let memory = Buffers::default();
            let (o, i) = (memory.add(&mut out), memory.add(&mut input));
            let arguments = Arguments::default().long(o).long(i).word(3).float(0.0).bytes();
            launch(&*module, "radix", 1, 256, &arguments, &memory, schedule).unwrap();
            assert!(out[..256].is_sorted_by_key(|x| x >> 28), "{target} schedule {schedule}");
            let (mut sorted, mut given) = (out[..256].to_vec(), input.clone());
            sorted.sort_unstable();
            given.sort_unstable();
            assert_eq!(sorted, given, "{target} schedule {schedule}: nothing may be lost");
            assert_eq!(u64::from(out[256]) | u64::from(out[257]) << 32, 3 << 33 | 5, "{target}");
            assert_eq!(out[258], *input.iter().max().unwrap(), "{target}");
        }
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_recurrence_with_branches_and_a_table_follows_each_lane() {
    let (steps, start) = (50, 1.5f32);
    let input = words(32 * steps);
    let table = [1.0, 0.5, 0.25, 0.125, -1.0, -0.5, -0.25, -0.125f32];
    for target in TARGETS {
        let out = run(target, "recurrence", 32, &input, 32, steps as u32, start);
        for (lane, got) in out.iter().enumerate() {
            let mut s = start;
            for x in (0..steps).map(|k| input[32 * k + lane]) {
                s = match x & 3 {
                    1 | 3 => s.mul_add(table[(x >> 1 & 7) as usize], 1.0),
                    2 => -s,
                    _ => s * 0.75,
                };
                if s > 1e6 {
                    break;
                }
            }
            assert_eq!(f32::from_bits(*got), s, "{target} lane {lane}");
        }
    }
}
