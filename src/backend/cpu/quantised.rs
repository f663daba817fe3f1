//! Products with block-quantised weights: integer sums within a block, f32 between blocks.
//!
//! Owns: the tiles for few and for many rows, and the panel of unpacked weights.
//! Always true: *ordered*. With `t` the exact sum of word times word over block b and `o` that of offset times the sum
//! of 16 words, `a[b % 8] = fma(d * s, f32(t), a[b % 8])`, then `a[b % 8] = fma(m * s, f32(o), a[b % 8])`, blocks in
//! ascending order (d, m: the weights' factors; s: the activations' scale); the result is the sum of the eight as
//! [`super::lanes::Lanes::sum`] adds them, plus 0. Which tile computes it changes no bit.
//! Not here: layouts (`weights::format`), activations as integers (`activations`), tasks (`linear`).

use super::activations::{Activations, Row};
use super::integers::{Integers, Sixteen};
use super::lanes::{Eight, WIDTH, vectorised};
use crate::weights::format::Block;

/// Most elements of a block.
const MOST: usize = 256;
/// Weight rows of [`few`] that are read side by side: one stream alone does not keep memory busy.
const STREAMS: usize = 4;
/// Outputs of a panel: two vectors of eight. With four activation rows eight sums, two weights and an activation are in
/// registers, and each weight vector is loaded for four products.
pub const PANEL: usize = 2 * WIDTH;
/// Columns of a panel: its words (16 KiB) and four rows of activations (4 KiB) stay in the first cache.
const PANEL_COLUMNS: usize = 512;
/// Most activation rows of a tile.
pub const TILE_ROWS: usize = 4;

vectorised! {
    /// `out[n * R + r]` = row n of `w` times `x[r]`; a row of `w` is `blocks` long.
    pub fn few[B: Block, const R: usize][B, R](w: &[B], blocks: usize, x: [Row<'_>; R], out: &mut [f32]) = few_lanes;
    /// `panel.sums` = at most [`PANEL`] rows of `w` times rows of `x`: `[rows][PANEL]`, whatever the rows of `w`.
    pub fn many[B: Block][B](w: &[B], blocks: usize, x: &Activations, first: usize, rows: usize, panel: &mut Panel)
        = many_lanes;
}

#[inline(always)]
fn few_lanes<L: Integers, B: Block, const R: usize>(w: &[B], blocks: usize, x: [Row<'_>; R], out: &mut [f32]) {
    for (w, out) in w.chunks(STREAMS * blocks).zip(out.chunks_mut(STREAMS * R)) {
        let mut sums = [[Eight::default(); R]; STREAMS];
        for group in (0..blocks).step_by(WIDTH) {
            for (w, sums) in w.chunks_exact(blocks).zip(&mut sums) {
                add_group::<L, B, R>(&w[group..blocks.min(group + WIDTH)], group, x, sums);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums.as_flattened()) {
            *out = L::load(&sum.0).sum() + 0.0;
        }
    }
}

/// At most eight blocks, a lane each.
#[inline(always)]
fn add_group<L: Integers, B: Block, const R: usize>(w: &[B], group: usize, x: [Row<'_>; R], sums: &mut [Eight; R]) {
    let (mut products, mut offset_products) = ([[L::zero(); WIDTH]; R], [[L::zero(); WIDTH]; R]);
    let (mut d, mut m) = ([[0; 2]; WIDTH], [[0; 2]; WIDTH]);
    let (mut words, mut offsets) = ([0; MOST], [0; MOST / 16]);
    for (i, block) in w.iter().enumerate() {
        [d[i], m[i]] = block.factors().map(u16::to_le_bytes);
        block.words(L::look_up, &mut words[..B::COLUMNS]);
        if B::OFFSET {
            block.offsets(&mut offsets[..B::COLUMNS / 16]);
        }
        for r in 0..R {
            let at = group + i;
            products[r][i] = dot::<L>(&words[..B::COLUMNS], &x[r].words[at * B::COLUMNS..][..B::COLUMNS]);
            if B::OFFSET {
                let count = B::COLUMNS / 16;
                offset_products[r][i] = dot::<L>(&offsets[..count], &x[r].sums[at * count..][..count]);
            }
        }
    }
    for r in 0..R {
        let scale = L::load_tail(&x[r].scales[group..][..WIDTH]);
        let factor = L::f16(bytemuck::cast_ref(&d)).mul(scale);
        let mut sum = factor.mul_add(L::to_lanes(L::totals(&products[r])), L::load(&sums[r].0));
        if B::OFFSET {
            let factor = L::f16(bytemuck::cast_ref(&m)).mul(scale);
            sum = factor.mul_add(L::to_lanes(L::totals(&offset_products[r])), sum);
        }
        sum.store(&mut sums[r].0);
    }
}

/// Partial sums of `a . b`: all lanes together are the product.
#[inline(always)]
fn dot<L: Integers>(a: &[i16], b: &[i16]) -> L::Sums {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sums = [L::zero(); 2];
    for (a, b) in a.chunks(2).zip(b.chunks(2)) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum = L::add_products(*sum, L::words(a), L::words(b));
        }
    }
    if !a_rest.is_empty() {
        let rest = a_rest.iter().zip(b_rest).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
        return L::add_sums(sums[0], L::single(rest));
    }
    L::add_sums(sums[0], sums[1])
}

/// Weights of sixteen outputs unpacked to words, and the sums of all rows. Keeps its memory.
#[derive(Default)]
pub struct Panel {
    /// `[2][blocks][pairs]`: pair p of the words, then of the offsets, of eight outputs.
    words: Vec<Sixteen>,
    /// `[2][blocks]`: `d` of eight outputs.
    d: Vec<Eight>,
    /// `[2][blocks]`: `m` of eight outputs.
    m: Vec<Eight>,
    /// `[rows][8 block classes][2]`, eight outputs each.
    classes: Vec<Eight>,
    /// `[rows][PANEL]`
    pub sums: Vec<[f32; PANEL]>,
}

/// Vectors of a block in [`Panel::words`].
const fn vectors<B: Block>() -> usize {
    B::COLUMNS / 2 + if B::OFFSET { B::COLUMNS / 32 } else { 0 }
}

#[inline(always)]
fn many_lanes<L: Integers, B: Block>(
    w: &[B],
    blocks: usize,
    x: &Activations,
    first: usize,
    rows: usize,
    panel: &mut Panel,
) {
    let at_once = PANEL_COLUMNS / B::COLUMNS;
    panel.words.resize(2 * at_once * vectors::<B>(), [0; 16]);
    panel.d.resize(2 * at_once, Eight::default());
    panel.m.resize(2 * at_once, Eight::default());
    panel.classes.clear();
    panel.classes.resize(rows * 2 * WIDTH, Eight::default());
    panel.sums.resize(rows, [0.0; PANEL]);
    for start in (0..blocks).step_by(at_once) {
        let count = at_once.min(blocks - start);
        for half in 0..2 {
            let outputs = w.len() / blocks;
            let rows: [&[B]; WIDTH] = std::array::from_fn(|o| {
                let o = half * WIDTH + o;
                if o < outputs { &w[o * blocks + start..][..count] } else { &[] }
            });
            let (words, at) = (half * at_once * vectors::<B>(), half * at_once);
            let (d, m) = (&mut panel.d[at..at + count], &mut panel.m[at..at + count]);
            unpack::<L, B>(rows, &mut panel.words[words..][..count * vectors::<B>()], d, m);
        }
        let tiles = rows.div_ceil(TILE_ROWS);
        for tile in 0..tiles {
            // Rows are spread evenly over tiles: a tile of one row is slower a row than any other.
            let rows = tile * rows / tiles..(tile + 1) * rows / tiles;
            let row = |i: usize| x.row(first + rows.start + i);
            let classes = &mut panel.classes[rows.start * 2 * WIDTH..rows.end * 2 * WIDTH];
            let weights = (&panel.words[..], &panel.d[..], &panel.m[..]);
            match rows.len() {
                4 => tile_lanes::<L, B, 4>(weights, start, count, [row(0), row(1), row(2), row(3)], classes),
                3 => tile_lanes::<L, B, 3>(weights, start, count, [row(0), row(1), row(2)], classes),
                2 => tile_lanes::<L, B, 2>(weights, start, count, [row(0), row(1)], classes),
                _ => tile_lanes::<L, B, 1>(weights, start, count, [row(0)], classes),
            }
        }
    }
    for (classes, sums) in panel.classes.chunks_exact(2 * WIDTH).zip(&mut panel.sums) {
        for half in 0..2 {
            let class = |b: usize| L::load(&classes[2 * b + half].0);
            let low = class(0).add(class(1)).add(class(2).add(class(3)));
            let high = class(4).add(class(5)).add(class(6).add(class(7)));
            low.add(high).add(L::splat(0.0)).store_tail(&mut sums[half * WIDTH..(half + 1) * WIDTH]);
        }
    }
}

/// Blocks of eight outputs (none for outputs that are missing) as vectors of pairs.
#[inline(always)]
fn unpack<L: Integers, B: Block>(rows: [&[B]; WIDTH], out: &mut [Sixteen], d: &mut [Eight], m: &mut [Eight]) {
    let mut words = [[0; MOST]; WIDTH];
    let mut offsets = [[0; MOST / 16]; WIDTH];
    for (b, ((out, d), m)) in out.chunks_exact_mut(vectors::<B>()).zip(d).zip(m).enumerate() {
        let mut factors = [[[0; 2]; WIDTH]; 2];
        for (o, row) in rows.iter().enumerate() {
            if let Some(block) = row.get(b) {
                [factors[0][o], factors[1][o]] = block.factors().map(u16::to_le_bytes);
                block.words(L::look_up, &mut words[o][..B::COLUMNS]);
                if B::OFFSET {
                    block.offsets(&mut offsets[o][..B::COLUMNS / 16]);
                }
            }
        }
        L::f16(bytemuck::cast_ref(&factors[0])).store(&mut d.0);
        L::f16(bytemuck::cast_ref(&factors[1])).store(&mut m.0);
        let (pairs, offset_pairs) = out.split_at_mut(B::COLUMNS / 2);
        for (g, out) in pairs.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *out = L::transpose(std::array::from_fn(|o| &words[o].as_chunks().0[g]));
        }
        if B::OFFSET {
            let turned = L::transpose(offsets.each_ref());
            let count = offset_pairs.len();
            offset_pairs.copy_from_slice(&turned[..count]);
        }
    }
}

/// R activation rows times the sixteen outputs of a panel, `count` blocks from block `start` on.
#[inline(always)]
fn tile_lanes<L: Integers, B: Block, const R: usize>(
    (words, d, m): (&[Sixteen], &[Eight], &[Eight]),
    start: usize,
    count: usize,
    x: [Row<'_>; R],
    classes: &mut [Eight],
) {
    let at_once = PANEL_COLUMNS / B::COLUMNS;
    let (left, right) = words.split_at(at_once * vectors::<B>());
    for b in 0..count {
        let at = start + b;
        let part = b * vectors::<B>()..(b + 1) * vectors::<B>();
        let (left, left_offsets) = left[part.clone()].split_at(B::COLUMNS / 2);
        let (right, right_offsets) = right[part].split_at(B::COLUMNS / 2);
        let pairs = x.map(|x| x.words[at * B::COLUMNS..][..B::COLUMNS].as_chunks::<2>().0);
        let products = pair_products::<L, R>(left, right, pairs);
        let mut offset_products = [[L::zero(); 2]; R];
        if B::OFFSET {
            let count = B::COLUMNS / 16;
            let pairs = x.map(|x| x.sums[at * count..][..count].as_chunks::<2>().0);
            offset_products = pair_products::<L, R>(left_offsets, right_offsets, pairs);
        }
        for r in 0..R {
            let scale = L::splat(x[r].scales[at]);
            for c in 0..2 {
                let sum = &mut classes[r * 2 * WIDTH + at % WIDTH * 2 + c].0;
                let factor = L::load(&d[c * at_once + b].0).mul(scale);
                let mut total = factor.mul_add(L::to_lanes(products[r][c]), L::load(sum));
                if B::OFFSET {
                    let factor = L::load(&m[c * at_once + b].0).mul(scale);
                    total = factor.mul_add(L::to_lanes(offset_products[r][c]), total);
                }
                total.store(sum);
            }
        }
    }
}

/// Sums over pairs for sixteen outputs and R rows.
#[inline(always)]
fn pair_products<L: Integers, const R: usize>(
    left: &[Sixteen],
    right: &[Sixteen],
    x: [&[[i16; 2]]; R],
) -> [[L::Sums; 2]; R] {
    let mut sums = [[L::zero(); 2]; R];
    let x = x.map(|x| &x[..left.len()]);
    for (p, (left, right)) in left.iter().zip(right).enumerate() {
        let (left, right) = (L::words(left), L::words(right));
        for r in 0..R {
            let pair = L::pair(&x[r][p]);
            sums[r][0] = L::add_products(sums[r][0], left, pair);
            sums[r][1] = L::add_products(sums[r][1], right, pair);
        }
    }
    sums
}
