//! Gated DeltaNet mixer (spec 2.3) around the delta rule: projections, convolution, gates, output norm.
//!
//! Owns: the order of the parts and where each row's columns go in the sequence's state.
//! Always true: rows that are pending in the state (see `state::recurrent`) are folded in before new ones are applied.
//! Not here: the recurrence of a head (`delta`).

use rayon::prelude::*;

use super::chunked::{self, CHUNK};
use super::delta::{self, HeadRows, Strided};
use super::{Cpu, activation, elementwise, linear, norm, show, simd};
use crate::backend::{Gdn, Observed, Segment};
use crate::config::{Gate, GdnShape, HeadMap, Shape};
use crate::state::Sequence;
use crate::state::recurrent::{GdnState, Part, slide};

/// From this many rows of a sequence on, the delta rule runs in chunks.
const CHUNKED_ROWS: usize = CHUNK;

/// Scratch of a mixer.
pub fn floats(shape: &Shape, rows: usize) -> usize {
    let g = &shape.gdn;
    let history = g.conv_kernel - 1;
    rows * (2 * g.channels() + 3 * g.values() + 2 * g.value_heads)
        + history * g.channels()
        + g.value_heads * head_scratch(g)
}

/// A head's scratch: the chunked form's, or a trial copy of its recurrent matrix.
fn head_scratch(g: &GdnShape) -> usize {
    chunked::chunk_scratch(g.key_dim, g.value_dim).max(g.key_dim * g.value_dim)
}

/// Runs the mixer on the step's rows.
pub fn mix(cpu: &mut Cpu, w: &Gdn<Cpu>, layer: usize, x: &[f32], sequences: &mut [&mut Sequence], y: &mut [f32]) {
    let (g, rows) = (cpu.shape.gdn, cpu.rows.len());
    let (channels, values, heads) = (g.channels(), g.values(), g.value_heads);
    let history = g.conv_kernel - 1;
    let chunk = head_scratch(&g);
    let [qkv, mixed, z, by_head, joined, strength, decay, columns, scratch] = cpu.pool.cut([
        rows * channels,
        rows * channels,
        rows * values,
        rows * values,
        rows * values,
        rows * heads,
        rows * heads,
        history * channels,
        heads * chunk,
    ]);
    let x = &x[..rows * cpu.shape.hidden];
    linear::linear_many(
        &mut [(&w.qkv, &mut *qkv), (&w.z, &mut *z), (&w.b, &mut *strength), (&w.a, &mut *decay)],
        x,
        rows,
    );
    activation::sigmoid(strength);
    for row in decay.chunks_exact_mut(heads) {
        for ((a, bias), rate) in row.iter_mut().zip(&w.dt_bias).zip(&w.decay) {
            *a = rate * activation::softplus(*a + bias);
        }
    }
    for (segment, sequence) in cpu.rows.segments.iter().zip(sequences) {
        let [slid, pending] = [Part::Window(layer), Part::State(layer)].map(|part| sequence.recurrent.pending(part));
        let mut state = sequence.recurrent.gdn(layer);
        let part = |width: usize| segment.first * width..(segment.first + segment.rows) * width;
        let new = &qkv[part(channels)];
        let mixed = &mut mixed[part(channels)];
        columns.copy_from_slice(&state.window[slid * channels..(slid + history) * channels]);
        convolve(&g, &w.conv, columns, new, mixed);
        let step =
            Step { g: &g, mixed, decay: &decay[part(heads)], strength: &strength[part(heads)], rows: segment.rows };
        apply(&step, &mut state, pending, &mut by_head[part(values)], scratch, chunk);
        slide(state.window, channels, history, slid, new);
        sequence.recurrent.fold(Part::Window(layer), segment.rows);
        sequence.recurrent.fold(Part::State(layer), segment.rows);
    }
    join(&g, &cpu.rows.segments, by_head, joined);
    joined.par_chunks_exact_mut(values).zip(z.par_chunks_exact_mut(values)).for_each(|(out, z)| {
        out.chunks_exact_mut(g.value_dim).for_each(|head| norm::rms(head, &w.norm, cpu.shape.norm_eps));
        match g.gate {
            Gate::Sigmoid => activation::sigmoid(z),
            Gate::Silu => activation::silu(z),
        }
        simd::multiply(z, out);
    });
    show(&mut cpu.observer, &cpu.layer, "gdn_normed", Observed::F32(joined));
    linear::linear(&w.out, joined, rows, &mut y[..rows * cpu.shape.hidden]);
}

/// `silu` of the causal depthwise convolution, then unit queries (scaled by dk^-½) and keys. `before` is
/// `[history, channels]`, `new` and `out` are `[rows, channels]`.
fn convolve(g: &GdnShape, taps: &[f32], before: &[f32], new: &[f32], out: &mut [f32]) {
    let (channels, history) = (g.channels(), g.conv_kernel - 1);
    out.par_chunks_exact_mut(channels).enumerate().for_each(|(row, out)| {
        out.fill(0.0);
        for (tap, weights) in taps.chunks_exact(channels).enumerate() {
            let column = row + tap;
            let input = match column.checked_sub(history) {
                None => &before[column * channels..][..channels],
                Some(now) => &new[now * channels..][..channels],
            };
            elementwise::multiply_add(weights, input, out);
        }
        activation::silu(out);
        let (queries, rest) = out.split_at_mut(g.keys());
        let factor = 1.0 / (g.key_dim as f32).sqrt();
        queries.chunks_exact_mut(g.key_dim).for_each(|head| norm::unit(head, factor));
        rest[..g.keys()].chunks_exact_mut(g.key_dim).for_each(|head| norm::unit(head, 1.0));
    });
}

/// One sequence's rows of a step, as the delta rule sees them.
struct Step<'a> {
    g: &'a GdnShape,
    /// Queries, keys and values, `[rows, channels]`.
    mixed: &'a [f32],
    /// g, `[rows, value_heads]`.
    decay: &'a [f32],
    /// β, `[rows, value_heads]`.
    strength: &'a [f32],
    rows: usize,
}

/// Folds pending rows in, applies the new ones and either keeps them pending or makes them final. `out` is
/// `[value_heads, rows, value_dim]`.
fn apply(
    step: &Step<'_>,
    state: &mut GdnState<'_>,
    pending: usize,
    out: &mut [f32],
    scratch: &mut [f32],
    chunk: usize,
) {
    let g = step.g;
    let (dk, dv, heads, rows) = (g.key_dim, g.value_dim, g.value_heads, step.rows);
    let keep = rows * heads <= state.decay.len();
    let (keys, values) = (&*state.keys, &*state.values);
    let (decay, strength) = (&*state.decay, &*state.strength);
    state
        .state
        .par_chunks_exact_mut(dk * dv)
        .zip(out.par_chunks_exact_mut(rows * dv))
        .zip(scratch.par_chunks_exact_mut(chunk))
        .enumerate()
        .for_each(|(head, ((matrix, out), scratch))| {
            let key_head = key_head(g, head);
            if pending > 0 {
                let k = Strided::new(keys, key_head * dk, g.keys());
                let folded = HeadRows {
                    rows: pending,
                    q: k,
                    k,
                    v: Strided::new(values, head * dv, g.values()),
                    g: Strided::new(decay, head, heads),
                    beta: Strided::new(strength, head, heads),
                };
                delta::fold(matrix, dk, &folded);
            }
            let new = HeadRows {
                rows,
                q: Strided::new(step.mixed, key_head * dk, g.channels()),
                k: Strided::new(step.mixed, g.keys() + key_head * dk, g.channels()),
                v: Strided::new(step.mixed, 2 * g.keys() + head * dv, g.channels()),
                g: Strided::new(step.decay, head, heads),
                beta: Strided::new(step.strength, head, heads),
            };
            if keep {
                let trial = &mut scratch[..dk * dv];
                trial.copy_from_slice(matrix);
                delta::recur(trial, dk, &new, out);
            } else if rows >= CHUNKED_ROWS {
                chunked::chunked(matrix, dk, &new, out, scratch);
            } else {
                delta::recur(matrix, dk, &new, out);
            }
        });
    if keep {
        for (row, mixed) in step.mixed.chunks_exact(g.channels()).enumerate() {
            state.keys[row * g.keys()..][..g.keys()].copy_from_slice(&mixed[g.keys()..2 * g.keys()]);
            state.values[row * g.values()..][..g.values()].copy_from_slice(&mixed[2 * g.keys()..]);
        }
        state.decay[..rows * heads].copy_from_slice(step.decay);
        state.strength[..rows * heads].copy_from_slice(step.strength);
    }
}

fn key_head(g: &GdnShape, value_head: usize) -> usize {
    match g.head_map {
        HeadMap::Grouped => value_head / (g.value_heads / g.key_heads),
        HeadMap::Tiled => value_head % g.key_heads,
    }
}

/// Each segment's `[value_heads, rows, value_dim]` → `[rows, value_heads · value_dim]`.
fn join(g: &GdnShape, segments: &[Segment], by_head: &[f32], joined: &mut [f32]) {
    let (values, dv) = (g.values(), g.value_dim);
    for segment in segments {
        let from = &by_head[segment.first * values..];
        for row in 0..segment.rows {
            let to = &mut joined[(segment.first + row) * values..][..values];
            for (head, to) in to.chunks_exact_mut(dv).enumerate() {
                to.copy_from_slice(&from[(head * segment.rows + row) * dv..][..dv]);
            }
        }
    }
}
