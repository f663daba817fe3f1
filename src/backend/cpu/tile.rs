//! Register tiles: a few activation rows times a few weight rows, weights in their stored format.
//!
//! Owns: how each storage format becomes lanes, and the innermost loops of every matrix product.
//! Always true: one accumulator of eight lanes a product; lane l takes k = l, l + 8, ... in ascending order, the last
//! group filled with zeros. A tile continues accumulators, so cutting k at multiples of eight changes no bit.
//! Not here: which tiles there are and who runs them (`linear`).

use super::lanes::{Eight, Lanes, WIDTH, vectorised};

/// A storage format whose elements become lanes, eight at a time.
pub trait Stored {
    /// Bytes of eight elements, as an array.
    type Group: Copy + Default + AsMut<[u8]>;
    /// Whether `scale` matters: formats without scales skip the multiplication.
    const SCALED: bool;
    /// Bytes of one element.
    const BYTES: usize = size_of::<Self::Group>() / WIDTH;
    /// Eight values. `scale` holds the result of [`Scales::at`].
    fn lanes<L: Lanes>(group: &Self::Group, scale: L) -> L;
    /// Whether [`Stored::pair`] is cheaper than two groups apart.
    const PAIRED: bool = false;
    /// Sixteen values.
    #[inline(always)]
    fn pair<L: Lanes>(groups: &[Self::Group; 2], scale: L) -> [L; 2] {
        [Self::lanes(&groups[0], scale), Self::lanes(&groups[1], scale)]
    }
}

/// [`crate::weights::Format::F32`]
pub struct F32;
/// [`crate::weights::Format::F16`]
pub struct F16;
/// [`crate::weights::Format::Bf16`]
pub struct Bf16;
/// [`crate::weights::Format::F8E4m3`]: the value times the block's scale, rounded to f32 once.
pub struct E4m3;

impl Stored for F32 {
    type Group = [u8; 32];
    const SCALED: bool = false;
    #[inline(always)]
    fn lanes<L: Lanes>(group: &[u8; 32], _: L) -> L {
        let mut values = [0.0; WIDTH];
        for (value, bytes) in values.iter_mut().zip(group.as_chunks().0) {
            *value = f32::from_le_bytes(*bytes);
        }
        L::load(&values)
    }
}

impl Stored for F16 {
    type Group = [u8; 16];
    const SCALED: bool = false;
    #[inline(always)]
    fn lanes<L: Lanes>(group: &[u8; 16], _: L) -> L {
        L::f16(group)
    }
}

impl Stored for Bf16 {
    type Group = [u8; 16];
    const SCALED: bool = false;
    #[inline(always)]
    fn lanes<L: Lanes>(group: &[u8; 16], _: L) -> L {
        L::bf16(group)
    }
}

impl Stored for E4m3 {
    type Group = [u8; 8];
    const SCALED: bool = true;
    #[inline(always)]
    fn lanes<L: Lanes>(group: &[u8; 8], scale: L) -> L {
        L::e4m3_by_256(group).mul(scale)
    }
    const PAIRED: bool = true;
    #[inline(always)]
    fn pair<L: Lanes>(groups: &[[u8; 8]; 2], scale: L) -> [L; 2] {
        let [a, b] = L::e4m3_pair_by_256(groups);
        [a.mul(scale), b.mul(scale)]
    }
}

/// The scales of one weight row.
#[derive(Clone, Copy)]
pub struct Scales<'a> {
    /// One value a block of columns.
    pub values: &'a [f32],
    /// Columns that a value covers, a multiple of eight.
    pub block: usize,
}

impl Scales<'_> {
    /// Without scales: one block that covers any row.
    pub const NONE: Scales<'static> = Scales { values: &[1.0], block: 1 << (usize::BITS - 2) };

    /// 256 times the scale of `column`: lanes of E4M3 come divided by 256, and both are exact powers of two away from
    /// what they stand for (a scale above 1.3e36 overflows, its weights would as well).
    #[inline(always)]
    fn at(&self, column: usize) -> f32 {
        256.0 * self.values[column / self.block]
    }
}

vectorised! {
    /// Adds `w[c] . x[r]` into `sums[r * C + c]`, for whole stored rows. `w[c]` holds as many elements as `x[r]`.
    pub fn stored_tile[S: Stored, const R: usize, const C: usize][S, R, C](
        w: [&[u8]; C], scales: [Scales<'_>; C], x: [&[f32]; R], sums: &mut [Eight]
    ) = stored_tile_lanes;
    /// Adds the products of all rows of a panel with R activation rows into `sums` `[w.len() / stride][R]`, tile after
    /// tile. A panel's row is `stride` groups long, zeros behind the last column of `x`.
    pub fn panel_tiles[const R: usize][R](w: &[Eight], stride: usize, x: [&[f32]; R], sums: &mut [Eight])
        = panel_tiles_lanes;
    /// Adds up the lanes of what [`panel_tiles`] left in `sums`: `out[r][n]` for every row n of the panel.
    pub fn panel_sums[const R: usize][R](sums: &[Eight], out: [&mut [f32]; R]) = panel_sums_lanes;
    /// Decodes elements from `column` (a multiple of eight) on into lanes, zeros behind the last one.
    pub fn decode[S: Stored][S](w: &[u8], scales: Scales<'_>, column: usize, out: &mut [Eight]) = decode_lanes;
    /// `out[i]` = the sum of the lanes of `sums[i]`, over the shorter length.
    pub fn add_lanes(sums: &[Eight], out: &mut [f32]) = add_lanes_lanes;
}

/// The short group at a row's end, zeros behind it (they decode to 0).
#[inline(always)]
fn tail<S: Stored>(bytes: &[u8]) -> S::Group {
    let mut group = S::Group::default();
    group.as_mut()[..bytes.len()].copy_from_slice(bytes);
    group
}

/// Views bytes as whole groups.
#[inline(always)]
fn groups<S: Stored>(bytes: &[u8]) -> &[S::Group] {
    let count = bytes.len() / size_of::<S::Group>();
    // SAFETY: a group is an array of bytes (alignment 1, every pattern valid); `count` of them lie within `bytes`.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), count) }
}

#[inline(always)]
fn load_sums<L: Lanes, const R: usize, const C: usize>(sums: &[Eight]) -> [[L; C]; R] {
    let mut tile = [[L::splat(0.0); C]; R];
    for r in 0..R {
        for c in 0..C {
            tile[r][c] = L::load(&sums[r * C + c].0);
        }
    }
    tile
}

#[inline(always)]
fn store_sums<L: Lanes, const R: usize, const C: usize>(tile: [[L; C]; R], sums: &mut [Eight]) {
    for r in 0..R {
        for c in 0..C {
            tile[r][c].store(&mut sums[r * C + c].0);
        }
    }
}

/// # Safety
/// Every row has more than `g` groups.
#[inline(always)]
unsafe fn add_products<L: Lanes, const R: usize, const C: usize>(
    tile: &mut [[L; C]; R],
    w: [L; C],
    rows: [&[[f32; WIDTH]]; R],
    g: usize,
) {
    for r in 0..R {
        // SAFETY: the caller's promise.
        let x = L::load(unsafe { rows[r].get_unchecked(g) });
        for c in 0..C {
            tile[r][c] = w[c].mul_add(x, tile[r][c]);
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

#[inline(always)]
fn stored_tile_lanes<L: Lanes, S: Stored, const R: usize, const C: usize>(
    w: [&[u8]; C],
    scales: [Scales<'_>; C],
    x: [&[f32]; R],
    sums: &mut [Eight],
) {
    let columns = x[0].len();
    let whole = columns / WIDTH;
    let mut tile = load_sums::<L, R, C>(sums);
    let mut weights: [&[S::Group]; C] = [&[]; C];
    for c in 0..C {
        assert_eq!(w[c].len(), columns * S::BYTES);
        weights[c] = groups::<S>(w[c]);
    }
    let mut rows: [&[[f32; WIDTH]]; R] = [&[]; R];
    for r in 0..R {
        assert_eq!(x[r].len(), columns);
        rows[r] = x[r].as_chunks().0;
    }
    let span = if S::SCALED { scales[0].block / WIDTH } else { whole.max(1) };
    let mut start = 0;
    while start < whole {
        let end = whole.min(start + span);
        let mut scale = [L::splat(1.0); C];
        if S::SCALED {
            for c in 0..C {
                scale[c] = L::splat(scales[c].at(start * WIDTH));
            }
        }
        let mut g = start;
        while S::PAIRED && g + 2 <= end {
            let mut v = [[L::splat(0.0); C]; 2];
            for c in 0..C {
                // SAFETY: g + 2 <= whole, and every weight row was found to hold `whole` groups.
                let pair = unsafe { &*weights[c].as_ptr().add(g).cast::<[S::Group; 2]>() };
                [v[0][c], v[1][c]] = S::pair(pair, scale[c]);
            }
            for v in v {
                // SAFETY: g < whole, and every activation row was found to hold `whole` groups.
                unsafe { add_products(&mut tile, v, rows, g) };
                g += 1;
            }
        }
        while g < end {
            let mut v = [L::splat(0.0); C];
            for c in 0..C {
                if R == 1 && (g * size_of::<S::Group>()) % LINE == 0 {
                    // One row leaves the memory no time between tiles: its next C weight rows lie right behind these.
                    L::prefetch(weights[c].as_ptr().wrapping_add(g + C * whole).cast());
                }
                // SAFETY: g < whole, and every weight row was found to hold `whole` groups.
                v[c] = S::lanes(unsafe { weights[c].get_unchecked(g) }, scale[c]);
            }
            // SAFETY: g < whole, and every activation row was found to hold `whole` groups.
            unsafe { add_products(&mut tile, v, rows, g) };
            g += 1;
        }
        start = end;
    }
    if whole * WIDTH < columns {
        for c in 0..C {
            let scale = L::splat(if S::SCALED { scales[c].at(whole * WIDTH) } else { 1.0 });
            let v = S::lanes(&tail::<S>(&w[c][whole * size_of::<S::Group>()..]), scale);
            for r in 0..R {
                tile[r][c] = v.mul_add(L::load_tail(&x[r][whole * WIDTH..]), tile[r][c]);
            }
        }
    }
    store_sums(tile, sums);
}

/// Panel rows in a register tile: with 4 activation rows, 12 sums, 3 weights and 1 activation are the 16 registers.
const PANEL_TILE: usize = 3;

#[inline(always)]
fn panel_tiles_lanes<L: Lanes, const R: usize>(w: &[Eight], stride: usize, x: [&[f32]; R], sums: &mut [Eight]) {
    for (w, sums) in w.chunks(PANEL_TILE * stride).zip(sums.chunks_mut(PANEL_TILE * R)) {
        match w.len() / stride {
            3 => panel_tile::<L, R, 3>(w, stride, x, sums),
            2 => panel_tile::<L, R, 2>(w, stride, x, sums),
            _ => panel_tile::<L, R, 1>(w, stride, x, sums),
        }
    }
}

#[inline(always)]
fn panel_tile<L: Lanes, const R: usize, const C: usize>(
    w: &[Eight],
    stride: usize,
    x: [&[f32]; R],
    sums: &mut [Eight],
) {
    let columns = x[0].len();
    let whole = columns / WIDTH;
    let mut rows: [&[[f32; WIDTH]]; R] = [&[]; R];
    for r in 0..R {
        assert_eq!(x[r].len(), columns);
        rows[r] = x[r].as_chunks().0;
    }
    let mut weights: [&[Eight]; C] = [&[]; C];
    for c in 0..C {
        weights[c] = &w[c * stride..][..columns.div_ceil(WIDTH)];
    }
    let mut tile = load_sums::<L, R, C>(sums);
    for g in 0..whole {
        let mut v = [L::splat(0.0); C];
        for c in 0..C {
            // SAFETY: g < whole, and every weight row was cut to at least `whole` groups.
            v[c] = L::load(unsafe { &weights[c].get_unchecked(g).0 });
        }
        // SAFETY: g < whole, and every activation row was found to hold `whole` groups.
        unsafe { add_products(&mut tile, v, rows, g) };
    }
    if whole * WIDTH < columns {
        for r in 0..R {
            let x = L::load_tail(&x[r][whole * WIDTH..]);
            for c in 0..C {
                tile[r][c] = L::load(&weights[c][whole].0).mul_add(x, tile[r][c]);
            }
        }
    }
    store_sums(tile, sums);
}

#[inline(always)]
fn panel_sums_lanes<L: Lanes, const R: usize>(sums: &[Eight], out: [&mut [f32]; R]) {
    for (tile, sums) in sums.chunks(PANEL_TILE * R).enumerate() {
        let outputs = sums.len() / R;
        for c in 0..outputs {
            // At most four rows: those that are missing add up nothing.
            let mut column = [L::splat(0.0); 4];
            for r in 0..R {
                column[r] = L::load(&sums[r * outputs + c].0);
            }
            let column = L::sums(column);
            for r in 0..R {
                out[r][tile * PANEL_TILE + c] = column[r];
            }
        }
    }
}

#[inline(always)]
fn decode_lanes<L: Lanes, S: Stored>(w: &[u8], scales: Scales<'_>, column: usize, out: &mut [Eight]) {
    let whole = groups::<S>(w);
    let span = if S::SCALED { scales.block / WIDTH } else { whole.len().max(1) };
    let mut start = 0;
    while start < whole.len() {
        // The first span may begin inside a block.
        let in_block = if S::SCALED { column / WIDTH % span } else { 0 };
        let end = if start == 0 { span - in_block } else { start + span }.min(whole.len());
        let scale = L::splat(if S::SCALED { scales.at(column + start * WIDTH) } else { 1.0 });
        let (pairs, last) = whole[start..end].as_chunks::<2>();
        let (out_pairs, out_last) = out[start..end].as_chunks_mut::<2>();
        for (pair, [to_a, to_b]) in pairs.iter().zip(out_pairs) {
            let [a, b] = S::pair(pair, scale);
            a.store(&mut to_a.0);
            b.store(&mut to_b.0);
        }
        for (group, out) in last.iter().zip(out_last) {
            S::lanes(group, scale).store(&mut out.0);
        }
        start = end;
    }
    let rest = &w[size_of_val(whole)..];
    if !rest.is_empty() {
        let scale = L::splat(if S::SCALED { scales.at(column + whole.len() * WIDTH) } else { 1.0 });
        S::lanes(&tail::<S>(rest), scale).store(&mut out[whole.len()].0);
    }
}

#[inline(always)]
fn add_lanes_lanes<L: Lanes>(sums: &[Eight], out: &mut [f32]) {
    let (fours, rest) = sums.as_chunks::<4>();
    let (out_fours, out_rest) = out.as_chunks_mut::<4>();
    for ([a, b, c, d], out) in fours.iter().zip(out_fours) {
        *out = L::sums([L::load(&a.0), L::load(&b.0), L::load(&c.0), L::load(&d.0)]);
    }
    for (sum, out) in rest.iter().zip(out_rest) {
        *out = L::load(&sum.0).sum();
    }
}
