//! Flags of speculation with the MTP head.
//!
//! Owns: their names, and their translation for the engine.
//! Not here: what they mean for a model (`engine::speculate`).

use std::path::PathBuf;

use clap::Args;

use super::values;
use crate::engine::speculate::{Depth, SpeculationOptions};

/// How tokens are drafted.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Speculation")]
pub struct SpeculationArgs {
    /// Tokens that the MTP head drafts for a step: 0 is off, auto as many as pay [default: 3 where the model has a head]
    #[arg(long, value_name = "N|auto", value_parser = values::mtp)]
    pub mtp: Option<Depth>,
    /// Accept drafts that the model finds typical, from 0 to 1; the text's law is then not exactly the model's
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub typical_threshold: Option<f64>,
    /// Draft only ids of this ranked list [default: the model's draft_vocabulary.txt, if it has one]
    #[arg(long, value_name = "FILE")]
    pub draft_vocabulary: Option<PathBuf>,
}

impl SpeculationArgs {
    /// For the engine.
    pub fn options(&self) -> SpeculationOptions {
        SpeculationOptions {
            depth: self.mtp,
            typical: self.typical_threshold,
            vocabulary: self.draft_vocabulary.clone(),
        }
    }
}
