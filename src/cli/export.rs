//! The forms of an answer: text, one JSON object, one JSON object an event.
//!
//! Owns: one exporter a form, and the names of their fields (timings use llama.cpp's).
//! Always true: every event is given to exactly one exporter, in order; text form writes generated text alone to
//! standard output.
//! Not here: what the events mean (`engine::text_stream`), the stats footer (`run`).

use std::time::Duration;

use serde_json::{Value, json};

use super::args::Format;
use super::ui::{Output, Ui};
use crate::engine::speculate::Receipts;
use crate::engine::{Ran, RanProbe, Receipt, StopReason, TextDone, TextEvent, Usage};
use crate::error::Result;
use crate::text::Event as Part;

/// What an answer's object says beside the answer.
pub struct Context {
    /// Name of the model.
    pub model: String,
    /// What is on.
    pub receipt: Receipt,
    /// Says what has run.
    pub ran: RanProbe,
    /// Every setting by name.
    pub settings: Value,
}

/// Turns events into output.
pub trait Export {
    /// One event, except the last.
    fn event(&mut self, event: &TextEvent) -> Result<()>;
    /// The last one.
    fn end(&mut self, done: &TextDone) -> Result<()>;
    /// The answer ended by an error, which is also reported on standard error.
    fn failed(&mut self, _sentence: &str) -> Result<()> {
        Ok(())
    }
}

/// The exporter of a form.
pub fn export(format: Format, ui: Ui, show_thinking: bool, context: Context) -> Box<dyn Export> {
    let output = Output::new();
    match format {
        Format::Text => {
            let thinking = show_thinking || ui.err_terminal;
            Box::new(Text { output, ui, thinking, open_thought: false, line_open: false, calls: Calls::default() })
        }
        Format::Json => Box::new(Json { output, context, answer: Answer::default(), calls: Calls::default() }),
        Format::Jsonl => Box::new(Jsonl { output, context, calls: Calls::default() }),
    }
}

/// The generated text. Thinking goes to standard error, dimmed, on a terminal or when it was asked for.
struct Text {
    output: Output,
    ui: Ui,
    thinking: bool,
    /// Standard error stands inside a thought.
    open_thought: bool,
    /// Standard output stands inside a line.
    line_open: bool,
    calls: Calls,
}

impl Text {
    fn content(&mut self, text: &str) -> Result<()> {
        self.close_thought();
        self.line_open = !text.ends_with('\n') && (self.line_open || !text.is_empty());
        self.output.text(text)
    }

    fn close_thought(&mut self) {
        if std::mem::take(&mut self.open_thought) {
            self.ui.dim("\n\n");
        }
    }
}

impl Export for Text {
    fn event(&mut self, event: &TextEvent) -> Result<()> {
        match event {
            TextEvent::Part(Part::Reasoning(text)) if self.thinking => {
                self.open_thought = true;
                self.ui.dim(text);
                Ok(())
            }
            TextEvent::Part(Part::Content(text)) => self.content(text),
            TextEvent::Part(part) => match self.calls.complete(part) {
                Some(call) => {
                    let start = if self.line_open { "\n" } else { "" };
                    self.content(&format!("{start}{call}\n"))
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn end(&mut self, _done: &TextDone) -> Result<()> {
        self.close_thought();
        // A prompt of the shell belongs on its own line; a file gets the text and nothing else.
        if self.ui.out_terminal && self.line_open {
            self.output.text("\n")?;
        }
        Ok(())
    }

    fn failed(&mut self, _sentence: &str) -> Result<()> {
        self.close_thought();
        Ok(())
    }
}

/// The answer so far.
#[derive(Default)]
struct Answer {
    text: String,
    reasoning: String,
    tool_calls: Vec<Value>,
}

/// One object when everything is known.
struct Json {
    output: Output,
    context: Context,
    answer: Answer,
    calls: Calls,
}

impl Export for Json {
    fn event(&mut self, event: &TextEvent) -> Result<()> {
        match event {
            TextEvent::Part(Part::Reasoning(text)) => self.answer.reasoning.push_str(text),
            TextEvent::Part(Part::Content(text)) => self.answer.text.push_str(text),
            TextEvent::Part(part) => self.answer.tool_calls.extend(self.calls.complete(part)),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, done: &TextDone) -> Result<()> {
        let Answer { text, reasoning, tool_calls } = &self.answer;
        self.output.json(&json!({
            "model": self.context.model,
            "text": text,
            "reasoning": reasoning,
            "tool_calls": tool_calls,
            "stop_reason": done.reason.name(),
            "usage": usage(done),
            "timings": timings(&done.usage),
            "speculation": done.usage.speculation,
            "receipt": self.context.receipt,
            "ran": (self.context.ran)(),
            "memory": done.memory,
            "settings": self.context.settings,
        }))
    }
}

/// One object an event.
struct Jsonl {
    output: Output,
    context: Context,
    calls: Calls,
}

impl Export for Jsonl {
    fn event(&mut self, event: &TextEvent) -> Result<()> {
        let line = match event {
            TextEvent::Prefill { done, total } => json!({"event": "prefill", "done": done, "total": total}),
            TextEvent::Part(Part::Reasoning(text)) => json!({"event": "reasoning", "text": text}),
            TextEvent::Part(Part::Content(text)) => json!({"event": "content", "text": text}),
            TextEvent::Part(part) => match self.calls.complete(part) {
                Some(call) => json!({"event": "tool_call", "tool_call": call}),
                None => return Ok(()),
            },
            // `run` asks for no log-probabilities.
            TextEvent::Token(_) | TextEvent::Done(_) | TextEvent::Failed(_) => return Ok(()),
        };
        self.output.json(&line)
    }

    fn end(&mut self, done: &TextDone) -> Result<()> {
        self.output.json(&json!({
            "event": "done",
            "model": self.context.model,
            "stop_reason": done.reason.name(),
            "usage": usage(done),
            "timings": timings(&done.usage),
            "speculation": done.usage.speculation,
            "receipt": self.context.receipt,
            "ran": (self.context.ran)(),
            "memory": done.memory,
            "settings": self.context.settings,
        }))
    }

    fn failed(&mut self, sentence: &str) -> Result<()> {
        self.output.json(&json!({"event": "error", "message": sentence}))
    }
}

/// Puts the pieces of a tool call together. A broken one comes again as content.
#[derive(Default)]
struct Calls {
    name: String,
}

impl Calls {
    fn complete(&mut self, part: &Part) -> Option<Value> {
        match part {
            Part::ToolStart { name, .. } => {
                self.name = name.clone();
                None
            }
            Part::ToolEnd { arguments, .. } => Some(json!({"name": self.name, "arguments": arguments})),
            _ => None,
        }
    }
}

fn usage(done: &TextDone) -> Value {
    let Usage { prompt, generated, .. } = done.usage;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "reasoning_tokens": done.reasoning_tokens,
        "cached_tokens": 0,
    })
}

fn timings(usage: &Usage) -> Value {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    json!({
        "prompt_n": usage.prompt,
        "prompt_ms": ms(usage.prefill),
        "prompt_per_second": usage.prefill_rate(),
        "predicted_n": usage.generated,
        "predicted_ms": ms(usage.decode),
        "predicted_per_second": usage.decode_rate(),
        "first_token_ms": ms(usage.first_token),
    })
}

/// The footer of `--stats`.
pub fn footer(done: &TextDone, receipt: &Receipt, ran: &Ran) -> String {
    let (usage, memory) = (&done.usage, &done.memory);
    let reason = match done.reason {
        StopReason::Stop => "the model ended its answer",
        StopReason::Length => "the length was reached",
        StopReason::StopString => "a stop text was reached",
        StopReason::Cancelled => "interrupted",
    };
    format!(
        "prompt      {:>7} tokens  {:>10.1} tokens/s\n\
         generation  {:>7} tokens  {:>10.1} tokens/s  ({} of them thinking; {reason})\n\
         first token {:>7.3} s\n\
         {}\
         memory      {} of weights; context: {} committed, {} reserved, {} retired, grown {} times; at most {} resident\n\
         {}",
        usage.prompt,
        usage.prefill_rate(),
        usage.generated,
        usage.decode_rate(),
        done.reasoning_tokens,
        usage.first_token.as_secs_f64(),
        speculation(&usage.speculation),
        mebibytes(memory.weights),
        mebibytes(memory.committed),
        mebibytes(memory.reserved),
        mebibytes(memory.retired),
        memory.growths,
        mebibytes(memory.peak_resident),
        placement(receipt, ran),
    )
}

/// Lines about where the model ran and by which kernels, and what is not as it would have been chosen.
fn placement(receipt: &Receipt, ran: &Ran) -> String {
    let Receipt { placement, kv_mode, kv_backend, attention, .. } = receipt;
    let mut text = format!(
        "device      {} ({}); keys and values as {kv_mode}, {kv_backend}; {attention} attention\n",
        placement.device, placement.arch
    );
    if ran.graph_replays > 0 {
        text += &format!("graphs      {:>7} replays\n", ran.graph_replays);
    }
    for (phase, kernels) in [("prefill by", &ran.prefill_kernels), ("decode by", &ran.decode_kernels)] {
        if !kernels.is_empty() {
            let names: Vec<&str> = kernels.iter().map(String::as_str).collect();
            text += &format!("{phase:<12}{}\n", names.join(" "));
        }
    }
    for sentence in &receipt.fell_back {
        text += &format!("note        {sentence}\n");
    }
    text
}

/// A line about drafts, if there were any.
fn speculation(receipts: &Receipts) -> String {
    if receipts.rounds == 0 {
        return String::new();
    }
    let parts = [receipts.drafting, receipts.verifying, receipts.choosing];
    let whole = parts.iter().sum::<Duration>().as_secs_f64().max(f64::MIN_POSITIVE);
    let [drafting, verifying, choosing] = parts.map(|part| 100.0 * part.as_secs_f64() / whole);
    let dense = receipts.dense.map_or(String::new(), |passes| {
        let split = if passes.engaged { "split" } else { "whole" };
        format!(
            "{:<12}dense attention of {} rows: {split} groups, {} heads a pass, {} passes, {} KV heads\n",
            "", passes.q_len, passes.heads_per_chunk, passes.chunks, passes.n_kv_heads
        )
    });
    let depths: Vec<String> = receipts.acceptance().iter().map(|share| format!("{:.1} %", 100.0 * share)).collect();
    format!(
        "speculation {:>7} drafts, {} accepted (by depth: {}), {:.2} tokens a round\n\
         {:<12}{drafting:.0} % of the time drafting, {verifying:.0} % verifying, {choosing:.0} % choosing\n{dense}",
        receipts.total_drafted(),
        receipts.total_accepted(),
        depths.join(", "),
        receipts.tokens_a_round(),
        "",
    )
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
