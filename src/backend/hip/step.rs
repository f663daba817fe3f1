//! What a step's kernels read beside buffers and weights: ids, positions, rotary tables, and where each sequence's state is.
//!
//! Owns: the layout of these tables, their copy on the device.
//! Always true: addresses in the tables depend on the number of rows and sequences alone, so that launches recorded for
//! one step serve every other step of as many; one copy brings a step's tables to the device.
//! Not here: launches (the operations).

use bytemuck::{Pod, cast_slice_mut};

use super::abi::{GdnPlanes, GdnSegment, KvPlanes, PleSegment};
use super::memory::Cutter;
use super::mixer::SCAN_CHUNK;
use crate::backend::{Rows, Segment};
use crate::config::{Mixer, RopePrecision, Shape};
use crate::device::{Context, DeviceMemory, PinnedMemory, Stream};
use crate::error::{Error, Result};
use crate::state::Sequence;
use crate::state::kv::Plane;
use crate::state::recurrent::Part;

use super::super::cpu::rope::Rope;

/// The most sequences of a step.
pub const MAX_SEQUENCES: usize = 256;

/// Addresses of the tables of a step.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tables {
    /// `[rows]` u32
    pub ids: u64,
    /// `[rows]` u32
    pub positions: u64,
    /// `[rows]` u32, which sequence
    pub sequence: u64,
    /// `[rows, half]`
    pub cos: u64,
    /// `[rows, half]`
    pub sin: u64,
    /// `[rows, half]`, at the first token of the block that a row closes
    pub block_cos: u64,
    /// `[rows, half]`
    pub block_sin: u64,
    kv: u64,
    /// `[sequences]` GdnSegment, of rows alone
    pub segments: u64,
    gdn: u64,
    gdn_windows: u64,
    gdn_states: u64,
    ple: u64,
    /// `[sequences]` u64, addresses of the rings of hidden rows
    pub rings: u64,
    sequences: usize,
    bytes: usize,
}

impl Tables {
    fn lay_out(base: u64, sizes: &Sizes, rows: usize, sequences: usize) -> Tables {
        let mut cut = Cutter::new(base);
        Tables {
            ids: cut.take(rows, 4),
            positions: cut.take(rows, 4),
            sequence: cut.take(rows, 4),
            cos: cut.floats(rows * sizes.half),
            sin: cut.floats(rows * sizes.half),
            block_cos: cut.floats(rows * sizes.half),
            block_sin: cut.floats(rows * sizes.half),
            kv: cut.take(sizes.caches * sequences, size_of::<KvPlanes>()),
            gdn: cut.take(sizes.gdn_layers * sequences, size_of::<GdnPlanes>()),
            segments: cut.take(sequences, size_of::<GdnSegment>()),
            gdn_windows: cut.take(sizes.gdn_layers * sequences, size_of::<GdnSegment>()),
            gdn_states: cut.take(sizes.gdn_layers * sequences, size_of::<GdnSegment>()),
            ple: cut.take(sizes.ple_layers * sequences, size_of::<PleSegment>()),
            rings: cut.take(sequences, size_of::<u64>()),
            sequences,
            bytes: cut.used(),
        }
    }

    /// `[sequences]` KvPlanes of a cache.
    pub fn kv(&self, cache: usize) -> u64 {
        self.kv + (cache * self.sequences * size_of::<KvPlanes>()) as u64
    }
    /// `[sequences]` GdnPlanes of a layer; `layer` counts GDN layers.
    pub fn gdn(&self, layer: usize) -> u64 {
        self.gdn + (layer * self.sequences * size_of::<GdnPlanes>()) as u64
    }
    /// `[sequences]` GdnSegment of a layer, with the columns that are pending in its window.
    pub fn gdn_windows(&self, layer: usize) -> u64 {
        self.gdn_windows + (layer * self.sequences * size_of::<GdnSegment>()) as u64
    }
    /// `[sequences]` GdnSegment of a layer, with the rows that are pending behind its matrices.
    pub fn gdn_states(&self, layer: usize) -> u64 {
        self.gdn_states + (layer * self.sequences * size_of::<GdnSegment>()) as u64
    }
    /// `[sequences]` PleSegment of a layer; `layer` counts PLE layers.
    pub fn ple(&self, layer: usize) -> u64 {
        self.ple + (layer * self.sequences * size_of::<PleSegment>()) as u64
    }
}

/// What the tables' lengths depend on beside the step.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    half: usize,
    caches: usize,
    gdn_layers: usize,
    ple_layers: usize,
}

impl Sizes {
    fn of(shape: &Shape) -> Sizes {
        Sizes {
            half: shape.rope.rotary_dim / 2,
            // The MTP head's cache comes behind the trunk's, where the model is loaded with its head.
            caches: shape.count(Mixer::Qsa) + 1,
            gdn_layers: shape.count(Mixer::Gdn),
            ple_layers: shape.ple.as_ref().map_or(0, |ple| ple.layers.len()),
        }
    }
}

/// The present step.
pub struct Step {
    sizes: Sizes,
    ratio: usize,
    rope: Rope,
    blocks: Rope,
    block_positions: Vec<u32>,
    host: PinnedMemory,
    device: DeviceMemory,
    chosen_host: PinnedMemory,
    chosen_device: DeviceMemory,
    /// Number of chosen rows.
    pub chosen: usize,
    /// Its rows.
    pub rows: usize,
    /// Its sequences' rows.
    pub segments: Vec<Segment>,
    /// Its tables.
    pub tables: Tables,
}

impl Step {
    /// Plans for steps of up to `max_rows` rows.
    pub fn new(context: &Context, shape: &Shape, precision: RopePrecision, max_rows: usize) -> Result<Step> {
        let bytes = Step::bytes(shape, max_rows);
        Ok(Step {
            sizes: Sizes::of(shape),
            ratio: shape.indexer.ratio,
            rope: Rope::new(&shape.rope, precision, max_rows),
            blocks: Rope::new(&shape.rope, precision, max_rows),
            block_positions: Vec::with_capacity(max_rows),
            host: PinnedMemory::new(context, bytes)?,
            device: DeviceMemory::new(context, bytes)?,
            chosen_host: PinnedMemory::new(context, max_rows * 4)?,
            chosen_device: DeviceMemory::new(context, max_rows * 4)?,
            chosen: 0,
            rows: 0,
            segments: Vec::with_capacity(MAX_SEQUENCES),
            tables: Tables::default(),
        })
    }

    /// Bytes of the largest step's tables.
    pub fn bytes(shape: &Shape, max_rows: usize) -> usize {
        Tables::lay_out(0, &Sizes::of(shape), max_rows, MAX_SEQUENCES.min(max_rows)).bytes
    }

    /// Rows of the longest segment.
    pub fn longest(&self) -> usize {
        self.segments.iter().map(|segment| segment.rows).max().unwrap_or(0)
    }

    /// Which rows `gather` reads: `[chosen]` u32.
    pub fn chosen_rows(&self) -> u64 {
        self.chosen_device.address()
    }

    /// Uploads the rows to choose.
    pub fn choose(&mut self, stream: &Stream, rows: &[usize]) -> Result<()> {
        let bytes = rows.len() * 4;
        let table: &mut [u32] = cast_slice_mut(&mut self.chosen_host.bytes_mut()?[..bytes]);
        table.iter_mut().zip(rows).for_each(|(to, &row)| *to = row as u32);
        self.chosen = rows.len();
        self.chosen_device.span().upload_pinned(stream, &self.chosen_host, 0..bytes)
    }

    /// Fills the tables for a step and submits their copy.
    pub fn begin(&mut self, stream: &Stream, rows: &Rows, sequences: &[&mut Sequence]) -> Result<()> {
        if sequences.len() > MAX_SEQUENCES {
            return Err(Error::invalid(format!(
                "a step takes up to {MAX_SEQUENCES} sequences and was given {}",
                sequences.len()
            )));
        }
        self.rows = rows.len();
        self.segments.clone_from(&rows.segments);
        self.rope.begin(&rows.positions);
        self.block_positions.clear();
        self.block_positions.extend(rows.positions.iter().map(|&p| (p + 1).saturating_sub(self.ratio as u32)));
        self.blocks.begin(&self.block_positions);
        let at = Tables::lay_out(0, &self.sizes, rows.len(), sequences.len());
        let mut fill = Fill { bytes: &mut self.host.bytes_mut()?[..at.bytes] };
        fill.put(at.ids, &rows.ids);
        fill.put(at.positions, &rows.positions);
        for ((cos, sin), rope) in
            [(at.cos, at.sin), (at.block_cos, at.block_sin)].into_iter().zip([&self.rope, &self.blocks])
        {
            let table = rope.table();
            fill.put(cos, table.0);
            fill.put(sin, table.1);
        }
        let mut chunk = 0;
        for (i, (segment, sequence)) in rows.segments.iter().zip(sequences).enumerate() {
            fill.repeat(at.sequence + 4 * segment.first as u64, i as u32, segment.rows);
            for (cache, state) in sequence.kv.iter().enumerate() {
                let plane = |plane| state.plane(plane).base();
                let planes = KvPlanes {
                    keys: plane(Plane::Keys),
                    values: plane(Plane::Values),
                    raw: plane(Plane::RawIndex),
                    blocks: plane(Plane::BlockKeys),
                };
                fill.element(at.kv(cache), i, planes);
            }
            let (first, count) = (segment.first as u32, segment.rows as u32);
            fill.element(at.segments, i, GdnSegment { first, rows: count, pending: 0, chunk });
            let pending = |part| sequence.recurrent.pending(part) as u32;
            for layer in 0..self.sizes.gdn_layers {
                let [state, window, keys, values, decay, strength] = sequence.recurrent.gdn_addresses(layer);
                fill.element(at.gdn(layer), i, GdnPlanes { state, window, keys, values, decay, strength });
                let behind = |part| GdnSegment { first, rows: count, pending: pending(part), chunk };
                fill.element(at.gdn_windows(layer), i, behind(Part::Window(layer)));
                fill.element(at.gdn_states(layer), i, behind(Part::State(layer)));
            }
            chunk += if segment.rows > SCAN_CHUNK { segment.rows.div_ceil(SCAN_CHUNK) as u32 } else { 0 };
            fill.element(at.rings, i, sequence.recurrent.hidden_address());
            for layer in 0..self.sizes.ple_layers {
                let (window, pending) = (sequence.recurrent.ple_address(layer), pending(Part::Ple(layer)));
                fill.element(at.ple(layer), i, PleSegment { window, first, rows: count, pending, unused: 0 });
            }
        }
        self.tables = Tables::lay_out(self.device.address(), &self.sizes, rows.len(), sequences.len());
        self.device.span().upload_pinned(stream, &self.host, 0..at.bytes)
    }
}

/// Writes tables by their offsets.
struct Fill<'a> {
    bytes: &'a mut [u8],
}

impl Fill<'_> {
    fn put<T: Pod>(&mut self, at: u64, values: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }
    fn element<T: Pod>(&mut self, at: u64, index: usize, value: T) {
        self.put(at + (index * size_of::<T>()) as u64, &[value]);
    }
    fn repeat(&mut self, at: u64, value: u32, count: usize) {
        let bytes = &mut self.bytes[at as usize..at as usize + 4 * count];
        cast_slice_mut::<u8, u32>(bytes).fill(value);
    }
}
