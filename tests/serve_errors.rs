//! Every bad input has its status, its shape and its field, and the next request succeeds.

mod serve_support;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use serve_support::{Answer, Server, chat};

const CHAT: &str = "/v1/chat/completions";
const LOGPROBS: &str = "message.output_text.logprobs";

/// OpenAI's shape, whole.
fn check_shape(answer: &Answer, what: &str) {
    let body = answer.json();
    let error = body["error"].as_object().unwrap_or_else(|| panic!("{what}: {body}"));
    assert!(error["message"].as_str().is_some_and(|m| m.len() > 10), "{what}: {body}");
    assert!(error["type"].is_string() && error.contains_key("param") && error["code"].is_string(), "{what}: {body}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
}

fn works(server: &Server) {
    let answer = server.post(CHAT, &chat("Hello!", json!({"max_tokens": 1})));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A chat with one field changed, at a path into the body.
fn with(pointer: &str, value: Value) -> Value {
    let mut body = chat("Hello!", json!({"max_tokens": 2}));
    match pointer.strip_prefix('/').filter(|name| !name.contains('/')) {
        Some(name) => body[name] = value,
        None => *body.pointer_mut(pointer).unwrap() = value,
    }
    body
}

#[test]
fn every_bad_field_of_a_chat_is_a_400_that_names_it() {
    let server = Server::start(&[]);
    let tool = |function: Value| json!([{"type": "function", "function": function}]);
    let said = |message: Value| json!([message, {"role": "user", "content": "?"}]);
    for (pointer, value, param) in [
        ("/messages", json!("hello"), "messages"),
        ("/messages", json!([]), "messages"),
        ("/messages", json!([{"content": "x"}]), "messages[0].role"),
        ("/messages", json!([{"role": "user", "content": 3}]), "messages[0].content"),
        ("/messages", json!([{"role": "user"}]), "messages[0].content"),
        ("/messages", json!([{"role": "robot", "content": "x"}]), "messages[0].role"),
        ("/messages", json!([{"role": "assistant", "content": "x"}]), "messages"),
        ("/messages", said(json!({"role": "user", "content": [{"type": "image_url"}]})), "messages[0].content[0]"),
        ("/messages", said(json!({"role": "tool", "content": "x"})), "messages[0].tool_call_id"),
        ("/messages", json!([{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]), "messages"),
        (
            "/messages",
            said(json!({"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
                "function": {"name": "f", "arguments": "{"}}]})),
            "messages[0].tool_calls[0].function.arguments",
        ),
        ("/temperature", json!(-1), "temperature"),
        ("/temperature", json!("hot"), "temperature"),
        ("/top_p", json!(1.1), "top_p"),
        ("/top_k", json!(-5), "top_k"),
        ("/min_p", json!(2), "min_p"),
        ("/presence_penalty", json!(5), "presence_penalty"),
        ("/frequency_penalty", json!(-5), "frequency_penalty"),
        ("/repetition_penalty", json!(0), "repetition_penalty"),
        ("/logit_bias", json!({"99999999": 1}), "logit_bias"),
        ("/logit_bias", json!({"x": 1}), "logit_bias"),
        ("/max_tokens", json!(0), "max_tokens"),
        ("/max_tokens", json!(1.5), "max_tokens"),
        ("/max_completion_tokens", json!(-1), "max_completion_tokens"),
        ("/n", json!(0), "n"),
        ("/n", json!(1000), "n"),
        ("/seed", json!("x"), "seed"),
        ("/stop", json!(""), "stop"),
        ("/stop", json!([1]), "stop"),
        ("/top_logprobs", json!(21), "top_logprobs"),
        ("/top_logprobs", json!(3), "top_logprobs"),
        ("/logprobs", json!(3), "logprobs"),
        ("/stream", json!("yes"), "stream"),
        ("/stream_options", json!({"include_usage": true}), "stream_options"),
        ("/tools", tool(json!({"name": "no blanks"})), "tools[0].function.name"),
        ("/tools", tool(json!({"name": "f", "parameters": []})), "tools[0].function.parameters"),
        ("/tools", json!([{"type": "web_search"}]), "tools[0].type"),
        ("/tool_choice", json!("sometimes"), "tool_choice"),
        ("/tool_choice", json!("required"), "tool_choice"),
        ("/tool_choice", json!({"type": "function", "function": {"name": "g"}}), "tool_choice"),
        ("/reasoning_effort", json!("hard"), "reasoning_effort"),
        ("/chat_template_kwargs", json!({"reasoning_effort": "x"}), "chat_template_kwargs.reasoning_effort"),
        ("/response_format", json!({"type": "yaml"}), "response_format"),
        ("/functions", json!([{}]), "functions"),
        ("/function_call", json!("auto"), "function_call"),
        ("/audio", json!({"voice": "x"}), "audio"),
        ("/modalities", json!(["audio"]), "modalities"),
        ("/prediction", json!({"type": "content"}), "prediction"),
        ("/store", json!(true), "store"),
        ("/web_search_options", json!({}), "web_search_options"),
    ] {
        let what = format!("{pointer} = {value}");
        let answer = server.post(CHAT, &with(pointer, value));
        assert_eq!(answer.status, 400, "{what}: {}", answer.text());
        check_shape(&answer, &what);
        assert_eq!(answer.json()["error"]["param"], param, "{what}: {}", answer.text());
    }
    works(&server);
}

#[test]
fn what_is_wrong_with_a_request_as_a_whole_has_its_status() {
    let server = Server::start(&["--body-limit", "4k"]);
    let typed = [("content-type", "application/json")];
    let long = chat(&"mouse ".repeat(500), json!({}));
    for (method, path, headers, body, status) in [
        ("POST", "/v1/nothing", &typed[..], "{}", 404),
        ("GET", "/v1", &[], "", 404),
        ("GET", CHAT, &[], "", 405),
        ("POST", "/v1/models", &typed, "{}", 405),
        ("DELETE", "/health", &[], "", 405),
        ("POST", CHAT, &[("content-type", "text/plain")], "{}", 415),
        ("POST", CHAT, &[], "{}", 415),
        ("POST", CHAT, &typed, "{", 400),
        ("POST", CHAT, &typed, "[]", 400),
        ("POST", CHAT, &typed, "", 400),
        ("POST", CHAT, &typed, &"[".repeat(4000), 400),
        ("POST", CHAT, &typed, &"x".repeat(5000), 413),
        ("POST", CHAT, &[typed[0], ("content-length", "99999999999")], "{}", 413),
        ("POST", "/v1/embeddings", &typed, "{}", 501),
        ("GET", "/v1/models/gpt-4", &[], "", 404),
        ("GET", "/v1/models/%FF", &[], "", 404),
    ] {
        let answer = server.request(method, path, headers, body.as_bytes());
        let what = format!("{method} {path} {headers:?}");
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        check_shape(&answer, &what);
    }
    assert_eq!(server.get(CHAT).header("allow"), Some("POST"));
    let unknown = server.post(CHAT, &with("/model", json!("gpt-4")));
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(unknown.json()["error"]["param"], "model");
    assert_eq!(server.post(CHAT, &long).status, 200, "within the limit of bytes");
    works(&server);
}

#[test]
fn a_prompt_that_cannot_fit_says_by_how_much_and_is_never_cut() {
    let server = Server::start(&["-c", "256"]);
    let long = chat(&"mouse ".repeat(400), json!({}));
    for path in [CHAT, "/v1/messages"] {
        let answer = server.post(path, &long);
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["n_ctx"]), (400, &json!(256)), "{error}");
        assert!(error["n_prompt_tokens"].as_u64().unwrap() > 400, "{error}");
    }
    assert_eq!(server.post(CHAT, &long).json()["error"]["code"], "context_length_exceeded");
    works(&server);
}

#[test]
fn other_apis_name_their_fields_too() {
    let server = Server::start(&[]);
    for (path, body, param) in [
        ("/v1/completions", json!({}), "prompt"),
        ("/v1/completions", json!({"prompt": {}}), "prompt"),
        ("/v1/completions", json!({"prompt": []}), "prompt"),
        ("/v1/completions", json!({"prompt": [99999999]}), "prompt"),
        ("/v1/completions", json!({"prompt": "a", "suffix": "b"}), "suffix"),
        ("/v1/completions", json!({"prompt": "a", "best_of": 3}), "best_of"),
        ("/v1/completions", json!({"prompt": "a", "logprobs": 99}), "logprobs"),
        ("/v1/completions", json!({"prompt": vec!["a"; 9], "n": 2}), "prompt"),
        ("/v1/responses", json!({}), "input"),
        ("/v1/responses", json!({"input": "a", "previous_response_id": "resp_1"}), "previous_response_id"),
        ("/v1/responses", json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0]"),
        ("/v1/responses", json!({"input": "a", "max_output_tokens": 0}), "max_output_tokens"),
        ("/v1/responses", json!({"input": "a", "store": true}), "store"),
        ("/v1/responses", json!({"input": "a", "include": ["file_search_call.results"]}), "include"),
        ("/v1/responses", json!({"input": "a", "top_logprobs": 2}), "top_logprobs"),
        ("/v1/responses", json!({"input": "a", "include": [LOGPROBS], "top_logprobs": 21}), "top_logprobs"),
        ("/tokenize", json!({}), "content"),
        ("/detokenize", json!({"tokens": [99999999]}), "tokens[0]"),
        ("/apply-template", json!({"messages": []}), "messages"),
    ] {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text());
        check_shape(&answer, path);
        assert_eq!(answer.json()["error"]["param"], param, "{path} {body}: {}", answer.text());
    }
    let user = json!([{"role": "user", "content": "a"}]);
    for (body, field) in [
        (json!({"model": "ember", "messages": user}), "max_tokens"),
        (json!({"messages": user, "max_tokens": 1}), "model"),
        (json!({"model": "ember", "messages": [], "max_tokens": 1}), "messages"),
        (
            json!({"model": "ember", "messages": [{"role": "system", "content": "a"}], "max_tokens": 1}),
            "messages[0].role",
        ),
        (json!({"model": "ember", "messages": user, "max_tokens": 1, "thinking": {"type": "maybe"}}), "thinking.type"),
        (json!({"model": "ember", "messages": user, "max_tokens": 1, "temperature": -1}), "temperature"),
    ] {
        let answer = server.post("/v1/messages", &body);
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["type"], &told["error"]["type"]),
            (400, &json!("error"), &json!("invalid_request_error"))
        );
        assert!(told["error"]["message"].as_str().unwrap().starts_with(field), "{told}");
    }
    works(&server);
}

/// Any JSON, of a depth and width that a confused client might send.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("<|im_start|>")),
        Just(json!("user")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,12}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

#[test]
fn two_hundred_strange_bodies_break_nothing() {
    let server = Server::start(&[]);
    let fields = [
        "messages",
        "model",
        "temperature",
        "stop",
        "tools",
        "tool_choice",
        "n",
        "seed",
        "logit_bias",
        "max_tokens",
        "response_format",
        "stream_options",
        "reasoning_effort",
        "chat_template_kwargs",
        "prompt",
        "input",
        "system",
        "thinking",
        "top_logprobs",
        "parallel_tool_calls",
    ];
    let paths = [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize", "/apply-template"];
    let mut runner = TestRunner::deterministic();
    let strange = (any_json(), 0..fields.len(), 0..paths.len());
    for _ in 0..200 {
        let (value, field, path) = strange.new_tree(&mut runner).unwrap().current();
        let mut body = chat("Hello!", json!({"max_tokens": 1}));
        body["prompt"] = json!("a");
        body["input"] = json!("a");
        body[fields[field]] = value;
        let answer = server.post(paths[path], &body);
        assert!([200, 400, 404].contains(&answer.status), "{} {body}: {}", paths[path], answer.text());
        if answer.status != 200 {
            assert!(answer.json()["error"]["message"].is_string(), "{body}: {}", answer.text());
        }
    }
    works(&server);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
