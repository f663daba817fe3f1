//! Blocks times one row of activations, codes multiplied as the bytes they are stored in.
//!
//! Owns: [`Packed`], by which a format says how its packed blocks are multiplied.
//! Always true: totals are exact and those that `Block::words` and `Block::offsets` define, so these products have the
//! bits of unpacking first. A code times a word is `16 * (code * high) + code * low`; what all codes of a sub-block are
//! less (8, 32, ...) is multiplied with the sums of words, and scales with sums over a sub-block.
//! Bounds: codes are at most 63 and bytes at most 128, so two products fit in 16 bits, four if codes are at most 31. Sums
//! wrap in 32 bits: a block's total fits (256 * 4096 * 2047 < 2^31, `activations`), whatever its parts do.
//! Not here: what becomes of the totals (`quantised`).
//!
//! Weights a nanosecond on one Zen 3 core, rows of 2,560 from the second cache, 2026-11, codes widened to words first and
//! as here: Q4_0 15.5 and 23.5, Q4_1 12.2 and 16.5, Q5_0 9.2 and 16.5, Q5_1 6.2 and 12.9, Q4_K 13.0 and 19.9, Q5_K 9.6 and
//! 16.9, Q6_K 10.2 and 17.8, Q2_K 9.3 and 20.8, Q3_K 6.4 and 12.7.

use super::integers::{Integers, Signed, Sixteen};
use super::lanes::WIDTH;
use crate::weights::format::Block;
use crate::weights::format::block32::{Iq4Nl, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use crate::weights::format::offset256::{Q2K, Q4K, Q5K, unpack_scales};
use crate::weights::format::signed256::{Iq4Xs, Q3K, Q6K};

/// The part of a row of activations that consecutive blocks are multiplied with: see `activations::Row`.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// A sixteenth of the part's elements in number, as all three.
    pub words: &'a [Sixteen],
    /// For blocks of 32: whole if the blocks are an even number.
    pub bytes: &'a [Signed],
    /// Sums of 16 words.
    pub sums: &'a [i16],
}

impl<'a> Part<'a> {
    /// `count` times 16 elements from `16 * start` on.
    #[inline(always)]
    pub fn sixteens(self, start: usize, count: usize) -> Part<'a> {
        let range = start..start + count;
        Part { words: &self.words[range.clone()], bytes: &self.bytes[range.clone()], sums: &self.sums[range] }
    }
}

/// A block that multiplies activations.
pub trait Packed: Block {
    /// Partial sums of the block's words times `x`: all lanes together are the product.
    #[inline(always)]
    fn product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        let mut words = [0; 256];
        let words = &mut words[..Self::COLUMNS];
        self.words(L::look_up, words);
        let mut sums = [L::zero(); 2];
        for (i, (words, x)) in words.as_chunks().0.iter().zip(x.words).enumerate() {
            sums[i % 2] = L::add_products(sums[i % 2], L::words(words), L::words(x));
        }
        L::add_sums(sums[0], sums[1])
    }
    /// Partial sums of the block's offsets times the sums of `x`.
    #[inline(always)]
    fn offset_product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        let mut offsets = [0; 16];
        self.offsets(&mut offsets[..Self::COLUMNS / 16]);
        match x.sums.as_chunks().0 {
            [] => L::zero(),
            [sums, ..] => L::add_products(L::zero(), L::words(&offsets), L::words(sums)),
        }
    }
    /// Lane i: the words of block i times its part of `x`.
    #[inline(always)]
    fn eight<L: Integers>(blocks: &[Self; WIDTH], x: Part<'_>) -> L::Sums {
        let n = Self::COLUMNS / 16;
        // One after another in the source, so that products stay in registers.
        L::totals(&[
            blocks[0].product::<L>(x.sixteens(0, n)),
            blocks[1].product::<L>(x.sixteens(n, n)),
            blocks[2].product::<L>(x.sixteens(2 * n, n)),
            blocks[3].product::<L>(x.sixteens(3 * n, n)),
            blocks[4].product::<L>(x.sixteens(4 * n, n)),
            blocks[5].product::<L>(x.sixteens(5 * n, n)),
            blocks[6].product::<L>(x.sixteens(6 * n, n)),
            blocks[7].product::<L>(x.sixteens(7 * n, n)),
        ])
    }
}

impl Packed for Iq4Nl {}
impl Packed for Iq4Xs {}

impl Packed for Q8_0 {
    #[inline(always)]
    fn product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        let q = self.q.as_chunks().0;
        let sums = L::add_products(L::zero(), L::widen_signed(&q[0]), L::words(&x.words[0]));
        L::add_products(sums, L::widen_signed(&q[1]), L::words(&x.words[1]))
    }
}

/// A block of 32 whose words are codes of 4 or 5 bits, all less the same.
trait Codes: Block {
    /// What a word is less than its code.
    const LESS: i16;
    /// The first 16 codes of `a` and of `b`, then the other 16 of both.
    fn codes<L: Integers>(a: &Self, b: &Self) -> [L::Bytes; 2];
}

/// Codes of two blocks times 64 elements: lanes 0 to 3 are the first block's, the others the second's.
#[inline(always)]
fn pair<L: Integers, B: Codes>(a: &B, b: &B, x: &[Signed; 4]) -> L::Sums {
    let [first, second] = B::codes::<L>(a, b);
    let high = L::add_words(L::multiply(first, &x[0]), L::multiply(second, &x[2]));
    let low = L::add_words(L::multiply(first, &x[1]), L::multiply(second, &x[3]));
    L::add_products(L::add_products(L::zero(), high, L::pair(&[16; 2])), low, L::pair(&[1; 2]))
}

/// [`Packed::eight`]
#[inline(always)]
fn eight<L: Integers, B: Codes>([a, b, c, d, e, f, g, h]: &[B; WIDTH], x: Part<'_>) -> L::Sums {
    let ([x0, x1, x2, x3], [sums]) = (x.bytes.as_chunks().0, x.sums.as_chunks().0) else { return L::zero() };
    let pairs = [pair::<L, B>(a, b, x0), pair::<L, B>(c, d, x1), pair::<L, B>(e, f, x2), pair::<L, B>(g, h, x3)];
    let totals = L::half_totals(&pairs);
    if B::LESS == 0 { totals } else { L::add_products(totals, L::words(sums), L::pair(&[-B::LESS; 2])) }
}

/// Both halves of two blocks' 4-bit codes.
#[inline(always)]
fn nibbles<L: Integers>(a: &[u8; 16], b: &[u8; 16]) -> [L::Bytes; 2] {
    let both = L::two(a, b);
    [L::down::<0>(both, 15), L::down::<4>(both, 15)]
}

/// Fifth bits for both halves.
#[inline(always)]
fn add_fifths<L: Integers>([first, second]: [L::Bytes; 2], a: [u8; 4], b: [u8; 4]) -> [L::Bytes; 2] {
    let (a, b) = (u32::from_le_bytes(a), u32::from_le_bytes(b));
    [L::or(first, L::sixteens(a as u16, b as u16)), L::or(second, L::sixteens((a >> 16) as u16, (b >> 16) as u16))]
}

// Formats that store two codes a byte: what their words are less, and how two blocks give their codes.
macro_rules! codes {
    ($($format:ident, $less:literal: $a:ident, $b:ident => $codes:expr;)*) => {$(
        impl Codes for $format {
            const LESS: i16 = $less;
            #[inline(always)]
            fn codes<L: Integers>($a: &$format, $b: &$format) -> [L::Bytes; 2] {
                $codes
            }
        }
        impl Packed for $format {
            #[inline(always)]
            fn eight<L: Integers>(blocks: &[$format; WIDTH], x: Part<'_>) -> L::Sums {
                eight::<L, $format>(blocks, x)
            }
        }
    )*};
}

codes! {
    Q4_0, 8: a, b => nibbles::<L>(&a.q, &b.q);
    Q4_1, 0: a, b => nibbles::<L>(&a.q, &b.q);
    Q5_0, 16: a, b => add_fifths::<L>(nibbles::<L>(&a.low, &b.low), a.high, b.high);
    Q5_1, 0: a, b => add_fifths::<L>(nibbles::<L>(&a.low, &b.low), a.high, b.high);
}

/// Sums of `codes` (bytes of 32 elements) times high and low bytes, each word times its scale.
struct Scaled<L: Integers> {
    high: L::Sums,
    low: L::Sums,
}

impl<L: Integers> Scaled<L> {
    #[inline(always)]
    fn new() -> Scaled<L> {
        Scaled { high: L::zero(), low: L::zero() }
    }
    #[inline(always)]
    fn add(&mut self, codes: L::Bytes, x: &[Signed; 2], scales: L::Words) {
        self.high = L::add_products(self.high, L::multiply(codes, &x[0]), scales);
        self.low = L::add_products(self.low, L::multiply(codes, &x[1]), scales);
    }
    #[inline(always)]
    fn total(self) -> L::Sums {
        L::join(self.high, self.low)
    }
}

/// `less` times the scales of sub-blocks of 16 times their sums, subtracted from `sums`.
#[inline(always)]
fn subtract<L: Integers>(sums: L::Sums, scales: &[i8; 16], less: i16, x: Part<'_>) -> L::Sums {
    let factors = scales.map(|scale| i16::from(scale) * -less);
    match x.sums.as_chunks().0 {
        [] => sums,
        [x, ..] => L::add_products(sums, L::words(&factors), L::words(x)),
    }
}

/// The minima of sub-blocks of 32 times the sums of 16 words each.
#[inline(always)]
fn minima<L: Integers>(scales: &[u8; 12], x: Part<'_>) -> L::Sums {
    match x.sums.as_chunks().0 {
        [] => L::zero(),
        [sums, ..] => L::add_products(L::zero(), L::doubled(&unpack_scales(scales)[1]), L::words(sums)),
    }
}

impl Packed for Q4K {
    #[inline(always)]
    fn product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        let scales = L::repeated(&unpack_scales(&self.scales)[0]);
        let mut sums = Scaled::<L>::new();
        if let ([a, b, c, d], [x0, x1, x2, x3, x4, x5, x6, x7]) = (self.q.as_chunks().0, x.bytes.as_chunks().0) {
            let (a, b, c, d) = (L::bytes(a), L::bytes(b), L::bytes(c), L::bytes(d));
            sums.add(L::down::<0>(a, 15), x0, L::spread::<0>(scales));
            sums.add(L::down::<4>(a, 15), x1, L::spread::<1>(scales));
            sums.add(L::down::<0>(b, 15), x2, L::spread::<2>(scales));
            sums.add(L::down::<4>(b, 15), x3, L::spread::<3>(scales));
            sums.add(L::down::<0>(c, 15), x4, L::spread::<4>(scales));
            sums.add(L::down::<4>(c, 15), x5, L::spread::<5>(scales));
            sums.add(L::down::<0>(d, 15), x6, L::spread::<6>(scales));
            sums.add(L::down::<4>(d, 15), x7, L::spread::<7>(scales));
        }
        sums.total()
    }
    #[inline(always)]
    fn offset_product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        minima::<L>(&self.scales, x)
    }
}

impl Packed for Q5K {
    #[inline(always)]
    fn product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        let scales = L::repeated(&unpack_scales(&self.scales)[0]);
        let high = L::bytes(&self.high);
        let mut sums = Scaled::<L>::new();
        if let ([a, b, c, d], [x0, x1, x2, x3, x4, x5, x6, x7]) = (self.low.as_chunks().0, x.bytes.as_chunks().0) {
            let (a, b, c, d) = (L::bytes(a), L::bytes(b), L::bytes(c), L::bytes(d));
            sums.add(L::or(L::down::<0>(a, 15), L::up::<4>(high, 16)), x0, L::spread::<0>(scales));
            sums.add(L::or(L::down::<4>(a, 15), L::up::<3>(high, 16)), x1, L::spread::<1>(scales));
            sums.add(L::or(L::down::<0>(b, 15), L::up::<2>(high, 16)), x2, L::spread::<2>(scales));
            sums.add(L::or(L::down::<4>(b, 15), L::up::<1>(high, 16)), x3, L::spread::<3>(scales));
            sums.add(L::or(L::down::<0>(c, 15), L::down::<0>(high, 16)), x4, L::spread::<4>(scales));
            sums.add(L::or(L::down::<4>(c, 15), L::down::<1>(high, 16)), x5, L::spread::<5>(scales));
            sums.add(L::or(L::down::<0>(d, 15), L::down::<2>(high, 16)), x6, L::spread::<6>(scales));
            sums.add(L::or(L::down::<4>(d, 15), L::down::<3>(high, 16)), x7, L::spread::<7>(scales));
        }
        sums.total()
    }
    #[inline(always)]
    fn offset_product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        minima::<L>(&self.scales, x)
    }
}

impl Packed for Q2K {
    #[inline(always)]
    fn product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        let scales = L::parted(&self.scales.map(|both| (both & 15) as i8));
        let mut sums = Scaled::<L>::new();
        if let ([a, b], [x0, x1, x2, x3, x4, x5, x6, x7]) = (self.q.as_chunks().0, x.bytes.as_chunks().0) {
            let (a, b) = (L::bytes(a), L::bytes(b));
            sums.add(L::down::<0>(a, 3), x0, L::spread::<0>(scales));
            sums.add(L::down::<2>(a, 3), x1, L::spread::<1>(scales));
            sums.add(L::down::<4>(a, 3), x2, L::spread::<2>(scales));
            sums.add(L::down::<6>(a, 3), x3, L::spread::<3>(scales));
            sums.add(L::down::<0>(b, 3), x4, L::spread::<4>(scales));
            sums.add(L::down::<2>(b, 3), x5, L::spread::<5>(scales));
            sums.add(L::down::<4>(b, 3), x6, L::spread::<6>(scales));
            sums.add(L::down::<6>(b, 3), x7, L::spread::<7>(scales));
        }
        sums.total()
    }
}

impl Packed for Q3K {
    #[inline(always)]
    fn product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        let all = self.unpack_scales();
        let (scales, high) = (L::parted(&all), L::bytes(&self.high));
        let mut sums = Scaled::<L>::new();
        if let ([a, b], [x0, x1, x2, x3, x4, x5, x6, x7]) = (self.low.as_chunks().0, x.bytes.as_chunks().0) {
            let (a, b) = (L::bytes(a), L::bytes(b));
            sums.add(L::or(L::down::<0>(a, 3), L::up::<2>(high, 4)), x0, L::spread::<0>(scales));
            sums.add(L::or(L::down::<2>(a, 3), L::up::<1>(high, 4)), x1, L::spread::<1>(scales));
            sums.add(L::or(L::down::<4>(a, 3), L::down::<0>(high, 4)), x2, L::spread::<2>(scales));
            sums.add(L::or(L::down::<6>(a, 3), L::down::<1>(high, 4)), x3, L::spread::<3>(scales));
            sums.add(L::or(L::down::<0>(b, 3), L::down::<2>(high, 4)), x4, L::spread::<4>(scales));
            sums.add(L::or(L::down::<2>(b, 3), L::down::<3>(high, 4)), x5, L::spread::<5>(scales));
            sums.add(L::or(L::down::<4>(b, 3), L::down::<4>(high, 4)), x6, L::spread::<6>(scales));
            sums.add(L::or(L::down::<6>(b, 3), L::down::<5>(high, 4)), x7, L::spread::<7>(scales));
        }
        subtract::<L>(sums.total(), &all, 4, x)
    }
}

impl Packed for Q6K {
    #[inline(always)]
    fn product<L: Integers>(&self, x: Part<'_>) -> L::Sums {
        let scales = L::parted(&self.scales);
        let mut sums = Scaled::<L>::new();
        let (low, high) = (self.low.as_chunks().0, self.high.as_chunks().0);
        if let ([a, b, c, d], [e, f], [x0, x1, x2, x3, x4, x5, x6, x7]) = (low, high, x.bytes.as_chunks().0) {
            let (a, b, high) = (L::bytes(a), L::bytes(b), L::bytes(e));
            sums.add(L::or(L::down::<0>(a, 15), L::up::<4>(high, 48)), x0, L::spread::<0>(scales));
            sums.add(L::or(L::down::<0>(b, 15), L::up::<2>(high, 48)), x1, L::spread::<1>(scales));
            sums.add(L::or(L::down::<4>(a, 15), L::down::<0>(high, 48)), x2, L::spread::<2>(scales));
            sums.add(L::or(L::down::<4>(b, 15), L::down::<2>(high, 48)), x3, L::spread::<3>(scales));
            let (c, d, high) = (L::bytes(c), L::bytes(d), L::bytes(f));
            sums.add(L::or(L::down::<0>(c, 15), L::up::<4>(high, 48)), x4, L::spread::<4>(scales));
            sums.add(L::or(L::down::<0>(d, 15), L::up::<2>(high, 48)), x5, L::spread::<5>(scales));
            sums.add(L::or(L::down::<4>(c, 15), L::down::<0>(high, 48)), x6, L::spread::<6>(scales));
            sums.add(L::or(L::down::<4>(d, 15), L::down::<2>(high, 48)), x7, L::spread::<7>(scales));
        }
        subtract::<L>(sums.total(), &self.scales, 32, x)
    }
}
