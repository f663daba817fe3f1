//! Root-mean-square norms (spec 2.0) of single rows.
//!
//! Always true: weights come as the final multiplier (1 + w where the norm is zero-centred); sums run in the fixed
//! eight-lane order of `simd`.

use super::{elementwise, simd};

/// `x / sqrt(mean(x²) + eps) · weight`, in place.
pub fn rms(x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = inverse_rms(x, eps);
    elementwise::scale_by(x, scale, weight);
}

/// As [`rms`], from one slice into another.
pub fn rms_into(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = inverse_rms(x, eps);
    elementwise::scaled(x, scale, weight, out);
}

/// One statistic a stream: `x` and `weight` are `[streams, hidden]`.
pub fn grouped_into(x: &[f32], weight: &[f32], hidden: usize, eps: f32, out: &mut [f32]) {
    for ((x, w), out) in x.chunks_exact(hidden).zip(weight.chunks_exact(hidden)).zip(out.chunks_exact_mut(hidden)) {
        rms_into(x, w, eps, out);
    }
}

fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (simd::sum_squares(x) / x.len() as f32 + eps).sqrt()
}

/// Scales to unit length: `x · factor / sqrt(Σx² + 1e-6)` (spec 2.3; the epsilon is part of the architecture).
pub fn unit(x: &mut [f32], factor: f32) {
    let scale = factor / (simd::sum_squares(x) + 1e-6).sqrt();
    simd::scale(scale, x);
}
