//! A chat answer: whole, or chunk by chunk.
//!
//! Owns: `chat.completion` and `chat.completion.chunk`.
//! Always true: the role comes first, `finish_reason` last, the counts after it only where asked for, then `[DONE]`;
//! a call's id and name come before its arguments.
//! Not here: how an answer is put together (`wire::answer`), the stream's loop (`stream`).

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::chat::Asked;
use super::closing;
use crate::engine::{Loaded, TextDone, TextEvent};
use crate::server::App;
use crate::server::error::{ApiError, Shape};
use crate::server::stream::{Frame as Sse, Translator};
use crate::server::wire::answer::{Answer, Counts, finish_reason, id, logprobs, now, timings};
use crate::text::Event as Part;

/// What all chunks of an answer have in common.
pub struct Frame {
    id: String,
    created: u64,
    model: String,
    loaded: Arc<Loaded>,
    /// Name of the field that carries the thinking.
    reasoning: &'static str,
    logprobs: bool,
    choices: usize,
    usage: bool,
    progress: bool,
}

impl Frame {
    /// For one request.
    pub fn new(app: &App, loaded: &Arc<Loaded>, asked: &Asked) -> Frame {
        Frame {
            id: id("chatcmpl-"),
            created: now(),
            model: asked.model.clone(),
            loaded: loaded.clone(),
            reasoning: app.options.reasoning_field.name(),
            logprobs: asked.ask.logprobs.is_some(),
            choices: asked.choices,
            usage: asked.usage,
            progress: asked.progress,
        }
    }

    fn object(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": crate::server::FINGERPRINT,
            "choices": choices,
        })
    }

    fn tokens(&self, tokens: &[crate::engine::Token]) -> Value {
        json!({"content": logprobs(tokens, &self.loaded.text.tokenizer), "refusal": null})
    }

    /// All answers at once.
    pub fn whole(&self, answers: &[Answer]) -> Value {
        let mut counts = Counts::default();
        let mut times = Value::Null;
        let choices = answers.iter().enumerate().map(|(index, answer)| {
            let mut finish = None;
            if let Some(done) = &answer.done {
                counts.add(done, index == 0);
                times = timings(&done.usage);
                finish = Some(finish_reason(done.reason, !answer.calls.is_empty()));
            }
            let logprobs = self.logprobs.then(|| self.tokens(&answer.tokens));
            json!({
                "index": index,
                "message": self.message(answer),
                "logprobs": logprobs,
                "finish_reason": finish,
            })
        });
        let choices = choices.collect();
        let mut whole = self.object("chat.completion", choices);
        whole["usage"] = counts.openai();
        whole["timings"] = times;
        whole
    }

    fn message(&self, answer: &Answer) -> Value {
        let content = match answer.content.is_empty() && !answer.calls.is_empty() {
            true => Value::Null,
            false => answer.content.as_str().into(),
        };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !answer.reasoning.is_empty() {
            message[self.reasoning] = answer.reasoning.as_str().into();
        }
        if !answer.calls.is_empty() {
            let call = |call: &crate::server::wire::answer::Call| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": call.id, "type": "function", "function": function})
            };
            message["tool_calls"] = answer.calls.iter().map(call).collect();
        }
        message
    }
}

/// Chunks of a streamed answer.
pub struct Chunks {
    frame: Frame,
    counts: Counts,
    /// A choice's calls that have begun, by the parser's numbers.
    calls: Vec<Vec<usize>>,
    /// Whether a choice has a call that is complete.
    called: Vec<bool>,
    began: Instant,
    /// Tokens of a choice's prompt that needed no reading.
    cached: Vec<Option<usize>>,
}

impl Chunks {
    /// At the beginning.
    pub fn new(frame: Frame) -> Chunks {
        let choices = frame.choices;
        Chunks {
            frame,
            counts: Counts::default(),
            calls: vec![Vec::new(); choices],
            called: vec![false; choices],
            began: Instant::now(),
            cached: vec![None; choices],
        }
    }

    fn chunk(&self, choice: usize, delta: Value, finish: Option<&str>) -> Value {
        let choice = json!({"index": choice, "delta": delta, "logprobs": null, "finish_reason": finish});
        self.frame.object("chat.completion.chunk", json!([choice]))
    }

    fn delta(&self, choice: usize, field: &str, value: Value) -> Vec<Sse> {
        let delta = Map::from_iter([(field.to_string(), value)]);
        vec![Sse::data(&self.chunk(choice, delta.into(), None))]
    }

    fn call(&self, choice: usize, call: Value) -> Vec<Sse> {
        self.delta(choice, "tool_calls", json!([call]))
    }

    fn part(&mut self, choice: usize, part: Part) -> Vec<Sse> {
        match part {
            Part::Content(text) => self.delta(choice, "content", text.into()),
            Part::Reasoning(text) => self.delta(choice, self.frame.reasoning, text.into()),
            Part::ToolStart { index, name } => {
                let position = self.calls[choice].len();
                self.calls[choice].push(index);
                let function = json!({"name": name, "arguments": ""});
                let call = json!({"index": position, "id": id("call_"), "type": "function", "function": function});
                self.call(choice, call)
            }
            Part::ToolArgument { index, json, .. } => self.argument(choice, index, &json),
            Part::ToolEnd { index, json, .. } => {
                self.called[choice] = true;
                self.argument(choice, index, &json)
            }
            // What was sent cannot be taken back: the finish reason tells, and the text comes as content.
            Part::ToolBroken { .. } => Vec::new(),
        }
    }

    fn argument(&self, choice: usize, index: usize, json: &str) -> Vec<Sse> {
        let position = self.calls[choice].iter().position(|&begun| begun == index);
        match position.filter(|_| !json.is_empty()) {
            Some(at) => self.call(choice, json!({"index": at, "function": {"arguments": json}})),
            None => Vec::new(),
        }
    }

    /// llama.cpp's `prompt_progress`.
    fn prefill(&mut self, choice: usize, done: usize, total: usize) -> Vec<Sse> {
        let cache = *self.cached[choice].get_or_insert(done);
        let ms = self.began.elapsed().as_millis() as u64;
        let mut chunk = self.chunk(choice, json!({}), None);
        chunk["prompt_progress"] = json!({"total": total, "cache": cache, "processed": done, "time_ms": ms});
        vec![Sse::data(&chunk)]
    }

    fn done(&mut self, choice: usize, done: &TextDone) -> Vec<Sse> {
        self.counts.add(done, choice == 0);
        let finish = finish_reason(done.reason, self.called[choice]);
        let mut chunk = self.chunk(choice, json!({}), Some(finish));
        chunk["timings"] = timings(&done.usage);
        vec![Sse::data(&chunk)]
    }
}

impl Translator for Chunks {
    fn begin(&mut self) -> Vec<Sse> {
        let role = |choice| Sse::data(&self.chunk(choice, json!({"role": "assistant", "content": ""}), None));
        (0..self.frame.choices).map(role).collect()
    }

    fn event(&mut self, choice: usize, event: TextEvent) -> Vec<Sse> {
        match event {
            TextEvent::Part(part) => self.part(choice, part),
            TextEvent::Token(token) => {
                let mut chunk = self.chunk(choice, json!({}), None);
                chunk["choices"][0]["logprobs"] = self.frame.tokens(&[token]);
                vec![Sse::data(&chunk)]
            }
            TextEvent::Prefill { done, total } if self.frame.progress => self.prefill(choice, done, total),
            TextEvent::Done(done) => self.done(choice, &done),
            TextEvent::Prefill { .. } | TextEvent::Failed(_) => Vec::new(),
        }
    }

    fn end(&mut self) -> Vec<Sse> {
        let counts = self.frame.usage.then(|| {
            let mut chunk = self.frame.object("chat.completion.chunk", json!([]));
            chunk["usage"] = self.counts.openai();
            chunk
        });
        closing(counts)
    }

    fn failed(&mut self, error: ApiError) -> Vec<Sse> {
        vec![Sse::data(&error.body(Shape::OpenAi))]
    }
}
