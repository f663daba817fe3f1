//! Products with stored weights: bits by definition, in any batch, on any number of threads.

use hipfire::backend::cpu::linear::{Rows, linear, linear_many, linear_range};
use hipfire::weights::{Bytes, Format, Matrix};

use super::{FORMATS, Random, U, alone, assert_same, ordered_dot, same_on_both, value};

fn product_by_definition(w: &Matrix, x: &[f32], rows: usize) -> Vec<f32> {
    let decoded: Vec<Vec<f32>> = (0..w.rows).map(|n| (0..w.cols).map(|k| value(w, n, k)).collect()).collect();
    let row = |r: usize| &x[r * w.cols..(r + 1) * w.cols];
    (0..rows).flat_map(|r| decoded.iter().map(move |w| ordered_dot(row(r), w))).collect()
}

fn run_linear(w: &Matrix, x: &[f32], rows: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; rows * w.rows];
    linear(w, x, rows, &mut y);
    y
}

#[test]
fn every_shape_and_format_has_the_bits_of_the_promised_order() {
    let mut random = Random(1);
    for format in FORMATS {
        for k in (1..=70).chain([127, 129, 255, 511, 513, 1030]) {
            let n = 1 + k % 20;
            let w = random.matrix(format, n, k);
            let x = random.values(9 * k);
            for rows in 1..=9 {
                let expected = product_by_definition(&w, &x, rows);
                let y = same_on_both(&w.name, || run_linear(&w, &x, rows));
                assert_same(&format!("{} with {rows} rows", w.name), &y, &expected);
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_batch_and_on_every_number_of_threads() {
    let _alone = alone();
    let mut random = Random(2);
    for format in FORMATS {
        // Wide enough for several panels of columns, long enough for several tasks, an odd rest in both.
        let w = random.matrix(format, 401, 2560 + 5);
        let x = random.values(300 * w.cols);
        let single: Vec<f32> = x.chunks(w.cols).flat_map(|x| run_linear(&w, x, 1)).collect();
        assert_same(&w.name, &single[..w.rows], &product_by_definition(&w, &x, 1));
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for rows in [2, 3, 4, 5, 8, 64, 65, 300] {
                let y = pool.install(|| run_linear(&w, &x, rows));
                assert_same(&format!("{}, {rows} rows, {threads} threads", w.name), &y, &single[..rows * w.rows]);
            }
        }
    }
}

#[test]
fn ranges_and_several_matrices_at_once_are_parts_of_the_whole() {
    let _alone = alone();
    let mut random = Random(3);
    let k = 300;
    let matrices: Vec<Matrix> = FORMATS.iter().map(|f| random.matrix(*f, 150, k)).collect();
    let x = random.values(260 * k);
    for rows in [1, 4, 7, 260] {
        let whole: Vec<Vec<f32>> = matrices.iter().map(|w| run_linear(w, &x, rows)).collect();
        let mut together: Vec<Vec<f32>> = whole.iter().map(|y| vec![f32::NAN; y.len()]).collect();
        let mut outputs: Vec<_> = matrices.iter().zip(together.iter_mut().map(|y| &mut y[..])).collect();
        linear_many(&mut outputs, &x, rows);
        assert_eq!(whole, together);
        for (w, whole) in matrices.iter().zip(&whole) {
            let (range, stride) = (101..148, 50);
            let mut part = vec![7.0; rows * stride];
            linear_range(w, range.clone(), Rows::consecutive(&x, k, rows), &mut part, stride);
            for (part, whole) in part.chunks(stride).zip(whole.chunks(w.rows)) {
                assert_same(&w.name, &part[..47], &whole[range.clone()]);
                assert_eq!(part[47..], [7.0; 3], "beyond the range nothing is written");
            }
        }
    }
}

#[test]
fn products_stay_within_the_bound_of_their_length() {
    let _alone = alone();
    let mut random = Random(4);
    for format in FORMATS {
        for k in [7, 255, 2560] {
            let w = random.matrix(format, 13, k);
            let x = random.values(6 * k);
            let y = run_linear(&w, &x, 6);
            for (r, n) in (0..6).flat_map(|r| (0..13).map(move |n| (r, n))) {
                let terms = (0..k).map(|c| f64::from(value(&w, n, c)) * f64::from(x[r * k + c]));
                let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                // A term passes at most ceil(k / 8) fused steps and three additions.
                let bound = (k.div_ceil(8) + 3) as f64 * 1.01 * U * size;
                let error = (f64::from(y[r * 13 + n]) - exact).abs();
                assert!(error <= bound, "{}: error {error:e}, bound {bound:e}", w.name);
            }
        }
    }
}

#[test]
fn all_e4m3_bytes_decode_exactly_in_every_position() {
    let data: Vec<u8> = (0..=255).collect();
    for k in [1, 8, 13, 16, 37, 256] {
        let rows = 256 / k;
        let data = Bytes::heap(data[..rows * k].to_vec());
        let w = Matrix { name: "bytes".into(), format: Format::F8E4m3, rows, cols: k, data, scales: None };
        for batch in [1, 6] {
            for c in 0..k {
                // The other columns meet a zero, unless they are NaN, which a zero does not hide.
                let mut x = vec![0.0; batch * k];
                x.iter_mut().skip(c).step_by(k).for_each(|x| *x = 1.0);
                let y = same_on_both("bytes", || run_linear(&w, &x, batch));
                for (n, y) in y.iter().enumerate().map(|(i, y)| (i % rows, y)) {
                    let nan = (0..k).any(|c| value(&w, n, c).is_nan());
                    assert!(*y == value(&w, n, c) || nan && y.is_nan(), "row {n} column {c} of {k}: {y}");
                }
            }
        }
    }
}

#[test]
fn all_half_precision_bit_patterns_decode_exactly() {
    let data: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for format in [Format::F16, Format::Bf16] {
        let data = Bytes::heap(data.clone());
        let w = Matrix { name: format!("{format}"), format, rows: 1 << 16, cols: 1, data, scales: None };
        for batch in [1, 6, 9] {
            let y = same_on_both("patterns", || run_linear(&w, &vec![1.0; batch], batch));
            let expected: Vec<f32> = (0..w.rows).map(|n| value(&w, n, 0) + 0.0).collect();
            assert_same(&w.name, &y, &expected.repeat(batch));
        }
    }
}
