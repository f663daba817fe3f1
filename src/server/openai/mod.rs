//! OpenAI's chat and text completions.
//!
//! Owns: the two handlers; one file a request and one an answer.
//! Always true: a streamed answer, put together, is the answer that is not streamed.
//! Not here: what all APIs share (`wire`), the Responses API.

mod chat;
mod chat_answer;
mod completion;
mod completion_answer;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use super::App;
use super::error::ApiError;
use super::stream::{self, Frame as Sse};
use super::wire::Ask;
use super::wire::answer::Answer;
use super::{body, generate};
use crate::engine::{Loaded, StopReason, TextEvent};
use crate::error::Error;

/// `POST /v1/chat/completions`.
pub async fn chat(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let object = body::json(&parts.headers, body, app.options.body_limit).await?;
    let loaded = app.loaded()?;
    let asked = chat::Asked::read(&object, &app, &loaded)?;
    let frame = chat_answer::Frame::new(&app, &loaded, &asked);
    let updates = generate::start(&app, &loaded, asked.ask).await?;
    match asked.stream {
        true => Ok(stream::respond(updates, chat_answer::Chunks::new(frame))),
        false => Ok(body::answer(&frame.whole(&collect(updates, asked.choices).await?))),
    }
}

/// `POST /v1/completions`.
pub async fn completion(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let object = body::json(&parts.headers, body, app.options.body_limit).await?;
    let loaded = app.loaded()?;
    let asked = completion::Asked::read(&object, &app, &loaded)?;
    let frame = completion_answer::Frame::new(&loaded, &asked);
    let updates = generate::start(&app, &loaded, asked.ask).await?;
    match asked.stream {
        true => Ok(stream::respond(updates, completion_answer::Chunks::new(frame))),
        false => Ok(body::answer(&frame.whole(&collect(updates, asked.choices).await?))),
    }
}

/// What a chat request asks for, for routes that only count or render.
pub fn conversation(object: &Value, app: &App, loaded: &Loaded) -> Result<Ask, ApiError> {
    Ok(chat::Asked::read(object, app, loaded)?.ask)
}

/// All answers, whole.
pub async fn collect(mut updates: generate::Updates, choices: usize) -> Result<Vec<Answer>, ApiError> {
    let mut answers: Vec<Answer> = (0..choices).map(|_| Answer::default()).collect();
    while let Some((choice, event)) = updates.next().await {
        match event {
            TextEvent::Failed(error) => return Err(error.into()),
            TextEvent::Done(done) if done.reason == StopReason::Cancelled => return Err(Error::Cancelled.into()),
            event => answers[choice].push(event),
        }
    }
    Ok(answers)
}

/// The end of a stream: the chunk with its counts, if they were asked for, then `[DONE]`.
fn closing(counts: Option<Value>) -> Vec<Sse> {
    let counts = counts.iter().map(Sse::data);
    counts.chain([Sse { event: None, data: "[DONE]".into() }]).collect()
}
