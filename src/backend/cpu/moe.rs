//! Experts: `y_r = sum_j weights[r, j] * down_e(silu(gate_e x_r) * (up_e x_r))` with `e = ids[r, j]` (spec, section 2.5).
//!
//! Owns: grouping of rows by expert, the two parallel regions of the products, the sum over a row's experts.
//! Always true: *ordered*: a row's bits depend on its own input, ids and weights only; its experts are added in the
//! order of its own list. An expert's weights are read once a call, however many rows chose it (up to
//! [`super::linear::PANEL_ROWS`]). Nothing is allocated once the scratch has its size.
//! Not here: the router's softmax and selection, the shared expert's gate (a caller may append the shared expert to
//! every list, weighted by its gate).

use std::ops::Range;

use rayon::prelude::*;

use super::activation::silu_multiply;
use super::crew;
use super::linear::{INLINE_NS, Rows, TASK_NS, TASKS_PER_THREAD, Target, nanoseconds, product};
use super::simd::axpy;
use crate::weights::{Expert, Matrix};

/// Buffers of [`moe`], planned for the largest call.
#[derive(Default)]
pub struct MoeScratch {
    /// Rows that chose an expert, and where their pairs start in the order of experts: `[experts + 1]`.
    starts: Vec<u32>,
    /// The row of every pair, pairs in the order of experts.
    rows: Vec<u32>,
    /// Where pair `r * top_k + j` stands in that order.
    places: Vec<u32>,
    /// What one task computes, of the first or the second region.
    tasks: Vec<Task>,
    /// `[pairs, inner]`: gate, then the hidden activation.
    gate: Vec<f32>,
    /// `[pairs, inner]`
    up: Vec<f32>,
    /// `[pairs, hidden]`
    down: Vec<f32>,
}

/// Outputs `outputs` of one expert for all of its rows.
#[derive(Clone)]
struct Task {
    expert: u32,
    outputs: Range<u32>,
}

impl MoeScratch {
    /// Room for `rows` rows with `top_k` of `experts` experts each, of the largest inner width `inner`: 4 bytes times
    /// `rows * top_k * (hidden + 2 * inner)`, and little else.
    pub fn new(rows: usize, top_k: usize, experts: usize, inner: usize, hidden: usize) -> MoeScratch {
        let pairs = rows * top_k;
        MoeScratch {
            starts: vec![0; experts + 1],
            rows: vec![0; pairs],
            places: vec![0; pairs],
            tasks: Vec::with_capacity(pairs.min(experts) * inner.max(hidden).div_ceil(TASK_OUTPUTS)),
            gate: vec![0.0; pairs * inner],
            up: vec![0.0; pairs * inner],
            down: vec![0.0; pairs * hidden],
        }
    }

    /// Bytes of a scratch so planned, its lists of integers apart.
    pub fn bytes(rows: usize, top_k: usize, inner: usize, hidden: usize) -> usize {
        rows * top_k * (hidden + 2 * inner) * size_of::<f32>()
    }
}

/// The fewest outputs in a task: a multiple of every tile's.
const TASK_OUTPUTS: usize = 24;

/// Writes `y` `[rows, hidden]` from `x` `[rows, hidden]`; `ids` and `weights` are `[rows, top_k]`, ids below
/// `experts.len()`, which is at least 1. Runs on the current rayon pool, or inline where that would take longer. The
/// scratch grows if it was planned for less. Panics if a slice is too short for its shape.
#[allow(clippy::too_many_arguments)]
pub fn moe(
    experts: &[Expert],
    x: &[f32],
    rows: usize,
    top_k: usize,
    ids: &[u32],
    weights: &[f32],
    y: &mut [f32],
    scratch: &mut MoeScratch,
) {
    let (pairs, hidden) = (rows * top_k, experts[0].gate.cols);
    let (ids, weights, y) = (&ids[..pairs], &weights[..pairs], &mut y[..rows * hidden]);
    let inner = experts.iter().map(|expert| expert.gate.rows).max().unwrap_or(0);
    scratch.group(experts.len(), top_k, ids);
    for (buffer, width) in [(&mut scratch.gate, inner), (&mut scratch.up, inner), (&mut scratch.down, hidden)] {
        if buffer.len() < pairs * width {
            buffer.resize(pairs * width, 0.0);
        }
    }
    let (starts, chosen) = (&scratch.starts, &scratch.rows);
    let group = |expert: u32| starts[expert as usize] as usize..starts[expert as usize + 1] as usize;

    let parallel = plan(&mut scratch.tasks, starts, |expert| &experts[expert].gate, 2);
    let (gate, up) = (Target::new(&mut scratch.gate, inner), Target::new(&mut scratch.up, inner));
    each(&scratch.tasks, parallel, |task| {
        let (expert, pairs) = (&experts[task.expert as usize], group(task.expert));
        let outputs = task.outputs.start as usize..task.outputs.end as usize;
        let x = Rows::gathered(x, hidden, &chosen[pairs.clone()]);
        let (gate, up) = (gate.at(pairs.start, outputs.start), up.at(pairs.start, outputs.start));
        // SAFETY: `gate` and `up` are borrowed until the region ends; tasks differ in expert, whose pairs are its own,
        // or in outputs.
        unsafe {
            product(&expert.gate, outputs.clone(), x, gate);
            product(&expert.up, outputs.clone(), x, up);
            for pair in 0..pairs.len() {
                silu_multiply(gate.part(pair, 0, outputs.len()), up.part(pair, 0, outputs.len()));
            }
        }
    });

    let parallel = plan(&mut scratch.tasks, starts, |expert| &experts[expert].down, 1);
    let (activated, down) = (&scratch.gate, Target::new(&mut scratch.down, hidden));
    each(&scratch.tasks, parallel, |task| {
        let (expert, pairs) = (&experts[task.expert as usize], group(task.expert));
        let outputs = task.outputs.start as usize..task.outputs.end as usize;
        let width = expert.down.cols;
        let x = Rows::strided(&activated[pairs.start * inner..], width, inner, pairs.len());
        // SAFETY: `down` is borrowed until the region ends; tasks differ in expert, whose pairs are its own, or in
        // outputs.
        unsafe { product(&expert.down, outputs.clone(), x, down.at(pairs.start, outputs.start)) }
    });

    let (places, down) = (&scratch.places, &scratch.down);
    let combine = |(r, y): (usize, &mut [f32])| {
        y.fill(0.0);
        for pair in r * top_k..(r + 1) * top_k {
            axpy(weights[pair], &down[places[pair] as usize * hidden..][..hidden], y);
        }
    };
    // A row takes a microsecond or so: only a prompt's many are worth a third region.
    if rows <= 16 {
        y.chunks_mut(hidden).enumerate().for_each(combine);
    } else {
        y.par_chunks_mut(hidden).enumerate().with_min_len(4).for_each(combine);
    }
}

impl MoeScratch {
    /// Sorts pairs by expert, keeping rows in order.
    fn group(&mut self, experts: usize, top_k: usize, ids: &[u32]) {
        self.starts.clear();
        self.starts.resize(experts + 1, 0);
        self.rows.resize(ids.len(), 0);
        self.places.resize(ids.len(), 0);
        for id in ids {
            self.starts[*id as usize + 1] += 1;
        }
        for e in 0..experts {
            self.starts[e + 1] += self.starts[e];
        }
        // `starts[e]` moves to the end of group e, which is the start of the next: shifted back afterwards.
        for (pair, id) in ids.iter().enumerate() {
            let place = &mut self.starts[*id as usize];
            self.rows[*place as usize] = (pair / top_k) as u32;
            self.places[pair] = *place;
            *place += 1;
        }
        self.starts.copy_within(0..experts, 1);
        self.starts[0] = 0;
    }
}

/// Cuts the products of every chosen expert into tasks; returns whether they are worth other threads. `matrices` of
/// the same shape stand behind one task.
fn plan<'a>(tasks: &mut Vec<Task>, starts: &[u32], matrix: impl Fn(usize) -> &'a Matrix, matrices: usize) -> bool {
    let cost = |e: usize, outputs: usize| {
        let rows = (starts[e + 1] - starts[e]) as usize;
        if rows == 0 { 0 } else { matrices * nanoseconds(matrix(e), outputs, rows) }
    };
    let experts = starts.len() - 1;
    let total: usize = (0..experts).map(|e| cost(e, matrix(e).rows)).sum();
    let threads = if total < INLINE_NS { 1 } else { rayon::current_num_threads() };
    let task_ns = (total / (threads * TASKS_PER_THREAD)).max(TASK_NS);
    tasks.clear();
    for e in (0..experts).filter(|e| starts[*e] < starts[*e + 1]) {
        let outputs = matrix(e).rows;
        let step = if threads == 1 { outputs } else { task_ns * outputs / cost(e, outputs).max(1) };
        let step = step.max(1).next_multiple_of(TASK_OUTPUTS);
        tasks.extend(
            (0..outputs)
                .step_by(step)
                .map(|start| Task { expert: e as u32, outputs: start as u32..outputs.min(start + step) as u32 }),
        );
    }
    threads > 1
}

fn each(tasks: &[Task], parallel: bool, run: impl Fn(&Task) + Sync + Send) {
    if parallel { crew::each(tasks.len(), |i| run(&tasks[i])) } else { tasks.iter().for_each(run) }
}
