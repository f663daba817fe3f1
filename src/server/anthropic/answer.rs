//! A Messages answer: whole, or event by event.
//!
//! Owns: blocks of content and the order of events around them.
//! Always true: one block is open at a time; `message_start` comes first, `message_delta` with the counts and
//! `message_stop` last.
//! Not here: how an answer is put together (`wire::answer`), the stream's loop (`stream`).

use serde_json::{Value, json};

use crate::engine::{StopReason, TextDone, TextEvent};
use crate::server::error::{ApiError, Shape};
use crate::server::stream::{Frame as Sse, Translator};
use crate::server::wire::answer::{Answer, Counts, id};
use crate::text::Event as Part;

/// Thinking is signed on Anthropic's servers, so that they know it again. Here it is plain text that may come back.
const SIGNATURE: &str = "unsigned";

/// What belongs to the whole message.
pub struct Frame {
    id: String,
    model: String,
}

impl Frame {
    /// For one request.
    pub fn new(model: String) -> Frame {
        Frame { id: id("msg_"), model }
    }

    fn message(&self, content: Value, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage,
        })
    }

    /// The answer at once.
    pub fn whole(&self, answer: &Answer) -> Value {
        let mut content = Vec::new();
        if !answer.reasoning.is_empty() {
            content.push(json!({"type": "thinking", "thinking": answer.reasoning, "signature": SIGNATURE}));
        }
        if !answer.content.is_empty() {
            content.push(json!({"type": "text", "text": answer.content}));
        }
        for call in &answer.calls {
            let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
        }
        let mut message = self.message(content.into(), Value::Null);
        if let Some(done) = &answer.done {
            let mut counts = Counts::default();
            counts.add(done, true);
            message["usage"] = usage(&counts);
            message["stop_reason"] = stop_reason(done, !answer.calls.is_empty()).into();
            message["stop_sequence"] = json!(done.stop);
        }
        message
    }
}

fn stop_reason(done: &TextDone, calls: bool) -> &'static str {
    match done.reason {
        StopReason::Length => "max_tokens",
        _ if calls => "tool_use",
        StopReason::StopString => "stop_sequence",
        StopReason::Stop | StopReason::Cancelled => "end_turn",
    }
}

/// Prompt tokens that were read again and those that were not are counted apart.
fn usage(counts: &Counts) -> Value {
    json!({
        "input_tokens": counts.prompt - counts.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.completion,
    })
}

/// The block that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Thinking,
    Text,
    Call,
}

/// Events of a streamed answer.
pub struct Events {
    frame: Frame,
    begun: bool,
    open: Open,
    /// Blocks that have ended: the number of the open one.
    blocks: usize,
    called: bool,
}

impl Events {
    /// At the beginning.
    pub fn new(frame: Frame) -> Events {
        Events { frame, begun: false, open: Open::Nothing, blocks: 0, called: false }
    }

    fn begin_message(&mut self, cached: usize, total: usize, frames: &mut Vec<Sse>) {
        if !std::mem::replace(&mut self.begun, true) {
            let counts = Counts { prompt: total, cached, ..Counts::default() };
            let message = self.frame.message(json!([]), usage(&counts));
            frames.push(Sse::named("message_start", &json!({"type": "message_start", "message": message})));
        }
    }

    fn delta(&self, delta: Value) -> Sse {
        let data = json!({"type": "content_block_delta", "index": self.blocks, "delta": delta});
        Sse::named("content_block_delta", &data)
    }

    fn close(&mut self, frames: &mut Vec<Sse>) {
        if self.open == Open::Thinking {
            frames.push(self.delta(json!({"type": "signature_delta", "signature": SIGNATURE})));
        }
        if std::mem::replace(&mut self.open, Open::Nothing) != Open::Nothing {
            let data = json!({"type": "content_block_stop", "index": self.blocks});
            frames.push(Sse::named("content_block_stop", &data));
            self.blocks += 1;
        }
    }

    /// Opens a block of a kind, unless it is open already.
    fn open(&mut self, kind: Open, block: Value, frames: &mut Vec<Sse>) {
        if self.open != kind || kind == Open::Call {
            self.close(frames);
            self.open = kind;
            let data = json!({"type": "content_block_start", "index": self.blocks, "content_block": block});
            frames.push(Sse::named("content_block_start", &data));
        }
    }

    fn part(&mut self, part: Part, frames: &mut Vec<Sse>) {
        match part {
            Part::Reasoning(text) => {
                self.open(Open::Thinking, json!({"type": "thinking", "thinking": "", "signature": ""}), frames);
                frames.push(self.delta(json!({"type": "thinking_delta", "thinking": text})));
            }
            Part::Content(text) => {
                self.open(Open::Text, json!({"type": "text", "text": ""}), frames);
                frames.push(self.delta(json!({"type": "text_delta", "text": text})));
            }
            Part::ToolStart { name, .. } => {
                let block = json!({"type": "tool_use", "id": id("toolu_"), "name": name, "input": {}});
                self.open(Open::Call, block, frames);
            }
            Part::ToolArgument { json, .. } => self.argument(&json, frames),
            Part::ToolEnd { json, .. } => {
                self.called = true;
                self.argument(&json, frames);
                self.close(frames);
            }
            // What was sent cannot be taken back: the stop reason tells, and the text comes as content.
            Part::ToolBroken { .. } => self.close(frames),
        }
    }

    fn argument(&self, json: &str, frames: &mut Vec<Sse>) {
        if !json.is_empty() {
            frames.push(self.delta(json!({"type": "input_json_delta", "partial_json": json})));
        }
    }

    fn done(&mut self, done: &TextDone, frames: &mut Vec<Sse>) {
        self.close(frames);
        let mut counts = Counts::default();
        counts.add(done, true);
        let delta = json!({"stop_reason": stop_reason(done, self.called), "stop_sequence": done.stop});
        let data = json!({"type": "message_delta", "delta": delta, "usage": usage(&counts)});
        frames.push(Sse::named("message_delta", &data));
    }
}

impl Translator for Events {
    fn begin(&mut self) -> Vec<Sse> {
        // The counts of the prompt are known when the engine begins with it.
        Vec::new()
    }

    fn event(&mut self, _choice: usize, event: TextEvent) -> Vec<Sse> {
        let mut frames = Vec::new();
        match event {
            TextEvent::Prefill { done, total } => self.begin_message(done, total, &mut frames),
            TextEvent::Part(part) => self.part(part, &mut frames),
            TextEvent::Done(done) => self.done(&done, &mut frames),
            TextEvent::Token(_) | TextEvent::Failed(_) => {}
        }
        frames
    }

    fn end(&mut self) -> Vec<Sse> {
        vec![Sse::named("message_stop", &json!({"type": "message_stop"}))]
    }

    fn failed(&mut self, error: ApiError) -> Vec<Sse> {
        vec![Sse::named("error", &error.body(Shape::Anthropic))]
    }
}
