//! Speed of matrix products against what the machine can do at most.
//!
//! Owns: two ceilings, measured in the same run (bytes read by a plain sum, multiply-adds that touch registers only),
//! and the share of them that `linear` reaches, printed before Criterion's own report.
//! Not here: correctness (`tests/linear.rs`).
//! Run with `cargo bench --bench linear`, or `-- Q4_K BF16` for some formats only; `RAYON_NUM_THREADS` sets the threads.

#[cfg(target_arch = "x86_64")]
mod ceiling;

use std::hint::black_box;
use std::time::Duration;

#[cfg(target_arch = "x86_64")]
use ceiling::best;
use criterion::{BenchmarkId, Criterion, Throughput};
use hipfire::backend::cpu::linear::linear;
use hipfire::weights::{Bytes, Format, Matrix};

fn matrix(format: Format, rows: usize, cols: usize) -> Matrix {
    // Any bit pattern is as fast as another; 0x3c keeps every float and every scale finite and normal.
    let data = vec![0x3c; rows * format.row_bytes(cols)];
    Matrix { name: format!("{format}"), format, rows, cols, data: Bytes::heap(data), scales: None }
}

const BUDGET: Duration = Duration::from_millis(300);

/// Prints, for every format, one row against the bandwidth of a plain sum over the same bytes, and several rows
/// against multiply-adds on registers.
#[cfg(target_arch = "x86_64")]
fn report() {
    if !ceiling::available() {
        println!("no AVX2 and FMA here: the ceilings are not measured");
        return;
    }
    let (threads, cols) = (rayon::current_num_threads(), 2_560);
    println!("{threads} threads, weights of {cols} columns; one run alternates product and ceiling");
    let named: Vec<String> = std::env::args().collect();
    let wanted = |format: &Format| named.contains(&format.to_string());
    let all = !Format::ALL.iter().any(wanted);
    for format in Format::ALL.into_iter().filter(|format| *format != Format::I64 && (all || wanted(format))) {
        // Larger than the last cache, so that weights come from memory.
        let w = matrix(format, 100_000_000 / format.row_bytes(cols), cols);
        let mut sum = || ceiling::read(&w.data, threads);
        for rows in [1, 2, 4, 8] {
            let (x, mut y) = (vec![0.5; rows * cols], vec![0.0; rows * w.rows]);
            let [read, product] = best(BUDGET, [&mut sum, &mut || linear(&w, &x, rows, &mut y)]);
            let speed = w.data.len() as f64 / read / 1e9;
            println!("{format:>8} {rows:3} rows: {:4.0} % of {speed:.1} GB/s", 100.0 * read / product);
        }
        let w = matrix(format, 2_560, cols);
        let mut peak = || ceiling::multiply_adds_everywhere(threads);
        for rows in [16, 64, 512] {
            let (x, mut y) = (vec![0.5; rows * cols], vec![0.0; rows * w.rows]);
            let [ceiling, product] = best(BUDGET, [&mut peak, &mut || linear(&w, &x, rows, &mut y)]);
            let ceiling = (threads * ceiling::MULTIPLY_ADDS) as f64 / ceiling;
            let speed = (rows * w.rows * cols) as f64 / product;
            println!("{format:>8} {rows:3} rows: {:4.0} % of {:.1} GMAC/s", 100.0 * speed / ceiling, ceiling / 1e9);
        }
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
