//! What can be typed: the verbs and their options, with their defaults and one-line helps.
//!
//! Owns: the clap tree. Every long option listed in `settings` is also an environment name and a configuration key.
//! Always true: only verbs that work are listed.
//! Not here: layers below the command line (`settings`), meaning (`run`, `score`, `inspect`).

use std::path::PathBuf;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser, PossibleValuesParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use super::chat::ChatArgs;
use super::serve_args::ServeArgs;
use super::serving::ServingArgs;
use super::speculation::SpeculationArgs;
use super::thinking::ThinkingArgs;
use super::values::{self, AutoKvBackend, AutoKvMode};
use crate::config::{AttentionMode, Device, RopePrecision};
use crate::engine::speculate::SpeculationOptions;
use crate::engine::{LoadOptions, MemoryLimit, SamplingParams, quantize_types};

const AFTER_HELP: &str = "\
Examples:
  hipfire run \"Tell me a story about a brave mouse.\"
  hipfire run -m /models/Qwen3.8-Flash-Next -f question.txt --stats
  echo \"Once upon a time\" | hipfire score --top 3

Every option is also HIPFIRE_<OPTION> in the environment (HIPFIRE_KV_MODE=q8)
and a key of the configuration file (kv-mode = \"q8\"); --print-config shows
each value with where it came from.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "hipfire", version, about = "Runs Qwen3.8 Flash-Next (qwen4_exp) models", after_help = AFTER_HELP)]
#[command(disable_help_subcommand = true, max_term_width = 110)]
pub struct Cli {
    /// Options of every verb.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do; without one, a help is printed.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Answer one prompt
    Run(Box<RunArgs>),
    /// Talk with a model, or with a server
    Chat(Box<ChatArgs>),
    /// Serve the model to clients of OpenAI's and Anthropic's APIs
    Serve(Box<ServeArgs>),
    /// Print the log-probability of every token of a text
    Score(ScoreArgs),
    /// Describe a model: shape, parameters and bytes by group
    Inspect(InspectArgs),
    /// Measure prompt and decode speed
    Bench(Box<BenchArgs>),
    /// Say what stands between this machine and a GPU
    Doctor(DoctorArgs),
    /// Rewrite a model as one GGUF file
    Quantize(QuantizeArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Options of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "General")]
pub struct GlobalArgs {
    /// Configuration file [default: hipfire/config.toml in the XDG configuration folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print every setting with where it came from, and stop
    #[arg(long, global = true)]
    pub print_config: bool,
    /// Colour on standard error
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
    /// Say more (twice: everything)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Form of log lines on standard error
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Also elsewhere.
    Always,
    /// Nowhere.
    Never,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The model and how it runs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Folder or GGUF file of the model; "embedded" is the one inside this program [default: embedded]
    #[arg(short, long, value_name = "DIR|FILE")]
    pub model: Option<PathBuf>,
    /// Random weights of a geometry instead of the model's, to measure with: released[:FORMAT of the experts] or small[:FORMAT]
    #[arg(long, value_name = "GEOMETRY")]
    pub synthetic: Option<String>,
    /// Tokens the context holds, prompt and answer together [default: what the model was made for]
    #[arg(short = 'c', long, visible_aliases = ["ctx-size", "max-model-len"], value_name = "N",
        value_parser = values::positive_size)]
    pub max_seq: Option<usize>,
    /// Where the model runs: auto, cpu or hip[:N]
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = values::device)]
    pub device: Device,
    /// Kernels for a GPU, instead of those inside this program
    #[arg(long, value_name = "FILE")]
    pub kernel_pack: Option<PathBuf>,
    /// Threads of the CPU backend [default: one a core]
    #[arg(long, value_name = "N", value_parser = values::positive_size)]
    pub threads: Option<usize>,
    /// The most memory to plan for: bytes (16G) or a share (80%)
    #[arg(long, value_name = "SIZE|%", value_parser = values::memory_limit)]
    pub memory_limit: Option<MemoryLimit>,
    /// How keys and values are stored: auto, f32, fp8 or q8
    #[arg(long, default_value = "auto", value_name = "MODE")]
    pub kv_mode: AutoKvMode,
    /// How the context's memory is obtained: auto, vmm (as it is written) or legacy (all at load)
    #[arg(long, default_value = "auto", value_name = "BACKEND")]
    pub kv_backend: AutoKvBackend,
    /// Prompt tokens that one step takes [default: 512 on the CPU, 4096 on a GPU]
    #[arg(long, value_name = "N", value_parser = values::positive_size)]
    pub prefill_chunk: Option<usize>,
    /// Gather selected keys before attention where that is faster
    #[arg(long, value_enum, default_value_t = Gather::Auto, value_name = "MODE")]
    pub qsa_gather: Gather,
    /// Which keys a query reads: sparse (as published) or dense (all, for comparison)
    #[arg(long, default_value = "sparse", value_name = "MODE")]
    pub attention: AttentionMode,
    /// Precision of the rotary table: f32, or bf16 as the reference rounds it
    #[arg(long, default_value = "f32", value_name = "TYPE")]
    pub rope_precision: RopePrecision,
}

/// Whether selected keys may be gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Gather {
    /// Where it is faster.
    #[value(alias = "1")]
    Auto,
    /// Never.
    #[value(alias = "0")]
    Off,
}

impl ModelArgs {
    /// The model's folder; `None` is the embedded one.
    pub fn folder(&self) -> Option<PathBuf> {
        self.model.clone().filter(|path| path.as_os_str() != "embedded")
    }

    /// What the engine needs to load it, with drafts or without.
    pub fn load_options(&self, speculation: SpeculationOptions) -> LoadOptions {
        LoadOptions {
            model: self.folder(),
            synthetic: self.synthetic.clone(),
            device: self.device,
            kernel_pack: self.kernel_pack.clone(),
            max_seq: self.max_seq,
            threads: self.threads,
            memory_limit: self.memory_limit,
            kv_mode: self.kv_mode.chosen(),
            kv_backend: self.kv_backend.chosen(),
            prefill_chunk: self.prefill_chunk,
            gather: self.qsa_gather == Gather::Auto,
            attention: self.attention,
            rope_precision: self.rope_precision,
            speculation,
            ..LoadOptions::default()
        }
    }
}

/// How tokens are chosen. What is not given comes from the model's generation_config.json.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling (defaults: the model's generation_config.json)")]
pub struct SamplingArgs {
    /// 0 always takes the most likely token
    #[arg(long, visible_alias = "temp", value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f32>,
    /// Keep the smallest set of tokens with this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Keep the K most likely tokens (0: all)
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Drop tokens below this share of the most likely one
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Divide the logits of tokens seen before (1: off)
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,
    /// Subtract from the logits of generated tokens
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// Subtract from the logits of generated tokens, times their count
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// Add to the logit of one token id (repeatable)
    #[arg(long, value_name = "ID=BIAS", value_parser = values::logit_bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers [default: drawn anew; --format json reports it]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl SamplingArgs {
    /// Given values over the model's `defaults`; `seed` is used if none was given.
    pub fn over(&self, defaults: SamplingParams, seed: u64) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(defaults.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.unwrap_or(seed),
        }
    }
}

/// Where the text comes from.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub struct InputArgs {
    /// The text; without one it is read from standard input
    #[arg(value_name = "PROMPT")]
    pub text: Option<String>,
    /// The text, as an option
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file that holds the text ("-": standard input)
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// `hipfire run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The prompt.
    #[command(flatten)]
    pub input: InputArgs,
    /// System message
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// Continue the text as it is, without the chat template
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value = "false", hide_default_value = true,
        hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub raw: bool,
    /// The most tokens to generate [default: what the context holds]
    #[arg(short = 'n', long, value_name = "N", value_parser = values::size)]
    pub max_tokens: Option<usize>,
    /// End the answer before this text (repeatable)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Whether and how long to think.
    #[command(flatten)]
    pub thinking: ThinkingArgs,
    /// What goes to standard output: the text, one JSON object, or one JSON object an event
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Print counts, speeds and memory on standard error at the end
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value = "false", hide_default_value = true,
        hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub stats: bool,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// How tokens are drafted.
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Form of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The generated text alone.
    Text,
    /// One object at the end.
    Json,
    /// One object an event.
    Jsonl,
}

/// `hipfire score`.
#[derive(Debug, Args)]
pub struct ScoreArgs {
    /// The text.
    #[command(flatten)]
    pub input: InputArgs,
    /// A file of token ids, separated by white space, instead of a text
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "prompt", "file"])]
    pub tokens: Option<PathBuf>,
    /// How many of the most likely tokens to list at each position
    #[arg(long, default_value = "0", value_name = "N", value_parser = values::size)]
    pub top: usize,
    /// Tokens that one step takes [default: --prefill-chunk]
    #[arg(long, value_name = "N", value_parser = values::positive_size)]
    pub chunk: Option<usize>,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `hipfire inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Folder or GGUF file of the model, instead of --model
    #[arg(value_name = "DIR|FILE")]
    pub file: Option<PathBuf>,
    /// Print the memory plan for these settings; nothing is loaded
    #[arg(long)]
    pub plan: bool,
    /// List the GPU kernels with their registers, LDS and waves per SIMD
    #[arg(long, conflicts_with = "plan")]
    pub kernels: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// What the plan is for, beside the model.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// What the plan counts for drafts.
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `hipfire doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Run every kernel against its CPU oracle on each device
    #[arg(long)]
    pub self_test: bool,
    /// Only these families of checks (repeatable)
    #[arg(long, value_name = "FAMILY", requires = "self_test")]
    pub only: Vec<String>,
    /// The model that is run whole [default: the one inside this program]
    #[arg(short, long, value_name = "DIR|FILE")]
    pub model: Option<PathBuf>,
    /// A kernel pack instead of the one inside this program
    #[arg(long, value_name = "FILE")]
    pub kernel_pack: Option<PathBuf>,
    /// Also write everything as JSON into this file: the receipt
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `hipfire bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Lengths of prompts: a list of numbers and ranges (512,1024-4096+1024,512-8192*2)
    #[arg(short = 'p', long, default_value = "512", value_name = "N,…", value_parser = values::counts)]
    pub n_prompt: values::Counts,
    /// Lengths of answers
    #[arg(short = 'n', long, default_value = "128", value_name = "N,…", value_parser = values::counts)]
    pub n_gen: values::Counts,
    /// Tokens in the context before either
    #[arg(short = 'd', long, default_value = "0", value_name = "N,…", value_parser = values::counts)]
    pub n_depth: values::Counts,
    /// Repetitions behind one that warms up
    #[arg(short = 'r', long, default_value = "5", value_name = "N", value_parser = values::positive_size)]
    pub repetitions: usize,
    /// Time every kernel launch of the tests instead; on a GPU
    #[arg(long, conflicts_with = "cells", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true,
        hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub profile: bool,
    /// The long-context protocol instead: cold prompts of these lengths, an answer each
    #[arg(long, value_name = "N,…", value_parser = values::counts)]
    pub cells: Option<values::Counts>,
    /// Runs of each cell and seed
    #[arg(long, default_value = "1", value_name = "N", value_parser = values::positive_size)]
    pub windows: usize,
    /// What the cells' prompts are drawn from
    #[arg(long, default_value = "1", value_name = "N,…", value_parser = values::counts)]
    pub seeds: values::Counts,
    /// The most tokens of a cell's answer
    #[arg(long, default_value = "1024", value_name = "N", value_parser = values::positive_size)]
    pub cell_answer: usize,
    /// Drafts in the long-context protocol; none without --mtp
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    /// How the table is printed
    #[arg(short = 'o', long, value_enum, default_value_t = BenchFormat::Md, value_name = "FORMAT")]
    pub output: BenchFormat,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// How a table of measurements is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchFormat {
    /// A table for people.
    Md,
    /// Comma-separated values with a header.
    Csv,
    /// One JSON array.
    Json,
    /// A JSON object a line.
    Jsonl,
}

/// `hipfire quantize`.
#[derive(Debug, Args)]
pub struct QuantizeArgs {
    /// Folder or GGUF file of the model [default: the one inside this program]
    #[arg(value_name = "SRC")]
    pub source: Option<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// Type of the weights; small tensors that steer the model stay F32
    #[arg(long, value_name = "TYPE", ignore_case = true, value_parser = PossibleValuesParser::new(quantize_types()))]
    pub r#type: String,
    /// Another type for tensors whose name contains PATTERN, in which * stands for anything (repeatable)
    #[arg(long, value_name = "PATTERN=TYPE")]
    pub tensor_type: Vec<String>,
    /// Leave the MTP head out: llama.cpp does not load files that have one
    #[arg(long)]
    pub no_mtp: bool,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
