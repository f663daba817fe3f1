//! Kernels on slices: bits by definition, exponentials by their distance from f64.

use hipfire::backend::cpu::activation::{exp, sigmoid, silu, silu_multiply, softmax, softplus};
use hipfire::backend::cpu::{attend, simd};

use super::{Random, U, assert_same, ordered_dot, same_on_both};

#[test]
fn vector_kernels_have_the_same_bits_on_both_executors_and_the_promised_values() {
    let mut random = Random(5);
    for n in (0..=70).chain([255, 256, 1000]) {
        let (a, b) = (random.values(n), random.values(n));
        let stride = n + 3;
        let keys = random.values(6 * stride);
        let weights = random.values(5 * 6);
        // A head of no width does not exist; five heads take both a tile of four and a single one.
        for (heads, count) in [1, 4, 5].into_iter().flat_map(|h| (0..=6).map(move |c| (h, c))).filter(|_| n > 0) {
            let rows: Vec<&[f32]> = (0..count).map(|j| &keys[j * stride..][..n]).collect();
            let queries: Vec<f32> = (0..heads).flat_map(|h| a.iter().map(move |x| x * (h + 1) as f32)).collect();
            let dots = same_on_both("dots", || {
                let mut out = vec![0.0; heads * count];
                attend::dots(&queries, n, &rows, 1.0, &mut out, count);
                out
            });
            let each = (0..heads).flat_map(|h| (0..count).map(move |j| (h, j)));
            let expected: Vec<f32> =
                each.map(|(h, j)| ordered_dot(&queries[h * n..][..n], &keys[j * stride..][..n])).collect();
            assert_same("dots", &dots, &expected);
            let sum = same_on_both("weigh", || {
                let mut y = b.repeat(heads);
                attend::weigh(&weights[..heads * count], count, &rows, n, &mut y);
                y
            });
            let weighted = |h: usize, i: usize| {
                (0..count).fold(b[i], |y, j| keys[j * stride + i].mul_add(weights[h * count + j], y))
            };
            let expected: Vec<f32> =
                (0..heads).flat_map(|h| (0..n).map(move |i| (h, i))).map(|(h, i)| weighted(h, i)).collect();
            assert_same("weigh", &sum, &expected);
        }
        let scalars =
            same_on_both("scalars", || vec![simd::dot(&a, &b), simd::sum_squares(&a), simd::sum(&a), simd::max(&a)]);
        let ones = vec![1.0; n];
        let greatest = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let expected = [ordered_dot(&a, &b), ordered_dot(&a, &a), ordered_dot(&a, &ones), greatest];
        assert_same("scalars", &scalars, &expected);
        let elements = same_on_both("elements", || {
            let (mut x, mut y, mut z) = (a.clone(), a.clone(), a.clone());
            simd::axpy(0.3, &b, &mut x);
            simd::scale(0.3, &mut y);
            simd::multiply(&b, &mut z);
            [x, y, z].concat()
        });
        let axpy = a.iter().zip(&b).map(|(a, b)| b.mul_add(0.3, *a));
        let expected: Vec<f32> =
            axpy.chain(a.iter().map(|a| a * 0.3)).chain(a.iter().zip(&b).map(|(a, b)| a * b)).collect();
        assert_same("elements", &elements, &expected);
    }
}

/// Distance in representable values.
fn ulps(a: f32, b: f32) -> u64 {
    let key = |v: f32| {
        let bits = i64::from(v.to_bits() & 0x7fff_ffff);
        if v.is_sign_negative() { -bits } else { bits }
    };
    key(a).abs_diff(key(b))
}

#[test]
fn exp_is_within_two_units_in_the_last_place_over_its_whole_range() {
    // Every 997th bit pattern of both signs, up to where the result saturates.
    let arguments: Vec<f32> = [0, 1 << 31]
        .iter()
        .flat_map(|s| (0..0x42d0_0000_u32).step_by(997).map(move |b| f32::from_bits(b | s)))
        .collect();
    let results = same_on_both("exp", || {
        let mut x = arguments.clone();
        exp(&mut x);
        x
    });
    for (x, y) in arguments.iter().zip(&results) {
        let distance = ulps(*y, f64::from(*x).exp() as f32);
        assert!(distance <= 2, "e^{x:e} = {y:e}, {distance} units off");
    }
}

#[test]
fn exponentials_saturate_and_pass_nan() {
    let ends = [f32::INFINITY, f32::MAX, 88.73, 0.0, -0.0, -104.0, f32::MIN, f32::NEG_INFINITY, f32::NAN];
    let by = |f: fn(&mut [f32])| {
        same_on_both("ends", || {
            // Once in a full group and once in the rest.
            let mut x = ends.to_vec();
            f(&mut x);
            let mut last = [ends[0]];
            f(&mut last);
            assert_same("an element in the rest", &last, &x[..1]);
            x
        })
    };
    let inf = f32::INFINITY;
    assert_same("exp", &by(exp), &[inf, inf, inf, 1.0, 1.0, 0.0, 0.0, 0.0, f32::NAN]);
    assert_same("sigmoid", &by(sigmoid), &[1.0, 1.0, 1.0, 0.5, 0.5, 0.0, 0.0, 0.0, f32::NAN]);
    assert_same("silu", &by(silu), &[inf, f32::MAX, 88.73, 0.0, -0.0, -0.0, -0.0, f32::NAN, f32::NAN]);
}

#[test]
fn gates_and_softmax_follow_their_definitions() {
    let mut random = Random(6);
    for n in (1..40).chain([513]) {
        let x: Vec<f32> = (0..n).map(|_| 20.0 * random.unit()).collect();
        let up = random.values(n);
        let gated = same_on_both("gates", || {
            let (mut a, mut b, mut c) = (x.clone(), x.clone(), x.clone());
            sigmoid(&mut a);
            silu(&mut b);
            silu_multiply(&mut c, &up);
            [a, b, c].concat()
        });
        for (i, x) in x.iter().enumerate() {
            let exact = 1.0 / (1.0 + (-f64::from(*x)).exp());
            // The exponential's two units are four roundings; the addition, the division and one product each add one.
            let close =
                |y: f32, exact: f64| assert!((f64::from(y) - exact).abs() <= 7.01 * U * exact.abs(), "{x}: {y}");
            close(gated[i], exact);
            close(gated[n + i], exact * f64::from(*x));
            close(gated[2 * n + i], exact * f64::from(*x) * f64::from(up[i]));
            let exact = f64::from(*x).exp().ln_1p();
            // ln(1 + e) passes on at most the relative error of e, and rounds once itself (libm: within a unit).
            assert!((f64::from(softplus(*x)) - exact).abs() <= 7.0 * U * exact, "softplus {x}");
        }
        let p = same_on_both("softmax", || {
            let mut x = x.clone();
            softmax(&mut x);
            x
        });
        let greatest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = x.iter().map(|x| f64::from(x - greatest).exp()).sum();
        for (p, x) in p.iter().zip(&x) {
            let exact = f64::from(x - greatest).exp() / sum;
            // Twice an exponential, the additions of a lane and of the lanes, a reciprocal and a product.
            let bound = (4 + 4 + n.div_ceil(8) + 3 + 2) as f64 * 1.01 * U * exact;
            assert!((f64::from(*p) - exact).abs() <= bound, "{p} instead of {exact}");
        }
    }
    let mut masked = [1.0, f32::NEG_INFINITY, 1.0];
    softmax(&mut masked);
    assert_eq!(masked, [0.5, 0.0, 0.5]);
    softmax(&mut []);
}
