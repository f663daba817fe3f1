//! Storage formats of weights: how many bytes a row takes and what each element's value is.
//!
//! Owns: the layout of every format, as the contract that kernels follow, and a scalar decode that is their oracle.
//! Not here: fast products on packed bytes (`backend::cpu`).

use std::fmt;

use half::{bf16, f16};

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

    /// Values of `out.len()` consecutive elements: exact, every stored value is an F32. `bytes` holds exactly these
    /// elements. [`Format::I64`] is not a weight: it decodes to NaN, so that a use shows up (see `Tensor::to_i64`).
    pub fn decode_row(self, bytes: &[u8], out: &mut [f32]) {
        debug_assert_eq!(bytes.len(), self.row_bytes(out.len()));
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
            Format::I64 => out.fill(f32::NAN),
        }
    }

    /// Appends `values` in this format, each rounded to the nearest (ties to even). BF16 and F16 overflow to infinity
    /// as IEEE 754 says; E4M3 has none and saturates at ±448. [`Format::I64`] truncates and saturates.
    pub fn encode_row(self, values: &[f32], out: &mut Vec<u8>) {
        out.reserve(self.row_bytes(values.len()));
        match self {
            Format::F32 => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            Format::F16 => out.extend(values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes())),
            Format::Bf16 => out.extend(values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes())),
            Format::F8E4m3 => out.extend(values.iter().map(|v| encode_e4m3(*v))),
            Format::I64 => out.extend(values.iter().flat_map(|v| (*v as i64).to_le_bytes())),
        }
    }
}

/// The largest finite E4M3 value.
pub const E4M3_MAX: f32 = 448.0;

/// The value of every E4M3 byte.
pub static E4M3: [f32; 256] = e4m3_values();

const fn e4m3_values() -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (exponent, mantissa) = ((byte >> 3) & 15, (byte & 7) as f32);
        // Bias 7 and three mantissa bits: a subnormal counts in units of 2^-9, as exponent 1 does.
        let magnitude = match (exponent, byte & 7) {
            (15, 7) => f32::NAN,
            (0, _) => mantissa / 512.0,
            _ => (8.0 + mantissa) / 512.0 * (1u32 << (exponent - 1)) as f32,
        };
        values[byte] = if byte < 128 { magnitude } else { -magnitude };
        byte += 1;
    }
    values
}

/// The E4M3 byte nearest to `value`, ties to even; beyond ±448 it saturates, NaN stays NaN.
pub fn encode_e4m3(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | 0x7f;
    }
    if magnitude >= E4M3_MAX {
        return sign | 0x7e;
    }
    // 2^-6 is the smallest normal value. Below it the grid is even: units of 2^-9, and unit 8 is again 2^-6.
    if magnitude < 0.015625 {
        return sign | (magnitude * 512.0).round_ties_even() as u8;
    }
    // Round the 23 mantissa bits to 3; a carry runs into the exponent as it should. 120 = 127 - 7, the biases.
    let bits = magnitude.to_bits();
    let rounded = (bits + 0x7_ffff + ((bits >> 20) & 1)) >> 20;
    sign | (rounded - (120 << 3)).min(0x7e) as u8
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_decodes_the_published_landmarks() {
        for (byte, value) in [(0x00, 0.0), (0x01, 0.001953125), (0x07, 0.013671875), (0x08, 0.015625), (0x38, 1.0)] {
            assert_eq!(E4M3[byte], value);
            assert_eq!(E4M3[byte | 0x80], -value);
        }
        assert_eq!((E4M3[0x7e], E4M3[0xfe]), (448.0, -448.0));
        assert!(E4M3[0x7f].is_nan() && E4M3[0xff].is_nan());
        assert_eq!(E4M3.iter().filter(|v| v.is_nan()).count(), 2);
    }

    #[test]
    fn e4m3_encodes_every_value_to_itself() {
        for byte in 0..=255u8 {
            assert_eq!(encode_e4m3(E4M3[usize::from(byte)]), byte);
        }
    }

    #[test]
    fn e4m3_rounds_to_nearest_and_ties_to_even_everywhere() {
        // Between two neighbours: just below the middle goes down, just above goes up, the middle to the even byte.
        for low in 0..0x7eu8 {
            let (a, b) = (E4M3[usize::from(low)], E4M3[usize::from(low) + 1]);
            let middle = (a + b) / 2.0;
            assert_eq!(encode_e4m3(middle.next_down()), low);
            assert_eq!(encode_e4m3(middle.next_up()), low + 1);
            assert_eq!(encode_e4m3(middle), low + (low & 1));
            assert_eq!(encode_e4m3(-middle), 0x80 | (low + (low & 1)));
        }
        assert_eq!(encode_e4m3(f32::INFINITY), 0x7e);
        assert_eq!(encode_e4m3(-1e9), 0xfe);
        assert_eq!(encode_e4m3(f32::NAN) & 0x7f, 0x7f);
    }

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
