//! The HIP backend: a model's operations as launches of our kernels on one device.
//!
//! Owns: the device's stream, kernels, weights, scratch and tables of a step; recorded programs.
//! Always true: an operation submits work and waits for nothing; a step of few rows submits the same launches whatever the
//! positions and the context's length are, so a recorded program serves them all.
//! Not here: what a kernel computes (`hip/`), the order of operations (`model`), the driver's calls (`device`).

pub mod abi;
pub mod check;
mod dense;
mod expert;
mod graphs;
mod hosted;
pub mod kernels;
pub mod manifest;
pub mod matrix;
mod memory;
mod mixer;
pub mod options;
pub mod pack;
mod profile;
mod qsa;
mod step;

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytemuck::Pod;

use super::journal::Journal;
use super::{
    Backend, Gdn, HyperRead, KernelTime, LOGIT_ROWS, Moe, MtpFuse, Observed, Observer, Ple, Program, Qsa, Rows,
};
use crate::config::Shape;
use crate::device::canary::{KernelCanary, Prove};
use crate::device::{Context, DeviceMemory, Library, Stream};
use crate::error::{Error, Result};
use crate::state::Sequence;
use crate::weights::{self, Expert};
use dense::{HyperScratch, Matrix, ProductScratch, Vector};
use expert::{Experts, MoeScratch};
use graphs::Graphs;
use hosted::Hosted;
pub use hosted::SLOTS;
use kernels::Kernels;
pub use memory::ALIGN;
use memory::{Buffer, Cutter, Loader, Uploads};
use mixer::{GdnScratch, PleScratch};
use options::HipOptions;
use pack::Pack;
use profile::Profile;
use qsa::QsaScratch;
use step::Step;

/// A device with its kernels, before a model is loaded.
pub struct Gpu {
    context: Context,
    kernels: Kernels,
    compiler: String,
}

impl Gpu {
    /// Takes a device of the installed HIP library; kernels come from the pack at `pack`, or the embedded one. Nothing is
    /// unpacked where there is no device.
    ///
    /// # Errors
    /// `Device`: no library, no such device, or no kernels for it.
    pub fn open(device: i32, pack: Option<&Path>) -> Result<Gpu> {
        let library = Library::open()?;
        library.device_count().map_err(|failure| Error::Device(library.no_device(&failure)))?;
        let context = Context::new(&library, device)?;
        Gpu::of(&context, &pack.map_or_else(Pack::embedded, Pack::open)?)
    }
    /// The same with a device that is in use already.
    pub fn of(context: &Context, pack: &Pack) -> Result<Gpu> {
        let compiler = pack.manifest().compiler.clone();
        Ok(Gpu { context: context.clone(), kernels: Kernels::load(context, pack)?, compiler })
    }
    /// The device.
    pub fn context(&self) -> &Context {
        &self.context
    }
    /// Its architecture.
    pub fn arch(&self) -> &str {
        &self.context.properties().arch
    }
    /// What built its kernels.
    pub fn compiler(&self) -> &str {
        &self.compiler
    }
    /// What proves freshly mapped memory.
    pub fn canary(&self) -> Result<Arc<dyn Prove>> {
        let function = self.kernels.function(KernelCanary::KERNEL)?.clone();
        Ok(Arc::new(KernelCanary::new(function, Stream::new(&self.context)?)?))
    }
}

/// A device that runs a model.
pub struct Hip {
    shape: Shape,
    options: HipOptions,
    context: Context,
    stream: Arc<Stream>,
    kernels: Kernels,
    loader: Loader,
    uploads: Uploads,
    hosted: Hosted,
    /// Bytes that were free on the device before anything was taken.
    free_before: usize,
    /// Layers whose experts were loaded so far.
    expert_layers: usize,
    step: Step,
    scratch: Scratch,
    /// Keeps the scratch's addresses alive.
    _scratch_memory: DeviceMemory,
    graphs: Graphs,
    journal: Arc<Journal>,
    observer: Option<Observer>,
    profile: RefCell<Option<Profile>>,
    layer: String,
}

/// Where the temporaries of every operation lie. Operations follow each other on one stream, so all but the products'
/// share their place.
struct Scratch {
    products: ProductScratch,
    hyper: HyperScratch,
    gdn: GdnScratch,
    ple: PleScratch,
    qsa: QsaScratch,
    moe: MoeScratch,
    bytes: usize,
}

impl Scratch {
    /// From `base` on.
    fn lay_out(base: u64, shape: &Shape, options: &HipOptions) -> Scratch {
        let rows = options.max_rows.max(LOGIT_ROWS);
        let mut first = Cutter::new(base);
        let products = ProductScratch::lay_out(&mut first, shape, rows);
        let mut cuts = [first; 5];
        let [hyper, gdn, ple, qsa, moe] = &mut cuts;
        Scratch {
            products,
            hyper: HyperScratch::lay_out(hyper, shape, rows),
            gdn: GdnScratch::lay_out(gdn, shape, options.max_rows),
            ple: PleScratch::lay_out(ple, shape, options.max_rows),
            qsa: QsaScratch::lay_out(qsa, shape, options),
            moe: MoeScratch::lay_out(moe, shape, options.max_rows),
            bytes: cuts.iter().map(Cutter::used).fold(0, usize::max),
        }
    }
}

impl Hip {
    /// Plans all scratch for steps of up to `options.max_rows` rows.
    ///
    /// # Errors
    /// `Model` for a geometry that the kernels do not take, `InsufficientMemory`, `Device`.
    pub fn new(gpu: Gpu, shape: &Shape, options: HipOptions) -> Result<Hip> {
        options::check(shape)?;
        let Gpu { context, kernels, .. } = gpu;
        let context = &context;
        let stream = Arc::new(Stream::new(context)?);
        let free_before = context.memory_info()?.free;
        let memory = DeviceMemory::new(context, Scratch::lay_out(0, shape, &options).bytes)?;
        Ok(Hip {
            loader: Loader::new(context, stream.clone())?,
            uploads: Uploads::new(context, options.max_rows * shape.ngram_width())?,
            hosted: Hosted::new(context, options.host_layers.map_or(0, |layers| layers.slot_bytes))?,
            free_before,
            expert_layers: 0,
            step: Step::new(context, shape, options.rope, options.max_rows)?,
            scratch: Scratch::lay_out(memory.address(), shape, &options),
            _scratch_memory: memory,
            graphs: Graphs::new(),
            journal: Arc::default(),
            observer: None,
            profile: RefCell::new(None),
            layer: String::new(),
            shape: shape.clone(),
            context: context.clone(),
            options,
            stream,
            kernels,
        })
    }

    /// Bytes of scratch that [`Hip::new`] takes: part of the memory plan.
    pub fn scratch_bytes(shape: &Shape, options: &HipOptions) -> usize {
        Scratch::lay_out(0, shape, options).bytes + Step::bytes(shape, options.max_rows) + Loader::OVERHEAD
    }

    /// Waits until all weights have arrived.
    pub fn loaded(&mut self) -> Result<()> {
        self.loader.flush()?;
        self.hosted.start()?;
        self.stream.synchronize()
    }

    /// Layers whose experts lie in the host's memory.
    pub fn hosted_layers(&self) -> usize {
        self.hosted.len()
    }

    /// What it has run.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    fn launch<T: Pod>(&self, kernel: &str, grid: usize, arguments: &T) -> Result<()> {
        let grid = u32::try_from(grid).map_err(|_| {
            Error::Device(format!("kernel {kernel} would take {grid} workgroups: lower --prefill-chunk"))
        })?;
        self.journal.launched(kernel, self.step.rows > matrix::GEMV_ROWS);
        let launch = || self.kernels.launch(&self.stream, kernel, grid, arguments);
        match &mut *self.profile.borrow_mut() {
            Some(profile) => profile.around(&self.stream, kernel, launch),
            None => launch(),
        }
    }
}

impl Backend for Hip {
    type Matrix = Matrix;
    type Experts = Experts;
    type Vector = Vector;
    type Buffer = Buffer;

    fn adopt(&mut self) -> Result<()> {
        self.context.adopt()
    }
    fn matrix(&mut self, matrix: weights::Matrix) -> Result<Matrix> {
        self.store(&matrix)
    }
    fn experts(&mut self, experts: Vec<Expert>, shared: [&Matrix; 3]) -> Result<Experts> {
        self.store_experts(&experts, shared)
    }
    fn vector(&mut self, values: Vec<f32>) -> Result<Vector> {
        Ok(Vector(self.loader.store(bytemuck::cast_slice(&values))?))
    }
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer> {
        let memory = DeviceMemory::new(&self.context, rows * width * size_of::<f32>())?;
        memory.span().fill(&self.stream, 0)?;
        Ok(Buffer(memory))
    }

    fn begin(&mut self, rows: &Rows, sequences: &[&mut Sequence]) -> Result<()> {
        self.step.begin(&self.stream, rows, sequences)
    }
    fn choose(&mut self, rows: &[usize]) -> Result<()> {
        self.step.choose(&self.stream, rows)
    }
    fn run(&mut self, program: Program, work: &mut dyn FnMut(&mut Hip) -> Result<()>) -> Result<()> {
        graphs::run(self, program, work)
    }
    fn upload(&mut self, values: &[f32], to: &mut Buffer) -> Result<()> {
        self.uploads.send(&self.stream, bytemuck::cast_slice(values), to)
    }
    fn download(&mut self, from: &Buffer, rows: Range<usize>, width: usize, into: &mut [f32]) -> Result<()> {
        let row = width * size_of::<f32>();
        let part = from.0.span().part(rows.start * row..rows.end * row)?;
        part.download(&self.stream, bytemuck::cast_slice_mut(into))
    }
    fn gather(&mut self, from: &Buffer, width: usize, to: &mut Buffer) -> Result<()> {
        self.copy_chosen(from.address(), width, to.address())
    }

    fn embed(&mut self, table: &Matrix, wide: &mut Buffer) -> Result<()> {
        self.embed_rows(table, self.shape.hyper.streams, wide.address())
    }
    fn hyper_read(
        &mut self,
        w: &HyperRead<Hip>,
        rows: usize,
        wide: &Buffer,
        x: &mut Buffer,
        inject: &mut Buffer,
    ) -> Result<()> {
        self.hyper_in(w, rows, wide.address(), x.address(), inject.address())
    }
    fn hyper_write(&mut self, wide: &mut Buffer, inject: &Buffer, y: &Buffer) -> Result<()> {
        self.hyper_out(wide.address(), inject.address(), y.address(), None)
    }
    fn hyper_turn(
        &mut self,
        w: &HyperRead<Hip>,
        rows: usize,
        wide: &mut Buffer,
        y: &Buffer,
        x: &mut Buffer,
        inject: &mut Buffer,
    ) -> Result<()> {
        self.hyper_out(wide.address(), inject.address(), y.address(), Some(w.norm))?;
        self.hyper_gates(w, rows, x.address(), inject.address())
    }
    fn gdn(
        &mut self,
        w: &Gdn<Hip>,
        layer: usize,
        x: &Buffer,
        sequences: &mut [&mut Sequence],
        y: &mut Buffer,
    ) -> Result<()> {
        self.delta(w, layer, x.address(), sequences, y.address())
    }
    fn qsa_project(&mut self, w: &Qsa<Hip>, cache: usize, x: &Buffer, _: &mut [&mut Sequence]) -> Result<()> {
        self.index(w, cache, x.address())
    }
    fn qsa_select(&mut self, cache: usize, _: &[&mut Sequence]) -> Result<()> {
        self.select(cache)
    }
    fn qsa_attend(&mut self, w: &Qsa<Hip>, cache: usize, _: &[&mut Sequence], y: &mut Buffer) -> Result<()> {
        self.attend(w, cache, y.address())
    }
    fn moe(&mut self, w: &Moe<Hip>, x: &Buffer, y: &mut Buffer) -> Result<()> {
        self.mixture(w, x.address(), y.address())
    }
    fn ple(
        &mut self,
        w: &Ple<Hip>,
        layer: usize,
        embedding: &Buffer,
        sequences: &mut [&mut Sequence],
        wide: &mut Buffer,
    ) -> Result<()> {
        self.inject(w, layer, embedding.address(), sequences, wide.address())
    }
    fn linear(&mut self, w: &Matrix, rows: usize, x: &Buffer, y: &mut Buffer) -> Result<()> {
        self.products(x.address(), rows, &[(w, y.address())])
    }
    fn keep_hidden(&mut self, wide: &Buffer, _: &mut [&mut Sequence]) -> Result<()> {
        self.hidden("hidden_keep", wide.address())
    }
    fn load_hidden(&mut self, _: &[&mut Sequence], to: &mut Buffer) -> Result<()> {
        self.hidden("hidden_load", to.address())
    }
    fn mtp_fuse(&mut self, w: &MtpFuse<Hip>, table: &Matrix, wide: Option<&Buffer>, out: &mut Buffer) -> Result<()> {
        self.fuse(w, table, wide.unwrap_or(out).address(), out)
    }

    fn device_bytes(&self) -> Option<u64> {
        let free = self.context.memory_info().ok()?.free;
        Some(self.free_before.saturating_sub(free) as u64)
    }
    fn profile(&mut self, on: bool) -> Result<Vec<KernelTime>> {
        let profile = self.profile.replace(on.then(|| Profile::new(&self.context)));
        profile.map_or(Ok(Vec::new()), Profile::finish)
    }

    fn observe(&mut self, name: &str, buffer: &Buffer, rows: usize, width: usize) {
        let Some(mut observer) = self.observer.take() else { return };
        let mut values = vec![0.0; rows * width];
        match self.download(buffer, 0..rows, width, &mut values) {
            Ok(()) => observer(&format!("{}.{name}", self.layer), Observed::F32(&values)),
            Err(error) => tracing::error!("{}.{name} cannot be shown: {error}", self.layer),
        }
        self.observer = Some(observer);
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
