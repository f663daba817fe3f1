//! Anthropic's Messages API.
//!
//! Owns: the two handlers; one file for the request and one for the answer.
//! Always true: thinking happens only where it is asked for, as on Anthropic's servers.
//! Not here: what all APIs share (`wire`), the shape of errors (`error`).

pub(super) mod answer;
mod request;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::json;

use super::error::ApiError;
use super::openai::collect;
use super::{App, body, generate, stream};
use request::Asked;

/// `POST /v1/messages`.
pub async fn messages(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let object = body::json(&parts.headers, body, app.options.body_limit).await?;
    let loaded = app.loaded()?;
    let asked = Asked::read(&object, &app, &loaded, true)?;
    let frame = answer::Frame::new(asked.model);
    let updates = generate::start(&app, &loaded, asked.ask).await?;
    if asked.stream {
        return Ok(stream::respond(updates, answer::Events::new(frame)));
    }
    let answers = collect(updates, 1).await?;
    Ok(body::answer(&answers.first().map(|answer| frame.whole(answer))))
}

/// `POST /v1/messages/count_tokens`.
pub async fn count_tokens(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let object = body::json(&parts.headers, body, app.options.body_limit).await?;
    let loaded = app.loaded()?;
    let ask = Asked::read(&object, &app, &loaded, false)?.ask;
    let mut count = 0;
    for source in &ask.sources {
        count += ask.prompt(&loaded, source)?.ids.len();
    }
    Ok(body::answer(&json!({"input_tokens": count})))
}
