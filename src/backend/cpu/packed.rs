//! Blocks of the commonest formats times one row of activations, their codes widened in registers.
//!
//! Owns: [`Packed`], by which a format says how its packed block is multiplied.
//! Always true: the sum over all lanes is exact and the one that `Block::words` defines, so these products have the bits
//! of unpacking first; sums of codes times words are multiplied by their sub-block's scale afterwards, once for 32.
//! Bounds: a sub-block's lane is at most 8 * 31 * 2047, a block's sum at most 256 * 4096 * 2047 < 2^31 (`activations`).
//! Not here: what becomes of the sums (`quantised`).
//!
//! Zen 3, two threads, 2026-11: left to the compiler, Q4_0 and Q4_K ran at half and a third of memory's speed.

use super::integers::{Integers, Sixteen};
use crate::weights::format::Block;
use crate::weights::format::block32::{Iq4Nl, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use crate::weights::format::offset256::{Q2K, Q4K, Q5K, unpack_scales};
use crate::weights::format::signed256::{Iq4Xs, Q3K, Q6K};

/// A block that multiplies activations.
pub trait Packed: Block {
    /// Partial sums of the block's words times `x`, `[COLUMNS / 16]` groups: all lanes together are the product.
    #[inline(always)]
    fn product<L: Integers>(&self, x: &[Sixteen]) -> L::Sums {
        let mut words = [0; 256];
        let words = &mut words[..Self::COLUMNS];
        self.words(L::look_up, words);
        let mut sums = [L::zero(); 2];
        for (i, (words, x)) in words.as_chunks().0.iter().zip(x).enumerate() {
            sums[i % 2] = L::add_products(sums[i % 2], L::words(words), L::words(x));
        }
        L::add_sums(sums[0], sums[1])
    }
}

impl Packed for Q4_1 {}
impl Packed for Q5_1 {}
impl Packed for Iq4Nl {}
impl Packed for Q2K {}
impl Packed for Q3K {}
impl Packed for Q5K {}
impl Packed for Q6K {}
impl Packed for Iq4Xs {}

impl Packed for Q8_0 {
    #[inline(always)]
    fn product<L: Integers>(&self, x: &[Sixteen]) -> L::Sums {
        let q = self.q.as_chunks().0;
        let sums = L::add_products(L::zero(), L::widen_signed(&q[0]), L::words(&x[0]));
        L::add_products(sums, L::widen_signed(&q[1]), L::words(&x[1]))
    }
}

impl Packed for Q4_0 {
    #[inline(always)]
    fn product<L: Integers>(&self, x: &[Sixteen]) -> L::Sums {
        let both = L::widen(&self.q);
        let sums = L::add_products(L::zero(), L::less(L::low_half(both), 8), L::words(&x[0]));
        L::add_products(sums, L::less(L::high_half(both), 8), L::words(&x[1]))
    }
}

impl Packed for Q5_0 {
    #[inline(always)]
    fn product<L: Integers>(&self, x: &[Sixteen]) -> L::Sums {
        let both = L::widen(&self.low);
        let [a, b, c, d] = self.high;
        let low = L::less_unless(L::low_half(both), u16::from_le_bytes([a, b]), 16);
        let high = L::less_unless(L::high_half(both), u16::from_le_bytes([c, d]), 16);
        let sums = L::add_products(L::zero(), low, L::words(&x[0]));
        L::add_products(sums, high, L::words(&x[1]))
    }
}

impl Packed for Q4K {
    #[inline(always)]
    fn product<L: Integers>(&self, x: &[Sixteen]) -> L::Sums {
        let [scales, _] = unpack_scales(&self.scales);
        let mut sums = L::zero();
        let chunks = self.q.as_chunks::<32>().0.iter().zip(x.as_chunks::<4>().0).zip(scales.as_chunks::<2>().0);
        for ((q, x), scales) in chunks {
            let q = q.as_chunks().0;
            let (first, second) = (L::widen(&q[0]), L::widen(&q[1]));
            let low = L::add_products(L::zero(), L::low_half(first), L::words(&x[0]));
            let low = L::add_products(low, L::low_half(second), L::words(&x[1]));
            let high = L::add_products(L::zero(), L::high_half(first), L::words(&x[2]));
            let high = L::add_products(high, L::high_half(second), L::words(&x[3]));
            sums = L::add_sums(sums, L::times(low, scales[0].into()));
            sums = L::add_sums(sums, L::times(high, scales[1].into()));
        }
        sums
    }
}
