//! Element by element: the products that norms, convolutions and gates apply to whole rows.
//!
//! Always true: one rounding an element and operation (a fused multiply-add counts as one), so the instruction set does
//! not change a bit.
//! Not here: sums over a row (`simd`), exponentials (`activation`).

use super::target::multiversioned;

multiversioned! {
    /// `y += a · b`.
    pub fn multiply_add(a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a.mul_add(*b, *y);
        }
    }
}

multiversioned! {
    /// `out = x · scale · weight`.
    pub fn scaled(x: &[f32], scale: f32, weight: &[f32], out: &mut [f32]) {
        for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * w;
        }
    }
}

multiversioned! {
    /// `x ·= scale · weight`, multiplied in the order of [`scaled`].
    pub fn scale_by(x: &mut [f32], scale: f32, weight: &[f32]) {
        for (x, w) in x.iter_mut().zip(weight) {
            *x = *x * scale * w;
        }
    }
}

multiversioned! {
    /// `y += factor · x`, the product rounded before the sum as the reference does (spec 2.2, rounding points).
    pub fn add_scaled(factor: f32, x: &[f32], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += factor * x;
        }
    }
}
