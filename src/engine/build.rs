//! Which program runs a model: the one place where the engine meets model, backend and memory plan.
//!
//! Owns: the translation of a user's choices into a load's options.
//! Always true: the plan that is printed is the plan that a build follows.
//! Not here: files and text (`load`), which device there is (`device`), arithmetic.

use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::device::{self, Chosen};
use super::load::{LoadOptions, MemoryLimit};
use super::speculate::Speculation;
use crate::arena::Arena;
use crate::backend::hip::Gpu;
use crate::backend::journal::{Journal, Ran};
use crate::config::{KvMode, Shape};
use crate::device::Versions;
use crate::error::{Error, Result};
use crate::model::LanguageModel;
use crate::model::load::{self, Opened, Plan};
use crate::state::file::ModelKey;
use crate::weights::Source;

/// Memory that a loaded model holds, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// Weights, mapped or held.
    pub weights: u64,
    /// Addresses kept for sequences.
    pub reserved: u64,
    /// Memory behind them.
    pub committed: u64,
    /// Addresses that are not used again.
    pub retired: u64,
    /// Times that memory was put behind addresses since the load.
    pub growths: u64,
    /// The most memory that the process had resident so far; 0 where the system does not say.
    pub peak_resident: u64,
}

/// What a model runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// `cpu`, or the GPU's name.
    pub device: String,
    /// Of the CPU or the GPU.
    pub arch: String,
    /// Of the HIP library; empty on the CPU.
    pub driver: String,
    /// What computes: `host`, or what built the kernels.
    pub kernels: String,
}

impl Placement {
    fn cpu() -> Placement {
        let arch = std::env::consts::ARCH.into();
        Placement { device: "cpu".into(), arch, driver: String::new(), kernels: "host".into() }
    }
    fn gpu(gpu: &Gpu) -> Placement {
        let properties = gpu.context().properties();
        let versions = gpu.context().library().versions();
        let known = |version: Option<i32>| version.map_or("unknown".into(), Versions::text);
        Placement {
            device: properties.name.clone(),
            arch: properties.arch.clone(),
            driver: format!("{}, runtime {}", known(versions.driver), known(versions.runtime)),
            kernels: gpu.compiler().into(),
        }
    }
}

/// What is on: the choices of a load with those that were left to the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Where the model runs.
    #[serde(flatten)]
    pub placement: Placement,
    /// Threads that a step's work on the CPU is shared among.
    pub threads: usize,
    /// How keys and values are stored.
    pub kv_mode: String,
    /// How the context's memory is obtained.
    pub kv_backend: String,
    /// Which keys a query reads.
    pub attention: String,
    /// The most draft tokens a step.
    pub speculation: usize,
    /// What is not as the program would have chosen it, and why: a sentence each.
    pub fell_back: Vec<String>,
}

/// Says what a model's backend has run so far; any thread may ask.
pub type RanProbe = Arc<dyn Fn() -> Ran + Send + Sync>;

/// A model ready to run, and a look at its memory that any thread may take.
pub struct Built {
    /// The model.
    pub model: Box<dyn LanguageModel>,
    /// What it holds now.
    pub memory: MemoryProbe,
    /// The same for every load whose sequences go on alike; all zeros where nobody asked for sessions.
    pub identity: ModelKey,
    /// What is on.
    pub receipt: Receipt,
    /// What has run.
    pub ran: RanProbe,
    /// How it drafts.
    pub speculation: Speculation,
    /// Bytes that the memory plan counted.
    pub planned: u64,
}

/// Says what a model holds now; any thread may ask.
pub type MemoryProbe = Arc<dyn Fn() -> MemoryUse + Send + Sync>;

/// The memory plan for these choices, whether or not it keeps the limit.
pub fn plan(opened: &Opened, source: Option<&Source>, options: &LoadOptions) -> Result<Plan> {
    let chosen = device::choose(options)?;
    let (options, _) = translate(source, &opened.shape, options, &chosen)?;
    match chosen {
        Chosen::Cpu(_) => load::plan(opened, &options),
        Chosen::Gpu(gpu) => load::hip_plan(opened, &options, &gpu),
    }
}

/// Binds the weights of an opened model, out of `source` if it has one, and plans the memory; `progress` is called with the
/// share done, from 0 to 1.
pub fn build(
    opened: Opened,
    source: Option<&Source>,
    options: &LoadOptions,
    progress: &mut dyn FnMut(f32),
) -> Result<Built> {
    let weights = opened.bytes()?;
    let chosen = device::choose(options)?;
    let (translated, speculation) = translate(source, &opened.shape, options, &chosen)?;
    let key = options.session_dir.is_some().then(|| Sha256::new().chain_update(opened.checkpoint.fingerprint()));
    let shape = format!("{:?}", opened.shape);
    let planned = match &chosen {
        Chosen::Cpu(_) => load::plan(&opened, &translated)?,
        Chosen::Gpu(gpu) => load::hip_plan(&opened, &translated, gpu)?,
    };
    let planned = planned.total() as u64;
    let mut fell_back = Vec::new();
    let journal: Arc<Journal>;
    let (model, arena, kv_mode, placement): (Box<dyn LanguageModel>, Arena, KvMode, Placement) = match chosen {
        Chosen::Cpu(reason) => {
            fell_back.extend(reason);
            let model = load::cpu(opened, &translated, progress)?;
            // The host's operations have one form each.
            journal = Arc::default();
            let (arena, kv_mode) = (model.arena().clone(), model.kv_mode());
            (Box::new(model), arena, kv_mode, Placement::cpu())
        }
        Chosen::Gpu(gpu) => {
            let placement = Placement::gpu(&gpu);
            let (model, reason) = load::hip(opened, *gpu, &translated, progress)?;
            fell_back.extend(reason.map(|reason| format!("the context's memory is allocated whole at load: {reason}")));
            journal = model.backend().journal().clone();
            let (hosted, of) = (model.backend().hosted_layers(), model.shape().layers.len());
            if hosted > 0 {
                let why = "are read from the host's memory: the device's does not hold them";
                fell_back.push(format!("the experts of {hosted} of {of} layers {why}"));
            }
            let (arena, kv_mode) = (model.arena().clone(), model.kv_mode());
            (Box::new(model), arena, kv_mode, placement)
        }
    };
    // What a state depends on: the weights, and the choices that change its numbers or its form.
    let identity = key.map(|sum| {
        let load::LoadOptions { attention, rope, rewind_rows, mtp, .. } = &translated;
        let Placement { arch, kernels, .. } = &placement;
        let choices = format!("{shape} {kv_mode} {attention:?} {rope:?} {rewind_rows} {mtp} {arch} {kernels}");
        sum.chain_update(choices).finalize().into()
    });
    let receipt = Receipt {
        placement,
        threads: translated.threads,
        kv_mode: kv_mode.to_string(),
        kv_backend: arena.usage().backend.to_string(),
        attention: translated.attention.to_string(),
        speculation: speculation.depth.most(),
        fell_back,
    };
    let grown = arena.usage().growths;
    let memory = move || {
        let usage = arena.usage();
        MemoryUse {
            weights,
            reserved: usage.reserved as u64,
            committed: usage.committed as u64,
            retired: usage.retired as u64,
            growths: usage.growths - grown,
            peak_resident: proc_kib("/proc/self/status", "VmHWM:").unwrap_or_default() * 1024,
        }
    };
    let (memory, ran) = (Arc::new(memory), Arc::new(move || journal.ran()));
    Ok(Built { model, memory, ran, identity: identity.unwrap_or_default(), receipt, speculation, planned })
}

/// Threads to compute with: the user's choice, or one a core.
pub fn threads(options: &LoadOptions) -> usize {
    options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn translate(
    source: Option<&Source>,
    shape: &Shape,
    options: &LoadOptions,
    chosen: &Chosen,
) -> Result<(load::LoadOptions, Speculation)> {
    let speculation = options.speculation.resolve(shape.mtp_layers > 0)?;
    // A round's rows: the token behind the state, and its drafts.
    let drafts = speculation.depth.most();
    let rows = 1 + drafts;
    let chunk = options.prefill_chunk.unwrap_or(match chosen {
        Chosen::Cpu(_) => load::DEFAULT_MAX_ROWS,
        Chosen::Gpu(_) => load::DEFAULT_GPU_ROWS,
    });
    let options = load::LoadOptions {
        kv_mode: options.kv_mode,
        kv_backend: options.kv_backend,
        max_sequence: options.max_seq,
        // Every answer has its rows in a step, and a prompt one beside them.
        max_rows: chunk.max(options.parallel * rows + usize::from(options.parallel > 1)),
        sequences: options.parallel,
        kept_bytes: options.cache_memory,
        mtp: drafts > 0,
        rewind_rows: if drafts > 0 { rows } else { 0 },
        draft_ids: match source.filter(|_| drafts > 0) {
            Some(source) => options.speculation.draft_ids(source, shape.vocab)?,
            None => None,
        },
        attention: options.attention,
        rope: options.rope_precision,
        gather: options.gather,
        threads: threads(options),
        memory_limit: match options.memory_limit {
            None => None,
            Some(MemoryLimit::Bytes(bytes)) => Some(bytes as usize),
            Some(MemoryLimit::Percent(percent)) => {
                let all = match chosen {
                    Chosen::Cpu(_) => machine_memory()?,
                    Chosen::Gpu(gpu) => gpu.context().memory_info()?.total as u64,
                };
                Some((all as f64 * percent / 100.0) as usize)
            }
        },
    };
    Ok((options, speculation))
}

/// Bytes of memory that this machine has.
fn machine_memory() -> Result<u64> {
    proc_kib("/proc/meminfo", "MemTotal:").map(|kib| kib * 1024).ok_or_else(|| {
        Error::invalid("/proc/meminfo does not say how much memory there is: give --memory-limit in bytes")
    })
}

/// A line `NAME   123 kB` of a file under /proc.
fn proc_kib(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok())
}
