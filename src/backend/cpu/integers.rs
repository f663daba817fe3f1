//! Sixteen small integers at a time: what products of quantised weights are made of.
//!
//! Owns: [`Integers`], implemented portably and with AVX2.
//! Always true: sums are exact as long as they fit in 32 bits, which their users prove; so a kernel has the same bits
//! whoever executes it and in whatever order it adds. Values of these types stay inside functions that `vectorised!`
//! compiles, which are entered after the processor was asked for AVX2.
//! Not here: floating point (`lanes`), what the integers mean (`quantised`).

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
use super::lanes::{Lanes, Portable, ROUND};
use crate::weights::format::{CODEBOOK, codebook};

/// Sixteen words in memory.
pub type Sixteen = [i16; 16];

/// An executor of integer products.
pub trait Integers: Lanes {
    /// Sixteen 16-bit words.
    type Words: Copy;
    /// Eight 32-bit sums.
    type Sums: Copy;
    /// No sum yet.
    fn zero() -> Self::Sums;
    /// Sixteen words from memory.
    fn words(from: &Sixteen) -> Self::Words;
    /// Two words, eight times.
    fn pair(from: &[i16; 2]) -> Self::Words;
    /// Lane l: `sums[l] + a[2l] * b[2l] + a[2l + 1] * b[2l + 1]`.
    fn add_products(sums: Self::Sums, a: Self::Words, b: Self::Words) -> Self::Sums;
    /// Lane by lane `a + b`.
    fn add_sums(a: Self::Sums, b: Self::Sums) -> Self::Sums;
    /// Lane l: everything in vector l.
    fn totals(vectors: &[Self::Sums; 8]) -> Self::Sums;
    /// Each sum rounded to f32.
    fn to_lanes(sums: Self::Sums) -> Self;
    /// Pair p of row o becomes pair o of row p.
    fn transpose(rows: [&Sixteen; 8]) -> [Sixteen; 8];
    /// Words from sixteen lanes that hold integers + [`ROUND`], each within 16 bits.
    fn from_rounded(low: Self, high: Self) -> Self::Words;
    /// The words in memory.
    fn store_words(words: Self::Words, to: &mut Sixteen);
    /// As [`codebook`].
    fn look_up(codes: &[u8; 16]) -> [i8; 16];
    /// Sixteen bytes as words.
    fn widen(bytes: &[u8; 16]) -> Self::Words;
    /// Sixteen signed bytes as words.
    fn widen_signed(bytes: &[i8; 16]) -> Self::Words;
    /// The low four bits of every word.
    fn low_half(words: Self::Words) -> Self::Words;
    /// Every word without its low four bits, which moves the others down.
    fn high_half(words: Self::Words) -> Self::Words;
    /// `words - less`
    fn less(words: Self::Words, less: i16) -> Self::Words;
    /// Word i: `words[i] - less`, unless bit i of `bits` is set.
    fn less_unless(words: Self::Words, bits: u16, less: i16) -> Self::Words;
    /// `sums * factor`
    fn times(sums: Self::Sums, factor: i32) -> Self::Sums;
}

impl Integers for Portable {
    type Words = Sixteen;
    type Sums = [i32; 8];
    #[inline(always)]
    fn zero() -> [i32; 8] {
        [0; 8]
    }
    #[inline(always)]
    fn words(from: &Sixteen) -> Sixteen {
        *from
    }
    #[inline(always)]
    fn pair(from: &[i16; 2]) -> Sixteen {
        std::array::from_fn(|i| from[i % 2])
    }
    #[inline(always)]
    fn add_products(sums: [i32; 8], a: Sixteen, b: Sixteen) -> [i32; 8] {
        let product = |i: usize| i32::from(a[i]) * i32::from(b[i]);
        std::array::from_fn(|l| sums[l] + product(2 * l) + product(2 * l + 1))
    }
    #[inline(always)]
    fn add_sums(a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        std::array::from_fn(|l| a[l] + b[l])
    }
    #[inline(always)]
    fn totals(vectors: &[[i32; 8]; 8]) -> [i32; 8] {
        vectors.map(|vector| vector.iter().sum())
    }
    #[inline(always)]
    fn to_lanes(sums: [i32; 8]) -> Portable {
        Portable::load(&sums.map(|sum| sum as f32))
    }
    #[inline(always)]
    fn transpose(rows: [&Sixteen; 8]) -> [Sixteen; 8] {
        std::array::from_fn(|p| std::array::from_fn(|i| rows[i / 2][2 * p + i % 2]))
    }
    #[inline(always)]
    fn from_rounded(low: Portable, high: Portable) -> Sixteen {
        let mut lanes = [0.0; 16];
        let (first, second) = lanes.split_at_mut(8);
        low.store_tail(first);
        high.store_tail(second);
        lanes.map(|lane| lane.to_bits().wrapping_sub(ROUND.to_bits()) as i16)
    }
    #[inline(always)]
    fn store_words(words: Sixteen, to: &mut Sixteen) {
        *to = words;
    }
    #[inline(always)]
    fn look_up(codes: &[u8; 16]) -> [i8; 16] {
        codebook(codes)
    }
    #[inline(always)]
    fn widen(bytes: &[u8; 16]) -> Sixteen {
        bytes.map(i16::from)
    }
    #[inline(always)]
    fn widen_signed(bytes: &[i8; 16]) -> Sixteen {
        bytes.map(i16::from)
    }
    #[inline(always)]
    fn low_half(words: Sixteen) -> Sixteen {
        words.map(|word| word & 15)
    }
    #[inline(always)]
    fn high_half(words: Sixteen) -> Sixteen {
        words.map(|word| (word as u16 >> 4) as i16)
    }
    #[inline(always)]
    fn less(words: Sixteen, less: i16) -> Sixteen {
        words.map(|word| word - less)
    }
    #[inline(always)]
    fn less_unless(words: Sixteen, bits: u16, less: i16) -> Sixteen {
        std::array::from_fn(|i| if bits >> i & 1 == 1 { words[i] } else { words[i] - less })
    }
    #[inline(always)]
    fn times(sums: [i32; 8], factor: i32) -> [i32; 8] {
        sums.map(|sum| sum * factor)
    }
}

#[cfg(target_arch = "x86_64")]
impl Integers for Avx2 {
    type Words = __m256i;
    type Sums = __m256i;
    #[inline(always)]
    fn zero() -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    fn words(from: &Sixteen) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `from` is 32 readable bytes, no alignment needed.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }
    #[inline(always)]
    fn pair(from: &[i16; 2]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_set1_epi32(i32::from_ne_bytes(bytemuck::cast(*from))) }
    }
    #[inline(always)]
    fn add_products(sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)) }
    }
    #[inline(always)]
    fn add_sums(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    fn totals([a, b, c, d, e, f, g, h]: &[__m256i; 8]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe {
            // Neighbours are added within each half of a register, twice; then the halves.
            let first = _mm256_hadd_epi32(_mm256_hadd_epi32(*a, *b), _mm256_hadd_epi32(*c, *d));
            let second = _mm256_hadd_epi32(_mm256_hadd_epi32(*e, *f), _mm256_hadd_epi32(*g, *h));
            let low = _mm256_permute2x128_si256::<0x20>(first, second);
            _mm256_add_epi32(low, _mm256_permute2x128_si256::<0x31>(first, second))
        }
    }
    #[inline(always)]
    fn to_lanes(sums: __m256i) -> Avx2 {
        let mut lanes = [0.0; 8];
        // SAFETY: the processor has AVX2 (head of this file); `lanes` is 32 writable bytes. The store and the load of
        // `Avx2` become one register.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_cvtepi32_ps(sums)) }
        Avx2::load(&lanes)
    }
    #[inline(always)]
    fn transpose(rows: [&Sixteen; 8]) -> [Sixteen; 8] {
        let mut out = [[0; 16]; 8];
        // SAFETY: the processor has AVX2 (head of this file); every row is 32 bytes, no alignment needed.
        unsafe {
            let r = rows.map(|row| _mm256_loadu_si256(row.as_ptr().cast()));
            // 2 x 2, then 4 x 4 within halves, then the halves.
            let mut t = [_mm256_setzero_si256(); 8];
            for i in 0..4 {
                t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
            }
            let mut u = [_mm256_setzero_si256(); 8];
            for i in 0..2 {
                u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
                u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
                u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
                u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
            }
            for i in 0..4 {
                let (low, high) = (
                    _mm256_permute2x128_si256::<0x20>(u[i], u[i + 4]),
                    _mm256_permute2x128_si256::<0x31>(u[i], u[i + 4]),
                );
                _mm256_storeu_si256(out[i].as_mut_ptr().cast(), low);
                _mm256_storeu_si256(out[i + 4].as_mut_ptr().cast(), high);
            }
        }
        out
    }
    #[inline(always)]
    fn from_rounded(low: Avx2, high: Avx2) -> __m256i {
        let mut lanes = [[0.0; 8]; 2];
        low.store(&mut lanes[0]);
        high.store(&mut lanes[1]);
        // SAFETY: the processor has AVX2 (head of this file); `lanes` is 64 readable bytes.
        unsafe {
            let round = _mm256_castps_si256(_mm256_set1_ps(ROUND));
            let low = _mm256_sub_epi32(_mm256_loadu_si256(lanes[0].as_ptr().cast()), round);
            let high = _mm256_sub_epi32(_mm256_loadu_si256(lanes[1].as_ptr().cast()), round);
            // Packs within halves: 0..4 8..12 | 4..8 12..16.
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high))
        }
    }
    #[inline(always)]
    fn store_words(words: __m256i, to: &mut Sixteen) {
        // SAFETY: the processor has AVX2 (head of this file); `to` is 32 writable bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) }
    }
    #[inline(always)]
    fn look_up(codes: &[u8; 16]) -> [i8; 16] {
        let mut words = [0; 16];
        // SAFETY: the processor has AVX2 (head of this file); table, codes and words are 16 bytes each.
        unsafe {
            let table = _mm_loadu_si128(CODEBOOK.as_ptr().cast());
            let codes = _mm_loadu_si128(codes.as_ptr().cast());
            _mm_storeu_si128(words.as_mut_ptr().cast(), _mm_shuffle_epi8(table, codes));
        }
        words
    }
    #[inline(always)]
    fn widen(bytes: &[u8; 16]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `bytes` is 16 readable bytes, no alignment needed.
        unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }
    #[inline(always)]
    fn widen_signed(bytes: &[i8; 16]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `bytes` is 16 readable bytes, no alignment needed.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }
    #[inline(always)]
    fn low_half(words: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_and_si256(words, _mm256_set1_epi16(15)) }
    }
    #[inline(always)]
    fn high_half(words: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_srli_epi16::<4>(words) }
    }
    #[inline(always)]
    fn less(words: __m256i, less: i16) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_sub_epi16(words, _mm256_set1_epi16(less)) }
    }
    #[inline(always)]
    fn less_unless(words: __m256i, bits: u16, less: i16) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe {
            let bit = |i: u32| (1u16 << i) as i16;
            let (low, high) = ([0, 1, 2, 3, 4, 5, 6, 7].map(bit), [8, 9, 10, 11, 12, 13, 14, 15].map(bit));
            let own = Self::words(&bytemuck::cast([low, high]));
            let set = _mm256_and_si256(_mm256_set1_epi16(bits as i16), own);
            let clear = _mm256_cmpeq_epi16(set, _mm256_setzero_si256());
            _mm256_sub_epi16(words, _mm256_and_si256(clear, _mm256_set1_epi16(less)))
        }
    }
    #[inline(always)]
    fn times(sums: __m256i, factor: i32) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_mullo_epi32(sums, _mm256_set1_epi32(factor)) }
    }
}
