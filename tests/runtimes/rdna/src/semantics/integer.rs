//! 32-bit integers and bits.

use super::{Table, vector};
use crate::inst::Slot;
use crate::value::{Carry, Mask, Value};
use crate::wave::{Lanes, Wave};

/// The lane's own number: reads no operand.
#[derive(Debug, Clone, Copy)]
pub struct LaneId(u32);

impl Value for LaneId {
    const SLOT: Slot = Slot::None;
    type Raw = ();
    #[inline(always)]
    fn load(_: &mut Wave, _: &crate::inst::Inst, _: usize) {}
    #[inline(always)]
    fn get((): &(), lane: usize) -> Self {
        Self(lane as u32)
    }
}

/// Four bytes, signed where the instruction's negation bit says so (`iu8`).
#[derive(Debug, Clone, Copy)]
pub struct Bytes([i32; 4]);
/// Eight nibbles, the same way (`iu4`).
#[derive(Debug, Clone, Copy)]
pub struct Nibbles([i32; 8]);

macro_rules! integers {
    ($type:ident, $count:expr, $bits:expr) => {
        impl Value for $type {
            const SLOT: Slot = Slot::B32;
            type Raw = (Lanes, bool);
            #[inline(always)]
            fn load(w: &mut Wave, i: &crate::inst::Inst, k: usize) -> Self::Raw {
                (crate::value::load32(w, i, k), i.neg >> k & 1 != 0)
            }
            #[inline(always)]
            fn get(raw: &Self::Raw, lane: usize) -> Self {
                Self(std::array::from_fn(|n| {
                    let up = raw.0[lane] << (32 - $bits - $bits * n);
                    if raw.1 { up as i32 >> (32 - $bits) } else { (up >> (32 - $bits)) as i32 }
                }))
            }
        }
    };
}
integers!(Bytes, 4, 8);
integers!(Nibbles, 8, 4);

fn dot<const N: usize>(a: [i32; N], b: [i32; N]) -> i64 {
    a.iter().zip(b).map(|(a, b)| i64::from(*a) * i64::from(b)).sum()
}
fn saturate(x: i64) -> i32 {
    x.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}
fn udot<const BITS: u32>(a: u32, b: u32) -> u64 {
    let mask = (1u32 << BITS) - 1;
    (0..32 / BITS).map(|n| u64::from((a >> (n * BITS) & mask) * (b >> (n * BITS) & mask))).sum()
}

/// A byte of the eight in `high:low`, or a constant, as `v_perm_b32` selects it.
fn permuted_byte(high: u32, low: u32, selector: u32) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    let sign = |bit: u32| if both >> bit & 1 != 0 { 255 } else { 0 };
    match selector {
        0..=7 => (both >> (8 * selector)) as u32 & 255,
        8 => sign(15),
        9 => sign(31),
        10 => sign(47),
        11 => sign(63),
        12 => 0,
        _ => 255,
    }
}
fn permute_bytes(a: u32, b: u32, selectors: u32) -> u32 {
    (0..4).map(|n| permuted_byte(a, b, selectors >> (8 * n) & 255) << (8 * n)).sum()
}
#[inline(always)]
fn field(a: u32, offset: u32, width: u32) -> u32 {
    a >> (offset & 31) & ((1u32 << (width & 31)) - 1)
}
#[inline(always)]
fn signed_field(a: u32, offset: u32, width: u32) -> u32 {
    let spare = 32 - (width & 31);
    let low = field(a, offset, width);
    // A width of 0 gives 0: shifting by 32 in two steps.
    (((low << (spare - 1)) << 1) as i32 >> (spare - 1) >> 1) as u32
}
fn sad<const BITS: u32>(a: u32, b: u32) -> u32 {
    let mask = (1u32 << BITS) - 1;
    (0..32 / BITS).map(|n| (a >> (n * BITS) & mask).abs_diff(b >> (n * BITS) & mask)).sum()
}
fn signed24(a: u32) -> i32 {
    (a << 8) as i32 >> 8
}
/// Bits of equal value below the sign, as `v_cls_i32` counts them; all ones when there is nothing else.
pub(crate) fn count_sign(a: i32) -> i32 {
    let lead = if a < 0 { a.leading_ones() } else { a.leading_zeros() };
    if lead == 32 { -1 } else { lead as i32 }
}
/// `count`, or all ones for zero.
pub(crate) fn or_none(x: u32, count: u32) -> u32 {
    if x == 0 { !0 } else { count }
}

vector! { ADDITION;
    "v_add_nc_u32" | "v_add_nc_i32"(a: u32, b: u32) -> u32 = a.wrapping_add(b);
    "v_sub_nc_u32" | "v_sub_nc_i32"(a: u32, b: u32) -> u32 = a.wrapping_sub(b);
    "v_subrev_nc_u32"(a: u32, b: u32) -> u32 = b.wrapping_sub(a);
    "v_add_nc_u32 clamp"(a: u32, b: u32) -> u32 = a.saturating_add(b);
    "v_sub_nc_u32 clamp"(a: u32, b: u32) -> u32 = a.saturating_sub(b);
    "v_subrev_nc_u32 clamp"(a: u32, b: u32) -> u32 = b.saturating_sub(a);
    "v_add_nc_i32 clamp"(a: i32, b: i32) -> i32 = a.saturating_add(b);
    "v_sub_nc_i32 clamp"(a: i32, b: i32) -> i32 = a.saturating_sub(b);
    "v_add_co_u32"(a: u32, b: u32) -> Carry = { let (x, c) = a.overflowing_add(b); Carry(x, c) };
    "v_sub_co_u32"(a: u32, b: u32) -> Carry = { let (x, c) = a.overflowing_sub(b); Carry(x, c) };
    "v_subrev_co_u32"(a: u32, b: u32) -> Carry = { let (x, c) = b.overflowing_sub(a); Carry(x, c) };
    "v_add_co_ci_u32"(a: u32, b: u32, m: Mask) -> Carry = { let x = u64::from(a) + u64::from(b) + u64::from(m.0); Carry(x as u32, x >> 32 != 0) };
    "v_sub_co_ci_u32"(a: u32, b: u32, m: Mask) -> Carry = { let x = i64::from(a) - i64::from(b) - i64::from(m.0); Carry(x as u32, x < 0) };
    "v_subrev_co_ci_u32"(a: u32, b: u32, m: Mask) -> Carry = { let x = i64::from(b) - i64::from(a) - i64::from(m.0); Carry(x as u32, x < 0) };
    "v_add3_u32"(a: u32, b: u32, c: u32) -> u32 = a.wrapping_add(b).wrapping_add(c);
    "v_lshl_add_u32"(a: u32, b: u32, c: u32) -> u32 = (a << (b & 31)).wrapping_add(c);
    "v_add_lshl_u32"(a: u32, b: u32, c: u32) -> u32 = a.wrapping_add(b) << (c & 31);
    "v_xad_u32"(a: u32, b: u32, c: u32) -> u32 = (a ^ b).wrapping_add(c);
    "v_sad_u8"(a: u32, b: u32, c: u32) -> u32 = sad::<8>(a, b).wrapping_add(c);
    "v_sad_u16"(a: u32, b: u32, c: u32) -> u32 = sad::<16>(a, b).wrapping_add(c);
    "v_sad_u32"(a: u32, b: u32, c: u32) -> u32 = a.abs_diff(b).wrapping_add(c);
    "v_sad_hi_u8"(a: u32, b: u32, c: u32) -> u32 = (sad::<8>(a, b) << 16).wrapping_add(c);
}

vector! { MULTIPLICATION;
    "v_mul_lo_u32"(a: u32, b: u32) -> u32 = a.wrapping_mul(b);
    "v_mul_hi_u32"(a: u32, b: u32) -> u32 = ((u64::from(a) * u64::from(b)) >> 32) as u32;
    "v_mul_hi_i32"(a: i32, b: i32) -> i32 = ((i64::from(a) * i64::from(b)) >> 32) as i32;
    "v_mul_u32_u24"(a: u32, b: u32) -> u32 = (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff);
    "v_mul_hi_u32_u24"(a: u32, b: u32) -> u32 = (u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff) >> 32) as u32;
    "v_mul_i32_i24"(a: u32, b: u32) -> i32 = signed24(a).wrapping_mul(signed24(b));
    "v_mul_hi_i32_i24"(a: u32, b: u32) -> i32 = (i64::from(signed24(a)) * i64::from(signed24(b)) >> 32) as i32;
    "v_mad_u32_u24"(a: u32, b: u32, c: u32) -> u32 = (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff).wrapping_add(c);
    "v_mad_i32_i24"(a: u32, b: u32, c: u32) -> u32 = (signed24(a).wrapping_mul(signed24(b)) as u32).wrapping_add(c);
    "v_mad_u32_u16"(a: u16, b: u16, c: u32) -> u32 = (u32::from(a) * u32::from(b)).wrapping_add(c);
    "v_mad_i32_i16"(a: i16, b: i16, c: u32) -> u32 = ((i32::from(a) * i32::from(b)) as u32).wrapping_add(c);
    "v_dot4_i32_iu8"(a: Bytes, b: Bytes, c: i32) -> i32 = (dot(a.0, b.0) + i64::from(c)) as i32;
    "v_dot4_i32_iu8 clamp"(a: Bytes, b: Bytes, c: i32) -> i32 = saturate(dot(a.0, b.0) + i64::from(c));
    "v_dot8_i32_iu4"(a: Nibbles, b: Nibbles, c: i32) -> i32 = (dot(a.0, b.0) + i64::from(c)) as i32;
    "v_dot8_i32_iu4 clamp"(a: Nibbles, b: Nibbles, c: i32) -> i32 = saturate(dot(a.0, b.0) + i64::from(c));
    "v_dot4_u32_u8"(a: u32, b: u32, c: u32) -> u32 = (udot::<8>(a, b) + u64::from(c)) as u32;
    "v_dot4_u32_u8 clamp"(a: u32, b: u32, c: u32) -> u32 = (udot::<8>(a, b) + u64::from(c)).min(u64::from(u32::MAX)) as u32;
    "v_dot8_u32_u4"(a: u32, b: u32, c: u32) -> u32 = (udot::<4>(a, b) + u64::from(c)) as u32;
    "v_dot8_u32_u4 clamp"(a: u32, b: u32, c: u32) -> u32 = (udot::<4>(a, b) + u64::from(c)).min(u64::from(u32::MAX)) as u32;
}

vector! { BITS;
    "v_mov_b32"(a: u32) -> u32 = a;
    "v_not_b32"(a: u32) -> u32 = !a;
    "v_and_b32"(a: u32, b: u32) -> u32 = a & b;
    "v_or_b32"(a: u32, b: u32) -> u32 = a | b;
    "v_xor_b32"(a: u32, b: u32) -> u32 = a ^ b;
    "v_xnor_b32"(a: u32, b: u32) -> u32 = !(a ^ b);
    "v_and_or_b32"(a: u32, b: u32, c: u32) -> u32 = a & b | c;
    "v_or3_b32"(a: u32, b: u32, c: u32) -> u32 = a | b | c;
    "v_xor3_b32"(a: u32, b: u32, c: u32) -> u32 = a ^ b ^ c;
    "v_lshl_or_b32"(a: u32, b: u32, c: u32) -> u32 = a << (b & 31) | c;
    "v_lshlrev_b32"(a: u32, b: u32) -> u32 = b << (a & 31);
    "v_lshrrev_b32"(a: u32, b: u32) -> u32 = b >> (a & 31);
    "v_ashrrev_i32"(a: u32, b: i32) -> i32 = b >> (a & 31);
    "v_bfe_u32"(a: u32, b: u32, c: u32) -> u32 = field(a, b, c);
    "v_bfe_i32"(a: u32, b: u32, c: u32) -> u32 = signed_field(a, b, c);
    "v_bfi_b32"(a: u32, b: u32, c: u32) -> u32 = a & b | !a & c;
    "v_bfm_b32"(a: u32, b: u32) -> u32 = ((1u32 << (a & 31)) - 1) << (b & 31);
    "v_alignbit_b32"(a: u32, b: u32, c: u32) -> u32 = ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32;
    "v_alignbyte_b32"(a: u32, b: u32, c: u32) -> u32 = ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32;
    "v_perm_b32"(a: u32, b: u32, c: u32) -> u32 = permute_bytes(a, b, c);
    "v_bfrev_b32"(a: u32) -> u32 = a.reverse_bits();
    "v_bcnt_u32_b32"(a: u32, b: u32) -> u32 = a.count_ones().wrapping_add(b);
    "v_clz_i32_u32"(a: u32) -> u32 = or_none(a, a.leading_zeros());
    "v_ctz_i32_b32"(a: u32) -> u32 = or_none(a, a.trailing_zeros());
    "v_cls_i32"(a: i32) -> i32 = count_sign(a);
    "v_mbcnt_lo_u32_b32"(a: u32, b: u32, lane: LaneId) -> u32 = (a & ((1u32 << lane.0) - 1)).count_ones().wrapping_add(b);
    // The upper 32 lanes of a mask belong to wave64.
    "v_mbcnt_hi_u32_b32"(a: u32, b: u32) -> u32 = { let _ = a; b };
}

vector! { ORDER;
    "v_max_u32"(a: u32, b: u32) -> u32 = a.max(b);
    "v_min_u32"(a: u32, b: u32) -> u32 = a.min(b);
    "v_max_i32"(a: i32, b: i32) -> i32 = a.max(b);
    "v_min_i32"(a: i32, b: i32) -> i32 = a.min(b);
    "v_max3_u32"(a: u32, b: u32, c: u32) -> u32 = a.max(b).max(c);
    "v_min3_u32"(a: u32, b: u32, c: u32) -> u32 = a.min(b).min(c);
    "v_med3_u32"(a: u32, b: u32, c: u32) -> u32 = a.min(b).max(a.max(b).min(c));
    "v_max3_i32"(a: i32, b: i32, c: i32) -> i32 = a.max(b).max(c);
    "v_min3_i32"(a: i32, b: i32, c: i32) -> i32 = a.min(b).min(c);
    "v_med3_i32"(a: i32, b: i32, c: i32) -> i32 = a.min(b).max(a.max(b).min(c));
    "v_maxmin_u32"(a: u32, b: u32, c: u32) -> u32 = a.max(b).min(c);
    "v_minmax_u32"(a: u32, b: u32, c: u32) -> u32 = a.min(b).max(c);
    "v_maxmin_i32"(a: i32, b: i32, c: i32) -> i32 = a.max(b).min(c);
    "v_minmax_i32"(a: i32, b: i32, c: i32) -> i32 = a.min(b).max(c);
}

/// All tables of this file.
pub const TABLES: [Table; 4] = [ADDITION, MULTIPLICATION, BITS, ORDER];
