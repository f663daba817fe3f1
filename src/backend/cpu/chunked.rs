//! The gated delta rule of one value head in chunks of 64 rows (spec 2.3): matrix products instead of a recurrence.
//!
//! Owns: the chunked form, its small matrix products and its triangular solve.
//! Always true: equal to the recurrence within rounding (class *rounding*; the tests derive the bound); bits depend on
//! where chunks begin.
//! Not here: the recurrence (`delta`).

use super::delta::{HeadRows, Strided, row_block};
use super::target::multiversioned;

/// Rows of a chunk: spec 2.3.
pub const CHUNK: usize = 64;

/// Floats of scratch that [`chunked`] needs.
pub fn chunk_scratch(dk: usize, dv: usize) -> usize {
    CHUNK * (dk + 2 * CHUNK + dv)
}

/// As [`recur`], in chunks of [`CHUNK`] rows.
///
/// Per chunk, with G the running sum of g inside it and D_ij = e^(G_i − G_j) for j ≤ i:
/// `(I + strictly_lower(β K Kᵀ ⊙ D)) V' = β (V − e^G K S)`, `O = e^G Q S + (Q Kᵀ ⊙ D) V'`,
/// `S = e^G_last S + Kᵀ (e^(G_last − G) V')`. (The spec solves for U and W and takes V' = U − W S: the same system,
/// since both right-hand sides share the matrix.)
pub fn chunked(state: &mut [f32], dk: usize, head: &HeadRows<'_>, out: &mut [f32], scratch: &mut [f32]) {
    let dv = state.len() / dk;
    let mut done = 0;
    while done < head.rows {
        let chunk = HeadRows { rows: (head.rows - done).min(CHUNK), ..head.skip(done) };
        one_chunk(state, dk, &chunk, &mut out[done * dv..(done + chunk.rows) * dv], scratch);
        done += chunk.rows;
    }
}

fn one_chunk(state: &mut [f32], dk: usize, head: &HeadRows<'_>, out: &mut [f32], scratch: &mut [f32]) {
    let (n, dv) = (head.rows, state.len() / dk);
    let (keys_t, rest) = scratch.split_at_mut(dk * n);
    let (among_keys, rest) = rest.split_at_mut(n * n);
    let (to_keys, rest) = rest.split_at_mut(n * n);
    let values = &mut rest[..n * dv];
    let mut sum = [0f32; CHUNK];
    let mut total = 0f32;
    for r in 0..n {
        total += head.g.at(r);
        sum[r] = total;
        for (i, &k) in head.k.row(r, dk).iter().enumerate() {
            keys_t[i * n + r] = k;
        }
    }

    values.fill(0.0);
    accumulate(&head.k.by_rows(), state, dv, values, dk);
    for (r, row) in values.chunks_exact_mut(dv).enumerate() {
        let (grown, beta) = (sum[r].exp(), head.beta.at(r));
        for (value, &v) in row.iter_mut().zip(head.v.row(r, dv)) {
            *value = (-grown).mul_add(*value, v) * beta;
        }
    }
    among_keys.fill(0.0);
    accumulate(&head.k.by_rows(), keys_t, n, among_keys, dk);
    to_keys.fill(0.0);
    accumulate(&head.q.by_rows(), keys_t, n, to_keys, dk);
    for i in 0..n {
        let beta = head.beta.at(i);
        for j in 0..n {
            let decay = if j <= i { (sum[i] - sum[j]).exp() } else { 0.0 };
            among_keys[i * n + j] *= beta * decay;
            to_keys[i * n + j] *= decay;
        }
    }
    substitute(among_keys, values, n, dv);

    out.fill(0.0);
    accumulate(&head.q.by_rows(), state, dv, out, dk);
    for (r, row) in out.chunks_exact_mut(dv).enumerate() {
        let grown = sum[r].exp();
        row.iter_mut().for_each(|o| *o *= grown);
    }
    accumulate(&Elements { data: to_keys, down: n, across: 1 }, values, dv, out, n);

    for (r, row) in values.chunks_exact_mut(dv).enumerate() {
        let left = (total - sum[r]).exp();
        row.iter_mut().for_each(|v| *v *= left);
    }
    let shrink = total.exp();
    state.iter_mut().for_each(|s| *s *= shrink);
    accumulate(&head.k.by_columns(), values, dv, state, n);
}

/// Left factor of a product: element (i, k) is `data[i * down + k * across]`.
struct Elements<'a> {
    data: &'a [f32],
    down: usize,
    across: usize,
}

impl<'a> Strided<'a> {
    fn by_rows(&self) -> Elements<'a> {
        Elements { data: self.data, down: self.stride, across: 1 }
    }
    fn by_columns(&self) -> Elements<'a> {
        Elements { data: self.data, down: 1, across: self.stride }
    }
}

/// Rows of the right factor that one packed piece of the left factor meets.
const DEPTH: usize = 64;

multiversioned! {
    // `c += a · b`; b is `[depth, width]`, c is `[_, width]`. Tiles of 4 x 16 keep 8 vectors of sums in registers; the
    // left factor is packed so that the inner loop reads both sides in order and checks no bounds.
    fn accumulate(a: &Elements<'_>, b: &[f32], width: usize, c: &mut [f32], depth: usize) {
        for first in (0..depth).step_by(DEPTH) {
            let b = &b[first * width..(first + DEPTH).min(depth) * width];
            let mut row = 0;
            for rows in c.chunks_mut(4 * width) {
                if rows.len() == 4 * width {
                    strip::<4>(a, first, row, b, width, rows);
                } else {
                    for (r, single) in rows.chunks_exact_mut(width).enumerate() {
                        strip::<1>(a, first, row + r, b, width, single);
                    }
                }
                row += 4;
            }
        }
    }
}

#[inline(always)]
fn strip<const M: usize>(a: &Elements<'_>, first: usize, row: usize, b: &[f32], width: usize, c: &mut [f32]) {
    let mut packed = [[0f32; M]; DEPTH];
    for (k, packed) in packed.iter_mut().enumerate().take(b.len() / width) {
        *packed = std::array::from_fn(|m| a.data[(row + m) * a.down + (first + k) * a.across]);
    }
    let mut column = 0;
    while column + 16 <= width {
        tile::<M, 16>(&packed, b, width, c, column);
        column += 16;
    }
    while column < width {
        tile::<M, 1>(&packed, b, width, c, column);
        column += 1;
    }
}

#[inline(always)]
fn tile<const M: usize, const N: usize>(
    packed: &[[f32; M]; DEPTH],
    b: &[f32],
    width: usize,
    c: &mut [f32],
    column: usize,
) {
    let mut sum = [[0f32; N]; M];
    for (m, sums) in sum.iter_mut().enumerate() {
        sums.copy_from_slice(&c[m * width + column..][..N]);
    }
    for (left, right) in packed.iter().zip(b.chunks_exact(width)) {
        let right: &[f32; N] = row_block(right, column);
        for m in 0..M {
            for n in 0..N {
                sum[m][n] = left[m].mul_add(right[n], sum[m][n]);
            }
        }
    }
    for (m, sums) in sum.iter().enumerate() {
        c[m * width + column..][..N].copy_from_slice(sums);
    }
}

multiversioned! {
    // Solves (I + strictly_lower(a)) x = x in place, row by row; a is `[n, n]`, x is `[n, width]`.
    fn substitute(a: &[f32], x: &mut [f32], n: usize, width: usize) {
        for i in 1..n {
            let (above, current) = x.split_at_mut(i * width);
            let current = &mut current[..width];
            for (row, &factor) in above.chunks_exact(width).zip(&a[i * n..i * n + i]) {
                for (value, &other) in current.iter_mut().zip(row) {
                    *value = (-factor).mul_add(other, *value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::delta::{fold, recur};
    use super::*;

    struct Case {
        dk: usize,
        dv: usize,
        rows: usize,
        q: Vec<f32>,
        k: Vec<f32>,
        v: Vec<f32>,
        g: Vec<f32>,
        beta: Vec<f32>,
        state: Vec<f32>,
    }

    fn noise(seed: u64, count: usize) -> Vec<f32> {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (0..count)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            })
            .collect()
    }

    fn unit_rows(mut values: Vec<f32>, width: usize) -> Vec<f32> {
        for row in values.chunks_exact_mut(width) {
            let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            row.iter_mut().for_each(|x| *x /= norm);
        }
        values
    }

    impl Case {
        fn new(dk: usize, dv: usize, rows: usize, start: f32) -> Case {
            Case {
                dk,
                dv,
                rows,
                q: unit_rows(noise(1, rows * dk), dk),
                k: unit_rows(noise(2, rows * dk), dk),
                v: noise(3, rows * dv),
                g: noise(4, rows).iter().map(|x| -0.5 * (x + 1.0)).collect(),
                beta: noise(5, rows).iter().map(|x| 0.5 * (x + 1.0)).collect(),
                state: noise(6, dk * dv).iter().map(|x| x * start).collect(),
            }
        }
        fn head(&self) -> HeadRows<'_> {
            HeadRows {
                rows: self.rows,
                q: Strided::new(&self.q, 0, self.dk),
                k: Strided::new(&self.k, 0, self.dk),
                v: Strided::new(&self.v, 0, self.dv),
                g: Strided::new(&self.g, 0, 1),
                beta: Strided::new(&self.beta, 0, 1),
            }
        }
        /// The recurrence of the spec in f64.
        fn exact(&self) -> (Vec<f64>, Vec<f64>) {
            let (dk, dv) = (self.dk, self.dv);
            let mut s: Vec<f64> = self.state.iter().map(|&x| x as f64).collect();
            let mut out = Vec::new();
            for r in 0..self.rows {
                let decay = (self.g[r] as f64).exp();
                s.iter_mut().for_each(|x| *x *= decay);
                for c in 0..dv {
                    let read: f64 = (0..dk).map(|i| s[i * dv + c] * self.k[r * dk + i] as f64).sum();
                    let d = (self.v[r * dv + c] as f64 - read) * self.beta[r] as f64;
                    (0..dk).for_each(|i| s[i * dv + c] += self.k[r * dk + i] as f64 * d);
                    out.push((0..dk).map(|i| s[i * dv + c] * self.q[r * dk + i] as f64).sum());
                }
            }
            (s, out)
        }
        fn run(&self, chunks: bool) -> (Vec<f32>, Vec<f32>) {
            let (mut s, mut out) = (self.state.clone(), vec![f32::NAN; self.rows * self.dv]);
            if chunks {
                let mut scratch = vec![f32::NAN; chunk_scratch(self.dk, self.dv)];
                chunked(&mut s, self.dk, &self.head(), &mut out, &mut scratch);
            } else {
                recur(&mut s, self.dk, &self.head(), &mut out);
            }
            (s, out)
        }
    }

    fn worst(a: &[f32], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(&x, &y)| (x as f64 - y).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn both_forms_follow_the_recurrence_for_every_length_and_initial_state() {
        for (dk, dv) in [(16, 16), (128, 128), (24, 40), (64, 7)] {
            for rows in [1, 2, 63, 64, 65, 130] {
                for start in [0.0, 1.0] {
                    let case = Case::new(dk, dv, rows, start);
                    let (state, out) = case.exact();
                    // |S| and |v| are of order 1, keys are unit vectors: each row adds at most (dk + 4) roundings of
                    // values bounded by the state's row norm, and decay keeps a sum of past errors below the rows'
                    // number; the chunked form sums CHUNK more terms.
                    let size = (dk as f64).sqrt() + (rows as f64).sqrt();
                    let bound = f32::EPSILON as f64 * size * (dk + CHUNK + 4) as f64;
                    for chunks in [false, true] {
                        let (s, o) = case.run(chunks);
                        assert!(worst(&s, &state) <= bound, "state {dk}x{dv} rows {rows} chunks {chunks}");
                        assert!(worst(&o, &out) <= bound, "output {dk}x{dv} rows {rows} chunks {chunks}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_recurrence_gives_the_same_bits_however_rows_are_split() {
        let case = Case::new(32, 40, 9, 1.0);
        let (whole_state, whole) = case.run(false);
        let (mut state, mut out) = (case.state.clone(), vec![0.0; 9 * 40]);
        for r in 0..9 {
            let row = HeadRows { rows: 1, ..case.head().skip(r) };
            recur(&mut state, 32, &row, &mut out[r * 40..(r + 1) * 40]);
        }
        assert_eq!(state, whole_state);
        assert_eq!(out, whole);
        let mut folded = case.state.clone();
        fold(&mut folded, 32, &case.head());
        assert_eq!(folded, whole_state);
    }
}
