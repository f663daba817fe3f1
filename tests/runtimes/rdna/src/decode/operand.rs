//! Operand fields: register numbers, inline constants, literals.
//!
//! Always true: a constant is converted here to what its slot reads, so that execution only copies it. Inline integers
//! are sign-extended; inline floats take the slot's format (packed: in the low half, zero above); a literal is the top
//! word of a double and zero-extended in a 64-bit integer.

use crate::inst::{SCC, SINK, Slot, Source};

/// The field value that announces a literal.
pub const LITERAL: u32 = 255;
/// DPP16, and the two forms of DPP8, in place of the first source.
pub const DPP16: u32 = 250;
/// DPP8 that skips inactive lanes.
pub const DPP8: u32 = 233;
/// DPP8 that reads them.
pub const DPP8_FI: u32 = 234;
/// `null` as a register number.
const NULL: u32 = 124;
/// Where the compiler believes LDS to stand in the flat address space. Nothing is mapped there.
const SHARED_BASE: u64 = 0x0001_0000_0000_0000;
const PRIVATE_BASE: u64 = 0x0002_0000_0000_0000;

/// Whether a literal follows.
pub fn literal_needed(fields: &[u32]) -> bool {
    fields.contains(&LITERAL)
}

/// A scalar destination; writes to `null` go to the sink.
pub fn scalar_destination(field: u32) -> usize {
    if field == NULL { SINK } else { field as usize }
}

/// A 9-bit (or 8-bit scalar) source field.
pub fn source(field: u32, slot: Slot, literal: u32) -> Source {
    match field {
        NULL => Source::constant(0),
        0..=127 => Source::scalar(field as usize),
        128..=192 => Source::constant(u64::from(field) - 128),
        193..=208 => Source::constant((192 - i64::from(field)) as u64),
        235 => Source::constant(SHARED_BASE),
        236 => Source::constant(SHARED_BASE | 0xffff_ffff),
        237 => Source::constant(PRIVATE_BASE),
        238 => Source::constant(PRIVATE_BASE | 0xffff_ffff),
        240..=248 => Source::constant(inline_float(field as usize - 240, slot)),
        253 => Source::scalar(SCC),
        LITERAL => Source::constant(if slot == Slot::F64 { u64::from(literal) << 32 } else { u64::from(literal) }),
        256..=511 => Source::vector(field as usize - 256),
        _ => Source::constant(0),
    }
}

/// 0.5, -0.5, 1, -1, 2, -2, 4, -4 and 1/(2π).
fn inline_float(which: usize, slot: Slot) -> u64 {
    const VALUES: [f64; 9] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, std::f64::consts::FRAC_1_PI / 2.0];
    let value = VALUES[which];
    match slot {
        Slot::F64 | Slot::B64 => value.to_bits(),
        Slot::F16 | Slot::PackedF16 | Slot::B16 => u64::from(crate::float::f32_to_f16(value as f32)),
        Slot::PackedBf16 => u64::from(crate::float::f32_to_bf16(value as f32)),
        _ => u64::from((value as f32).to_bits()),
    }
}

/// Whether a slot is half a register wide.
pub fn is_half(slot: Slot) -> bool {
    matches!(slot, Slot::B16 | Slot::F16 | Slot::DestF16)
}

/// Whether a slot takes `neg` and `abs`, and the sign bit that they act on.
pub fn sign_bit(slot: Slot) -> u32 {
    match slot {
        Slot::F32 | Slot::N32 | Slot::F64 | Slot::DestF32 => 0x8000_0000,
        Slot::F16 | Slot::DestF16 => 0x8000,
        _ => 0,
    }
}
