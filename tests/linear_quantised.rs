//! Products with quantised weights: one order of sums on every path, and an error that follows from the activations.
//!
//! Owns: equality of bits between executors, numbers of rows, cuts and experts' groups; the bound against f64.
//! Not here: what the bytes mean (`formats`), other weights (`linear`), speed (`benches/linear.rs`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use hipfire::backend::cpu::activations::ERROR;
use hipfire::backend::cpu::lanes::force_portable;
use hipfire::backend::cpu::linear::{Rows, linear, linear_many, linear_range};
use hipfire::backend::cpu::moe::{MoeScratch, moe};
use hipfire::weights::experts::Expert;
use hipfire::weights::{Bytes, Format, Matrix};

/// Every quantised format.
fn quantised() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| format.is_quantised())
}

/// The choice of executor belongs to the process: whoever changes it holds this.
fn alone() -> MutexGuard<'static, ()> {
    static CHOICE: Mutex<()> = Mutex::new(());
    CHOICE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Random(u64);

impl Random {
    /// In (-1, 1).
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.unit()).collect()
    }
    fn matrix(&mut self, format: Format, rows: usize, cols: usize) -> Matrix {
        // One byte in front: rows have no alignment to rely on.
        let mut data = vec![0];
        (0..rows).for_each(|_| format.encode_row(&self.values(cols), &mut data));
        let data = Bytes::heap(data).slice(1..1 + rows * format.row_bytes(cols)).unwrap();
        Matrix { name: format!("{format} {rows}x{cols}"), format, rows, cols, data, scales: None }
    }
}

fn product(w: &Matrix, x: &[f32], rows: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; rows * w.rows];
    linear(w, x, rows, &mut y);
    y
}

fn assert_same(what: &str, a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{what}: element {i} is {a:e} and {b:e}");
    }
}

/// Widths with whole groups of eight blocks and without, and the narrowest.
fn widths(format: Format) -> [usize; 3] {
    if format.block() == 32 { [32, 160, 2336] } else { [256, 768, 2560] }
}

#[test]
fn a_product_is_off_by_no_more_than_its_activations_and_its_sums() {
    let mut random = Random(1);
    for format in quantised() {
        for cols in widths(format) {
            for rows in [1, 5] {
                let (w, mut x) = (random.matrix(format, 37, cols), random.values(rows * cols));
                x.iter_mut().step_by(97).for_each(|x| *x *= 30.0);
                let y = product(&w, &x, rows);
                for n in 0..w.rows {
                    let mut weights = vec![0.0; cols];
                    w.decode_row(n, &mut weights);
                    for r in 0..rows {
                        let (mut exact, mut error, mut sum) = (0.0, 0.0, 0.0);
                        let x = &x[r * cols..(r + 1) * cols];
                        for (x, w) in x.chunks(format.block()).zip(weights.chunks(format.block())) {
                            let greatest = x.iter().fold(0f32, |g, x| g.max(x.abs()));
                            for (x, w) in x.iter().zip(w) {
                                exact += f64::from(*x) * f64::from(*w);
                                sum += f64::from(greatest) * f64::from(w.abs());
                                error += f64::from(ERROR * greatest) * f64::from(w.abs());
                            }
                        }
                        // Roundings: a block's two sums, two factors and scale, and its place among all blocks; with an
                        // offset, both terms of a block may be larger than what is left of them.
                        let roundings = (cols / format.block() + 8) as f64 * f64::from(f32::EPSILON);
                        let terms = if matches!(
                            format,
                            Format::Q4_1 | Format::Q5_1 | Format::Q2K | Format::Q4K | Format::Q5K
                        ) {
                            4.0
                        } else {
                            1.0
                        };
                        let off = (f64::from(y[r * w.rows + n]) - exact).abs();
                        let most = error + terms * roundings * sum;
                        assert!(off <= most, "{} row {r} output {n}: {off:e} of at most {most:e}", w.name);
                    }
                }
            }
        }
    }
}

#[test]
fn the_bits_of_a_row_depend_neither_on_the_executor_nor_on_the_number_of_rows() {
    let _alone = alone();
    let mut random = Random(2);
    for format in quantised() {
        for cols in widths(format) {
            // Fewer outputs than a panel, one panel and its rest.
            for outputs in [3, 16, 29] {
                let (w, x) = (random.matrix(format, outputs, cols), random.values(11 * cols));
                let all = product(&w, &x, 11);
                assert!(all.iter().all(|y| y.is_finite()));
                force_portable(true);
                let portable = product(&w, &x, 11);
                force_portable(false);
                assert_same(&format!("{} portable", w.name), &portable, &all);
                for rows in 1..=9 {
                    let part = product(&w, &x[cols..], rows);
                    assert_same(&format!("{} {rows} rows", w.name), &part, &all[outputs..][..rows * outputs]);
                }
                force_portable(true);
                let portable = product(&w, &x, 2);
                force_portable(false);
                assert_same(&format!("{} portable, 2 rows", w.name), &portable, &all[..2 * outputs]);
            }
        }
    }
}

#[test]
fn cuts_threads_and_shared_preparation_change_no_bit() {
    let _alone = alone();
    let mut random = Random(3);
    // Large enough for several tasks, more rows than a panel keeps, two block lengths and plain floats together.
    let cols = 512;
    let matrices = [Format::Q4K, Format::Q8_0, Format::Bf16, Format::Q6K].map(|f| random.matrix(f, 200, cols));
    let rows = 300;
    let x = random.values(rows * cols);
    let mut many: Vec<Vec<f32>> = matrices.iter().map(|w| vec![0.0; rows * w.rows]).collect();
    let mut outputs: Vec<(&Matrix, &mut [f32])> =
        matrices.iter().zip(&mut many).map(|(w, y)| (w, y.as_mut_slice())).collect();
    linear_many(&mut outputs, &x, rows);
    for (w, y) in matrices.iter().zip(&many) {
        assert_same(&w.name, y, &product(w, &x, rows));
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_same(&w.name, y, &one.install(|| product(w, &x, rows)));
        for r in [0, 255, 256, 299] {
            assert_same(&w.name, &y[r * w.rows..(r + 1) * w.rows], &product(w, &x[r * cols..], 1));
        }
        // Rows by index, a range of outputs.
        let index = [299, 0, 7, 7, 256, 31];
        let mut part = vec![0.0; index.len() * 50];
        linear_range(w, 101..151, Rows::gathered(&x, cols, &index), &mut part, 50);
        for (i, r) in index.iter().enumerate() {
            let whole = &y[*r as usize * w.rows + 101..][..50];
            assert_same(&w.name, &part[i * 50..(i + 1) * 50], whole);
        }
    }
}

#[test]
fn experts_multiply_quantised_weights_as_linear_does() {
    let mut random = Random(4);
    let (hidden, inner, rows, top_k) = (256, 160, 23, 3);
    for (wide, narrow) in [(Format::Q4K, Format::Q5_0), (Format::Iq4Xs, Format::Iq4Nl), (Format::Q8_0, Format::Q8_0)] {
        let experts: Vec<Expert> = (0..5)
            .map(|_| Expert {
                gate: random.matrix(wide, inner, hidden),
                up: random.matrix(wide, inner, hidden),
                down: random.matrix(narrow, hidden, inner),
            })
            .collect();
        let x = random.values(rows * hidden);
        // Expert 0 takes every row (a panel's path), the others few or none.
        let ids: Vec<u32> = (0..rows).flat_map(|r| [0, 1 + (r % 3) as u32, if r == 5 { 4 } else { 3 }]).collect();
        let weights = random.values(rows * top_k);
        let mut y = vec![0.0; rows * hidden];
        moe(&experts, &x, rows, top_k, &ids, &weights, &mut y, &mut MoeScratch::default());
        for r in 0..rows {
            let mut expected = vec![0.0f32; hidden];
            for j in r * top_k..(r + 1) * top_k {
                let expert = &experts[ids[j] as usize];
                let x = &x[r * hidden..(r + 1) * hidden];
                let (mut gate, up) = (product(&expert.gate, x, 1), product(&expert.up, x, 1));
                hipfire::backend::cpu::activation::silu_multiply(&mut gate, &up);
                for (sum, down) in expected.iter_mut().zip(product(&expert.down, &gate, 1)) {
                    *sum = weights[j].mul_add(down, *sum);
                }
            }
            assert_same(&format!("{wide}, row {r}"), &y[r * hidden..(r + 1) * hidden], &expected);
        }
    }
}

#[test]
fn what_is_not_finite_stays_in_its_row_and_in_its_output() {
    let mut random = Random(5);
    for format in [Format::Q4_1, Format::Q6K] {
        let (w, mut x) = (random.matrix(format, 20, 512), random.values(6 * 512));
        x[3 * 512 + 300] = f32::INFINITY;
        let mut data = w.data.to_vec();
        // The last F16 of output 7's first block: an offset or a scale.
        let scale = if format == Format::Q4_1 { 2 } else { 208 };
        data[7 * format.row_bytes(512) + scale..][..2].copy_from_slice(&[0x00, 0x7e]);
        let w = Matrix { data: Bytes::heap(data), ..w };
        for (i, y) in product(&w, &x, 6).iter().enumerate() {
            assert_eq!(y.is_nan(), i / 20 == 3 || i % 20 == 7, "{format}: row {}, output {}", i / 20, i % 20);
        }
    }
}

#[test]
fn no_columns_and_no_rows_are_products_too() {
    let w = Matrix {
        name: "w".into(),
        format: Format::Q4_0,
        rows: 4,
        cols: 0,
        data: Bytes::heap(Vec::new()),
        scales: None,
    };
    assert_eq!(product(&w, &[], 2), [0.0; 8]);
    assert!(product(&Random(6).matrix(Format::Q4K, 3, 256), &[], 0).is_empty());
}
