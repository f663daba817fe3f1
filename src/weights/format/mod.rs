//! Storage formats of weights: how many bytes a row takes and what each element's value is.
//!
//! Owns: the formats, their sizes, a scalar decode that is the oracle of every kernel, and an encoder for each.
//! Always true: the layout of a block-quantised format is the struct of its name (`block32`, `offset256`,
//! `signed256`), and no other code knows where its bits lie. Blocks run along a row and never across its end.
//! Not here: fast products on packed bytes (`backend::cpu`); MXFP4, which no published file of this model uses.

mod block;
pub mod block32;
pub mod offset256;
mod search;
pub mod signed256;

use std::fmt;

use half::{bf16, f16};
use rayon::prelude::*;

pub use crate::e4m3::{E4M3, E4M3_MAX, encode_e4m3};
use crate::error::{Error, Result};
pub(crate) use block::for_block;
pub use block::{Block, CODEBOOK, codebook};

/// How a matrix row is stored. All little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// 4 bytes an element, IEEE 754.
    F32,
    /// 2 bytes an element, IEEE 754 half.
    F16,
    /// 2 bytes an element: the upper half of an F32.
    Bf16,
    /// 1 byte an element: E4M3, finite only (`0x7f` and `0xff` are NaN, which [`Format::check_numbers`] refuses; the
    /// largest is 448); scales lie beside it.
    F8E4m3,
    /// 8 bytes an element, a signed integer: hash constants only, never a weight.
    I64,
    /// 8.5 bits an element: [`block32::Q8_0`].
    Q8_0,
    /// 4.5 bits an element: [`block32::Q4_0`].
    Q4_0,
    /// 5 bits an element: [`block32::Q4_1`].
    Q4_1,
    /// 5.5 bits an element: [`block32::Q5_0`].
    Q5_0,
    /// 6 bits an element: [`block32::Q5_1`].
    Q5_1,
    /// 2.625 bits an element: [`offset256::Q2K`].
    Q2K,
    /// 3.4375 bits an element: [`signed256::Q3K`].
    Q3K,
    /// 4.5 bits an element: [`offset256::Q4K`].
    Q4K,
    /// 5.5 bits an element: [`offset256::Q5K`].
    Q5K,
    /// 6.5625 bits an element: [`signed256::Q6K`].
    Q6K,
    /// 4.5 bits an element: [`block32::Iq4Nl`].
    Iq4Nl,
    /// 4.25 bits an element: [`signed256::Iq4Xs`].
    Iq4Xs,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 17] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::F8E4m3,
        Format::I64,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Iq4Nl,
        Format::Iq4Xs,
    ];

    /// Consecutive elements that are stored together: 1, 32 or 256. A row holds whole blocks.
    pub const fn block(self) -> usize {
        for_block!(self, B => B::COLUMNS, else 1)
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        for_block!(self, B => size_of::<B>(), else match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::I64 => 8,
            _ => 1,
        })
    }

    /// Bytes of `cols` consecutive elements, a multiple of [`Format::block`].
    pub const fn row_bytes(self, cols: usize) -> usize {
        cols.div_ceil(self.block()) * self.block_bytes()
    }

    /// Whether elements share scales that lie among them, so that a row cannot be cut at any element.
    pub const fn is_quantised(self) -> bool {
        self.block() > 1
    }

    /// An error that names the tensor unless rows of `cols` elements are whole blocks. For loaders: nothing behind
    /// them checks again.
    pub fn check_columns(self, tensor: &str, cols: usize) -> Result<()> {
        if cols.is_multiple_of(self.block()) {
            return Ok(());
        }
        Err(Error::model(format!(
            "tensor '{tensor}' is {self} with rows of {cols} elements, and {self} stores blocks of {}",
            self.block()
        )))
    }

    /// An error that names the tensor and the element if one of `bytes` is a NaN of E4M3; other formats pass. For loaders:
    /// products read E4M3 by a shift of its bits, which makes 480 of a NaN. Reads every byte once, on all cores.
    pub fn check_numbers(self, tensor: &str, bytes: &[u8]) -> Result<()> {
        /// Bytes a core looks at before it asks whether another has found one.
        const PART: usize = 1 << 16;
        if self != Format::F8E4m3 {
            return Ok(());
        }
        let nan = |byte: &u8| byte & 0x7f == 0x7f;
        // Without a way out of the loop, so that it runs in vectors.
        let found = bytes
            .par_chunks(PART)
            .position_first(|part| part.iter().fold(false, |any, byte| any | nan(byte)))
            .and_then(|part| Some(part * PART + bytes[part * PART..].iter().position(nan)?));
        match found {
            None => Ok(()),
            Some(at) => Err(Error::model(format!(
                "tensor '{tensor}' has no number at element {at}: the byte {:#04x} is a NaN in {self}; the file is damaged \
                 or was written by a conversion that overflowed",
                bytes[at]
            ))),
        }
    }

    /// Values of `out.len()` consecutive elements: the exact value of what is stored, rounded to f32 once. `bytes` holds
    /// exactly these elements. [`Format::I64`] is not a weight: it decodes to NaN, so that a use shows up (see
    /// `Tensor::to_i64`).
    pub fn decode_row(self, bytes: &[u8], out: &mut [f32]) {
        debug_assert_eq!(bytes.len(), self.row_bytes(out.len()));
        for_block!(self, B => return block::decode::<B>(bytes, out), else ());
        match self {
            Format::F32 => {
                for (to, from) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *to = f32::from_le_bytes(*from);
                }
            }
            Format::F16 => {
                for (to, from) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *to = f16::from_le_bytes(*from).to_f32();
                }
            }
            Format::Bf16 => {
                for (to, from) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *to = bf16::from_le_bytes(*from).to_f32();
                }
            }
            Format::F8E4m3 => {
                for (to, from) in out.iter_mut().zip(bytes) {
                    *to = E4M3[usize::from(*from)];
                }
            }
            _ => out.fill(f32::NAN),
        }
    }

    /// Appends `values` in this format, each rounded to the nearest (ties to even). BF16 and F16 overflow to infinity
    /// as IEEE 754 says; E4M3 has none and saturates at ±448. [`Format::I64`] truncates and saturates. The quantised
    /// formats take whole blocks of finite values and choose the scales that leave the least squared error.
    pub fn encode_row(self, values: &[f32], out: &mut Vec<u8>) {
        out.reserve(self.row_bytes(values.len()));
        for_block!(self, B => return block::encode::<B>(values, out), else ());
        match self {
            Format::F32 => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            Format::F16 => out.extend(values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes())),
            Format::Bf16 => out.extend(values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes())),
            Format::F8E4m3 => out.extend(values.iter().map(|v| encode_e4m3(*v))),
            _ => out.extend(values.iter().flat_map(|v| (*v as i64).to_le_bytes())),
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
            Format::Q8_0 => "Q8_0",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q2K => "Q2_K",
            Format::Q3K => "Q3_K",
            Format::Q4K => "Q4_K",
            Format::Q5K => "Q5_K",
            Format::Q6K => "Q6_K",
            Format::Iq4Nl => "IQ4_NL",
            Format::Iq4Xs => "IQ4_XS",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_format_returns_what_it_can_represent() {
        let values = [0.0, -1.5, 0.25, 448.0, -0.015625];
        for format in [Format::F32, Format::F16, Format::Bf16, Format::F8E4m3] {
            let mut bytes = Vec::new();
            format.encode_row(&values, &mut bytes);
            assert_eq!(bytes.len(), format.row_bytes(values.len()));
            let mut back = [0.0; 5];
            format.decode_row(&bytes, &mut back);
            assert_eq!(back, values, "{format}");
        }
    }

    #[test]
    fn a_nan_of_e4m3_is_found_wherever_it_stands_and_other_formats_have_none() {
        let numbers: Vec<u8> = (0..200_000).map(|i| (i % 127) as u8 | ((i / 127 % 2) as u8) << 7).collect();
        assert!(Format::F8E4m3.check_numbers("w", &numbers).is_ok());
        for (at, byte) in [(0, 0x7f), (65_535, 0xff), (65_536, 0x7f), (199_999, 0xff)] {
            let mut damaged = numbers.clone();
            damaged[at] = byte;
            let sentence = Format::F8E4m3.check_numbers("w", &damaged).unwrap_err().to_string();
            assert!(sentence.contains("'w'") && sentence.contains(&format!("element {at}:")), "{sentence}");
            assert!(sentence.contains(&format!("{byte:#04x}")), "{sentence}");
            assert!(Format::Q8_0.check_numbers("w", &damaged).is_ok());
        }
    }

    #[test]
    fn sixteen_bit_formats_round_ties_to_even() {
        let tie = |format: Format, value: f32| {
            let mut bytes = Vec::new();
            format.encode_row(&[value], &mut bytes);
            let mut back = [0.0];
            format.decode_row(&bytes, &mut back);
            back[0]
        };
        // BF16 has 7 mantissa bits, F16 has 10.
        assert_eq!(tie(Format::Bf16, 1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(tie(Format::Bf16, 1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(tie(Format::F16, 1.0 + 1.0 / 2048.0), 1.0);
        assert_eq!(tie(Format::F16, 1.0 + 3.0 / 2048.0), 1.0 + 4.0 / 2048.0);
    }
}
