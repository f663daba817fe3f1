//! From a model's files to a model that runs: config, weights, backend, state.
//!
//! Owns: the options of a load and their defaults, the memory plan of a load.
//! Always true: the plan is made and checked before a weight is touched.
//! Not here: what a step does (`forward`).

use tracing::info;

use super::forward::Model;
use super::names::{self, Parameters, Part, Sizes, Synthetic};
use super::{bind, config, config_gguf};
pub use crate::arena::plan::Plan;
use crate::arena::{Arena, vmm};
use crate::backend::BackendOptions;
use crate::backend::cpu::Cpu;
use crate::backend::hip::options::{HipOptions, HostLayers, auto_kv_mode};
use crate::backend::hip::{ALIGN, Gpu, Hip, SLOTS};
use crate::config::{AttentionMode, KvBackend, KvMode, RopePrecision, Shape};
use crate::error::{Error, Result};
use crate::state::StateLayout;
use crate::state::head::HIDDEN_ROWS;
use crate::weights::{Checkpoint, Source, ngram};

/// What a load may choose. `Default` is what a plain run uses.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Storage of keys and values; none: F32 on the CPU.
    pub kv_mode: Option<KvMode>,
    /// How the context's memory is obtained; none: `Vmm`.
    pub kv_backend: Option<KvBackend>,
    /// The most tokens a sequence has; none: what the model was made for.
    pub max_sequence: Option<usize>,
    /// The most rows of a step, and so the largest prefill chunk.
    pub max_rows: usize,
    /// Which keys a query reads.
    pub attention: AttentionMode,
    /// Precision of the rotary table.
    pub rope: RopePrecision,
    /// Threads that the CPU backend shares its work among.
    pub threads: usize,
    /// Sequences that exist at a time: the plan counts as many.
    pub sequences: usize,
    /// Bytes that the engine may keep of earlier sequences.
    pub kept_bytes: usize,
    /// Rows of a step that can be taken back.
    pub rewind_rows: usize,
    /// Whether to load the MTP head, if there is one.
    pub mtp: bool,
    /// The only ids that the MTP head may draft; none: all of them.
    pub draft_ids: Option<Vec<u32>>,
    /// Whether a GPU may gather selected keys before attention.
    pub gather: bool,
    /// Bytes that weights, state and scratch may take together.
    pub memory_limit: Option<usize>,
}

impl LoadOptions {
    /// How keys and values are stored.
    pub fn kv_mode(&self) -> KvMode {
        self.kv_mode.unwrap_or(KvMode::F32)
    }
    /// How the context's memory is obtained.
    pub fn kv_backend(&self) -> KvBackend {
        self.kv_backend.unwrap_or(KvBackend::Vmm)
    }
}

/// Rows of a prefill chunk on the CPU: enough that a decoded weight block is used by many rows, few enough that the
/// residual streams of a chunk stay in the last-level cache.
pub const DEFAULT_MAX_ROWS: usize = 512;

/// Rows of a prefill chunk on a GPU: large enough that experts' tiles fill.
pub const DEFAULT_GPU_ROWS: usize = 4096;

/// Granularity of the advice on which context would fit.
const CONTEXT_STEP: usize = 256;

/// Code, stacks, allocator and the headers of a checkpoint, as measured with `ember` (x86-64, 2026-11-30).
const PROGRAM_BYTES: usize = 16 << 20;
/// The plan's part for what is kept of earlier requests.
const EARLIER: &str = "earlier requests";
/// A tokenizer's tables for one id of its vocabulary, as measured with `ember` (x86-64, 2026-11-30).
const TOKENIZER_BYTES: usize = 1536;

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            kv_mode: None,
            kv_backend: None,
            max_sequence: None,
            max_rows: DEFAULT_MAX_ROWS,
            attention: AttentionMode::Sparse,
            rope: RopePrecision::F32,
            threads: 1,
            sequences: 1,
            kept_bytes: 0,
            rewind_rows: 0,
            mtp: false,
            draft_ids: None,
            gather: true,
            memory_limit: None,
        }
    }
}

/// Everything that is known about a model before its weights are touched.
pub struct Opened {
    /// Headers of all weight files.
    pub checkpoint: Checkpoint,
    /// The checked shape; `mtp_layers` says what the checkpoint holds.
    pub shape: Shape,
    synthetic: Option<Synthetic>,
}

impl Opened {
    /// A model that is in no file (see [`Synthetic::new`]).
    ///
    /// # Errors
    /// `Invalid`, for a name that is not known.
    pub fn synthetic(name: &str) -> Result<Opened> {
        let synthetic = Synthetic::new(name)?;
        let (checkpoint, shape) = (Checkpoint::nowhere(name), synthetic.shape().clone());
        Ok(Opened { checkpoint, shape, synthetic: Some(synthetic) })
    }

    /// Bytes of all weights.
    ///
    /// # Errors
    /// `Model`, if the names are of another architecture.
    pub fn bytes(&self) -> Result<u64> {
        let sizes = self.parameters()?.sizes();
        Ok((sizes.dense + sizes.experts.iter().sum::<usize>() + sizes.mtp + sizes.table) as u64)
    }

    /// Hash of the tensors' names, shapes, types and beginnings.
    pub fn fingerprint(&self) -> String {
        self.checkpoint.fingerprint().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// What answers for the weights.
    fn parameters(&self) -> Result<Box<dyn Parameters + '_>> {
        match &self.synthetic {
            Some(synthetic) => Ok(Box::new(synthetic)),
            None => names::of(&self.checkpoint, &self.shape),
        }
    }
}

/// Reads config.json and the weight files' headers, or those of a GGUF model, which say both.
///
/// # Errors
/// `Model` or `Io`, naming the file and what is wrong with it.
pub fn open(source: &Source) -> Result<Opened> {
    let (checkpoint, mut shape) = if source.is_gguf() {
        let checkpoint = Checkpoint::open(source)?;
        let shape = config_gguf::parse(&checkpoint)?;
        (checkpoint, shape)
    } else {
        let json = source
            .file("config.json")?
            .ok_or_else(|| Error::model(format!("{} has no config.json: it is not a model folder", source.name())))?;
        let shape = config::parse(&json)?;
        (Checkpoint::open(source)?, shape)
    };
    let has_head = names::of(&checkpoint, &shape)?.has_mtp();
    if shape.mtp_layers > 0 && !has_head {
        info!(model = source.name(), "the config names an MTP head that the weight files do not have");
    }
    shape.mtp_layers = usize::from(has_head);
    Ok(Opened { checkpoint, shape, synthetic: None })
}

/// Loads a model for the CPU. `progress` is called with the share done, from 0 to 1.
///
/// # Errors
/// `Invalid` for options that do not fit the model, `InsufficientMemory` if the plan exceeds the limit, `Model` or `Io`
/// for the files.
pub fn cpu(opened: Opened, options: &LoadOptions, progress: &mut dyn FnMut(f32)) -> Result<Model<Cpu>> {
    if options.memory_limit.is_some() {
        plan(&opened, options)?.check(|limit| largest_context(&opened, options, limit, &plan))?;
    }
    cpu_in(opened, options, Arena::host(options.kv_backend()), progress)
}

/// The same with sequences in an arena of the caller's, whose own limits then hold and not those of `options`.
///
/// # Errors
/// As for [`cpu`].
pub fn cpu_in(
    opened: Opened,
    options: &LoadOptions,
    arena: Arena,
    progress: &mut dyn FnMut(f32),
) -> Result<Model<Cpu>> {
    let shape = opened.shape.clone();
    let layout = state_layout(&shape, options)?;
    let backend_options = backend_options(&layout, options);
    let mut backend = Cpu::new(&shape, backend_options);
    let parameters = opened.parameters()?;
    let weights = bind::bind(&*parameters, &shape, &mut backend, options.mtp, options.draft_ids.as_deref(), progress)?;
    Model::new(shape, weights, backend, arena, layout, backend_options.max_rows)
}

/// Loads a model for a GPU. Without a limit, the memory that is free on it is one. Also says why the context's memory is
/// allocated whole, where nobody asked for that.
///
/// # Errors
/// As for [`cpu`], and `Device`.
pub fn hip(
    opened: Opened,
    gpu: Gpu,
    options: &LoadOptions,
    progress: &mut dyn FnMut(f32),
) -> Result<(Model<Hip>, Option<String>)> {
    let free = gpu.context().memory_info()?.free;
    let options =
        &LoadOptions { memory_limit: Some(options.memory_limit.unwrap_or(free).min(free)), ..options.clone() };
    let (plan, host_layers) = place(&opened, options, &gpu)?;
    plan.check(|limit| {
        let plan = |opened: &Opened, options: &LoadOptions| hip_plan(opened, options, &gpu);
        largest_context(&opened, options, limit, &plan)
    })?;
    if let Some(layers) = host_layers {
        info!("the experts of {} of {} layers stay in the host's memory", layers.count, layers.of);
    }
    let options = &gpu_defaults(options, gpu.arch());
    let shape = opened.shape.clone();
    let layout = state_layout(&shape, options)?;
    let hip_options = hip_options(&layout, options, host_layers);
    let arena = vmm::open(
        gpu.context(),
        gpu.canary()?,
        vmm::Options { choice: options.kv_backend, ..vmm::Options::default() },
    )?;
    let mut backend = Hip::new(gpu, &shape, hip_options)?;
    let parameters = opened.parameters()?;
    let drafts = options.draft_ids.as_deref();
    let weights = bind::bind(&*parameters, &shape, &mut backend, options.mtp, drafts, progress)?;
    backend.loaded()?;
    Ok((Model::new(shape, weights, backend, arena.arena, layout, hip_options.max_rows)?, arena.fallback))
}

/// What a GPU does where the user leaves it open.
fn gpu_defaults(options: &LoadOptions, arch: &str) -> LoadOptions {
    LoadOptions { kv_mode: Some(options.kv_mode.unwrap_or_else(|| auto_kv_mode(arch))), ..options.clone() }
}

fn hip_options(layout: &StateLayout, options: &LoadOptions, host_layers: Option<HostLayers>) -> HipOptions {
    HipOptions {
        max_rows: options.max_rows.clamp(1, layout.max_sequence),
        max_sequence: layout.max_sequence,
        rewind_rows: options.rewind_rows,
        attention: options.attention,
        rope: options.rope,
        kv_mode: layout.kv.mode(),
        gather: options.gather,
        host_layers,
    }
}

/// What a run of a model would take of a GPU: with a limit that not everything keeps, the experts of as few layers as
/// that takes lie in the host's memory. An integrated GPU has no other memory than the host's.
///
/// # Errors
/// `Invalid`, for options that do not fit the model.
pub fn hip_plan(opened: &Opened, options: &LoadOptions, gpu: &Gpu) -> Result<Plan> {
    Ok(place(opened, options, gpu)?.0)
}

/// Whether a GPU's memory is the host's.
fn integrated(gpu: &Gpu) -> bool {
    gpu.context().properties().integrated
}

fn place(opened: &Opened, options: &LoadOptions, gpu: &Gpu) -> Result<(Plan, Option<HostLayers>)> {
    let sizes = opened.parameters()?.sizes();
    let experts = &sizes.experts;
    let largest = experts.iter().copied().max().unwrap_or(0).next_multiple_of(ALIGN);
    // Room for the alignment of every part of a layer.
    let slot_bytes = largest + opened.shape.moe.experts * 6 * ALIGN;
    let with = |count: usize| HostLayers { count, of: experts.len(), slot_bytes };
    let all = plan_of(opened, options, gpu, &sizes, None)?;
    let fits = |plan: &Plan| options.memory_limit.is_none_or(|limit| plan.total() <= limit);
    if fits(&all) || integrated(gpu) {
        return Ok((all, None));
    }
    for count in 1..=experts.len() {
        let layers = with(count);
        let plan = plan_of(opened, options, gpu, &sizes, Some(layers))?;
        if fits(&plan) {
            return Ok((plan, Some(layers)));
        }
    }
    // Nothing fits: what is missing is said of the plan that takes the least.
    let layers = with(experts.len());
    let least = plan_of(opened, options, gpu, &sizes, Some(layers))?;
    Ok(if least.total() < all.total() { (least, Some(layers)) } else { (all, None) })
}

fn plan_of(
    opened: &Opened,
    options: &LoadOptions,
    gpu: &Gpu,
    sizes: &Sizes,
    hosted: Option<HostLayers>,
) -> Result<Plan> {
    let shape = &opened.shape;
    let options = &gpu_defaults(options, gpu.arch());
    let layout = state_layout(shape, options)?;
    let hip = hip_options(&layout, options, hosted);
    let mut plan = Plan::new(layout.max_sequence, options.memory_limit);
    let on_host = hosted.map_or(0, |layers| {
        sizes.experts.iter().enumerate().filter(|&(layer, _)| layers.contains(layer)).map(|(_, bytes)| bytes).sum()
    });
    plan_weights(&mut plan, opened, options, sizes, on_host)?;
    if let Some(layers) = hosted {
        plan.memory("experts on their way", SLOTS * layers.slot_bytes);
    }
    plan_state(&mut plan, &layout, options);
    // What is kept of earlier requests is copied to the host.
    match integrated(gpu) {
        _ if options.kept_bytes == 0 => {}
        true => plan.memory(EARLIER, options.kept_bytes),
        false => plan.host(EARLIER, options.kept_bytes),
    }
    plan.memory("activations", Model::<Hip>::buffer_bytes(shape, hip.max_rows, options.mtp));
    plan.memory("operation scratch", Hip::scratch_bytes(shape, &hip));
    if let Some(layers) = hosted {
        plan.host(format!("experts of {} of {} layers", layers.count, layers.of), on_host);
    }
    plan.file("n-gram table", sizes.table);
    Ok(plan)
}

/// What a run of a model would take of the host, from the headers alone.
///
/// # Errors
/// `Invalid`, for options that do not fit the model.
pub fn plan(opened: &Opened, options: &LoadOptions) -> Result<Plan> {
    let shape = &opened.shape;
    let layout = state_layout(shape, options)?;
    let backend = backend_options(&layout, options);
    let mut plan = Plan::new(layout.max_sequence, options.memory_limit);
    let weights = opened.parameters()?.sizes();
    plan_weights(&mut plan, opened, options, &weights, 0)?;
    plan.memory("n-gram rows in memory", weights.table.min(ngram::RESIDENT_BYTES));
    plan_state(&mut plan, &layout, options);
    if options.kept_bytes > 0 {
        plan.memory(EARLIER, options.kept_bytes);
    }
    plan.memory("activations", Model::<Cpu>::buffer_bytes(shape, backend.max_rows, options.mtp));
    plan.memory("operation scratch", Cpu::scratch_bytes(shape, &backend));
    plan.memory("program and tokenizer", PROGRAM_BYTES + shape.vocab * TOKENIZER_BYTES);
    plan.file("n-gram table", weights.table);
    Ok(plan)
}

fn plan_state(plan: &mut Plan, layout: &StateLayout, options: &LoadOptions) {
    // Saturating: a context that no machine holds is refused by the limit, not by an overflow.
    let sequences = |bytes: usize| bytes.saturating_mul(options.sequences);
    let times = if options.sequences > 1 { format!(" x {}", options.sequences) } else { String::new() };
    plan.memory(format!("keys, values, index keys{times}"), sequences(layout.context_bytes(layout.max_sequence)));
    plan.memory(format!("recurrent state{times}"), sequences(layout.recurrent.bytes()));
}

/// `elsewhere` bytes of the experts are planned apart.
fn plan_weights(
    plan: &mut Plan,
    opened: &Opened,
    options: &LoadOptions,
    weights: &Sizes,
    elsewhere: usize,
) -> Result<()> {
    plan.memory("dense weights", weights.dense);
    plan.memory("routed experts", weights.experts.iter().sum::<usize>() - elsewhere);
    if options.mtp && weights.mtp > 0 {
        plan.memory("MTP head", weights.mtp);
    }
    if let Some(ids) = options.draft_ids.as_ref().filter(|_| options.mtp) {
        let shape = &opened.shape;
        let head = opened.parameters()?.matrix(Part::Trunk, "lm_head.weight", shape.vocab, shape.hidden)?;
        plan.memory("draft vocabulary", ids.len() * head.format.row_bytes(shape.hidden));
    }
    Ok(())
}

/// The largest context (in steps of 256 tokens) whose plan keeps `limit`.
fn largest_context(
    opened: &Opened,
    options: &LoadOptions,
    limit: usize,
    plan: &dyn Fn(&Opened, &LoadOptions) -> Result<Plan>,
) -> Option<usize> {
    let fits = |context: usize| {
        let options = LoadOptions { max_sequence: Some(context), ..options.clone() };
        plan(opened, &options).is_ok_and(|plan| plan.total() <= limit)
    };
    let (mut low, mut high) = (0, opened.shape.max_position / CONTEXT_STEP);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle * CONTEXT_STEP) { low = middle } else { high = middle - 1 }
    }
    (low > 0).then_some(low * CONTEXT_STEP)
}

fn state_layout(shape: &Shape, options: &LoadOptions) -> Result<StateLayout> {
    let max_sequence = options.max_sequence.unwrap_or(shape.max_position);
    if max_sequence == 0 || max_sequence > shape.max_position {
        return Err(Error::invalid(format!(
            "--max-seq {max_sequence} is outside 1 to {}, the longest sequence this model was made for",
            shape.max_position
        )));
    }
    StateLayout::new(shape, options.kv_mode(), max_sequence, options.rewind_rows, options.mtp)
}

fn backend_options(layout: &StateLayout, options: &LoadOptions) -> BackendOptions {
    // The MTP head reads all hidden rows that a sequence keeps in one step.
    let fewest = if layout.mtp_caches > 0 { HIDDEN_ROWS } else { 1 };
    BackendOptions {
        max_rows: options.max_rows.max(fewest).clamp(1, layout.max_sequence),
        max_sequence: layout.max_sequence,
        attention: options.attention,
        rope: options.rope,
        threads: options.threads,
    }
}
