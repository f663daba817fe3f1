//! The gated delta rule of one value head (spec 2.3), row by row.
//!
//! Owns: how a head's rows lie inside a step's, the recurrence on plain slices.
//! Always true: the same bits however the rows are split over calls (class *ordered*).
//! Not here: the chunked form (`chunked`), convolution, gates and norms around it (`gdn`).

use super::target::multiversioned;

/// Rows of one head inside wider rows: row r is `data[r * stride..][..width]`.
#[derive(Clone, Copy)]
pub struct Strided<'a> {
    /// The first row starts here.
    pub data: &'a [f32],
    /// From one row to the next.
    pub stride: usize,
}

impl<'a> Strided<'a> {
    /// Columns from `column` on of rows `stride` wide.
    pub fn new(data: &'a [f32], column: usize, stride: usize) -> Strided<'a> {
        Strided { data: data.get(column..).unwrap_or(&[]), stride }
    }
    /// Row `r`.
    #[inline(always)]
    pub(super) fn row(&self, r: usize, width: usize) -> &'a [f32] {
        &self.data[r * self.stride..][..width]
    }
    /// The single value of row `r`.
    #[inline(always)]
    pub(super) fn at(&self, r: usize) -> f32 {
        self.data[r * self.stride]
    }
    fn skip(&self, rows: usize) -> Strided<'a> {
        Strided { data: &self.data[(rows * self.stride).min(self.data.len())..], stride: self.stride }
    }
}

/// What one head does with `rows` tokens. Queries and keys are normalised, queries scaled.
#[derive(Clone, Copy)]
pub struct HeadRows<'a> {
    /// Number of tokens.
    pub rows: usize,
    /// `[rows, dk]`; not read where no output is wanted.
    pub q: Strided<'a>,
    /// `[rows, dk]`
    pub k: Strided<'a>,
    /// `[rows, dv]`
    pub v: Strided<'a>,
    /// g, the logarithm of the decay, `[rows]`.
    pub g: Strided<'a>,
    /// β, `[rows]`.
    pub beta: Strided<'a>,
}

impl HeadRows<'_> {
    /// Without the first `rows` rows.
    pub(super) fn skip(&self, rows: usize) -> Self {
        HeadRows {
            rows: self.rows - rows,
            q: self.q.skip(rows),
            k: self.k.skip(rows),
            v: self.v.skip(rows),
            g: self.g.skip(rows),
            beta: self.beta.skip(rows),
        }
    }
}

/// Which results of a recurrence are wanted besides the new state.
#[derive(Clone, Copy, PartialEq)]
enum Want {
    State,
    Output,
}

/// Applies rows to `state` `[dk, dv]` and writes `out` `[rows, dv]`:
/// `S = e^g S; d = (v − Sᵀk) β; S = S + k dᵀ; o = Sᵀq`.
pub fn recur(state: &mut [f32], dk: usize, head: &HeadRows<'_>, out: &mut [f32]) {
    blocks(state, dk, head, out, Want::Output);
}

/// Applies rows to `state` without an output: folds pending rows in.
pub fn fold(state: &mut [f32], dk: usize, head: &HeadRows<'_>) {
    blocks(state, dk, head, &mut [], Want::State);
}

multiversioned! {
    // Columns of the state do not meet in the recurrence, so a block of 32 columns (dk · 128 B: in the first-level
    // cache) takes all rows before the next block starts.
    fn blocks(state: &mut [f32], dk: usize, head: &HeadRows<'_>, out: &mut [f32], want: Want) {
        let dv = state.len() / dk;
        let mut column = 0;
        while column + 32 <= dv {
            block::<32>(state, dk, dv, column, head, out, want);
            column += 32;
        }
        while column + 8 <= dv {
            block::<8>(state, dk, dv, column, head, out, want);
            column += 8;
        }
        while column < dv {
            block::<1>(state, dk, dv, column, head, out, want);
            column += 1;
        }
    }
}

#[inline(always)]
fn block<const N: usize>(
    state: &mut [f32],
    dk: usize,
    dv: usize,
    column: usize,
    head: &HeadRows<'_>,
    out: &mut [f32],
    want: Want,
) {
    for r in 0..head.rows {
        let k = head.k.row(r, dk);
        let v: &[f32; N] = row_block(head.v.row(r, dv), column);
        let decay = head.g.at(r).exp();
        let beta = head.beta.at(r);
        let mut read = [0f32; N];
        for (i, &ki) in k.iter().enumerate() {
            let s: &[f32; N] = row_block(&state[i * dv..], column);
            for c in 0..N {
                read[c] = ki.mul_add(s[c], read[c]);
            }
        }
        let mut delta = [0f32; N];
        for c in 0..N {
            delta[c] = (-decay).mul_add(read[c], v[c]) * beta;
        }
        match want {
            Want::State => {
                for (i, &ki) in k.iter().enumerate() {
                    let s: &mut [f32; N] = row_block_mut(&mut state[i * dv..], column);
                    for c in 0..N {
                        s[c] = ki.mul_add(delta[c], s[c] * decay);
                    }
                }
            }
            Want::Output => {
                let q = head.q.row(r, dk);
                let mut sum = [0f32; N];
                for (i, (&ki, &qi)) in k.iter().zip(q).enumerate() {
                    let s: &mut [f32; N] = row_block_mut(&mut state[i * dv..], column);
                    for c in 0..N {
                        s[c] = ki.mul_add(delta[c], s[c] * decay);
                        sum[c] = qi.mul_add(s[c], sum[c]);
                    }
                }
                out[r * dv + column..][..N].copy_from_slice(&sum);
            }
        }
    }
}

/// `N` values of a row from `column` on.
#[inline(always)]
pub(super) fn row_block<const N: usize>(row: &[f32], column: usize) -> &[f32; N] {
    row[column..].first_chunk().unwrap_or(&[0.0; N])
}

#[inline(always)]
fn row_block_mut<const N: usize>(row: &mut [f32], column: usize) -> &mut [f32; N] {
    let (block, _) = row[column..].as_chunks_mut::<N>();
    &mut block[0]
}
