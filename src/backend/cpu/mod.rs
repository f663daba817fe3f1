//! The CPU backend: every operation in F32 on the host's cores, weights decoded from their stored format as they are
//! read.
//!
//! Owns: activation buffers, the scratch of every operation, the step's rows and rotary table.
//! Always true: the bits of a row depend on its own data and its own sequence only, whatever the number of rows,
//! sequences and threads (class *ordered*), but for the chunked delta rule (class *rounding*, see `chunked`).
//! Not here: the order of operations (`model`), sampling (`engine`).

pub mod activation;
pub mod activations;
pub mod attend;
pub mod avx2;
mod blocks;
mod chunked;
mod crew;
mod delta;
mod elementwise;
mod gdn;
mod hyper;
mod integers;
pub mod lanes;
pub mod linear;
pub(in crate::backend) mod mixture;
pub mod moe;
pub(in crate::backend) mod norm;
mod packed;
mod ple;
mod qsa;
mod quantised;
pub(in crate::backend) mod rope;
pub(in crate::backend) mod select;
pub mod simd;
mod target;
pub mod tile;

use std::fmt;
use std::ops::Range;

use super::dense::DensePasses;
use super::{Backend, BackendOptions, Gdn, HyperRead, Moe, MtpFuse, Observed, Observer, Ple, Program, Qsa, Rows};
use crate::config::Shape;
use crate::error::Result;
use crate::state::Sequence;
use crate::weights::{Matrix, experts::Expert};
use moe::MoeScratch;
use rope::Rope;

/// The CPU and its scratch.
pub struct Cpu {
    shape: Shape,
    rows: Rows,
    /// Rows that `gather` and `mtp_fuse` read.
    chosen: Vec<usize>,
    rope: Rope,
    qsa: qsa::Scratch,
    moe: MoeScratch,
    pool: Pool,
    observer: Option<Observer>,
    layer: String,
}

impl Cpu {
    /// Plans all scratch for steps of up to `options.max_rows` rows.
    pub fn new(shape: &Shape, options: BackendOptions) -> Cpu {
        let m = &shape.moe;
        Cpu {
            rows: Rows::default(),
            chosen: Vec::with_capacity(options.max_rows),
            rope: Rope::new(&shape.rope, options.rope, options.max_rows),
            qsa: qsa::Scratch::new(shape, &options),
            moe: MoeScratch::new(options.max_rows, m.top_k, m.experts, m.intermediate, shape.hidden),
            pool: Pool(vec![0.0; pool_floats(shape, options.max_rows)]),
            observer: None,
            layer: String::new(),
            shape: shape.clone(),
        }
    }

    /// Bytes of scratch that [`Cpu::new`] takes: part of the memory plan.
    pub fn scratch_bytes(shape: &Shape, options: &BackendOptions) -> usize {
        pool_floats(shape, options.max_rows) * size_of::<f32>()
            + qsa::Scratch::bytes(shape, options)
            + MoeScratch::bytes(options.max_rows, shape.moe.top_k, shape.moe.intermediate, shape.hidden)
    }
}

/// Operations do not overlap, so they share one scratch of the largest need.
fn pool_floats(shape: &Shape, rows: usize) -> usize {
    [hyper::floats(shape, rows), gdn::floats(shape, rows), mixture::floats(shape, rows), ple::floats(shape, rows)]
        .into_iter()
        .fold(0, usize::max)
}

/// Scratch that an operation cuts its temporaries out of.
struct Pool(Vec<f32>);

impl Pool {
    fn cut<const N: usize>(&mut self, sizes: [usize; N]) -> [&mut [f32]; N] {
        let mut rest = &mut self.0[..];
        sizes.map(|size| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(size);
            rest = tail;
            part
        })
    }
}

/// Hands a value to the observer under the current layer's name.
fn show(observer: &mut Option<Observer>, layer: &str, name: &str, value: Observed<'_>) {
    if let Some(observer) = observer {
        observer(&format!("{layer}.{name}"), value);
    }
}

impl Backend for Cpu {
    type Matrix = Matrix;
    type Experts = Vec<Expert>;
    type Vector = Vec<f32>;
    type Buffer = Vec<f32>;

    fn matrix(&mut self, matrix: Matrix) -> Result<Matrix> {
        Ok(matrix)
    }
    fn experts(&mut self, experts: Vec<Expert>, _: [&Matrix; 3]) -> Result<Vec<Expert>> {
        Ok(experts)
    }
    fn vector(&mut self, values: Vec<f32>) -> Result<Vec<f32>> {
        Ok(values)
    }
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Vec<f32>> {
        Ok(vec![0.0; rows * width])
    }

    fn begin(&mut self, rows: &Rows, _: &[&mut Sequence]) -> Result<()> {
        self.rows.clone_from(rows);
        self.rope.begin(&rows.positions);
        if let Some(observer) = &mut self.observer {
            let (cos, sin) = self.rope.table();
            observer("rope.cos", Observed::F32(cos));
            observer("rope.sin", Observed::F32(sin));
        }
        Ok(())
    }
    fn choose(&mut self, rows: &[usize]) -> Result<()> {
        self.chosen.clear();
        self.chosen.extend_from_slice(rows);
        Ok(())
    }
    fn run(&mut self, _: Program, work: &mut dyn FnMut(&mut Cpu) -> Result<()>) -> Result<()> {
        crew::with(|| work(self))
    }
    fn upload(&mut self, values: &[f32], to: &mut Vec<f32>) -> Result<()> {
        to[..values.len()].copy_from_slice(values);
        Ok(())
    }
    fn download(&mut self, from: &Vec<f32>, rows: Range<usize>, width: usize, into: &mut [f32]) -> Result<()> {
        into.copy_from_slice(&from[rows.start * width..rows.end * width]);
        Ok(())
    }
    fn gather(&mut self, from: &Vec<f32>, width: usize, to: &mut Vec<f32>) -> Result<()> {
        for (to, &row) in to.chunks_exact_mut(width).zip(&self.chosen) {
            to.copy_from_slice(&from[row * width..(row + 1) * width]);
        }
        Ok(())
    }

    fn embed(&mut self, table: &Matrix, wide: &mut Vec<f32>) -> Result<()> {
        let hidden = self.shape.hidden;
        for (wide, &id) in wide.chunks_exact_mut(self.shape.wide()).zip(&self.rows.ids) {
            let (first, others) = wide.split_at_mut(hidden);
            table.decode_row(id as usize, first);
            others.chunks_exact_mut(hidden).for_each(|stream| stream.copy_from_slice(first));
        }
        Ok(())
    }
    fn hyper_read(
        &mut self,
        w: &HyperRead<Cpu>,
        rows: usize,
        wide: &Vec<f32>,
        x: &mut Vec<f32>,
        inject: &mut Vec<f32>,
    ) -> Result<()> {
        hyper::read(&self.shape, w, rows, wide, x, inject, &mut self.pool);
        Ok(())
    }
    fn hyper_write(&mut self, wide: &mut Vec<f32>, inject: &Vec<f32>, y: &Vec<f32>) -> Result<()> {
        hyper::write(&self.shape, self.rows.len(), wide, inject, y);
        Ok(())
    }
    fn gdn(
        &mut self,
        w: &Gdn<Cpu>,
        layer: usize,
        x: &Vec<f32>,
        sequences: &mut [&mut Sequence],
        y: &mut Vec<f32>,
    ) -> Result<()> {
        gdn::mix(self, w, layer, x, sequences, y);
        Ok(())
    }
    fn qsa_project(&mut self, w: &Qsa<Cpu>, cache: usize, x: &Vec<f32>, sequences: &mut [&mut Sequence]) -> Result<()> {
        qsa::project(self, w, cache, x, sequences);
        Ok(())
    }
    fn qsa_select(&mut self, cache: usize, sequences: &[&mut Sequence]) -> Result<()> {
        qsa::select(self, cache, sequences);
        Ok(())
    }
    fn qsa_attend(&mut self, w: &Qsa<Cpu>, cache: usize, sequences: &[&mut Sequence], y: &mut Vec<f32>) -> Result<()> {
        qsa::attend(self, w, cache, sequences, y);
        Ok(())
    }
    fn moe(&mut self, w: &Moe<Cpu>, x: &Vec<f32>, y: &mut Vec<f32>) -> Result<()> {
        mixture::mix(self, w, x, y);
        Ok(())
    }
    fn ple(
        &mut self,
        w: &Ple<Cpu>,
        layer: usize,
        embedding: &Vec<f32>,
        sequences: &mut [&mut Sequence],
        wide: &mut Vec<f32>,
    ) -> Result<()> {
        ple::inject(self, w, layer, embedding, sequences, wide);
        Ok(())
    }
    fn linear(&mut self, w: &Matrix, rows: usize, x: &Vec<f32>, y: &mut Vec<f32>) -> Result<()> {
        linear::linear(w, &x[..rows * w.cols], rows, &mut y[..rows * w.rows]);
        Ok(())
    }
    fn keep_hidden(&mut self, wide: &Vec<f32>, sequences: &mut [&mut Sequence]) -> Result<()> {
        hyper::keep(&self.rows, self.shape.wide(), wide, sequences);
        Ok(())
    }
    fn load_hidden(&mut self, sequences: &[&mut Sequence], to: &mut Vec<f32>) -> Result<()> {
        hyper::load(&self.rows, self.shape.wide(), sequences, to);
        Ok(())
    }
    fn mtp_fuse(
        &mut self,
        w: &MtpFuse<Cpu>,
        table: &Matrix,
        wide: Option<&Vec<f32>>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let wide = wide.map(Vec::as_slice);
        hyper::fuse(&self.shape, w, table, &self.rows.ids, wide, &self.chosen, out, &mut self.pool);
        Ok(())
    }

    fn dense_passes(&self, rows: usize) -> Option<DensePasses> {
        self.qsa.is_dense().then(|| DensePasses::by_row(&self.shape.attention, rows))
    }

    fn observe(&mut self, name: &str, buffer: &Vec<f32>, rows: usize, width: usize) {
        show(&mut self.observer, &self.layer, name, Observed::F32(&buffer[..rows * width]));
    }
    fn enter(&mut self, layer: fmt::Arguments<'_>) {
        if self.observer.is_some() {
            self.layer = layer.to_string();
        }
    }
    fn set_observer(&mut self, observer: Option<Observer>) {
        self.observer = observer;
    }
}
