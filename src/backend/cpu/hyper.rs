//! Hyper-connections (spec 2.2) and the MTP head's input (spec 4.2).
//!
//! Owns: the gated read of the residual streams, the write back into them, the rows kept for it, the fusion of hidden
//! state and embedding.
//! Always true: `n`, the normed streams, is what the gate multiplies and what down and inject read.

use rayon::prelude::*;

use super::{Cpu, Pool, activation, elementwise, linear, norm};
use crate::backend::{HyperRead, MtpFuse, Rows};
use crate::config::Shape;
use crate::state::Sequence;
use crate::state::head::HIDDEN_ROWS;
use crate::weights::Matrix;

/// Scratch of a read or a fusion.
pub fn floats(shape: &Shape, rows: usize) -> usize {
    rows * (2 * shape.wide() + shape.hyper.low_rank.max(2 * shape.hidden))
}

/// `x = mean_s(sigmoid(up · silu(down · n / C))_s · n_s)`, `inject = 2 sigmoid(inject · n / C)`.
pub fn read(
    shape: &Shape,
    w: &HyperRead<Cpu>,
    rows: usize,
    wide: &[f32],
    x: &mut [f32],
    inject: &mut [f32],
    pool: &mut Pool,
) {
    let (hidden, d, streams, rank) = (shape.hidden, shape.wide(), shape.hyper.streams, shape.hyper.low_rank);
    let count = streams as f32;
    let [normed, gate, low] = pool.cut([rows * d, rows * d, rows * rank]);
    normed.par_chunks_exact_mut(d).zip(wide.par_chunks_exact(d)).for_each(|(out, wide)| {
        norm::grouped_into(wide, &w.norm, hidden, shape.norm_eps, out);
    });
    match &w.inject {
        None => linear::linear(&w.down, normed, rows, low),
        Some(matrix) => {
            let inject = &mut inject[..rows * streams];
            linear::linear_many(&mut [(&w.down, &mut *low), (matrix, &mut *inject)], normed, rows);
            inject.iter_mut().for_each(|i| *i /= count);
            activation::sigmoid(inject);
            inject.iter_mut().for_each(|i| *i *= 2.0);
        }
    }
    low.iter_mut().for_each(|l| *l /= count);
    activation::silu(low);
    linear::linear(&w.up, low, rows, gate);
    x[..rows * hidden]
        .par_chunks_exact_mut(hidden)
        .zip(gate.par_chunks_exact_mut(d))
        .zip(normed.par_chunks_exact(d))
        .for_each(|((x, gate), normed)| {
            activation::sigmoid(gate);
            x.fill(0.0);
            for (gate, normed) in gate.chunks_exact(hidden).zip(normed.chunks_exact(hidden)) {
                elementwise::multiply_add(gate, normed, x);
            }
            x.iter_mut().for_each(|x| *x /= count);
        });
}

/// `wide_s += inject_s · y`.
pub fn write(shape: &Shape, rows: usize, wide: &mut [f32], inject: &[f32], y: &[f32]) {
    let (hidden, d, streams) = (shape.hidden, shape.wide(), shape.hyper.streams);
    wide[..rows * d]
        .par_chunks_exact_mut(d)
        .zip(inject.par_chunks_exact(streams))
        .zip(y.par_chunks_exact(hidden))
        .for_each(|((wide, inject), y)| {
            for (stream, &factor) in wide.chunks_exact_mut(hidden).zip(inject) {
                elementwise::add_scaled(factor, y, stream);
            }
        });
}

/// Keeps the last rows of each segment in its sequence's ring.
pub fn keep(rows: &Rows, d: usize, wide: &[f32], sequences: &mut [&mut Sequence]) {
    for (segment, sequence) in rows.segments.iter().zip(sequences) {
        let ring = sequence.recurrent.hidden_mut();
        for row in segment.rows.saturating_sub(HIDDEN_ROWS)..segment.rows {
            let slot = (segment.position + row) % HIDDEN_ROWS;
            ring[slot * d..][..d].copy_from_slice(&wide[(segment.first + row) * d..][..d]);
        }
    }
}

/// Copies each row's kept hidden row to the front of `to`.
pub fn load(rows: &Rows, d: usize, sequences: &[&mut Sequence], to: &mut [f32]) {
    for (segment, sequence) in rows.segments.iter().zip(sequences) {
        let ring = sequence.recurrent.hidden();
        for row in 0..segment.rows {
            let slot = (segment.position + row) % HIDDEN_ROWS;
            to[(segment.first + row) * d..][..d].copy_from_slice(&ring[slot * d..][..d]);
        }
    }
}

/// `out_s = hidden · norm(wide)_s + embedding · norm(e)`: one statistic over all streams of row `sources[r]` of `wide`, or
/// of `out` without one.
#[allow(clippy::too_many_arguments)] // the operation's operands; grouping them would name nothing
pub fn fuse(
    shape: &Shape,
    w: &MtpFuse<Cpu>,
    table: &Matrix,
    ids: &[u32],
    wide: Option<&[f32]>,
    sources: &[usize],
    out: &mut [f32],
    pool: &mut Pool,
) {
    let (hidden, d, rows) = (shape.hidden, shape.wide(), ids.len());
    let [normed, embedded, shared] = pool.cut([rows * d, rows * hidden, rows * hidden]);
    let wide = wide.unwrap_or(out);
    for (row, (&id, &source)) in ids.iter().zip(sources).enumerate() {
        let source = &wide[source * d..][..d];
        norm::rms_into(source, &w.norm_hidden, shape.norm_eps, &mut normed[row * d..][..d]);
        let embedding = &mut embedded[row * hidden..][..hidden];
        table.decode_row(id as usize, embedding);
        norm::rms(embedding, &w.norm_embedding, shape.norm_eps);
    }
    linear::linear(&w.embedding, embedded, rows, shared);
    // The streams of a row lie one after another, so all of them are rows of one product.
    linear::linear(&w.hidden, normed, rows * shape.hyper.streams, &mut out[..rows * d]);
    for (out, shared) in out.chunks_exact_mut(d).zip(shared.chunks_exact(hidden)) {
        for stream in out.chunks_exact_mut(hidden) {
            stream.iter_mut().zip(shared).for_each(|(o, e)| *o += e);
        }
    }
}
