//! Mixture of experts on the device (spec 2.5).
//!
//! Owns: a layer's table of experts, the launches of both families, their scratch.
//! Always true: up to [`GEMV_ROWS`] rows an expert that several rows chose is read once and sums are F32, *ordered*; more
//! rows go through lists and tiles, *rounding*. No launch depends on which experts were chosen.
//! Not here: what the kernels compute (`hip/moe_*.hip`).

use rayon::prelude::*;

use super::Hip;
use super::abi::{
    MoeCombineArgs, MoeDownArgs, MoeExpert, MoeGateUpArgs, MoeGemmDownArgs, MoeGemmGateUpArgs, MoeGroup, MoeListsArgs,
    MoeRouteArgs, MoeTile,
};
use super::dense::{self, Matrix};
use super::matrix::{self, GEMV_ROWS};
use super::memory::Cutter;

use crate::backend::Moe;
use crate::config::Shape;
use crate::error::{Error, Result};
use crate::weights::{Expert, Format};

/// Entries of a tile.
const TILE: usize = 64;

/// A layer's experts.
#[derive(Debug, Clone, Copy)]
pub struct Experts {
    /// `[experts + 1]` MoeExpert, the shared expert last.
    table: u64,
    /// Its place among the layers in the host's memory, if it is one.
    hosted: Option<usize>,
    /// Format of gate and up.
    inward: Format,
    /// Format of down.
    outward: Format,
}

/// Scratch of a mixture.
#[derive(Debug, Clone, Copy)]
pub struct MoeScratch {
    /// `[rows, experts]`
    logits: u64,
    /// `[rows]`, the shared expert's products
    scale: u64,
    /// `[rows, top_k]` u32
    ids: u64,
    /// `[rows, top_k]`
    weights: u64,
    /// `[few rows · top_k]` MoeGroup
    groups: u64,
    /// `[few rows · top_k, inner]`
    hidden: u64,
    /// `[few rows, shared inner]`
    shared_hidden: u64,
    /// `[pairs]` u32
    entries: u64,
    /// `[experts + 1]` u32
    starts: u64,
    /// `[tiles]` MoeTile
    tiles: u64,
    /// `[pairs, stride]` F16, also of the shared expert
    hidden_half: u64,
    /// `[pairs, H]` F16
    parts: u64,
    /// `[rows, H]` F16
    shared_parts: u64,
}

impl MoeScratch {
    /// For steps of up to `rows` rows.
    pub fn lay_out(cut: &mut Cutter, shape: &Shape, rows: usize) -> MoeScratch {
        let (moe, few) = (&shape.moe, GEMV_ROWS.min(rows));
        let many = if rows > GEMV_ROWS { rows } else { 0 };
        let pairs = many * moe.top_k;
        let routed = pairs * matrix::gemm_stride(moe.intermediate);
        MoeScratch {
            logits: cut.floats(rows * moe.experts),
            scale: cut.floats(rows),
            ids: cut.take(rows * moe.top_k, 4),
            weights: cut.floats(rows * moe.top_k),
            groups: cut.take(few * moe.top_k, size_of::<MoeGroup>()),
            hidden: cut.floats(few * moe.top_k * moe.intermediate),
            shared_hidden: cut.floats(few * moe.shared_intermediate),
            entries: cut.take(pairs, 4),
            starts: cut.take(moe.experts + 1, 4),
            tiles: cut.take(most_tiles(pairs, moe.experts), size_of::<MoeTile>()),
            hidden_half: cut.take(routed.max(many * matrix::gemm_stride(moe.shared_intermediate)), 2),
            parts: cut.take(pairs * shape.hidden, 2),
            shared_parts: cut.take(many * shape.hidden, 2),
        }
    }
}

fn most_tiles(pairs: usize, experts: usize) -> usize {
    pairs.min(pairs / TILE + experts)
}

fn name(format: Format) -> Result<&'static str> {
    let missing = || Error::Device(format!("no HIP kernel multiplies experts in {format}"));
    Ok(matrix::kernels(format).ok_or_else(missing)?.0)
}

impl Hip {
    /// Brings a layer's experts to the device.
    pub(super) fn store_experts(&mut self, experts: &[Expert], shared: [&Matrix; 3]) -> Result<Experts> {
        let Some(first) = experts.first() else { return Err(Error::model("a layer has no experts")) };
        for expert in experts {
            for (matrix, same) in [(&expert.gate, &first.gate), (&expert.up, &first.gate), (&expert.down, &first.down)]
            {
                if matrix.format != same.format {
                    return Err(Error::model(format!(
                        "tensor '{}' is {} and '{}' is {}: the HIP kernels take a layer's experts in one format (gate and \
                         up) and another (down): use --device cpu",
                        matrix.name, matrix.format, same.name, same.format
                    )));
                }
                dense::check(matrix)?;
            }
        }
        let layer = self.expert_layers;
        self.expert_layers += 1;
        let (table, hosted) = match self.options.host_layers.is_some_and(|layers| layers.contains(layer)) {
            true => self.keep_on_host(experts, shared)?,
            false => {
                let mut table = Vec::with_capacity(experts.len() + 1);
                for expert in experts {
                    let (gate, up, down) =
                        (self.store(&expert.gate)?, self.store(&expert.up)?, self.store(&expert.down)?);
                    table.push(entry([&gate, &up, &down]));
                }
                table.push(entry(shared));
                (self.loader.store(bytemuck::cast_slice(&table))?, None)
            }
        };
        Ok(Experts { table, hosted, inward: first.gate.format, outward: first.down.format })
    }

    /// Puts experts into the host's memory; returns the table that reads them there, and their place.
    fn keep_on_host(&mut self, experts: &[Expert], shared: [&Matrix; 3]) -> Result<(u64, Option<usize>)> {
        // Where each part lies behind the first byte, wherever that is.
        let mut cut = Cutter::new(0);
        let (mut parts, mut layout) = (Vec::new(), Vec::with_capacity(experts.len()));
        for expert in experts {
            let matrices = [&expert.gate, &expert.up, &expert.down];
            layout.push(matrices.map(|matrix| {
                let (rows, beside) = dense::parts(matrix);
                let [address, scales] = [Some(rows), beside].map(|part| {
                    part.map_or(0, |part| {
                        let at = cut.take(part.len(), 1);
                        parts.push((part, at as usize));
                        at
                    })
                });
                dense::described(matrix, address, scales)
            }));
        }
        let (mut memory, slots) = self.hosted.allocate(cut.used())?;
        let (mut rest, mut done, mut jobs) = (memory.bytes_mut()?, 0, Vec::with_capacity(parts.len()));
        for (part, at) in &parts {
            let (to, behind) = rest.split_at_mut(at + part.len() - done);
            jobs.push((part, &mut to[at - done..]));
            (rest, done) = (behind, at + part.len());
        }
        jobs.into_par_iter().for_each(|(part, to)| part.copy(0, to));
        let mut table_at = |base: u64| {
            let moved = |matrix: &Matrix| Matrix {
                address: matrix.address + base,
                scales: if matrix.scales == 0 { 0 } else { matrix.scales + base },
                ..*matrix
            };
            let mut table: Vec<MoeExpert> =
                layout.iter().map(|[gate, up, down]| entry([&moved(gate), &moved(up), &moved(down)])).collect();
            table.push(entry(shared));
            self.loader.store(bytemuck::cast_slice(&table))
        };
        let (here, [first, second]) = (table_at(memory.address())?, slots);
        let tables = [table_at(first)?, table_at(second)?];
        Ok((here, Some(self.hosted.keep(memory, tables))))
    }

    /// Spec 2.5.
    pub(super) fn mixture(&self, w: &Moe<Hip>, x: u64, y: u64) -> Result<()> {
        let (moe, s, rows) = (&self.shape.moe, &self.scratch.moe, self.step.rows);
        let few = rows <= GEMV_ROWS;
        self.products(x, rows, &[(&w.router, s.logits), (&w.shared_scale, s.scale)])?;
        let route = MoeRouteArgs {
            ids: s.ids,
            weights: s.weights,
            groups: if few { s.groups } else { 0 },
            logits: s.logits,
            stride: moe.experts as u32,
            rows: rows as u32,
            experts: moe.experts as u32,
            top_k: moe.top_k as u32,
            normalise: u32::from(moe.normalise),
            unused: 0,
        };
        self.launch("moe_route", if few { 1 } else { rows.div_ceil(8) }, &route)?;
        match few {
            true => self.mixture_few(w, x, y),
            false => self.mixture_many(w, y),
        }
    }

    fn mixture_few(&self, w: &Moe<Hip>, x: u64, y: u64) -> Result<()> {
        let (moe, s, rows) = (&self.shape.moe, &self.scratch.moe, self.step.rows);
        let kernel_rows = if rows == 1 { 1 } else { GEMV_ROWS };
        // The shared expert goes along where its format allows, else by launches of its own.
        let goes_along = |shared: Format, routed: Format| shared == routed || shared == Format::Q8_0;
        let together = goes_along(w.shared_gate.format, w.experts.inward);
        let inward = |top_k: usize, shared: bool| MoeGateUpArgs {
            hidden: s.hidden,
            shared_hidden: s.shared_hidden,
            x,
            experts: w.experts.table,
            groups: s.groups,
            rows: rows as u32,
            top_k: top_k as u32,
            inputs: self.shape.hidden as u32,
            inner: moe.intermediate as u32,
            shared: moe.experts as u32,
            shared_inner: if shared { moe.shared_intermediate as u32 } else { 0 },
            shared_q8_0: u32::from(together && w.shared_gate.format != w.experts.inward),
            unused: 0,
        };
        let (routed, shared) = (rows * moe.top_k * moe.intermediate.div_ceil(16), moe.shared_intermediate.div_ceil(16));
        let kernel = |format: Format| Ok::<_, Error>(format!("moe_gate_up_{}_r{kernel_rows}", name(format)?));
        let grid = routed + if together { shared } else { 0 };
        self.launch(&kernel(w.experts.inward)?, grid, &inward(moe.top_k, together))?;
        if !together {
            self.launch(&kernel(w.shared_gate.format)?, shared, &inward(0, true))?;
        }

        let together = goes_along(w.shared_down.format, w.experts.outward);
        let outward = |top_k: usize, shared: bool, add: bool| MoeDownArgs {
            y,
            hidden: s.hidden,
            shared_hidden: s.shared_hidden,
            weights: s.weights,
            scale: s.scale,
            experts: w.experts.table,
            groups: s.groups,
            rows: rows as u32,
            top_k: top_k as u32,
            outputs: self.shape.hidden as u32,
            inner: moe.intermediate as u32,
            shared: moe.experts as u32,
            shared_inner: if shared { moe.shared_intermediate as u32 } else { 0 },
            scale_stride: 1,
            add: u32::from(add),
            shared_q8_0: u32::from(together && w.shared_down.format != w.experts.outward),
            unused: 0,
        };
        let kernel = |format: Format| Ok::<_, Error>(format!("moe_down_{}_r{kernel_rows}", name(format)?));
        let grid = self.shape.hidden.div_ceil(8);
        self.launch(&kernel(w.experts.outward)?, grid, &outward(moe.top_k, together, false))?;
        if !together {
            self.launch(&kernel(w.shared_down.format)?, grid, &outward(0, true, true))?;
        }
        Ok(())
    }

    /// The router's product has left the rows in F16.
    fn mixture_many(&self, w: &Moe<Hip>, y: u64) -> Result<()> {
        let (moe, s, rows, hidden) = (&self.shape.moe, &self.scratch.moe, self.step.rows, self.shape.hidden);
        let pairs = rows * moe.top_k;
        let tiles = most_tiles(pairs, moe.experts);
        let lists = MoeListsArgs {
            entries: s.entries,
            starts: s.starts,
            tiles: s.tiles,
            ids: s.ids,
            pairs: pairs as u32,
            experts: moe.experts as u32,
            tile_rows: TILE as u32,
            max_tiles: tiles as u32,
        };
        self.launch("moe_lists", 1, &lists)?;
        let routed = Many { tiles, listed: true, inner: moe.intermediate, parts: s.parts };
        let formats = [w.experts.inward, w.experts.outward];
        match w.experts.hosted {
            None => self.experts_many(w.experts.table, formats, routed)?,
            Some(place) => {
                let table = self.hosted.meet(&self.stream, place)?;
                self.experts_many(table, formats, routed)?;
                self.hosted.leave(&self.stream)?;
            }
        }
        let shared =
            Many { tiles: rows.div_ceil(TILE), listed: false, inner: moe.shared_intermediate, parts: s.shared_parts };
        self.experts_many(w.experts.table, [w.shared_gate.format, w.shared_down.format], shared)?;
        let combine = MoeCombineArgs {
            y,
            parts: s.parts,
            shared: s.shared_parts,
            weights: s.weights,
            scale: s.scale,
            rows: rows as u32,
            top_k: moe.top_k as u32,
            width: hidden as u32,
            scale_stride: 1,
        };
        self.launch("moe_combine", (rows * hidden).div_ceil(2048), &combine)
    }

    fn experts_many(&self, table: u64, [inward, outward]: [Format; 2], many: Many) -> Result<()> {
        let (s, moe, hidden) = (&self.scratch.moe, &self.shape.moe, self.shape.hidden);
        let (entries, tiles) = if many.listed { (s.entries, s.tiles) } else { (0, 0) };
        let gate_up = MoeGemmGateUpArgs {
            hidden: s.hidden_half,
            x: self.scratch.products.half,
            factors: self.scratch.products.factors,
            experts: table,
            entries,
            tiles,
            count: self.step.rows as u32,
            expert: moe.experts as u32,
            top_k: if many.listed { moe.top_k as u32 } else { 1 },
            inputs: hidden as u32,
            inner: many.inner as u32,
            unused: 0,
        };
        self.launch(&format!("moe_gemm_gate_up_{}", name(inward)?), many.tiles * many.inner.div_ceil(128), &gate_up)?;
        let down = MoeGemmDownArgs {
            parts: many.parts,
            hidden: s.hidden_half,
            experts: table,
            entries,
            tiles,
            count: self.step.rows as u32,
            expert: moe.experts as u32,
            outputs: hidden as u32,
            inner: many.inner as u32,
        };
        self.launch(&format!("moe_gemm_down_{}", name(outward)?), many.tiles * hidden.div_ceil(256), &down)
    }
}

/// Products of many rows: the routed experts' over lists, or the shared expert's over all rows.
#[derive(Clone, Copy)]
struct Many {
    tiles: usize,
    listed: bool,
    inner: usize,
    parts: u64,
}

fn entry([gate, up, down]: [&Matrix; 3]) -> MoeExpert {
    MoeExpert {
        gate: gate.address,
        up: up.address,
        down: down.address,
        gate_scales: gate.scales,
        up_scales: up.scales,
        down_scales: down.scales,
        up_offset: up.row_offset,
        unused: 0,
    }
}
