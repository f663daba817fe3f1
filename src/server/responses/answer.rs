//! The response object: what it echoes, its items, its counts.
//!
//! Owns: the shape of a response and of each kind of item.
//! Always true: a response that was cut says so and why.
//! Not here: the order of events (`events`).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::engine::{StopReason, TextDone, Token};
use crate::server::wire::answer::{Answer, Counts, id, logprobs, now};
use crate::text::Tokenizer;

/// What belongs to the whole response.
pub struct Frame {
    response: Value,
    tokenizer: Arc<Tokenizer>,
}

impl Frame {
    /// For one request; `object` is its body, of which the response repeats parts.
    pub fn new(object: &Value, model: &str, temperature: f32, top_p: f32, tokenizer: &Arc<Tokenizer>) -> Frame {
        let or = |name: &str, default: Value| object.get(name).filter(|v| !v.is_null()).cloned().unwrap_or(default);
        let response = json!({
            "id": id("resp_"),
            "object": "response",
            "created_at": now(),
            "status": "in_progress",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": or("instructions", Value::Null),
            "max_output_tokens": or("max_output_tokens", Value::Null),
            "metadata": or("metadata", json!({})),
            "model": model,
            "output": [],
            "parallel_tool_calls": or("parallel_tool_calls", true.into()),
            "previous_response_id": null,
            "reasoning": or("reasoning", json!({"effort": null, "summary": null})),
            "store": false,
            "temperature": short(temperature),
            "text": or("text", json!({"format": {"type": "text"}})),
            "tool_choice": or("tool_choice", "auto".into()),
            "tools": or("tools", json!([])),
            "top_logprobs": or("top_logprobs", 0.into()),
            "top_p": short(top_p),
            "truncation": "disabled",
            "usage": null,
        });
        Frame { response, tokenizer: tokenizer.clone() }
    }

    /// Tokens with their probabilities, as this API lists them: as chats do.
    pub fn logprobs(&self, tokens: &[Token]) -> Vec<Value> {
        logprobs(tokens, &self.tokenizer)
    }

    /// As it stands while it is being made.
    pub fn running(&self) -> &Value {
        &self.response
    }

    /// Ended, with its items.
    pub fn ended(&self, output: Vec<Value>, done: &TextDone) -> Value {
        let mut counts = Counts::default();
        counts.add(done, true);
        let mut response = self.response.clone();
        response["output"] = output.into();
        response["usage"] = json!({
            "input_tokens": counts.prompt,
            "input_tokens_details": {"cached_tokens": counts.cached},
            "output_tokens": counts.completion,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning},
            "total_tokens": counts.prompt + counts.completion,
        });
        response["status"] = status(done).into();
        if done.reason == StopReason::Length {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response
    }

    /// Failed, with the error object.
    pub fn failed(&self, code: &str, message: &str) -> Value {
        let mut response = self.response.clone();
        response["status"] = "failed".into();
        response["error"] = json!({"code": code, "message": message});
        response
    }

    /// The answer at once.
    pub fn whole(&self, answer: &Answer) -> Value {
        let Some(done) = &answer.done else { return self.response.clone() };
        let mut output = Vec::new();
        if !answer.reasoning.is_empty() {
            output.push(reasoning(&id("rs_"), &answer.reasoning, "completed"));
        }
        if !answer.content.is_empty() {
            let part = text_part(&answer.content, &self.logprobs(&answer.tokens));
            output.push(message(&id("msg_"), Some(part), status(done)));
        }
        for call in &answer.calls {
            output.push(function_call(&id("fc_"), &call.id, &call.name, &call.arguments, "completed"));
        }
        self.ended(output, done)
    }
}

/// `completed`, or `incomplete` where a limit cut the answer.
pub fn status(done: &TextDone) -> &'static str {
    if done.reason == StopReason::Length { "incomplete" } else { "completed" }
}

/// An item of thinking.
pub fn reasoning(id: &str, text: &str, status: &str) -> Value {
    let content = if text.is_empty() { json!([]) } else { json!([reasoning_part(text)]) };
    json!({"id": id, "type": "reasoning", "summary": [], "content": content, "status": status})
}

/// A part of thinking.
pub fn reasoning_part(text: &str) -> Value {
    json!({"type": "reasoning_text", "text": text})
}

/// An item of text; without its part while it is being begun.
pub fn message(id: &str, part: Option<Value>, status: &str) -> Value {
    let content: Vec<Value> = part.into_iter().collect();
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
}

/// A part of text, with its tokens' probabilities where they were asked for.
pub fn text_part(text: &str, logprobs: &[Value]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

/// An item that calls a function.
pub fn function_call(id: &str, call: &str, name: &str, arguments: &str, status: &str) -> Value {
    json!({
        "id": id, "type": "function_call", "status": status, "call_id": call, "name": name, "arguments": arguments,
    })
}

/// As it was written: 0.7 as an f64 would read 0.699999988079071.
fn short(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}
