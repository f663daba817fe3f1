//! What can be typed behind `hipfire serve`.
//!
//! Owns: the options of the server; each is also an environment name and a configuration key.
//! Always true: a default here is one that is safe on a machine with other people.
//! Not here: the model's options (`args`), their meaning (`server`).

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::args::ModelArgs;
use super::serving::ServingArgs;
use super::speculation::SpeculationArgs;
use super::values;
use crate::server::ReasoningField;

/// `hipfire serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Address to listen on; one that others can reach needs a key
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub host: IpAddr,
    /// Port to listen on (0: a free one, which the log names)
    #[arg(long, default_value = "11435", value_name = "N")]
    pub port: u16,
    /// A key that clients show as `Authorization: Bearer` or `x-api-key`; better in HIPFIRE_API_KEY or a file
    #[arg(long, value_name = "KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// A file whose first line is a key
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Let pages of this origin use the server (repeatable; "*": of any)
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<String>,
    /// Another name that the model goes by (repeatable; "*": any)
    #[arg(long, value_name = "NAME")]
    pub alias: Vec<String>,
    /// The most bytes of a request's body
    #[arg(long, default_value = "32M", value_name = "SIZE", value_parser = values::positive_size)]
    pub body_limit: usize,
    /// Seconds that running answers have to finish after the first signal
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = values::seconds)]
    pub grace: Duration,
    /// Seconds that one step may take before the device counts as stuck and the program ends with code 3 (0: any)
    #[arg(long, default_value = "600", value_name = "SECONDS", value_parser = values::seconds)]
    pub watchdog: Duration,
    /// Field of a chat answer that carries the thinking
    #[arg(long, value_enum, default_value_t = Field::ReasoningContent, value_name = "NAME")]
    pub reasoning_field: Field,
    /// How requests share the engine.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// Speculation.
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// See [`ReasoningField`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Field {
    /// DeepSeek's name; most clients know it.
    #[value(name = "reasoning_content")]
    ReasoningContent,
    /// OpenRouter's name.
    #[value(name = "reasoning")]
    Reasoning,
}

impl From<Field> for ReasoningField {
    fn from(field: Field) -> ReasoningField {
        match field {
            Field::ReasoningContent => ReasoningField::ReasoningContent,
            Field::Reasoning => ReasoningField::Reasoning,
        }
    }
}
