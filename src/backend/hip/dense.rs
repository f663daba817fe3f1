//! Products, embeddings, hyper-connections and the MTP head's input on the device.
//!
//! Owns: weight matrices as the device holds them, the activations in F16 that large products read.
//! Always true: up to [`GEMV_ROWS`] rows a product is *ordered* and in F32; beyond, its activations are F16 with a scale a
//! row, *rounding*.
//! Not here: which kernel multiplies which matrix (`matrix`).

use super::Hip;
use super::abi::{
    CopyRowsArgs, EmbedArgs, GemmArgs, GemmRowsArgs, GemvArgs, GemvPart, GroupedNormArgs, HiddenArgs, HyperGateArgs,
    HyperLowArgs, HyperMixArgs, HyperWriteArgs, StreamAddArgs,
};
use super::matrix::{self, GEMV_ROWS, Strided};
use super::memory::{Buffer, Cutter};
use crate::backend::{HyperRead, MtpFuse};
use crate::config::Shape;
use crate::error::{Error, Result};
use crate::state::head::HIDDEN_ROWS;
use crate::weights::{self, Format};

/// A weight matrix in its stored format.
#[derive(Debug, Clone, Copy)]
pub struct Matrix {
    /// Storage format.
    pub format: Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Device address of the rows.
    pub address: u64,
    /// Device address of what the format keeps beside the rows (hip/formats.h), or 0.
    pub scales: u64,
    /// Rows of the first block of scales before row 0.
    pub row_offset: u32,
}

/// A small parameter.
#[derive(Debug, Clone, Copy)]
pub struct Vector(pub(super) u64);

/// Refuses what no kernel multiplies, by the tensor's name.
pub fn check(matrix: &weights::Matrix) -> Result<()> {
    let weights::Matrix { name, format, cols, .. } = matrix;
    match matrix::kernels(*format) {
        None => Err(Error::model(format!("tensor '{name}' is {format}, which has no HIP kernels: use --device cpu"))),
        Some((_, multiple)) if !cols.is_multiple_of(multiple) => Err(Error::model(format!(
            "tensor '{name}' is {format} with rows of {cols}; the HIP kernels take multiples of {multiple}: use --device cpu"
        ))),
        Some(_) => Ok(()),
    }
}

/// What the device keeps of a matrix: its rows, and what its format has beside them.
pub fn parts(matrix: &weights::Matrix) -> (Strided<'_>, Option<Strided<'_>>) {
    match (matrix::planes(matrix.format), &matrix.scales) {
        (Some(planes), _) => (planes.codes(&matrix.data), Some(planes.heads(&matrix.data))),
        (None, scales) => {
            let beside = scales.as_ref().map(|scales| Strided::whole(bytemuck::cast_slice(&scales.values)));
            (Strided::whole(&matrix.data), beside)
        }
    }
}

/// A matrix whose parts lie at these addresses.
pub fn described(matrix: &weights::Matrix, address: u64, scales: u64) -> Matrix {
    let row_offset = matrix.scales.as_ref().map_or(0, |scales| scales.row_offset as u32);
    Matrix { format: matrix.format, rows: matrix.rows, cols: matrix.cols, address, scales, row_offset }
}

/// Scratch of products: the activations that a matrix product reads.
#[derive(Debug, Clone, Copy)]
pub struct ProductScratch {
    /// `[rows, stride]` F16
    pub half: u64,
    /// `[rows]`
    pub factors: u64,
}

impl ProductScratch {
    /// For steps of up to `rows` rows.
    pub fn lay_out(cut: &mut Cutter, shape: &Shape, rows: usize) -> ProductScratch {
        let (a, d) = (&shape.attention, shape.wide());
        // The MTP head multiplies every stream of a row as a row of its own.
        let widest =
            [d, shape.gdn.values(), a.query_heads * a.head_dim, shape.ngram_width(), shape.moe.shared_intermediate]
                .into_iter()
                .fold(0, |widest, width| widest.max(matrix::gemm_stride(width)))
                .max(shape.hyper.streams * matrix::gemm_stride(shape.hidden));
        ProductScratch { half: cut.take(rows * widest, 2), factors: cut.floats(rows * shape.hyper.streams) }
    }
}

/// Scratch of a read, a fusion or an embedding.
#[derive(Debug, Clone, Copy)]
pub struct HyperScratch {
    /// `[rows, D]`
    normed: u64,
    /// `[rows, D]`
    gate: u64,
    /// `[rows, rank]`
    low: u64,
    /// `[rows, streams]`
    raw: u64,
    /// `[rows, H]`
    embedded: u64,
    /// `[rows, H]`
    shared: u64,
}

impl HyperScratch {
    /// For steps of up to `rows` rows.
    pub fn lay_out(cut: &mut Cutter, shape: &Shape, rows: usize) -> HyperScratch {
        let (d, hidden) = (shape.wide(), shape.hidden);
        HyperScratch {
            normed: cut.floats(rows * d),
            gate: cut.floats(rows * d),
            low: cut.floats(rows * shape.hyper.low_rank),
            raw: cut.floats(rows * shape.hyper.streams),
            embedded: cut.floats(rows * hidden),
            shared: cut.floats(rows * hidden),
        }
    }
}

impl Hip {
    /// Brings a matrix to the device.
    pub(super) fn store(&mut self, matrix: &weights::Matrix) -> Result<Matrix> {
        check(matrix)?;
        let (rows, beside) = parts(matrix);
        let address = self.loader.gather(&rows)?;
        let scales = beside.map_or(Ok(0), |beside| self.loader.gather(&beside))?;
        Ok(described(matrix, address, scales))
    }

    /// `y = x · wᵀ` for every matrix of the list: x `[rows, inputs]`, y `[rows, outputs]`.
    pub(super) fn products(&self, x: u64, rows: usize, list: &[(&Matrix, u64)]) -> Result<()> {
        let Some(&(Matrix { cols: inputs, .. }, _)) = list.first() else { return Ok(()) };
        let inputs = *inputs;
        if rows > GEMV_ROWS {
            self.halve(x, rows, inputs)?;
            return list.iter().try_for_each(|(w, y)| self.gemm(w, rows, *y));
        }
        // Matrices of a format go in one launch.
        let mut rest = list.to_vec();
        while let Some(&(first, _)) = rest.first() {
            let format = first.format;
            let mut together = Vec::with_capacity(rest.len());
            rest.retain(|&part| {
                let taken = part.0.format == format && together.len() < matrix::GEMV_PARTS;
                if taken {
                    together.push(part);
                }
                !taken
            });
            self.gemv(&together, x, rows)?;
        }
        Ok(())
    }

    /// Activations in F16 for the products that follow.
    pub(super) fn halve(&self, x: u64, rows: usize, inputs: usize) -> Result<()> {
        let s = &self.scratch.products;
        let stride = matrix::gemm_stride(inputs) as u32;
        self.launch(
            "gemm_rows",
            rows,
            &GemmRowsArgs { out: s.half, factors: s.factors, x, inputs: inputs as u32, stride },
        )
    }

    fn gemm(&self, w: &Matrix, rows: usize, y: u64) -> Result<()> {
        let Some(choice) = matrix::gemm(w.format, rows, w.rows, w.cols) else { return Err(no_kernel(w)) };
        let arguments = GemmArgs {
            y,
            x: self.scratch.products.half,
            factors: self.scratch.products.factors,
            w: w.address,
            scales: w.scales,
            rows: rows as u32,
            outputs: w.rows as u32,
            inputs: w.cols as u32,
            y_stride: w.rows as u32,
            row_offset: w.row_offset,
            unused: 0,
        };
        self.launch(&choice.kernel, choice.grid, &arguments)
    }

    /// Matrices of one format that read the same rows.
    fn gemv(&self, list: &[(&Matrix, u64)], x: u64, rows: usize) -> Result<()> {
        let Some(&(Matrix { format, cols: inputs, .. }, _)) = list.first() else { return Ok(()) };
        let mut arguments =
            GemvArgs { x, rows: rows as u32, inputs: *inputs as u32, count: list.len() as u32, ..GemvArgs::default() };
        let mut grid = 0;
        for ((w, y), part) in list.iter().zip(&mut arguments.parts) {
            let Some((groups, split)) = matrix::gemv_grid(w.format, w.rows, w.cols) else { return Err(no_kernel(w)) };
            *part = GemvPart {
                y: *y,
                w: w.address,
                scales: w.scales,
                outputs: w.rows as u32,
                row_offset: w.row_offset,
                split,
                first: grid as u32,
            };
            grid += groups;
        }
        let Some(kernel) = matrix::gemv(*format, rows) else { return Err(no_kernel(list[0].0)) };
        self.launch(&kernel, grid, &arguments)
    }

    /// The step's embeddings in `streams` copies.
    pub(super) fn embed_rows(&self, table: &Matrix, streams: usize, out: u64) -> Result<()> {
        let Some((name, _)) = matrix::kernels(table.format) else { return Err(no_kernel(table)) };
        let arguments = EmbedArgs {
            wide: out,
            table: table.address,
            scales: table.scales,
            ids: self.step.tables.ids,
            streams: streams as u32,
            hidden: table.cols as u32,
        };
        self.launch(&format!("embed_{name}"), self.step.rows, &arguments)
    }

    /// `out[row][group] = norm(input[row][group]) * weight[group]`
    pub(super) fn norm(
        &self,
        out: u64,
        input: u64,
        weight: Vector,
        rows: usize,
        groups: usize,
        width: usize,
    ) -> Result<()> {
        let arguments = GroupedNormArgs {
            out,
            input,
            weight: weight.0,
            groups: groups as u32,
            width: width as u32,
            eps: self.shape.norm_eps,
            unused: 0,
        };
        self.launch("grouped_norm", rows * groups, &arguments)
    }

    /// The chosen rows of a buffer, one behind the other.
    pub(super) fn copy_chosen(&self, from: u64, width: usize, to: u64) -> Result<()> {
        let arguments = CopyRowsArgs {
            out: to,
            input: from,
            rows: self.step.chosen_rows(),
            width: width as u32,
            out_stride: width as u32,
            input_stride: width as u32,
            unused: 0,
        };
        self.launch("copy_rows_f32", self.step.chosen * width.div_ceil(1024), &arguments)
    }

    /// Spec 2.2, read.
    pub(super) fn hyper_in(&self, w: &HyperRead<Hip>, rows: usize, wide: u64, x: u64, inject: u64) -> Result<()> {
        let (hidden, streams) = (self.shape.hidden, self.shape.hyper.streams);
        self.norm(self.scratch.hyper.normed, wide, w.norm, rows, streams, hidden)?;
        self.hyper_gates(w, rows, x, inject)
    }

    /// The read behind its norm.
    pub(super) fn hyper_gates(&self, w: &HyperRead<Hip>, rows: usize, x: u64, inject: u64) -> Result<()> {
        let (hidden, streams, rank) = (self.shape.hidden, self.shape.hyper.streams, self.shape.hyper.low_rank);
        let s = self.scratch.hyper;
        let raw = if w.inject.is_some() { s.raw } else { 0 };
        let mut list = vec![(&w.down, s.low)];
        list.extend(w.inject.as_ref().map(|matrix| (matrix, s.raw)));
        self.products(s.normed, rows, &list)?;
        let fused = matrix::kernels(w.up.format)
            .map(|(name, _)| format!("hyper_gate_{name}_r{}", if rows == 1 { 1 } else { GEMV_ROWS }))
            .filter(|kernel| rows <= GEMV_ROWS && self.kernels.has(kernel));
        if let Some(kernel) = fused {
            let arguments = HyperGateArgs {
                x,
                inject,
                normed: s.normed,
                low: s.low,
                raw,
                up: w.up.address,
                scales: w.up.scales,
                rows: rows as u32,
                streams: streams as u32,
                hidden: hidden as u32,
                rank: rank as u32,
            };
            return self.launch(&kernel, hidden.div_ceil(matrix::GATE_COLUMNS), &arguments);
        }
        let low = HyperLowArgs {
            low: s.low,
            inject,
            raw,
            rows: rows as u32,
            streams: streams as u32,
            rank: rank as u32,
            unused: 0,
        };
        self.launch("hyper_low", rows, &low)?;
        self.products(s.low, rows, &[(&w.up, s.gate)])?;
        let mix = HyperMixArgs { x, normed: s.normed, gate: s.gate, streams: streams as u32, hidden: hidden as u32 };
        self.launch("hyper_mix", rows * hidden.div_ceil(1024), &mix)
    }

    /// Spec 2.2, write; with the norm of the read that follows, which is then behind it.
    pub(super) fn hyper_out(&self, wide: u64, inject: u64, y: u64, next: Option<Vector>) -> Result<()> {
        let (hidden, streams) = (self.shape.hidden, self.shape.hyper.streams);
        let arguments = HyperWriteArgs {
            wide,
            inject,
            y,
            normed: if next.is_some() { self.scratch.hyper.normed } else { 0 },
            weight: next.map_or(0, |weight| weight.0),
            streams: streams as u32,
            hidden: hidden as u32,
            eps: self.shape.norm_eps,
            unused: 0,
        };
        self.launch("hyper_write", self.step.rows * streams, &arguments)
    }

    /// Keeps rows in their sequences' rings, or brings them back.
    pub(super) fn hidden(&self, kernel: &str, wide: u64) -> Result<()> {
        let (step, d) = (&self.step, self.shape.wide());
        let arguments = HiddenArgs {
            wide,
            rings: step.tables.rings,
            segments: step.tables.segments,
            sequence: step.tables.sequence,
            positions: step.tables.positions,
            width: d as u32,
            slots: HIDDEN_ROWS as u32,
        };
        self.launch(kernel, step.rows * d.div_ceil(1024), &arguments)
    }

    /// Spec 4.2.
    pub(super) fn fuse(&self, w: &MtpFuse<Hip>, table: &Matrix, wide: u64, out: &Buffer) -> Result<()> {
        let (hidden, d, streams, rows) =
            (self.shape.hidden, self.shape.wide(), self.shape.hyper.streams, self.step.rows);
        let s = self.scratch.hyper;
        self.copy_chosen(wide, d, s.gate)?;
        self.norm(s.normed, s.gate, w.norm_hidden, rows, 1, d)?;
        self.embed_rows(table, 1, s.embedded)?;
        // The streams' scratch is free again once they are normed.
        self.norm(s.gate, s.embedded, w.norm_embedding, rows, 1, hidden)?;
        self.products(s.gate, rows, &[(&w.embedding, s.shared)])?;
        // The streams of a row are rows of one product; those of a few rows stay with the kernels of few rows.
        let (all, most) = (rows * streams, if rows <= GEMV_ROWS { GEMV_ROWS } else { rows * streams });
        for first in (0..all).step_by(most) {
            let at = (first * hidden * size_of::<f32>()) as u64;
            self.products(s.normed + at, most.min(all - first), &[(&w.hidden, out.address() + at)])?;
        }
        let add =
            StreamAddArgs { wide: out.address(), shared: s.shared, streams: streams as u32, hidden: hidden as u32 };
        self.launch("stream_add", rows * streams, &add)
    }
}

pub(super) fn no_kernel(w: &Matrix) -> Error {
    Error::Device(format!("no HIP kernel multiplies a matrix of {} x {} in {}", w.rows, w.cols, w.format))
}
