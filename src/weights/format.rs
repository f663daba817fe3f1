//! Storage formats of weights: how many bytes a row takes and what each element's value is.
//!
//! Owns: the layout of every format, as the contract that kernels follow, and a scalar decode that is their oracle.
//! Not here: fast products on packed bytes (`backend::cpu`).

use std::fmt;

/// How a matrix row is stored. All little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// 4 bytes an element, IEEE 754.
    F32,
    /// 2 bytes an element, IEEE 754 half.
    F16,
    /// 2 bytes an element: the upper half of an F32.
    Bf16,
    /// 1 byte an element: E4M3, finite only (`0x7f` and `0xff` are NaN, the largest is 448); scales lie beside it.
    F8E4m3,
    /// 8 bytes an element, a signed integer: hash constants only, never a weight.
    I64,
}

impl Format {
    /// Bytes of `cols` consecutive elements.
    pub const fn row_bytes(self, cols: usize) -> usize {
        match self {
            Format::F32 => cols * 4,
            Format::F16 | Format::Bf16 => cols * 2,
            Format::F8E4m3 => cols,
            Format::I64 => cols * 8,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::Bf16 => "BF16",
            Format::F8E4m3 => "F8_E4M3",
            Format::I64 => "I64",
        })
    }
}
