//! From a folder (or the binary itself) to a running engine with its text side.
//!
//! Owns: the choices of a load, and the order: small files first, so that a mistake is found before the weights.
//! Always true: what was loaded came from one source.
//! Not here: how each file is read (`weights`, `text`), which backend runs the model (`build`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::build::{self, MemoryProbe, RanProbe, Receipt};
use super::inspect::{Summary, summary};
use super::speculate::SpeculationOptions;
use super::{DeviceLock, Engine, Grammars, Options, Prompt, Reading, SessionFolder};
use crate::config::{AttentionMode, Device, KvBackend, KvMode, RopePrecision};
use crate::error::{Error, Result};
use crate::model;
use crate::model::load::{Opened, Plan};
use crate::text::tokenizer::AddedToken;
use crate::text::{Conversation, GenerationConfig, Rendered, Template, Tokenizer, stop_ids};
use crate::weights::Source;
use crate::weights::gguf::Vocabulary;
use crate::weights::gguf::vocabulary::TokenKind;

/// The most memory to plan for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemoryLimit {
    /// Bytes.
    Bytes(u64),
    /// A share of the memory there is, above 0 and up to 100.
    Percent(f64),
}

/// What a user chose about the model and how it runs. `None` leaves it to the program.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOptions {
    /// The model's folder; `None` is the embedded model.
    pub model: Option<PathBuf>,
    /// A geometry whose random weights take the place of the model's own; text stays the model's.
    pub synthetic: Option<String>,
    /// Where the model runs.
    pub device: Device,
    /// Kernels for a GPU; `None` is those inside this program.
    pub kernel_pack: Option<PathBuf>,
    /// Tokens a sequence may hold; `None` is what the model was made for.
    pub max_seq: Option<usize>,
    /// Threads of the CPU backend; `None` is one a core.
    pub threads: Option<usize>,
    /// The most memory to plan for.
    pub memory_limit: Option<MemoryLimit>,
    /// How keys and values are stored.
    pub kv_mode: Option<KvMode>,
    /// How the context's memory is obtained.
    pub kv_backend: Option<KvBackend>,
    /// Prompt tokens that one step takes, at least 1; also the rows a step is planned for. `None` is the backend's choice.
    pub prefill_chunk: Option<usize>,
    /// Requests that run at a time, at least 1: the memory plan counts as many contexts.
    pub parallel: usize,
    /// Requests that may wait beside them.
    pub max_queue: usize,
    /// Bytes that may be kept of earlier requests; 0 keeps nothing.
    pub cache_memory: usize,
    /// Where sessions outlive the process.
    pub session_dir: Option<PathBuf>,
    /// Whether a backend may gather selected keys before attention.
    pub gather: bool,
    /// Which keys a query reads.
    pub attention: AttentionMode,
    /// Precision of the rotary table.
    pub rope_precision: RopePrecision,
    /// How tokens are drafted.
    pub speculation: SpeculationOptions,
}

impl Default for LoadOptions {
    /// One request at a time of the embedded model, with nothing kept.
    fn default() -> LoadOptions {
        LoadOptions {
            model: None,
            synthetic: None,
            device: Device::Auto,
            kernel_pack: None,
            max_seq: None,
            threads: None,
            memory_limit: None,
            kv_mode: None,
            kv_backend: None,
            prefill_chunk: None,
            parallel: 1,
            max_queue: 64,
            cache_memory: 0,
            session_dir: None,
            gather: true,
            attention: AttentionMode::Sparse,
            rope_precision: RopePrecision::F32,
            speculation: SpeculationOptions::default(),
        }
    }
}

/// Opens the files of a model.
pub fn open_source(model: Option<&Path>) -> Result<Source> {
    match model {
        Some(folder) => Source::open(folder),
        None => Source::embedded().ok_or_else(|| {
            Error::invalid(
                "this program was built without a model inside (feature embedded-model): name one with -m DIR",
            )
        }),
    }
}

/// Opens the weights of a model: those of its files, which come along, or random ones that are in no file.
pub(super) fn open_weights(options: &LoadOptions) -> Result<(Opened, Option<Source>)> {
    if let Some(geometry) = &options.synthetic {
        return Ok((Opened::synthetic(geometry)?, None));
    }
    let source = open_source(options.model.as_deref())?;
    Ok((model::load::open(&source)?, Some(source)))
}

/// A running model with its text side.
pub struct Loaded {
    /// Name of the folder, or "ember".
    pub name: String,
    /// Runs requests.
    pub engine: Engine,
    /// Between text and ids.
    pub text: TextSide,
    /// Says what the model holds now.
    pub memory: MemoryProbe,
    /// What is on.
    pub receipt: Receipt,
    /// Says what has run.
    pub ran: RanProbe,
    /// The GPU it runs on is nobody else's.
    pub lock: Option<DeviceLock>,
}

/// What turns text into ids and ids into text, and what the model's author chose.
pub struct TextSide {
    /// Text to ids and ids to bytes.
    pub tokenizer: Arc<Tokenizer>,
    /// Renders conversations.
    template: Result<Template>,
    /// generation_config.json, if the model has one.
    pub generation: Option<GenerationConfig>,
    /// Ids that end an answer.
    pub stop_ids: Vec<u32>,
}

impl Loaded {
    /// Loads a model and starts its engine; `progress` is called with the share done, from 0 to 1.
    pub fn open(options: &LoadOptions, progress: &mut dyn FnMut(f32)) -> Result<Loaded> {
        let source = open_source(options.model.as_deref())?;
        let mut text = TextSide::open(&source)?;
        // Text and weights come from one source, unless the weights are in none.
        let (opened, weights) = match &options.synthetic {
            Some(geometry) => (Opened::synthetic(geometry)?, None),
            None => (model::load::open(&source)?, Some(&source)),
        };
        let built = build::build(opened, weights, options, progress)?;
        text.stop_ids = stop_ids(text.generation.as_ref(), &text.tokenizer, built.model.shape().eos.as_slice());
        let engine = Engine::start(
            built.model,
            Options {
                prefill_chunk: options.prefill_chunk.unwrap_or(0),
                parallel: options.parallel,
                max_queue: options.max_queue,
                cache_memory: options.cache_memory,
                sessions: options.session_dir.clone().map(|path| SessionFolder { path, model: built.identity }),
                grammars: Some(Arc::new(Grammars::new(text.tokenizer.clone(), &text.stop_ids))),
                memory: built.memory.clone(),
                speculation: built.speculation,
                threads: build::threads(options),
            },
        )?;
        Ok(Loaded {
            name: options.synthetic.clone().unwrap_or_else(|| source.name().to_string()),
            engine,
            text,
            memory: built.memory,
            receipt: built.receipt,
            ran: built.ran,
            lock: None,
        })
    }
}

impl TextSide {
    fn open(source: &Source) -> Result<TextSide> {
        if source.is_gguf() {
            return TextSide::from_gguf(source);
        }
        let tokenizer_json = source.file("tokenizer.json")?.ok_or_else(|| {
            Error::model(format!("{} has no tokenizer.json: text cannot be turned into tokens", source.name()))
        })?;
        let config = source.file("tokenizer_config.json")?;
        let tokenizer = Tokenizer::from_json(&tokenizer_json, config.as_deref())?;
        let jinja = source.file("chat_template.jinja")?;
        let jinja = jinja.as_deref().map(std::str::from_utf8).transpose().map_err(|error| {
            Error::model(format!("chat_template.jinja of {} is not UTF-8 text: {error}", source.name()))
        })?;
        // A model without a template can still continue text: its absence matters to a conversation only.
        let template = Template::source(jinja, config.as_deref()).and_then(|text| Template::new(&text, &tokenizer));
        let generation = read_generation(source)?;
        Ok(TextSide { tokenizer: Arc::new(tokenizer), template, generation, stop_ids: Vec::new() })
    }

    /// Everything from the metadata: a GGUF model has no other files.
    fn from_gguf(source: &Source) -> Result<TextSide> {
        let vocabulary = source.vocabulary()?.ok_or_else(|| {
            Error::model(format!("{} has no tokenizer.ggml.tokens: text cannot be turned into tokens", source.name()))
        })?;
        let generation = sampling_of(&vocabulary);
        let added = vocabulary.kinds.iter().zip(&vocabulary.tokens).zip(0..).filter_map(|((kind, text), id)| {
            let special = *kind == TokenKind::Control;
            let beside = special || *kind == TokenKind::UserDefined;
            beside.then(|| AddedToken { id, content: text.clone(), special })
        });
        let added = added.collect();
        let tokenizer = Tokenizer::from_parts(vocabulary.tokens, vocabulary.merges, added)?;
        let missing = || Error::model(format!("{} has no chat template in its metadata: use --raw", source.name()));
        let template = vocabulary.chat_template.ok_or_else(missing).and_then(|text| Template::new(&text, &tokenizer));
        Ok(TextSide { tokenizer: Arc::new(tokenizer), template, generation: Some(generation), stop_ids: Vec::new() })
    }

    /// A conversation as its model's template writes it.
    pub fn render(&self, conversation: &Conversation) -> Result<Rendered> {
        let template = self.template.as_ref().map_err(|error| Error::model(error.to_string()))?;
        template.render(conversation)
    }

    /// The prompt of a conversation.
    pub fn chat_prompt(&self, conversation: &Conversation) -> Result<Prompt> {
        let rendered = self.render(conversation)?;
        let reading = Reading::Chat { thinking: rendered.opens_thinking() };
        Ok(Prompt { ids: rendered.ids(&self.tokenizer)?, reading })
    }

    /// A prompt that is continued as it is; text that looks like a special token becomes one.
    pub fn raw_prompt(&self, text: &str) -> Result<Prompt> {
        Ok(Prompt { ids: self.tokenizer.encode_raw(text)?, reading: Reading::Plain })
    }
}

/// What generation_config.json would say. Values outside their range are left out, as if the file did not have them.
fn sampling_of(vocabulary: &Vocabulary) -> GenerationConfig {
    let sampling = &vocabulary.sampling;
    let number = |value: Option<f64>, most: f64| value.filter(|v| (0.0..=most).contains(v)).map(|v| v as f32);
    GenerationConfig {
        do_sample: None,
        temperature: number(sampling.temperature, f64::from(f32::MAX)),
        top_p: number(sampling.top_p, 1.0).filter(|&p| p > 0.0),
        top_k: sampling.top_k.and_then(|k| u32::try_from(k).ok()),
        min_p: number(sampling.min_p, 1.0),
        repetition_penalty: None,
        eos: vocabulary.eos.into_iter().collect(),
    }
}

fn read_generation(source: &Source) -> Result<Option<GenerationConfig>> {
    if let Some(vocabulary) = source.vocabulary()? {
        return Ok(Some(sampling_of(&vocabulary)));
    }
    source.file("generation_config.json")?.map(|json| GenerationConfig::from_json(&json)).transpose()
}

/// What a model's generation_config.json says, without loading the model.
pub fn generation_config(model: Option<&Path>) -> Result<Option<GenerationConfig>> {
    read_generation(&open_source(model)?)
}

/// The memory plan for `options`, to print. Nothing is loaded.
pub fn memory_plan(options: &LoadOptions) -> Result<Plan> {
    let (opened, source) = open_weights(options)?;
    build::plan(&opened, source.as_ref(), options)
}

/// Describes the model that `options` name, without loading it.
pub fn describe(options: &LoadOptions) -> Result<Summary> {
    let (opened, source) = open_weights(options)?;
    let source = source.ok_or_else(|| {
        Error::invalid("a synthetic model has no tensors to list: --plan shows the memory that it would take")
    })?;
    Ok(summary(source.name(), &opened))
}
