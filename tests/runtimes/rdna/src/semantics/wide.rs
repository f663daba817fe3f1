//! 64-bit integers and doubles.

use super::{Table, special, vector};
use crate::inst::{Flow, Slot, VCC};
use crate::value::{Target, WideCarry, load64};
use crate::wave::LANES;

fn max_num(a: f64, b: f64) -> f64 {
    if a.is_nan() || (!b.is_nan() && (b > a || (a == b && a.is_sign_negative()))) { b } else { a }
}
fn min_num(a: f64, b: f64) -> f64 {
    if a.is_nan() || (!b.is_nan() && (b < a || (a == b && b.is_sign_negative()))) { b } else { a }
}
/// `a · 2^b`. In two steps, so that each factor is a normal number.
fn ldexp(a: f64, b: i32) -> f64 {
    let b = b.clamp(-2200, 2200);
    let step = b.clamp(-1000, 1000);
    let rest = (b - step).clamp(-1000, 1000);
    a * 2f64.powi(step) * 2f64.powi(rest)
}
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 2047) as i32
}
fn frexp_exp(x: f64) -> i32 {
    if x == 0.0 || !x.is_finite() {
        0
    } else if x.is_subnormal() {
        exponent(x * 2f64.powi(64)) - 64 - 1022
    } else {
        exponent(x) - 1022
    }
}
/// See the F32 form: the same cases with F64's limits.
fn div_scale(s0: f64, s1: f64, s2: f64) -> WideCarry {
    let denominator = s0.to_bits() == s1.to_bits();
    let keep = |scaled: bool, by: i32, flag: bool| WideCarry(if scaled { ldexp(s0, by) } else { s0 }.to_bits(), flag);
    let quotient = s2 / s1;
    let tiny_inverse = (1.0 / s1).is_subnormal();
    if s1 == 0.0 || s2 == 0.0 {
        WideCarry(f64::NAN.to_bits(), false)
    } else if exponent(s2) - exponent(s1) >= 768 {
        keep(denominator, 128, true)
    } else if s1.is_subnormal() {
        keep(true, 128, false)
    } else if tiny_inverse && quotient.is_subnormal() {
        keep(denominator, -128, true)
    } else if tiny_inverse {
        keep(true, -128, false)
    } else if quotient.is_subnormal() {
        keep(s0.to_bits() == s2.to_bits(), 128, true)
    } else {
        keep(exponent(s2) <= 53, 128, false)
    }
}
fn div_fixup(quotient: f64, denominator: f64, numerator: f64) -> f64 {
    let negative = denominator.is_sign_negative() != numerator.is_sign_negative();
    let signed = |x: f64| if negative { -x } else { x };
    if numerator.is_nan() {
        numerator
    } else if denominator.is_nan() {
        denominator
    } else if (numerator == 0.0 && denominator == 0.0) || (numerator.is_infinite() && denominator.is_infinite()) {
        f64::NAN
    } else if denominator == 0.0 || numerator.is_infinite() {
        signed(f64::INFINITY)
    } else if denominator.is_infinite() || numerator == 0.0 {
        signed(0.0)
    } else if quotient.is_nan() {
        // The refinement ran into infinity minus infinity: the quotient is too large.
        signed(f64::INFINITY)
    } else {
        signed(quotient.abs())
    }
}

vector! { INTEGER;
    "v_lshlrev_b64"(a: u32, b: u64) -> u64 = b << (a & 63);
    "v_lshrrev_b64"(a: u32, b: u64) -> u64 = b >> (a & 63);
    "v_ashrrev_i64"(a: u32, b: i64) -> i64 = b >> (a & 63);
    "v_mad_u64_u32" | "v_mad_co_u64_u32"(a: u32, b: u32, c: u64) -> WideCarry = { let (x, o) = (u64::from(a) * u64::from(b)).overflowing_add(c); WideCarry(x, o) };
    "v_mad_i64_i32" | "v_mad_co_i64_i32"(a: i32, b: i32, c: i64) -> WideCarry = { let (x, o) = (i64::from(a) * i64::from(b)).overflowing_add(c); WideCarry(x as u64, o) };
}

vector! { DOUBLE;
    "v_add_f64"(a: f64, b: f64) -> f64 = a + b;
    "v_mul_f64"(a: f64, b: f64) -> f64 = a * b;
    "v_fma_f64"(a: f64, b: f64, c: f64) -> f64 = a.mul_add(b, c);
    "v_max_f64" | "v_max_num_f64"(a: f64, b: f64) -> f64 = max_num(a, b);
    "v_min_f64" | "v_min_num_f64"(a: f64, b: f64) -> f64 = min_num(a, b);
    "v_ldexp_f64"(a: f64, b: i32) -> f64 = ldexp(a, b);
    "v_frexp_exp_i32_f64"(a: f64) -> i32 = frexp_exp(a);
    "v_frexp_mant_f64"(a: f64) -> f64 = if a == 0.0 || !a.is_finite() { a } else { ldexp(a, -frexp_exp(a)) };
    "v_floor_f64"(a: f64) -> f64 = a.floor();
    "v_ceil_f64"(a: f64) -> f64 = a.ceil();
    "v_trunc_f64"(a: f64) -> f64 = a.trunc();
    "v_rndne_f64"(a: f64) -> f64 = a.round_ties_even();
    "v_fract_f64"(a: f64) -> f64 = (a - a.floor()).min(1.0 - f64::EPSILON / 2.0);
    "v_rcp_f64"(a: f64) -> f64 = 1.0 / a;
    "v_rsq_f64"(a: f64) -> f64 = 1.0 / a.sqrt();
    "v_sqrt_f64"(a: f64) -> f64 = a.sqrt();
    "v_cvt_f32_f64"(a: f64) -> f32 = a as f32;
    "v_cvt_f64_f32"(a: f32) -> f64 = f64::from(a);
    "v_cvt_f64_i32"(a: i32) -> f64 = f64::from(a);
    "v_cvt_f64_u32"(a: u32) -> f64 = f64::from(a);
    "v_cvt_i32_f64"(a: f64) -> i32 = a as i32;
    "v_cvt_u32_f64"(a: f64) -> u32 = a as u32;
    "v_div_scale_f64"(a: f64, b: f64, c: f64) -> WideCarry = div_scale(a, b, c);
    "v_div_fixup_f64"(a: f64, b: f64, c: f64) -> f64 = div_fixup(a, b, c);
}

special! { DIVIDE, super::form(Slot::F64, &[Slot::F64; 3]);
    "v_div_fmas_f64" => |w, i, _| {
        let (a, b, c) = (load64(w, i, 0), load64(w, i, 1), load64(w, i, 2));
        let flags = w.s[VCC];
        let mut out = [0; LANES];
        for l in 0..LANES {
            let [a, b, c] = [a[l], b[l], c[l]].map(f64::from_bits);
            let sum = a.mul_add(b, c);
            let by = if flags >> l & 1 == 0 { 0 } else if exponent(c) > 1023 { 128 } else { -128 };
            out[l] = ldexp(sum, by).to_bits();
        }
        <f64 as Target>::store(w, i, out);
        Flow::Next
    };
}

/// All tables of this file.
pub const TABLES: [Table; 3] = [INTEGER, DOUBLE, DIVIDE];
