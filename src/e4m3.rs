//! E4M3: the 8-bit floating-point format of FP8 checkpoints and caches.
//!
//! Owns: the value of every byte and the byte nearest to a value, for weights and caches alike.
//! Always true: finite only: `0x7f` and `0xff` are NaN, there is no infinity.
//! Not here: the scales of FP8 checkpoints (`weights::BlockScales`) and of fp8 caches (`state::kv`).

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

/// E4M3 nearest to `x`, ties to even. Beyond 448, infinity included, it saturates to 448; NaN stays NaN; the sign is
/// kept, also of zero.
#[inline]
pub fn encode_e4m3(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let magnitude = x.to_bits() & 0x7fff_ffff;
    let absolute = f32::from_bits(magnitude);
    let code = if absolute.is_nan() {
        0x7f
    } else if absolute >= E4M3_MAX {
        0x7e
    } else if absolute < 0.015625 {
        // Subnormal, steps of 2^-9: one unit in the last place of 2^14, so the addition rounds.
        (absolute + 16384.0).to_bits() - 16384f32.to_bits()
    } else {
        // 20 of 23 mantissa bits go, the exponent's bias goes from 127 to 7; a carry moves into the exponent.
        ((magnitude + 0x7_ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3)
    };
    sign | code as u8
}

/// The value of an E4M3 byte that is not NaN, as [`E4M3`] has it: sign, exponent and mantissa in their F32 places, then
/// the bias corrected by 2^120. Subnormals come out right too, and a compiler can vectorise rows of it, which it cannot
/// with a table.
#[inline]
pub fn e4m3_number(byte: u8) -> f32 {
    let bits = (i32::from(byte as i8) << 20) as u32 & 0x87f0_0000;
    f32::from_bits(bits) * f32::from_bits((120 + 127) << 23)
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
}
