//! What the machine can do at most, measured in the same run as what is compared with it.
//!
//! Owns: a multiply-add loop over registers, a sum over memory, and the fair timing of several candidates in turn.
#![cfg(target_arch = "x86_64")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use std::arch::x86_64::*;

const STEPS: usize = 1 << 18;
const CHAINS: usize = 12;
/// Multiply-adds (of one lane) in a call of [`multiply_adds`].
pub const MULTIPLY_ADDS: usize = STEPS * CHAINS * 8;

/// As many independent chains as the latency of the instruction asks for, nothing but registers.
#[target_feature(enable = "avx2,fma")]
pub fn multiply_adds(seed: f32) -> f32 {
    let (factor, term) = (_mm256_set1_ps(seed), _mm256_set1_ps(1.0 - seed));
    let mut chains = [_mm256_set1_ps(0.5); CHAINS];
    for _ in 0..STEPS {
        for chain in &mut chains {
            *chain = _mm256_fmadd_ps(*chain, factor, term);
        }
    }
    _mm256_cvtss_f32(chains.into_iter().fold(_mm256_setzero_ps(), |a, b| _mm256_add_ps(a, b)))
}

/// Adds up bytes as 32-bit words.
#[target_feature(enable = "avx2")]
pub fn sum(bytes: &[u8]) -> i32 {
    let mut sums = [_mm256_setzero_si256(); 4];
    for chunk in bytes.as_chunks::<128>().0 {
        for (sum, part) in sums.iter_mut().zip(chunk.as_chunks::<32>().0) {
            // SAFETY: `part` is 32 readable bytes.
            *sum = _mm256_add_epi32(*sum, unsafe { _mm256_loadu_si256(part.as_ptr().cast()) });
        }
    }
    let sum = sums.into_iter().fold(_mm256_setzero_si256(), |a, b| _mm256_add_epi32(a, b));
    _mm_cvtsi128_si32(_mm256_castsi256_si128(sum))
}

/// Whether this processor has what the ceilings are measured with.
pub fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// Reads `bytes` once, shared among the pool's threads.
pub fn read(bytes: &[u8], threads: usize) {
    let part = bytes.len().div_ceil(4 * threads).next_multiple_of(4096);
    // SAFETY: callers asked `available`.
    bytes.par_chunks(part).for_each(|part| _ = black_box(unsafe { sum(part) }));
}

/// Keeps every thread of the pool busy with multiply-adds: `threads * MULTIPLY_ADDS` of them.
pub fn multiply_adds_everywhere(threads: usize) {
    // SAFETY: callers asked `available`.
    let one = |_| _ = black_box(unsafe { multiply_adds(black_box(0.5)) });
    (0..threads).into_par_iter().with_max_len(1).for_each(one);
}

/// The best time of each of several candidates, run in turn until `budget` is over: whatever else the machine does
/// meets all of them.
pub fn best<const N: usize>(budget: Duration, mut candidates: [&mut dyn FnMut(); N]) -> [f64; N] {
    let start = Instant::now();
    let mut best = [f64::INFINITY; N];
    while start.elapsed() < budget {
        for (run, best) in candidates.iter_mut().zip(&mut best) {
            let once = Instant::now();
            run();
            *best = best.min(once.elapsed().as_secs_f64());
        }
    }
    best
}
