//! Random weights of realistic scale, each a pure function of (seed, tensor name, index).
//!
//! Owns: the distributions (spec 8.2), the rounding that makes two storage formats hold equal values, and the FP8 scales.
//! Always true: a value does not depend on where or in which order it is written, so any layout can be streamed.
//! Not here: names, shapes and files (`checkpoint`).

use half::bf16;
use hipfire::weights::format::{E4M3, Format, encode_e4m3};

/// Largest magnitude of [`Field::normal`], in standard deviations: the sum of four uniforms is bounded by 2 * sqrt(3).
const NORMAL_MAX: f32 = 3.4642;

/// Which values the weights may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// As drawn.
    F32,
    /// Representable in BF16 and in F16 alike: equal in F32, F16 and BF16 files.
    Half,
    /// Like `Half`; experts and the n-gram table also in FP8 with their power-of-two scales.
    Fp8,
}

/// How a tensor's values are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Draw {
    /// `mean + deviation * N(0, 1)`
    Normal { mean: f32, deviation: f32 },
    /// `ln(U(0.05, 2.05))`
    DecayLog,
    /// Packed matrices `[rows, cols]`, one after another, scaled as a matrix; FP8 blocks start anew in each.
    Experts { rows: usize, cols: usize },
    /// The n-gram table: N(0, 1), one FP8 scale.
    Table,
}

/// The values of one tensor.
#[derive(Debug, Clone)]
pub struct Field {
    key: u64,
    draw: Draw,
    grid: Grid,
    /// Exponent of the smallest FP8 scale that keeps every value within 448.
    least: i32,
    /// Of an expert's weights.
    deviation: f32,
}

impl Field {
    /// The field of tensor `name`.
    pub fn new(seed: u64, name: &str, draw: Draw, grid: Grid) -> Field {
        // FNV-1a: all that matters is that names get different streams.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let deviation = if let Draw::Experts { cols, .. } = draw { matrix_deviation(cols) } else { 1.0 };
        let least = (NORMAL_MAX * deviation / 448.0).log2().ceil() as i32;
        Field { key: mix(hash ^ mix(seed)), draw, grid, least, deviation }
    }

    /// Value of element `index` of the tensor in its canonical layout.
    pub fn value(&self, index: u64) -> f32 {
        let raw = self.raw(index);
        match (self.grid, self.draw) {
            (Grid::F32, _) => raw,
            (Grid::Fp8, Draw::Experts { .. } | Draw::Table) => {
                let scale = self.scale(index);
                E4M3[usize::from(encode_e4m3(raw / scale))] * scale
            }
            _ => half_grid(raw),
        }
    }

    /// The FP8 scale of element `index`: a power of two, for experts one of three by block, so that a wrong block shows.
    pub fn scale(&self, index: u64) -> f32 {
        let step = match self.draw {
            Draw::Experts { rows, cols } => {
                let (row, col) = (index / cols as u64, index % cols as u64);
                let (matrix, row) = (row / rows as u64, row % rows as u64);
                let block = ((matrix * rows.div_ceil(128) as u64 + row / 128) << 32) | (col / 128);
                mix(self.key ^ block) % 3
            }
            _ => 0,
        };
        // 2^exponent by its bits: exp2 would take most of a writer's time.
        f32::from_bits(((127 + self.least + step as i32) as u32) << 23)
    }

    /// What `format` stores for element `index`: its value, or with FP8 its value without the scale.
    pub fn stored(&self, index: u64, format: Format) -> f32 {
        if format != Format::F8E4m3 {
            return self.value(index);
        }
        // Rounding to the FP8 grid comes with encoding, and divides by the scale just once.
        let raw = if self.grid == Grid::Fp8 { self.raw(index) } else { self.value(index) };
        raw / self.scale(index)
    }

    fn raw(&self, index: u64) -> f32 {
        match self.draw {
            Draw::Normal { mean, deviation } => mean + deviation * self.normal(index),
            Draw::DecayLog => (0.05 + 2.0 * (self.bits(index) >> 40) as f32 / (1 << 24) as f32).ln(),
            Draw::Experts { .. } => self.deviation * self.normal(index),
            Draw::Table => self.normal(index),
        }
    }

    fn bits(&self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// About N(0, 1): the sum of four 16-bit uniforms. One multiplication chain a value, a gigabyte in seconds.
    fn normal(&self, index: u64) -> f32 {
        let bits = self.bits(index);
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        (sum as f32 - 131070.0) / 37837.23
    }
}

/// The BF16 value next to `raw` that F16 has too. F16 has more mantissa bits but stops at units of 2^-24, and weights stay
/// far from its largest value.
fn half_grid(raw: f32) -> f32 {
    let value = bf16::from_f32(raw).to_f32();
    const UNIT: f32 = 1.0 / (1 << 24) as f32;
    if value.abs() < 1024.0 * UNIT { (value / UNIT).round_ties_even() * UNIT } else { value }
}

/// Matrices keep a signal's size: 1.5 / sqrt(fan in).
pub fn matrix_deviation(cols: usize) -> f32 {
    1.5 / (cols as f32).sqrt()
}

/// splitmix64's finaliser.
fn mix(v: u64) -> u64 {
    let v = (v ^ (v >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    v ^ (v >> 31)
}
