//! Which program runs a model: the one place where the engine meets model, backend and memory plan.
//!
//! Owns: nothing but the choice.
//! Always true: the plan that is printed is the plan that a build follows.
//! Not here: files and text (`load`), arithmetic.

use std::fmt::Display;
use std::sync::Arc;

use serde::Serialize;

use super::load::LoadOptions;
use crate::config::Shape;
use crate::error::{Error, Result};
use crate::model::LanguageModel;
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

/// Reads and checks config.json.
pub fn shape(_source: &Source) -> Result<Shape> {
    Err(unbuilt())
}

/// The memory plan for these choices. Fails with `InsufficientMemory` if the limit cannot hold it.
pub fn plan(_source: &Source, _options: &LoadOptions) -> Result<Box<dyn Display>> {
    Err(unbuilt())
}

/// Binds the weights and plans the memory.
pub fn build(_source: &Source, _options: &LoadOptions) -> Result<Built> {
    Err(unbuilt())
}

fn unbuilt() -> Error {
    Error::invalid("this build cannot run a model yet")
}
