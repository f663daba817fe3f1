//! `hipfire serve`: the engine behind HTTP, in the words that clients already speak.
//!
//! Owns: the route table, the state that all handlers share.
//! Always true: the server listens before the model is loaded; every route but `/health` and the page wants the key, if
//! there is one; an error has the shape of its API.
//! Not here: flags (`cli::serve`), generation (`engine`), prompts (`text`).

mod admin;
mod anthropic;
mod body;
mod error;
mod generate;
mod guard;
mod listen;
mod metrics;
mod openai;
mod options;
mod page;
mod responses;
#[cfg(test)]
mod snapshots;
mod stream;
mod tokens;
mod watchdog;
mod wire;

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use tokio::sync::watch;

use crate::engine::{Cancel, Loaded};
use error::ApiError;
pub use listen::{Ended, serve};
use metrics::Metrics;
pub use options::{Key, Options, ReasoningField};

/// What answers name as the system behind them.
const FINGERPRINT: &str = concat!("hipfire-", env!("CARGO_PKG_VERSION"));

/// What all handlers share.
struct App {
    options: Options,
    phase: RwLock<Phase>,
    metrics: Metrics,
    /// Why the engine is given up, once it is.
    fault: watch::Sender<Option<String>>,
    /// Flags of requests that run, to stop them all.
    flags: Mutex<Vec<Cancel>>,
    started: u64,
}

/// How far the model is.
enum Phase {
    /// Being loaded: the share done, from 0 to 1.
    Loading(f32),
    /// Ready.
    Ready(Arc<Loaded>),
}

impl App {
    fn new(options: Options) -> App {
        App {
            options,
            phase: RwLock::new(Phase::Loading(0.0)),
            metrics: Metrics::new(),
            fault: watch::Sender::new(None),
            flags: Mutex::new(Vec::new()),
            started: wire::answer::now(),
        }
    }

    fn set(&self, phase: Phase) {
        *self.phase.write().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// The model, or how far its load is.
    fn model_or_share(&self) -> Result<Arc<Loaded>, f32> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Loading(share) => Err(*share),
            Phase::Ready(loaded) => Ok(loaded.clone()),
        }
    }

    /// The model.
    ///
    /// Errors: 503 while it is being loaded.
    fn loaded(&self) -> Result<Arc<Loaded>, ApiError> {
        self.model_or_share().map_err(|share| {
            let message = format!("the model is being loaded ({:.0} %): ask again in a moment", share * 100.0);
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "model_loading", message)
        })
    }

    /// The name to answer with, if the model goes by the one that was asked for.
    fn model(&self, loaded: &Loaded, asked: Option<&str>) -> Result<String, ApiError> {
        let Some(asked) = asked.filter(|name| !name.is_empty()) else { return Ok(loaded.name.clone()) };
        let mut names = std::iter::once(&loaded.name).chain(&self.options.aliases);
        if names.any(|name| name == asked || name == "*") {
            return Ok(asked.to_string());
        }
        let message = format!(
            "the model '{asked}' is not served here: use '{}', or start the server with --alias '{asked}'",
            loaded.name
        );
        let param = Some("model".to_string());
        Err(ApiError { param, ..ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message) })
    }

    /// A flag for one request.
    fn stop_flag(&self) -> Cancel {
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        // A request that has ended has set its own.
        flags.retain(|flag| !flag.is_cancelled());
        let flag = Cancel::default();
        flags.push(flag.clone());
        flag
    }

    /// Stops every request within one step.
    fn stop_all(&self) {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Cancel::cancel);
    }
}

/// The route table.
fn routes(app: &Arc<App>) -> Router {
    let router = Router::new()
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/completions", post(openai::completion))
        .route("/v1/responses", post(responses::responses))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/v1/models", get(admin::models))
        .route("/v1/models/{id}", get(admin::model))
        .route("/slots", get(admin::slots))
        .route("/v1/embeddings", post(admin::embeddings))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/apply-template", post(tokens::apply_template))
        .route("/", get(page::html))
        .route("/page.css", get(page::css))
        .route("/page.js", get(page::js))
        .route("/health", get(admin::health))
        .route("/metrics", get(admin::metrics))
        .route("/props", get(admin::props))
        .fallback(guard::unknown)
        .method_not_allowed_fallback(guard::wrong_method)
        .layer(from_fn_with_state(app.clone(), guard::admit));
    let router = match guard::cors(&app.options) {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.layer(from_fn(guard::harden)).layer(from_fn_with_state(app.clone(), guard::observe)).with_state(app.clone())
}
