//! Products with quantised matrices: from a matrix and rows of activations to tiles.
//!
//! Owns: activations prepared for a product, who prepares them, the choice between tiles for few and for many rows.
//! Always true: each thread keeps the buffers it used, so nothing is allocated after the first calls.
//! Not here: the tiles (`quantised`), tasks (`linear`).

use std::cell::Cell;
use std::ops::Range;

use super::activations::Activations;
use super::linear::{PANEL_ROWS, Rows, Target};
use super::quantised::{PANEL, Panel, TILE_ROWS, few, many};
use crate::weights::format::Block;
use crate::weights::{Format, Matrix};

/// Rows of activations as integers, for every block length that the matrices of a product have.
#[derive(Default)]
pub struct Prepared {
    by_32: Activations,
    by_256: Activations,
}

thread_local! {
    /// Taken while in use: a product that this thread runs meanwhile finds an empty one.
    static PREPARED: Cell<Prepared> = Cell::default();
    static PANELS: Cell<Panel> = Cell::default();
}

/// Elements from which rows are prepared on several threads: below, 10 µs of one thread.
const PARALLEL: usize = 1 << 16;

impl Prepared {
    /// Calls `run` with the rows prepared for matrices of these formats, if there is one that needs it.
    pub fn with<'x>(x: Rows<'x>, formats: impl Iterator<Item = Format> + Clone, run: impl FnOnce(Rows<'_>)) {
        if !formats.clone().any(Format::is_quantised) {
            return run(x);
        }
        let mut prepared = PREPARED.take();
        for block in [32, 256] {
            if formats.clone().any(|format| format.block() == block) {
                prepared.fill(block, &x);
            }
        }
        run(x.with_prepared(&prepared));
        PREPARED.set(prepared);
    }

    fn fill(&mut self, block: usize, x: &Rows<'_>) {
        let (cols, rows) = (x.width(), x.count());
        assert!(cols.is_multiple_of(block), "{cols} columns are not whole blocks of {block}");
        let activations = if block == 32 { &mut self.by_32 } else { &mut self.by_256 };
        activations.fill(block, cols, rows, |r| x.row(r), cols * rows >= PARALLEL);
    }
}

/// Outputs `n` on the calling thread, the first of them into column 0 of `out`.
///
/// # Safety
/// As for [`super::linear::product`].
pub unsafe fn product<B: Block>(w: &Matrix, n: Range<usize>, x: Rows<'_>, out: Target) {
    // SAFETY: the caller's promise.
    let run = |x: Rows<'_>| unsafe { prepared_product::<B>(w, n, x, out) };
    if x.prepared().is_some() { run(x) } else { Prepared::with(x, [w.format].into_iter(), run) }
}

unsafe fn prepared_product<B: Block>(w: &Matrix, n: Range<usize>, x: Rows<'_>, out: Target) {
    let Some((prepared, first)) = x.prepared() else { return };
    let activations = if B::COLUMNS == 32 { &prepared.by_32 } else { &prepared.by_256 };
    let blocks = w.cols / B::COLUMNS;
    let bytes = w.format.row_bytes(w.cols);
    let rows: &[B] = bytemuck::cast_slice(&w.data[n.start * bytes..n.end * bytes]);
    for start in (0..x.count()).step_by(PANEL_ROWS) {
        let (first, count, out) = (first + start, PANEL_ROWS.min(x.count() - start), out.at(start, 0));
        // SAFETY: the caller's promise, for these rows.
        unsafe {
            match count {
                _ if blocks == 0 => (0..count).for_each(|r| out.part(r, 0, n.len()).fill(0.0)),
                1 => few_rows::<B, 1>(rows, blocks, activations, first, out),
                2 => few_rows::<B, 2>(rows, blocks, activations, first, out),
                3 => few_rows::<B, 3>(rows, blocks, activations, first, out),
                TILE_ROWS => few_rows::<B, TILE_ROWS>(rows, blocks, activations, first, out),
                _ => many_rows::<B>(rows, blocks, activations, first, count, out),
            }
        }
    }
}

unsafe fn few_rows<B: Block, const R: usize>(w: &[B], blocks: usize, x: &Activations, first: usize, out: Target) {
    /// Outputs whose results wait to be spread over the rows.
    const AT_ONCE: usize = 64;
    let x = std::array::from_fn(|r| x.row(first + r));
    let mut values = [0.0; AT_ONCE * TILE_ROWS];
    for (i, w) in w.chunks(AT_ONCE * blocks).enumerate() {
        let outputs = w.len() / blocks;
        let values = &mut values[..outputs * R];
        few::<B, R>(w, blocks, x, values);
        for r in 0..R {
            // SAFETY: the caller's promise.
            let out = unsafe { out.part(r, i * AT_ONCE, outputs) };
            for (out, values) in out.iter_mut().zip(values.chunks_exact(R)) {
                *out = values[r];
            }
        }
    }
}

unsafe fn many_rows<B: Block>(w: &[B], blocks: usize, x: &Activations, first: usize, count: usize, out: Target) {
    let mut panel = PANELS.take();
    for (i, w) in w.chunks(PANEL * blocks).enumerate() {
        let outputs = w.len() / blocks;
        many::<B>(w, blocks, x, first, count, &mut panel);
        for (r, sums) in panel.sums[..count].iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { out.part(r, i * PANEL, outputs) }.copy_from_slice(&sums[..outputs]);
        }
    }
    PANELS.set(panel);
}
