//! OpenAI's Responses API, without a memory: every request brings its whole history.
//!
//! Owns: the handler; one file for the request, one for the response object and one for its events.
//! Always true: nothing of an answer is kept; a field that would need it is refused by name.
//! Not here: what all APIs share (`wire`).

pub(super) mod answer;
pub(super) mod events;
mod request;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::error::ApiError;
use super::openai::collect;
use super::{App, body, generate, stream};

/// `POST /v1/responses`.
pub async fn responses(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let object = body::json(&parts.headers, body, app.options.body_limit).await?;
    let loaded = app.loaded()?;
    let asked = request::Asked::read(&object, &app, &loaded)?;
    let params = &asked.ask.params;
    let frame = answer::Frame::new(&object, &asked.model, params.temperature, params.top_p, &loaded.text.tokenizer);
    let updates = generate::start(&app, &loaded, asked.ask).await?;
    if asked.stream {
        return Ok(stream::respond(updates, events::Events::new(frame)));
    }
    let answers = collect(updates, 1).await?;
    Ok(body::answer(&answers.first().map(|answer| frame.whole(answer))))
}
