//! The operations a model is made of, and what runs them.
//!
//! Owns: `trait Backend`, the typed parameters of each operation, the description of a step's rows.
//! Always true: an operation is a block that a backend may fuse inside; it reads and writes buffers planned at load,
//! allocates nothing, and leaves no value for the host to read before the step ends (positions are data uploaded by
//! `begin`), so a device may capture a step once and replay it. Row `r` of a result depends on row `r` and its own
//! sequence only.
//! Not here: the order of operations (`model`), what the state's bytes mean (`state`), sampling on the host (`engine`).

pub mod cpu;
pub mod dense;
pub mod hip;
pub mod journal;

use std::ops::Range;

use serde::Serialize;

use crate::config::{AttentionMode, RopePrecision};
use crate::error::Result;
use crate::state::Sequence;
use crate::weights::{Matrix, experts::Expert};
use dense::DensePasses;

/// The rows of one step: several sequences' new tokens, one after another.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// Token id of each row.
    pub ids: Vec<u32>,
    /// Position of each row in its sequence, from 0.
    pub positions: Vec<u32>,
    /// Which rows belong to which sequence, in the order of the sequences passed to the operations.
    pub segments: Vec<Segment>,
}

/// Consecutive rows of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First row in the step.
    pub first: usize,
    /// Number of rows, at least 1.
    pub rows: usize,
    /// Position of the first row in its sequence.
    pub position: usize,
}

impl Segment {
    /// The rows in the step.
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.rows
    }
}

impl Rows {
    /// Number of rows in the step.
    pub fn len(&self) -> usize {
        self.ids.len()
    }
    /// Whether the step has no rows.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
    /// Adds a sequence's new tokens, the first at `position`.
    pub fn push(&mut self, position: usize, ids: &[u32]) {
        self.segments.push(Segment { first: self.ids.len(), rows: ids.len(), position });
        self.positions.extend((position..position + ids.len()).map(|p| p as u32));
        self.ids.extend_from_slice(ids);
    }
    /// Forgets the step, keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.positions.clear();
        self.segments.clear();
    }
}

/// Parameters of a hyper-connection read (spec 2.2). C streams of width H, D = C·H.
pub struct HyperRead<B: Backend + ?Sized> {
    /// 1 + w of the grouped norm, `[D]`.
    pub norm: B::Vector,
    /// `[rank, D]`
    pub down: B::Matrix,
    /// `[D, rank]`
    pub up: B::Matrix,
    /// `[C, D]`; absent in a final mixer, which injects nothing.
    pub inject: Option<B::Matrix>,
}

/// Parameters of a Gated DeltaNet mixer (spec 2.3).
pub struct Gdn<B: Backend + ?Sized> {
    /// Queries, keys and values, `[channels, H]`.
    pub qkv: B::Matrix,
    /// Output gate, `[value_heads · value_dim, H]`.
    pub z: B::Matrix,
    /// Write strength, `[value_heads, H]`.
    pub b: B::Matrix,
    /// Decay, `[value_heads, H]`.
    pub a: B::Matrix,
    /// Taps, oldest first, `[conv_kernel, channels]`.
    pub conv: B::Vector,
    /// −exp(A_log), `[value_heads]`.
    pub decay: B::Vector,
    /// `[value_heads]`
    pub dt_bias: B::Vector,
    /// Output norm's weight, used as it is, `[value_dim]`.
    pub norm: B::Vector,
    /// `[H, value_heads · value_dim]`
    pub out: B::Matrix,
}

/// Parameters of a QSA mixer (spec 2.4). Norms are 1 + w.
pub struct Qsa<B: Backend + ?Sized> {
    /// Query and gate interleaved by head, `[query_heads · 2 · head_dim, H]`.
    pub q: B::Matrix,
    /// `[kv_heads · head_dim, H]`
    pub k: B::Matrix,
    /// `[kv_heads · head_dim, H]`
    pub v: B::Matrix,
    /// `[H, query_heads · head_dim]`
    pub o: B::Matrix,
    /// `[head_dim]`
    pub q_norm: B::Vector,
    /// `[head_dim]`
    pub k_norm: B::Vector,
    /// Indexer queries, `[heads · index_dim, H]`.
    pub index_q: B::Matrix,
    /// Indexer key, `[index_dim, H]`.
    pub index_k: B::Matrix,
    /// `[index_dim]`
    pub index_q_norm: B::Vector,
    /// `[index_dim]`, applied to the block key.
    pub index_k_norm: B::Vector,
}

/// Parameters of a mixture of experts (spec 2.5).
pub struct Moe<B: Backend + ?Sized> {
    /// `[experts, H]`
    pub router: B::Matrix,
    /// All routed experts.
    pub experts: B::Experts,
    /// `[shared_intermediate, H]`
    pub shared_gate: B::Matrix,
    /// `[shared_intermediate, H]`
    pub shared_up: B::Matrix,
    /// `[H, shared_intermediate]`
    pub shared_down: B::Matrix,
    /// Scalar gate of the shared expert, `[1, H]`.
    pub shared_scale: B::Matrix,
}

/// Parameters of a PLE injection (spec 2.6). Norms are 1 + w, `[D]`.
pub struct Ple<B: Backend + ?Sized> {
    /// `[D, embed_dim]`
    pub key: B::Matrix,
    /// `[H, embed_dim]`
    pub value: B::Matrix,
    /// `[D]`
    pub norm_key: B::Vector,
    /// `[D]`
    pub norm_query: B::Vector,
    /// `[D]`
    pub norm_conv: B::Vector,
    /// Taps, oldest first, `[conv_kernel, D]`.
    pub conv: B::Vector,
}

/// Parameters of the MTP head's input (spec 4.2). Norms are 1 + w.
pub struct MtpFuse<B: Backend + ?Sized> {
    /// `[H]`
    pub norm_embedding: B::Vector,
    /// `[D]`, one statistic over all of it.
    pub norm_hidden: B::Vector,
    /// `[H, H]`
    pub embedding: B::Matrix,
    /// `[H, H]`, shared by the streams.
    pub hidden: B::Matrix,
}

/// A value that a test looks at while a step runs.
pub enum Observed<'a> {
    /// Activations.
    F32(&'a [f32]),
    /// Ids: experts of a router, selected tokens.
    U32(&'a [u32]),
    /// Rows of the n-gram table.
    U64(&'a [u64]),
}

/// Receives every intermediate value with its name (`layer3.attn`).
pub type Observer = Box<dyn FnMut(&str, Observed<'_>) + Send>;

/// A sequence of operations that a step runs as a whole. A device may record it and replay it for other steps of as many
/// rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// The decoder layers.
    Trunk,
    /// The MTP head's layer behind the trunk's rows.
    Mtp,
    /// The same behind rows that the sequences kept.
    MtpKept,
    /// The same behind the head's own rows.
    MtpChain,
    /// Final mixer and output head of the trunk.
    Logits,
    /// The same of the MTP head.
    MtpLogits,
    /// The same over the draft vocabulary.
    DraftLogits,
}

/// What runs a model's operations.
///
/// Buffers hold F32 rows `[rows, width]`; `x`, `y` are `[rows, H]`, `wide` is `[rows, D]` with stream s at columns
/// `s·H..(s+1)·H`, `inject` is `[rows, C]`. `begin` says how many rows the following operations have.
pub trait Backend: Send {
    /// A weight matrix in its stored format.
    type Matrix: Send;
    /// The routed experts of a layer.
    type Experts: Send;
    /// A small F32 parameter.
    type Vector: Send;
    /// Activation rows.
    type Buffer: Send;

    /// Moves to the calling thread, which runs all operations from now on.
    fn adopt(&mut self) -> Result<()> {
        Ok(())
    }
    /// Takes a weight matrix over, in its stored format.
    fn matrix(&mut self, matrix: Matrix) -> Result<Self::Matrix>;
    /// Takes a layer's routed experts over. `shared` is gate, up and down of the expert that runs beside them.
    fn experts(&mut self, experts: Vec<Expert>, shared: [&Self::Matrix; 3]) -> Result<Self::Experts>;
    /// Takes a small parameter over.
    fn vector(&mut self, values: Vec<f32>) -> Result<Self::Vector>;
    /// A buffer of `rows` rows: only while loading.
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer>;

    /// Starts a step. The operations until the next `begin` work on these rows of these sequences.
    fn begin(&mut self, rows: &Rows, sequences: &[&mut Sequence]) -> Result<()>;
    /// Names the rows that `gather` and `mtp_fuse` read.
    fn choose(&mut self, rows: &[usize]) -> Result<()>;
    /// Runs the operations that `work` asks for. They take their data from what was uploaded, begun and chosen before, so
    /// that a device may have run `program` for as many rows and not call `work` again.
    fn run(&mut self, program: Program, work: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()>;
    /// Copies host rows to the front of a buffer.
    fn upload(&mut self, values: &[f32], to: &mut Self::Buffer) -> Result<()>;
    /// Waits for the step and copies rows of `width` values to the host.
    fn download(&mut self, from: &Self::Buffer, rows: Range<usize>, width: usize, into: &mut [f32]) -> Result<()>;
    /// Copies the chosen rows of `width` values to the front of another buffer.
    fn gather(&mut self, from: &Self::Buffer, width: usize, to: &mut Self::Buffer) -> Result<()>;

    /// The step's token embeddings, repeated in every stream: `wide = [e, e, …]`.
    fn embed(&mut self, table: &Self::Matrix, wide: &mut Self::Buffer) -> Result<()>;
    /// Spec 2.2: norm, low-rank gate, mean of the gated streams into `x`; injection weights into `inject`. Works on
    /// the first `rows` rows.
    fn hyper_read(
        &mut self,
        w: &HyperRead<Self>,
        rows: usize,
        wide: &Self::Buffer,
        x: &mut Self::Buffer,
        inject: &mut Self::Buffer,
    ) -> Result<()>;
    /// `wide_s += inject_s · y` for every stream s.
    fn hyper_write(&mut self, wide: &mut Self::Buffer, inject: &Self::Buffer, y: &Self::Buffer) -> Result<()>;
    /// Both in turn, the write of one part of a layer and the read `w` of the next: `inject` is read, then written.
    fn hyper_turn(
        &mut self,
        w: &HyperRead<Self>,
        rows: usize,
        wide: &mut Self::Buffer,
        y: &Self::Buffer,
        x: &mut Self::Buffer,
        inject: &mut Self::Buffer,
    ) -> Result<()> {
        self.hyper_write(wide, inject, y)?;
        self.hyper_read(w, rows, wide, x, inject)
    }
    /// Spec 2.3; `layer` counts GDN layers. Advances the recurrent and convolution state.
    fn gdn(
        &mut self,
        w: &Gdn<Self>,
        layer: usize,
        x: &Self::Buffer,
        sequences: &mut [&mut Sequence],
        y: &mut Self::Buffer,
    ) -> Result<()>;
    /// First third of spec 2.4: projections, norms, RoPE; K, V, raw index keys and completed block keys go to cache
    /// `cache` of each sequence, queries and gates stay inside the backend for the next two operations.
    fn qsa_project(
        &mut self,
        w: &Qsa<Self>,
        cache: usize,
        x: &Self::Buffer,
        sequences: &mut [&mut Sequence],
    ) -> Result<()>;
    /// Second third (spec 2.4.1): what each row reads: every visible token in dense mode.
    fn qsa_select(&mut self, cache: usize, sequences: &[&mut Sequence]) -> Result<()>;
    /// Last third: attention over the selection, gate, output projection.
    fn qsa_attend(
        &mut self,
        w: &Qsa<Self>,
        cache: usize,
        sequences: &[&mut Sequence],
        y: &mut Self::Buffer,
    ) -> Result<()>;
    /// Spec 2.5.
    fn moe(&mut self, w: &Moe<Self>, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;
    /// Spec 2.6: adds to `wide` what the n-gram rows `embedding` `[rows, embed_dim]` say; `layer` counts PLE layers.
    fn ple(
        &mut self,
        w: &Ple<Self>,
        layer: usize,
        embedding: &Self::Buffer,
        sequences: &mut [&mut Sequence],
        wide: &mut Self::Buffer,
    ) -> Result<()>;
    /// `y = x · wᵀ` on the first `rows` rows.
    fn linear(&mut self, w: &Self::Matrix, rows: usize, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;
    /// Keeps the last rows of each segment, at most `HIDDEN_ROWS` of them, in its sequence's ring: the row at position p
    /// goes to slot p mod `HIDDEN_ROWS` (see `state::head`).
    fn keep_hidden(&mut self, wide: &Self::Buffer, sequences: &mut [&mut Sequence]) -> Result<()>;
    /// Copies the kept row of each row's position out of its sequence's ring: row r of `to` belongs to the step's row r.
    fn load_hidden(&mut self, sequences: &[&mut Sequence], to: &mut Self::Buffer) -> Result<()>;
    /// Spec 4.2: `out_s = hidden · norm(wide)_s + embedding · norm(e)` for every stream s, where `wide`'s row for the
    /// step's row r is the chosen row r and e is the embedding of the step's id r. Without `wide` the rows are `out`'s own,
    /// all read before any is written.
    fn mtp_fuse(
        &mut self,
        w: &MtpFuse<Self>,
        table: &Self::Matrix,
        wide: Option<&Self::Buffer>,
        out: &mut Self::Buffer,
    ) -> Result<()>;

    /// How dense attention over a step of `rows` rows of one sequence is cut into passes; `None`, if queries read a
    /// selection.
    fn dense_passes(&self, _rows: usize) -> Option<DensePasses> {
        None
    }

    /// Bytes of a device's own memory that were taken since this backend was made; `None` on the host.
    fn device_bytes(&self) -> Option<u64> {
        None
    }
    /// Starts to time every kernel launch, or ends it; returns what was timed since it started. A backend without
    /// launches has nothing to tell.
    fn profile(&mut self, _on: bool) -> Result<Vec<KernelTime>> {
        Ok(Vec::new())
    }

    /// Shows an intermediate buffer to the observer, if a test has set one.
    fn observe(&mut self, name: &str, buffer: &Self::Buffer, rows: usize, width: usize);
    /// Names the layer that following values belong to.
    fn enter(&mut self, layer: std::fmt::Arguments<'_>);
    /// Sets or removes the observer. Only tests do.
    fn set_observer(&mut self, observer: Option<Observer>);
}

/// The launches of a kernel during a profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelTime {
    /// Its name.
    pub kernel: String,
    /// How often it was launched.
    pub launches: usize,
    /// On the device, altogether.
    pub milliseconds: f64,
}

/// Rows that one call for logits may ask for: their buffers are planned at load.
pub const LOGIT_ROWS: usize = 16;

/// Sizes and choices a backend plans its own scratch by.
#[derive(Debug, Clone, Copy)]
pub struct BackendOptions {
    /// The most rows a step has.
    pub max_rows: usize,
    /// The most tokens a sequence has.
    pub max_sequence: usize,
    /// Which keys a query reads: decides how much score scratch is planned.
    pub attention: AttentionMode,
    /// Precision of the rotary table.
    pub rope: RopePrecision,
    /// Threads of the rayon pool that the CPU's operations run on.
    pub threads: usize,
}
