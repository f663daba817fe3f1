//! Text events over scripted token events and the embedded model's tokenizer.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::text::{Event as Part, Tokenizer};

struct Script {
    events: std::vec::IntoIter<Event>,
    cancelled: Rc<Cell<bool>>,
}

impl Iterator for Script {
    type Item = Event;
    fn next(&mut self) -> Option<Event> {
        self.events.next()
    }
}

impl Tokens for Script {
    fn cancel(&self) {
        self.cancelled.set(true);
    }
}

fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_json(include_bytes!("../../models/ember/tokenizer.json"), None).unwrap())
}

fn done(generated: usize) -> Event {
    let usage = Usage { generated, ..Usage::default() };
    Event::Done(Done { reason: StopReason::Length, usage, memory: MemoryUse::default() })
}

/// The answer `text`, whose tags are tokens, then `last`: reasoning, content, end, whether the engine was told to stop.
fn read(text: &str, last: Event, reading: Reading, stops: &[&str]) -> (String, String, TextEvent, bool) {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode_raw(text).unwrap();
    let tokens = ids.into_iter().map(|id| Event::Token(Token { id, logprob: None, top: vec![] }));
    let events: Vec<Event> = tokens.chain([last]).collect();
    let cancelled = Rc::new(Cell::new(false));
    let script = Script { events: events.into_iter(), cancelled: cancelled.clone() };
    let options = TextOptions { stops: stops.iter().map(|s| s.to_string()).collect(), tools: vec![] };
    let (mut reasoning, mut content, mut end) = (String::new(), String::new(), None);
    for event in TextStream::new(script, &tokenizer, reading, options).unwrap() {
        assert!(end.is_none(), "{event:?} after the end");
        match event {
            TextEvent::Part(Part::Reasoning(text)) => reasoning += &text,
            TextEvent::Part(Part::Content(text)) => content += &text,
            other => end = Some(other),
        }
    }
    (reasoning, content, end.unwrap(), cancelled.get())
}

fn finished(end: TextEvent) -> TextDone {
    match end {
        TextEvent::Done(done) => done,
        other => panic!("{other:?}"),
    }
}

const CHAT: Reading = Reading::Chat { thinking: true };

#[test]
fn thinking_and_answer_are_told_apart_and_counted() {
    let (reasoning, content, end, cancelled) = read("Hm, a mouse.\n</think>\n\nOnce. END", done(9), CHAT, &[]);
    assert_eq!((reasoning.as_str(), content.as_str(), cancelled), ("Hm, a mouse.", "Once. END", false));
    let thought = tokenizer().encode_raw("Hm, a mouse.\n</think>").unwrap().len();
    assert_eq!((finished(end).reasoning_tokens, thought > 3), (thought, true));
}

#[test]
fn a_stop_string_ends_the_content_stops_the_engine_and_what_follows_is_not_counted() {
    let text = "A fox END, a hen END</think>A fox and a hen END of it";
    let (reasoning, content, end, cancelled) = read(text, done(99), CHAT, &["never", "n END o"]);
    assert_eq!((reasoning.as_str(), content.as_str(), cancelled), ("A fox END, a hen END", "A fox and a he", true));
    let end = finished(end);
    assert_eq!((end.reason, end.stop.as_deref()), (StopReason::StopString, Some("n END o")));
    assert!(end.usage.generated <= tokenizer().encode_raw(text).unwrap().len());
    let until = tokenizer().encode_raw("A fox END, a hen END</think>A fox and a hen END o").unwrap().len();
    assert!(end.usage.generated.abs_diff(until) <= 1, "{end:?} {until}");
}

#[test]
fn what_was_held_back_for_a_stop_string_comes_before_the_end() {
    let (_, content, end, cancelled) = read("</think>A fox and E", done(1), CHAT, &["END"]);
    assert_eq!((content.as_str(), cancelled), ("A fox and E", false));
    assert_eq!(finished(end).reason, StopReason::Length);
    let failed = Event::Failed(Error::Numeric("broken".into()));
    let (_, content, end, _) = read("</think>A fox and E", failed, CHAT, &["END"]);
    assert_eq!(content, "A fox and E");
    assert!(matches!(end, TextEvent::Failed(_)));
}

#[test]
fn a_plain_text_has_no_parts() {
    let (reasoning, content, end, _) = read("one</think> two", done(1), Reading::Plain, &[]);
    assert_eq!((reasoning.as_str(), content.as_str()), ("", "one</think> two"));
    assert_eq!(finished(end).reasoning_tokens, 0);
}

#[test]
fn an_empty_stop_string_is_refused() {
    let script = Script { events: vec![].into_iter(), cancelled: Rc::default() };
    let options = TextOptions { stops: vec![String::new()], tools: vec![] };
    assert!(TextStream::new(script, &tokenizer(), CHAT, options).is_err());
}

#[test]
fn an_answer_that_is_ended_here_shows_and_counts_no_more() {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode_raw("</think>One two three four").unwrap();
    let tokens = ids.into_iter().map(|id| Event::Token(Token { id, logprob: None, top: vec![] }));
    let events: Vec<Event> = tokens.chain([done(99)]).collect();
    let cancelled = Rc::new(Cell::new(false));
    let script = Script { events: events.into_iter(), cancelled: cancelled.clone() };
    let mut stream = TextStream::new(script, &tokenizer, CHAT, TextOptions::default()).unwrap();
    let first = stream.next();
    assert!(matches!(first, Some(TextEvent::Part(Part::Content(_)))), "{first:?}");
    stream.end_here();
    let end = finished(stream.next().unwrap());
    assert!(cancelled.get() && stream.next().is_none());
    assert_eq!((end.reason, end.usage.generated, end.stop), (StopReason::StopString, 2, None));
}
