//! Answers whose form was asked for, over the wire: JSON, grammars, and calls of tools.

mod serve_support;

use serde_json::{Value, json};
use serve_support::{Server, chat, wait};

const CHAT: &str = "/v1/chat/completions";

fn tools(strict: bool) -> Value {
    let weather = json!({
        "type": "object",
        "properties": {
            "town": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "note": {"type": "string", "minLength": 3, "maxLength": 12},
            "code": {"type": ["string", "null"], "pattern": "^[A-Z]{2}/\\d+$", "maxLength": 6},
        },
        "required": ["town", "days", "note", "code"],
    });
    let list = json!({"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 3});
    let add = json!({"type": "object", "properties": {"list": list},
        "required": ["list"], "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}});
    json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": weather, "strict": strict}},
        {"type": "function", "function": {"name": "add", "parameters": add, "strict": strict}},
    ])
}

fn check_call(name: &str, arguments: &str) {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|e| panic!("{e}: {arguments}"));
    match name {
        "get_weather" => {
            assert!(arguments["town"].is_string(), "{arguments}");
            assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()), "{arguments}");
            assert!([Value::Null, json!("C"), json!("F")].contains(&arguments["unit"]), "{arguments}");
            assert!((3..=12).contains(&arguments["note"].as_str().unwrap().chars().count()), "{arguments}");
            if let Some(code) = arguments["code"].as_str() {
                let (letters, digits) = code.split_once('/').unwrap_or_else(|| panic!("{arguments}"));
                assert!(letters.len() == 2 && letters.bytes().all(|b| b.is_ascii_uppercase()), "{arguments}");
                assert!((1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()), "{arguments}");
            }
        }
        "add" => assert!(arguments["list"].as_array().unwrap().iter().all(Value::is_u64), "{arguments}"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_required_call_is_made_whatever_was_said_and_its_arguments_keep_the_schema() {
    let server = Server::start(&["--parallel", "2"]);
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "add"}})] {
        let more = json!({"tools": tools(false), "tool_choice": choice, "max_tokens": 900});
        let whole = server.post(CHAT, &chat("Tell me a story.", more.clone())).json();
        let message = &whole["choices"][0]["message"];
        assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls", "{whole}");
        assert!(message["content"].is_null(), "{whole}");
        let calls = message["tool_calls"].as_array().unwrap();
        for call in calls {
            let function = &call["function"];
            check_call(function["name"].as_str().unwrap(), function["arguments"].as_str().unwrap());
            assert!(!choice.is_object() || function["name"] == "add", "{call}");
        }

        // Streamed: id and name first, then the arguments in fragments that make the same text.
        let mut body = chat("Tell me a story.", more);
        body["stream"] = true.into();
        let events = server.post(CHAT, &body).events();
        let deltas = events.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"].get(0));
        let mut streamed: Vec<(String, String, usize)> = Vec::new();
        for delta in deltas {
            let at = delta["index"].as_u64().unwrap() as usize;
            if let Some(name) = delta["function"]["name"].as_str() {
                assert!(
                    delta["id"].as_str().is_some_and(|id| id.starts_with("call_")) && at == streamed.len(),
                    "{delta}"
                );
                streamed.push((name.to_string(), String::new(), 0));
            }
            streamed[at].1 += delta["function"]["arguments"].as_str().unwrap();
            streamed[at].2 += 1;
        }
        assert_eq!(streamed.len(), calls.len());
        for ((name, arguments, fragments), call) in streamed.iter().zip(calls) {
            assert_eq!((&call["function"]["name"], &call["function"]["arguments"]), (&json!(name), &json!(arguments)));
            assert!(*fragments > 2, "arguments come as they are written");
        }
    }
}

#[test]
fn no_call_is_made_where_none_may_be_and_one_where_one_may() {
    let server = Server::start(&[]);
    let weather = json!([{"type": "function", "function": {"name": "get_weather", "description": "Get the weather",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}}}]);
    let ask = |more: Value| {
        let mut body = chat("What is the weather in Paris?", json!({"tools": weather, "max_tokens": 80}));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post(CHAT, &body).json()["choices"][0].clone()
    };
    let free = ask(json!({}));
    assert_eq!(free["finish_reason"], "tool_calls", "ember calls by itself here: {free}");
    let none = ask(json!({"tool_choice": "none"}));
    assert!(none["message"]["tool_calls"].is_null() && none["finish_reason"] != "tool_calls", "{none}");
    let one = ask(json!({"tool_choice": "required", "parallel_tool_calls": false, "reasoning_effort": "none"}));
    assert_eq!(one["message"]["tool_calls"].as_array().map(Vec::len), Some(1), "{one}");
    assert_eq!(one["finish_reason"], "tool_calls", "{one}");
}

#[test]
fn content_keeps_the_form_that_was_asked_for_with_and_without_thinking() {
    let server = Server::start(&["--parallel", "2"]);
    let age = json!({"type": "integer", "minimum": 0, "maximum": 99});
    let name = json!({"type": "string", "minLength": 4, "maxLength": 9});
    let code = json!({"type": "string", "pattern": "^[a-z]{2}-[0-9]{3}$"});
    let schema = json!({"type": "object", "properties": {"name": name, "age": age, "code": code},
        "required": ["name", "age", "code"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema}});
    for effort in ["none", "low"] {
        let content = |more: Value| {
            let mut body = chat("Who is there?", json!({"max_tokens": 900, "reasoning_effort": effort}));
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let answer = server.post(CHAT, &body);
            let choice = answer.json()["choices"][0].clone();
            assert_eq!(choice["finish_reason"], "stop", "{}", answer.text());
            assert_eq!(choice["message"]["reasoning_content"].is_string(), effort != "none", "{choice}");
            choice["message"]["content"].as_str().unwrap().to_string()
        };
        let person: Value = serde_json::from_str(&content(json!({"response_format": format}))).unwrap();
        assert!((4..=9).contains(&person["name"].as_str().unwrap().chars().count()), "{person}");
        assert!(person["age"].as_i64().is_some_and(|age| age < 100), "{person}");
        let (letters, digits) = person["code"].as_str().unwrap().split_once('-').unwrap();
        assert!(letters.len() == 2 && letters.bytes().all(|b| b.is_ascii_lowercase()), "{person}");
        assert!(digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit()), "{person}");
        let choice = content(json!({"structured_outputs": {"choice": ["red", "green"]}}));
        assert!(["red", "green"].contains(&choice.as_str()), "{choice}");
        let regex = content(json!({"structured_outputs": {"regex": "[0-9]{4}-[0-9]{2}"}}));
        assert!(regex.len() == 7 && regex.chars().all(|c| c.is_ascii_digit() || c == '-'), "{regex}");
        let lark = content(json!({"structured_outputs": {"grammar": "start: \"a\" \"b\"? \"c\""}}));
        assert!(["abc", "ac"].contains(&lark.as_str()), "{lark}");
    }
    let input = json!({"input": "Who?", "max_output_tokens": 900, "temperature": 0, "reasoning": {"effort": "none"},
        "text": {"format": {"type": "json_schema", "name": "person", "schema": schema}}});
    let response = server.post("/v1/responses", &input).json();
    let text = response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"));
    assert!(serde_json::from_str::<Value>(text).unwrap()["age"].is_i64(), "{text}");
}

#[test]
fn a_form_that_cannot_be_enforced_is_a_400_that_names_it() {
    let server = Server::start(&[]);
    let schema = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}});
    for (more, param) in [
        (schema(json!({"type": "nothing"})), "response_format"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format"),
        (schema(json!({"type": "string", "pattern": "("})), "response_format"),
        (schema(json!({"type": "string", "maxLength": -1})), "response_format"),
        (
            json!({"tools": json!([{"type": "function", "function": {"name": "f", "strict": true, "parameters":
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}}}])}),
            "tools",
        ),
        (json!({"structured_outputs": {"regex": "("}}), "response_format"),
        (json!({"structured_outputs": {"grammar": "start: nowhere"}}), "response_format"),
        (json!({"structured_outputs": {}}), "structured_outputs"),
        (json!({"structured_outputs": {"json": 3}}), "structured_outputs.json"),
    ] {
        let answer = server.post(CHAT, &chat("Hello!", more.clone()));
        assert_eq!(
            (answer.status, &answer.json()["error"]["param"]),
            (400, &json!(param)),
            "{more}: {}",
            answer.text()
        );
    }
    assert_eq!(server.post(CHAT, &chat("Hello!", json!({"max_tokens": 1}))).status, 200);
}

#[test]
fn a_texts_limits_hold_where_the_model_would_go_on_or_end_at_once() {
    let server = Server::start(&[]);
    let token = |text: &str| server.post("/tokenize", &json!({"content": text})).json()["tokens"][0].to_string();
    // One would never end its text, the other would end it at once.
    for (bias, lengths) in [(json!({token("e"): 50}), 7..=7), (json!({token("\n"): 50, token("\""): 50}), 3..=7)] {
        let text = json!({"type": "string", "minLength": 3, "maxLength": 7});
        let object = json!({"type": "object", "properties": {"text": text}, "required": ["text"],
            "additionalProperties": false});
        let say = json!([{"type": "function", "function": {"name": "say", "parameters": object}}]);
        let common = json!({"logit_bias": bias, "max_tokens": 300, "reasoning_effort": "none"});
        let ask = |more: Value| {
            let mut body = chat("Hello!", common.clone());
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            server.post(CHAT, &body).json()["choices"][0].clone()
        };
        let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": object}});
        let formed = ask(json!({"response_format": format}));
        let content: Value = serde_json::from_str(formed["message"]["content"].as_str().unwrap()).unwrap();
        assert!(lengths.contains(&content["text"].as_str().unwrap().chars().count()), "{formed}");
        let called = ask(json!({"tools": say, "tool_choice": "required", "parallel_tool_calls": false}));
        let arguments = called["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert!(lengths.contains(&arguments["text"].as_str().unwrap().chars().count()), "{called}");
    }
    // Bounds that no answer reaches cost nothing.
    let text = json!({"type": "string", "minLength": 1, "maxLength": 100_000});
    let object = json!({"type": "object", "properties": {"text": text}, "required": ["text"]});
    let say = json!([{"type": "function", "function": {"name": "say", "parameters": object}}]);
    let body = chat("Hello!", json!({"tools": say, "tool_choice": "required", "max_tokens": 3}));
    assert_eq!(server.post(CHAT, &body).status, 200);
}

#[test]
fn strict_tools_are_enforced_without_being_required() {
    let server = Server::start(&[]);
    for seed in 0..3 {
        let more = json!({"tools": tools(true), "seed": seed, "temperature": 1.0, "max_tokens": 400});
        let whole = server.post(CHAT, &chat("What is the weather in Paris?", more)).json();
        for call in whole["choices"][0]["message"]["tool_calls"].as_array().into_iter().flatten() {
            check_call(call["function"]["name"].as_str().unwrap(), call["function"]["arguments"].as_str().unwrap());
        }
    }
}

#[test]
fn the_second_turn_says_how_much_of_it_was_known() {
    let server = Server::start(&[]);
    let mut body = chat("Tell me a story about a mouse and a fox.", json!({"max_tokens": 12}));
    let first = server.post(CHAT, &body).json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let message = first["choices"][0]["message"].clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([message, json!({"role": "user", "content": "And then?"})]);
    body["stream"] = true.into();
    body["return_progress"] = true.into();
    let events = server.post(CHAT, &body).events();
    let progress = events.iter().find_map(|event| event.get("prompt_progress")).unwrap();
    assert!(
        progress["cache"].as_u64().unwrap() > 20 && progress["total"].as_u64() > progress["cache"].as_u64(),
        "{progress}"
    );
    let timings = events.iter().find_map(|event| event.get("timings")).unwrap();
    assert_eq!(timings["cache_n"], progress["cache"]);

    // A prompt that departs says where.
    let other = chat("Tell me a story about a mouse and a bear.", json!({"max_tokens": 1}));
    let ids = |messages: &Value| {
        server.post("/tokenize", &json!({"messages": messages})).json()["tokens"].as_array().unwrap().clone()
    };
    let (known, new) = (ids(&json!([body["messages"][0]])), ids(&other["messages"]));
    let at = known.iter().zip(&new).position(|(before, now)| before != now).unwrap();
    server.post(CHAT, &other);
    let line = format!("the prompt differs from what is known at token {at}: id {}, not {}", new[at], known[at]);
    wait("the log says so", || server.log().contains(&line));
}
