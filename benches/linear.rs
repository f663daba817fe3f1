//! Speed of matrix products against what the machine can do at most.
//!
//! Owns: two ceilings, measured in the same run (bytes read by a plain sum, multiply-adds that touch registers only),
//! and the share of them that `linear` reaches, printed before Criterion's own report.
//! Not here: correctness (`tests/linear.rs`).
//! Run with `cargo bench --bench linear`; `RAYON_NUM_THREADS` sets the threads.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use hipfire::backend::cpu::linear::linear;
use hipfire::weights::{Bytes, Format, Matrix};
use rayon::prelude::*;

/// An eight-lane multiply-add loop over registers and a sum over memory: the two ceilings.
#[cfg(target_arch = "x86_64")]
mod ceiling {
    use std::arch::x86_64::*;

    /// Multiply-adds of one call of [`multiply_adds`].
    pub const STEPS: usize = 1 << 20;
    const CHAINS: usize = 12;

    /// Returns the number of multiply-adds done (a lane each).
    #[target_feature(enable = "avx2,fma")]
    pub fn multiply_adds(seed: f32) -> (f32, usize) {
        let (factor, term) = (_mm256_set1_ps(seed), _mm256_set1_ps(1.0 - seed));
        let mut chains = [_mm256_set1_ps(0.5); CHAINS];
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(*chain, factor, term);
            }
        }
        let sum = chains.into_iter().fold(_mm256_setzero_ps(), |a, b| _mm256_add_ps(a, b));
        (_mm256_cvtss_f32(sum), STEPS * CHAINS * 8)
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
}

/// The best of several runs within `budget`.
fn best(budget: Duration, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < budget {
        let once = Instant::now();
        run();
        best = best.min(once.elapsed().as_secs_f64());
    }
    best
}

fn matrix(format: Format, rows: usize, cols: usize) -> Matrix {
    // Any bit pattern is as fast as another; 0x3c keeps F32, F16, BF16 and E4M3 finite and normal.
    let data = vec![0x3c; rows * format.row_bytes(cols)];
    Matrix { name: format!("{format}"), format, rows, cols, data: Bytes::heap(data), scales: None }
}

const BUDGET: Duration = Duration::from_millis(400);

#[cfg(target_arch = "x86_64")]
fn report() {
    if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
        println!("no AVX2 and FMA here: the ceilings are not measured");
        return;
    }
    let threads = rayon::current_num_threads();
    let mut done = 0;
    let peak_s = best(BUDGET, || {
        // SAFETY: AVX2 and FMA were detected above.
        done =
            (0..threads).into_par_iter().map(|_| unsafe { black_box(ceiling::multiply_adds(black_box(0.5))) }.1).sum();
    });
    let peak = done as f64 / peak_s;
    println!("multiply-add ceiling, {threads} threads: {:.1} GMAC/s", peak / 1e9);
    // Larger than the last cache, so that weights come from memory.
    let (rows, cols) = (40_000, 2_560);
    for format in [Format::Bf16, Format::F8E4m3, Format::F16, Format::F32] {
        let w = matrix(format, rows / format.row_bytes(1), cols);
        let bytes = w.data.len() as f64;
        let read_s = best(BUDGET, || {
            let part = w.data.len().div_ceil(4 * threads).next_multiple_of(4096);
            // SAFETY: AVX2 was detected above.
            w.data.par_chunks(part).for_each(|part| drop(black_box(unsafe { ceiling::sum(part) })));
        });
        print!("{format:>8}: memory {:6.2} GB/s;", bytes / read_s / 1e9);
        for batch in [1, 2, 4, 8] {
            let (x, mut y) = (vec![0.5; batch * cols], vec![0.0; batch * w.rows]);
            let s = best(BUDGET, || linear(&w, &x, batch, &mut y));
            print!("  {batch} rows {:3.0} %", 100.0 * read_s / s);
        }
        for batch in [10, 64, 512] {
            let w = matrix(format, 2_560, cols);
            let (x, mut y) = (vec![0.5; batch * cols], vec![0.0; batch * w.rows]);
            let s = best(BUDGET, || linear(&w, &x, batch, &mut y));
            print!("  {batch} rows {:3.0} % of peak", 100.0 * (batch * w.rows * cols) as f64 / s / peak);
        }
        println!();
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn report() {}

fn cached(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("linear");
    group.measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200)).sample_size(20);
    // Matrices of the embedded model's size, where the cost of a call counts.
    for (rows, cols) in [(32, 256), (256, 256), (256, 512), (512, 256), (4096, 256)] {
        let w = matrix(Format::Bf16, rows, cols);
        let (x, mut y) = (vec![0.5; cols], vec![0.0; rows]);
        group.throughput(Throughput::Bytes(w.data.len() as u64));
        group.bench_function(BenchmarkId::new("one row", format!("{rows}x{cols}")), |bencher| {
            bencher.iter(|| linear(&w, black_box(&x), 1, &mut y));
        });
    }
    group.finish();
}

fn main() {
    // The pool's own threads call, as the engine's do: a call from outside pays for the hand-over.
    rayon::scope(|_| {
        report();
        let mut criterion = Criterion::default().configure_from_args();
        cached(&mut criterion);
        criterion.final_summary();
    });
}
