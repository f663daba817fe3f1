//! What the wires have in common: the request behind every API, and the parts they spell alike.
//!
//! Owns: `Ask` (what any API asks for) and its translation into engine requests.
//! Always true: every value was checked before the engine sees it; an error names the client's own field.
//! Not here: the fields of one API (`openai`, `anthropic`, `responses`), running (`generate`).

pub mod answer;
pub mod content;
pub mod form;
pub mod sampling;
pub mod tools;

use serde_json::Value;

use form::Form;
use tools::Choice;

use super::error::ApiError;
use crate::engine::{Loaded, Prompt, SamplingParams, TextOptions};
use crate::text::Conversation;

/// The most answers that one request may ask for, over all its prompts.
pub const MOST_CHOICES: usize = 16;

/// Where a prompt comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A conversation, rendered by the model's template.
    Chat(Box<Conversation>),
    /// Text that is continued as it is.
    Text(String),
    /// Ids.
    Ids(Vec<u32>),
}

/// What any API asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The prompts; each is answered `copies` times.
    pub sources: Vec<Source>,
    /// The field that holds the prompts.
    pub source_field: &'static str,
    /// The beginning of the answer, which the model continues; for a conversation without thinking.
    pub prefill: String,
    /// Answers to each prompt.
    pub copies: usize,
    /// The most tokens of an answer.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen; the seed of the first answer (others count on from it).
    pub params: SamplingParams,
    /// Content ends before the first of these.
    pub stops: Vec<String>,
    /// Tools in OpenAI's form.
    pub tools: Vec<Value>,
    /// What the answer must be, and whether it must, may or must not call.
    pub form: Form,
    /// The answer ends behind its first call.
    pub one_call: bool,
    /// Likeliest ids to report with every token.
    pub logprobs: Option<usize>,
    /// Go on where the model would end the answer.
    pub ignore_stop_ids: bool,
}

impl Ask {
    /// A conversation answered once with `params`.
    pub fn chat(conversation: Conversation, source_field: &'static str, params: SamplingParams) -> Ask {
        Ask {
            tools: conversation.tools.clone(),
            sources: vec![Source::Chat(Box::new(conversation))],
            source_field,
            prefill: String::new(),
            copies: 1,
            max_tokens: None,
            params,
            stops: Vec::new(),
            form: Form::free(),
            one_call: false,
            logprobs: None,
            ignore_stop_ids: false,
        }
    }

    /// The prompt of one source.
    pub fn prompt(&self, loaded: &Loaded, source: &Source) -> Result<Prompt, ApiError> {
        let prompt = match source {
            Source::Chat(conversation) => loaded.text.chat_prompt(conversation).and_then(|mut prompt| {
                prompt.ids.extend(loaded.text.tokenizer.encode_plain(&self.prefill)?);
                Ok(prompt)
            }),
            Source::Text(text) => loaded.text.raw_prompt(text),
            Source::Ids(ids) => Ok(Prompt { ids: ids.clone(), reading: crate::engine::Reading::Plain }),
        };
        prompt.map_err(|error| ApiError::from(error).blame(self.source_field))
    }

    /// Sampling of the answers to one prompt; `first` is the number of the first among all.
    pub fn params(&self, loaded: &Loaded, first: usize) -> SamplingParams {
        let mut params = self.params.clone();
        params.seed = params.seed.wrapping_add(first as u64);
        if self.form.choice == Choice::None
            && let Some(id) = loaded.text.tokenizer.added_id("<tool_call>")
        {
            params.logit_bias.push((id, f32::NEG_INFINITY));
        }
        params
    }

    /// How the answers are read.
    pub fn text_options(&self) -> TextOptions {
        TextOptions { stops: self.stops.clone(), tools: self.tools.clone() }
    }
}
