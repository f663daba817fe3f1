//! Products with quantised matrices: from a matrix and rows of activations to tiles.
//!
//! Owns: activations prepared for a product, who prepares them, the choice between tiles for few and for many rows.
//! Always true: each thread keeps the buffers it used, so nothing is allocated after the first calls.
//! Not here: the tiles (`quantised`), tasks (`linear`).

use std::cell::Cell;
use std::ops::Range;

use super::activations::Activations;
use super::lanes::{Eight, WIDTH};
use super::linear::{PANEL_ROWS, Rows, Target};
use super::quantised::{
    CHUNK, Chunk, Classes, HalfPanel, Kind, PANEL, PANEL_COLUMNS, add_classes, few, interleave, tile,
};
use super::tile::add_lanes;
use crate::weights::{Format, Matrix};

/// Weight rows that are read side by side: one stream alone does not keep memory busy.
const STREAMS: usize = 4;
/// Most activation rows of a tile.
const TILE_ROWS: usize = 4;

/// Rows of activations as integers, for every block length that the matrices of a product have.
#[derive(Default)]
pub struct Prepared {
    by_32: Activations,
    by_256: Activations,
}

thread_local! {
    /// Taken while in use: a product that this thread runs meanwhile finds an empty one.
    static PREPARED: Cell<Prepared> = Cell::default();
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
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
pub unsafe fn product(w: &Matrix, kind: Kind, n: Range<usize>, x: Rows<'_>, out: Target) {
    // SAFETY: the caller's promise.
    let run = |x: Rows<'_>| unsafe { prepared_product(w, kind, n, x, out) };
    if x.prepared().is_some() { run(x) } else { Prepared::with(x, [w.format].into_iter(), run) }
}

/// # Safety
/// As for [`super::linear::product`].
unsafe fn prepared_product(w: &Matrix, kind: Kind, n: Range<usize>, x: Rows<'_>, out: Target) {
    let Some((prepared, first)) = x.prepared() else { return };
    let activations = if kind.columns == 32 { &prepared.by_32 } else { &prepared.by_256 };
    let mut scratch = SCRATCH.take().unwrap_or_default();
    let mut product = Product { w, kind, n, activations, first, scratch: &mut scratch };
    for start in (0..x.count()).step_by(PANEL_ROWS) {
        let (count, out) = (PANEL_ROWS.min(x.count() - start), out.at(start, 0));
        product.first = first + start;
        // SAFETY: the caller's promise, for these rows.
        unsafe {
            match count {
                1 => product.one_row(out),
                2 => product.few_rows::<2>(out),
                3 => product.few_rows::<3>(out),
                TILE_ROWS => product.few_rows::<TILE_ROWS>(out),
                _ => product.many_rows(count, out),
            }
        }
    }
    SCRATCH.set(Some(scratch));
}

/// Buffers of a thread.
#[derive(Default)]
struct Scratch {
    chunks: [Chunk; WIDTH],
    panel: [HalfPanel; 2],
    classes: Vec<Classes>,
}

struct Product<'a> {
    w: &'a Matrix,
    kind: Kind,
    n: Range<usize>,
    activations: &'a Activations,
    /// Row 0 among the activations.
    first: usize,
    scratch: &'a mut Scratch,
}

impl Product<'_> {
    /// # Safety
    /// As for [`super::linear::product`].
    unsafe fn one_row(&mut self, out: Target) {
        let bytes = self.w.format.row_bytes(self.w.cols);
        let rows = &self.w.data[self.n.start * bytes..self.n.end * bytes];
        // SAFETY: the caller's promise.
        (self.kind.one)(rows, self.activations.row(self.first), unsafe { out.part(0, 0, self.n.len()) });
    }

    /// # Safety
    /// As for [`super::linear::product`].
    unsafe fn few_rows<const R: usize>(&mut self, out: Target) {
        let x = std::array::from_fn(|r| self.activations.row(self.first + r));
        let (all, at_once) = (self.w.cols / self.kind.columns, CHUNK / self.kind.columns);
        for at in (0..self.n.len()).step_by(STREAMS) {
            let outputs = STREAMS.min(self.n.len() - at);
            let mut sums = [[Eight::default(); R]; STREAMS];
            for start in (0..all).step_by(at_once) {
                let count = at_once.min(all - start);
                let bytes = start * self.kind.bytes..(start + count) * self.kind.bytes;
                let chunk = &mut self.scratch.chunks[0];
                for (n, sums) in (self.n.start + at..self.n.end).zip(&mut sums) {
                    (self.kind.unpack)(&self.w.row(n)[bytes.clone()], chunk);
                    match self.kind.columns {
                        32 => few::<32, R>(chunk, self.kind.offset, start, count, x, sums),
                        _ => few::<256, R>(chunk, self.kind.offset, start, count, x, sums),
                    }
                }
            }
            let mut values = [0.0; STREAMS * TILE_ROWS];
            add_lanes(sums.as_flattened(), &mut values);
            for r in 0..R {
                // SAFETY: the caller's promise.
                let out = unsafe { out.part(r, at, outputs) };
                for (out, values) in out.iter_mut().zip(values.chunks_exact(R)) {
                    *out = values[r] + 0.0;
                }
            }
        }
    }

    /// # Safety
    /// As for [`super::linear::product`].
    unsafe fn many_rows(&mut self, rows: usize, out: Target) {
        for at in (0..self.n.len()).step_by(PANEL) {
            let outputs = self.n.start + at..self.n.end.min(self.n.start + at + PANEL);
            self.scratch.classes.clear();
            self.scratch.classes.resize(rows, Classes::default());
            let (all, at_once) = (self.w.cols / self.kind.columns, PANEL_COLUMNS / self.kind.columns);
            for start in (0..all).step_by(at_once) {
                self.unpack_panel(outputs.clone(), start, at_once);
                self.panel_rows(rows, start, at_once.min(all - start));
            }
            for (r, classes) in self.scratch.classes.iter().enumerate() {
                let mut sums = [0.0; PANEL];
                add_classes(classes, &mut sums);
                // SAFETY: the caller's promise.
                unsafe { out.part(r, at, outputs.len()) }.copy_from_slice(&sums[..outputs.len()]);
            }
        }
    }

    /// Outputs that are missing keep what was there: nobody reads their sums.
    fn unpack_panel(&mut self, outputs: Range<usize>, start: usize, at_once: usize) {
        let (w, kind) = (self.w, self.kind);
        let count = at_once.min(w.cols / kind.columns - start);
        let Scratch { chunks, panel, .. } = &mut *self.scratch;
        for (half, panel) in panel.iter_mut().enumerate() {
            for (n, chunk) in outputs.clone().skip(half * WIDTH).zip(chunks.iter_mut()) {
                let bytes = start * kind.bytes..(start + count) * kind.bytes;
                (kind.unpack)(&w.row(n)[bytes], chunk);
            }
            interleave(chunks, &kind, count, panel);
        }
    }

    fn panel_rows(&mut self, rows: usize, start: usize, count: usize) {
        let (activations, first, kind) = (self.activations, self.first, &self.kind);
        let Scratch { panel, classes, .. } = &mut *self.scratch;
        // Rows are spread evenly over tiles: a tile of one row is slower a row than any other.
        let tiles = rows.div_ceil(TILE_ROWS);
        for i in 0..tiles {
            let rows = i * rows / tiles..(i + 1) * rows / tiles;
            let row = |r: usize| activations.row(first + rows.start + r);
            let classes = &mut classes[rows.clone()];
            match rows.len() {
                4 => tile(panel, kind, start, count, [row(0), row(1), row(2), row(3)], classes),
                3 => tile(panel, kind, start, count, [row(0), row(1), row(2)], classes),
                2 => tile(panel, kind, start, count, [row(0), row(1)], classes),
                _ => tile(panel, kind, start, count, [row(0)], classes),
            }
        }
    }
}
