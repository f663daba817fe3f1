//! What the server says about itself.
//!
//! Owns: models, health, metrics, properties, slots, and the reason why there are no embeddings.
//! Always true: asking never waits for the model; nothing here names a path of this machine.
//! Not here: the numbers (`metrics`, the engine).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::error::ApiError;
use super::{App, FINGERPRINT, body};
use crate::engine::{Activity, Loaded, SamplingParams, SlotStatus, Status};

fn model_entry(app: &App, loaded: &Loaded, id: &str) -> Value {
    json!({
        "id": id,
        "object": "model",
        "created": app.started,
        "owned_by": "hipfire",
        "meta": {"n_ctx": loaded.engine.context(), "n_vocab": loaded.engine.vocab()},
    })
}

/// `GET /v1/models`.
pub async fn models(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let loaded = app.loaded()?;
    let names = std::iter::once(&loaded.name).chain(app.options.aliases.iter().filter(|alias| *alias != "*"));
    let data: Value = names.map(|name| model_entry(&app, &loaded, name)).collect();
    Ok(body::answer(&json!({"object": "list", "data": data})))
}

/// `GET /v1/models/{id}`.
pub async fn model(State(app): State<Arc<App>>, id: Result<Path<String>, PathRejection>) -> Result<Response, ApiError> {
    let Path(id) = id.map_err(|problem| {
        ApiError::new(StatusCode::NOT_FOUND, "model_not_found", format!("no model has such a name: {problem}"))
    })?;
    let loaded = app.loaded()?;
    let name = app.model(&loaded, Some(&id))?;
    Ok(body::answer(&model_entry(&app, &loaded, &name)))
}

/// `POST /v1/embeddings`: 501.
pub async fn embeddings() -> ApiError {
    let message = "this architecture is trained to continue text and has no embedding to give: use an embedding model";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_supported", message)
}

/// `GET /health`: 503 with the load's progress, then 200 with what is on.
pub async fn health(State(app): State<Arc<App>>) -> Response {
    let loaded = match app.model_or_share() {
        Ok(loaded) => loaded,
        Err(share) => {
            let message = format!("the model is being loaded ({:.0} %)", share * 100.0);
            let mut error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "model_loading", message);
            error.extra.push(("progress", json!(share)));
            return error.into_response();
        }
    };
    let status = loaded.engine.status();
    body::answer(&json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "model": loaded.name,
        "n_ctx": loaded.engine.context(),
        "receipt": loaded.receipt,
        "ran": (loaded.ran)(),
        "memory": (loaded.memory)(),
        "prefix_cache": prefix_cache(&status),
        "speculation": status.speculation,
        "requests": requests(&status),
    }))
}

/// What is known of earlier prompts, and how often that helped.
fn prefix_cache(status: &Status) -> Value {
    json!({
        "limit_bytes": status.cache.limit,
        "bytes": status.cache.bytes,
        "stored": status.cache.stored,
        "hits": status.totals.prefix_hits,
        "cached_tokens": status.totals.cached_tokens,
    })
}

/// How busy the engine is.
fn requests(status: &Status) -> Value {
    json!({
        "running": status.running,
        "waiting": status.waiting,
        "parallel": status.parallel,
        "max_queue": status.max_queue,
    })
}

/// `GET /slots`: what each slot does, in llama.cpp's words where it has them.
pub async fn slots(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let loaded = app.loaded()?;
    let slots = loaded.engine.status().slots;
    let slot = |(id, slot): (usize, &SlotStatus)| {
        json!({
            "id": id,
            "id_task": slot.request,
            "n_ctx": loaded.engine.context(),
            "is_processing": slot.activity != Activity::Idle,
            "state": slot.activity,
            "n_prompt_tokens": slot.prompt,
            "n_prompt_tokens_cache": slot.cached,
            "n_decoded": slot.generated,
            "n_held": slot.held,
        })
    };
    Ok(body::answer(&slots.iter().enumerate().map(slot).collect::<Vec<_>>()))
}

/// `GET /metrics`: Prometheus' text form.
pub async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let mut now = Registry::with_prefix("hipfire");
    if let Ok(loaded) = app.model_or_share() {
        let memory = (loaded.memory)();
        let status = loaded.engine.status();
        let gauges = [
            ("requests_running", "Requests that run", status.running as u64),
            ("requests_waiting", "Requests that wait for a slot", status.waiting as u64),
            ("cache_bytes", "Memory that earlier requests take", status.cache.bytes as u64),
            ("step_seconds_running", "How long the step that runs now has been running", seconds(status.in_step)),
            ("weights_bytes", "Weights, mapped or held", memory.weights),
            ("reserved_bytes", "Addresses kept for sequences", memory.reserved),
            ("committed_bytes", "Memory behind them", memory.committed),
            ("retired_bytes", "Addresses that are not used again", memory.retired),
            ("peak_resident_bytes", "The most memory that was resident", memory.peak_resident),
        ];
        for (name, help, value) in gauges {
            let gauge = Gauge::<i64>::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            now.register(name, help, gauge);
        }
        let totals = status.totals;
        let counters = [
            ("steps", "Steps of the model", totals.steps),
            ("rows", "Rows of all steps", totals.rows),
            ("prefill_tokens", "Prompt tokens that were read", totals.prefill_tokens),
            ("prefix_hits", "Answers whose prompt's beginning was known", totals.prefix_hits),
            ("drafted_tokens", "Tokens that the MTP head drafted", status.speculation.total_drafted()),
            ("accepted_tokens", "Drafts that became tokens", status.speculation.total_accepted()),
            ("refused", "Requests turned away because the queue was full", totals.refused),
        ];
        for (name, help, value) in counters {
            let counter = Counter::<u64>::default();
            counter.inc_by(value);
            now.register(name, help, counter);
        }
    }
    let mut text = String::new();
    let written = encode_registry(&mut text, app.metrics.registry())
        .and_then(|()| encode_registry(&mut text, &now))
        .and_then(|()| encode_eof(&mut text));
    written.map_err(|error| {
        let message = format!("the metrics cannot be written: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics_failed", message)
    })?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], Body::from(text)).into_response())
}

fn seconds(time: Option<Duration>) -> u64 {
    time.unwrap_or_default().as_secs()
}

/// `GET /props`: how requests are run that say nothing themselves.
pub async fn props(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let loaded = app.loaded()?;
    let defaults = SamplingParams::of_model(loaded.text.generation.as_ref());
    let sampling = json!({
        "temperature": defaults.temperature,
        "top_k": defaults.top_k,
        "top_p": defaults.top_p,
        "min_p": defaults.min_p,
        "repetition_penalty": defaults.repetition_penalty,
    });
    Ok(body::answer(&json!({
        "model": loaded.name,
        "aliases": app.options.aliases,
        "build_info": FINGERPRINT,
        "total_slots": loaded.engine.status().parallel,
        "default_generation_settings": {"n_ctx": loaded.engine.context(), "params": sampling},
        "modalities": {"vision": false, "audio": false},
        "settings": app.options.settings,
    })))
}
