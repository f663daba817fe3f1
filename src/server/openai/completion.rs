//! A text completion request: prompts that are continued as they are.
//!
//! Owns: the four spellings of a prompt, and the fields that chats do not have.
//! Always true: a field whose meaning is not supported is refused by name.
//! Not here: fields that chats share (`wire::sampling`), the answer's shape (`completion_answer`).

use serde::Deserialize;
use serde_json::Value;

use super::chat::StreamOptions;
use crate::engine::{Loaded, SamplingParams};
use crate::server::App;
use crate::server::body::Fields;
use crate::server::error::ApiError;
use crate::server::wire::form::{Form, StructuredOutputs, response_format};
use crate::server::wire::sampling::{MOST_TOP_LOGPROBS, Sampling, most_tokens};
use crate::server::wire::tools::Choice;
use crate::server::wire::{Ask, MOST_CHOICES, Source};

/// Tokens of an answer where the request names no limit, as on OpenAI's servers.
const DEFAULT_MAX_TOKENS: usize = 16;

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    prompt: Prompt,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    logprobs: Option<i64>,
    echo: Option<bool>,
    suffix: Option<String>,
    best_of: Option<i64>,
    response_format: Option<Value>,
    structured_outputs: Option<StructuredOutputs>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text, a list of texts, a list of token ids, or a list of such lists")]
enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Ids(Vec<u32>),
    Lists(Vec<Vec<u32>>),
}

/// A request, understood.
pub struct Asked {
    /// What to generate.
    pub ask: Ask,
    /// The model's name, as the client spelt it.
    pub model: String,
    /// Answers over all prompts.
    pub choices: usize,
    /// As events.
    pub stream: bool,
    /// With counts at the stream's end.
    pub usage: bool,
    /// The prompt's text before the answer, one a prompt.
    pub echo: Option<Vec<String>>,
}

impl Asked {
    /// Reads and checks a body.
    pub fn read(object: &Value, app: &App, loaded: &Loaded) -> Result<Asked, ApiError> {
        let mut fields = Fields::of(object);
        let request: Request = fields.read()?;
        let sampling: Sampling = fields.read()?;
        let model = app.model(loaded, request.model.as_deref())?;
        if request.suffix.is_some_and(|text| !text.is_empty()) {
            return Err(ApiError::unsupported("suffix", "the model does not fill gaps: leave it out"));
        }
        if request.best_of.is_some_and(|n| n != 1 && Some(n) != sampling.n) {
            return Err(ApiError::unsupported("best_of", "answers are not compared: leave it out or set n"));
        }
        if request.stream_options.is_some() && request.stream != Some(true) {
            return Err(ApiError::unsupported("stream_options", "it belongs to a stream: set stream to true"));
        }
        let sources: Vec<Source> = match request.prompt {
            Prompt::Text(text) => vec![Source::Text(text)],
            Prompt::Texts(texts) => texts.into_iter().map(Source::Text).collect(),
            Prompt::Ids(ids) => vec![Source::Ids(ids)],
            Prompt::Lists(lists) => lists.into_iter().map(Source::Ids).collect(),
        };
        let copies = sampling.copies()?;
        let choices = sources.len() * copies;
        if sources.is_empty() || choices > MOST_CHOICES {
            let message = format!("{} prompts, answered {copies} times: use 1 to {MOST_CHOICES} in all", sources.len());
            return Err(ApiError::field("prompt", message));
        }
        let logprobs = match request.logprobs {
            None => None,
            Some(n @ 0..=MOST_TOP_LOGPROBS) => Some(n as usize),
            Some(n) => return Err(ApiError::field("logprobs", format!("it is {n}: use 0 to {MOST_TOP_LOGPROBS}"))),
        };
        let echo = (request.echo == Some(true)).then(|| sources.iter().map(|source| shown(loaded, source)).collect());
        if echo.is_some() && logprobs.is_some() {
            let message = "log-probabilities of the prompt are not given: leave out echo or logprobs";
            return Err(ApiError::unsupported("echo", message));
        }
        let form = match &request.structured_outputs {
            Some(outputs) => outputs.content()?,
            None => response_format("response_format", request.response_format.as_ref())?,
        };
        let defaults = SamplingParams::of_model(loaded.text.generation.as_ref());
        let ask = Ask {
            sources,
            source_field: "prompt",
            prefill: String::new(),
            copies,
            max_tokens: most_tokens("max_tokens", sampling.max_tokens)?.or(Some(DEFAULT_MAX_TOKENS)),
            params: sampling.params(defaults, loaded.engine.vocab())?,
            stops: sampling.stops()?,
            tools: Vec::new(),
            form: Form { content: form, field: "response_format", choice: Choice::Auto },
            one_call: false,
            logprobs,
            ignore_stop_ids: sampling.ignore_eos == Some(true),
        };
        let usage = request.stream_options.unwrap_or_default().include_usage == Some(true);
        Ok(Asked { ask, model, choices, stream: request.stream == Some(true), usage, echo })
    }
}

/// A prompt as text.
fn shown(loaded: &Loaded, source: &Source) -> String {
    match source {
        Source::Text(text) => text.clone(),
        Source::Ids(ids) => loaded.text.tokenizer.decode(ids),
        Source::Chat(_) => String::new(),
    }
}
