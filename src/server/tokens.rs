//! Between text and ids, for clients that count.
//!
//! Owns: `/tokenize`, `/detokenize` and `/apply-template`, in llama.cpp's and vLLM's spellings.
//! Always true: what is counted here is what a generation with the same messages reads.
//! Not here: the tokenizer and the template (`text`).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::Fields;
use super::error::ApiError;
use super::wire::Source;
use super::{App, body, openai};
use crate::engine::Loaded;

#[derive(Debug, Deserialize)]
struct Tokenize {
    /// llama.cpp's name, and vLLM's.
    #[serde(alias = "prompt")]
    content: Option<String>,
    messages: Option<Value>,
    /// Whether text that looks like an added token is one; yes, as in llama.cpp.
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Detokenize {
    tokens: Vec<u32>,
}

/// `POST /tokenize`.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (object, loaded) = read(&app, request).await?;
    let asked: Tokenize = Fields::of(&object).read()?;
    let tokenizer = &loaded.text.tokenizer;
    let ids = match (&asked.content, &asked.messages) {
        (Some(text), None) if asked.parse_special == Some(false) => tokenizer.encode_plain(text)?,
        (Some(text), None) => tokenizer.encode_raw(text)?,
        (None, Some(_)) => {
            let ask = openai::conversation(&object, &app, &loaded)?;
            let mut ids = Vec::new();
            for source in &ask.sources {
                ids.extend(ask.prompt(&loaded, source)?.ids);
            }
            ids
        }
        _ => return Err(ApiError::field("content", "give either a content (or prompt) or messages")),
    };
    let tokens: Value = match asked.with_pieces {
        Some(true) => ids.iter().map(|&id| json!({"id": id, "piece": piece(tokenizer.bytes(id))})).collect(),
        _ => json!(ids),
    };
    Ok(body::answer(&json!({"tokens": tokens, "count": ids.len(), "max_model_len": loaded.engine.context()})))
}

/// A token's text, or its bytes where they are none.
fn piece(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
}

/// `POST /detokenize`.
pub async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (object, loaded) = read(&app, request).await?;
    let asked: Detokenize = Fields::of(&object).read()?;
    let tokenizer = &loaded.text.tokenizer;
    let vocabulary = loaded.engine.vocab();
    if let Some(at) = asked.tokens.iter().position(|&id| id as usize >= vocabulary) {
        let message = format!("the id {} is not in the vocabulary of {vocabulary}", asked.tokens[at]);
        return Err(ApiError::field(format!("tokens[{at}]"), message));
    }
    let bytes: Vec<u8> = asked.tokens.iter().flat_map(|&id| tokenizer.bytes(id)).copied().collect();
    let text = String::from_utf8_lossy(&bytes);
    Ok(body::answer(&json!({"content": text, "prompt": text})))
}

/// `POST /apply-template`: the prompt of a chat request, as text.
pub async fn apply_template(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (object, loaded) = read(&app, request).await?;
    let ask = openai::conversation(&object, &app, &loaded)?;
    let mut prompt = String::new();
    for source in &ask.sources {
        if let Source::Chat(conversation) = source {
            let rendered = loaded.text.render(conversation).map_err(ApiError::from);
            prompt += &rendered.map_err(|error| error.blame("messages"))?.text();
        }
    }
    Ok(body::answer(&json!({"prompt": prompt})))
}

async fn read(app: &App, request: Request) -> Result<(Value, Arc<Loaded>), ApiError> {
    let (parts, body) = request.into_parts();
    let object = body::json(&parts.headers, body, app.options.body_limit).await?;
    Ok((object, app.loaded()?))
}
