//! Rotary embedding (spec 2.0): the frequencies, and the rotation of the leading dimensions of a head.
//!
//! Owns: inverse frequencies (YaRN included), the step's table of cosines and sines.
//! Always true: angles are F32 products of position and frequency; half-split pairing.

use half::bf16;

use crate::config::{RopePrecision, RopeShape, YarnShape};

/// Frequencies and the table of the current step.
pub struct Rope {
    inverse: Vec<f32>,
    scale: f32,
    precision: RopePrecision,
    /// `[rows, half]` cosines of the step.
    cos: Vec<f32>,
    /// `[rows, half]` sines of the step.
    sin: Vec<f32>,
}

impl Rope {
    /// Plans a table of up to `max_rows` rows.
    pub fn new(shape: &RopeShape, precision: RopePrecision, max_rows: usize) -> Rope {
        let half = shape.rotary_dim / 2;
        Rope {
            inverse: inverse_frequencies(shape),
            scale: shape.yarn.map_or(1.0, |y| y.attention_factor as f32),
            precision,
            cos: Vec::with_capacity(max_rows * half),
            sin: Vec::with_capacity(max_rows * half),
        }
    }

    /// Number of rotating pairs.
    pub fn half(&self) -> usize {
        self.inverse.len()
    }

    /// Computes the step's table.
    pub fn begin(&mut self, positions: &[u32]) {
        self.cos.clear();
        self.sin.clear();
        for &position in positions {
            for i in 0..self.half() {
                let (cos, sin) = self.angle(position, i);
                self.cos.push(cos);
                self.sin.push(sin);
            }
        }
    }

    fn angle(&self, position: u32, i: usize) -> (f32, f32) {
        let angle = position as f32 * self.inverse[i];
        let (cos, sin) = (angle.cos() * self.scale, angle.sin() * self.scale);
        match self.precision {
            RopePrecision::F32 => (cos, sin),
            RopePrecision::Bf16 => (bf16::from_f32(cos).to_f32(), bf16::from_f32(sin).to_f32()),
        }
    }

    /// The step's cosines and sines, `[rows, half]` each.
    pub fn table(&self) -> (&[f32], &[f32]) {
        (&self.cos, &self.sin)
    }

    /// Rotates the head of row `row` of the step.
    pub fn rotate(&self, row: usize, head: &mut [f32]) {
        let half = self.half();
        let table = row * half..(row + 1) * half;
        rotate(head, &self.cos[table.clone()], &self.sin[table]);
    }

    /// Rotates a head that stands at `position`, which need not be in the step.
    pub fn rotate_at(&self, position: u32, head: &mut [f32]) {
        let half = self.half();
        let (first, rest) = head.split_at_mut(half);
        for i in 0..half {
            let (cos, sin) = self.angle(position, i);
            (first[i], rest[i]) = (first[i] * cos - rest[i] * sin, rest[i] * cos + first[i] * sin);
        }
    }
}

fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (first, rest) = head.split_at_mut(cos.len());
    for i in 0..cos.len() {
        (first[i], rest[i]) = (first[i] * cos[i] - rest[i] * sin[i], rest[i] * cos[i] + first[i] * sin[i]);
    }
}

/// `theta^(-2i/d)`, blended with the same divided by the factor where YaRN says so.
fn inverse_frequencies(shape: &RopeShape) -> Vec<f32> {
    let d = shape.rotary_dim as f64;
    (0..shape.rotary_dim / 2)
        .map(|i| {
            let plain = (1.0 / shape.theta.powf(2.0 * i as f64 / d)) as f32;
            match &shape.yarn {
                None => plain,
                Some(yarn) => yarn_frequency(plain as f64, i, shape, yarn) as f32,
            }
        })
        .collect()
}

/// YaRN (Peng et al. 2023, section 3.2): fast dimensions keep their frequency, slow ones are divided by the factor.
fn yarn_frequency(plain: f64, i: usize, shape: &RopeShape, yarn: &YarnShape) -> f64 {
    let d = shape.rotary_dim as f64;
    let dimension = |rotations: f64| {
        d * (yarn.original as f64 / (rotations * 2.0 * std::f64::consts::PI)).ln() / (2.0 * shape.theta.ln())
    };
    let low = dimension(yarn.beta_fast).floor().max(0.0);
    let high = dimension(yarn.beta_slow).ceil().min(d - 1.0);
    let ramp = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
    plain / yarn.factor * ramp + plain * (1.0 - ramp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_released_frequencies_are_those_of_the_spec() {
        let shape = RopeShape { theta: 1e7, rotary_dim: 64, yarn: None };
        let inverse = inverse_frequencies(&shape);
        // Half a unit of the last digit that section 2.0 prints, and half of an F32's last place.
        for (i, expected, unit) in [(0, 1.0, 0.0), (1, 0.60429639, 1e-8), (2, 0.36517413, 1e-8), (31, 1.6548e-7, 1e-11)]
        {
            let tolerance = 0.5 * (unit + expected * f32::EPSILON as f64);
            assert!((inverse[i] as f64 - expected).abs() <= tolerance, "{i}: {}", inverse[i]);
        }
    }

    #[test]
    fn yarn_keeps_fast_dimensions_and_divides_slow_ones() {
        let yarn = YarnShape {
            factor: 4.0,
            original: 262_144,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 0.1 * 4f64.ln() + 1.0,
        };
        let plain = RopeShape { theta: 1e7, rotary_dim: 64, yarn: None };
        let stretched = inverse_frequencies(&RopeShape { yarn: Some(yarn), ..plain });
        let plain = inverse_frequencies(&plain);
        assert_eq!(stretched[0], plain[0]);
        assert_eq!(stretched[31], plain[31] / 4.0);
        assert!((1.1386 - yarn.attention_factor).abs() < 5e-5);
    }
}
