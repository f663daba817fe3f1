//! Random weights of realistic scale, each a pure function of (seed, tensor name, index).
//!
//! Owns: the distributions (spec 8.2), the rounding that makes two storage formats hold equal values, and the FP8 scales.
//! Always true: a value does not depend on where or in which order it is written, so any layout can be streamed.
//! Not here: names, shapes and files (`checkpoint`).

use half::{bf16, f16};
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
    /// A packed expert tensor `[experts, parts * rows, cols]`, scaled as a matrix; FP8 blocks start anew in each part.
    Experts { parts: usize, rows: usize, cols: usize },
    /// The n-gram table: N(0, 1), one FP8 scale.
    Table,
}

/// The values of one tensor.
#[derive(Debug, Clone)]
pub struct Field {
    key: u64,
    draw: Draw,
    grid: Grid,
}

impl Field {
    /// The field of tensor `name`.
    pub fn new(seed: u64, name: &str, draw: Draw, grid: Grid) -> Field {
        // FNV-1a: all that matters is that names get different streams.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Field { key: mix(hash ^ mix(seed)), draw, grid }
    }

    /// Value of element `index` of the tensor in its canonical layout.
    pub fn value(&self, index: u64) -> f32 {
        let raw = match self.draw {
            Draw::Normal { mean, deviation } => mean + deviation * self.normal(index),
            Draw::DecayLog => (0.05 + 2.0 * (self.bits(index) >> 40) as f32 / (1 << 24) as f32).ln(),
            Draw::Experts { cols, .. } => matrix_deviation(cols) * self.normal(index),
            Draw::Table => self.normal(index),
        };
        match (self.grid, self.draw) {
            (Grid::F32, _) => raw,
            (Grid::Fp8, Draw::Experts { .. } | Draw::Table) => {
                let scale = self.scale(index);
                E4M3[usize::from(encode_e4m3(raw / scale))] * scale
            }
            _ => f16::from_f32(bf16::from_f32(raw).to_f32()).to_f32(),
        }
    }

    /// The FP8 scale of element `index`: a power of two, for experts one of three by block, so that a wrong block shows.
    pub fn scale(&self, index: u64) -> f32 {
        let (deviation, step) = match self.draw {
            Draw::Experts { parts, rows, cols } => {
                let (row, col) = (index / cols as u64, index % cols as u64);
                let (part, row) = (row / rows as u64, row % rows as u64);
                let block = ((part * rows.div_ceil(128) as u64 + row / 128) << 32) | (col / 128);
                debug_assert!(parts > 0);
                (matrix_deviation(cols), mix(self.key ^ block) % 3)
            }
            _ => (1.0, 0),
        };
        let least = (NORMAL_MAX * deviation / 448.0).log2().ceil();
        (least + step as f32).exp2()
    }

    /// Appends the value of element `index` as `format` stores it.
    pub fn encode(&self, index: u64, format: Format, out: &mut Vec<u8>) {
        let scale = if format == Format::F8E4m3 { self.scale(index) } else { 1.0 };
        format.encode_row(&[self.value(index) / scale], out);
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
