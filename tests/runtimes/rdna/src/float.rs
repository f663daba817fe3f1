//! Conversions between F32 and the narrow formats, bit by bit and without branches where a loop over lanes must
//! vectorise.
//!
//! Always true: rounding is to nearest even unless the name says otherwise; denormals of the narrow formats are kept.

/// F16 bits to F32.
#[inline(always)]
pub fn f16_to_f32(half: u16) -> f32 {
    let magnitude = u32::from(half) & 0x7fff;
    let shifted = magnitude << 13;
    let normal = shifted.wrapping_add(0x3800_0000);
    // Below the smallest normal the value is magnitude times 2^-24, exactly.
    let tiny = (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits();
    let special = shifted | 0x7f80_0000;
    let bits = if magnitude < 0x400 {
        tiny
    } else if magnitude >= 0x7c00 {
        special
    } else {
        normal
    };
    f32::from_bits(bits | (u32::from(half) & 0x8000) << 16)
}

/// F32 to F16 bits. A NaN stays one and becomes quiet.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // Adding 0.5 aligns a value below 2^-14 so that the float unit rounds it at 2^-24.
    let tiny = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let normal = magnitude.wrapping_sub(0x3800_0000).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    let nan = 0x7e00 | magnitude >> 13 & 0x3ff;
    let value = if magnitude > 0x7f80_0000 {
        nan
    } else if magnitude >= 0x477f_f000 {
        0x7c00
    } else if magnitude < 0x3880_0000 {
        tiny
    } else {
        normal
    };
    (value | bits >> 16 & 0x8000) as u16
}

/// F32 to F16 bits, towards zero (`v_cvt_pk_rtz_f16_f32`): a finite value never becomes infinite.
#[inline(always)]
pub fn f32_to_f16_toward_zero(x: f32) -> u16 {
    let nearest = f32_to_f16(x);
    let beyond = f16_to_f32(nearest).abs() > x.abs();
    nearest - u16::from(beyond)
}

/// BF16 bits to F32.
#[inline(always)]
pub fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// F32 to BF16 bits.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if x.is_nan() { bits >> 16 | 0x40 } else { rounded }) as u16
}

/// An FP8 format of gfx12: OCP E4M3 (no infinity) or E5M2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fp8 {
    /// `fp8`: 4 exponent bits, bias 7, largest 448, NaN 0x7f.
    E4M3,
    /// `bf8`: 5 exponent bits, bias 15, largest 57,344, infinity 0x7c: the top half of an F16.
    E5M2,
}

/// FP8 bits to F32.
pub fn fp8_to_f32(format: Fp8, x: u8) -> f32 {
    match format {
        Fp8::E5M2 => f16_to_f32(u16::from(x) << 8),
        Fp8::E4M3 => {
            let magnitude = u32::from(x & 0x7f);
            let value = match magnitude {
                0x7f => f32::NAN,
                0..=7 => magnitude as f32 / 512.0,
                _ => f32::from_bits((magnitude << 20) + (120 << 23)),
            };
            if x & 0x80 != 0 { -value } else { value }
        }
    }
}

/// F32 to FP8 bits, to nearest even. `saturate` (MODE.fp16_ovfl) turns overflow into the largest finite value;
/// without it overflow is NaN in E4M3 and infinity in E5M2.
pub fn f32_to_fp8(format: Fp8, x: f32, saturate: bool) -> u8 {
    let (mantissa, bias, largest, nan, overflow) = match format {
        Fp8::E4M3 => (3, 7, 448.0_f32, 0x7f, 0x7f),
        Fp8::E5M2 => (2, 15, 57344.0_f32, 0x7e, 0x7c),
    };
    let sign = (x.to_bits() >> 24 & 0x80) as u8;
    if x.is_nan() {
        return sign | nan;
    }
    let magnitude = x.abs();
    // The spacing of representable values around x: from its exponent, not below that of the smallest denormal.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(1 - bias);
    let step = 2f64.powi(exponent - mantissa);
    let rounded = (f64::from(magnitude) / step).round_ties_even() * step;
    if rounded > f64::from(largest) {
        let infinite = magnitude.is_infinite() && format == Fp8::E5M2;
        return sign | if saturate && !infinite { if format == Fp8::E4M3 { 0x7e } else { 0x7b } } else { overflow };
    }
    let smallest_normal = 2f64.powi(1 - bias);
    let bits = if rounded < smallest_normal {
        (rounded / 2f64.powi(1 - bias - mantissa)) as u32
    } else {
        let wide = (rounded as f32).to_bits();
        (((wide >> 23) as i32 - 127 + bias) as u32) << mantissa | (wide >> (23 - mantissa) & ((1 << mantissa) - 1))
    };
    sign | bits as u8
}

/// `a · b + c` for F16 operands, rounded once. The product is exact in F32; the sum is rounded to odd there, so that
/// the final rounding to F16 sees what was lost.
#[inline(always)]
pub fn fma_f16(a: f32, b: f32, c: f32) -> f32 {
    let product = a * b;
    let sum = product + c;
    let back = sum - product;
    let error = (product - (sum - back)) + (c - back);
    let bits = sum.to_bits();
    let inexact = error != 0.0 && error.is_finite() && bits & 1 == 0;
    let outward = (error > 0.0) == (sum > 0.0);
    let odd = if outward { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    f32::from_bits(if inexact { odd } else { bits })
}

/// Zero for a denormal, with its sign.
#[inline(always)]
pub fn flush(x: u32) -> u32 {
    if x & 0x7f80_0000 == 0 { x & 0x8000_0000 } else { x }
}
