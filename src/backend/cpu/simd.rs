//! Arithmetic on slices of f32: dot products, scaled sums, reductions.
//!
//! Owns: the order of every sum. Lane l of eight adds up elements l, l + 8, l + 16, ... by fused multiply-add, the
//! last group is filled with zeros, then the lanes are added as `Lanes::sum` does.
//! Always true: *ordered*: a result depends on its own inputs only, not on the executor, the number of rows in the
//! call or where they lie.
//! Not here: exponentials (`activation`), weights in stored formats (`linear`).

use super::lanes::{Lanes, WIDTH, vectorised};

vectorised! {
    /// `sum_k a[k] * b[k]` over the shorter length.
    pub fn dot(a: &[f32], b: &[f32]) -> f32 = dot_lanes;
    /// `y += a * x`, fused, over the shorter length.
    pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) = axpy_lanes;
    /// `y *= a`.
    pub fn scale(a: f32, y: &mut [f32]) = scale_lanes;
    /// `y *= x`, over the shorter length.
    pub fn multiply(x: &[f32], y: &mut [f32]) = multiply_lanes;
    /// `sum_k x[k]`.
    pub fn sum(x: &[f32]) -> f32 = sum_lanes;
    /// `sum_k x[k]^2`.
    pub fn sum_squares(x: &[f32]) -> f32 = sum_squares_lanes;
    /// The greatest element, -infinity if there is none. NaNs are passed over.
    pub fn max(x: &[f32]) -> f32 = max_lanes;
}

#[inline(always)]
fn dot_lanes<L: Lanes>(a: &[f32], b: &[f32]) -> f32 {
    let length = a.len().min(b.len());
    let ((a, a_tail), (b, b_tail)) = (a[..length].as_chunks(), b[..length].as_chunks());
    let mut sum = L::splat(0.0);
    for (a, b) in a.iter().zip(b) {
        sum = L::load(a).mul_add(L::load(b), sum);
    }
    if !a_tail.is_empty() {
        sum = L::load_tail(a_tail).mul_add(L::load_tail(b_tail), sum);
    }
    sum.sum()
}

#[inline(always)]
fn axpy_lanes<L: Lanes>(a: f32, x: &[f32], y: &mut [f32]) {
    let length = x.len().min(y.len());
    let ((x, x_tail), (y, y_tail)) = (x[..length].as_chunks(), y[..length].as_chunks_mut());
    let a = L::splat(a);
    for (x, y) in x.iter().zip(y) {
        L::load(x).mul_add(a, L::load(y)).store(y);
    }
    if !x_tail.is_empty() {
        L::load_tail(x_tail).mul_add(a, L::load_tail(y_tail)).store_tail(y_tail);
    }
}

#[inline(always)]
fn scale_lanes<L: Lanes>(a: f32, y: &mut [f32]) {
    let (whole, tail) = y.as_chunks_mut();
    for y in whole {
        L::load(y).mul(L::splat(a)).store(y);
    }
    for y in tail {
        *y *= a;
    }
}

#[inline(always)]
fn multiply_lanes<L: Lanes>(x: &[f32], y: &mut [f32]) {
    let length = x.len().min(y.len());
    let ((x, x_tail), (y, y_tail)) = (x[..length].as_chunks(), y[..length].as_chunks_mut());
    for (x, y) in x.iter().zip(y) {
        L::load(y).mul(L::load(x)).store(y);
    }
    for (x, y) in x_tail.iter().zip(y_tail) {
        *y *= x;
    }
}

#[inline(always)]
fn sum_lanes<L: Lanes>(x: &[f32]) -> f32 {
    let (whole, tail) = x.as_chunks();
    let mut sum = L::splat(0.0);
    for x in whole {
        sum = sum.add(L::load(x));
    }
    if !tail.is_empty() {
        sum = sum.add(L::load_tail(tail));
    }
    sum.sum()
}

#[inline(always)]
fn sum_squares_lanes<L: Lanes>(x: &[f32]) -> f32 {
    dot_lanes::<L>(x, x)
}

#[inline(always)]
fn max_lanes<L: Lanes>(x: &[f32]) -> f32 {
    let (whole, tail) = x.as_chunks();
    let mut greatest = L::splat(f32::NEG_INFINITY);
    for x in whole {
        greatest = L::load(x).max(greatest);
    }
    let mut lanes = [0.0; WIDTH];
    greatest.store(&mut lanes);
    lanes.iter().chain(tail).fold(f32::NEG_INFINITY, |greatest, x| if *x > greatest { *x } else { greatest })
}
