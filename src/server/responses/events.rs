//! The events of a streamed response.
//!
//! Owns: their names, numbers and order.
//! Always true: `response.created` comes first; one item is open at a time; every `added` has its `done`; the last
//! event holds the whole response; a token's probability comes with the text that the token completed.
//! Not here: the shapes of items (`answer`), the stream's loop (`stream`).

use serde_json::{Value, json};

use super::answer::{Frame, function_call, message, reasoning, reasoning_part, status, text_part};
use crate::engine::{TextDone, TextEvent};
use crate::server::error::ApiError;
use crate::server::stream::{Frame as Sse, Translator};
use crate::server::wire::answer::id;
use crate::text::Event as Part;

/// The item that is open.
struct Item {
    kind: Kind,
    id: String,
    /// Its text, or its arguments.
    text: String,
    /// Its tokens with their probabilities.
    logprobs: Vec<Value>,
}

enum Kind {
    Reasoning,
    Text,
    Call { id: String, name: String },
}

/// Events of a streamed response.
pub struct Events {
    frame: Frame,
    number: u64,
    open: Option<Item>,
    /// Tokens whose text has not come yet.
    pending: Vec<Value>,
    /// Items that have ended.
    output: Vec<Value>,
    frames: Vec<Sse>,
}

impl Events {
    /// At the beginning.
    pub fn new(frame: Frame) -> Events {
        Events { frame, number: 0, open: None, pending: Vec::new(), output: Vec::new(), frames: Vec::new() }
    }

    fn say(&mut self, name: &'static str, mut data: Value) {
        data["type"] = name.into();
        data["sequence_number"] = self.number.into();
        self.number += 1;
        self.frames.push(Sse::named(name, &data));
    }

    /// Something about the open item.
    fn about(&mut self, name: &'static str, item: &Item, mut data: Value) {
        data["item_id"] = item.id.as_str().into();
        data["output_index"] = self.output.len().into();
        if !matches!(item.kind, Kind::Call { .. }) {
            data["content_index"] = 0.into();
        }
        self.say(name, data);
    }

    fn open(&mut self, kind: Kind) {
        self.close("completed");
        let (prefix, is_call) = match kind {
            Kind::Reasoning => ("rs_", false),
            Kind::Text => ("msg_", false),
            Kind::Call { .. } => ("fc_", true),
        };
        let item = Item { kind, id: id(prefix), text: String::new(), logprobs: Vec::new() };
        let begun = item.value("in_progress");
        self.say("response.output_item.added", json!({"output_index": self.output.len(), "item": begun}));
        if !is_call {
            self.about("response.content_part.added", &item, json!({"part": item.part()}));
        }
        self.open = Some(item);
    }

    fn close(&mut self, status: &str) {
        let Some(mut item) = self.open.take() else { return };
        match &item.kind {
            Kind::Reasoning => self.about("response.reasoning_text.done", &item, json!({"text": item.text})),
            Kind::Text => {
                // White space at the end, which is not shown, has tokens all the same.
                item.logprobs.append(&mut self.pending);
                let data = json!({"text": item.text, "logprobs": item.logprobs});
                self.about("response.output_text.done", &item, data);
            }
            Kind::Call { name, .. } => {
                let data = json!({"name": name, "arguments": item.text});
                self.about("response.function_call_arguments.done", &item, data);
            }
        }
        if !matches!(item.kind, Kind::Call { .. }) {
            self.about("response.content_part.done", &item, json!({"part": item.part()}));
        }
        let whole = item.value(status);
        self.say("response.output_item.done", json!({"output_index": self.output.len(), "item": whole}));
        self.output.push(whole);
    }

    fn delta(&mut self, name: &'static str, text: String, data: Value) {
        let Some(mut item) = self.open.take() else { return };
        item.text.push_str(&text);
        self.about(name, &item, data);
        self.open = Some(item);
    }

    fn argument(&mut self, json: String) {
        if !json.is_empty() && self.open.as_ref().is_some_and(|item| matches!(item.kind, Kind::Call { .. })) {
            let data = json!({"delta": json});
            self.delta("response.function_call_arguments.delta", json, data);
        }
    }

    fn part(&mut self, part: Part) {
        match part {
            Part::Reasoning(text) => {
                if !self.open.as_ref().is_some_and(|item| matches!(item.kind, Kind::Reasoning)) {
                    self.open(Kind::Reasoning);
                }
                let data = json!({"delta": text});
                self.delta("response.reasoning_text.delta", text, data);
            }
            Part::Content(text) => {
                if !self.open.as_ref().is_some_and(|item| matches!(item.kind, Kind::Text)) {
                    self.open(Kind::Text);
                }
                let logprobs = std::mem::take(&mut self.pending);
                let data = json!({"delta": text, "logprobs": logprobs});
                if let Some(item) = &mut self.open {
                    item.logprobs.extend(logprobs);
                }
                self.delta("response.output_text.delta", text, data);
            }
            Part::ToolStart { name, .. } => self.open(Kind::Call { id: id("call_"), name }),
            Part::ToolArgument { json, .. } => self.argument(json),
            Part::ToolEnd { json, .. } => {
                self.argument(json);
                self.close("completed");
            }
            // What was sent cannot be taken back: the item's status tells, and the text comes as content.
            Part::ToolBroken { .. } => self.close("incomplete"),
        }
    }

    fn done(&mut self, done: &TextDone) {
        self.close(status(done));
        let response = self.frame.ended(self.output.clone(), done);
        let name = match status(done) {
            "completed" => "response.completed",
            _ => "response.incomplete",
        };
        self.say(name, json!({"response": response}));
    }
}

impl Item {
    fn value(&self, status: &str) -> Value {
        let begun = status == "in_progress";
        match &self.kind {
            Kind::Reasoning => reasoning(&self.id, &self.text, status),
            Kind::Text => message(&self.id, (!begun).then(|| self.part()), status),
            Kind::Call { id, name } => function_call(&self.id, id, name, &self.text, status),
        }
    }

    fn part(&self) -> Value {
        match self.kind {
            Kind::Reasoning => reasoning_part(&self.text),
            Kind::Text | Kind::Call { .. } => text_part(&self.text, &self.logprobs),
        }
    }
}

impl Translator for Events {
    fn begin(&mut self) -> Vec<Sse> {
        for name in ["response.created", "response.in_progress"] {
            self.say(name, json!({"response": self.frame.running()}));
        }
        std::mem::take(&mut self.frames)
    }

    fn event(&mut self, _choice: usize, event: TextEvent) -> Vec<Sse> {
        match event {
            TextEvent::Part(part) => self.part(part),
            TextEvent::Done(done) => self.done(&done),
            TextEvent::Token(token) => self.pending.extend(self.frame.logprobs(&[token])),
            TextEvent::Prefill { .. } | TextEvent::Failed(_) => {}
        }
        std::mem::take(&mut self.frames)
    }

    fn end(&mut self) -> Vec<Sse> {
        Vec::new()
    }

    fn failed(&mut self, error: ApiError) -> Vec<Sse> {
        let code = error.code.unwrap_or("server_error");
        let response = self.frame.failed(code, &error.message);
        self.say("response.failed", json!({"response": response}));
        std::mem::take(&mut self.frames)
    }
}
