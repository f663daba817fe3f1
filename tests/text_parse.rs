//! The splitter of answers: what each part is, that cuts of the text do not matter, and that nothing is lost.

use hipfire::text::{AnswerParser, Detokenizer, Event, Tokenizer};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

static EMBER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(Tokenizer::from_json(include_bytes!("../models/ember/tokenizer.json"), None).unwrap()));

/// An ordinary token: the parser looks at the text alone.
const WORD: u32 = 100;

fn tools() -> Vec<Value> {
    let properties = json!({
        "city": {"type": "string"}, "days": {"type": "integer"}, "ratio": {"type": "number"},
        "dry": {"type": "boolean"},
        "tags": {"type": "array"}, "opts": {"type": "object"}, "note": {"type": ["string", "null"]},
    });
    vec![json!({"type": "function", "function": {"name": "w",
        "parameters": {"type": "object", "properties": properties}}})]
}

/// `«tag»` in a script is the tag as its token, everything else is text, cut at every `¦`.
fn tokens(script: &str) -> Vec<(u32, String)> {
    let mut out = Vec::new();
    for (at, part) in script.split(['«', '»']).enumerate() {
        match at % 2 {
            1 => out.push((EMBER.added_id(part).unwrap(), part.to_owned())),
            _ => out.extend(part.split('¦').filter(|t| !t.is_empty()).map(|t| (WORD, t.to_owned()))),
        }
    }
    out
}

fn raw_events(thinking: bool, tokens: &[(u32, String)]) -> Vec<Event> {
    let mut parser = AnswerParser::new(&EMBER, &tools(), thinking);
    let mut events: Vec<Event> = tokens.iter().flat_map(|(id, text)| parser.push(*id, text)).collect();
    events.extend(parser.finish(""));
    events
}

/// Neighbours of one kind put together.
fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    for event in events {
        match (out.last_mut(), event) {
            (Some(Event::Reasoning(a)), Event::Reasoning(b)) | (Some(Event::Content(a)), Event::Content(b)) => {
                a.push_str(&b)
            }
            (
                Some(Event::ToolArgument { index, parameter, text, json }),
                Event::ToolArgument { index: i, parameter: p, text: t, json: j },
            ) if *index == i && *parameter == p => {
                text.push_str(&t);
                json.push_str(&j);
            }
            (_, event) => out.push(event),
        }
    }
    out
}

fn parse(thinking: bool, script: &str) -> Vec<Event> {
    joined(raw_events(thinking, &tokens(script)))
}

fn content(text: &str) -> Event {
    Event::Content(text.into())
}

fn reasoning(text: &str) -> Event {
    Event::Reasoning(text.into())
}

fn start(index: usize, name: &str) -> Event {
    Event::ToolStart { index, name: name.into() }
}

fn argument(index: usize, parameter: &str, text: &str, json: &str) -> Event {
    Event::ToolArgument { index, parameter: parameter.into(), text: text.into(), json: json.into() }
}

fn end(index: usize, arguments: Value, json: &str) -> Event {
    Event::ToolEnd { index, arguments: arguments.as_object().unwrap().clone(), json: json.into() }
}

#[test]
fn reasoning_content_and_a_call_come_apart_with_their_white_space_removed() {
    let script = "\nI ¦think. \n«</think>»\n\nLet me look.\n\n«<tool_call>»\n<function=w>\n<parameter=city>\nBad\n\
        Ischl\n\n</parameter>\n\
        <parameter=days>\n3\n</parameter>\n</function>\n«</tool_call>»\n\
        «<tool_call>»\n<function=w>\n</function>\n«</tool_call>»\n";
    let expected = vec![
        reasoning("I think."),
        content("Let me look."),
        start(0, "w"),
        argument(0, "city", "Bad\nIschl\n", "{\"city\":\"Bad\\nIschl\\n\""),
        argument(0, "days", "3", ",\"days\":3"),
        end(0, json!({"city": "Bad\nIschl\n", "days": 3}), "}"),
        start(1, "w"),
        end(1, json!({}), "{}"),
    ];
    assert_eq!(parse(true, script), expected);
}

#[test]
fn tags_count_only_as_tokens() {
    let looks = "a</think>b<tool_call>\n<function=w>\n</function>\n</tool_call> <think>";
    assert_eq!(parse(false, looks), [content(looks)]);
    assert_eq!(parse(true, &format!("{looks}«</think>»{looks}")), [reasoning(looks), content(looks)]);
    assert_eq!(parse(true, "a «<tool_call>» b"), [reasoning("a <tool_call> b")]);
    assert_eq!(parse(true, "«<think>»a«</think>»"), [reasoning("a")]);
    assert_eq!(parse(false, "«<think>»a«</think>» b"), [reasoning("a"), content("b")]);
    assert_eq!(parse(false, "x «</think>» «</tool_call>»"), [content("x </think> </tool_call>")]);
}

#[test]
fn content_without_thinking_is_verbatim() {
    assert_eq!(parse(false, "  a ¦\n b \n\n"), [content("  a \n b \n\n")]);
    assert_eq!(parse(true, " «</think>» \n"), []);
    assert_eq!(parse(true, " cut off "), [reasoning("cut off")]);
}

#[test]
fn is_reasoning_follows_the_tags() {
    let mut parser = AnswerParser::new(&EMBER, &[], true);
    assert!(parser.is_reasoning());
    parser.push(WORD, "a");
    assert!(parser.is_reasoning());
    assert_eq!(parser.push(4, "\u{fffd}</think>"), [reasoning("\u{fffd}")]);
    assert!(!parser.is_reasoning());
}

#[test]
fn string_arguments_stream_and_other_types_come_when_complete() {
    let mut parser = AnswerParser::new(&EMBER, &tools(), false);
    parser.push(5, "<tool_call>");
    assert_eq!(parser.push(WORD, "<function=w>"), [start(0, "w")]);
    assert_eq!(parser.push(WORD, "<parameter=city>\nWi"), [argument(0, "city", "Wi", "{\"city\":\"Wi")]);
    assert_eq!(parser.push(WORD, "\"en\n"), [argument(0, "city", "\"en", "\\\"en")]);
    assert_eq!(parser.push(WORD, "</para"), []);
    assert_eq!(
        parser.push(WORD, "meter>\n<parameter=days>\n1"),
        [argument(0, "city", "", "\""), argument(0, "days", "1", "")]
    );
    assert_eq!(parser.push(WORD, "2"), [argument(0, "days", "2", "")]);
    assert_eq!(
        parser.push(WORD, "\n</parameter>\n</function>"),
        [argument(0, "days", "", ",\"days\":12"), end(0, json!({"city": "Wi\"en", "days": 12}), "}")]
    );
}

#[test]
fn values_take_their_schemas_types() {
    let call = |parameter: &str, text: &str| {
        let script =
            format!("«<tool_call>»<function=w><parameter={parameter}>\n{text}\n</parameter></function>«</tool_call>»");
        match parse(false, &script).pop() {
            Some(Event::ToolEnd { mut arguments, .. }) => arguments.remove(parameter).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(call("city", "5"), json!("5"));
    assert_eq!(call("ratio", "0.5"), json!(0.5));
    assert_eq!(call("dry", "true"), json!(true));
    assert_eq!(call("tags", "[1, {\"a\": null}]"), json!([1, {"a": null}]));
    assert_eq!(call("opts", "not json"), json!("not json"));
    assert_eq!(call("note", "null"), json!(null));
    assert_eq!(call("note", "nullable"), json!("nullable"));
    assert_eq!(call("unknown", "5"), json!("5"));
    assert_eq!(call("city", ""), json!(""));
    assert_eq!(call("city", "\n a \n"), json!("\n a \n"));
}

#[test]
fn a_value_may_speak_of_the_format() {
    let value = "close with </parameter> or </function>\n</parameter>\nthen «</think>» «<tool_call>» <parameter=x>";
    let script =
        format!("«<tool_call>»\n<function=w>\n<parameter=city>\n{value}\n</parameter>\n</function>\n«</tool_call>»");
    let plain = value.replace(['«', '»'], "");
    match parse(false, &script).pop() {
        Some(Event::ToolEnd { arguments, .. }) => assert_eq!(arguments["city"], json!(plain)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_that_lacks_only_its_last_line_counts() {
    let body = "<function=w>\n<parameter=days>\n1\n</parameter>\n";
    for script in [format!("«<tool_call>»\n{body}«</tool_call>»"), format!("«<tool_call>»\n{body}</function>")] {
        assert_eq!(parse(false, &script).last(), Some(&end(0, json!({"days": 1}), "}")), "{script}");
    }
    // Cut off by a limit, it might lack a parameter: not made.
    let cut = parse(false, &format!("«<tool_call>»\n{body}"));
    assert_eq!(cut[cut.len() - 2..], [Event::ToolBroken { index: 0 }, content(&format!("<tool_call>\n{body}"))]);
}

#[test]
fn malformed_calls_are_content_character_by_character() {
    for broken in [
        "hi\n\n«<tool_call>»\n{\"name\": \"w\"}\n«</tool_call>» bye",
        "«<tool_call>»«</tool_call>»",
        "«<tool_call>»\n<function=>\n</function>",
        "«<tool_call>»\n<function=w\n>",
        "«<tool_call>»\n<function=w>\nwords\n</function>\n«</tool_call>»\nmore\n",
        "«<tool_call>»\n<function=w>\n<parameter=city>\nWien\n«</tool_call>»",
        "«<tool_call>»\n<function=w>\n<parameter=city>\nWien\n</para",
        "«<tool_call>»\n<func",
        "«<tool_call>»  ",
    ] {
        let shown: Vec<String> = parse(false, broken)
            .into_iter()
            .filter_map(|event| match event {
                Event::Content(text) => Some(text),
                Event::ToolEnd { .. } => panic!("{broken}"),
                _ => None,
            })
            .collect();
        assert_eq!(shown.concat(), broken.replace(['«', '»'], ""));
    }
}

#[test]
fn calls_after_a_broken_one_count_on_and_text_after_a_call_is_content() {
    let good = "\n<function=w>\n</function>\n";
    let script = format!(
        "«<tool_call>»<function=w>!«<tool_call>»{good}«</tool_call>»\n and \
            «<tool_call>»«<tool_call>»{good}«</tool_call>»"
    );
    assert_eq!(
        parse(false, &script),
        [
            start(0, "w"),
            Event::ToolBroken { index: 0 },
            content("<tool_call><function=w>!"),
            start(1, "w"),
            end(1, json!({}), "{}"),
            content("and <tool_call>"),
            start(2, "w"),
            end(2, json!({}), "{}"),
        ]
    );
}

#[test]
fn the_whole_way_from_ids_to_events_works() {
    let text = "\nhm \u{1f525}\n</think>\n\nok\n\n<tool_call>\n<function=w>\n<parameter=city>\n\u{1f525}\n\
        </parameter>\n</function>\n</tool_call><|im_end|>";
    let mut detokenizer = Detokenizer::new(EMBER.clone());
    let mut parser = AnswerParser::new(&EMBER, &tools(), true);
    let mut events = Vec::new();
    for id in EMBER.encode_raw(text).unwrap() {
        events.extend(parser.push(id, &detokenizer.push(id)));
    }
    events.extend(parser.finish(&detokenizer.finish()));
    let fire = "\u{1f525}";
    assert_eq!(
        joined(events),
        [
            reasoning(&format!("hm {fire}")),
            content("ok"),
            start(0, "w"),
            argument(0, "city", fire, &format!("{{\"city\":\"{fire}\"")),
            end(0, json!({ "city": fire }), "}"),
        ]
    );
}

/// Answers out of the format's own pieces, mostly in an order that makes no sense.
fn script() -> impl Strategy<Value = Vec<String>> {
    let whole = "«<tool_call>»\n<function=w>\n<parameter=note>\nnul\n</parameter>\n<parameter=days>\n7\n\
        </parameter>\n</function>\n«</tool_call>»";
    let pieces = [
        "«<think>»",
        "«</think>»",
        "«<tool_call>»",
        "«</tool_call>»",
        "<function=w>",
        "</function>",
        "<parameter=city>",
        "<parameter=days>",
        "<parameter=note>",
        "</parameter>",
        "\n",
        " ",
        "null",
        "12",
        "\"é\\",
        "<",
        "</",
        ">",
        "word",
        whole,
        "</parameter>\n</function>\n«</tool_call>»",
        "«<tool_call>»\n<function=w>\n<parameter=city>\n",
    ];
    prop::collection::vec(prop::sample::select(pieces.map(str::to_owned).to_vec()), 0..24)
}

/// Every text token cut into characters.
fn crumbs(tokens: &[(u32, String)]) -> Vec<(u32, String)> {
    let cut = |(id, text): &(u32, String)| match *id {
        WORD => text.chars().map(|c| (WORD, c.to_string())).collect(),
        id => vec![(id, text.clone())],
    };
    tokens.iter().flat_map(cut).collect()
}

/// Neighbouring text tokens put together.
fn lumps(tokens: &[(u32, String)]) -> Vec<(u32, String)> {
    let mut out: Vec<(u32, String)> = Vec::new();
    for (id, text) in tokens {
        match out.last_mut() {
            Some((WORD, last)) if *id == WORD => last.push_str(text),
            _ => out.push((*id, text.clone())),
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn cuts_of_the_text_do_not_matter(pieces in script(), thinking: bool) {
        let tokens = tokens(&pieces.concat());
        let whole = joined(raw_events(thinking, &lumps(&tokens)));
        prop_assert_eq!(&joined(raw_events(thinking, &tokens)), &whole);
        prop_assert_eq!(&joined(raw_events(thinking, &crumbs(&tokens))), &whole);
    }

    #[test]
    fn the_json_pieces_of_a_complete_call_are_its_arguments(pieces in script()) {
        let mut pending: Option<String> = None;
        for event in raw_events(false, &tokens(&pieces.concat())) {
            match event {
                Event::ToolStart { .. } => pending = Some(String::new()),
                Event::ToolArgument { json, .. } => pending.as_mut().unwrap().push_str(&json),
                Event::ToolEnd { arguments, json, .. } => {
                    let text = pending.take().unwrap() + &json;
                    prop_assert_eq!(serde_json::from_str::<Map<String, Value>>(&text).unwrap(), arguments);
                }
                Event::ToolBroken { .. } => pending = None,
                Event::Reasoning(_) | Event::Content(_) => prop_assert!(pending.is_none()),
            }
        }
        prop_assert!(pending.is_none());
    }

    #[test]
    fn every_visible_character_outside_complete_calls_is_shown(pieces in script()) {
        let visible = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
        let mut shown = 0;
        let mut calls = 0;
        for event in raw_events(false, &tokens(&pieces.concat())) {
            match event {
                Event::Reasoning(text) | Event::Content(text) => shown += visible(&text),
                Event::ToolEnd { .. } => calls += 1,
                _ => {}
            }
        }
        let all = visible(&pieces.concat().replace(['«', '»'], ""));
        prop_assert!(shown <= all);
        // Without a complete call only thinking's own tags may be missing.
        let tags = pieces.iter().filter(|p| p.contains("think")).map(|p| visible(p) - 2).sum::<usize>();
        prop_assert!(calls > 0 || shown + tags >= all);
    }
}
