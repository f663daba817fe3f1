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
use crate::error::{Error, Result};
use crate::model::LanguageModel;
use crate::model::load::{self, Plan};
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
    let opened = load::open(source)?;
    let weights = opened.checkpoint.bytes();
    let (model, arena): (Box<dyn LanguageModel>, Arena) = match device::choose(options)? {
        Chosen::Cpu => {
            let model = load::cpu(opened, &translate(options, load::DEFAULT_MAX_ROWS)?, progress)?;
            let arena = model.arena().clone();
            (Box::new(model), arena)
        }
        Chosen::Gpu(gpu) => {
            let model = load::hip(opened, *gpu, &translate(options, load::DEFAULT_GPU_ROWS)?, progress)?;
            let arena = model.arena().clone();
            (Box::new(model), arena)
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
    Ok(Built { model, memory: Arc::new(memory) })
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
