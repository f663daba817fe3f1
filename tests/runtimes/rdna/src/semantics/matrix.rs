//! Matrix instructions: D (16 × 16) = A (16 × 16) · B (16 × 16) + C.
//!
//! Owns: which lane and register holds which element on gfx11 and gfx12, and the arithmetic. Lane l, half h = l / 16,
//! row r = l % 16:
//!   gfx11  A row r / B column r: all 16 k in order, lanes 16–31 repeating lanes 0–15; 16-bit D: element j of a lane in
//!          the low (or, with op_sel[2], the high) half of register j; D element j: row 2j + h, column r
//!   gfx12  A, B: k = n/2·h … of n k values; D element j: row 8h + j, column r; 16-bit D: two elements a register
//! Always true: products are exact in F32. Summation order: k ascending, one fused multiply-add each, starting from C.
//! Hardware's order is not documented; 16-bit results are summed in F32 and rounded once at the end. Every lane must be
//! active: EXEC is ignored by hardware, so a partial one is reported.

use super::{Table, form, special};
use crate::float::{Fp8, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, fp8_to_f32};
use crate::inst::{Bank, Flow, Inst, Slot};
use crate::wave::{Group, LANES, Lanes, Wave};

const N: usize = 16;
/// 16 by 16.
type Floats = [[f32; N]; N];

#[derive(Clone, Copy, PartialEq)]
enum Element {
    F16,
    Bf16,
    Fp8,
    Bf8,
}

fn register(w: &Wave, i: &Inst, k: usize, j: usize) -> Lanes {
    let s = &i.src[k];
    match s.bank {
        Bank::Vector => w.v[(usize::from(s.index) + j) & 511],
        Bank::Scalar => [w.s[usize::from(s.index)]; LANES],
        Bank::Constant => [s.value as u32; LANES],
    }
}

/// A or B as F32, by k: `m[k][r]`. Lanes are rows of A or columns of B, so each register's half is a run of one row.
#[inline(always)]
fn operand(w: &Wave, i: &Inst, k: usize, element: Element, gfx12: bool) -> Floats {
    let mut m = [[0.0; N]; N];
    let bits = if matches!(element, Element::F16 | Element::Bf16) { 16 } else { 8 };
    let per = 32 / bits;
    let count = if gfx12 { 8 } else { 16 };
    for j in 0..count / per {
        let x = register(w, i, k, j);
        for e in 0..per {
            // On gfx11 the upper lanes repeat the lower ones.
            for half in 0..if gfx12 { 2 } else { 1 } {
                let row = &mut m[8 * half + per * j + e];
                for r in 0..N {
                    let word = x[N * half + r] >> (bits * e);
                    row[r] = match element {
                        Element::F16 => f16_to_f32(word as u16),
                        Element::Bf16 => bf16_to_f32(word as u16),
                        Element::Fp8 => fp8_to_f32(Fp8::E4M3, word as u8),
                        Element::Bf8 => fp8_to_f32(Fp8::E5M2, word as u8),
                    };
                }
            }
        }
    }
    m
}

/// Row and column of element `j` of lane `l`.
#[inline(always)]
fn place(gfx12: bool, l: usize, j: usize) -> (usize, usize) {
    (if gfx12 { 8 * (l / N) + j } else { 2 * j + l / N }, l % N)
}

#[inline(always)]
fn all_active(w: &Wave, g: &mut Group<'_>) -> Option<Flow> {
    (w.exec() != !0).then(|| g.fail(format!("runs with lanes {:#010x} active; it needs all of them", w.exec())))
}

#[inline(always)]
fn multiply(a: &Floats, b: &Floats, c: &mut Floats) {
    for row in 0..N {
        let mut sums = c[row];
        for k in 0..N {
            for column in 0..N {
                sums[column] = a[k][row].mul_add(b[k][column], sums[column]);
            }
        }
        c[row] = sums;
    }
}

#[inline(always)]
fn to_f32(w: &mut Wave, i: &Inst, g: &mut Group<'_>, ea: Element, eb: Element) -> Flow {
    if let Some(flow) = all_active(w, g) {
        return flow;
    }
    let gfx12 = g.gfx12;
    let (a, b) = (operand(w, i, 0, ea, gfx12), operand(w, i, 1, eb, gfx12));
    let mut c = [[0.0; N]; N];
    for j in 0..8 {
        let x = register(w, i, 2, j);
        for half in 0..2 {
            let row = &mut c[place(gfx12, N * half, j).0];
            for r in 0..N {
                row[r] = modified(i, f32::from_bits(x[N * half + r]));
            }
        }
    }
    multiply(&a, &b, &mut c);
    for j in 0..8 {
        let d = &mut w.v[(usize::from(i.dst) + j) & 511];
        for half in 0..2 {
            let row = &c[place(gfx12, N * half, j).0];
            for r in 0..N {
                d[N * half + r] = row[r].to_bits();
            }
        }
    }
    Flow::Next
}

/// C's sign modifiers: neg_lo negates, neg_hi takes the absolute value.
#[inline(always)]
fn modified(i: &Inst, x: f32) -> f32 {
    let x = if i.neg_hi & 4 != 0 { x.abs() } else { x };
    if i.neg & 4 != 0 { -x } else { x }
}

#[inline(always)]
fn to_16(w: &mut Wave, i: &Inst, g: &mut Group<'_>, element: Element) -> Flow {
    if let Some(flow) = all_active(w, g) {
        return flow;
    }
    let gfx12 = g.gfx12;
    let widen = |x: u16| if element == Element::F16 { f16_to_f32(x) } else { bf16_to_f32(x) };
    let narrow = |x: f32| u32::from(if element == Element::F16 { f32_to_f16(x) } else { f32_to_bf16(x) });
    // gfx12 packs two elements a register; gfx11 uses the half that op_sel[2] names and keeps the other.
    let locate = |j: usize| if gfx12 { (j / 2, 16 * (j as u32 & 1)) } else { (j, 16 * u32::from(i.op_sel >> 2 & 1)) };
    let (a, b) = (operand(w, i, 0, element, gfx12), operand(w, i, 1, element, gfx12));
    let mut c = [[0.0; N]; N];
    for j in 0..8 {
        let (at, shift) = locate(j);
        let x = register(w, i, 2, at);
        for l in 0..LANES {
            let (row, column) = place(gfx12, l, j);
            c[row][column] = modified(i, widen((x[l] >> shift) as u16));
        }
    }
    multiply(&a, &b, &mut c);
    for j in 0..8 {
        let (at, shift) = locate(j);
        let d = &mut w.v[(usize::from(i.dst) + at) & 511];
        for l in 0..LANES {
            let (row, column) = place(gfx12, l, j);
            d[l] = d[l] & !(0xffff << shift) | narrow(c[row][column]) << shift;
        }
    }
    Flow::Next
}

/// Integers of `BITS`, `K` of them a row; signed where the instruction's negation bit says so. Exact; wraps, or
/// saturates with clamp.
#[inline(always)]
fn to_i32<const BITS: usize, const K: usize>(w: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    if let Some(flow) = all_active(w, g) {
        return flow;
    }
    let gfx12 = g.gfx12;
    let read = |w: &Wave, k: usize| {
        let mut m = [[0i32; K]; N];
        let per = 32 / BITS;
        let count = if gfx12 { K / 2 } else { K };
        for j in 0..count.div_ceil(per) {
            let x = register(w, i, k, j);
            for l in 0..if gfx12 { LANES } else { N } {
                for e in 0..per.min(count) {
                    let up = x[l] << (32 - BITS - BITS * e);
                    let signed = i.neg >> k & 1 != 0;
                    let value = if signed { up as i32 >> (32 - BITS) } else { (up >> (32 - BITS)) as i32 };
                    m[l % N][if gfx12 { count * (l / N) } else { 0 } + per * j + e] = value;
                }
            }
        }
        m
    };
    let (a, b) = (read(w, 0), read(w, 1));
    for j in 0..8 {
        let c = register(w, i, 2, j);
        for l in 0..LANES {
            let (row, column) = place(gfx12, l, j);
            let sum: i64 = (0..K).map(|k| i64::from(a[row][k] * b[column][k])).sum::<i64>() + i64::from(c[l] as i32);
            let limited = sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            w.v[(usize::from(i.dst) + j) & 511][l] = if i.clamp { limited } else { sum } as u32;
        }
    }
    Flow::Next
}

special! { MATRIX, form(Slot::N32, &[Slot::B32; 3]);
    "v_wmma_f32_16x16x16_f16" => |w, i, g| to_f32(w, i, g, Element::F16, Element::F16);
    "v_wmma_f32_16x16x16_bf16" => |w, i, g| to_f32(w, i, g, Element::Bf16, Element::Bf16);
    "v_wmma_f32_16x16x16_fp8_fp8" => |w, i, g| to_f32(w, i, g, Element::Fp8, Element::Fp8);
    "v_wmma_f32_16x16x16_fp8_bf8" => |w, i, g| to_f32(w, i, g, Element::Fp8, Element::Bf8);
    "v_wmma_f32_16x16x16_bf8_fp8" => |w, i, g| to_f32(w, i, g, Element::Bf8, Element::Fp8);
    "v_wmma_f32_16x16x16_bf8_bf8" => |w, i, g| to_f32(w, i, g, Element::Bf8, Element::Bf8);
    "v_wmma_f16_16x16x16_f16" => |w, i, g| to_16(w, i, g, Element::F16);
    "v_wmma_bf16_16x16x16_bf16" => |w, i, g| to_16(w, i, g, Element::Bf16);
    "v_wmma_i32_16x16x16_iu8" => |w, i, g| to_i32::<8, 16>(w, i, g);
    "v_wmma_i32_16x16x16_iu4" => |w, i, g| to_i32::<4, 16>(w, i, g);
    "v_wmma_i32_16x16x32_iu4" => |w, i, g| to_i32::<4, 32>(w, i, g);
}

/// All tables of this file.
pub const TABLES: [Table; 1] = [MATRIX];
