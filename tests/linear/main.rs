//! Matrix products, vector kernels and experts on the CPU: one order of every sum, whoever computes it.
//!
//! Owns: equality of bits between executors, batches, threads and cuts; bounds against f64 that follow from the type
//! and the length of a sum.
//! Not here: speed (`benches/linear.rs`).

mod experts;
mod products;
mod vectors;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipfire::backend::cpu::lanes::{Executor, executor, force_portable};
use hipfire::weights::{BlockScales, Bytes, Format, Matrix};

pub const FORMATS: [Format; 4] = [Format::F32, Format::F16, Format::Bf16, Format::F8E4m3];

/// Half a unit in the last place of 1.0: the relative error of one rounding.
pub const U: f64 = f32::EPSILON as f64 / 2.0;

/// The choice of executor belongs to the process: whoever changes it holds this.
pub fn alone() -> MutexGuard<'static, ()> {
    static CHOICE: Mutex<()> = Mutex::new(());
    CHOICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` portably, then as the processor can, and demands the same bits.
pub fn same_on_both(what: &str, mut f: impl FnMut() -> Vec<f32>) -> Vec<f32> {
    let _alone = alone();
    force_portable(true);
    assert_eq!(executor(), Executor::Portable);
    let portable = f();
    force_portable(false);
    let fast = f();
    assert_same(what, &portable, &fast);
    fast
}

pub fn assert_same(what: &str, a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{what}: element {i} is {a:e} and {b:e}");
    }
}

/// splitmix64: reproducible values without a dependency.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let v = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        v ^ (v >> 31)
    }
    /// In (-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
    pub fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.unit()).collect()
    }
    pub fn matrix(&mut self, format: Format, rows: usize, cols: usize) -> Matrix {
        let mut data = Vec::new();
        for _ in 0..rows * cols {
            let value = self.unit();
            match format {
                Format::F32 => data.extend(value.to_le_bytes()),
                Format::F16 => data.extend(half::f16::from_f32(value).to_le_bytes()),
                Format::Bf16 => data.extend(half::bf16::from_f32(value).to_le_bytes()),
                // Every byte that isn't NaN, subnormals included.
                Format::F8E4m3 => data.push((self.bits() % 127) as u8 | ((self.bits() & 1) as u8) << 7),
                _ => unreachable!(),
            }
        }
        let block = 128;
        let scales = (format == Format::F8E4m3).then(|| {
            let (down, across) = (rows.div_ceil(block), cols.div_ceil(block));
            let values = (0..down * across).map(|_| (self.unit() + 1.5) / 448.0).collect();
            Arc::new(BlockScales { block, across, row_offset: 0, values })
        });
        // One byte in front: rows have no alignment to rely on.
        data.insert(0, 0);
        let data = Bytes::heap(data).slice(1..1 + rows * format.row_bytes(cols)).unwrap();
        Matrix { name: format!("{format} {rows}x{cols}"), format, rows, cols, data, scales }
    }
}

/// Decodes by the definition of the format, without this backend.
pub fn value(w: &Matrix, r: usize, c: usize) -> f32 {
    let row = w.row(r);
    match w.format {
        Format::F32 => f32::from_le_bytes(row[4 * c..4 * c + 4].try_into().unwrap()),
        Format::F16 => half::f16::from_le_bytes([row[2 * c], row[2 * c + 1]]).to_f32(),
        Format::Bf16 => half::bf16::from_le_bytes([row[2 * c], row[2 * c + 1]]).to_f32(),
        Format::F8E4m3 => {
            e4m3(row[c]) * w.scales.as_ref().map_or(1.0, |s| s.values[r / s.block * s.across + c / s.block])
        }
        _ => unreachable!(),
    }
}

pub fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The order that the backend promises, written out.
pub fn ordered_dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 8];
    for k in 0..a.len().next_multiple_of(8) {
        let (a, b) = (a.get(k).copied().unwrap_or(0.0), b.get(k).copied().unwrap_or(0.0));
        lanes[k % 8] = a.mul_add(b, lanes[k % 8]);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}
