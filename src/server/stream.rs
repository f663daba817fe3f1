//! Server-sent events: one loop for every API, which only says what each event looks like.
//!
//! Owns: the order of a stream, the comment that keeps a silent connection open, the end after an error.
//! Always true: an error behind the headers is the last thing that is sent; a client that goes away ends the request.
//! Not here: the shapes (`openai`, `anthropic`, `responses`).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;

use super::error::ApiError;
use super::generate::Updates;
use crate::engine::{StopReason, TextEvent};
use crate::error::Error;

/// Silence after which a comment is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// One event on the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Its name, where an API gives them names.
    pub event: Option<&'static str>,
    /// One line.
    pub data: String,
}

impl Frame {
    /// A JSON value without a name.
    pub fn data(value: &Value) -> Frame {
        Frame { event: None, data: value.to_string() }
    }

    /// A JSON value with a name.
    pub fn named(event: &'static str, value: &Value) -> Frame {
        Frame { event: Some(event), data: value.to_string() }
    }
}

/// How one API writes an answer, event by event.
pub trait Translator: Send + 'static {
    /// What comes before anything happened.
    fn begin(&mut self) -> Vec<Frame>;
    /// What an event of one answer is. Never `Failed`.
    fn event(&mut self, choice: usize, event: TextEvent) -> Vec<Frame>;
    /// What comes when all answers have ended.
    fn end(&mut self) -> Vec<Frame>;
    /// What comes instead, after an error.
    fn failed(&mut self, error: ApiError) -> Vec<Frame>;
}

struct Running<T> {
    updates: Updates,
    translator: T,
    ready: VecDeque<Frame>,
    ended: bool,
}

impl<T: Translator> Running<T> {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Running<T>)> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                let event = match frame.event {
                    Some(name) => Event::default().event(name),
                    None => Event::default(),
                };
                return Some((Ok(event.data(frame.data)), self));
            }
            if self.ended {
                return None;
            }
            let frames = match self.updates.next().await {
                Some((_, TextEvent::Failed(error))) => {
                    self.ended = true;
                    self.translator.failed(self.updates.told(error))
                }
                // Nobody but the server itself cancels a request whose connection is open.
                Some((_, TextEvent::Done(done))) if done.reason == StopReason::Cancelled => {
                    self.ended = true;
                    self.translator.failed(self.updates.told(Error::Cancelled))
                }
                Some((choice, event)) => self.translator.event(choice, event),
                None => {
                    self.ended = true;
                    self.translator.end()
                }
            };
            self.ready.extend(frames);
        }
    }
}

/// The response that streams `updates`.
pub fn respond(updates: Updates, mut translator: impl Translator) -> Response {
    let ready = translator.begin().into();
    let running = Running { updates, translator, ready, ended: false };
    let events = stream::unfold(running, Running::next);
    let alive = KeepAlive::new().interval(KEEP_ALIVE).text("working");
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    // A proxy that collects the stream would turn it into one lump.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
