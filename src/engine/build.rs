//! Which program runs a model: the one place where the engine meets model, backend and memory plan.
//!
//! Owns: the translation of a user's choices into a load's options.
//! Always true: the plan that is printed is the plan that a build follows.
//! Not here: files and text (`load`), arithmetic.

use std::sync::Arc;

use serde::Serialize;

use super::device::{self, Chosen};
use super::load::{LoadOptions, MemoryLimit};
use crate::arena::Arena;
use crate::backend::hip::Gpu;
use crate::device::Versions;
use crate::error::{Error, Result};
use crate::model::LanguageModel;
use crate::model::load::{self, Opened, Plan};
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
    /// The most memory that the process had resident so far; 0 where the system does not say.
    pub peak_resident: u64,
}

/// A model ready to run, and a look at its memory that any thread may take.
pub struct Built {
    /// The model.
    pub model: Box<dyn LanguageModel>,
    /// What it holds now.
    pub memory: MemoryProbe,
    /// What it runs on.
    pub placement: Placement,
}

/// What a model runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// `cpu`, or the GPU's name.
    pub device: String,
    /// Of the CPU or the GPU.
    pub arch: String,
    /// Of the HIP library, or nothing.
    pub driver: String,
    /// What built the kernels, or nothing.
    pub kernels: String,
}

impl Placement {
    fn cpu(options: &LoadOptions) -> Placement {
        let device = format!("cpu, {} threads", threads(options));
        Placement { device, arch: std::env::consts::ARCH.into(), driver: String::new(), kernels: String::new() }
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

/// Says what a model holds now; any thread may ask.
pub type MemoryProbe = Arc<dyn Fn() -> MemoryUse + Send + Sync>;

/// The memory plan for these choices, whether or not it keeps the limit.
pub fn plan(source: &Source, options: &LoadOptions) -> Result<Plan> {
    let opened = load::open(source)?;
    match device::choose(options)? {
        Chosen::Cpu => load::plan(&opened, &translate(options, load::DEFAULT_MAX_ROWS)?),
        Chosen::Gpu(gpu) => load::hip_plan(&opened, &translate(options, load::DEFAULT_GPU_ROWS)?, gpu.arch()),
    }
}

/// Binds the weights and plans the memory; `progress` is called with the share done, from 0 to 1.
pub fn build(source: &Source, options: &LoadOptions, progress: &mut dyn FnMut(f32)) -> Result<Built> {
    run(load::open(source)?, options, progress)
}

/// The same for a model that is opened already.
pub fn run(opened: Opened, options: &LoadOptions, progress: &mut dyn FnMut(f32)) -> Result<Built> {
    let weights = opened.bytes()?;
    let (model, arena, placement): (Box<dyn LanguageModel>, Arena, Placement) = match device::choose(options)? {
        Chosen::Cpu => {
            let model = load::cpu(opened, &translate(options, load::DEFAULT_MAX_ROWS)?, progress)?;
            let arena = model.arena().clone();
            (Box::new(model), arena, Placement::cpu(options))
        }
        Chosen::Gpu(gpu) => {
            let placement = Placement::gpu(&gpu);
            let model = load::hip(opened, *gpu, &translate(options, load::DEFAULT_GPU_ROWS)?, progress)?;
            let arena = model.arena().clone();
            (Box::new(model), arena, placement)
        }
    };
    let memory = move || {
        let usage = arena.usage();
        MemoryUse {
            weights,
            reserved: usage.reserved as u64,
            committed: usage.committed as u64,
            retired: usage.retired as u64,
            peak_resident: proc_kib("/proc/self/status", "VmHWM:").unwrap_or_default() * 1024,
        }
    };
    Ok(Built { model, memory: Arc::new(memory), placement })
}

/// Threads to compute with: the user's choice, or one a core.
pub fn threads(options: &LoadOptions) -> usize {
    options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn translate(options: &LoadOptions, max_rows: usize) -> Result<load::LoadOptions> {
    Ok(load::LoadOptions {
        kv_mode: options.kv_mode,
        kv_backend: options.kv_backend,
        max_sequence: options.max_seq,
        max_rows: options.prefill_chunk.unwrap_or(max_rows),
        attention: options.attention,
        rope: options.rope_precision,
        threads: threads(options),
        gather: options.gather,
        memory_limit: match options.memory_limit {
            None => None,
            Some(MemoryLimit::Bytes(bytes)) => Some(bytes as usize),
            Some(MemoryLimit::Percent(percent)) => Some((machine_memory()? as f64 * percent / 100.0) as usize),
        },
        ..load::LoadOptions::default()
    })
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
