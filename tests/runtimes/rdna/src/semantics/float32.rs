//! F32 arithmetic, conversions from and to F32, and the hardware's approximations.
//!
//! Always true: every operation is rounded once. `v_exp`, `v_log`, `v_rcp`, `v_rsq`, `v_sqrt`, `v_sin`, `v_cos` give the
//! correctly rounded result (through F64), where hardware is allowed 1 unit in the last place.

use super::{Table, vector};
use crate::float::{Fp8, f32_to_bf16, f32_to_f16_toward_zero, f32_to_fp8, fma_f16, fp8_to_f32};
use crate::value::{Carry, Dest, Half, Halves, Mask, Mix, Shorts};

/// IEEE maximumNumber: a NaN loses against a number, -0 is below +0.
#[inline(always)]
pub(crate) fn max_num(a: f32, b: f32) -> f32 {
    let larger = if a > b || (a == b && a.is_sign_positive()) { a } else { b };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        larger
    }
}
/// IEEE minimumNumber.
#[inline(always)]
pub(crate) fn min_num(a: f32, b: f32) -> f32 {
    let smaller = if a < b || (a == b && a.is_sign_negative()) { a } else { b };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        smaller
    }
}
/// IEEE maximum: a NaN wins.
#[inline(always)]
pub(crate) fn maximum(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        a
    } else if b.is_nan() {
        b
    } else {
        max_num(a, b)
    }
}
/// IEEE minimum.
#[inline(always)]
pub(crate) fn minimum(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        a
    } else if b.is_nan() {
        b
    } else {
        min_num(a, b)
    }
}
/// The middle one; the smallest number if one is NaN.
#[inline(always)]
pub(crate) fn med3(a: f32, b: f32, c: f32) -> f32 {
    let middle = max_num(min_num(a, b), min_num(max_num(a, b), c));
    if a.is_nan() || b.is_nan() || c.is_nan() { min_num(min_num(a, b), c) } else { middle }
}
/// `a · 2^b`, rounded once.
#[inline(always)]
pub(crate) fn ldexp(a: f32, b: i32) -> f32 {
    // Two exact factors: 2^±400 is past every F32 result.
    let b = b.clamp(-400, 400);
    (f64::from(a) * f64::from_bits(((1023 + b) as u64) << 52)) as f32
}
fn exponent(x: f32) -> i32 {
    (x.to_bits() >> 23 & 255) as i32
}
/// The exponent `e` with `x = m · 2^e`, 0.5 ≤ |m| < 1.
pub(crate) fn frexp_exp(x: f32) -> i32 {
    if x == 0.0 || !x.is_finite() {
        return 0;
    }
    // F64 has room for every F32 as a normal number.
    (f64::from(x).to_bits() >> 52 & 2047) as i32 - 1022
}
pub(crate) fn frexp_mant(x: f32) -> f32 {
    if x == 0.0 || !x.is_finite() { x } else { (f64::from(x) * 2f64.powi(-frexp_exp(x))) as f32 }
}
fn product_or_zero(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

/// Scales one side of a division so that the refinement steps neither overflow nor lose bits. `s1` is the denominator,
/// `s2` the numerator, `s0` the one to scale; the flag asks `div_fmas` to scale back.
fn div_scale(s0: f32, s1: f32, s2: f32) -> Carry {
    let denominator = s0.to_bits() == s1.to_bits();
    let keep = |scaled: bool, by: i32, flag: bool| Carry(if scaled { ldexp(s0, by) } else { s0 }.to_bits(), flag);
    let quotient = s2 / s1;
    let tiny_inverse = (1.0 / s1).is_subnormal();
    if s1 == 0.0 || s2 == 0.0 {
        Carry(f32::NAN.to_bits(), false)
    } else if exponent(s2) - exponent(s1) >= 96 {
        keep(denominator, 64, true)
    } else if s1.is_subnormal() {
        keep(true, 64, false)
    } else if tiny_inverse && quotient.is_subnormal() {
        keep(denominator, -64, true)
    } else if tiny_inverse {
        keep(true, -64, false)
    } else if quotient.is_subnormal() {
        keep(s0.to_bits() == s2.to_bits(), 64, true)
    } else {
        keep(exponent(s2) <= 23, 64, false)
    }
}
fn div_fmas(a: f32, b: f32, c: f32, scaled: bool) -> f32 {
    let sum = a.mul_add(b, c);
    if !scaled {
        sum
    } else if exponent(c) > 127 {
        ldexp(sum, 64)
    } else {
        // One rounding: the sum itself may not be rounded before it becomes a denormal.
        (f64::from(a).mul_add(f64::from(b), f64::from(c)) * 2f64.powi(-64)) as f32
    }
}
/// Special cases of numerator and denominator, and the sign.
fn div_fixup(quotient: f32, denominator: f32, numerator: f32) -> f32 {
    let negative = denominator.is_sign_negative() != numerator.is_sign_negative();
    let signed = |x: f32| if negative { -x } else { x };
    let quiet = |x: f32| f32::from_bits(x.to_bits() | 0x40_0000);
    if numerator.is_nan() {
        quiet(numerator)
    } else if denominator.is_nan() {
        quiet(denominator)
    } else if (numerator == 0.0 && denominator == 0.0) || (numerator.is_infinite() && denominator.is_infinite()) {
        f32::from_bits(0xffc0_0000)
    } else if denominator == 0.0 || numerator.is_infinite() {
        signed(f32::INFINITY)
    } else if denominator.is_infinite() || numerator == 0.0 {
        signed(0.0)
    } else if quotient.is_nan() {
        // The refinement ran into infinity minus infinity: the quotient is too large.
        signed(f32::INFINITY)
    } else {
        signed(quotient.abs())
    }
}

vector! { ARITHMETIC;
    "v_add_f32"(a: f32, b: f32) -> f32 = a + b;
    "v_sub_f32"(a: f32, b: f32) -> f32 = a - b;
    "v_subrev_f32"(a: f32, b: f32) -> f32 = b - a;
    "v_mul_f32"(a: f32, b: f32) -> f32 = a * b;
    "v_mul_dx9_zero_f32"(a: f32, b: f32) -> f32 = product_or_zero(a, b);
    "v_fma_dx9_zero_f32"(a: f32, b: f32, c: f32) -> f32 = if a == 0.0 || b == 0.0 { c } else { a.mul_add(b, c) };
    "v_fma_f32"(a: f32, b: f32, c: f32) -> f32 = a.mul_add(b, c);
    "v_fmac_f32"(a: f32, b: f32, c: Dest<f32>) -> f32 = a.mul_add(b, c.0);
    "v_fmamk_f32" | "v_fmaak_f32"(a: f32, b: f32, c: f32) -> f32 = a.mul_add(b, c);
    "v_max_f32" | "v_max_num_f32"(a: f32, b: f32) -> f32 = max_num(a, b);
    "v_min_f32" | "v_min_num_f32"(a: f32, b: f32) -> f32 = min_num(a, b);
    "v_maximum_f32"(a: f32, b: f32) -> f32 = maximum(a, b);
    "v_minimum_f32"(a: f32, b: f32) -> f32 = minimum(a, b);
    "v_max3_f32" | "v_max3_num_f32"(a: f32, b: f32, c: f32) -> f32 = max_num(max_num(a, b), c);
    "v_min3_f32" | "v_min3_num_f32"(a: f32, b: f32, c: f32) -> f32 = min_num(min_num(a, b), c);
    "v_maximum3_f32"(a: f32, b: f32, c: f32) -> f32 = maximum(maximum(a, b), c);
    "v_minimum3_f32"(a: f32, b: f32, c: f32) -> f32 = minimum(minimum(a, b), c);
    "v_med3_f32" | "v_med3_num_f32"(a: f32, b: f32, c: f32) -> f32 = med3(a, b, c);
    "v_maxmin_f32" | "v_maxmin_num_f32"(a: f32, b: f32, c: f32) -> f32 = min_num(max_num(a, b), c);
    "v_minmax_f32" | "v_minmax_num_f32"(a: f32, b: f32, c: f32) -> f32 = max_num(min_num(a, b), c);
    "v_maximumminimum_f32"(a: f32, b: f32, c: f32) -> f32 = minimum(maximum(a, b), c);
    "v_minimummaximum_f32"(a: f32, b: f32, c: f32) -> f32 = maximum(minimum(a, b), c);
    "v_ldexp_f32"(a: f32, b: i32) -> f32 = ldexp(a, b);
    "v_frexp_mant_f32"(a: f32) -> f32 = frexp_mant(a);
    "v_frexp_exp_i32_f32"(a: f32) -> i32 = frexp_exp(a);
    "v_floor_f32"(a: f32) -> f32 = a.floor();
    "v_ceil_f32"(a: f32) -> f32 = a.ceil();
    "v_trunc_f32"(a: f32) -> f32 = a.trunc();
    "v_rndne_f32"(a: f32) -> f32 = a.round_ties_even();
    "v_fract_f32"(a: f32) -> f32 = (a - a.floor()).min(0.999_999_94);
    "v_div_scale_f32"(a: f32, b: f32, c: f32) -> Carry = div_scale(a, b, c);
    "v_div_fixup_f32"(a: f32, b: f32, c: f32) -> f32 = div_fixup(a, b, c);
    "v_exp_f32"(a: f32) -> f32 = f64::from(a).exp2() as f32;
    "v_log_f32"(a: f32) -> f32 = f64::from(a).log2() as f32;
    "v_rcp_f32" | "v_rcp_iflag_f32"(a: f32) -> f32 = 1.0 / a;
    "v_rsq_f32"(a: f32) -> f32 = (1.0 / f64::from(a).sqrt()) as f32;
    "v_sqrt_f32"(a: f32) -> f32 = a.sqrt();
    "v_sin_f32"(a: f32) -> f32 = (f64::from(a).fract() * std::f64::consts::TAU).sin() as f32;
    "v_cos_f32"(a: f32) -> f32 = (f64::from(a).fract() * std::f64::consts::TAU).cos() as f32;
    "v_fma_mix_f32"(a: Mix, b: Mix, c: Mix) -> f32 = a.0.mul_add(b.0, c.0);
    "v_fma_mixlo_f16" | "v_fma_mixhi_f16"(a: Mix, b: Mix, c: Mix) -> Half = Half(a.0.mul_add(b.0, c.0));
}

vector! { CONVERSIONS;
    "v_cvt_f32_i32"(a: i32) -> f32 = a as f32;
    "v_cvt_f32_u32"(a: u32) -> f32 = a as f32;
    "v_cvt_i32_f32"(a: f32) -> i32 = a as i32;
    "v_cvt_u32_f32"(a: f32) -> u32 = a as u32;
    "v_cvt_floor_i32_f32"(a: f32) -> i32 = a.floor() as i32;
    "v_cvt_nearest_i32_f32"(a: f32) -> i32 = (f64::from(a) + 0.5).floor() as i32;
    "v_cvt_f32_f16"(a: Half) -> f32 = a.0;
    "v_cvt_f16_f32"(a: f32) -> Half = Half(a);
    "v_cvt_f32_ubyte0"(a: u32) -> f32 = (a & 255) as f32;
    "v_cvt_f32_ubyte1"(a: u32) -> f32 = (a >> 8 & 255) as f32;
    "v_cvt_f32_ubyte2"(a: u32) -> f32 = (a >> 16 & 255) as f32;
    "v_cvt_f32_ubyte3"(a: u32) -> f32 = (a >> 24) as f32;
    "v_cvt_off_f32_i4"(a: u32) -> f32 = ((a << 28) as i32 >> 28) as f32 / 16.0;
    "v_cvt_pk_u8_f32"(a: f32, b: u32, c: u32) -> u32 = c & !(255 << (8 * (b & 3))) | u32::from(a as u8) << (8 * (b & 3));
    "v_cvt_pk_rtz_f16_f32"(a: f32, b: f32) -> u32 =
        u32::from(f32_to_f16_toward_zero(a)) | u32::from(f32_to_f16_toward_zero(b)) << 16;
    "v_cvt_pk_i16_f32"(a: f32, b: f32) -> Shorts = Shorts([a as i16 as u16, b as i16 as u16]);
    "v_cvt_pk_u16_f32"(a: f32, b: f32) -> Shorts = Shorts([a as u16, b as u16]);
    "v_cvt_pk_norm_i16_f32"(a: f32, b: f32) -> Shorts = Shorts([a, b].map(|x| (x * 32767.0).round_ties_even() as i16 as u16));
    "v_cvt_pk_norm_u16_f32"(a: f32, b: f32) -> Shorts = Shorts([a, b].map(|x| (x * 65535.0).round_ties_even() as u16));
    "v_cvt_pk_fp8_f32"(a: f32, b: f32) -> u16 = u16::from_le_bytes([a, b].map(|x| f32_to_fp8(Fp8::E4M3, x, false)));
    "v_cvt_pk_bf8_f32"(a: f32, b: f32) -> u16 = u16::from_le_bytes([a, b].map(|x| f32_to_fp8(Fp8::E5M2, x, false)));
    "v_cvt_pk_f32_fp8"(a: u16) -> u64 = pair(Fp8::E4M3, a);
    "v_cvt_pk_f32_bf8"(a: u16) -> u64 = pair(Fp8::E5M2, a);
}

fn pair(format: Fp8, x: u16) -> u64 {
    let [low, high] = x.to_le_bytes().map(|b| u64::from(fp8_to_f32(format, b).to_bits()));
    low | high << 32
}

// `v_div_fmas_f32` reads VCC beside its three sources: written out as a special.
super::special! { DIVIDE, super::form(crate::inst::Slot::F32, &[crate::inst::Slot::F32; 3]);
    "v_div_fmas_f32" => |w, i, _| {
        let (a, b, c) = (crate::value::load32(w, i, 0), crate::value::load32(w, i, 1), crate::value::load32(w, i, 2));
        let flags = w.s[crate::inst::VCC];
        let mut out = [0; crate::wave::LANES];
        for l in 0..crate::wave::LANES {
            let [a, b, c] = [a[l], b[l], c[l]].map(f32::from_bits);
            out[l] = div_fmas(a, b, c, flags >> l & 1 != 0).to_bits();
        }
        <f32 as crate::value::Target>::store(w, i, out);
        crate::inst::Flow::Next
    };
}

vector! { SELECT;
    "v_cndmask_b32"(a: crate::value::Signed32, b: crate::value::Signed32, m: Mask) -> u32 = if m.0 { b.0 } else { a.0 };
}

// Kept beside the F32 forms: they share `max_num` and friends.
vector! { HALF;
    "v_add_f16"(a: Half, b: Half) -> Half = Half(a.0 + b.0);
    "v_sub_f16"(a: Half, b: Half) -> Half = Half(a.0 - b.0);
    "v_subrev_f16"(a: Half, b: Half) -> Half = Half(b.0 - a.0);
    "v_mul_f16"(a: Half, b: Half) -> Half = Half(a.0 * b.0);
    "v_fma_f16" | "v_fmamk_f16" | "v_fmaak_f16"(a: Half, b: Half, c: Half) -> Half = Half(fma_f16(a.0, b.0, c.0));
    "v_fmac_f16"(a: Half, b: Half, c: Dest<Half>) -> Half = Half(fma_f16(a.0, b.0, c.0.0));
    "v_max_f16" | "v_max_num_f16"(a: Half, b: Half) -> Half = Half(max_num(a.0, b.0));
    "v_min_f16" | "v_min_num_f16"(a: Half, b: Half) -> Half = Half(min_num(a.0, b.0));
    "v_maximum_f16"(a: Half, b: Half) -> Half = Half(maximum(a.0, b.0));
    "v_minimum_f16"(a: Half, b: Half) -> Half = Half(minimum(a.0, b.0));
    "v_max3_f16" | "v_max3_num_f16"(a: Half, b: Half, c: Half) -> Half = Half(max_num(max_num(a.0, b.0), c.0));
    "v_min3_f16" | "v_min3_num_f16"(a: Half, b: Half, c: Half) -> Half = Half(min_num(min_num(a.0, b.0), c.0));
    "v_med3_f16" | "v_med3_num_f16"(a: Half, b: Half, c: Half) -> Half = Half(med3(a.0, b.0, c.0));
    "v_maxmin_f16" | "v_maxmin_num_f16"(a: Half, b: Half, c: Half) -> Half = Half(min_num(max_num(a.0, b.0), c.0));
    "v_minmax_f16" | "v_minmax_num_f16"(a: Half, b: Half, c: Half) -> Half = Half(max_num(min_num(a.0, b.0), c.0));
    "v_maximum3_f16"(a: Half, b: Half, c: Half) -> Half = Half(maximum(maximum(a.0, b.0), c.0));
    "v_minimum3_f16"(a: Half, b: Half, c: Half) -> Half = Half(minimum(minimum(a.0, b.0), c.0));
    "v_maximumminimum_f16"(a: Half, b: Half, c: Half) -> Half = Half(minimum(maximum(a.0, b.0), c.0));
    "v_minimummaximum_f16"(a: Half, b: Half, c: Half) -> Half = Half(maximum(minimum(a.0, b.0), c.0));
    "v_sin_f16"(a: Half) -> Half = Half((f64::from(a.0).fract() * std::f64::consts::TAU).sin() as f32);
    "v_cos_f16"(a: Half) -> Half = Half((f64::from(a.0).fract() * std::f64::consts::TAU).cos() as f32);
    "v_ldexp_f16"(a: Half, b: i16) -> Half = Half(ldexp(a.0, i32::from(b)));
    "v_frexp_mant_f16"(a: Half) -> Half = Half(frexp_mant(a.0));
    "v_frexp_exp_i16_f16"(a: Half) -> i16 = frexp_exp(a.0) as i16;
    "v_floor_f16"(a: Half) -> Half = Half(a.0.floor());
    "v_ceil_f16"(a: Half) -> Half = Half(a.0.ceil());
    "v_trunc_f16"(a: Half) -> Half = Half(a.0.trunc());
    "v_rndne_f16"(a: Half) -> Half = Half(a.0.round_ties_even());
    "v_fract_f16"(a: Half) -> Half = Half((a.0 - a.0.floor()).min(0.999_511_7));
    "v_exp_f16"(a: Half) -> Half = Half(f64::from(a.0).exp2() as f32);
    "v_log_f16"(a: Half) -> Half = Half(f64::from(a.0).log2() as f32);
    "v_rcp_f16"(a: Half) -> Half = Half(1.0 / a.0);
    "v_rsq_f16"(a: Half) -> Half = Half((1.0 / f64::from(a.0).sqrt()) as f32);
    "v_sqrt_f16"(a: Half) -> Half = Half(a.0.sqrt());
    "v_cvt_f16_u16"(a: u16) -> Half = Half(f32::from(a));
    "v_cvt_f16_i16"(a: i16) -> Half = Half(f32::from(a));
    "v_cvt_u16_f16"(a: Half) -> u16 = a.0 as u16;
    "v_cvt_i16_f16"(a: Half) -> i16 = a.0 as i16;
    "v_cvt_norm_i16_f16"(a: Half) -> i16 = (a.0 * 32767.0).round_ties_even() as i16;
    "v_cvt_norm_u16_f16"(a: Half) -> u16 = (a.0 * 65535.0).round_ties_even() as u16;
    "v_div_fixup_f16"(a: Half, b: Half, c: Half) -> Half = Half(div_fixup(a.0, b.0, c.0));
    "v_dot2_f16_f16"(a: Halves, b: Halves, c: Half) -> Half =
        Half(a.0[1].mul_add(b.0[1], a.0[0].mul_add(b.0[0], c.0)));
}

/// Rounds to BF16 and back: what a BF16 accumulator keeps.
#[inline(always)]
pub(crate) fn through_bf16(x: f32) -> f32 {
    crate::float::bf16_to_f32(f32_to_bf16(x))
}

/// All tables of this file.
pub const TABLES: [Table; 5] = [ARITHMETIC, CONVERSIONS, DIVIDE, SELECT, HALF];
