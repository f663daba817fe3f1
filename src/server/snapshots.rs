//! The events of every API for one scripted answer, byte by byte.
//!
//! Owns: the script (thinking, content, a call in fragments, the end) and the comparison with the kept bytes.
//! Always true: ids and times are replaced by their names; nothing else is.
//! Not here: real answers (tests/serve_stream.rs).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::anthropic::answer as anthropic;
use super::error::ApiError;
use super::responses::{answer as responses, events};
use super::stream::{Frame, Translator};
use crate::engine::{MemoryUse, StopReason, TextDone, TextEvent, Token, Usage};
use crate::error::Error;
use crate::text::{Event as Part, Tokenizer};

fn argument(text: &str, json: &str) -> TextEvent {
    TextEvent::Part(Part::ToolArgument { index: 0, parameter: "town".into(), text: text.into(), json: json.into() })
}

fn script() -> Vec<TextEvent> {
    let usage = Usage { prompt: 9, generated: 7, prefill: Duration::from_millis(3), ..Usage::default() };
    let arguments = Map::from_iter([("town".to_string(), json!("Paris"))]);
    vec![
        TextEvent::Prefill { done: 0, total: 9 },
        TextEvent::Prefill { done: 9, total: 9 },
        TextEvent::Part(Part::Reasoning("Hm, \"a\ntown\".".into())),
        TextEvent::Part(Part::Content("I look".into())),
        TextEvent::Part(Part::Content(" 🔥.".into())),
        TextEvent::Part(Part::ToolStart { index: 0, name: "get_weather".into() }),
        argument("Pa", "{\"town\": \"Pa"),
        argument("ris", "ris"),
        TextEvent::Part(Part::ToolEnd { index: 0, arguments, json: "\"}".into() }),
        TextEvent::Done(TextDone {
            reason: StopReason::Stop,
            usage,
            reasoning_tokens: 3,
            stop: None,
            memory: MemoryUse::default(),
        }),
    ]
}

fn bytes(frames: Vec<Frame>) -> String {
    let one = |frame: Frame| {
        let name = frame.event.map_or(String::new(), |name| format!("event: {name}\n"));
        let data = match serde_json::from_str(&frame.data) {
            Ok(value) => stable(value).to_string(),
            Err(_) => frame.data,
        };
        format!("{name}data: {data}\n\n")
    };
    frames.into_iter().map(one).collect()
}

/// Ids by their prefix, times by a word.
fn stable(value: Value) -> Value {
    let field = |(key, value): (String, Value)| {
        let value = match (key.as_str(), value) {
            ("id" | "item_id" | "call_id", Value::String(id)) => json!(id.split(['_', '-']).next()),
            ("created_at", _) => json!("TIME"),
            (_, value) => stable(value),
        };
        (key, value)
    };
    match value {
        Value::Object(fields) => Value::Object(fields.into_iter().map(field).collect()),
        Value::Array(items) => items.into_iter().map(stable).collect(),
        plain => plain,
    }
}

fn play(mut translator: impl Translator) -> String {
    let mut frames = translator.begin();
    for event in script() {
        frames.extend(translator.event(0, event));
    }
    frames.extend(translator.end());
    bytes(frames)
}

/// Compares with the kept file, or writes it anew where HIPFIRE_WRITE_SNAPSHOTS is set.
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sse").join(name);
    if std::env::var_os("HIPFIRE_WRITE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, kept, "{} differs", path.display());
}

#[test]
fn a_messages_stream_is_the_kept_bytes() {
    check("messages.txt", &play(anthropic::Events::new(anthropic::Frame::new("ember".into()))));
}

fn response(body: Value) -> events::Events {
    let tokenizer = Tokenizer::from_json(include_bytes!("../../models/ember/tokenizer.json"), None).unwrap();
    events::Events::new(responses::Frame::new(&body, "ember", 0.7, 0.95, &Arc::new(tokenizer)))
}

#[test]
fn a_responses_stream_is_the_kept_bytes() {
    check("responses.txt", &play(response(json!({"instructions": "Be brief."}))));
}

#[test]
fn probabilities_come_with_the_text_they_belong_to_and_all_of_them_at_the_items_end() {
    let token = |id| TextEvent::Token(Token { id, logprob: Some(-0.5), top: Vec::new() });
    let text = |text: &str| TextEvent::Part(Part::Content(text.into()));
    let call = TextEvent::Part(Part::ToolStart { index: 0, name: "f".into() });
    let mut translator = response(json!({}));
    // The second and the third token complete one piece; the last one's white space before a call is never shown.
    let script = [token(300), text("a"), token(301), token(302), text("bc"), token(303), call];
    let frames: Vec<Frame> = script.into_iter().flat_map(|event| translator.event(0, event)).collect();
    let count = |name: &str, pointer: &str| -> Vec<usize> {
        let named = frames.iter().filter(|frame| frame.event == Some(name));
        let data = named.map(|frame| serde_json::from_str::<Value>(&frame.data).unwrap());
        data.filter_map(|data| Some(data.pointer(pointer)?.as_array()?.len())).collect()
    };
    assert_eq!(count("response.output_text.delta", "/logprobs"), [1, 2]);
    assert_eq!(count("response.output_text.done", "/logprobs"), [4]);
    assert_eq!(count("response.content_part.done", "/part/logprobs"), [4]);
    assert_eq!(count("response.output_item.done", "/item/content/0/logprobs"), [4]);
}

#[test]
fn an_error_behind_the_headers_is_the_last_event_in_each_shape() {
    let error = || ApiError::from(Error::Numeric("layer 3 is NaN".into()));
    let told = anthropic::Events::new(anthropic::Frame::new("ember".into())).failed(error());
    assert_eq!(
        bytes(told),
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"layer 3 is NaN\"}}\n\n"
    );
    let told = response(json!({})).failed(error());
    assert!(told.len() == 1 && told[0].event == Some("response.failed"), "{told:?}");
}

#[test]
fn a_call_that_breaks_closes_its_block_and_its_text_follows() {
    let broken = [
        TextEvent::Part(Part::ToolStart { index: 0, name: "f".into() }),
        TextEvent::Part(Part::ToolBroken { index: 0 }),
        TextEvent::Part(Part::Content("<tool_call>".into())),
    ];
    let mut translator = anthropic::Events::new(anthropic::Frame::new("ember".into()));
    let frames: Vec<Frame> = broken.into_iter().flat_map(|event| translator.event(0, event)).collect();
    let names: Vec<_> = frames.iter().filter_map(|frame| frame.event).collect();
    let expected = ["content_block_start", "content_block_stop", "content_block_start", "content_block_delta"];
    assert_eq!(names, expected);
}
