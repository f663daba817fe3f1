//! Scalar arithmetic, comparisons and the mask operations on EXEC.
//!
//! Owns: `scalar!`, the operand types of the scalar unit, and its lines. Always true: a result type says what happens
//! to SCC: plain types leave it, `NonZero` sets it to "result is not zero", `Flagged` to a given bit, `bool` is SCC.

use super::{Table, form, special};
use crate::float::{f16_to_f32, f32_to_f16, f32_to_f16_toward_zero, fma_f16};
use crate::inst::{Bank, EXEC, Flow, Inst, SCC, Slot};
use crate::semantics::float32::{max_num, maximum, min_num, minimum};
use crate::semantics::integer::{count_sign, or_none};
use crate::wave::Wave;

/// A scalar source.
trait Read: Copy {
    const SLOT: Slot;
    fn read(w: &Wave, i: &Inst, k: usize) -> Self;
}
/// A scalar result.
trait Write {
    const SLOT: Slot;
    fn write(self, w: &mut Wave, i: &Inst);
}

#[inline(always)]
fn word(w: &Wave, i: &Inst, k: usize) -> u32 {
    let s = &i.src[k];
    if s.bank == Bank::Scalar { w.s[usize::from(s.index)] } else { s.value as u32 }
}
#[inline(always)]
fn double(w: &Wave, i: &Inst, k: usize) -> u64 {
    let s = &i.src[k];
    if s.bank == Bank::Scalar { w.pair(usize::from(s.index)) } else { s.value }
}

macro_rules! scalar_type {
    ($type:ty, $slot:expr, $read:ident, $from:expr, |$w:ident, $i:ident, $x:ident| $write:expr) => {
        impl Read for $type {
            const SLOT: Slot = $slot;
            #[inline(always)]
            fn read(w: &Wave, i: &Inst, k: usize) -> Self {
                ($from)($read(w, i, k))
            }
        }
        impl Write for $type {
            const SLOT: Slot = $slot;
            #[inline(always)]
            fn write(self, $w: &mut Wave, $i: &Inst) {
                let $x = self;
                $write
            }
        }
    };
}
/// F16 in the low half of a scalar register.
#[derive(Debug, Clone, Copy)]
struct Half(f32);
/// SCC as a source.
#[derive(Debug, Clone, Copy)]
struct Scc(bool);
/// The destination as a source.
#[derive(Debug, Clone, Copy)]
struct Old<T>(T);
/// Sets SCC if not zero.
struct NonZero<T>(T);
/// Sets SCC as told.
struct Flagged<T>(T, bool);

scalar_type!(u32, Slot::B32, word, |x| x, |w, i, x| w.s[usize::from(i.dst)] = x);
scalar_type!(i32, Slot::B32, word, |x| x as i32, |w, i, x| w.s[usize::from(i.dst)] = x as u32);
scalar_type!(f32, Slot::F32, word, f32::from_bits, |w, i, x| w.s[usize::from(i.dst)] = x.to_bits());
scalar_type!(u64, Slot::B64, double, |x| x, |w, i, x| w.set_pair(usize::from(i.dst), x));
scalar_type!(i64, Slot::B64, double, |x| x as i64, |w, i, x| w.set_pair(usize::from(i.dst), x as u64));
scalar_type!(Half, Slot::F16, word, |x| Half(f16_to_f32(x as u16)), |w, i, x| w.s[usize::from(i.dst)] =
    u32::from(f32_to_f16(x.0)));

impl Read for Scc {
    const SLOT: Slot = Slot::Scc;
    #[inline(always)]
    fn read(w: &Wave, _: &Inst, _: usize) -> Self {
        Self(w.s[SCC] != 0)
    }
}
impl Read for Old<u32> {
    const SLOT: Slot = Slot::DestB32;
    #[inline(always)]
    fn read(w: &Wave, i: &Inst, _: usize) -> Self {
        Self(w.s[usize::from(i.dst)])
    }
}
impl Read for Old<f32> {
    const SLOT: Slot = Slot::DestB32;
    #[inline(always)]
    fn read(w: &Wave, i: &Inst, _: usize) -> Self {
        Self(f32::from_bits(w.s[usize::from(i.dst)]))
    }
}
impl Read for Old<u64> {
    const SLOT: Slot = Slot::DestB32;
    #[inline(always)]
    fn read(w: &Wave, i: &Inst, _: usize) -> Self {
        Self(w.pair(usize::from(i.dst)))
    }
}
impl Write for bool {
    const SLOT: Slot = Slot::None;
    #[inline(always)]
    fn write(self, w: &mut Wave, _: &Inst) {
        w.s[SCC] = u32::from(self);
    }
}
impl<T: Write + Copy + Default + PartialEq> Write for NonZero<T> {
    const SLOT: Slot = T::SLOT;
    #[inline(always)]
    fn write(self, w: &mut Wave, i: &Inst) {
        w.s[SCC] = u32::from(self.0 != T::default());
        self.0.write(w, i);
    }
}
impl<T: Write> Write for Flagged<T> {
    const SLOT: Slot = T::SLOT;
    #[inline(always)]
    fn write(self, w: &mut Wave, i: &Inst) {
        self.0.write(w, i);
        w.s[SCC] = u32::from(self.1);
    }
}

macro_rules! read {
    ($w:ident $i:ident; $a:ident $A:ty) => {
        let $a = <$A as Read>::read($w, $i, 0);
    };
    ($w:ident $i:ident; $a:ident $A:ty, $b:ident $B:ty) => {
        let ($a, $b) = (<$A as Read>::read($w, $i, 0), <$B as Read>::read($w, $i, 1));
    };
    ($w:ident $i:ident; $a:ident $A:ty, $b:ident $B:ty, $c:ident $C:ty) => {
        let ($a, $b, $c) =
            (<$A as Read>::read($w, $i, 0), <$B as Read>::read($w, $i, 1), <$C as Read>::read($w, $i, 2));
    };
}
macro_rules! scalar {
    ($table:ident; $($($name:literal)|+ ($($a:ident: $A:ty),*) -> $R:ty = $e:expr;)*) => {
        const $table: Table = &[$({
            #[inline(always)]
            fn body(w: &mut Wave, i: &Inst, _: &mut crate::wave::Group<'_>) -> Flow {
                read!(w i; $($a $A),*);
                let value: $R = $e;
                value.write(w, i);
                Flow::Next
            }
            super::compiled!(&[$($name),+], form(<$R as Write>::SLOT, &[$(<$A as Read>::SLOT),*]), body)
        }),*];
    };
}

fn flag<T>((value, carry): (T, bool)) -> Flagged<T> {
    Flagged(value, carry)
}
fn unordered(a: f32, b: f32) -> bool {
    a.is_nan() || b.is_nan()
}
fn bits(a: u64, offset: u32, width: u32) -> u64 {
    let shifted = a >> offset;
    if width >= 64 { shifted } else { shifted & ((1 << width) - 1) }
}
fn signed_bits(a: u64, offset: u32, width: u32) -> i64 {
    if width == 0 {
        return 0;
    }
    let spare = 64 - width.min(64);
    (bits(a, offset, width) << spare) as i64 >> spare
}

scalar! { MOVES;
    "s_mov_b32"(a: u32) -> u32 = a;
    "s_mov_b64"(a: u64) -> u64 = a;
    "s_movk_i32"(a: u32) -> u32 = a;
    "s_cmov_b32" | "s_cmovk_i32"(a: u32, d: Old<u32>, s: Scc) -> u32 = if s.0 { a } else { d.0 };
    "s_cmov_b64"(a: u64, d: Old<u64>, s: Scc) -> u64 = if s.0 { a } else { d.0 };
    "s_cselect_b32"(a: u32, b: u32, s: Scc) -> u32 = if s.0 { a } else { b };
    "s_cselect_b64"(a: u64, b: u64, s: Scc) -> u64 = if s.0 { a } else { b };
    "s_sext_i32_i8"(a: u32) -> i32 = i32::from(a as i8);
    "s_sext_i32_i16"(a: u32) -> i32 = i32::from(a as i16);
    "s_pack_ll_b32_b16"(a: u32, b: u32) -> u32 = a & 0xffff | b << 16;
    "s_pack_lh_b32_b16"(a: u32, b: u32) -> u32 = a & 0xffff | b & 0xffff_0000;
    "s_pack_hl_b32_b16"(a: u32, b: u32) -> u32 = a >> 16 | b << 16;
    "s_pack_hh_b32_b16"(a: u32, b: u32) -> u32 = a >> 16 | b & 0xffff_0000;
}

scalar! { ARITHMETIC;
    "s_add_u32" | "s_add_co_u32"(a: u32, b: u32) -> Flagged<u32> = flag(a.overflowing_add(b));
    "s_sub_u32" | "s_sub_co_u32"(a: u32, b: u32) -> Flagged<u32> = flag(a.overflowing_sub(b));
    "s_add_i32" | "s_add_co_i32"(a: i32, b: i32) -> Flagged<i32> = flag(a.overflowing_add(b));
    "s_sub_i32" | "s_sub_co_i32"(a: i32, b: i32) -> Flagged<i32> = flag(a.overflowing_sub(b));
    "s_addk_i32" | "s_addk_co_i32"(a: i32, b: i32) -> Flagged<i32> = flag(a.overflowing_add(b));
    "s_mulk_i32"(a: i32, b: i32) -> i32 = a.wrapping_mul(b);
    "s_addc_u32" | "s_add_co_ci_u32"(a: u32, b: u32, s: Scc) -> Flagged<u32> = { let x = u64::from(a) + u64::from(b) + u64::from(s.0); Flagged(x as u32, x >> 32 != 0) };
    "s_subb_u32" | "s_sub_co_ci_u32"(a: u32, b: u32, s: Scc) -> Flagged<u32> = { let x = i64::from(a) - i64::from(b) - i64::from(s.0); Flagged(x as u32, x < 0) };
    "s_add_nc_u64"(a: u64, b: u64) -> u64 = a.wrapping_add(b);
    "s_sub_nc_u64"(a: u64, b: u64) -> u64 = a.wrapping_sub(b);
    "s_mul_i32"(a: u32, b: u32) -> u32 = a.wrapping_mul(b);
    "s_mul_u64"(a: u64, b: u64) -> u64 = a.wrapping_mul(b);
    "s_mul_hi_u32"(a: u32, b: u32) -> u32 = (u64::from(a) * u64::from(b) >> 32) as u32;
    "s_mul_hi_i32"(a: i32, b: i32) -> i32 = (i64::from(a) * i64::from(b) >> 32) as i32;
    "s_lshl1_add_u32"(a: u32, b: u32) -> Flagged<u32> = { let x = (u64::from(a) << 1) + u64::from(b); Flagged(x as u32, x >> 32 != 0) };
    "s_lshl2_add_u32"(a: u32, b: u32) -> Flagged<u32> = { let x = (u64::from(a) << 2) + u64::from(b); Flagged(x as u32, x >> 32 != 0) };
    "s_lshl3_add_u32"(a: u32, b: u32) -> Flagged<u32> = { let x = (u64::from(a) << 3) + u64::from(b); Flagged(x as u32, x >> 32 != 0) };
    "s_lshl4_add_u32"(a: u32, b: u32) -> Flagged<u32> = { let x = (u64::from(a) << 4) + u64::from(b); Flagged(x as u32, x >> 32 != 0) };
    "s_min_u32"(a: u32, b: u32) -> Flagged<u32> = Flagged(a.min(b), a < b);
    "s_max_u32"(a: u32, b: u32) -> Flagged<u32> = Flagged(a.max(b), a > b);
    "s_min_i32"(a: i32, b: i32) -> Flagged<i32> = Flagged(a.min(b), a < b);
    "s_max_i32"(a: i32, b: i32) -> Flagged<i32> = Flagged(a.max(b), a > b);
    "s_abs_i32"(a: i32) -> NonZero<i32> = NonZero(a.wrapping_abs());
    "s_absdiff_i32"(a: i32, b: i32) -> NonZero<i32> = NonZero(a.wrapping_sub(b).wrapping_abs());
}

scalar! { LOGIC;
    "s_not_b32"(a: u32) -> NonZero<u32> = NonZero(!a);
    "s_not_b64"(a: u64) -> NonZero<u64> = NonZero(!a);
    "s_and_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(a & b);
    "s_and_b64"(a: u64, b: u64) -> NonZero<u64> = NonZero(a & b);
    "s_or_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(a | b);
    "s_or_b64"(a: u64, b: u64) -> NonZero<u64> = NonZero(a | b);
    "s_xor_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(a ^ b);
    "s_xor_b64"(a: u64, b: u64) -> NonZero<u64> = NonZero(a ^ b);
    "s_nand_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(!(a & b));
    "s_nand_b64"(a: u64, b: u64) -> NonZero<u64> = NonZero(!(a & b));
    "s_nor_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(!(a | b));
    "s_nor_b64"(a: u64, b: u64) -> NonZero<u64> = NonZero(!(a | b));
    "s_xnor_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(!(a ^ b));
    "s_xnor_b64"(a: u64, b: u64) -> NonZero<u64> = NonZero(!(a ^ b));
    "s_and_not1_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(a & !b);
    "s_and_not1_b64"(a: u64, b: u64) -> NonZero<u64> = NonZero(a & !b);
    "s_or_not1_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(a | !b);
    "s_or_not1_b64"(a: u64, b: u64) -> NonZero<u64> = NonZero(a | !b);
    "s_lshl_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(a << (b & 31));
    "s_lshl_b64"(a: u64, b: u32) -> NonZero<u64> = NonZero(a << (b & 63));
    "s_lshr_b32"(a: u32, b: u32) -> NonZero<u32> = NonZero(a >> (b & 31));
    "s_lshr_b64"(a: u64, b: u32) -> NonZero<u64> = NonZero(a >> (b & 63));
    "s_ashr_i32"(a: i32, b: u32) -> NonZero<i32> = NonZero(a >> (b & 31));
    "s_ashr_i64"(a: i64, b: u32) -> NonZero<i64> = NonZero(a >> (b & 63));
    "s_bfe_u32"(a: u32, b: u32) -> NonZero<u32> = NonZero(bits(u64::from(a), b & 31, (b >> 16 & 127).min(32)) as u32);
    "s_bfe_i32"(a: u32, b: u32) -> NonZero<i32> = NonZero(signed_bits(u64::from(a), b & 31, (b >> 16 & 127).min(32 - (b & 31))) as i32);
    "s_bfe_u64"(a: u64, b: u32) -> NonZero<u64> = NonZero(bits(a, b & 63, b >> 16 & 127));
    "s_bfe_i64"(a: u64, b: u32) -> NonZero<i64> = NonZero(signed_bits(a, b & 63, (b >> 16 & 127).min(64 - (b & 63))));
    "s_bfm_b32"(a: u32, b: u32) -> u32 = ((1u32 << (a & 31)) - 1) << (b & 31);
    "s_bfm_b64"(a: u32, b: u32) -> u64 = ((1u64 << (a & 63)) - 1) << (b & 63);
    "s_brev_b32"(a: u32) -> u32 = a.reverse_bits();
    "s_brev_b64"(a: u64) -> u64 = a.reverse_bits();
    "s_bcnt0_i32_b32"(a: u32) -> NonZero<u32> = NonZero(a.count_zeros());
    "s_bcnt0_i32_b64"(a: u64) -> NonZero<u32> = NonZero(a.count_zeros());
    "s_bcnt1_i32_b32"(a: u32) -> NonZero<u32> = NonZero(a.count_ones());
    "s_bcnt1_i32_b64"(a: u64) -> NonZero<u32> = NonZero(a.count_ones());
    "s_ctz_i32_b32"(a: u32) -> u32 = or_none(a, a.trailing_zeros());
    "s_ctz_i32_b64"(a: u64) -> u32 = if a == 0 { !0 } else { a.trailing_zeros() };
    "s_clz_i32_u32"(a: u32) -> u32 = or_none(a, a.leading_zeros());
    "s_clz_i32_u64"(a: u64) -> u32 = if a == 0 { !0 } else { a.leading_zeros() };
    "s_cls_i32"(a: i32) -> i32 = count_sign(a);
    "s_bitset0_b32"(a: u32, d: Old<u32>) -> u32 = d.0 & !(1 << (a & 31));
    "s_bitset1_b32"(a: u32, d: Old<u32>) -> u32 = d.0 | 1 << (a & 31);
    "s_bitset0_b64"(a: u32, d: Old<u64>) -> u64 = d.0 & !(1 << (a & 63));
    "s_bitset1_b64"(a: u32, d: Old<u64>) -> u64 = d.0 | 1 << (a & 63);
}

scalar! { FLOATS;
    "s_add_f32"(a: f32, b: f32) -> f32 = a + b;
    "s_sub_f32"(a: f32, b: f32) -> f32 = a - b;
    "s_mul_f32"(a: f32, b: f32) -> f32 = a * b;
    "s_fmac_f32"(a: f32, b: f32, d: Old<f32>) -> f32 = a.mul_add(b, d.0);
    "s_fmamk_f32" | "s_fmaak_f32"(a: f32, b: f32, c: f32) -> f32 = a.mul_add(b, c);
    "s_max_f32" | "s_max_num_f32"(a: f32, b: f32) -> f32 = max_num(a, b);
    "s_min_f32" | "s_min_num_f32"(a: f32, b: f32) -> f32 = min_num(a, b);
    "s_maximum_f32"(a: f32, b: f32) -> f32 = maximum(a, b);
    "s_minimum_f32"(a: f32, b: f32) -> f32 = minimum(a, b);
    "s_floor_f32"(a: f32) -> f32 = a.floor();
    "s_ceil_f32"(a: f32) -> f32 = a.ceil();
    "s_trunc_f32"(a: f32) -> f32 = a.trunc();
    "s_rndne_f32"(a: f32) -> f32 = a.round_ties_even();
    "s_cvt_f32_i32"(a: i32) -> f32 = a as f32;
    "s_cvt_f32_u32"(a: u32) -> f32 = a as f32;
    "s_cvt_i32_f32"(a: f32) -> i32 = a as i32;
    "s_cvt_u32_f32"(a: f32) -> u32 = a as u32;
    "s_cvt_f32_f16"(a: Half) -> f32 = a.0;
    "s_cvt_hi_f32_f16"(a: u32) -> f32 = f16_to_f32((a >> 16) as u16);
    "s_cvt_f16_f32"(a: f32) -> Half = Half(a);
    "s_cvt_pk_rtz_f16_f32"(a: f32, b: f32) -> u32 = u32::from(f32_to_f16_toward_zero(a)) | u32::from(f32_to_f16_toward_zero(b)) << 16;
    "s_add_f16"(a: Half, b: Half) -> Half = Half(a.0 + b.0);
    "s_sub_f16"(a: Half, b: Half) -> Half = Half(a.0 - b.0);
    "s_mul_f16"(a: Half, b: Half) -> Half = Half(a.0 * b.0);
    "s_fmac_f16"(a: Half, b: Half, d: Old<u32>) -> Half = Half(fma_f16(a.0, b.0, f16_to_f32(d.0 as u16)));
    "s_max_f16" | "s_max_num_f16"(a: Half, b: Half) -> Half = Half(max_num(a.0, b.0));
    "s_min_f16" | "s_min_num_f16"(a: Half, b: Half) -> Half = Half(min_num(a.0, b.0));
    "s_maximum_f16"(a: Half, b: Half) -> Half = Half(maximum(a.0, b.0));
    "s_minimum_f16"(a: Half, b: Half) -> Half = Half(minimum(a.0, b.0));
    "s_floor_f16"(a: Half) -> Half = Half(a.0.floor());
    "s_ceil_f16"(a: Half) -> Half = Half(a.0.ceil());
    "s_trunc_f16"(a: Half) -> Half = Half(a.0.trunc());
    "s_rndne_f16"(a: Half) -> Half = Half(a.0.round_ties_even());
}

scalar! { COMPARE;
    "s_cmp_eq_i32" | "s_cmp_eq_u32" | "s_cmpk_eq_i32" | "s_cmpk_eq_u32"(a: u32, b: u32) -> bool = a == b;
    "s_cmp_lg_i32" | "s_cmp_lg_u32" | "s_cmpk_lg_i32" | "s_cmpk_lg_u32"(a: u32, b: u32) -> bool = a != b;
    "s_cmp_gt_i32" | "s_cmpk_gt_i32"(a: i32, b: i32) -> bool = a > b;
    "s_cmp_ge_i32" | "s_cmpk_ge_i32"(a: i32, b: i32) -> bool = a >= b;
    "s_cmp_lt_i32" | "s_cmpk_lt_i32"(a: i32, b: i32) -> bool = a < b;
    "s_cmp_le_i32" | "s_cmpk_le_i32"(a: i32, b: i32) -> bool = a <= b;
    "s_cmp_gt_u32" | "s_cmpk_gt_u32"(a: u32, b: u32) -> bool = a > b;
    "s_cmp_ge_u32" | "s_cmpk_ge_u32"(a: u32, b: u32) -> bool = a >= b;
    "s_cmp_lt_u32" | "s_cmpk_lt_u32"(a: u32, b: u32) -> bool = a < b;
    "s_cmp_le_u32" | "s_cmpk_le_u32"(a: u32, b: u32) -> bool = a <= b;
    "s_cmp_eq_u64"(a: u64, b: u64) -> bool = a == b;
    "s_cmp_lg_u64"(a: u64, b: u64) -> bool = a != b;
    "s_bitcmp0_b32"(a: u32, b: u32) -> bool = a >> (b & 31) & 1 == 0;
    "s_bitcmp1_b32"(a: u32, b: u32) -> bool = a >> (b & 31) & 1 == 1;
    "s_bitcmp0_b64"(a: u64, b: u32) -> bool = a >> (b & 63) & 1 == 0;
    "s_bitcmp1_b64"(a: u64, b: u32) -> bool = a >> (b & 63) & 1 == 1;
    "s_cmp_lt_f32"(a: f32, b: f32) -> bool = a < b;
    "s_cmp_eq_f32"(a: f32, b: f32) -> bool = a == b;
    "s_cmp_le_f32"(a: f32, b: f32) -> bool = a <= b;
    "s_cmp_gt_f32"(a: f32, b: f32) -> bool = a > b;
    "s_cmp_lg_f32"(a: f32, b: f32) -> bool = !unordered(a, b) && a != b;
    "s_cmp_ge_f32"(a: f32, b: f32) -> bool = a >= b;
    "s_cmp_o_f32"(a: f32, b: f32) -> bool = !unordered(a, b);
    "s_cmp_u_f32"(a: f32, b: f32) -> bool = unordered(a, b);
    "s_cmp_nge_f32"(a: f32, b: f32) -> bool = a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_lt);
    "s_cmp_nlg_f32"(a: f32, b: f32) -> bool = a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_eq);
    "s_cmp_ngt_f32"(a: f32, b: f32) -> bool = a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_le);
    "s_cmp_nle_f32"(a: f32, b: f32) -> bool = a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_gt);
    "s_cmp_neq_f32"(a: f32, b: f32) -> bool = a != b;
    "s_cmp_nlt_f32"(a: f32, b: f32) -> bool = a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_ge);
    "s_cmp_lt_f16"(a: Half, b: Half) -> bool = a.0 < b.0;
    "s_cmp_eq_f16"(a: Half, b: Half) -> bool = a.0 == b.0;
    "s_cmp_le_f16"(a: Half, b: Half) -> bool = a.0 <= b.0;
    "s_cmp_gt_f16"(a: Half, b: Half) -> bool = a.0 > b.0;
    "s_cmp_lg_f16"(a: Half, b: Half) -> bool = !unordered(a.0, b.0) && a.0 != b.0;
    "s_cmp_ge_f16"(a: Half, b: Half) -> bool = a.0 >= b.0;
    "s_cmp_o_f16"(a: Half, b: Half) -> bool = !unordered(a.0, b.0);
    "s_cmp_u_f16"(a: Half, b: Half) -> bool = unordered(a.0, b.0);
    "s_cmp_nge_f16"(a: Half, b: Half) -> bool = unordered(a.0, b.0) || a.0 < b.0;
    "s_cmp_nlg_f16"(a: Half, b: Half) -> bool = unordered(a.0, b.0) || a.0 == b.0;
    "s_cmp_ngt_f16"(a: Half, b: Half) -> bool = unordered(a.0, b.0) || a.0 <= b.0;
    "s_cmp_nle_f16"(a: Half, b: Half) -> bool = unordered(a.0, b.0) || a.0 > b.0;
    "s_cmp_neq_f16"(a: Half, b: Half) -> bool = a.0 != b.0;
    "s_cmp_nlt_f16"(a: Half, b: Half) -> bool = unordered(a.0, b.0) || a.0 >= b.0;
}

/// Saves EXEC, then changes it.
#[inline(always)]
fn save(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Flow {
    let (given, old) = (word(w, i, 0), w.exec());
    let new = f(given, old);
    w.s[usize::from(i.dst)] = old;
    w.s[EXEC] = new;
    w.s[SCC] = u32::from(new != 0);
    Flow::Next
}
/// Changes EXEC and copies what it became.
#[inline(always)]
fn become_(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Flow {
    let new = f(word(w, i, 0), w.exec());
    w.s[EXEC] = new;
    w.s[usize::from(i.dst)] = new;
    w.s[SCC] = u32::from(new != 0);
    Flow::Next
}

special! { MASKS, form(Slot::B32, &[Slot::B32]);
    "s_and_saveexec_b32" => |w, i, _| save(w, i, |s, e| s & e);
    "s_or_saveexec_b32" => |w, i, _| save(w, i, |s, e| s | e);
    "s_xor_saveexec_b32" => |w, i, _| save(w, i, |s, e| s ^ e);
    "s_nand_saveexec_b32" => |w, i, _| save(w, i, |s, e| !(s & e));
    "s_nor_saveexec_b32" => |w, i, _| save(w, i, |s, e| !(s | e));
    "s_xnor_saveexec_b32" => |w, i, _| save(w, i, |s, e| !(s ^ e));
    "s_and_not0_saveexec_b32" => |w, i, _| save(w, i, |s, e| !s & e);
    "s_and_not1_saveexec_b32" => |w, i, _| save(w, i, |s, e| s & !e);
    "s_or_not0_saveexec_b32" => |w, i, _| save(w, i, |s, e| !s | e);
    "s_or_not1_saveexec_b32" => |w, i, _| save(w, i, |s, e| s | !e);
    "s_and_not0_wrexec_b32" => |w, i, _| become_(w, i, |s, e| !s & e);
    "s_and_not1_wrexec_b32" => |w, i, _| become_(w, i, |s, e| s & !e);
}

/// All tables of this file.
pub const TABLES: [Table; 6] = [MOVES, ARITHMETIC, LOGIC, FLOATS, COMPARE, MASKS];
