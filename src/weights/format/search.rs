//! The search for scales that store values with the least squared error.
//!
//! Owns: least-squares scales for signed codes, codes with an offset and the codebook; rounding to codes.
//! Always true: among the candidates is plain rounding with the scale that just spans the values, so a result is never
//! worse than that, the rounding of scales apart. Zeros have the scale 0.
//! Not here: layouts.

use half::f16;

use super::block::CODEBOOK;

/// The largest finite F16.
pub const HALF_MAX: f32 = 65504.0;

/// The F16 nearest to a scale, and the factor that turns values into codes with it (0 if the scale rounds to 0).
pub fn half(scale: f32) -> (f16, f32) {
    let half = f16::from_f32(scale.clamp(-HALF_MAX, HALF_MAX));
    (half, inverse(half.to_f32()))
}

/// `1 / scale`, 0 for 0.
pub fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// The nearest integer within bounds.
#[inline]
pub fn round(value: f32, least: i32, most: i32) -> i32 {
    (value.round_ties_even() as i32).clamp(least, most)
}

/// The code whose codebook entry is nearest.
#[inline]
pub fn nearest(word: f32) -> u8 {
    // An entry holds everything up to the middle between it and the next.
    CODEBOOK.windows(2).filter(|pair| 2.0 * word > f32::from(pair[0]) + f32::from(pair[1])).count() as u8
}

/// The value that is furthest from zero.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |extreme: f32, &value| if value.abs() > extreme.abs() { value } else { extreme })
}

/// The scale among `words` (what the extreme value may become) and their least-squares refinements under which
/// `code(value / scale)` leaves the least squared error.
fn best_scale(values: &[f32], words: impl Iterator<Item = f32>, code: impl Fn(f32) -> f32) -> f32 {
    let extreme = extreme(values);
    if extreme == 0.0 {
        return 0.0;
    }
    let (mut best, mut least) = (0.0, f32::INFINITY);
    for word in words {
        let scale = extreme / word;
        // Scales below 2^-126 times a word have no inverse; F16 rounds them to zero anyway.
        let inverse = if scale.abs() > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
        let (mut xq, mut qq, mut plain) = (0.0, 0.0, 0.0);
        for &x in values {
            let q = code(x * inverse);
            xq += x * q;
            qq += q * q;
            plain += (x - scale * q) * (x - scale * q);
        }
        if plain < least {
            (best, least) = (scale, plain);
        }
        if qq == 0.0 {
            continue;
        }
        let refined = xq / qq;
        let error: f32 = values.iter().map(|&x| (x - refined * code(x * inverse)).powi(2)).sum();
        if error < least {
            (best, least) = (refined, error);
        }
    }
    best
}

/// Scale for codes `-half ..= half - 1`.
pub fn signed_scale(values: &[f32], half: i32) -> f32 {
    let (least, most) = (-half as f32, (half - 1) as f32);
    // The extreme value becomes about -half; the steps of a quarter try which way the others round best.
    let words = (-4..=4 + half.min(8)).map(|step| least + 0.25 * step as f32);
    best_scale(values, words, |q| q.round_ties_even().clamp(least, most))
}

/// Scale for the words of the codebook.
pub fn codebook_scale(values: &[f32]) -> f32 {
    // Either end of the codebook can take the extreme value.
    let words = (-4..=6).flat_map(|step| [-127.0 + 4.0 * step as f32, 113.0 - 4.0 * step as f32]);
    best_scale(values, words, |word| f32::from(CODEBOOK[usize::from(nearest(word))]))
}

/// Scale and offset for `scale * q + offset`, 0 <= q <= `most`; `offset` at most `ceiling`.
pub fn offset_scale(values: &[f32], most: i32, ceiling: f32) -> (f32, f32) {
    let (low, high) = values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
    let low = low.min(ceiling);
    if high - low <= f32::MIN_POSITIVE {
        return (0.0, low);
    }
    let n = values.len() as f32;
    let (mut best, mut least) = ((0.0, low), f32::INFINITY);
    for step in -4..=4 {
        let scale = (high - low) / (most as f32 + 0.2 * step as f32);
        let code = |x: f32| ((x - low) / scale).round_ties_even().clamp(0.0, most as f32);
        let (mut q1, mut q2, mut x1, mut xq) = (0.0, 0.0, 0.0, 0.0);
        for &x in values {
            let q = code(x);
            q1 += q;
            q2 += q * q;
            x1 += x;
            xq += x * q;
        }
        let determinant = n * q2 - q1 * q1;
        let mut refined = (scale, low);
        if determinant > 0.0 {
            refined = ((n * xq - x1 * q1) / determinant, (q2 * x1 - q1 * xq) / determinant);
            if refined.1 > ceiling {
                refined = ((xq - ceiling * q1) / q2, ceiling);
            }
        }
        for (scale, offset) in [(scale, low), refined] {
            let error = values.iter().map(|&x| (x - scale * code(x) - offset).powi(2)).sum();
            if error < least {
                ((best.0, best.1), least) = ((scale, offset), error);
            }
        }
    }
    best
}
