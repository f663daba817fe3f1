//! Hashed n-gram embedding, injected into the residual streams (spec 2.6).
//!
//! Owns: key/query gate, value, dilated convolution, the window it leaves in the sequence.
//! Always true: the residual takes the un-normed gated value, the convolution its normed form; the convolution does not
//! reset at an end-of-text token (only the hash does, on the host).

use rayon::prelude::*;

use super::{Cpu, activation, elementwise, linear, norm, show, simd};
use crate::backend::{Observed, Ple};
use crate::config::Shape;
use crate::state::Sequence;
use crate::state::recurrent::{Part, slide};

/// Scratch of an injection.
pub fn floats(shape: &Shape, rows: usize) -> usize {
    let Some(ple) = &shape.ple else { return 0 };
    rows * (4 * shape.wide() + shape.hidden) + ple.conv_history() * shape.wide()
}

/// Adds `gv + silu(conv(norm(gv)))` to every row of `wide`.
pub fn inject(
    cpu: &mut Cpu,
    w: &Ple<Cpu>,
    layer: usize,
    embedding: &[f32],
    sequences: &mut [&mut Sequence],
    wide: &mut [f32],
) {
    let Some(ple) = &cpu.shape.ple else { return };
    let (rows, d, hidden, eps) = (cpu.rows.len(), cpu.shape.wide(), cpu.shape.hidden, cpu.shape.norm_eps);
    let history = ple.conv_history();
    let [key, gated, normed, output, value, before] =
        cpu.pool.cut([rows * d, rows * d, rows * d, rows * d, rows * hidden, history * d]);
    let embedding = &embedding[..rows * ple.embed_dim];
    linear::linear_many(&mut [(&w.key, &mut *key), (&w.value, &mut *value)], embedding, rows);
    key.par_chunks_exact_mut(d)
        .zip(gated.par_chunks_exact_mut(d))
        .zip(normed.par_chunks_exact_mut(d))
        .zip(wide.par_chunks_exact(d).zip(value.par_chunks_exact(hidden)))
        .for_each(|(((key, gated), normed), (wide, value))| {
            // `normed` holds the query until the gate is known.
            norm::grouped_into(wide, &w.norm_query, hidden, eps, normed);
            for (stream, key) in key.chunks_exact_mut(hidden).enumerate() {
                let span = stream * hidden..(stream + 1) * hidden;
                norm::rms(key, &w.norm_key[span.clone()], eps);
                let gate = sigmoid(gate_logit(simd::dot(key, &normed[span.clone()]) / (hidden as f32).sqrt()));
                gated[span].iter_mut().zip(value).for_each(|(g, v)| *g = gate * v);
            }
            norm::grouped_into(gated, &w.norm_conv, hidden, eps, normed);
        });
    for (segment, sequence) in cpu.rows.segments.iter().zip(sequences) {
        let pending = sequence.recurrent.pending(Part::Ple(layer));
        let window = sequence.recurrent.ple(layer);
        let part = segment.first * d..(segment.first + segment.rows) * d;
        before.copy_from_slice(&window[pending * d..(pending + history) * d]);
        let new = &normed[part.clone()];
        output[part].par_chunks_exact_mut(d).enumerate().for_each(|(row, out)| {
            out.fill(0.0);
            for (tap, weights) in w.conv.chunks_exact(d).enumerate() {
                let column = row + tap * ple.ngram;
                let input = match column.checked_sub(history) {
                    None => &before[column * d..][..d],
                    Some(now) => &new[now * d..][..d],
                };
                elementwise::multiply_add(weights, input, out);
            }
            activation::silu(out);
        });
        slide(window, d, history, pending, new);
        sequence.recurrent.fold(Part::Ple(layer), segment.rows);
    }
    output.par_chunks_exact_mut(d).zip(gated.par_chunks_exact(d)).zip(wide.par_chunks_exact_mut(d)).for_each(
        |((output, gated), wide)| {
            for ((o, g), w) in output.iter_mut().zip(gated).zip(wide) {
                *o += g;
                *w += *o;
            }
        },
    );
    show(&mut cpu.observer, &cpu.layer, "ple", Observed::F32(output));
}

/// The signed square root that the gate's sigmoid sees; zero stays zero.
fn gate_logit(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { d.signum() * d.abs().max(1e-6).sqrt() }
}

fn sigmoid(x: f32) -> f32 {
    let mut x = [x];
    activation::sigmoid(&mut x);
    x[0]
}
