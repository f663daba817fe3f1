//! Activations as 12-bit integers, for products with quantised weights.
//!
//! Owns: [`Activations`], how a row becomes integers and how far they are from it.
//! Always true: a block's scale is its greatest magnitude / 2047 and every word the nearest integer, so an element is
//! off by at most [`ERROR`] of its block's greatest magnitude: 16 times less than with the 8 bits that other engines
//! use, for the same number of instructions. A row's integers depend on that row only. A block below 2^-100 counts as
//! zero; one with a NaN or an infinity has the scale NaN, so that every product with it is NaN.
//! Not here: products (`quantised`).
//!
//! Words are kept twice: whole, and as two bytes (`word = 16 * high + low`), whose products with codes of weights run over
//! 32 elements an instruction.
//!
//! Why 12 bits: words of weights are at most 4096, so a product of 256 elements is at most 256 * 4096 * 2047 < 2^31, and
//! the sum of 16 words at most 16 * 2047 < 2^15: sums of a block are exact in 32 bits, offsets multiply 16-bit words.

use super::integers::{Integers, Signed};
use super::lanes::{ROUND, WIDTH, vectorised};

/// The greatest word.
pub const LEVELS: i16 = 2047;
/// Most that an element is off, as a share of its block's greatest magnitude: half a step, and the rounding of the
/// factor `2047 / greatest` (2047 steps times 2^-23, rounded up).
pub const ERROR: f32 = (0.5 + 0.001) / LEVELS as f32;

/// Rows are filled up with zeros to a multiple of this: eight blocks of 32.
const GROUP: usize = 256;

/// Rows of activations, cut into blocks of 32 or 256 elements. The buffers keep their memory.
#[derive(Default)]
pub struct Activations {
    block: usize,
    cols: usize,
    /// `[rows, width]`
    words: Vec<i16>,
    /// `[rows, width / 16]`
    bytes: Vec<Signed>,
    /// `[rows, width / 16]`: sums of 16 words.
    sums: Vec<i16>,
    /// `[rows, blocks rounded up to 8]`
    scales: Vec<f32>,
}

/// One row of [`Activations`]. `width` is the number of columns rounded up to 256; what lies behind them is zero.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// `[width]`
    pub words: &'a [i16],
    /// `[width / 64][first, second][high, low]` of 64 elements each. Blocks of 256: the first and the last 32 of them.
    /// Blocks of 32: the first halves of both blocks, then their second halves, as 4-bit codes of two blocks come.
    pub bytes: &'a [Signed],
    /// `[width / 16]`
    pub sums: &'a [i16],
    /// `[blocks rounded up to 8]`
    pub scales: &'a [f32],
}

/// One row of [`Activations`], being written.
struct RowMut<'a> {
    words: &'a mut [i16],
    bytes: &'a mut [Signed],
    sums: &'a mut [i16],
    scales: &'a mut [f32],
}

impl Activations {
    /// Takes `rows` rows of `cols` elements, row r being `row(r)`; `cols` is a multiple of `block`, 32 or 256. With
    /// `parallel`, on the current rayon pool.
    pub fn fill<'x>(
        &mut self,
        block: usize,
        cols: usize,
        rows: usize,
        row: impl Fn(usize) -> &'x [f32] + Sync,
        parallel: bool,
    ) {
        use rayon::prelude::*;
        (self.block, self.cols) = (block, cols);
        let (width, across) = (self.width(), self.scales_in_row());
        self.words.resize(rows * width, 0);
        self.bytes.resize(rows * width / 16, [0; 32]);
        self.sums.resize(rows * width / 16, 0);
        self.scales.resize(rows * across, 0.0);
        if cols == 0 {
            return;
        }
        let one = |(r, (((words, bytes), sums), scales))| pack(row(r), block, RowMut { words, bytes, sums, scales });
        if parallel {
            let words = self.words.par_chunks_exact_mut(width).zip(self.bytes.par_chunks_exact_mut(width / 16));
            let sums = self.sums.par_chunks_exact_mut(width / 16);
            let rows = words.zip(sums).zip(self.scales.par_chunks_exact_mut(across));
            rows.enumerate().with_min_len(4).for_each(one);
        } else {
            let words = self.words.chunks_exact_mut(width).zip(self.bytes.chunks_exact_mut(width / 16));
            let sums = self.sums.chunks_exact_mut(width / 16);
            words.zip(sums).zip(self.scales.chunks_exact_mut(across)).enumerate().for_each(one);
        }
    }

    /// Row `r`.
    #[inline]
    pub fn row(&self, r: usize) -> Row<'_> {
        let (width, across) = (self.width(), self.scales_in_row());
        Row {
            words: &self.words[r * width..][..width],
            bytes: &self.bytes[r * (width / 16)..][..width / 16],
            sums: &self.sums[r * (width / 16)..][..width / 16],
            scales: &self.scales[r * across..][..across],
        }
    }

    fn width(&self) -> usize {
        self.cols.next_multiple_of(GROUP)
    }

    fn scales_in_row(&self) -> usize {
        (self.cols / self.block).next_multiple_of(WIDTH)
    }
}

vectorised! {
    fn pack(x: &[f32], block: usize, row: RowMut<'_>) = pack_lanes;
}

#[inline(always)]
fn pack_lanes<L: Integers>(x: &[f32], block: usize, row: RowMut<'_>) {
    let blocks = row.words[..x.len()].chunks_exact_mut(block).zip(row.sums.chunks_exact_mut(block / 16));
    for ((x, (words, sums)), scale) in x.chunks_exact(block).zip(blocks).zip(&mut *row.scales) {
        let (mut greatest, mut zero) = (L::splat(0.0), L::splat(0.0));
        for x in x.as_chunks().0 {
            let x = L::load(x);
            greatest = x.max(x.neg()).max(greatest);
            // Stays 0 unless there is a NaN or an infinity, which `greatest` does not tell.
            zero = x.mul_add(L::splat(0.0), zero);
        }
        let mut lanes = [0.0; WIDTH];
        greatest.store(&mut lanes);
        let greatest = lanes.into_iter().fold(0.0, f32::max);
        if zero.sum() != 0.0 || greatest < 2f32.powi(-100) {
            *scale = if zero.sum() == 0.0 { 0.0 } else { f32::NAN };
            words.fill(0);
            sums.fill(0);
            continue;
        }
        *scale = greatest / f32::from(LEVELS);
        let factor = L::splat(f32::from(LEVELS) / greatest);
        for ((x, words), sum) in x.as_chunks::<16>().0.iter().zip(words.as_chunks_mut::<16>().0).zip(sums) {
            if let [low, high] = x.as_chunks().0 {
                let rounded = |x| L::load(x).mul_add(factor, L::splat(ROUND));
                L::store_words(L::from_rounded(rounded(low), rounded(high)), words);
            }
            *sum = words.iter().sum();
        }
    }
    row.words[x.len()..].fill(0);
    row.sums[x.len() / 16..].fill(0);
    row.scales[x.len() / block..].fill(0.0);
    // Which vector, and which half of it, the four sixteens of 64 elements go to.
    let places = if block == 32 { [(0, 0), (1, 0), (0, 1), (1, 1)] } else { [(0, 0), (0, 1), (1, 0), (1, 1)] };
    for (words, bytes) in row.words.as_chunks::<64>().0.iter().zip(row.bytes.as_chunks_mut::<4>().0) {
        for (words, (vector, half)) in words.as_chunks::<16>().0.iter().zip(places) {
            for (plane, part) in L::split(L::words(words)).into_iter().enumerate() {
                bytes[2 * vector + plane][16 * half..][..16].copy_from_slice(&part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(x: &[f32], block: usize) -> Activations {
        let mut activations = Activations::default();
        activations.fill(block, x.len(), 1, |_| x, false);
        activations
    }

    #[test]
    fn every_element_is_within_the_bound_of_its_block() {
        for block in [32, 256] {
            let x: Vec<f32> = (0..512).map(|i| ((i * i) as f32).sin() * (i as f32 / 40.0).exp()).collect();
            let activations = packed(&x, block);
            let row = activations.row(0);
            for (b, x) in x.chunks(block).enumerate() {
                let greatest = x.iter().fold(0.0, |g: f32, x| g.max(x.abs()));
                for (i, x) in x.iter().enumerate() {
                    let error = f64::from(row.scales[b]) * f64::from(row.words[b * block + i]) - f64::from(*x);
                    assert!(error.abs() <= f64::from(ERROR) * f64::from(greatest), "{block}, element {i}");
                }
            }
            for (sum, words) in row.sums.iter().zip(row.words.chunks(16)) {
                assert_eq!(i32::from(*sum), words.iter().map(|w| i32::from(*w)).sum::<i32>());
            }
        }
    }

    #[test]
    fn bytes_are_the_words_in_two_parts_and_zeros_fill_the_row() {
        for (block, cols) in [(32, 160), (256, 256)] {
            let x: Vec<f32> = (0..cols).map(|i| (i as f32 * 0.7).sin()).collect();
            let (old, activations) = (vec![1.0; cols], &mut Activations::default());
            activations.fill(block, cols, 2, |_| &old, false);
            activations.fill(block, cols, 1, |_| &x, false);
            let row = activations.row(0);
            assert!(row.words[cols..].iter().chain(&row.sums[cols / 16..]).all(|word| *word == 0));
            assert!(row.scales[cols / block..].iter().all(|scale| *scale == 0.0));
            for (i, &word) in row.words.iter().enumerate() {
                let (vector, at) = match block {
                    32 => (i % 32 / 16, i % 64 / 32 * 16 + i % 16),
                    _ => (i % 64 / 32, i % 32),
                };
                let parts = [0, 1].map(|plane| i16::from(row.bytes[i / 64 * 4 + 2 * vector + plane][at]));
                assert!((0..16).contains(&parts[1]) && 16 * parts[0] + parts[1] == word, "{block}, element {i}");
            }
        }
    }

    #[test]
    fn extremes_fit_into_their_words_and_sums() {
        for value in [1.0, -1.0, f32::MAX, f32::MIN, 2f32.powi(-100)] {
            let activations = packed(&[value; 32], 32);
            let row = activations.row(0);
            let word = if value > 0.0 { LEVELS } else { -LEVELS };
            assert!(row.words[..32].iter().all(|w| *w == word), "{value:e}");
            assert_eq!(row.sums[..2], [16 * word; 2], "{value:e}");
        }
    }

    #[test]
    fn what_is_not_finite_reaches_the_scale_of_its_block_alone() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [0.5; 96];
            x[40] = bad;
            let activations = packed(&x, 32);
            let row = activations.row(0);
            assert_eq!(row.scales.iter().map(|s| s.is_nan()).collect::<Vec<_>>()[..3], [false, true, false]);
            assert!(row.words[32..64].iter().all(|w| *w == 0));
        }
        assert_eq!(packed(&[1e-38; 32], 32).row(0).scales[0], 0.0);
    }
}
