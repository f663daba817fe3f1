//! From token events to text events: what a terminal or a server shows.
//!
//! Owns: the order of the text side: bytes to characters, the split into reasoning, content and tool calls, then stop
//! strings, which end the content.
//! Always true: no piece splits a character; nothing behind a stop string is given out or counted; the events end with
//! exactly one `Done` or `Failed`, after every piece that was held back.
//! Not here: how each part works (`text`), how it is shown (`cli`, `server`).

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::{Event, MemoryUse, StopReason, Token, Usage};
use crate::error::{Error, Result};
use crate::text::{AnswerParser, Detokenizer, Event as Part, StopStrings, Tokenizer};

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
#[allow(clippy::large_enum_variant)] // the large one comes once a request
pub enum TextEvent {
    /// See [`Event::Prefill`].
    Prefill {
        /// Prompt tokens read.
        done: usize,
        /// Prompt tokens.
        total: usize,
    },
    /// More of the thinking, the answer or a tool call.
    Part(Part),
    /// A token of the content, with its log-probability; before the part that its text belongs to. Only where
    /// [`super::Request::logprobs`] asked for it.
    Token(Token),
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
    /// How many of the generated tokens were thinking, its end mark included.
    pub reasoning_tokens: usize,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// See [`super::Done::memory`].
    pub memory: MemoryUse,
}

/// How the text of a request is read, apart from its prompt.
#[derive(Debug, Clone, Default)]
pub struct TextOptions {
    /// The content ends before the first of these.
    pub stops: Vec<String>,
    /// Definitions of the tools that the prompt named, in OpenAI's form.
    pub tools: Vec<Value>,
}

/// Text events of one request. `S` is its [`super::Stream`].
pub struct TextStream<S> {
    /// Taken away once the text has ended, which stops the request.
    tokens: S,
    detokenizer: Detokenizer,
    /// `None` for a plain text.
    parser: Option<AnswerParser>,
    stops: StopStrings,
    ready: VecDeque<TextEvent>,
    /// A stop string was found.
    stopped: bool,
    generated: usize,
    reasoning: usize,
    ended: bool,
}

/// Token events that can be told to stop.
pub trait Tokens: Iterator<Item = Event> {
    /// Asks to stop; `Done` still follows.
    fn cancel(&self);
}

impl<S: Tokens> TextStream<S> {
    /// Reads `tokens` as the answer to a prompt with this `reading`. Fails if a stop string is empty.
    pub fn new(tokens: S, tokenizer: &Arc<Tokenizer>, reading: Reading, options: TextOptions) -> Result<TextStream<S>> {
        let parser = match reading {
            Reading::Plain => None,
            Reading::Chat { thinking } => Some(AnswerParser::new(tokenizer, &options.tools, thinking)),
        };
        Ok(TextStream {
            tokens,
            detokenizer: Detokenizer::new(tokenizer.clone()),
            parser,
            stops: StopStrings::new(options.stops)?,
            ready: VecDeque::new(),
            stopped: false,
            generated: 0,
            reasoning: 0,
            ended: false,
        })
    }

    /// Ends the answer behind what was given out: the rest is neither shown nor counted, and the request stops.
    pub fn end_here(&mut self) {
        self.stopped = true;
        self.ready.clear();
        self.tokens.cancel();
    }

    fn token(&mut self, token: Token) {
        self.generated += 1;
        let text = self.detokenizer.push(token.id);
        let (parts, content) = match &mut self.parser {
            None => (vec![Part::Content(text)], true),
            Some(parser) => {
                self.reasoning += usize::from(parser.is_reasoning());
                let before = parser.is_content();
                let parts = parser.push(token.id, &text);
                // The mark that begins a call, or that ended the thinking, is not content.
                (parts, before && parser.is_content())
            }
        };
        if content && token.logprob.is_some() {
            self.ready.push_back(TextEvent::Token(token));
        }
        self.parts(parts);
    }

    /// Everything that is still held back.
    fn flush(&mut self) {
        if self.stopped {
            return;
        }
        let rest = self.detokenizer.finish();
        let parts = match &mut self.parser {
            None => vec![Part::Content(rest)],
            Some(parser) => parser.finish(&rest),
        };
        self.parts(parts);
        if !self.stopped {
            self.release();
        }
    }

    fn parts(&mut self, parts: Vec<Part>) {
        for part in parts {
            match part {
                Part::Content(text) => {
                    let (shown, found) = self.stops.push(&text);
                    self.give(Part::Content(shown));
                    if found {
                        self.stopped = true;
                        self.tokens.cancel();
                        return;
                    }
                }
                other => {
                    // A stop string lies within one stretch of content.
                    self.release();
                    self.give(other);
                }
            }
        }
    }

    fn release(&mut self) {
        let held = self.stops.finish();
        self.give(Part::Content(held));
    }

    fn give(&mut self, part: Part) {
        if !matches!(&part, Part::Content(text) | Part::Reasoning(text) if text.is_empty()) {
            self.ready.push_back(TextEvent::Part(part));
        }
    }
}

impl<S: Tokens> Iterator for TextStream<S> {
    type Item = TextEvent;

    /// Waits for the next event.
    fn next(&mut self) -> Option<TextEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            match self.tokens.next()? {
                Event::Prefill { done, total } => return Some(TextEvent::Prefill { done, total }),
                // The engine may be a step ahead of the stop string.
                Event::Token(_) if self.stopped => {}
                Event::Token(token) => self.token(token),
                Event::Done(done) => {
                    self.flush();
                    self.ended = true;
                    let reason = if self.stopped { StopReason::StopString } else { done.reason };
                    let usage = Usage { generated: self.generated, ..done.usage };
                    self.ready.push_back(TextEvent::Done(TextDone {
                        reason,
                        usage,
                        reasoning_tokens: self.reasoning,
                        stop: self.stops.found().map(str::to_string),
                        memory: done.memory,
                    }));
                }
                Event::Failed(error) => {
                    self.flush();
                    self.ended = true;
                    self.ready.push_back(TextEvent::Failed(error));
                }
            }
        }
    }
}
