//! 16-bit integers, packed pairs, and dot products of packed floats.
//!
//! Always true: a dot product's terms are exact in F32 (F16, BF16 and FP8 products fit) and are added to the third
//! operand one by one, first element first, each addition rounded. The order inside hardware is not documented.

use super::float32::{max_num, maximum, med3, min_num, minimum, through_bf16};
use super::{Table, form, special, vector};
use crate::float::{Fp8, f32_to_fp8, fma_f16, fp8_to_f32};
use crate::inst::{Flow, Slot};
use crate::value::{Brain, Brains, Dest, Half, Halves, Mask, Shorts, Value, load32, write32};
use crate::wave::{LANES, Lanes, Wave};

/// Four FP8 values of one format.
#[derive(Debug, Clone, Copy)]
pub struct Eights<const BF8: bool>([f32; 4]);

impl<const BF8: bool> Value for Eights<BF8> {
    const SLOT: Slot = Slot::B32;
    type Raw = Lanes;
    #[inline(always)]
    fn load(w: &mut Wave, i: &crate::inst::Inst, k: usize) -> Lanes {
        load32(w, i, k)
    }
    #[inline(always)]
    fn get(raw: &Lanes, lane: usize) -> Self {
        let format = if BF8 { Fp8::E5M2 } else { Fp8::E4M3 };
        Self(raw[lane].to_le_bytes().map(|x| fp8_to_f32(format, x)))
    }
}
type F = Eights<false>;
type B = Eights<true>;

#[inline(always)]
fn dot<const N: usize>(a: [f32; N], b: [f32; N], c: f32) -> f32 {
    let mut sum = c;
    for n in 0..N {
        sum = a[n].mul_add(b[n], sum);
    }
    sum
}
#[inline(always)]
fn both(a: Halves, b: Halves, f: impl Fn(f32, f32) -> f32) -> Halves {
    Halves([f(a.0[0], b.0[0]), f(a.0[1], b.0[1])])
}
#[inline(always)]
fn shorts(a: Shorts, b: Shorts, f: impl Fn(u16, u16) -> u16) -> Shorts {
    Shorts([f(a.0[0], b.0[0]), f(a.0[1], b.0[1])])
}
#[inline(always)]
fn signed(a: Shorts, b: Shorts, f: impl Fn(i16, i16) -> i16) -> Shorts {
    shorts(a, b, |a, b| f(a as i16, b as i16) as u16)
}
fn saturated(x: i32) -> u16 {
    x.clamp(-32768, 32767) as i16 as u16
}
fn saturated_byte(x: u16) -> u16 {
    (x as i16).clamp(0, 255) as u16
}

vector! { SHORT;
    "v_mov_b16"(a: u16) -> u16 = a;
    "v_not_b16"(a: u16) -> u16 = !a;
    "v_and_b16"(a: u16, b: u16) -> u16 = a & b;
    "v_or_b16"(a: u16, b: u16) -> u16 = a | b;
    "v_xor_b16"(a: u16, b: u16) -> u16 = a ^ b;
    "v_cndmask_b16"(a: Half16, b: Half16, m: Mask) -> u16 = if m.0 { b.0 } else { a.0 };
    "v_add_nc_u16" | "v_add_nc_i16"(a: u16, b: u16) -> u16 = a.wrapping_add(b);
    "v_sub_nc_u16" | "v_sub_nc_i16"(a: u16, b: u16) -> u16 = a.wrapping_sub(b);
    "v_add_nc_u16 clamp"(a: u16, b: u16) -> u16 = a.saturating_add(b);
    "v_sub_nc_u16 clamp"(a: u16, b: u16) -> u16 = a.saturating_sub(b);
    "v_add_nc_i16 clamp"(a: i16, b: i16) -> i16 = a.saturating_add(b);
    "v_sub_nc_i16 clamp"(a: i16, b: i16) -> i16 = a.saturating_sub(b);
    "v_mul_lo_u16"(a: u16, b: u16) -> u16 = a.wrapping_mul(b);
    "v_mad_u16" | "v_mad_i16"(a: u16, b: u16, c: u16) -> u16 = a.wrapping_mul(b).wrapping_add(c);
    "v_lshlrev_b16"(a: u16, b: u16) -> u16 = b << (a & 15);
    "v_lshrrev_b16"(a: u16, b: u16) -> u16 = b >> (a & 15);
    "v_ashrrev_i16"(a: u16, b: i16) -> i16 = b >> (a & 15);
    "v_max_u16"(a: u16, b: u16) -> u16 = a.max(b);
    "v_min_u16"(a: u16, b: u16) -> u16 = a.min(b);
    "v_max_i16"(a: i16, b: i16) -> i16 = a.max(b);
    "v_min_i16"(a: i16, b: i16) -> i16 = a.min(b);
    "v_max3_u16"(a: u16, b: u16, c: u16) -> u16 = a.max(b).max(c);
    "v_min3_u16"(a: u16, b: u16, c: u16) -> u16 = a.min(b).min(c);
    "v_med3_u16"(a: u16, b: u16, c: u16) -> u16 = a.min(b).max(a.max(b).min(c));
    "v_max3_i16"(a: i16, b: i16, c: i16) -> i16 = a.max(b).max(c);
    "v_min3_i16"(a: i16, b: i16, c: i16) -> i16 = a.min(b).min(c);
    "v_med3_i16"(a: i16, b: i16, c: i16) -> i16 = a.min(b).max(a.max(b).min(c));
    "v_cvt_u32_u16"(a: u16) -> u32 = u32::from(a);
    "v_cvt_i32_i16"(a: i16) -> i32 = i32::from(a);
    "v_cvt_pk_i16_i32"(a: i32, b: i32) -> Shorts = Shorts([saturated(a), saturated(b)]);
    "v_cvt_pk_u16_u32"(a: u32, b: u32) -> Shorts = Shorts([a.min(65535) as u16, b.min(65535) as u16]);
    "v_cvt_pk_norm_i16_f16"(a: Half, b: Half) -> Shorts = Shorts([a, b].map(|x| (x.0 * 32767.0).round_ties_even() as i16 as u16));
    "v_cvt_pk_norm_u16_f16"(a: Half, b: Half) -> Shorts = Shorts([a, b].map(|x| (x.0 * 65535.0).round_ties_even() as u16));
    "v_sat_pk_u8_i16"(a: u32) -> u16 = saturated_byte(a as u16) | saturated_byte((a >> 16) as u16) << 8;
    "v_pack_b32_f16"(a: Half16, b: Half16) -> u32 = u32::from(a.0) | u32::from(b.0) << 16;
}

/// F16 bits that keep the float modifiers but are not computed with.
#[derive(Debug, Clone, Copy)]
pub struct Half16(u16);

impl Value for Half16 {
    const SLOT: Slot = Slot::F16;
    type Raw = Lanes;
    #[inline(always)]
    fn load(w: &mut Wave, i: &crate::inst::Inst, k: usize) -> Lanes {
        load32(w, i, k)
    }
    #[inline(always)]
    fn get(raw: &Lanes, lane: usize) -> Self {
        Self(raw[lane] as u16)
    }
}

vector! { PACKED;
    "v_pk_add_f16"(a: Halves, b: Halves) -> Halves = both(a, b, |a, b| a + b);
    "v_pk_mul_f16"(a: Halves, b: Halves) -> Halves = both(a, b, |a, b| a * b);
    "v_pk_fma_f16"(a: Halves, b: Halves, c: Halves) -> Halves = Halves([fma_f16(a.0[0], b.0[0], c.0[0]), fma_f16(a.0[1], b.0[1], c.0[1])]);
    "v_pk_fmac_f16"(a: Halves, b: Halves, c: Dest<Halves>) -> Halves = Halves([fma_f16(a.0[0], b.0[0], c.0.0[0]), fma_f16(a.0[1], b.0[1], c.0.0[1])]);
    "v_pk_max_f16" | "v_pk_max_num_f16"(a: Halves, b: Halves) -> Halves = both(a, b, max_num);
    "v_pk_min_f16" | "v_pk_min_num_f16"(a: Halves, b: Halves) -> Halves = both(a, b, min_num);
    "v_pk_maximum_f16"(a: Halves, b: Halves) -> Halves = both(a, b, maximum);
    "v_pk_minimum_f16"(a: Halves, b: Halves) -> Halves = both(a, b, minimum);
    "v_pk_add_f16 clamp"(a: Halves, b: Halves) -> Halves = both(a, b, |a, b| med3(a + b, 0.0, 1.0));
    "v_pk_mul_f16 clamp"(a: Halves, b: Halves) -> Halves = both(a, b, |a, b| med3(a * b, 0.0, 1.0));
    "v_pk_add_u16" | "v_pk_add_i16"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, u16::wrapping_add);
    "v_pk_sub_u16" | "v_pk_sub_i16"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, u16::wrapping_sub);
    "v_pk_add_u16 clamp"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, u16::saturating_add);
    "v_pk_sub_u16 clamp"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, u16::saturating_sub);
    "v_pk_add_i16 clamp"(a: Shorts, b: Shorts) -> Shorts = signed(a, b, i16::saturating_add);
    "v_pk_sub_i16 clamp"(a: Shorts, b: Shorts) -> Shorts = signed(a, b, i16::saturating_sub);
    "v_pk_mul_lo_u16"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, u16::wrapping_mul);
    "v_pk_mad_u16" | "v_pk_mad_i16"(a: Shorts, b: Shorts, c: Shorts) -> Shorts = shorts(shorts(a, b, u16::wrapping_mul), c, u16::wrapping_add);
    "v_pk_max_u16"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, |a, b| a.max(b));
    "v_pk_min_u16"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, |a, b| a.min(b));
    "v_pk_max_i16"(a: Shorts, b: Shorts) -> Shorts = signed(a, b, |a, b| a.max(b));
    "v_pk_min_i16"(a: Shorts, b: Shorts) -> Shorts = signed(a, b, |a, b| a.min(b));
    "v_pk_lshlrev_b16"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, |a, b| b << (a & 15));
    "v_pk_lshrrev_b16"(a: Shorts, b: Shorts) -> Shorts = shorts(a, b, |a, b| b >> (a & 15));
    "v_pk_ashrrev_i16"(a: Shorts, b: Shorts) -> Shorts = signed(a, b, |a, b| b >> (a & 15));
}

vector! { DOT;
    "v_dot2_f32_f16"(a: Halves, b: Halves, c: f32) -> f32 = dot(a.0, b.0, c);
    "v_dot2_f32_bf16"(a: Brains, b: Brains, c: f32) -> f32 = dot(a.0, b.0, c);
    "v_dot2acc_f32_f16"(a: Halves, b: Halves, c: Dest<f32>) -> f32 = dot(a.0, b.0, c.0);
    "v_dot2acc_f32_bf16"(a: Brains, b: Brains, c: Dest<f32>) -> f32 = dot(a.0, b.0, c.0);
    "v_dot2_bf16_bf16"(a: Brains, b: Brains, c: u16) -> Brain = Brain(through_bf16(dot(a.0, b.0, crate::float::bf16_to_f32(c))));
    "v_dot4_f32_fp8_fp8"(a: F, b: F, c: f32) -> f32 = dot(a.0, b.0, c);
    "v_dot4_f32_fp8_bf8"(a: F, b: B, c: f32) -> f32 = dot(a.0, b.0, c);
    "v_dot4_f32_bf8_fp8"(a: B, b: F, c: f32) -> f32 = dot(a.0, b.0, c);
    "v_dot4_f32_bf8_bf8"(a: B, b: B, c: f32) -> f32 = dot(a.0, b.0, c);
}

/// Stochastic rounding: the random word's top bits decide in place of half a unit.
fn stochastic(format: Fp8, x: f32, random: u32) -> u8 {
    let kept = if format == Fp8::E4M3 { 20 } else { 21 };
    let dithered = f32::from_bits((x.to_bits() & 0x7fff_ffff).saturating_add(random >> (32 - kept)) >> kept << kept);
    if x.is_finite() { f32_to_fp8(format, dithered.copysign(x), false) } else { f32_to_fp8(format, x, false) }
}

fn stochastic_lanes(w: &mut Wave, i: &crate::inst::Inst, format: Fp8) -> Flow {
    let (x, random) = (load32(w, i, 0), load32(w, i, 1));
    let shift = 8 * u32::from(i.op_sel >> 2 & 3);
    let mut out = w.v[usize::from(i.dst) & 511];
    for l in 0..LANES {
        let byte = u32::from(stochastic(format, f32::from_bits(x[l]), random[l]));
        out[l] = out[l] & !(255 << shift) | byte << shift;
    }
    let mask = w.exec();
    write32(w, usize::from(i.dst), &out, mask);
    Flow::Next
}

fn eighth(w: &mut Wave, i: &crate::inst::Inst, format: Fp8) -> Flow {
    // The byte selector's bits stand in op_sel's order reversed.
    let shift = 8 * (u32::from(i.op_sel >> 1 & 1) | u32::from(i.op_sel & 1) << 1);
    let out = load32(w, i, 0).map(|x| fp8_to_f32(format, (x >> shift) as u8).to_bits());
    <f32 as crate::value::Target>::store(w, i, out);
    Flow::Next
}

special! { FROM_FP8, form(Slot::F32, &[Slot::B32]);
    "v_cvt_f32_fp8" => |w, i, _| eighth(w, i, Fp8::E4M3);
    "v_cvt_f32_bf8" => |w, i, _| eighth(w, i, Fp8::E5M2);
}
special! { TO_FP8, form(Slot::B32, &[Slot::F32, Slot::B32]);
    "v_cvt_sr_fp8_f32" => |w, i, _| stochastic_lanes(w, i, Fp8::E4M3);
    "v_cvt_sr_bf8_f32" => |w, i, _| stochastic_lanes(w, i, Fp8::E5M2);
}

/// All tables of this file.
pub const TABLES: [Table; 5] = [SHORT, PACKED, DOT, FROM_FP8, TO_FP8];
