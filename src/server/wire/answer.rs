//! Answers while they arrive: text, calls, counts and times, in the terms that the wires share.
//!
//! Owns: putting the events of one answer together; ids; llama.cpp's `timings`.
//! Always true: a call that broke is no call; arguments are the text that streamed clients were sent.
//! Not here: the shapes around them (each API's file).

use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::engine::{StopReason, TextDone, TextEvent, Token, Usage};
use crate::text::{Event as Part, Tokenizer};

/// One call of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Which call of the answer, as the parser counts.
    pub index: usize,
    /// `call_…`.
    pub id: String,
    /// The function.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// One answer, as far as it came.
#[derive(Debug, Default)]
pub struct Answer {
    /// Content.
    pub content: String,
    /// Thinking.
    pub reasoning: String,
    /// Calls.
    pub calls: Vec<Call>,
    /// Tokens of the content with their probabilities, where asked for.
    pub tokens: Vec<Token>,
    /// How it ended.
    pub done: Option<TextDone>,
}

impl Answer {
    /// Takes the next event.
    pub fn push(&mut self, event: TextEvent) {
        match event {
            TextEvent::Part(Part::Content(text)) => self.content.push_str(&text),
            TextEvent::Part(Part::Reasoning(text)) => self.reasoning.push_str(&text),
            TextEvent::Part(Part::ToolStart { index, name }) => {
                self.calls.push(Call { index, id: id("call_"), name, arguments: String::new() });
            }
            TextEvent::Part(Part::ToolArgument { index, json, .. } | Part::ToolEnd { index, json, .. }) => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.index == index) {
                    call.arguments.push_str(&json);
                }
            }
            TextEvent::Part(Part::ToolBroken { index }) => self.calls.retain(|call| call.index != index),
            TextEvent::Token(token) => self.tokens.push(token),
            TextEvent::Done(done) => self.done = Some(done),
            TextEvent::Prefill { .. } | TextEvent::Failed(_) => {}
        }
    }
}

/// OpenAI's `finish_reason`.
pub fn finish_reason(reason: StopReason, calls: bool) -> &'static str {
    match reason {
        StopReason::Length => "length",
        _ if calls => "tool_calls",
        StopReason::Stop | StopReason::StopString | StopReason::Cancelled => "stop",
    }
}

/// Counts over all answers of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Prompt tokens, each prompt once.
    pub prompt: usize,
    /// Of them, those that were not read again.
    pub cached: usize,
    /// Tokens of the answers.
    pub completion: usize,
    /// Of them, thinking.
    pub reasoning: usize,
}

impl Counts {
    /// Adds one answer; `first` says that its prompt was not counted yet.
    pub fn add(&mut self, done: &TextDone, first: bool) {
        if first {
            self.prompt += done.usage.prompt;
            self.cached += done.usage.cached;
        }
        self.completion += done.usage.generated;
        self.reasoning += done.reasoning_tokens;
    }

    /// OpenAI's `usage`.
    pub fn openai(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        })
    }
}

/// llama.cpp's `timings`.
pub fn timings(usage: &Usage) -> Value {
    let read = usage.prompt - usage.cached;
    let mut timings = json!({"cache_n": usage.cached});
    let parts = [("prompt", read, usage.prefill), ("predicted", usage.generated, usage.decode)];
    for (name, count, time) in parts {
        let ms = time.as_secs_f64() * 1000.0;
        let share = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        timings[format!("{name}_n")] = count.into();
        timings[format!("{name}_ms")] = ms.into();
        timings[format!("{name}_per_token_ms")] = share(ms, count as f64).into();
        timings[format!("{name}_per_second")] = share(count as f64 * 1000.0, ms).into();
    }
    timings
}

/// Tokens with their probabilities, as the chat API lists them.
pub fn logprobs(tokens: &[Token], tokenizer: &Tokenizer) -> Vec<Value> {
    let entry = |id: u32, logprob: f32| {
        let bytes = tokenizer.bytes(id);
        json!({"token": String::from_utf8_lossy(bytes), "logprob": finite(logprob), "bytes": bytes})
    };
    let list = tokens.iter().map(|token| {
        let mut value = entry(token.id, token.logprob.unwrap_or_default());
        value["top_logprobs"] = token.top.iter().map(|top| entry(top.id, top.value)).collect();
        value
    });
    list.collect()
}

/// JSON has no infinity; OpenAI writes -9999.0 for a token that cannot come.
pub fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}

/// A new id with a prefix: 24 random hexadecimal digits.
pub fn id(prefix: &str) -> String {
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("{prefix}{:016x}{:08x}", random(), random() as u32)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
