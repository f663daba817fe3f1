//! From token events to text events: what a terminal or a server shows.
//!
//! Owns: the order of the text side: bytes to characters, stop strings, then the split into reasoning, content and
//! tool calls.
//! Always true: no piece splits a character; text behind a stop string is never given out; a stream ends with exactly
//! one `Done` or `Failed`, after every piece that was held back.
//! Not here: how each part works (`text`), how it is shown (`cli`, `server`).

use super::load::TextSide;
use super::{Event, StopReason, Stream, Usage};
use crate::error::Error;
use crate::text::ToolCall;

/// A prompt, and what it means for the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// Its ids.
    pub ids: Vec<u32>,
    /// How the answer is to be read.
    pub reading: Reading,
}

/// How an answer is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// All of it is content: there was no chat template.
    Plain,
    /// An assistant's turn; it begins inside the thinking if the template opened it.
    Chat {
        /// The template opened the thinking block.
        thinking: bool,
    },
}

/// What happens while an answer is generated, as text.
#[derive(Debug)]
pub enum TextEvent {
    /// See [`Event::Prefill`].
    Prefill {
        /// Prompt tokens read.
        done: usize,
        /// Prompt tokens.
        total: usize,
    },
    /// More of the thinking.
    Reasoning(String),
    /// More of the answer.
    Content(String),
    /// A whole tool call.
    ToolCall(ToolCall),
    /// The end. Nothing follows.
    Done(TextDone),
    /// The end, by an error. Nothing follows.
    Failed(Error),
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TextDone {
    /// Why.
    pub reason: StopReason,
    /// What it took.
    pub usage: Usage,
    /// Tokens of the answer that were generated before its thinking ended.
    pub reasoning_tokens: usize,
}

/// Text events of one request.
pub struct TextStream {
    events: Stream,
    tokenizer: std::sync::Arc<crate::text::Tokenizer>,
}

impl TextStream {
    /// Reads `events` as the answer to `prompt`; `stops` end it before they are given out.
    pub fn new(events: Stream, text: &TextSide, _prompt: &Prompt, _stops: &[String]) -> TextStream {
        TextStream { events, tokenizer: text.tokenizer.clone() }
    }
}

impl Iterator for TextStream {
    type Item = TextEvent;
    fn next(&mut self) -> Option<TextEvent> {
        Some(match self.events.next()? {
            Event::Prefill { done, total } => TextEvent::Prefill { done, total },
            Event::Token(token) => TextEvent::Content(self.tokenizer.decode(&[token.id])),
            Event::Done(d) => TextEvent::Done(TextDone { reason: d.reason, usage: d.usage, reasoning_tokens: 0 }),
            Event::Failed(error) => TextEvent::Failed(error),
        })
    }
}
