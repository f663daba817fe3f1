//! The fields by which OpenAI's APIs choose tokens, with those that local engines added.
//!
//! Owns: their names, their ranges, and the order of defaults (request, then the model's own).
//! Always true: a value outside its range is a 400 that names the field.
//! Not here: what the values do (`engine::sampler`).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::engine::{SamplingParams, drawn_seed};
use crate::server::error::ApiError;

/// Fields of `/v1/chat/completions` and `/v1/completions` alike.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Sampling {
    /// At least 0.
    pub temperature: Option<f64>,
    /// From 0 to 1.
    pub top_p: Option<f64>,
    /// 0 and -1 keep all.
    pub top_k: Option<i64>,
    /// From 0 to 1.
    pub min_p: Option<f64>,
    /// Above 0; llama.cpp's name is the second.
    #[serde(alias = "repeat_penalty")]
    pub repetition_penalty: Option<f64>,
    /// From -2 to 2.
    pub presence_penalty: Option<f64>,
    /// From -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Token ids (as text, since JSON keys are) to what is added to their logits.
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// Any whole number.
    pub seed: Option<i64>,
    /// One text or several.
    pub stop: Option<Stop>,
    /// At least 1.
    pub max_tokens: Option<i64>,
    /// Answers to each prompt.
    pub n: Option<i64>,
    /// Go on where the model would end.
    pub ignore_eos: Option<bool>,
    /// Nothing to a single user's engine: known and without effect, as on OpenAI's own servers.
    #[serde(rename = "user")]
    pub _user: Option<String>,
    /// See `_user`.
    #[serde(rename = "service_tier")]
    pub _service_tier: Option<String>,
    /// See `_user`.
    #[serde(rename = "prompt_cache_key")]
    pub _prompt_cache_key: Option<String>,
    /// See `_user`.
    #[serde(rename = "safety_identifier")]
    pub _safety_identifier: Option<String>,
    /// The cache is always on.
    #[serde(rename = "cache_prompt")]
    pub _cache_prompt: Option<bool>,
}

/// One text or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
pub enum Stop {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// The most alternatives a token may be reported with, as on OpenAI's servers.
pub const MOST_TOP_LOGPROBS: i64 = 20;
/// The most stop strings of one request: each is compared with every piece of text.
const MOST_STOPS: usize = 16;

impl Sampling {
    /// The parameters, over what the model's makers want. Ids are `0..vocab`.
    pub fn params(&self, defaults: SamplingParams, vocab: usize) -> Result<SamplingParams, ApiError> {
        let mut params = defaults;
        let finite = |name: &str, value: f64, fits: bool, allowed: &str| match fits && value.is_finite() {
            true => Ok(value as f32),
            false => Err(ApiError::field(name, format!("{name} is {value}: use {allowed}"))),
        };
        if let Some(t) = self.temperature {
            params.temperature = finite("temperature", t, t >= 0.0, "0 (greedy) or a positive number")?;
        }
        if let Some(p) = self.top_p {
            params.top_p = finite("top_p", p, (0.0..=1.0).contains(&p), "a number from 0 to 1")?;
        }
        if let Some(k) = self.top_k {
            params.top_k = match k {
                -1 | 0 => 0,
                k if k > 0 => k as usize,
                _ => return Err(ApiError::field("top_k", format!("top_k is {k}: use 0 (all) or more"))),
            };
        }
        if let Some(p) = self.min_p {
            params.min_p = finite("min_p", p, (0.0..=1.0).contains(&p), "a number from 0 to 1")?;
        }
        if let Some(r) = self.repetition_penalty {
            params.repetition_penalty = finite("repetition_penalty", r, r > 0.0, "a positive number (1 is off)")?;
        }
        let penalty = |name: &str, p: f64| finite(name, p, (-2.0..=2.0).contains(&p), "a number from -2 to 2");
        if let Some(p) = self.presence_penalty {
            params.presence_penalty = penalty("presence_penalty", p)?;
        }
        if let Some(p) = self.frequency_penalty {
            params.frequency_penalty = penalty("frequency_penalty", p)?;
        }
        for (key, &bias) in self.logit_bias.iter().flatten() {
            let id = key.parse::<u32>().ok().filter(|&id| (id as usize) < vocab).ok_or_else(|| {
                let message = format!("'{key}' is no token id: use whole numbers from 0 to {}", vocab - 1);
                ApiError::field("logit_bias", message)
            })?;
            // OpenAI's -100 is a ban.
            let bias = if bias <= -100.0 { f32::NEG_INFINITY } else { bias as f32 };
            params.logit_bias.push((id, bias));
        }
        params.seed = self.seed.map_or_else(drawn_seed, |seed| seed as u64);
        Ok(params)
    }

    /// The stop strings.
    pub fn stops(&self) -> Result<Vec<String>, ApiError> {
        stops(
            "stop",
            match &self.stop {
                None => Vec::new(),
                Some(Stop::One(one)) => vec![one.clone()],
                Some(Stop::Many(many)) => many.clone(),
            },
        )
    }

    /// Answers to each prompt.
    pub fn copies(&self) -> Result<usize, ApiError> {
        let most = super::MOST_CHOICES;
        match self.n {
            None => Ok(1),
            Some(n) => usize::try_from(n)
                .ok()
                .filter(|n| (1..=most).contains(n))
                .ok_or_else(|| ApiError::field("n", format!("n is {n}: use 1 to {most}"))),
        }
    }
}

/// A list of stop strings, checked.
pub fn stops(field: &str, list: Vec<String>) -> Result<Vec<String>, ApiError> {
    if list.len() > MOST_STOPS {
        return Err(ApiError::field(field, format!("{} stop strings are given: use {MOST_STOPS} at most", list.len())));
    }
    match list.iter().any(String::is_empty) {
        true => Err(ApiError::field(field, "a stop string is empty: leave it out")),
        false => Ok(list),
    }
}

/// Likeliest ids to report with every token: `top` of them where log-probabilities are `wanted` at all. `how` says how
/// to want them.
pub fn logprobs(wanted: bool, top: Option<i64>, how: &str) -> Result<Option<usize>, ApiError> {
    let count = top.unwrap_or(0);
    if !(0..=MOST_TOP_LOGPROBS).contains(&count) {
        let message = format!("top_logprobs is {count}: use 0 to {MOST_TOP_LOGPROBS}");
        return Err(ApiError::field("top_logprobs", message));
    }
    match (wanted, count) {
        (true, _) => Ok(Some(count as usize)),
        (false, 0) => Ok(None),
        (false, _) => Err(ApiError::field("top_logprobs", format!("it needs log-probabilities: {how}"))),
    }
}

/// A limit of tokens, checked: at least 1.
pub fn most_tokens(field: &str, given: Option<i64>) -> Result<Option<usize>, ApiError> {
    given
        .map(|n| match usize::try_from(n) {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(ApiError::field(field, format!("{field} is {n}: use 1 or more"))),
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn params(json: serde_json::Value) -> Result<SamplingParams, ApiError> {
        serde_json::from_value::<Sampling>(json).unwrap().params(SamplingParams::default(), 10)
    }

    #[test]
    fn every_value_out_of_range_names_its_field() {
        for (field, value) in [
            ("temperature", json!(-1)),
            ("top_p", json!(1.5)),
            ("top_k", json!(-2)),
            ("min_p", json!(-0.1)),
            ("repetition_penalty", json!(0)),
            ("presence_penalty", json!(3)),
            ("frequency_penalty", json!(-3)),
            ("logit_bias", json!({"10": 1})),
            ("logit_bias", json!({"x": 1})),
        ] {
            let error = params(json!({field: value})).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(field));
        }
    }

    #[test]
    fn given_values_stand_over_the_models_and_the_seed_is_kept() {
        let made = params(json!({"temperature": 0.5, "top_k": -1, "logit_bias": {"3": -100}, "seed": -1})).unwrap();
        assert_eq!((made.temperature, made.top_k, made.seed), (0.5, 0, u64::MAX));
        assert_eq!(made.logit_bias, [(3, f32::NEG_INFINITY)]);
    }

    #[test]
    fn limits_are_at_least_one() {
        assert_eq!(most_tokens("max_tokens", Some(3)), Ok(Some(3)));
        assert!(most_tokens("max_tokens", Some(0)).is_err() && most_tokens("max_tokens", Some(-1)).is_err());
        let n = |n| Sampling { n: Some(n), ..Sampling::default() }.copies();
        assert!(n(1).is_ok() && n(0).is_err() && n(17).is_err());
        let stop = |list: &[&str]| stops("stop", list.iter().map(|s| s.to_string()).collect());
        assert!(stop(&["a"]).is_ok() && stop(&[""]).is_err() && stop(&["a"; 17]).is_err());
    }
}
