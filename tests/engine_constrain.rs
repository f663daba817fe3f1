//! Answers of the embedded model that must follow a grammar: whatever the seed, what comes out parses.

use hipfire::config::Device;
use hipfire::engine::{Constraint, Event, Grammar, LoadOptions, Loaded, Request, SamplingParams, StopReason};
use hipfire::error::Error;
use serde_json::{Value, json};

fn ember() -> Loaded {
    let options = LoadOptions {
        max_seq: Some(512),
        threads: Some(1),
        device: Device::Cpu,
        prefill_chunk: Some(64),
        parallel: 4,
        ..LoadOptions::default()
    };
    Loaded::open(&options, &mut |_| {}).unwrap()
}

fn request(loaded: &Loaded, constraint: Constraint, seed: u64, max_tokens: usize) -> Request {
    Request {
        ids: loaded.text.tokenizer.encode_raw("Once upon a time").unwrap(),
        max_tokens: Some(max_tokens),
        // Hot enough that without the grammar nothing of it would come out.
        params: SamplingParams { temperature: 1.5, seed, ..SamplingParams::default() },
        stop_ids: loaded.text.stop_ids.clone(),
        logprobs: None,
        constraint: Some(constraint),
        cancel: Default::default(),
    }
}

/// The answers to several seeds; each must have ended by itself.
fn answers(loaded: &Loaded, grammar: Grammar, most: usize) -> Vec<String> {
    let ask = |seed| {
        let constraint = Constraint { grammar: grammar.clone(), after: None };
        loaded.engine.submit(request(loaded, constraint, seed, most)).unwrap()
    };
    let streams: Vec<_> = (0..6).map(ask).collect();
    let read = |stream| {
        let (mut ids, mut reason) = (Vec::new(), None);
        for event in stream {
            match event {
                Event::Token(token) => ids.push(token.id),
                Event::Done(done) => reason = Some(done.reason),
                Event::Failed(error) => panic!("{error}"),
                Event::Prefill { .. } => {}
            }
        }
        let text = loaded.text.tokenizer.decode(&ids);
        assert_eq!(reason, Some(StopReason::Stop), "{text}");
        text
    };
    streams.into_iter().map(read).collect()
}

#[test]
fn a_schema_gives_json_that_it_accepts() {
    let loaded = ember();
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"$ref": "#/$defs/word"},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "kind": {"enum": ["cat", "dog"]},
            "marks": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}
        },
        "$defs": {"word": {"type": "string", "maxLength": 12}},
        "required": ["name", "age", "kind", "marks"],
        "additionalProperties": false
    });
    for text in answers(&loaded, Grammar::JsonSchema(schema), 450) {
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(value["name"].as_str().unwrap().chars().count() <= 12, "{text}");
        assert!((0..=120).contains(&value["age"].as_i64().unwrap()), "{text}");
        assert!(["cat", "dog"].contains(&value["kind"].as_str().unwrap()), "{text}");
        let marks = value["marks"].as_array().unwrap();
        assert!((1..=3).contains(&marks.len()) && marks.iter().all(Value::is_boolean), "{text}");
        assert_eq!(value.as_object().unwrap().len(), 4);
    }
}

#[test]
fn a_regular_expression_and_a_choice_are_met_as_a_whole() {
    let loaded = ember();
    for text in answers(&loaded, Grammar::Regex(r"[a-z]{2,5}-[0-9]{3}".into()), 60) {
        let (word, number) = text.split_once('-').unwrap();
        assert!((2..=5).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase()), "{text}");
        assert!(number.len() == 3 && number.bytes().all(|b| b.is_ascii_digit()), "{text}");
    }
    let choice = ["yes", "no, \"never\"", "a\nb", "ja, natürlich <|im_end|>"];
    let given = answers(&loaded, Grammar::Choice(choice.map(String::from).to_vec()), 60);
    assert!(given.iter().all(|text| choice.contains(&text.as_str())), "{given:?}");
}

#[test]
fn a_lark_grammar_may_name_an_added_token() {
    let loaded = ember();
    let lark = "start: <tool_call> \"\\n\" call \"\\n\" </tool_call>\ncall: /[a-z]{1,8}/ \"(\" /[0-9]{1,4}/ \")\"";
    for text in answers(&loaded, Grammar::Lark(lark.into()), 60) {
        let call = text.strip_prefix("<tool_call>\n").and_then(|t| t.strip_suffix(")\n</tool_call>"));
        let (name, number) = call.unwrap_or_else(|| panic!("{text}")).split_once('(').unwrap();
        assert!((1..=8).contains(&name.len()) && (1..=4).contains(&number.len()), "{text}");
    }
}

#[test]
fn a_grammar_that_begins_later_leaves_what_comes_before_alone_but_lets_it_not_end() {
    let loaded = ember();
    // What every story has, in the place of the mark that ends the thinking.
    let end = loaded.text.tokenizer.encode_plain(".").unwrap()[0];
    let constraint = Constraint { grammar: Grammar::Choice(vec!["done".into()]), after: Some(end) };
    let mut asked = request(&loaded, constraint, 1, 400);
    asked.params.temperature = 0.8;
    let events: Vec<Event> = loaded.engine.submit(asked).unwrap().collect();
    let ids: Vec<u32> =
        events.iter().filter_map(|e| if let Event::Token(token) = e { Some(token.id) } else { None }).collect();
    let at = ids.iter().position(|&id| id == end).expect("a sentence ends");
    assert!(at > 0);
    assert_eq!(loaded.text.tokenizer.decode(&ids[at + 1..]), "done");
}

#[test]
fn what_cannot_be_enforced_is_refused_before_anything_runs() {
    let loaded = ember();
    let refused = |grammar: Grammar| {
        let constraint = Constraint { grammar, after: None };
        match loaded.engine.submit(request(&loaded, constraint, 0, 5)).err() {
            Some(Error::Invalid(message)) => message,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(Grammar::JsonSchema(json!({"type": "banana"}))).contains("JSON schema"));
    assert!(refused(Grammar::Regex("(".into())).contains("regular expression"));
    assert!(refused(Grammar::Lark("start: missing".into())).contains("Lark"));
    assert!(refused(Grammar::Choice(vec![])).contains("at least one"));
    assert_eq!(loaded.engine.status().totals.requests, 0);
}
