//! Options of an engine that several requests share: how many run, how many wait.
//!
//! Owns: the group of options, and their way into a load.
//! Always true: a verb without the group runs one request at a time and keeps none.
//! Not here: the server's own options (`args`).

use std::path::PathBuf;

use clap::Args;

use super::values;
use crate::engine::LoadOptions;

/// How requests share the engine.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Requests")]
pub struct ServingArgs {
    /// Requests that run at a time; the memory plan counts a whole context for each
    #[arg(long, default_value = "1", value_name = "N", value_parser = values::positive_size)]
    pub parallel: usize,
    /// Requests that may wait beside them; one more is turned away
    #[arg(long, default_value = "64", value_name = "N", value_parser = values::size)]
    pub max_queue: usize,
    /// Memory for earlier requests, so that a prompt that begins like one is not read again from its beginning
    #[arg(long, default_value = "1G", value_name = "SIZE", value_parser = values::size)]
    pub cache_memory: usize,
    /// Keep sessions in this folder, so that conversations go on where they were after a restart
    #[arg(long, value_name = "DIR")]
    pub session_dir: Option<PathBuf>,
}

impl ServingArgs {
    /// Puts the choices into a load.
    pub fn apply(&self, options: LoadOptions) -> LoadOptions {
        let ServingArgs { parallel, max_queue, cache_memory, session_dir } = self.clone();
        LoadOptions { parallel, max_queue, cache_memory, session_dir, ..options }
    }
}
