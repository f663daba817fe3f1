//! Gated DeltaNet and the n-gram embedding's injection on the device.
//!
//! Owns: the launches of both and their scratch.
//! Always true: rows that are pending in a sequence's state are folded in before new ones are applied; a window is moved
//! behind the kernels that read it.
//! Not here: what the kernels compute (`hip/gdn_*.hip`, `hip/ple.hip`).

use super::Hip;
use super::abi::{
    GdnConvArgs, GdnOutputArgs, GdnScanArgs, GdnSlideArgs, GdnStepArgs, PleConvArgs, PleGateArgs, PleSlideArgs,
};
use super::memory::Cutter;
use crate::backend::{Gdn, Ple};
use crate::config::{Gate, GdnShape, HeadMap, Shape};
use crate::error::Result;
use crate::state::Sequence;
use crate::state::recurrent::Part;

/// Rows that a workgroup of the convolution takes from a long segment.
const CONV_TILE: usize = 32;

/// Rows of a chunk of the scan; segments of more rows are cut into them.
pub const SCAN_CHUNK: usize = 64;

/// Scratch of a GDN mixer.
#[derive(Debug, Clone, Copy)]
pub struct GdnScratch {
    /// `[rows, channels]`
    qkv: u64,
    /// `[rows, channels]`
    mixed: u64,
    /// `[rows, values]`
    z: u64,
    /// `[rows, values]`
    out: u64,
    /// `[rows, values]`
    normed: u64,
    /// `[rows, value_heads]`, products
    b: u64,
    /// `[rows, value_heads]`, products
    a: u64,
    /// `[rows, value_heads]`
    strength: u64,
    /// `[rows, value_heads]`
    decay: u64,
    /// `[chunks, key_heads, 3, 64 · key_dim]` F16, where long segments go in chunks
    keys: u64,
    /// `[chunks, value_heads, 2, 64, 64]` F16
    pairs: u64,
    /// `[chunks, value_heads, 2, 64]`
    growth: u64,
}

/// Whether long segments go in chunks: the kernels have these sizes.
fn scans(g: &GdnShape) -> bool {
    g.key_dim == g.value_dim && matches!(g.key_dim, 64 | 128)
}

impl GdnScratch {
    /// For steps of up to `rows` rows.
    pub fn lay_out(cut: &mut Cutter, shape: &Shape, rows: usize) -> GdnScratch {
        let g = &shape.gdn;
        // A step's segments end in part of a chunk each; only those of more than a chunk are cut.
        let chunks = if scans(g) && rows > SCAN_CHUNK { 2 * rows.div_ceil(SCAN_CHUNK) } else { 0 };
        GdnScratch {
            qkv: cut.floats(rows * g.channels()),
            mixed: cut.floats(rows * g.channels()),
            z: cut.floats(rows * g.values()),
            out: cut.floats(rows * g.values()),
            normed: cut.floats(rows * g.values()),
            b: cut.floats(rows * g.value_heads),
            a: cut.floats(rows * g.value_heads),
            strength: cut.floats(rows * g.value_heads),
            decay: cut.floats(rows * g.value_heads),
            keys: cut.take(chunks * g.key_heads * 3 * SCAN_CHUNK * g.key_dim, 2),
            pairs: cut.take(chunks * g.value_heads * 2 * SCAN_CHUNK * SCAN_CHUNK, 2),
            growth: cut.floats(chunks * g.value_heads * 2 * SCAN_CHUNK),
        }
    }
}

/// Scratch of an injection.
#[derive(Debug, Clone, Copy)]
pub struct PleScratch {
    /// `[rows, D]`
    key: u64,
    /// `[rows, H]`
    value: u64,
    /// `[rows, D]`
    gated: u64,
    /// `[rows, D]`
    normed: u64,
}

impl PleScratch {
    /// For steps of up to `rows` rows.
    pub fn lay_out(cut: &mut Cutter, shape: &Shape, rows: usize) -> PleScratch {
        let d = shape.wide();
        PleScratch {
            key: cut.floats(rows * d),
            value: cut.floats(rows * shape.hidden),
            gated: cut.floats(rows * d),
            normed: cut.floats(rows * d),
        }
    }
}

impl Hip {
    /// Spec 2.3; `layer` counts GDN layers.
    pub(super) fn delta(
        &self,
        w: &Gdn<Hip>,
        layer: usize,
        x: u64,
        sequences: &mut [&mut Sequence],
        y: u64,
    ) -> Result<()> {
        let (g, s, step) = (&self.shape.gdn, &self.scratch.gdn, &self.step);
        let (rows, count, longest) = (step.rows, step.segments.len(), step.longest());
        let (planes, segments) = (step.tables.gdn(layer), step.tables.gdn_windows(layer));
        self.products(x, rows, &[(&w.qkv, s.qkv), (&w.z, s.z), (&w.b, s.b), (&w.a, s.a)])?;

        let tile = CONV_TILE.max(self.options.rewind_rows);
        let tiles = longest.div_ceil(tile);
        let tasks = 2 * g.key_heads + g.value_heads + 1;
        let conv = GdnConvArgs {
            mixed: s.mixed,
            strength: s.strength,
            decay: s.decay,
            planes,
            segments,
            qkv: s.qkv,
            b: s.b,
            a: s.a,
            taps: w.conv.0,
            dt_bias: w.dt_bias.0,
            rate: w.decay.0,
            tiles: tiles as u32,
            tile: tile as u32,
            key_heads: g.key_heads as u32,
            value_heads: g.value_heads as u32,
            key_dim: g.key_dim as u32,
            value_dim: g.value_dim as u32,
            rewind: self.options.rewind_rows as u32,
            query_scale: 1.0 / (g.key_dim as f32).sqrt(),
        };
        self.launch("gdn_conv", count * tiles * tasks.div_ceil(8), &conv)?;
        self.fold(Part::Window(layer), sequences);
        if longest > tile {
            let slide = GdnSlideArgs { planes, segments, qkv: s.qkv, channels: g.channels() as u32, tile: tile as u32 };
            self.launch("gdn_slide", count * g.channels().div_ceil(1024), &slide)?;
        }
        let segments = step.tables.gdn_states(layer);
        let limit = if scans(g) { SCAN_CHUNK } else { u32::MAX as usize };
        let recur = GdnStepArgs {
            out: s.out,
            planes,
            segments,
            mixed: s.mixed,
            decay: s.decay,
            strength: s.strength,
            key_heads: g.key_heads as u32,
            value_heads: g.value_heads as u32,
            key_dim: g.key_dim as u32,
            value_dim: g.value_dim as u32,
            rewind: self.options.rewind_rows as u32,
            limit: limit as u32,
            tiled: u32::from(g.head_map == HeadMap::Tiled),
            unused: 0,
        };
        let kernel = match g.key_dim {
            64 => "gdn_step_64",
            128 => "gdn_step_128",
            _ => "gdn_step_any",
        };
        self.launch(kernel, count * g.value_heads * g.value_dim.div_ceil(32), &recur)?;
        self.fold(Part::State(layer), sequences);
        if longest > limit {
            self.scan(planes, segments, longest.div_ceil(SCAN_CHUNK))?;
        }
        let output = GdnOutputArgs {
            out: s.normed,
            o: s.out,
            z: s.z,
            weight: w.norm.0,
            planes: if self.options.rewind_rows > 0 { planes } else { 0 },
            segments,
            sequence: step.tables.sequence,
            mixed: s.mixed,
            decay: s.decay,
            strength: s.strength,
            rows: rows as u32,
            key_heads: g.key_heads as u32,
            value_heads: g.value_heads as u32,
            key_dim: g.key_dim as u32,
            value_dim: g.value_dim as u32,
            rewind: self.options.rewind_rows as u32,
            eps: self.shape.norm_eps,
            silu: u32::from(g.gate == Gate::Silu),
        };
        self.launch("gdn_output", (rows * g.value_heads).div_ceil(8), &output)?;
        self.products(s.normed, rows, &[(&w.out, y)])
    }

    /// Segments of more than a chunk, behind the launch that folds their pending rows in.
    fn scan(&self, planes: u64, segments: u64, chunks: usize) -> Result<()> {
        let (g, s, sequences) = (&self.shape.gdn, &self.scratch.gdn, self.step.segments.len());
        let arguments = GdnScanArgs {
            out: s.out,
            planes,
            segments,
            mixed: s.mixed,
            decay: s.decay,
            strength: s.strength,
            keys: s.keys,
            pairs: s.pairs,
            growth: s.growth,
            chunks: chunks as u32,
            key_heads: g.key_heads as u32,
            value_heads: g.value_heads as u32,
            key_dim: g.key_dim as u32,
            value_dim: g.value_dim as u32,
            limit: SCAN_CHUNK as u32,
            tiled: u32::from(g.head_map == HeadMap::Tiled),
            unused: 0,
        };
        self.launch("gdn_scan_pack", sequences * chunks * g.key_heads, &arguments)?;
        let prepare = format!("gdn_scan_prepare_{}", g.key_dim);
        self.launch(&prepare, sequences * chunks * g.value_heads, &arguments)?;
        let scan = format!("gdn_scan_{}", g.key_dim);
        self.launch(&scan, sequences * g.value_heads * (g.value_dim / 64), &arguments)
    }

    /// Spec 2.6; `layer` counts PLE layers.
    pub(super) fn inject(
        &self,
        w: &Ple<Hip>,
        layer: usize,
        embedding: u64,
        sequences: &mut [&mut Sequence],
        wide: u64,
    ) -> Result<()> {
        let Some(ple) = &self.shape.ple else { return Ok(()) };
        let (s, step, d) = (&self.scratch.ple, &self.step, self.shape.wide());
        let (rows, streams, segments) = (step.rows, self.shape.hyper.streams, step.tables.ple(layer));
        self.products(embedding, rows, &[(&w.key, s.key), (&w.value, s.value)])?;
        let gate = PleGateArgs {
            gated: s.gated,
            normed: s.normed,
            key: s.key,
            value: s.value,
            wide,
            norm_key: w.norm_key.0,
            norm_query: w.norm_query.0,
            norm_conv: w.norm_conv.0,
            streams: streams as u32,
            hidden: self.shape.hidden as u32,
            eps: self.shape.norm_eps,
            unused: 0,
        };
        self.launch("ple_gate", rows * streams, &gate)?;
        let conv = PleConvArgs {
            wide,
            gated: s.gated,
            normed: s.normed,
            weights: w.conv.0,
            segments,
            sequence: step.tables.sequence,
            width: d as u32,
            taps: ple.conv_kernel as u32,
            dilation: ple.ngram as u32,
            unused: 0,
        };
        self.launch("ple_conv", rows * d.div_ceil(1024), &conv)?;
        let slide = PleSlideArgs {
            normed: s.normed,
            segments,
            width: d as u32,
            history: ple.conv_history() as u32,
            revocable: self.options.rewind_rows as u32,
            unused: 0,
        };
        self.launch("ple_slide", step.segments.len() * d.div_ceil(1024), &slide)?;
        self.fold(Part::Ple(layer), sequences);
        Ok(())
    }

    /// Records that the launches that change `part` are on their way, if they are and not just recorded.
    fn fold(&self, part: Part, sequences: &mut [&mut Sequence]) {
        if self.graphs.is_recording() {
            return;
        }
        for (segment, sequence) in self.step.segments.iter().zip(sequences) {
            sequence.recurrent.fold(part, segment.rows);
        }
    }
}
