//! async-openai, the Rust client that nobody here wrote, against a running server: async-openai-client URL.
//!
//! Owns: one check a feature of the client; the process fails with the first that does not hold.
//! Always true: answers are read through the client's own types, which refuse what they do not expect.
//! Not here: starting the server (tests/serve_clients.rs).

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionMessageToolCalls, CreateChatCompletionRequest, CreateChatCompletionResponse, FinishReason,
};
use async_openai::types::completions::CreateCompletionRequest;
use async_openai::types::responses::{CreateResponse, OutputItem, ResponseStreamEvent, ResponseUsage};
use futures::StreamExt;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const WEATHER: &str = "What is the weather in Paris?";

fn town() -> Value {
    json!({"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]})
}

/// A greedy chat, through the client's own request type.
fn chat(more: Value) -> CreateChatCompletionRequest {
    let user = json!([{"role": "user", "content": WEATHER}]);
    let mut body = json!({"model": "ember", "messages": user, "temperature": 0, "max_completion_tokens": 40});
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    serde_json::from_value(body).expect("the client knows these fields")
}

fn content(answer: &CreateChatCompletionResponse) -> &str {
    answer.choices[0].message.content.as_deref().unwrap_or_default()
}

async fn models(client: &Client<OpenAIConfig>) -> Result<()> {
    let names: Vec<String> = client.models().list().await?.data.into_iter().map(|model| model.id).collect();
    assert_eq!(names, ["ember"]);
    assert_eq!(client.models().retrieve("ember").await?.owned_by, "hipfire");
    Ok(())
}

async fn chats(client: &Client<OpenAIConfig>) -> Result<()> {
    let plain = json!({"reasoning_effort": "none"});
    let whole = client.chat().create(chat(plain.clone())).await?;
    let usage = whole.usage.clone().expect("counts");
    assert_eq!(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert!(!content(&whole).is_empty());

    let mut streamed = plain;
    streamed["stream_options"] = json!({"include_usage": true});
    let mut chunks = client.chat().create_stream(chat(streamed)).await?;
    let (mut text, mut counted, mut finish) = (String::new(), None, None);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        counted = chunk.usage.or(counted);
        for choice in chunk.choices {
            text += choice.delta.content.as_deref().unwrap_or_default();
            finish = choice.finish_reason.or(finish);
        }
    }
    assert_eq!((text.as_str(), finish), (content(&whole), whole.choices[0].finish_reason));
    assert_eq!(counted.expect("counts at the end").completion_tokens, usage.completion_tokens);

    let scored = json!({"reasoning_effort": "none", "logprobs": true, "top_logprobs": 3});
    let scored = client.chat().create(chat(scored)).await?;
    let tokens = scored.choices[0].logprobs.clone().and_then(|logprobs| logprobs.content).expect("log-probabilities");
    let text: String = tokens.iter().map(|token| token.token.as_str()).collect();
    assert_eq!(text.trim(), content(&scored).trim());
    assert!(tokens.iter().all(|token| token.logprob <= 0.0 && token.top_logprobs.len() == 3));
    Ok(())
}

async fn tools(client: &Client<OpenAIConfig>) -> Result<()> {
    let function = json!({"name": "get_weather", "description": "Get the weather", "parameters": town()});
    let tools = json!([{"type": "function", "function": function}]);
    let asked = json!({"tools": tools, "max_completion_tokens": 80});
    let called = client.chat().create(chat(asked.clone())).await?;
    let choice = &called.choices[0];
    assert_eq!(choice.finish_reason, Some(FinishReason::ToolCalls));
    let Some([ChatCompletionMessageToolCalls::Function(call)]) = choice.message.tool_calls.as_deref() else {
        panic!("one call was expected: {choice:?}");
    };
    assert_eq!(call.function.name, "get_weather");
    assert_eq!(serde_json::from_str::<Value>(&call.function.arguments)?, json!({"town": "Paris"}));

    let mut chunks = client.chat().create_stream(chat(asked)).await?;
    let (mut name, mut arguments, mut fragments) = (String::new(), String::new(), 0);
    while let Some(chunk) = chunks.next().await {
        for call in chunk?.choices.into_iter().filter_map(|choice| choice.delta.tool_calls).flatten() {
            let function = call.function.expect("a function");
            name += function.name.as_deref().unwrap_or_default();
            arguments += function.arguments.as_deref().unwrap_or_default();
            fragments += 1;
        }
    }
    assert_eq!((name.as_str(), &arguments), ("get_weather", &call.function.arguments));
    assert!(fragments > 2, "arguments come as they are generated");

    let history = json!({"tools": tools, "messages": [
        {"role": "user", "content": WEATHER},
        {"role": "assistant", "tool_calls": [call_value(call)]},
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]});
    assert_eq!(client.chat().create(chat(history)).await?.choices.len(), 1);
    Ok(())
}

fn call_value(call: &async_openai::types::chat::ChatCompletionMessageToolCall) -> Value {
    let function = json!({"name": call.function.name, "arguments": call.function.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

async fn forms(client: &Client<OpenAIConfig>) -> Result<()> {
    let name = json!({"type": "string", "maxLength": 20});
    let age = json!({"type": "integer", "minimum": 0, "maximum": 99});
    let schema = json!({"type": "object", "properties": {"name": name, "age": age}, "required": ["name", "age"],
        "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": true}});
    let formed = client.chat().create(chat(json!({"response_format": format, "max_completion_tokens": 600}))).await?;
    let person: Value = serde_json::from_str(content(&formed))?;
    assert!(person["name"].as_str().is_some_and(|name| name.chars().count() <= 20), "{person}");
    assert!(person["age"].as_u64().is_some_and(|age| age < 100), "{person}");
    Ok(())
}

async fn completions(client: &Client<OpenAIConfig>) -> Result<()> {
    let asked = || -> CreateCompletionRequest {
        let body = json!({"model": "ember", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0,
            "logprobs": 2, "stop": ["."]});
        serde_json::from_value(body).expect("the client knows these fields")
    };
    let whole = client.completions().create(asked()).await?;
    let text = &whole.choices[0].text;
    assert!(!text.is_empty() && !text.contains('.'));
    assert!(whole.choices[0].logprobs.as_ref().is_some_and(|logprobs| !logprobs.tokens.is_empty()));
    let mut chunks = client.completions().create_stream(asked()).await?;
    let mut streamed = String::new();
    while let Some(chunk) = chunks.next().await {
        streamed.extend(chunk?.choices.into_iter().map(|choice| choice.text));
    }
    assert_eq!(&streamed, text);
    Ok(())
}

async fn responses(client: &Client<OpenAIConfig>) -> Result<()> {
    let asked = |more: Value| -> CreateResponse {
        let mut body = json!({"model": "ember", "input": "What is 3 + 4?", "max_output_tokens": 400, "temperature": 0});
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        serde_json::from_value(body).expect("the client knows these fields")
    };
    let scored = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2});
    let whole = client.responses().create(asked(scored.clone())).await?;
    let text = whole.output_text().expect("a text");
    let mut events = client.responses().create_stream(asked(scored)).await?;
    let (mut streamed, mut tokens, mut last) = (String::new(), 0, None);
    while let Some(event) = events.next().await {
        match event? {
            ResponseStreamEvent::ResponseOutputTextDelta(delta) => {
                streamed += &delta.delta;
                tokens += delta.logprobs.map_or(0, |list| list.len());
            }
            ResponseStreamEvent::ResponseCompleted(event) => last = Some(event.response),
            _ => {}
        }
    }
    let last = last.expect("the whole response at the end");
    assert_eq!((&streamed, &last.output_text()), (&text, &Some(text.clone())));
    let counted = |usage: Option<ResponseUsage>| usage.expect("counts").output_tokens;
    assert!(tokens > 0 && counted(last.usage) == counted(whole.usage));

    let tool = json!({"type": "function", "name": "get_weather", "parameters": town(), "strict": false});
    let called = client.responses().create(asked(json!({"input": WEATHER, "tools": [tool]}))).await?;
    let call = called.output.iter().find_map(|item| match item {
        OutputItem::FunctionCall(call) => Some(call),
        _ => None,
    });
    assert_eq!(call.expect("a call").name, "get_weather");
    Ok(())
}

/// Errors are the client's own, with the field at fault.
async fn errors(client: &Client<OpenAIConfig>) -> Result<()> {
    for (more, status, param) in [
        (json!({"temperature": -1}), 400, "temperature"),
        (json!({"messages": []}), 400, "messages"),
        (json!({"model": "gpt-4"}), 404, "model"),
    ] {
        match client.chat().create(chat(more)).await {
            Err(OpenAIError::ApiError(told)) => {
                assert_eq!((told.status_code.as_u16(), told.api_error.param.as_deref()), (status, Some(param)));
            }
            other => panic!("an error for {param} was expected: {other:?}"),
        }
    }
    // A stream that is given up leaves the server free for the next request.
    let mut chunks = client.chat().create_stream(chat(json!({"max_completion_tokens": 1500}))).await?;
    chunks.next().await.expect("a chunk")?;
    drop(chunks);
    assert_eq!(client.chat().create(chat(json!({"max_completion_tokens": 1}))).await?.choices.len(), 1);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("give the server's URL")?;
    let config = OpenAIConfig::new().with_api_base(format!("{url}/v1")).with_api_key("unused");
    let client = Client::with_config(config);
    models(&client).await?;
    chats(&client).await?;
    tools(&client).await?;
    forms(&client).await?;
    completions(&client).await?;
    responses(&client).await?;
    errors(&client).await?;
    println!("async-openai: fine");
    Ok(())
}
