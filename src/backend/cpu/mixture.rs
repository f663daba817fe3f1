//! Mixture of experts (spec 2.5): router, routed experts, shared expert.
//!
//! Owns: the choice of experts and their weights, the shared expert, the sum of both.
//! Always true: weight descending, then the lowest expert; a token's sum runs in that order.
//! Not here: the experts' products (`linear`).

use rayon::prelude::*;

use super::{Cpu, activation, linear, moe as routed, show, simd};
use crate::backend::{Moe, Observed};
use crate::config::{MoeShape, Shape};

/// Scratch of a mixture, the experts' own apart.
pub fn floats(shape: &Shape, rows: usize) -> usize {
    let moe = &shape.moe;
    rows * (moe.experts + 2 * moe.top_k + 2 * moe.shared_intermediate + shape.hidden + 1)
}

/// `y = Σ_e w_e · expert_e(x) + sigmoid(scale · x) · shared(x)`.
pub fn mix(cpu: &mut Cpu, w: &Moe<Cpu>, x: &[f32], y: &mut [f32]) {
    let (moe, hidden, rows) = (cpu.shape.moe, cpu.shape.hidden, cpu.rows.len());
    let (x, y) = (&x[..rows * hidden], &mut y[..rows * hidden]);
    let [logits, weights, ids, gate, up, shared, scale] = cpu.pool.cut([
        rows * moe.experts,
        rows * moe.top_k,
        rows * moe.top_k,
        rows * moe.shared_intermediate,
        rows * moe.shared_intermediate,
        rows * hidden,
        rows,
    ]);
    let ids: &mut [u32] = bytemuck::cast_slice_mut(ids);
    linear::linear_many(
        &mut [
            (&w.router, &mut *logits),
            (&w.shared_gate, &mut *gate),
            (&w.shared_up, &mut *up),
            (&w.shared_scale, &mut *scale),
        ],
        x,
        rows,
    );
    show(&mut cpu.observer, &cpu.layer, "router.0", Observed::F32(logits));
    logits
        .par_chunks_exact_mut(moe.experts)
        .zip(ids.par_chunks_exact_mut(moe.top_k))
        .zip(weights.par_chunks_exact_mut(moe.top_k))
        .for_each(|((logits, ids), weights)| route(&moe, logits, ids, weights));
    show(&mut cpu.observer, &cpu.layer, "router.1", Observed::F32(weights));
    show(&mut cpu.observer, &cpu.layer, "router.2", Observed::U32(ids));
    routed::moe(&w.experts, x, rows, moe.top_k, ids, weights, y, &mut cpu.moe);

    activation::silu_multiply(gate, up);
    linear::linear(&w.shared_down, gate, rows, shared);
    show(&mut cpu.observer, &cpu.layer, "shared_expert", Observed::F32(shared));
    activation::sigmoid(scale);
    for ((y, shared), &scale) in y.chunks_exact_mut(hidden).zip(shared.chunks_exact(hidden)).zip(&*scale) {
        simd::axpy(scale, shared, y);
    }
}

/// The top-k experts of one token and their weights; turns `logits` into probabilities.
pub fn route(moe: &MoeShape, logits: &mut [f32], ids: &mut [u32], weights: &mut [f32]) {
    activation::softmax(logits);
    for chosen in 0..moe.top_k {
        let taken = &ids[..chosen];
        let mut best = None;
        for (expert, &p) in logits.iter().enumerate() {
            let better = best.is_none_or(|(_, highest)| p > highest);
            if better && !taken.contains(&(expert as u32)) {
                best = Some((expert as u32, p));
            }
        }
        // Probabilities that are not numbers choose nothing: expert 0 keeps the step going until the logits' check.
        let (id, p) = best.unwrap_or((0, f32::NAN));
        ids[chosen] = id;
        weights[chosen] = p;
    }
    if moe.normalise {
        let sum: f32 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOE: MoeShape = MoeShape { experts: 6, top_k: 3, intermediate: 1, shared_intermediate: 1, normalise: true };

    #[test]
    fn ties_go_to_the_lowest_expert_and_weights_sum_to_one() {
        let mut logits = [1.0, 3.0, 2.0, 3.0, 2.0, 2.0];
        let (mut ids, mut weights) = ([9; 3], [0.0; 3]);
        route(&MOE, &mut logits, &mut ids, &mut weights);
        assert_eq!(ids, [1, 3, 2]);
        assert_eq!(weights[0], weights[1]);
        // Three terms that sum to 1, each rounded once and divided once.
        assert!((weights.iter().sum::<f32>() - 1.0).abs() <= 3.0 * f32::EPSILON);
    }
}
