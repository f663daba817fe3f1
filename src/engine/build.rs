//! Which program runs a model: the one place where the engine meets model, backend and memory plan.
//!
//! Owns: the translation of a user's choices into a load's options.
//! Always true: the plan that is printed is the plan that a build follows.
//! Not here: files and text (`load`), arithmetic.

use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::load::{LoadOptions, MemoryLimit};
use super::speculate::Speculation;
use crate::config::Shape;
use crate::error::{Error, Result};
use crate::model::load::Plan;
use crate::model::{self, LanguageModel};
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
    /// The most memory that the process had resident so far; 0 where the system does not say.
    pub peak_resident: u64,
}

/// What is on: the choices of a load with those that were left to the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Where the model runs.
    pub device: &'static str,
    /// Threads that a step's work is shared among.
    pub threads: usize,
    /// How keys and values are stored.
    pub kv_mode: String,
    /// How the context's memory is obtained.
    pub kv_backend: String,
    /// Which keys a query reads.
    pub attention: String,
    /// What computes.
    pub kernels: &'static str,
    /// The most draft tokens a step.
    pub speculation: usize,
}

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
    /// How it drafts.
    pub speculation: Speculation,
}

/// Says what a model holds now; any thread may ask.
pub type MemoryProbe = Arc<dyn Fn() -> MemoryUse + Send + Sync>;

/// The memory plan for these choices, whether or not it keeps the limit.
pub fn plan(source: &Source, options: &LoadOptions) -> Result<Plan> {
    let opened = model::load::open(source)?;
    let (options, _) = translate(source, &opened.shape, options)?;
    model::load::plan(&opened, &options)
}

/// Binds the weights and plans the memory; `progress` is called with the share done, from 0 to 1.
pub fn build(source: &Source, options: &LoadOptions, progress: &mut dyn FnMut(f32)) -> Result<Built> {
    let opened = model::load::open(source)?;
    let weights = opened.checkpoint.bytes();
    let (translated, speculation) = translate(source, &opened.shape, options)?;
    let identity = match options.session_dir {
        Some(_) => identity(&opened, &translated),
        None => ModelKey::default(),
    };
    let model = model::load::cpu(opened, &translated, progress)?;
    let receipt = Receipt {
        device: "cpu",
        threads: translated.threads,
        kv_mode: translated.kv_mode().to_string(),
        kv_backend: translated.kv_backend().to_string(),
        attention: translated.attention.to_string(),
        kernels: "host",
        speculation: speculation.depth.most(),
    };
    let arena = model.arena().clone();
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
    Ok(Built { model: Box::new(model), memory: Arc::new(memory), identity, receipt, speculation })
}

/// What a state depends on: the weights, and the choices that change its numbers or its form.
fn identity(opened: &model::load::Opened, options: &model::load::LoadOptions) -> ModelKey {
    let model::load::LoadOptions { kv_mode, attention, rope, rewind_rows, mtp, .. } = options;
    let choices = format!("{:?} {kv_mode:?} {attention:?} {rope:?} {rewind_rows} {mtp}", opened.shape);
    let sum = Sha256::new().chain_update(opened.checkpoint.fingerprint()).chain_update(choices);
    sum.finalize().into()
}

/// Threads to compute with: the user's choice, or one a core.
pub fn threads(options: &LoadOptions) -> usize {
    options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn translate(source: &Source, shape: &Shape, options: &LoadOptions) -> Result<(model::load::LoadOptions, Speculation)> {
    let speculation = options.speculation.resolve(shape.mtp_layers > 0)?;
    // A round's rows: the token behind the state, and its drafts.
    let drafts = speculation.depth.most();
    let rows = 1 + drafts;
    let options = model::load::LoadOptions {
        kv_mode: options.kv_mode,
        kv_backend: options.kv_backend,
        max_sequence: options.max_seq,
        // Every answer has its rows in a step, and a prompt one beside them.
        max_rows: options.prefill_chunk.max(options.parallel * rows + usize::from(options.parallel > 1)),
        sequences: options.parallel,
        kept_bytes: options.cache_memory,
        mtp: drafts > 0,
        rewind_rows: if drafts > 0 { rows } else { 0 },
        draft_ids: if drafts > 0 { options.speculation.draft_ids(source, shape.vocab)? } else { None },
        attention: options.attention,
        rope: options.rope_precision,
        threads: threads(options),
        memory_limit: match options.memory_limit {
            None => None,
            Some(MemoryLimit::Bytes(bytes)) => Some(bytes as usize),
            Some(MemoryLimit::Percent(percent)) => Some((machine_memory()? as f64 * percent / 100.0) as usize),
        },
        ..model::load::LoadOptions::default()
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
