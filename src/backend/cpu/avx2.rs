//! Lanes in one AVX2 register.
//!
//! Owns: [`Avx2`], each operation one or a few instructions.
//! Always true: values of this type live only inside functions that `vectorised!` compiles with AVX2, FMA and F16C,
//! which are entered after the processor was asked for them. Every method is inlined there.
//! Not here: what is computed (`simd`, `activation`, `tile`).
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::*;

use super::lanes::{Lanes, ROUND, WIDTH};

/// Eight f32 in a `ymm` register.
#[derive(Clone, Copy)]
pub struct Avx2(__m256);

// The reason for every register-only intrinsic below.
macro_rules! lanes {
    ($($intrinsic:tt)*) => {
        // SAFETY: the processor has AVX2, FMA and F16C (head of this file); the operation touches registers only.
        Avx2(unsafe { $($intrinsic)* })
    };
}

impl Lanes for Avx2 {
    #[inline(always)]
    fn splat(value: f32) -> Self {
        lanes!(_mm256_set1_ps(value))
    }
    #[inline(always)]
    fn load(from: &[f32; WIDTH]) -> Self {
        // SAFETY: the processor has AVX2 (head of this file); `from` is 32 readable bytes, no alignment needed.
        Avx2(unsafe { _mm256_loadu_ps(from.as_ptr()) })
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; WIDTH]) {
        // SAFETY: the processor has AVX2 (head of this file); `to` is 32 writable bytes, no alignment needed.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), self.0) }
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        lanes!(_mm256_add_ps(self.0, other.0))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        lanes!(_mm256_sub_ps(self.0, other.0))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        lanes!(_mm256_mul_ps(self.0, other.0))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        lanes!(_mm256_div_ps(self.0, other.0))
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        lanes!(_mm256_fmadd_ps(self.0, factor.0, term.0))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        lanes!(_mm256_max_ps(self.0, other.0))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        lanes!(_mm256_min_ps(self.0, other.0))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        lanes!(_mm256_xor_ps(self.0, _mm256_set1_ps(-0.0)))
    }
    #[inline(always)]
    fn powers(self) -> (Self, Self) {
        // SAFETY: the processor has AVX2 (head of this file); registers only.
        let (half, rest) = unsafe {
            let n = _mm256_sub_epi32(_mm256_castps_si256(self.0), _mm256_castps_si256(_mm256_set1_ps(ROUND)));
            let half = _mm256_srai_epi32::<1>(n);
            let bias = _mm256_set1_epi32(127);
            let rest = _mm256_add_epi32(_mm256_sub_epi32(n, half), bias);
            (_mm256_slli_epi32::<23>(_mm256_add_epi32(half, bias)), _mm256_slli_epi32::<23>(rest))
        };
        (lanes!(_mm256_castsi256_ps(half)), lanes!(_mm256_castsi256_ps(rest)))
    }
    #[inline(always)]
    fn prefetch(address: *const u8) {
        // SAFETY: a prefetch of any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[inline(always)]
    fn bf16(from: &[u8; 16]) -> Self {
        // SAFETY: the processor has AVX2 (head of this file); `from` is 16 readable bytes, no alignment needed.
        Avx2(unsafe {
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        })
    }
    #[inline(always)]
    fn f16(from: &[u8; 16]) -> Self {
        // SAFETY: the processor has F16C (head of this file); `from` is 16 readable bytes, no alignment needed.
        Avx2(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())) })
    }
    #[inline(always)]
    fn e4m3_by_256(from: &[u8; 8]) -> Self {
        // SAFETY: the processor has AVX2 and F16C (head of this file); `from` is 8 readable bytes, no alignment needed.
        Avx2(unsafe {
            let words = _mm256_cvtepi8_epi16(_mm_loadl_epi64(from.as_ptr().cast()));
            _mm256_cvtph_ps(_mm256_castsi256_si128(e4m3_to_f16(words)))
        })
    }
    #[inline(always)]
    fn e4m3_pair_by_256(from: &[[u8; 8]; 2]) -> [Self; 2] {
        // SAFETY: the processor has AVX2 and F16C (head of this file); `from` is 16 readable bytes, no alignment needed.
        unsafe {
            let halves = e4m3_to_f16(_mm256_cvtepi8_epi16(_mm_loadu_si128(from.as_ptr().cast())));
            [
                Avx2(_mm256_cvtph_ps(_mm256_castsi256_si128(halves))),
                Avx2(_mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves))),
            ]
        }
    }

    #[inline(always)]
    fn sums([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: the processor has AVX (head of this file); `sums` is 16 writable bytes.
        unsafe {
            let all = _mm256_hadd_ps(_mm256_hadd_ps(a.0, b.0), _mm256_hadd_ps(c.0, d.0));
            let sum = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all));
            _mm_storeu_ps(sums.as_mut_ptr(), sum);
        }
        sums
    }
}

/// E4M3 bytes, sign-extended to words, as F16 bits of 1/256 of their value.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn e4m3_to_f16(words: __m256i) -> __m256i {
    // SAFETY: the caller's promise; registers only.
    unsafe {
        // A word is s...s s eeee mmm. Shifted by 7, sign, exponent and mantissa are in place; the copy of the sign in
        // the top exponent bit is masked off.
        let bits = _mm256_and_si256(_mm256_slli_epi16::<7>(words), _mm256_set1_epi16(0xbf80_u16 as i16));
        // Only NaN (all of eeee mmm set) carries into the top exponent bit, and becomes an F16 NaN by it.
        let carry = _mm256_add_epi16(bits, _mm256_set1_epi16(0x80));
        _mm256_or_si256(bits, _mm256_and_si256(carry, _mm256_set1_epi16(0x4000)))
    }
}
