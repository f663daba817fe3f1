//! Experts: a token's bits alone and in any batch, and bounds against f64.

use hipfire::backend::cpu::activation::silu_multiply;
use hipfire::backend::cpu::moe::{MoeScratch, moe};
use hipfire::weights::Expert;
use hipfire::weights::{Format, Matrix};

use super::{FORMATS, Random, U, alone, assert_same, ordered_dot, same_on_both, value};

struct Mixture {
    experts: Vec<Expert>,
    top_k: usize,
    hidden: usize,
    x: Vec<f32>,
    ids: Vec<u32>,
    weights: Vec<f32>,
}

fn mixture(format: Format, count: usize, hidden: usize, inner: usize, top_k: usize, rows: usize) -> Mixture {
    let mut random = Random(7);
    let experts = (0..count)
        .map(|e| {
            // The last one is wider, as a shared expert may be.
            let inner = if e + 1 == count { inner + 13 } else { inner };
            Expert {
                gate: random.matrix(format, inner, hidden),
                up: random.matrix(format, inner, hidden),
                down: random.matrix(format, hidden, inner),
            }
        })
        .collect();
    let ids = (0..rows).flat_map(|_| {
        // Neither sorted nor spread evenly: the first experts are chosen more often.
        let mut list: Vec<u32> = Vec::new();
        while list.len() < top_k {
            let id = (random.bits() % count as u64).min(random.bits() % count as u64) as u32;
            if !list.contains(&id) {
                list.push(id);
            }
        }
        list
    });
    let ids = ids.collect();
    Mixture { experts, top_k, hidden, x: random.values(rows * hidden), ids, weights: random.values(rows * top_k) }
}

impl Mixture {
    fn run(&self, rows: std::ops::Range<usize>, scratch: &mut MoeScratch) -> Vec<f32> {
        let (wide, pairs) = (rows.start * self.hidden, rows.start * self.top_k);
        let mut y = vec![f32::NAN; rows.len() * self.hidden];
        let (ids, weights) = (&self.ids[pairs..], &self.weights[pairs..]);
        moe(&self.experts, &self.x[wide..], rows.len(), self.top_k, ids, weights, &mut y, scratch);
        y
    }
}

#[test]
fn experts_have_the_same_bits_for_a_token_alone_and_in_any_batch() {
    for format in FORMATS {
        let m = mixture(format, 16, 260, 70, 4, 90);
        let mut scratch = MoeScratch::default();
        let guard = alone();
        let single: Vec<f32> = (0..90).flat_map(|r| m.run(r..r + 1, &mut scratch)).collect();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for rows in [0..2, 3..11, 1..90, 0..90] {
                let mut scratch = MoeScratch::new(rows.len(), 4, 16, 83, 260);
                let y = pool.install(|| m.run(rows.clone(), &mut scratch));
                assert_same(&format!("{format} rows {rows:?}"), &y, &single[rows.start * 260..rows.end * 260]);
            }
        }
        drop(guard);
        same_on_both("experts", || m.run(0..9, &mut scratch));
    }
}

#[test]
fn experts_are_added_in_the_order_of_the_tokens_own_list() {
    let _alone = alone();
    for format in FORMATS {
        let m = mixture(format, 6, 100, 40, 3, 7);
        let y = m.run(0..7, &mut MoeScratch::default());
        let row = |w: &Matrix, n: usize| -> Vec<f32> { (0..w.cols).map(|k| value(w, n, k)).collect() };
        let times = |w: &Matrix, x: &[f32]| -> Vec<f32> { (0..w.rows).map(|n| ordered_dot(&row(w, n), x)).collect() };
        for (r, y) in y.chunks(m.hidden).enumerate() {
            let x = &m.x[r * m.hidden..(r + 1) * m.hidden];
            let mut expected = vec![0f32; m.hidden];
            for j in r * m.top_k..(r + 1) * m.top_k {
                let expert = &m.experts[m.ids[j] as usize];
                let mut activated = times(&expert.gate, x);
                silu_multiply(&mut activated, &times(&expert.up, x));
                for (sum, output) in expected.iter_mut().zip(times(&expert.down, &activated)) {
                    *sum = output.mul_add(m.weights[j], *sum);
                }
            }
            assert_same(&format!("{format} row {r}"), y, &expected);
        }
    }
}

#[test]
fn experts_stay_within_the_bound_of_their_sums() {
    let _alone = alone();
    for format in FORMATS {
        let m = mixture(format, 6, 100, 40, 3, 7);
        let y = m.run(0..7, &mut MoeScratch::default());
        for (r, y) in y.chunks(m.hidden).enumerate() {
            let x = &m.x[r * m.hidden..(r + 1) * m.hidden];
            for (i, y) in y.iter().enumerate() {
                let (mut exact, mut bound) = (0.0, 0.0);
                for j in r * m.top_k..(r + 1) * m.top_k {
                    let expert = &m.experts[m.ids[j] as usize];
                    let (value, error) = exact_output(expert, x, i);
                    let weight = f64::from(m.weights[j]);
                    exact += weight * value;
                    // Each of the fused additions that follow rounds a partial sum, at most all terms together.
                    bound += weight.abs() * (error + m.top_k as f64 * U * (value.abs() + error));
                }
                let error = (f64::from(*y) - exact).abs();
                assert!(error <= 1.01 * bound, "{format} row {r} output {i}: error {error:e}, bound {bound:e}");
            }
        }
    }
}

/// Output `i` of one expert in f64, and how far f32 may be from it: errors of both projections carried through the
/// activation (silu changes by at most 1.1 times its argument's change) and the last sum.
fn exact_output(expert: &Expert, x: &[f32], i: usize) -> (f64, f64) {
    let dot = |w: &Matrix, n: usize| {
        let terms = x.iter().enumerate().map(|(k, x)| f64::from(value(w, n, k)) * f64::from(*x));
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
        (sum, (w.cols.div_ceil(8) + 3) as f64 * U * size)
    };
    let inner = expert.down.cols;
    let (mut sum, mut size, mut error) = (0.0, 0.0, 0.0);
    for n in 0..inner {
        let ((g, g_error), (u, u_error)) = (dot(&expert.gate, n), dot(&expert.up, n));
        let silu = g / (1.0 + (-g).exp());
        let h = silu * u;
        let h_error = 1.1 * g_error * (u.abs() + u_error) + silu.abs() * u_error + 7.0 * U * h.abs();
        let w = f64::from(value(&expert.down, i, n));
        sum += w * h;
        size += (w * h).abs() + w.abs() * h_error;
        error += w.abs() * h_error;
    }
    (sum, error + (inner.div_ceil(8) + 3) as f64 * U * size)
}
