//! Numbers about requests, for Prometheus.
//!
//! Owns: their names and units.
//! Always true: counters only grow; reading them waits for nobody.
//! Not here: what the engine and its memory hold now, which are read when somebody asks (`admin`).

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::engine::{StopReason, TextDone};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

/// The numbers.
pub struct Metrics {
    registry: Registry,
    requests: Family<Route, Counter>,
    errors: Family<Kind, Counter>,
    answers: Family<Reason, Counter>,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    generated_tokens: Counter,
    /// Seconds from submission to the first token.
    pub first_token: Histogram,
    /// Seconds between two tokens of one answer.
    pub between_tokens: Histogram,
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("hipfire");
        // 1 ms to 4 minutes, and 0.1 ms to 26 s: a prompt on a CPU takes as long as the first ends.
        let metrics = Metrics {
            requests: Family::default(),
            errors: Family::default(),
            answers: Family::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            first_token: Histogram::new(exponential_buckets(0.001, 2.0, 19)),
            between_tokens: Histogram::new(exponential_buckets(0.0001, 2.0, 19)),
            registry: Registry::default(),
        };
        registry.register("requests", "HTTP requests by route and status", metrics.requests.clone());
        registry.register("errors", "Errors by kind", metrics.errors.clone());
        registry.register("answers", "Answers by how they ended", metrics.answers.clone());
        registry.register("prompt_tokens", "Prompt tokens", metrics.prompt_tokens.clone());
        registry.register("cached_tokens", "Prompt tokens that were not read again", metrics.cached_tokens.clone());
        registry.register("generated_tokens", "Tokens generated", metrics.generated_tokens.clone());
        registry.register("first_token_seconds", "Submission to first token", metrics.first_token.clone());
        registry.register("between_tokens_seconds", "Between two tokens of an answer", metrics.between_tokens.clone());
        Metrics { registry, ..metrics }
    }

    /// A request was answered.
    pub fn request(&self, route: &str, status: u16) {
        self.requests.get_or_create(&Route { route: route.to_string(), status }).inc();
    }

    /// A request was told of an error.
    pub fn refused(&self, kind: &str) {
        self.errors.get_or_create(&Kind { kind: kind.to_string() }).inc();
    }

    /// An answer ended.
    pub fn ended(&self, done: &TextDone) {
        self.answers.get_or_create(&Reason { reason: done.reason.name().to_string() }).inc();
        self.prompt_tokens.inc_by(done.usage.prompt as u64);
        self.cached_tokens.inc_by(done.usage.cached as u64);
        self.generated_tokens.inc_by(done.usage.generated as u64);
    }

    /// An answer ended by an error, which is counted where it is told.
    pub fn failed(&self) {
        self.answers.get_or_create(&Reason { reason: "failed".to_string() }).inc();
    }

    /// A client went away before its answer's end.
    pub fn gone(&self) {
        self.answers.get_or_create(&Reason { reason: StopReason::Cancelled.name().to_string() }).inc();
    }

    /// The numbers in Prometheus' text form, without its end mark.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
