//! Between the engine's blocking streams and the connection's asynchronous ones.
//!
//! Owns: a thread an answer, the channel to the connection, and the flag that stops all answers of a request when the
//! connection goes away.
//! Always true: a request that cannot run fails before its headers are sent; whoever drops `Updates` frees the slots
//! within one step.
//! Not here: what is asked (`wire`), how it is written (the APIs).

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use tokio::sync::{mpsc, watch};

use super::App;
use super::error::ApiError;
use super::metrics::Metrics;
use super::wire::Ask;
use crate::engine::{Cancel, Event, Loaded, Request, Stream, TextEvent, TextStream, Tokens};
use crate::error::Error;
use crate::text::Event as Part;

/// Events of one answer that may wait for a slow client before its thread does.
const AHEAD: usize = 256;

/// Events of all answers of one request, each with the number of its answer.
pub struct Updates {
    receiver: mpsc::Receiver<(usize, TextEvent)>,
    app: Arc<App>,
    fault: watch::Receiver<Option<String>>,
    stop: Cancel,
    running: usize,
}

impl Updates {
    /// The next event; `None` behind the last one of the last answer.
    pub async fn next(&mut self) -> Option<(usize, TextEvent)> {
        if self.running == 0 {
            return None;
        }
        let (choice, event) = tokio::select! {
            event = self.receiver.recv() => event?,
            message = fault(&mut self.fault) => {
                self.running = 0;
                return Some((0, TextEvent::Failed(Error::Device(message))));
            }
        };
        if matches!(event, TextEvent::Done(_) | TextEvent::Failed(_)) {
            self.running -= 1;
        }
        Some((choice, event))
    }

    /// An error behind the headers, where no status tells it any more: counted here, as the others are by the guard.
    pub fn told(&self, error: Error) -> ApiError {
        let error = ApiError::from(error);
        self.app.metrics.refused(error.code.unwrap_or("error"));
        error
    }
}

/// Why the engine was given up, once it is.
async fn fault(told: &mut watch::Receiver<Option<String>>) -> String {
    let message = told.wait_for(Option::is_some).await.ok().and_then(|message| message.clone());
    match message {
        Some(message) => message,
        // The server ends, and with it whoever waits here.
        None => std::future::pending().await,
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts all answers of `ask`.
///
/// Errors: whatever the template, the tokenizer or the engine has against it.
pub async fn start(app: &Arc<App>, loaded: &Arc<Loaded>, ask: Ask) -> Result<Updates, ApiError> {
    let (app, loaded) = (app.clone(), loaded.clone());
    // Rendering and tokenizing a long conversation would hold up every other connection of this thread.
    let started = tokio::task::spawn_blocking(move || submit(&app, &loaded, &ask));
    started.await.unwrap_or_else(|_| {
        let message = "the request met a bug in the server; its log says where";
        Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "bug", message))
    })
}

fn submit(app: &Arc<App>, loaded: &Arc<Loaded>, ask: &Ask) -> Result<Updates, ApiError> {
    let stop = app.stop_flag();
    let (sender, receiver) = mpsc::channel(AHEAD);
    // From here on: an error below gives the flag back, and stops the answers that were submitted before it.
    let mut updates =
        Updates { receiver, app: app.clone(), fault: app.fault.subscribe(), stop: stop.clone(), running: 0 };
    let mut answers = Vec::new();
    for source in &ask.sources {
        let prompt = ask.prompt(loaded, source)?;
        let request = Request {
            params: ask.params(loaded, answers.len()),
            max_tokens: ask.max_tokens,
            stop_ids: if ask.ignore_stop_ids { Vec::new() } else { loaded.text.stop_ids.clone() },
            logprobs: ask.logprobs,
            constraint: ask.form.constraint(&ask.tools, prompt.reading, &loaded.text.tokenizer),
            cancel: stop.clone(),
            ids: prompt.ids,
        };
        let formed = request.constraint.is_some();
        let submitted = Instant::now();
        let streams = loaded.engine.submit_many(request, ask.copies).map_err(|error| {
            let of_form = formed && matches!(error, Error::Invalid(_));
            ApiError::from(error).blame(if of_form { ask.form.blamed() } else { ask.source_field })
        });
        for stream in streams? {
            let watched = Watched { stream, app: app.clone(), submitted, last: None };
            answers.push(TextStream::new(watched, &loaded.text.tokenizer, prompt.reading, ask.text_options())?);
        }
    }
    updates.running = answers.len();
    for (choice, text) in answers.into_iter().enumerate() {
        let (app, sender, one_call) = (app.clone(), sender.clone(), ask.one_call);
        tokio::task::spawn_blocking(move || {
            if !forward(choice, text, &sender, one_call, &app.metrics) {
                app.metrics.gone();
            }
        });
    }
    Ok(updates)
}

/// Sends the events of one answer; `false` if its client went away before the end.
fn forward(
    choice: usize,
    mut text: TextStream<Watched>,
    sender: &mpsc::Sender<(usize, TextEvent)>,
    one_call: bool,
    metrics: &Metrics,
) -> bool {
    while let Some(event) = text.next() {
        let end = matches!(event, TextEvent::Done(_) | TextEvent::Failed(_));
        match &event {
            TextEvent::Done(done) => metrics.ended(done),
            TextEvent::Failed(_) => metrics.failed(),
            TextEvent::Part(_) | TextEvent::Token(_) | TextEvent::Prefill { .. } => {}
        }
        let last_call = one_call && matches!(event, TextEvent::Part(Part::ToolEnd { .. }));
        let sent = sender.blocking_send((choice, event)).is_ok();
        if end || !sent {
            return end;
        }
        if last_call {
            text.end_here();
        }
    }
    false
}

/// A stream that is measured while it is read.
struct Watched {
    stream: Stream,
    app: Arc<App>,
    submitted: Instant,
    last: Option<Instant>,
}

impl Iterator for Watched {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let event = self.stream.next()?;
        let metrics = &self.app.metrics;
        match &event {
            Event::Token(_) => {
                let now = Instant::now();
                match self.last.replace(now) {
                    None => metrics.first_token.observe((now - self.submitted).as_secs_f64()),
                    Some(before) => metrics.between_tokens.observe((now - before).as_secs_f64()),
                }
            }
            Event::Prefill { .. } | Event::Done(_) | Event::Failed(_) => {}
        }
        Some(event)
    }
}

impl Tokens for Watched {
    fn cancel(&self) {
        self.stream.cancel();
    }
}
