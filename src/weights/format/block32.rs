//! Quantised formats with blocks of 32 elements: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL.
//!
//! Owns: their layouts, the integers of a block and its encoder.
//! Always true: a struct's fields lie in memory as written, without gaps; `d` and `m` are F16; `q[c]` is the code of
//! element c. 4-bit codes: byte j holds element j in its low half and element j + 16 in its high half.
//! Not here: what is common to all blocks (`block`), the search for scales (`search`).

use bytemuck::{Pod, Zeroable};
use half::f16;

use super::block::Block;
use super::search;

/// `value[c] = d * q[c]`; 34 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q8_0 {
    /// Scale.
    pub d: [u8; 2],
    /// q[c], two's complement.
    pub q: [i8; 32],
}

/// `value[c] = d * (q[c] - 8)`; 18 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_0 {
    /// Scale.
    pub d: [u8; 2],
    /// 4-bit codes.
    pub q: [u8; 16],
}

/// `value[c] = d * q[c] + m`; 20 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_1 {
    /// Scale.
    pub d: [u8; 2],
    /// Value of code 0.
    pub m: [u8; 2],
    /// 4-bit codes.
    pub q: [u8; 16],
}

/// `value[c] = d * (q[c] - 16)`; 22 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_0 {
    /// Scale.
    pub d: [u8; 2],
    /// Bit 4 of q[c] is bit c of this u32.
    pub high: [u8; 4],
    /// Bits 0 to 3.
    pub low: [u8; 16],
}

/// `value[c] = d * q[c] + m`; 24 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_1 {
    /// Scale.
    pub d: [u8; 2],
    /// Value of code 0.
    pub m: [u8; 2],
    /// Bit 4 of q[c] is bit c of this u32.
    pub high: [u8; 4],
    /// Bits 0 to 3.
    pub low: [u8; 16],
}

/// `value[c] = d * codebook[q[c]]`; 18 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Iq4Nl {
    /// Scale.
    pub d: [u8; 2],
    /// 4-bit codes.
    pub q: [u8; 16],
}

impl Block for Q8_0 {
    const COLUMNS: usize = 32;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), 0]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        for (word, &q) in words.iter_mut().zip(&self.q) {
            *word = q.into();
        }
    }
    fn encode(values: &[f32]) -> Q8_0 {
        let greatest = values.iter().fold(0.0, |greatest: f32, value| greatest.max(value.abs()));
        let (d, inverse) = search::half(greatest / 127.0);
        let code = |value: f32| (value * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
        Q8_0 { d: d.to_le_bytes(), q: std::array::from_fn(|c| code(values[c])) }
    }
}

impl Block for Q4_0 {
    const COLUMNS: usize = 32;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), 0]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        nibbles(&self.q, words, |code| code - 8);
    }
    fn encode(values: &[f32]) -> Q4_0 {
        let (d, codes) = signed(values, 8);
        Q4_0 { d, q: pack(&codes) }
    }
}

impl Block for Q4_1 {
    const COLUMNS: usize = 32;
    const OFFSET: bool = true;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), u16::from_le_bytes(self.m)]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        nibbles(&self.q, words, |code| code);
    }
    #[inline(always)]
    fn offsets(&self, offsets: &mut [i16]) {
        offsets.fill(1);
    }
    fn encode(values: &[f32]) -> Q4_1 {
        let (d, m, codes) = offset(values, 15);
        Q4_1 { d, m, q: pack(&codes) }
    }
}

impl Block for Q5_0 {
    const COLUMNS: usize = 32;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), 0]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        nibbles(&self.low, words, |code| code - 16);
        add_fifth_bits(self.high, words);
    }
    fn encode(values: &[f32]) -> Q5_0 {
        let (d, codes) = signed(values, 16);
        Q5_0 { d, high: pack_high(&codes), low: pack(&codes) }
    }
}

impl Block for Q5_1 {
    const COLUMNS: usize = 32;
    const OFFSET: bool = true;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), u16::from_le_bytes(self.m)]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        nibbles(&self.low, words, |code| code);
        add_fifth_bits(self.high, words);
    }
    #[inline(always)]
    fn offsets(&self, offsets: &mut [i16]) {
        offsets.fill(1);
    }
    fn encode(values: &[f32]) -> Q5_1 {
        let (d, m, codes) = offset(values, 31);
        Q5_1 { d, m, high: pack_high(&codes), low: pack(&codes) }
    }
}

impl Block for Iq4Nl {
    const COLUMNS: usize = 32;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), 0]
    }
    #[inline(always)]
    fn words(&self, look_up: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        looked_up(&self.q, look_up, words, |entry| entry);
    }
    fn encode(values: &[f32]) -> Iq4Nl {
        let (d, inverse) = search::half(search::codebook_scale(values));
        let codes: [u8; 32] = std::array::from_fn(|c| search::nearest(values[c] * inverse));
        Iq4Nl { d: d.to_le_bytes(), q: pack(&codes) }
    }
}

// The loops below have fixed lengths and do all of an element at once: the compiler makes vectors of them.

/// `word(q[c])` for 32 4-bit codes.
#[inline(always)]
fn nibbles(q: &[u8; 16], words: &mut [i16], word: impl Fn(i16) -> i16) {
    if let [low, high] = words.as_chunks_mut::<16>().0 {
        // Masked as bytes, then widened: twice as many to a vector.
        *low = q.map(|q| q & 15).map(|q| word(i16::from(q)));
        *high = q.map(|q| q >> 4).map(|q| word(i16::from(q)));
    }
}

/// 4-bit codes as words of the codebook: 16 bytes for 32 words.
#[inline(always)]
pub(super) fn looked_up(
    q: &[u8; 16],
    look_up: impl Fn(&[u8; 16]) -> [i8; 16],
    words: &mut [i16],
    word: impl Fn(i16) -> i16,
) {
    if let [low, high] = words.as_chunks_mut::<16>().0 {
        *low = look_up(&q.map(|q| q & 15)).map(|entry| word(entry.into()));
        *high = look_up(&q.map(|q| q >> 4)).map(|entry| word(entry.into()));
    }
}

/// The bit of every element in its half of the fifth bits.
const BITS: [u16; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];

/// Adds 16 to every element that has its fifth bit.
#[inline(always)]
fn add_fifth_bits(high: [u8; 4], words: &mut [i16]) {
    for (words, half) in words.as_chunks_mut::<16>().0.iter_mut().zip(high.as_chunks().0) {
        let half = u16::from_le_bytes(*half);
        for (word, bit) in words.iter_mut().zip(BITS) {
            // All ones if the bit is missing.
            let missing = if half & bit == 0 { -1 } else { 0 };
            *word += 16 & !missing;
        }
    }
}

/// Low halves of 32 codes.
pub(super) fn pack(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| codes[j] & 15 | codes[j + 16] << 4)
}

/// Bit 4 of 32 codes.
fn pack_high(codes: &[u8; 32]) -> [u8; 4] {
    codes.iter().enumerate().fold(0, |bits, (c, code)| bits | u32::from(code >> 4) << c).to_le_bytes()
}

/// Scale and codes for `d * (q - half)`, 0 <= q < 2 * half.
fn signed(values: &[f32], half: i32) -> ([u8; 2], [u8; 32]) {
    let (d, inverse) = search::half(search::signed_scale(values, half));
    let codes = std::array::from_fn(|c| (search::round(values[c] * inverse, -half, half - 1) + half) as u8);
    (d.to_le_bytes(), codes)
}

/// Scale, offset and codes for `d * q + m`, 0 <= q <= `most`.
fn offset(values: &[f32], most: i32) -> ([u8; 2], [u8; 2], [u8; 32]) {
    let (scale, least) = search::offset_scale(values, most, f32::INFINITY);
    let (d, inverse) = search::half(scale);
    let m = f16::from_f32(least.clamp(-search::HALF_MAX, search::HALF_MAX));
    let codes = std::array::from_fn(|c| search::round((values[c] - m.to_f32()) * inverse, 0, most) as u8);
    (d.to_le_bytes(), m.to_le_bytes(), codes)
}
