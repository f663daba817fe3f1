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
/// Thirty-two signed bytes in memory.
pub type Signed = [i8; 32];

/// An executor of integer products.
pub trait Integers: Lanes {
    /// Sixteen 16-bit words.
    type Words: Copy;
    /// Eight 32-bit sums; they wrap, so that a total is right if it fits, whatever its parts are.
    type Sums: Copy;
    /// Thirty-two unsigned bytes.
    type Bytes: Copy;
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
    /// Sixteen signed bytes as words.
    fn widen_signed(bytes: &[i8; 16]) -> Self::Words;
    /// Word by word `a + b`.
    fn add_words(a: Self::Words, b: Self::Words) -> Self::Words;
    /// Words 0 to 7, and again as words 8 to 15.
    fn repeated(bytes: &[u8; 8]) -> Self::Words;
    /// Every byte as a word, twice.
    fn doubled(bytes: &[u8; 8]) -> Self::Words;
    /// Bytes 0, 2, 4, ... as words 0 to 7, bytes 1, 3, 5, ... as the others.
    fn parted(bytes: &[i8; 16]) -> Self::Words;
    /// Word I, eight times, and word 8 + I, eight times.
    fn spread<const I: usize>(words: Self::Words) -> Self::Words;
    /// Words as `16 * high + low` with `-128 <= high <= 127` and `0 <= low <= 15`; words are within 12 bits.
    fn split(words: Self::Words) -> [[i8; 16]; 2];
    /// Bytes from memory.
    fn bytes(from: &[u8; 32]) -> Self::Bytes;
    /// Sixteen bytes and sixteen others.
    fn two(a: &[u8; 16], b: &[u8; 16]) -> Self::Bytes;
    /// Every byte moved down by N bits, then masked: `mask` takes none of the N top bits.
    fn down<const N: i32>(bytes: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Every byte moved up by N bits, then masked: `mask` takes none of the N low bits.
    fn up<const N: i32>(bytes: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Byte by byte `a | b`.
    fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Byte i is 16 if bit i of `a` is set, byte 16 + i if bit i of `b` is, else 0.
    fn sixteens(a: u16, b: u16) -> Self::Bytes;
    /// Word i: `codes[2i] * x[2i] + codes[2i + 1] * x[2i + 1]`, which fits in 16 bits.
    fn multiply(codes: Self::Bytes, x: &Signed) -> Self::Words;
    /// `16 * high + low`
    fn join(high: Self::Sums, low: Self::Sums) -> Self::Sums;
    /// Lane 2v: lanes 0 to 3 of vector v; lane 2v + 1: its lanes 4 to 7.
    fn half_totals(vectors: &[Self::Sums; 4]) -> Self::Sums;
}

impl Integers for Portable {
    type Words = Sixteen;
    type Sums = [i32; 8];
    type Bytes = [u8; 32];
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
        std::array::from_fn(|l| sums[l].wrapping_add(product(2 * l) + product(2 * l + 1)))
    }
    #[inline(always)]
    fn add_sums(a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        std::array::from_fn(|l| a[l].wrapping_add(b[l]))
    }
    #[inline(always)]
    fn totals(vectors: &[[i32; 8]; 8]) -> [i32; 8] {
        vectors.map(wrapping_sum)
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
    fn widen_signed(bytes: &[i8; 16]) -> Sixteen {
        bytes.map(i16::from)
    }
    #[inline(always)]
    fn add_words(a: Sixteen, b: Sixteen) -> Sixteen {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn repeated(bytes: &[u8; 8]) -> Sixteen {
        std::array::from_fn(|i| bytes[i % 8].into())
    }
    #[inline(always)]
    fn doubled(bytes: &[u8; 8]) -> Sixteen {
        std::array::from_fn(|i| bytes[i / 2].into())
    }
    #[inline(always)]
    fn parted(bytes: &[i8; 16]) -> Sixteen {
        std::array::from_fn(|i| bytes[i % 8 * 2 + i / 8].into())
    }
    #[inline(always)]
    fn spread<const I: usize>(words: Sixteen) -> Sixteen {
        std::array::from_fn(|i| words[i / 8 * 8 + I])
    }
    #[inline(always)]
    fn split(words: Sixteen) -> [[i8; 16]; 2] {
        [words.map(|word| (word >> 4) as i8), words.map(|word| (word & 15) as i8)]
    }
    #[inline(always)]
    fn bytes(from: &[u8; 32]) -> [u8; 32] {
        *from
    }
    #[inline(always)]
    fn two(a: &[u8; 16], b: &[u8; 16]) -> [u8; 32] {
        std::array::from_fn(|i| if i < 16 { a[i] } else { b[i - 16] })
    }
    #[inline(always)]
    fn down<const N: i32>(bytes: [u8; 32], mask: u8) -> [u8; 32] {
        bytes.map(|byte| byte >> N & mask)
    }
    #[inline(always)]
    fn up<const N: i32>(bytes: [u8; 32], mask: u8) -> [u8; 32] {
        bytes.map(|byte| byte << N & mask)
    }
    #[inline(always)]
    fn or(a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn sixteens(a: u16, b: u16) -> [u8; 32] {
        let bits = u32::from(a) | u32::from(b) << 16;
        std::array::from_fn(|i| (bits >> i & 1) as u8 * 16)
    }
    #[inline(always)]
    fn multiply(codes: [u8; 32], x: &Signed) -> Sixteen {
        let product = |i: usize| i16::from(codes[i]) * i16::from(x[i]);
        std::array::from_fn(|i| product(2 * i) + product(2 * i + 1))
    }
    #[inline(always)]
    fn join(high: [i32; 8], low: [i32; 8]) -> [i32; 8] {
        std::array::from_fn(|l| high[l].wrapping_mul(16).wrapping_add(low[l]))
    }
    #[inline(always)]
    fn half_totals(vectors: &[[i32; 8]; 4]) -> [i32; 8] {
        std::array::from_fn(|l| wrapping_sum(&vectors[l / 2][l % 2 * 4..][..4]))
    }
}

fn wrapping_sum(lanes: impl AsRef<[i32]>) -> i32 {
    lanes.as_ref().iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}

#[cfg(target_arch = "x86_64")]
impl Integers for Avx2 {
    type Words = __m256i;
    type Sums = __m256i;
    type Bytes = __m256i;
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
    fn widen_signed(bytes: &[i8; 16]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `bytes` is 16 readable bytes, no alignment needed.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }
    #[inline(always)]
    fn add_words(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_add_epi16(a, b) }
    }
    #[inline(always)]
    fn repeated(bytes: &[u8; 8]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `bytes` is 8 readable bytes, no alignment needed.
        unsafe { _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(_mm_loadl_epi64(bytes.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn doubled(bytes: &[u8; 8]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `bytes` is 8 readable bytes, no alignment needed.
        unsafe {
            let bytes = _mm_loadl_epi64(bytes.as_ptr().cast());
            _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes))
        }
    }
    #[inline(always)]
    fn parted(bytes: &[i8; 16]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `bytes` is 16 readable bytes, no alignment needed.
        unsafe {
            let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
            _mm256_cvtepi8_epi16(_mm_shuffle_epi8(_mm_loadu_si128(bytes.as_ptr().cast()), order))
        }
    }
    #[inline(always)]
    fn spread<const I: usize>(words: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_shuffle_epi8(words, _mm256_set1_epi16(((2 * I) | ((2 * I + 1) << 8)) as i16)) }
    }
    #[inline(always)]
    fn split(words: __m256i) -> [[i8; 16]; 2] {
        let mut bytes = [[0; 16]; 2];
        // SAFETY: the processor has AVX2 (head of this file); both parts of `bytes` are 16 writable bytes.
        unsafe {
            let (high, low) = (_mm256_srai_epi16::<4>(words), _mm256_and_si256(words, _mm256_set1_epi16(15)));
            for (words, to) in [high, low].into_iter().zip(&mut bytes) {
                let packed = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
                _mm_storeu_si128(to.as_mut_ptr().cast(), packed);
            }
        }
        bytes
    }
    #[inline(always)]
    fn bytes(from: &[u8; 32]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `from` is 32 readable bytes, no alignment needed.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }
    #[inline(always)]
    fn two(a: &[u8; 16], b: &[u8; 16]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); both are 16 readable bytes, no alignment needed.
        unsafe { _mm256_loadu2_m128i(b.as_ptr().cast(), a.as_ptr().cast()) }
    }
    #[inline(always)]
    fn down<const N: i32>(bytes: __m256i, mask: u8) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only. Words are moved: what comes from the
        // neighbouring byte is what the mask does not take.
        unsafe { _mm256_and_si256(_mm256_srli_epi16::<N>(bytes), _mm256_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    fn up<const N: i32>(bytes: __m256i, mask: u8) -> __m256i {
        // SAFETY: as for `down`.
        unsafe { _mm256_and_si256(_mm256_slli_epi16::<N>(bytes), _mm256_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    fn or(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    fn sixteens(a: u16, b: u16) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe {
            // Every byte gets the byte of `a` or `b` that has its bit; then only that bit is looked at.
            let both = _mm256_set_m128i(_mm_set1_epi16(b as i16), _mm_set1_epi16(a as i16));
            let spread = _mm256_set_epi64x(0x0101_0101_0101_0101, 0, 0x0101_0101_0101_0101, 0);
            let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let bits = _mm256_and_si256(_mm256_shuffle_epi8(both, spread), own);
            _mm256_and_si256(_mm256_cmpeq_epi8(bits, own), _mm256_set1_epi8(16))
        }
    }
    #[inline(always)]
    fn multiply(codes: __m256i, x: &Signed) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); `x` is 32 readable bytes, no alignment needed.
        unsafe { _mm256_maddubs_epi16(codes, _mm256_loadu_si256(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn join(high: __m256i, low: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe { _mm256_add_epi32(_mm256_slli_epi32::<4>(high), low) }
    }
    #[inline(always)]
    fn half_totals([a, b, c, d]: &[__m256i; 4]) -> __m256i {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        unsafe {
            // Adds within halves of a register: a0 b0 c0 d0 | a1 b1 c1 d1.
            let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(*a, *b), _mm256_hadd_epi32(*c, *d));
            _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
        }
    }
}
