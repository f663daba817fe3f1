//! Quantised formats with blocks of 256 elements and offsets: Q2_K, Q4_K, Q5_K.
//!
//! Owns: their layouts, the integers of a block and its encoder.
//! Always true: `value[c] = d * scale[s] * q[c] - dmin * min[s]` for sub-block s of element c; `d` and `dmin` are F16.
//! A struct's fields lie in memory as written, without gaps.
//! Not here: what is common to all blocks (`block`), the search for scales (`search`).

use bytemuck::{Pod, Zeroable};

use super::block::Block;
use super::search;

/// 16 sub-blocks of 16, 2-bit codes, 4-bit scales and minima; 84 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q2K {
    /// `scale[s]` in the low half of byte s, `min[s]` in the high half.
    pub scales: [u8; 16],
    /// Element 128 * h + 32 * j + l has bits 2j and 2j + 1 of byte 32 * h + l.
    pub q: [u8; 64],
    /// Scale of the scales.
    pub d: [u8; 2],
    /// Scale of the minima.
    pub dmin: [u8; 2],
}

/// 8 sub-blocks of 32, 4-bit codes, 6-bit scales and minima; 144 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4K {
    /// Scale of the scales.
    pub d: [u8; 2],
    /// Scale of the minima.
    pub dmin: [u8; 2],
    /// Byte s < 4: `scale[s]` in bits 0 to 5, bits 4 and 5 of `scale[s + 4]` in bits 6 and 7. Byte s + 4: the same of
    /// `min`. Byte s + 8: bits 0 to 3 of `scale[s + 4]` in the low half, those of `min[s + 4]` in the high half.
    pub scales: [u8; 12],
    /// Element 64 * c + l has the low half of byte 32 * c + l, element 64 * c + 32 + l its high half.
    pub q: [u8; 128],
}

/// [`Q4K`] with a fifth bit; 176 bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5K {
    /// Scale of the scales.
    pub d: [u8; 2],
    /// Scale of the minima.
    pub dmin: [u8; 2],
    /// As in [`Q4K`].
    pub scales: [u8; 12],
    /// Bit 4 of element 32 * s + l is bit s of byte l.
    pub high: [u8; 32],
    /// Bits 0 to 3, as in [`Q4K`].
    pub low: [u8; 128],
}

/// F16 bits with the other sign: offsets are subtracted.
#[inline(always)]
fn negated(half: [u8; 2]) -> u16 {
    u16::from_le_bytes(half) ^ 0x8000
}

impl Block for Q2K {
    const COLUMNS: usize = 256;
    const OFFSET: bool = true;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), negated(self.dmin)]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        let (groups, q) = (words.as_chunks_mut::<16>().0, self.q.as_chunks::<16>().0);
        for (i, q) in q.iter().enumerate() {
            let s = i / 2 * 8 + i % 2;
            let scale = |s: usize| i16::from(self.scales[s] & 15);
            groups[s] = two_bits::<0>(q, scale(s));
            groups[s + 2] = two_bits::<2>(q, scale(s + 2));
            groups[s + 4] = two_bits::<4>(q, scale(s + 4));
            groups[s + 6] = two_bits::<6>(q, scale(s + 6));
        }
    }
    #[inline(always)]
    fn offsets(&self, offsets: &mut [i16]) {
        for (offset, &both) in offsets.iter_mut().zip(&self.scales) {
            *offset = i16::from(both) >> 4;
        }
    }
    fn encode(values: &[f32]) -> Q2K {
        let parts = encode::<16>(values, 3, 15.0);
        let mut q = [0; 64];
        for (c, code) in parts.codes.iter().enumerate() {
            q[c / 128 * 32 + c % 32] |= code << (c % 128 / 32 * 2);
        }
        let scales = std::array::from_fn(|s| parts.scales[s] | parts.mins[s] << 4);
        Q2K { scales, q, d: parts.d, dmin: parts.dmin }
    }
}

impl Block for Q4K {
    const COLUMNS: usize = 256;
    const OFFSET: bool = true;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), negated(self.dmin)]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        let [scales, _] = unpack_scales(&self.scales);
        for (c, (words, q)) in words.chunks_exact_mut(64).zip(self.q.as_chunks::<32>().0).enumerate() {
            let (low, high) = words.split_at_mut(32);
            for ((low, high), &q) in low.iter_mut().zip(high).zip(q) {
                *low = (i16::from(q) & 15) * i16::from(scales[2 * c]);
                *high = (i16::from(q) >> 4) * i16::from(scales[2 * c + 1]);
            }
        }
    }
    #[inline(always)]
    fn offsets(&self, offsets: &mut [i16]) {
        spread(&unpack_scales(&self.scales)[1], offsets);
    }
    fn encode(values: &[f32]) -> Q4K {
        let parts = encode::<8>(values, 15, 63.0);
        Q4K { d: parts.d, dmin: parts.dmin, scales: pack_scales(&parts.scales, &parts.mins), q: pack(&parts.codes) }
    }
}

impl Block for Q5K {
    const COLUMNS: usize = 256;
    const OFFSET: bool = true;
    #[inline(always)]
    fn factors(&self) -> [u16; 2] {
        [u16::from_le_bytes(self.d), negated(self.dmin)]
    }
    #[inline(always)]
    fn words(&self, _: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]) {
        let [scales, _] = unpack_scales(&self.scales);
        self.quarter::<0>(&scales, words);
        self.quarter::<1>(&scales, words);
        self.quarter::<2>(&scales, words);
        self.quarter::<3>(&scales, words);
    }
    #[inline(always)]
    fn offsets(&self, offsets: &mut [i16]) {
        spread(&unpack_scales(&self.scales)[1], offsets);
    }
    fn encode(values: &[f32]) -> Q5K {
        let parts = encode::<8>(values, 31, 63.0);
        let mut high = [0; 32];
        for (c, code) in parts.codes.iter().enumerate() {
            high[c % 32] |= (code >> 4) << (c / 32);
        }
        let (scales, low) = (pack_scales(&parts.scales, &parts.mins), pack(&parts.codes));
        Q5K { d: parts.d, dmin: parts.dmin, scales, high, low }
    }
}

/// 2-bit codes from bit `SHIFT` on, times their scale. The shift is a constant so that the compiler makes vectors of it.
#[inline(always)]
fn two_bits<const SHIFT: u32>(q: &[u8; 16], scale: i16) -> [i16; 16] {
    q.map(|q| i16::from(q >> SHIFT & 3) * scale)
}

impl Q5K {
    /// Words 64 * C and on.
    #[inline(always)]
    fn quarter<const C: usize>(&self, scales: &[u8; 8], words: &mut [i16]) {
        let (low, high) = (self.low.as_chunks::<16>().0, self.high.as_chunks::<16>().0);
        let groups = words.as_chunks_mut::<16>().0;
        let [first, second] = [i16::from(scales[2 * C]), i16::from(scales[2 * C + 1])];
        for k in 0..2 {
            let (low, high) = (&low[2 * C + k], &high[k]);
            for i in 0..16 {
                groups[4 * C + k][i] = i16::from(low[i] & 15 | (high[i] >> (2 * C) & 1) << 4) * first;
            }
            for i in 0..16 {
                groups[4 * C + 2 + k][i] = i16::from(low[i] >> 4 | (high[i] >> (2 * C + 1) & 1) << 4) * second;
            }
        }
    }
}

/// `scale` and `min` of the 8 sub-blocks.
#[inline(always)]
pub(crate) fn unpack_scales(scales: &[u8; 12]) -> [[u8; 8]; 2] {
    let word = |at: usize| u32::from_le_bytes([scales[at], scales[at + 1], scales[at + 2], scales[at + 3]]);
    let (a, b, c) = (word(0), word(4), word(8));
    // Four bytes at a time: shifts do not carry bits into a neighbour that the masks do not remove.
    let join = |first: u32, second: u32| {
        let both = u64::from(first) | u64::from(second) << 32;
        both.to_le_bytes()
    };
    [
        join(a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | (a >> 2) & 0x3030_3030),
        join(b & 0x3f3f_3f3f, (c >> 4) & 0x0f0f_0f0f | (b >> 2) & 0x3030_3030),
    ]
}

fn pack_scales(scales: &[u8], mins: &[u8]) -> [u8; 12] {
    std::array::from_fn(|i| match i / 4 {
        0 => scales[i] | (scales[i + 4] >> 4) << 6,
        1 => mins[i - 4] | (mins[i] >> 4) << 6,
        _ => scales[i - 4] & 15 | mins[i - 4] << 4,
    })
}

/// The minimum of a sub-block of 32, for each of its halves.
#[inline(always)]
fn spread(mins: &[u8; 8], offsets: &mut [i16]) {
    for (pair, &min) in offsets.chunks_exact_mut(2).zip(mins) {
        pair.fill(min.into());
    }
}

/// Low halves of the codes.
fn pack(codes: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|i| {
        let at = i / 32 * 64 + i % 32;
        codes[at] & 15 | codes[at + 32] << 4
    })
}

struct Parts<const S: usize> {
    d: [u8; 2],
    dmin: [u8; 2],
    scales: [u8; S],
    mins: [u8; S],
    codes: [u8; 256],
}

/// Best scale and minimum of every sub-block, both rounded to integers up to `levels`, then the codes up to `most`.
fn encode<const S: usize>(values: &[f32], most: i32, levels: f32) -> Parts<S> {
    let size = 256 / S;
    let best: [(f32, f32); S] =
        std::array::from_fn(|s| search::offset_scale(&values[s * size..(s + 1) * size], most, 0.0));
    let greatest = |of: fn(&(f32, f32)) -> f32| best.iter().map(of).fold(0.0, f32::max);
    let (d, scale_inverse) = search::half(greatest(|b| b.0) / levels);
    let (dmin, min_inverse) = search::half(greatest(|b| -b.1) / levels);
    let scales = best.map(|(scale, _)| search::round(scale * scale_inverse, 0, levels as i32) as u8);
    let mins = best.map(|(_, offset)| search::round(-offset * min_inverse, 0, levels as i32) as u8);
    let codes = std::array::from_fn(|c| {
        let s = c / size;
        let min = dmin.to_f32() * f32::from(mins[s]);
        search::round((values[c] + min) * search::inverse(d.to_f32() * f32::from(scales[s])), 0, most) as u8
    });
    Parts { d: d.to_le_bytes(), dmin: dmin.to_le_bytes(), scales, mins, codes }
}
