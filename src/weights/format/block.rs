//! What all block-quantised formats have in common.
//!
//! Owns: [`Block`], the match over all of them, decode and encode of a row.
//! Always true: an element is `d * word + m * offset`: both products are exact in f32 (11 bits of an F16 times at most
//! 13), their sum is rounded once. `word` and `offset` are small integers, `d` and `m` F16 (m = 0 where there is none).
//! Not here: where a format keeps them (`block32`, `offset256`, `signed256`).

use bytemuck::Pod;
use half::f16;

/// The bytes of one block, and the integers in them. The bounds that products rely on: `|word| <= 4096`,
/// `0 <= offset <= 63`.
pub trait Block: Pod {
    /// Elements of a block: 32 or 256.
    const COLUMNS: usize;
    /// Whether there are offsets.
    const OFFSET: bool = false;
    /// `[d, m]`, F16 bits.
    fn factors(&self) -> [u16; 2];
    /// The word of every element, `[COLUMNS]`. `look_up` is [`codebook`] or something faster.
    fn words(&self, look_up: impl Fn(&[u8; 16]) -> [i8; 16], words: &mut [i16]);
    /// The offset of every 16 elements, `[COLUMNS / 16]`; zeros if there are none.
    #[inline(always)]
    fn offsets(&self, offsets: &mut [i16]) {
        offsets.fill(0);
    }
    /// The block that stores `values` (`[COLUMNS]`, finite) with little squared error.
    fn encode(values: &[f32]) -> Self;
}

/// Words of the 16 codes of IQ4_NL and IQ4_XS.
pub const CODEBOOK: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The words of 16 codes below 16.
pub fn codebook(codes: &[u8; 16]) -> [i8; 16] {
    codes.map(|code| CODEBOOK[usize::from(code & 15)])
}

/// Evaluates an expression with `$B` as the block of a quantised format, another one for all other formats.
macro_rules! for_block {
    ($format:expr, $B:ident => $quantised:expr, else $other:expr) => {
        $crate::weights::format::for_block!(@ $format, $B, $quantised, $other,
            block32: Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Iq4Nl, offset256: Q2K Q4K Q5K, signed256: Q3K Q6K Iq4Xs)
    };
    (@ $format:expr, $B:ident, $quantised:expr, $other:expr, $($module:ident: $($name:ident)*),*) => {
        match $format {
            $($($crate::weights::Format::$name => {
                type $B = $crate::weights::format::$module::$name;
                $quantised
            })*)*
            _ => $other,
        }
    };
}
pub(crate) use for_block;

/// Most elements of a block.
const MOST: usize = 256;

/// Values of whole blocks.
pub fn decode<B: Block>(bytes: &[u8], out: &mut [f32]) {
    let blocks: &[B] = bytemuck::cast_slice(bytes);
    for (block, out) in blocks.iter().zip(out.chunks_exact_mut(B::COLUMNS)) {
        let (mut words, mut offsets) = ([0; MOST], [0; MOST / 16]);
        block.words(codebook, &mut words[..B::COLUMNS]);
        block.offsets(&mut offsets[..B::COLUMNS / 16]);
        let [d, m] = block.factors().map(|bits| f16::from_bits(bits).to_f32());
        for ((out, words), &offset) in out.chunks_exact_mut(16).zip(words.as_chunks::<16>().0).zip(&offsets) {
            for (out, &word) in out.iter_mut().zip(words) {
                let value = d * f32::from(word);
                *out = if B::OFFSET { value + m * f32::from(offset) } else { value };
            }
        }
    }
}

/// Appends whole blocks.
pub fn encode<B: Block>(values: &[f32], out: &mut Vec<u8>) {
    debug_assert!(values.len().is_multiple_of(B::COLUMNS), "a row of {} values is cut inside a block", values.len());
    for values in values.chunks_exact(B::COLUMNS) {
        out.extend_from_slice(bytemuck::bytes_of(&B::encode(values)));
    }
}
