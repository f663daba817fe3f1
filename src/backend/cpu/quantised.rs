//! Products with block-quantised weights: integer sums within a block, f32 between blocks.
//!
//! Owns: weights unpacked to words, and the tiles that multiply them for few and for many rows.
//! Always true: *ordered*. With `t` the exact sum of word times word over block b and `o` that of offset times the sum
//! of 16 words, `a[b % 8] = fma(d * s, f32(t), a[b % 8])`, then `a[b % 8] = fma(m * s, f32(o), a[b % 8])`, blocks in
//! ascending order (d, m: the weights' factors; s: the activations' scale); the result is the sum of the eight as
//! [`super::lanes::Lanes::sum`] adds them, plus 0. Which tile computes it changes no bit.
//! Not here: layouts (`weights::format`), activations as integers (`activations`), who runs the tiles (`blocks`).

use super::activations::Row;
use super::integers::{Integers, Sixteen};
use super::lanes::{Eight, WIDTH, vectorised};
use super::packed::{Packed, Part};
use crate::weights::Format;
use crate::weights::format::{Block, for_block};

/// What tiles need to know of a quantised format.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Elements of a block: 32 or 256.
    pub columns: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Whether blocks have offsets.
    pub offset: bool,
    /// Unpacks consecutive blocks, at most [`CHUNK`] elements.
    pub unpack: fn(&[u8], &mut Chunk),
    /// [`one`]
    pub one: fn(&[u8], Row<'_>, &mut [f32]),
}

impl Kind {
    /// `None` unless the format is quantised.
    pub fn of(format: Format) -> Option<Kind> {
        for_block!(format, B => Some(Kind {
            columns: B::COLUMNS,
            bytes: size_of::<B>(),
            offset: B::OFFSET,
            unpack: unpack::<B>,
            one: one::<B>,
        }), else None)
    }
}

/// Elements of a [`Chunk`]: with the activations of four rows they stay in the first cache.
pub const CHUNK: usize = 2048;

/// Part of a weight row as words.
#[repr(C, align(32))]
pub struct Chunk {
    words: [i16; CHUNK],
    /// One for 16 words; formats without offsets leave them alone.
    offsets: [i16; CHUNK / 16],
    /// F16 `d` of every block, zeros behind the last one up to a multiple of eight.
    d: [[u8; 2]; CHUNK / 32],
    /// F16 `m`; formats without offsets leave it alone.
    m: [[u8; 2]; CHUNK / 32],
}

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk { words: [0; CHUNK], offsets: [0; CHUNK / 16], d: [[0; 2]; CHUNK / 32], m: [[0; 2]; CHUNK / 32] }
    }
}

/// Outputs of a panel: two vectors of eight. With four activation rows eight sums, two weights and an activation are in
/// registers, and each weight vector is loaded for four products.
pub const PANEL: usize = 2 * WIDTH;
/// Columns of a panel: its words (16 KiB) and four rows of activations (4 KiB) stay in the first cache.
pub const PANEL_COLUMNS: usize = 512;

/// Vectors of a half panel: pairs of words, then pairs of offsets.
const HALF: usize = PANEL_COLUMNS / 2 + PANEL_COLUMNS / 32;
/// Blocks of a half panel.
const HALF_BLOCKS: usize = PANEL_COLUMNS / 32;

/// Words of eight outputs, side by side.
#[repr(C, align(32))]
pub struct HalfPanel {
    /// Vector p: words 2p and 2p + 1 of eight outputs. Behind `PANEL_COLUMNS / 2` of them the same of the offsets.
    pairs: [Sixteen; HALF],
    /// `d` of eight outputs for every block.
    d: [Eight; HALF_BLOCKS],
    /// `m`
    m: [Eight; HALF_BLOCKS],
}

impl Default for HalfPanel {
    fn default() -> HalfPanel {
        HalfPanel { pairs: [[0; 16]; HALF], d: [Eight::default(); HALF_BLOCKS], m: [Eight::default(); HALF_BLOCKS] }
    }
}

/// Sums of one row in a panel: eight block classes, two vectors of outputs each.
pub type Classes = [[Eight; 2]; WIDTH];

vectorised! {
    fn unpack[B: Block][B](w: &[u8], to: &mut Chunk) = unpack_lanes;
    /// Consecutive weight rows, `out.len()` of them, times one row of activations: faster than [`few`] for a single one,
    /// because codes stay packed.
    pub fn one[B: Packed][B](w: &[u8], x: Row<'_>, out: &mut [f32]) = one_lanes;
    /// Adds `blocks` blocks of a weight row times R rows of activations into `sums`, a lane for every block class. The
    /// first block is `start`, a multiple of eight.
    pub fn few[const COLUMNS: usize, const R: usize][COLUMNS, R](
        w: &Chunk, offset: bool, start: usize, blocks: usize, x: [Row<'_>; R], sums: &mut [Eight]
    ) = few_lanes;
    /// Puts eight unpacked rows (at most [`PANEL_COLUMNS`] each, `blocks` blocks) side by side.
    pub fn interleave(rows: &[Chunk; WIDTH], kind: &Kind, blocks: usize, to: &mut HalfPanel) = interleave_lanes;
    /// Adds the products of a panel's `blocks` blocks, from block `start` of the whole row on, with R rows.
    pub fn tile[const R: usize][R](
        w: &[HalfPanel; 2], kind: &Kind, start: usize, blocks: usize, x: [Row<'_>; R], sums: &mut [Classes]
    ) = tile_lanes;
    /// Adds up the classes of one row.
    pub fn add_classes(sums: &Classes, out: &mut [f32; PANEL]) = add_classes_lanes;
}

#[inline(always)]
fn unpack_lanes<L: Integers, B: Block>(w: &[u8], to: &mut Chunk) {
    let blocks: &[B] = bytemuck::cast_slice(w);
    let words = to.words.chunks_exact_mut(B::COLUMNS).zip(to.offsets.chunks_exact_mut(B::COLUMNS / 16));
    for ((block, (words, offsets)), (d, m)) in blocks.iter().zip(words).zip(to.d.iter_mut().zip(&mut to.m)) {
        let factors = block.factors().map(u16::to_le_bytes);
        *d = factors[0];
        block.words(L::look_up, words);
        if B::OFFSET {
            *m = factors[1];
            block.offsets(offsets);
        }
    }
    let rest = blocks.len()..blocks.len().next_multiple_of(WIDTH);
    to.d[rest.clone()].fill([0; 2]);
    to.m[rest].fill([0; 2]);
}

/// Bytes between blocks and what is fetched beside their product: the rows of a matrix are one stream.
const AHEAD: usize = 4096;

/// Every block is fetched: of rows of ten, two that were left out halved the speed from memory (Zen 3, 2026-11).
#[inline(always)]
fn fetch_ahead<L: Integers, B>(blocks: &[B]) {
    let ahead = blocks.as_ptr().cast::<u8>().wrapping_add(AHEAD);
    for line in 0..size_of_val(blocks).div_ceil(64) {
        L::prefetch(ahead.wrapping_add(line * 64));
    }
}

#[inline(always)]
fn one_lanes<L: Integers, B: Packed>(w: &[u8], x: Row<'_>, out: &mut [f32]) {
    let blocks: &[B] = bytemuck::cast_slice(w);
    let across = blocks.len() / out.len().max(1);
    let part = Part { words: x.words.as_chunks().0, bytes: x.bytes, sums: x.sums };
    let scales = x.scales.as_chunks::<WIDTH>().0;
    if across == 0 {
        return out.fill(0.0);
    }
    for (row, out) in blocks.chunks_exact(across).zip(out) {
        let (groups, rest) = row.as_chunks::<WIDTH>();
        let mut sum = L::splat(0.0);
        let step = WIDTH * B::COLUMNS / 16;
        for (g, group) in groups.iter().enumerate() {
            sum = one_group::<L, B>(group, part.sixteens(g * step, step), &scales[g], sum);
        }
        let g = groups.len();
        if B::COLUMNS == 32 && !rest.is_empty() {
            fetch_ahead::<L, B>(rest);
            // Zeros fill the group, as they fill the activations.
            let mut group = [B::zeroed(); WIDTH];
            group[..rest.len()].copy_from_slice(rest);
            sum = one_group::<L, B>(&group, part.sixteens(g * step, step), &scales[g], sum);
        } else if !rest.is_empty() {
            sum = one_group::<L, B>(rest, part.sixteens(g * step, rest.len() * B::COLUMNS / 16), &scales[g], sum);
        }
        *out = sum.sum() + 0.0;
    }
}

/// Eight blocks, a lane each; of 256, at most eight.
#[inline(always)]
fn one_group<L: Integers, B: Packed>(group: &[B], x: Part<'_>, scales: &[f32; WIDTH], sum: L) -> L {
    let (mut d, mut m) = ([[0; 2]; WIDTH], [[0; 2]; WIDTH]);
    for (i, block) in group.iter().enumerate() {
        [d[i], m[i]] = block.factors().map(u16::to_le_bytes);
    }
    let (products, offset_products) = match group.first_chunk::<WIDTH>() {
        Some(group) if B::COLUMNS == 32 => {
            fetch_ahead::<L, B>(group);
            let mut offsets = [0; 2 * WIDTH];
            for (block, offsets) in group.iter().zip(offsets.chunks_exact_mut(2)) {
                block.offsets(offsets);
            }
            (B::eight::<L>(group, x), pairs_of_sums::<L>(&offsets, x.sums))
        }
        _ => {
            let (mut products, mut offset_products) = ([L::zero(); WIDTH], [L::zero(); WIDTH]);
            for (i, block) in group.iter().enumerate() {
                fetch_ahead::<L, B>(std::slice::from_ref(block));
                let x = x.sixteens(i * B::COLUMNS / 16, B::COLUMNS / 16);
                products[i] = block.product::<L>(x);
                if B::OFFSET {
                    offset_products[i] = block.offset_product::<L>(x);
                }
            }
            (L::totals(&products), L::to_lanes(L::totals(&offset_products)))
        }
    };
    let scale = L::load(scales);
    let sum = L::f16(bytemuck::cast_ref(&d)).mul(scale).mul_add(L::to_lanes(products), sum);
    if !B::OFFSET {
        return sum;
    }
    L::f16(bytemuck::cast_ref(&m)).mul(scale).mul_add(offset_products, sum)
}

#[inline(always)]
fn few_lanes<L: Integers, const COLUMNS: usize, const R: usize>(
    w: &Chunk,
    offset: bool,
    start: usize,
    blocks: usize,
    x: [Row<'_>; R],
    sums: &mut [Eight],
) {
    let (words, _) = w.words.as_chunks::<COLUMNS>();
    for (group, words) in words[..blocks].chunks(WIDTH).enumerate() {
        let (group, at) = (group * WIDTH, start + group * WIDTH);
        let d = L::f16(bytemuck::cast_ref(w.d[group..].first_chunk::<WIDTH>().unwrap_or(&[[0; 2]; WIDTH])));
        for r in 0..R {
            let (x_words, _) = x[r].words.as_chunks::<COLUMNS>();
            let products = block_products::<L, COLUMNS>(words, &x_words[at..at + words.len()]);
            let scale = L::load_tail(&x[r].scales[at..at + WIDTH]);
            let mut sum = d.mul(scale).mul_add(products, L::load(&sums[r].0));
            if offset {
                let count = COLUMNS / 16;
                let offsets = &w.offsets[group * count..][..words.len() * count];
                let x_sums = &x[r].sums[at * count..][..words.len() * count];
                let m = L::f16(bytemuck::cast_ref(w.m[group..].first_chunk::<WIDTH>().unwrap_or(&[[0; 2]; WIDTH])));
                let products = offset_products::<L>(COLUMNS, offsets, x_sums);
                sum = m.mul(scale).mul_add(products, sum);
            }
            sum.store(&mut sums[r].0);
        }
    }
}

/// Lane i: the product of block i, of at most eight.
#[inline(always)]
fn block_products<L: Integers, const N: usize>(a: &[[i16; N]], b: &[[i16; N]]) -> L {
    let mut products = [L::zero(); WIDTH];
    if let (Some(a), Some(b)) = (a.first_chunk::<WIDTH>(), b.first_chunk::<WIDTH>()) {
        // The usual case has a fixed length, so that products stay in registers.
        for i in 0..WIDTH {
            products[i] = dot::<L>(&a[i], &b[i]);
        }
        return L::to_lanes(L::totals(&products));
    }
    for (product, (a, b)) in products.iter_mut().zip(a.iter().zip(b)) {
        *product = dot::<L>(a, b);
    }
    L::to_lanes(L::totals(&products))
}

/// Lane i: the product of the offsets of block i with its sums.
#[inline(always)]
fn offset_products<L: Integers>(columns: usize, offsets: &[i16], sums: &[i16]) -> L {
    match columns {
        32 => pairs_of_sums::<L>(offsets, sums),
        _ => block_products::<L, 16>(offsets.as_chunks().0, sums.as_chunks().0),
    }
}

/// Lane i: the product of the two offsets of block i with its two sums. At most eight blocks.
#[inline(always)]
fn pairs_of_sums<L: Integers>(offsets: &[i16], sums: &[i16]) -> L {
    let (mut a, mut b) = ([0; 16], [0; 16]);
    if let (Some(offsets), Some(sums)) = (offsets.first_chunk(), sums.first_chunk()) {
        (a, b) = (*offsets, *sums);
    } else {
        a[..offsets.len()].copy_from_slice(offsets);
        b[..sums.len()].copy_from_slice(sums);
    }
    L::to_lanes(L::add_products(L::zero(), L::words(&a), L::words(&b)))
}

/// Partial sums of `a . b`: all lanes together are the product.
#[inline(always)]
fn dot<L: Integers>(a: &[i16], b: &[i16]) -> L::Sums {
    let (a, b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
    let mut sums = [L::zero(); 2];
    for i in 0..a.len() {
        sums[i % 2] = L::add_products(sums[i % 2], L::words(&a[i]), L::words(&b[i]));
    }
    L::add_sums(sums[0], sums[1])
}

#[inline(always)]
fn interleave_lanes<L: Integers>(rows: &[Chunk; WIDTH], kind: &Kind, blocks: usize, to: &mut HalfPanel) {
    let columns = blocks * kind.columns;
    let (pairs, offset_pairs) = to.pairs.split_at_mut(PANEL_COLUMNS / 2);
    let mut from = [&[] as &[Sixteen]; WIDTH];
    for (from, row) in from.iter_mut().zip(rows) {
        *from = &row.words.as_chunks().0[..columns / 16];
    }
    for (g, to) in pairs.as_chunks_mut::<8>().0[..columns / 16].iter_mut().enumerate() {
        let mut group = [&[0; 16]; WIDTH];
        for (group, from) in group.iter_mut().zip(from) {
            *group = &from[g];
        }
        *to = L::transpose(group);
    }
    for b in 0..blocks {
        let (mut d, mut m) = ([[0; 2]; WIDTH], [[0; 2]; WIDTH]);
        for (o, row) in rows.iter().enumerate() {
            (d[o], m[o]) = (row.d[b], row.m[b]);
        }
        L::f16(bytemuck::cast_ref(&d)).store(&mut to.d[b].0);
        L::f16(bytemuck::cast_ref(&m)).store(&mut to.m[b].0);
    }
    if kind.offset {
        for (p, to) in offset_pairs[..columns / 32].iter_mut().enumerate() {
            for (pair, row) in to.chunks_exact_mut(2).zip(rows) {
                pair.copy_from_slice(&row.offsets[2 * p..2 * p + 2]);
            }
        }
    }
}

#[inline(always)]
fn tile_lanes<L: Integers, const R: usize>(
    w: &[HalfPanel; 2],
    kind: &Kind,
    start: usize,
    blocks: usize,
    x: [Row<'_>; R],
    sums: &mut [Classes],
) {
    let (steps, offset_steps) = (kind.columns / 2, kind.columns / 32);
    let pairs = [w[0].pairs.split_at(PANEL_COLUMNS / 2), w[1].pairs.split_at(PANEL_COLUMNS / 2)];
    let mut words = [&[] as &[[i16; 2]]; R];
    let mut word_sums = [&[] as &[[i16; 2]]; R];
    for r in 0..R {
        words[r] = x[r].words.as_chunks().0;
        word_sums[r] = x[r].sums.as_chunks().0;
    }
    for b in 0..blocks {
        let at = start + b;
        let part = b * steps..(b + 1) * steps;
        let products = pair_products::<L, R>(&pairs[0].0[part.clone()], &pairs[1].0[part], words, at * steps);
        let mut offset_products = [[L::zero(); 2]; R];
        if kind.offset {
            let part = b * offset_steps..(b + 1) * offset_steps;
            let (left, right) = (&pairs[0].1[part.clone()], &pairs[1].1[part]);
            offset_products = pair_products::<L, R>(left, right, word_sums, at * offset_steps);
        }
        for r in 0..R {
            let scale = L::splat(x[r].scales[at]);
            for c in 0..2 {
                let sum = &mut sums[r][at % WIDTH][c].0;
                let factor = L::load(&w[c].d[b].0).mul(scale);
                let mut total = factor.mul_add(L::to_lanes(products[r][c]), L::load(sum));
                if kind.offset {
                    let factor = L::load(&w[c].m[b].0).mul(scale);
                    total = factor.mul_add(L::to_lanes(offset_products[r][c]), total);
                }
                total.store(sum);
            }
        }
    }
}

/// Sums over pairs for sixteen outputs and R rows, whose pairs begin at `at`.
#[inline(always)]
fn pair_products<L: Integers, const R: usize>(
    left: &[Sixteen],
    right: &[Sixteen],
    x: [&[[i16; 2]]; R],
    at: usize,
) -> [[L::Sums; 2]; R] {
    let mut sums = [[L::zero(); 2]; R];
    let mut rows = [&[] as &[[i16; 2]]; R];
    for r in 0..R {
        rows[r] = &x[r][at..][..left.len()];
    }
    for (p, (left, right)) in left.iter().zip(right).enumerate() {
        let (left, right) = (L::words(left), L::words(right));
        for r in 0..R {
            let pair = L::pair(&rows[r][p]);
            sums[r][0] = L::add_products(sums[r][0], left, pair);
            sums[r][1] = L::add_products(sums[r][1], right, pair);
        }
    }
    sums
}

#[inline(always)]
fn add_classes_lanes<L: Integers>(sums: &Classes, out: &mut [f32; PANEL]) {
    for (c, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
        let mut class = [L::splat(0.0); WIDTH];
        for (class, sum) in class.iter_mut().zip(sums) {
            *class = L::load(&sum[c].0);
        }
        let low = class[0].add(class[1]).add(class[2].add(class[3]));
        let high = class[4].add(class[5]).add(class[6].add(class[7]));
        low.add(high).add(L::splat(0.0)).store(out);
    }
}
