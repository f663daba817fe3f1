//! Products of activations with weight matrices in their stored format: `y[r, n] = sum_k x[r, k] * w[n, k]`.
//!
//! Owns: how a product is cut into tiles, cache blocks and tasks for the current rayon pool.
//! Always true: *ordered*: the bits of `y[r, n]` depend on `x[r, :]` and `w[n, :]` only, and are those of
//! [`super::simd::dot`] on the decoded weights. Weights are read once a call for up to [`PANEL_ROWS`] rows.
//! Nothing is allocated after the first calls (each thread keeps its panel).
//! Not here: the innermost loops (`tile`), experts (`moe`).

use std::cell::RefCell;
use std::ops::Range;

use super::blocks::{self, Prepared};
use super::crew;
use super::lanes::{Eight, WIDTH};
use super::quantised::Kind;
use super::tile::{Bf16, E4m3, F16, F32, Scales, Stored, add_lanes, decode, panel_sums, panel_tiles, stored_tile};
use crate::weights::{Format, Matrix};

/// Activation rows of one width: evenly spaced ones, or those that `index` names.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    data: &'a [f32],
    width: usize,
    stride: usize,
    index: Option<&'a [u32]>,
    /// Of `index`, or of the evenly spaced ones.
    first: usize,
    count: usize,
    /// What quantised matrices multiply: row r of these is row `first + r` of the prepared ones.
    prepared: Option<&'a Prepared>,
}

impl<'a> Rows<'a> {
    /// `count` rows of `width`, one after another. Panics if `data` is shorter.
    pub fn consecutive(data: &'a [f32], width: usize, count: usize) -> Rows<'a> {
        Rows::strided(data, width, width, count)
    }
    /// `count` rows of `width`, each starting `stride` behind the last. Panics if `data` is shorter.
    pub fn strided(data: &'a [f32], width: usize, stride: usize, count: usize) -> Rows<'a> {
        let needed = count.checked_sub(1).map_or(0, |before| before * stride + width);
        assert!(data.len() >= needed, "{count} rows of {width} need {needed} values, not {}", data.len());
        Rows { data, width, stride, index: None, first: 0, count, prepared: None }
    }
    /// Rows of `width`, lying one after another, in the order of `index`.
    pub fn gathered(data: &'a [f32], width: usize, index: &'a [u32]) -> Rows<'a> {
        Rows { data, width, stride: width, index: Some(index), first: 0, count: index.len(), prepared: None }
    }
    pub(super) fn row(&self, r: usize) -> &'a [f32] {
        let r = self.first + r;
        let r = self.index.map_or(r, |index| index[r] as usize);
        &self.data[r * self.stride..][..self.width]
    }
    /// At most `most` rows from `start` on.
    fn part(&self, start: usize, most: usize) -> Rows<'a> {
        Rows { first: self.first + start, count: most.min(self.count - start), ..*self }
    }
    pub(super) fn width(&self) -> usize {
        self.width
    }
    pub(super) fn count(&self) -> usize {
        self.count
    }
    /// These rows, with all of them prepared.
    pub(super) fn with_prepared<'b>(self, prepared: &'b Prepared) -> Rows<'b>
    where
        'a: 'b,
    {
        debug_assert_eq!(self.first, 0, "a part of prepared rows is a part of all");
        Rows { prepared: Some(prepared), ..self }
    }
    /// The prepared rows, and which of them is row 0.
    pub(super) fn prepared(&self) -> Option<(&'a Prepared, usize)> {
        self.prepared.map(|prepared| (prepared, self.first))
    }
}

/// Where results go: a row-major matrix of which several tasks write different columns or rows.
#[derive(Clone, Copy)]
pub(super) struct Target {
    data: *mut f32,
    len: usize,
    stride: usize,
}

// SAFETY: a target is a `&mut [f32]` in parts; `write` demands that no two tasks write the same element.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    pub(super) fn new(data: &mut [f32], stride: usize) -> Target {
        Target { data: data.as_mut_ptr(), len: data.len(), stride }
    }

    /// The same memory, its first row being `row` and its first column `column`.
    pub(super) fn at(self, row: usize, column: usize) -> Target {
        let skip = (row * self.stride + column).min(self.len);
        Target { data: self.data.wrapping_add(skip), len: self.len - skip, stride: self.stride }
    }

    /// `length` elements of `row` from `column` on.
    ///
    /// # Safety
    /// The slice the target was made from is still borrowed, and nobody else accesses these elements meanwhile.
    #[inline]
    pub(super) unsafe fn part<'a>(self, row: usize, column: usize, length: usize) -> &'a mut [f32] {
        let start = row * self.stride + column;
        assert!(start + length <= self.len, "a product writes behind its target");
        // SAFETY: inside of the slice by the assertion, exclusive by the contract above.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), length) }
    }
}

/// `y[r, n] = x[r, :] . w[n, :]`; `x` is `[rows, w.cols]`, `y` `[rows, w.rows]`. Runs on the current rayon pool, or
/// inline where that would take longer. Panics if a slice is too short for its shape.
pub fn linear(w: &Matrix, x: &[f32], rows: usize, y: &mut [f32]) {
    assert!(y.len() >= rows * w.rows, "{}: {rows} rows of results need more than {} values", w.name, y.len());
    run(&[Job { w, out: Target::new(y, w.rows) }], Rows::consecutive(x, w.cols, rows));
}

/// Several matrices of the same width times the same `x`, in one parallel region: `y[i]` is `[rows, w[i].rows]`.
pub fn linear_many(outputs: &mut [(&Matrix, &mut [f32])], x: &[f32], rows: usize) {
    const AT_ONCE: usize = 8;
    for outputs in outputs.chunks_mut(AT_ONCE) {
        let Some((first, _)) = outputs.first() else { return };
        let x = Rows::consecutive(x, first.cols, rows);
        let mut jobs = [Job { w: first, out: Target::new(&mut [], 0) }; AT_ONCE];
        for (job, (w, y)) in jobs.iter_mut().zip(outputs.iter_mut()) {
            assert!(y.len() >= rows * w.rows, "{}: {rows} rows of results need more than {} values", w.name, y.len());
            *job = Job { w, out: Target::new(y, w.rows) };
        }
        run(&jobs[..outputs.len()], x);
    }
}

/// Output features `n` of [`linear`], on the calling thread: `y[r * stride + i]` is feature `n.start + i` of row r.
pub fn linear_range(w: &Matrix, n: Range<usize>, x: Rows<'_>, y: &mut [f32], stride: usize) {
    assert!(n.len() <= stride || x.count <= 1, "{}: rows of results overlap", w.name);
    // SAFETY: `y` is borrowed for this call, which is its only user.
    unsafe { product(w, n, x, Target::new(y, stride)) }
}

#[derive(Clone, Copy)]
struct Job<'a> {
    w: &'a Matrix,
    out: Target,
}

/// Estimated time of a product on one thread. Only the order of magnitude matters: it decides about inlining and cuts.
pub(super) fn nanoseconds(w: &Matrix, outputs: usize, rows: usize) -> usize {
    // 20 bytes a nanosecond (between memory's speed and the last cache's), 40 multiply-adds (Zen 3, one core).
    outputs * (w.format.row_bytes(w.cols) / 20 + rows * w.cols / 40)
}

/// Below this estimate a product runs on the calling thread: where no crew waits awake, waking another thread takes
/// several microseconds. A BF16 matrix of 256 x 512 takes 9 of them and stays inline, one of 4096 x 256 takes 80 and does not.
pub(super) const INLINE_NS: usize = 20_000;
/// No task is cut smaller than this.
pub(super) const TASK_NS: usize = 5_000;
/// Tasks a thread, so that a late thread delays the end by a fraction of its share only: of 4, the last ones left 7 % of
/// a token's time to one thread (Zen 3, 2026-11).
pub(super) const TASKS_PER_THREAD: usize = 12;

/// Outputs in a task of about `task_ns`: a multiple of the panel, or of what a tile needs if that is too much.
fn outputs_per_task(w: &Matrix, rows: usize, task_ns: usize) -> usize {
    let wanted = (task_ns / nanoseconds(w, 1, rows).max(1)).max(1);
    let multiple = if wanted >= PANEL { PANEL } else { 12 };
    wanted.next_multiple_of(multiple)
}

fn run(jobs: &[Job<'_>], x: Rows<'_>) {
    Prepared::with(x, jobs.iter().map(|job| job.w.format), |x| run_prepared(jobs, x));
}

fn run_prepared(jobs: &[Job<'_>], x: Rows<'_>) {
    let total: usize = jobs.iter().map(|job| nanoseconds(job.w, job.w.rows, x.count)).sum();
    let threads = if total < INLINE_NS { 1 } else { rayon::current_num_threads() };
    if threads == 1 {
        for job in jobs {
            // SAFETY: the targets are borrowed by the caller of this function and distinct; nobody else runs.
            unsafe { product(job.w, 0..job.w.rows, x, job.out) }
        }
        return;
    }
    let task_ns = (total / (threads * TASKS_PER_THREAD)).max(TASK_NS);
    let row_blocks = x.count.div_ceil(PANEL_ROWS);
    let rows_at_once = x.count.min(PANEL_ROWS);
    let cuts = |job: &Job<'_>| {
        let outputs = outputs_per_task(job.w, rows_at_once, task_ns);
        (outputs, job.w.rows.div_ceil(outputs) * row_blocks)
    };
    let tasks = jobs.iter().map(|job| cuts(job).1).sum();
    crew::each(tasks, |task| {
        let mut task = task;
        for job in jobs {
            let (outputs, tasks) = cuts(job);
            if task < tasks {
                let (n, rows) = (task / row_blocks * outputs, task % row_blocks * PANEL_ROWS);
                let part = x.part(rows, PANEL_ROWS);
                // SAFETY: the targets are borrowed by the caller of this function and distinct; tasks of a job differ
                // in their outputs or in their rows.
                unsafe { product(job.w, n..(n + outputs).min(job.w.rows), part, job.out.at(rows, n)) }
                return;
            }
            task -= tasks;
        }
    });
}

/// Outputs `n` on the calling thread, the first of them into column 0 of `out`.
///
/// # Safety
/// `out` is still borrowed, and nobody else accesses these rows and columns of it meanwhile.
pub(super) unsafe fn product(w: &Matrix, n: Range<usize>, x: Rows<'_>, out: Target) {
    assert!(x.width == w.cols, "{} is {} wide, the activations are {}", w.name, w.cols, x.width);
    let block = w.scales.as_ref().map_or(WIDTH, |scales| scales.block);
    assert!(block > 0 && block.is_multiple_of(WIDTH), "{}: a scale covers {block} columns, not whole groups", w.name);
    // SAFETY: the caller's promise.
    unsafe {
        match w.format {
            Format::F32 => product_of::<F32>(w, n, x, out),
            Format::F16 => product_of::<F16>(w, n, x, out),
            Format::Bf16 => product_of::<Bf16>(w, n, x, out),
            Format::F8E4m3 => product_of::<E4m3>(w, n, x, out),
            quantised => match Kind::of(quantised) {
                Some(kind) => blocks::product(w, kind, n, x, out),
                None => unreachable_format(w),
            },
        }
    }
}

#[cold]
fn unreachable_format(w: &Matrix) -> ! {
    panic!("{}: integers are no weights", w.name)
}

/// # Safety
/// As `product`: no other task writes outputs `n` of these rows.
unsafe fn product_of<S: Stored>(w: &Matrix, n: Range<usize>, x: Rows<'_>, out: Target) {
    for start in (0..x.count).step_by(PANEL_ROWS) {
        let (n, x, out) = (n.clone(), x.part(start, PANEL_ROWS), out.at(start, 0));
        // SAFETY: the caller's promise, for these rows.
        unsafe {
            match x.count {
                // Eight streams of weights keep memory busy; four reach three quarters of its speed (Zen 3, 2026-11).
                1 if !S::SCALED => few_rows::<S, 1, 8>(w, n, x, out),
                1 => few_rows::<S, 1, 4>(w, n, x, out),
                2 => few_rows::<S, 2, 4>(w, n, x, out),
                3 => few_rows::<S, 3, 3>(w, n, x, out),
                4 => few_rows::<S, 4, 3>(w, n, x, out),
                // Twice over weights that the first tile has just brought in: still faster than a panel, unless
                // decoding is what takes the time.
                5 if !S::SCALED => two_tiles::<S, 3, 2>(w, n, x, out),
                6 if !S::SCALED => two_tiles::<S, 3, 3>(w, n, x, out),
                7 if !S::SCALED => two_tiles::<S, 4, 3>(w, n, x, out),
                8 if !S::SCALED => two_tiles::<S, 4, 4>(w, n, x, out),
                _ => many_rows::<S>(w, n, x, out),
            }
        }
    }
}

/// The scales of row `n`.
fn scales(w: &Matrix, n: usize) -> Scales<'_> {
    match &w.scales {
        Some(scales) => Scales { values: scales.row(n), block: scales.block },
        None => Scales::NONE,
    }
}

/// R rows straight from the stored weights, C of these at a time.
///
/// # Safety
/// As [`product`].
unsafe fn few_rows<S: Stored, const R: usize, const C: usize>(w: &Matrix, n: Range<usize>, x: Rows<'_>, out: Target) {
    let x: [&[f32]; R] = std::array::from_fn(|r| x.row(r));
    let stored: &[u8] = &w.data;
    let whole = n.len() / C * C;
    for at in (0..whole).step_by(C) {
        // SAFETY: the caller's promise; columns at .. at + C.
        unsafe { few_outputs::<S, R, C>(w, stored, n.start + at, x, out.at(0, at)) }
    }
    for at in whole..n.len() {
        // SAFETY: the caller's promise; column at.
        unsafe { few_outputs::<S, R, 1>(w, stored, n.start + at, x, out.at(0, at)) }
    }
}

/// A + B rows in two tiles.
///
/// # Safety
/// As [`product`].
unsafe fn two_tiles<S: Stored, const A: usize, const B: usize>(w: &Matrix, n: Range<usize>, x: Rows<'_>, out: Target) {
    for at in (0..n.len()).step_by(3) {
        let n = n.start + at..n.end.min(n.start + at + 3);
        // SAFETY: the caller's promise; columns at .. at + 3, rows below A and from A on.
        unsafe {
            few_rows::<S, A, 3>(w, n.clone(), x.part(0, A), out.at(0, at));
            few_rows::<S, B, 3>(w, n, x.part(A, B), out.at(A, at));
        }
    }
}

/// # Safety
/// As [`product`].
unsafe fn few_outputs<S: Stored, const R: usize, const C: usize>(
    w: &Matrix,
    stored: &[u8],
    n: usize,
    x: [&[f32]; R],
    out: Target,
) {
    let mut sums = [Eight::default(); MOST_SUMS];
    let mut values = [0.0; MOST_SUMS];
    let (sums, values) = (&mut sums[..R * C], &mut values[..R * C]);
    let bytes = w.cols * S::BYTES;
    let weights = std::array::from_fn(|c| &stored[(n + c) * bytes..(n + c + 1) * bytes]);
    stored_tile::<S, R, C>(weights, std::array::from_fn(|c| scales(w, n + c)), x, sums);
    add_lanes(sums, values);
    for (r, values) in values.chunks_exact(C).enumerate() {
        // SAFETY: the caller's promise.
        unsafe { out.part(r, 0, C) }.copy_from_slice(values);
    }
}

/// Outputs in a panel of decoded weights.
const PANEL: usize = 48;
/// Columns of a panel: 4 rows of activations (8 KiB) stay in the first cache, the panel (96 KiB) in the second. Of the
/// sizes tried, 24 to 96 by 512 to 1024, this pair was best: 83 % of peak on one Zen 3 core, 2026-11.
const PANEL_COLUMNS: usize = 512;
/// Rows whose sums (384 KiB) are kept while a panel's columns pass.
pub const PANEL_ROWS: usize = 256;
/// Most rows of a register tile.
const TILE_ROWS: usize = 4;
const MOST_SUMS: usize = 12;

#[derive(Default)]
struct Panel {
    weights: Vec<Eight>,
    sums: Vec<Eight>,
}

thread_local! {
    static THREAD_PANEL: RefCell<Panel> = RefCell::default();
}

/// # Safety
/// As [`product`].
unsafe fn many_rows<S: Stored>(w: &Matrix, n: Range<usize>, x: Rows<'_>, out: Target) {
    THREAD_PANEL.with_borrow_mut(|panel| {
        for at in (0..n.len()).step_by(PANEL) {
            let n = n.start + at..n.end.min(n.start + at + PANEL);
            // SAFETY: the caller's promise, for these columns.
            unsafe { panel_product::<S>(panel, w, n, x, out.at(0, at)) }
        }
    });
}

/// At most [`PANEL`] outputs of at most [`PANEL_ROWS`] rows.
///
/// # Safety
/// As [`product`].
unsafe fn panel_product<S: Stored>(panel: &mut Panel, w: &Matrix, n: Range<usize>, x: Rows<'_>, out: Target) {
    const STRIDE: usize = PANEL_COLUMNS / WIDTH;
    // Rows are spread evenly over tiles: 5 are 3 + 2, not 4 + 1, because a tile of one row waits for its own sums.
    let tiles = x.count.div_ceil(TILE_ROWS);
    let row_tiles = (0..tiles).map(|tile| tile * x.count / tiles..(tile + 1) * x.count / tiles);
    panel.weights.resize(PANEL * STRIDE, Eight::default());
    panel.sums.clear();
    panel.sums.resize(x.count * n.len(), Eight::default());
    let weights = &mut panel.weights[..n.len() * STRIDE];
    for column in (0..w.cols).step_by(PANEL_COLUMNS) {
        let columns = column..w.cols.min(column + PANEL_COLUMNS);
        let bytes = columns.start * S::BYTES..columns.end * S::BYTES;
        for (out, n) in weights.chunks_exact_mut(STRIDE).zip(n.clone()) {
            decode::<S>(&w.row(n)[bytes.clone()], scales(w, n), column, out);
        }
        for rows in row_tiles.clone() {
            let sums = &mut panel.sums[rows.start * n.len()..rows.end * n.len()];
            let row = |i: usize| &x.row(rows.start + i)[columns.clone()];
            match rows.len() {
                4 => panel_tiles(weights, STRIDE, [row(0), row(1), row(2), row(3)], sums),
                3 => panel_tiles(weights, STRIDE, [row(0), row(1), row(2)], sums),
                2 => panel_tiles(weights, STRIDE, [row(0), row(1)], sums),
                _ => panel_tiles(weights, STRIDE, [row(0)], sums),
            }
        }
    }
    for rows in row_tiles {
        let sums = &panel.sums[rows.start * n.len()..rows.end * n.len()];
        // SAFETY: the caller's promise; rows differ.
        let row = |i: usize| unsafe { out.part(rows.start + i, 0, n.len()) };
        match rows.len() {
            4 => panel_sums(sums, [row(0), row(1), row(2), row(3)]),
            3 => panel_sums(sums, [row(0), row(1), row(2)]),
            2 => panel_sums(sums, [row(0), row(1)]),
            _ => panel_sums(sums, [row(0)]),
        }
    }
}
