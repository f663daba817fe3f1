//! Exponentials and what the model makes of them: sigmoid, SiLU, softplus, softmax.
//!
//! Owns: one exponential, at most 2 units in the last place from e^x, gradual underflow included.
//! Always true: element by element except [`softmax`], whose sum has the order of `simd`; the same bits whoever
//! executes it; a NaN stays a NaN.
//! Not here: which gate the model applies where (`model`).

use super::lanes::{Lanes, ROUND, vectorised};
use super::simd;

vectorised! {
    /// `x = e^x`; infinity above 88.73, zero below -103.98.
    pub fn exp(x: &mut [f32]) = exp_lanes;
    /// `x = 1 / (1 + e^-x)`.
    pub fn sigmoid(x: &mut [f32]) = sigmoid_lanes;
    /// `x = x / (1 + e^-x)`; NaN at -infinity.
    pub fn silu(x: &mut [f32]) = silu_lanes;
    /// `gate = silu(gate) * up`, over the shorter length.
    pub fn silu_multiply(gate: &mut [f32], up: &[f32]) = silu_multiply_lanes;
    /// `y *= sigmoid(gate)`, over the shorter length.
    pub fn sigmoid_multiply(y: &mut [f32], gate: &[f32]) = sigmoid_multiply_lanes;
    /// `x = e^(x - shift)`.
    fn exp_shifted(x: &mut [f32], shift: f32) = exp_shifted_lanes;
}

/// `x = e^x / sum e^x`, computed from the greatest element down. An empty slice stays empty; a slice of nothing but
/// -infinity, or with a NaN, becomes NaN.
pub fn softmax(x: &mut [f32]) {
    exp_shifted(x, simd::max(x));
    simd::scale(1.0 / simd::sum(x), x);
}

/// `ln(1 + e^x)`, `x` itself above 20 (spec 2.3).
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 {
        return x;
    }
    let mut power = [x];
    exp(&mut power);
    power[0].ln_1p()
}

/// e^x. x = n ln 2 + r with |r| <= ln 2 / 2, then 2^n times a polynomial in r (Chebyshev fit, relative error 1.7e-10,
/// far below the rounding of its last two steps).
#[inline(always)]
fn e<L: Lanes>(x: L) -> L {
    // Outside of these bounds the result is 0 or infinity anyway; inside, 2^n can be split into two f32 powers.
    // Both take `x` second, so that a NaN passes.
    let x = L::splat(-105.0).max(x);
    let x = L::splat(89.0).min(x);
    let rounded = x.mul_add(L::splat(std::f32::consts::LOG2_E), L::splat(ROUND));
    let n = rounded.sub(L::splat(ROUND));
    // ln 2 in two parts; the first has 16 bits, so its product with n is exact.
    let r = n.mul_add(L::splat(-0.693_145_75), x);
    let r = n.mul_add(L::splat(-1.428_606_8e-6), r);
    let mut p = L::splat(1.989_103e-4);
    for coefficient in [1.393_368_6e-3, 8.333_311e-3, 4.166_646_5e-2, 0.166_666_67, 0.5] {
        p = p.mul_add(r, L::splat(coefficient));
    }
    let p = r.mul(r).mul_add(p, r).add(L::splat(1.0));
    // Two factors: 2^n alone overflows at n = 128, and a subnormal result must be rounded once, at the end.
    let (a, b) = rounded.powers();
    p.mul(a).mul(b)
}

#[inline(always)]
fn one_plus_e_neg<L: Lanes>(x: L) -> L {
    e(x.neg()).add(L::splat(1.0))
}

// Applies an expression to every element of a slice, and of a second one beside it: the last group is computed in
// full lanes as well, so that an element's bits do not depend on its position.
macro_rules! each {
    ($x:ident => $result:expr) => {{
        let (whole, tail) = $x.as_chunks_mut();
        for to in whole {
            let $x = L::load(to);
            $result.store(to);
        }
        if !tail.is_empty() {
            let $x = L::load_tail(tail);
            $result.store_tail(tail);
        }
    }};
    ($x:ident, $y:ident => $result:expr) => {{
        let length = $x.len().min($y.len());
        let ((whole, tail), (others, other_tail)) = ($x[..length].as_chunks_mut(), $y[..length].as_chunks());
        for (to, other) in whole.iter_mut().zip(others) {
            let ($x, $y) = (L::load(to), L::load(other));
            $result.store(to);
        }
        if !tail.is_empty() {
            let ($x, $y) = (L::load_tail(tail), L::load_tail(other_tail));
            $result.store_tail(tail);
        }
    }};
}

#[inline(always)]
fn exp_lanes<L: Lanes>(x: &mut [f32]) {
    each!(x => e(x));
}

#[inline(always)]
fn exp_shifted_lanes<L: Lanes>(x: &mut [f32], shift: f32) {
    let shift = L::splat(shift);
    each!(x => e(x.sub(shift)));
}

#[inline(always)]
fn sigmoid_lanes<L: Lanes>(x: &mut [f32]) {
    each!(x => L::splat(1.0).div(one_plus_e_neg(x)));
}

#[inline(always)]
fn silu_lanes<L: Lanes>(x: &mut [f32]) {
    each!(x => x.div(one_plus_e_neg(x)));
}

#[inline(always)]
fn silu_multiply_lanes<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    each!(gate, up => gate.div(one_plus_e_neg(gate)).mul(up));
}

#[inline(always)]
fn sigmoid_multiply_lanes<L: Lanes>(y: &mut [f32], gate: &[f32]) {
    each!(y, gate => y.mul(L::splat(1.0).div(one_plus_e_neg(gate))));
}
