//! How keys, values and index keys become bytes and numbers again: the contract that kernels follow, bit for bit.
//!
//! Owns: the scales of the fp8 and q8 modes, BF16 rows.
//! Always true: bytes of zeros decode to zeros in every format; a NaN is still a NaN after decoding, and so is an
//! infinity in the scaled formats, so that a broken step is seen. All numbers are little-endian.
//! Not here: where a row lies (`state::kv`), E4M3 itself (`e4m3`), formats of weights
//! (`weights::format`).

use half::{bf16, f16};

use crate::e4m3::{E4M3_MAX, e4m3_number, encode_e4m3};

/// Values that share a scale in the q8 mode.
pub const Q8_BLOCK: usize = 32;
/// The smallest f16 that is not below `x >= 0`; the largest f16 if there is none.
fn f16_at_least(x: f32) -> f16 {
    let nearest = f16::from_f32(x).min(f16::MAX);
    if nearest.to_f32() < x && nearest < f16::MAX { f16::from_bits(nearest.to_bits() + 1) } else { nearest }
}

/// The largest magnitude; a NaN counts as larger than infinity. As integers, because that order is the same and a
/// maximum of integers may be taken in any order, several at a time.
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0i32, |most, x| most.max((x.to_bits() & 0x7fff_ffff) as i32)) as u32)
}

/// Encodes one head as E4M3 codes of `x / scale`; returns the scale, the smallest f16 that is not below
/// `max|x| / 448`, so that nothing finite saturates.
///
/// With s the scale, `|decoded - x| <= max(|x| * 2^-4, s * 2^-10) * (1 + 2^-20)`: half a step of 3 mantissa bits,
/// half a step of E4M3's subnormals, and the rounding of the division.
/// Heads below `448 * 2^-24` in magnitude have s = 2^-24 (the smallest f16), and their error is below 2^-34 or relative
/// as above. Heads above `448 * 65504` have s = 65504 and saturate there. A zero head has s = 0 and codes 0. A value
/// that is not finite makes s NaN, and with it the whole head.
pub fn encode_fp8(head: &[f32], codes: &mut [u8]) -> f16 {
    let most = largest(head);
    if most == 0.0 {
        codes.fill(0);
        return f16::ZERO;
    }
    let scale = if most.is_finite() { f16_at_least(most / E4M3_MAX) } else { f16::NAN };
    let divisor = scale.to_f32();
    for (code, &x) in codes.iter_mut().zip(head) {
        *code = encode_e4m3(x / divisor);
    }
    scale
}

/// `out[i] = e4m3(codes[i]) * scale`: 4 and 11 significant bits, so the product is exact. A NaN code stands only beside
/// a scale of NaN, so they need no case of their own here.
pub fn decode_fp8(codes: &[u8], scale: f16, out: &mut [f32]) {
    let scale = scale.to_f32();
    for (value, &code) in out.iter_mut().zip(codes) {
        *value = e4m3_number(code) * scale;
    }
}

/// Encodes whole blocks of 32 values as Q8_0: `d = f16(max|x| / 127)`, nearest; `q = round(x / d)`, halves away from
/// zero, kept within -127..=127.
///
/// `|decoded - x| <= d / 2 * (1 + 2^-16)` where d is a normal f16 (`max|x| >= 127 * 2^-14`). Below that d itself is
/// coarse, rounded by at most 2^-25, which adds at most `127 * 2^-25`; a d that rounds to zero is a block of zeros.
/// Blocks above `127 * 65504` have d = 65504 and saturate there. A value that is not finite makes d NaN, and with it
/// the whole block, because a byte cannot say it.
///
/// `codes` are as many as `values`; `scales` are an f16 a block.
pub fn encode_q8(values: &[f32], codes: &mut [u8], scales: &mut [u8]) {
    let blocks = values.chunks_exact(Q8_BLOCK).zip(codes.chunks_exact_mut(Q8_BLOCK));
    for ((block, codes), scale) in blocks.zip(scales.chunks_exact_mut(2)) {
        let most = largest(block);
        let d = if most.is_finite() { f16::from_f32(most / 127.0).min(f16::MAX) } else { f16::NAN };
        scale.copy_from_slice(&d.to_le_bytes());
        if d == f16::ZERO {
            codes.fill(0);
            continue;
        }
        let divisor = d.to_f32();
        for (code, &x) in codes.iter_mut().zip(block) {
            // `f32::round` in integers: it is a call without SSE4.1. NaN (beside d = NaN) becomes 0.
            let q = (x / divisor).clamp(-127.0, 127.0);
            let whole = q as i32;
            let rest = q - whole as f32;
            *code = (whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)) as u8;
        }
    }
}

/// `out[i] = q[i] * d`: 7 and 11 significant bits, so the product is exact.
pub fn decode_q8(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    let blocks = codes.chunks_exact(Q8_BLOCK).zip(out.chunks_exact_mut(Q8_BLOCK));
    for ((codes, out), scale) in blocks.zip(scales.chunks_exact(2)) {
        let d = f16::from_le_bytes([scale[0], scale[1]]).to_f32();
        for (value, &q) in out.iter_mut().zip(codes) {
            *value = f32::from(q as i8) * d;
        }
    }
}

/// BF16, nearest, ties to even: `|decoded - x| <= |x| * 2^-8` for normal x.
pub fn encode_bf16(values: &[f32], bytes: &mut [u8]) {
    for (bytes, &x) in bytes.chunks_exact_mut(2).zip(values) {
        bytes.copy_from_slice(&bf16::from_f32(x).to_le_bytes());
    }
}

/// Exact: a BF16 is the upper half of an F32.
pub fn decode_bf16(bytes: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        *value = f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16);
    }
}
