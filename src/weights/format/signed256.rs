//! Quantised formats with blocks of 256 elements and signed codes: Q3_K, Q6_K, IQ4_XS.
//!
//! Owns: their layouts, the integers of a block and its encoder.
//! Always true: `value[c] = d * scale[s] * word[c]` for sub-block s of element c; `d` is F16. A struct's fields lie in
//! memory as written, without gaps.
//! Not here: what is common to all blocks (`block`), the search for scales (`search`).

use bytemuck::{Pod, Zeroable};

use super::block::Block;
use super::{block32, search};

/// 16 sub-blocks of 16, `word = q - 4` with 3-bit codes, 6-bit scales; 110 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q3K {
    /// Bit 2 of element 32 * k + l is bit k of byte l.
    pub high: [u8; 32],
    /// Bits 0 and 1: element 128 * h + 32 * j + l has bits 2j and 2j + 1 of byte 32 * h + l.
    pub low: [u8; 64],
    /// `scale[s] + 32`. Bits 0 to 3: s < 8 in the low half of byte s, s >= 8 in the high half of byte s - 8. Bits 4 and
    /// 5: bits 2 * (s / 4) and the next of byte 8 + s % 4.
    pub scales: [u8; 12],
    /// Scale of the scales.
    pub d: [u8; 2],
}

/// 16 sub-blocks of 16, `word = q - 32` with 6-bit codes, 8-bit scales; 210 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q6K {
    /// Bits 0 to 3: element 128 * h + l, l < 64, has the low half of byte 64 * h + l, element 128 * h + 64 + l its high
    /// half.
    pub low: [u8; 128],
    /// Bits 4 and 5: element 128 * h + 32 * j + l has bits 2j and 2j + 1 of byte 32 * h + l.
    pub high: [u8; 64],
    /// `scale[s]`, two's complement.
    pub scales: [i8; 16],
    /// Scale of the scales.
    pub d: [u8; 2],
}

/// 8 sub-blocks of 32, `word = codebook[q]` with 4-bit codes, 6-bit scales; 136 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Iq4Xs {
    /// Scale of the scales.
    pub d: [u8; 2],
    /// Bits 4 and 5 of `scale[s] + 32` are bits 2s and 2s + 1 of this u16.
    pub scales_high: [u8; 2],
    /// Bits 0 to 3 of it: even s in the low half of byte s / 2, odd s in the high half.
    pub scales_low: [u8; 4],
    /// Sub-block s has 16 bytes, in [`block32::Iq4Nl`]'s order.
    pub q: [u8; 128],
}

impl Block for Q3K {
    const COLUMNS: usize = 256;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), 0]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        let (groups, low, high) = (words.as_chunks_mut::<16>().0, self.low.as_chunks().0, self.high.as_chunks().0);
        let scales = self.unpack_scales();
        let scale = |s: usize| i16::from(scales[s]);
        for (i, low) in low.iter().enumerate() {
            let s = i / 2 * 8 + i % 2;
            let high = if i < 2 { high[i] } else { high[i - 2].map(|high: u8| high >> 4) };
            groups[s] = three_bits::<0>(low, &high, scale(s));
            groups[s + 2] = three_bits::<1>(low, &high, scale(s + 2));
            groups[s + 4] = three_bits::<2>(low, &high, scale(s + 4));
            groups[s + 6] = three_bits::<3>(low, &high, scale(s + 6));
        }
    }
    fn encode(values: &[f32]) -> Q3K {
        let best: [f32; 16] = std::array::from_fn(|s| search::signed_scale(&values[16 * s..16 * (s + 1)], 4));
        let (d, levels) = scale_levels(best, -32, 31);
        let (mut high, mut low, mut scales) = ([0; 32], [0; 64], [0; 12]);
        for (c, &value) in values.iter().enumerate() {
            let scale = d.to_f32() * f32::from(levels[c / 16]);
            let code = (search::round(value * search::inverse(scale), -4, 3) + 4) as u8;
            high[c % 32] |= (code >> 2) << (c / 32);
            low[c / 128 * 32 + c % 32] |= (code & 3) << (c % 128 / 32 * 2);
        }
        for (s, level) in levels.iter().enumerate() {
            let level = (level + 32) as u8;
            scales[s % 8] |= (level & 15) << (s / 8 * 4);
            scales[8 + s % 4] |= (level >> 4) << (s / 4 * 2);
        }
        Q3K { high, low, scales, d: d.to_le_bytes() }
    }
}

impl Q3K {
    /// `scale[s]` of the 16 sub-blocks.
    #[inline(always)]
    pub(crate) fn unpack_scales(&self) -> [i8; 16] {
        let word = |at: usize| u32::from_le_bytes([at, at + 1, at + 2, at + 3].map(|at| self.scales[at]));
        let (a, b, c) = (word(0), word(4), word(8));
        // Four bytes at a time, as for Q4_K.
        let four = |low: u32, high: u32| u128::from(low & 0x0f0f_0f0f | (high & 0x0303_0303) << 4);
        let all = four(a, c) | four(b, c >> 2) << 32 | four(a >> 4, c >> 4) << 64 | four(b >> 4, c >> 6) << 96;
        all.to_le_bytes().map(|scale| scale as i8 - 32)
    }
}

impl Block for Q6K {
    const COLUMNS: usize = 256;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), 0]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        let (groups, low, high) = (words.as_chunks_mut::<16>().0, self.low.as_chunks().0, self.high.as_chunks().0);
        for (i, high) in high.iter().enumerate() {
            let (s, l) = (i / 2 * 8 + i % 2, i / 2 * 4 + i % 2);
            let scale = |s: usize| i16::from(self.scales[s]);
            groups[s] = six_bits::<0, 0>(&low[l], high, scale(s));
            groups[s + 2] = six_bits::<0, 2>(&low[l + 2], high, scale(s + 2));
            groups[s + 4] = six_bits::<4, 4>(&low[l], high, scale(s + 4));
            groups[s + 6] = six_bits::<4, 6>(&low[l + 2], high, scale(s + 6));
        }
    }
    fn encode(values: &[f32]) -> Q6K {
        let best: [f32; 16] = std::array::from_fn(|s| search::signed_scale(&values[16 * s..16 * (s + 1)], 32));
        let (d, scales) = scale_levels(best, -128, 127);
        let (mut low, mut high) = ([0; 128], [0; 64]);
        for (c, &value) in values.iter().enumerate() {
            let scale = d.to_f32() * f32::from(scales[c / 16]);
            let code = (search::round(value * search::inverse(scale), -32, 31) + 32) as u8;
            low[c / 128 * 64 + c % 64] |= (code & 15) << (c % 128 / 64 * 4);
            high[c / 128 * 32 + c % 32] |= (code >> 4) << (c % 128 / 32 * 2);
        }
        Q6K { low, high, scales, d: d.to_le_bytes() }
    }
}

impl Block for Iq4Xs {
    const COLUMNS: usize = 256;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), 0]
    }
    #[inline(always)]
    fn words(&self, look_up: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        let high = u16::from_le_bytes(self.scales_high);
        let q = self.q.as_chunks::<16>().0;
        for s in 0..8 {
            let low = self.scales_low[s / 2] >> (s % 2 * 4) & 15;
            let scale = i16::from(low | ((high >> (2 * s) & 3) as u8) << 4) - 32;
            block32::looked_up(&q[s], &look_up, &mut words[32 * s..32 * (s + 1)], |entry| entry * scale);
        }
    }
    fn encode(values: &[f32]) -> Iq4Xs {
        let best: [f32; 8] = std::array::from_fn(|s| search::codebook_scale(&values[32 * s..32 * (s + 1)]));
        let (d, levels) = scale_levels(best, -32, 31);
        let (mut scales_high, mut scales_low, mut q) = (0u16, [0; 4], [0; 128]);
        for (s, (q, values)) in q.as_chunks_mut::<16>().0.iter_mut().zip(values.as_chunks::<32>().0).enumerate() {
            let level = (levels[s] + 32) as u8;
            scales_high |= u16::from(level >> 4) << (2 * s);
            scales_low[s / 2] |= (level & 15) << (s % 2 * 4);
            let inverse = search::inverse(d.to_f32() * f32::from(levels[s]));
            *q = block32::pack(&values.map(|value| search::nearest(value * inverse)));
        }
        Iq4Xs { d: d.to_le_bytes(), scales_high: scales_high.to_le_bytes(), scales_low, q }
    }
}

// Shifts are constants so that the compiler makes vectors of these.

/// 3-bit codes: two bits from bit `2 * J` of `low` on, one at bit J of `high`.
#[inline(always)]
fn three_bits<const J: u32>(low: &[u8; 16], high: &[u8; 16], scale: i16) -> [i16; 16] {
    let mut words = [0; 16];
    for i in 0..16 {
        words[i] = (i16::from(low[i] >> (2 * J) & 3 | (high[i] >> J & 1) << 2) - 4) * scale;
    }
    words
}

/// 6-bit codes: four bits from bit `LOW` of `low` on, two from bit `HIGH` of `high` on.
#[inline(always)]
fn six_bits<const LOW: u32, const HIGH: u32>(low: &[u8; 16], high: &[u8; 16], scale: i16) -> [i16; 16] {
    let mut words = [0; 16];
    for i in 0..16 {
        words[i] = (i16::from(low[i] >> LOW & 15 | (high[i] >> HIGH & 3) << 4) - 32) * scale;
    }
    words
}

/// Scales of sub-blocks as integers: the one that is furthest from zero becomes `least`.
fn scale_levels<const S: usize>(scales: [f32; S], least: i32, most: i32) -> (half::f16, [i8; S]) {
    let extreme = scales.iter().fold(0.0, |extreme: f32, &s| if s.abs() > extreme.abs() { s } else { extreme });
    let (d, inverse) = search::half(extreme / least as f32);
    (d, scales.map(|scale| search::round(scale * inverse, least, most) as i8))
}
