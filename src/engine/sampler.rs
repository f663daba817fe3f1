//! From one row of logits to one token id.
//!
//! Owns: the penalties, the filters, the random numbers, and the record of what was generated.
//! Always true: penalties → bias → temperature → top-k → top-p → min-p, the order of Hugging Face's `generate`; equal
//! logits rank by the lower id; the same seed and logits give the same ids on every machine (spec, 2.7 and 6.3).
//! Not here: where logits come from (`worker`), log-probabilities (`logits`), grammars.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use super::logits::{Ranked, largest};
use crate::error::{Error, Result};
use crate::text::GenerationConfig;

/// How the next token is chosen. The default is greedy, without any penalty.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 takes the largest logit and ignores every filter.
    pub temperature: f32,
    /// Keeps the k largest; 0 keeps all.
    pub top_k: usize,
    /// Keeps the smallest set of the most likely ids whose probability reaches this, after top-k; 1 keeps all.
    pub top_p: f32,
    /// Drops ids less likely than this share of the most likely one; 0 drops none.
    pub min_p: f32,
    /// Of every id in the prompt or the answer: positive logits are divided by it, negative ones multiplied; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from every id that was generated; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from every id as often as it was generated; 0 is off.
    pub frequency_penalty: f32,
    /// Added to single ids, after the penalties. Minus infinity bans an id.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> SamplingParams {
        SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// A seed where none was given. 53 bits, so that every JSON reader gives the same number back.
pub fn drawn_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() >> 11
}

impl SamplingParams {
    /// What a model's makers want: their file, and for what it leaves out the released model's values (spec, 6.3).
    pub fn of_model(file: Option<&GenerationConfig>) -> SamplingParams {
        let file = file.cloned().unwrap_or_default();
        let temperature = if file.do_sample == Some(false) { Some(0.0) } else { file.temperature };
        SamplingParams {
            temperature: temperature.unwrap_or(1.0),
            top_k: file.top_k.map_or(20, |k| k as usize),
            top_p: file.top_p.unwrap_or(0.95),
            min_p: file.min_p.unwrap_or(0.0),
            repetition_penalty: file.repetition_penalty.unwrap_or(1.0),
            ..SamplingParams::default()
        }
    }

    /// Names the first value that is outside its range.
    pub fn check(&self, vocab: usize) -> Result<()> {
        let range = |name: &str, value: f32, ok: bool, allowed: &str| {
            if ok { Ok(()) } else { Err(Error::Invalid(format!("{name} is {value}: use {allowed}"))) }
        };
        let t = self.temperature;
        range("temperature", t, t.is_finite() && t >= 0.0, "0 (greedy) or a positive number")?;
        range("top-p", self.top_p, (0.0..=1.0).contains(&self.top_p), "a number from 0 to 1")?;
        range("min-p", self.min_p, (0.0..=1.0).contains(&self.min_p), "a number from 0 to 1")?;
        let r = self.repetition_penalty;
        range("repetition-penalty", r, r.is_finite() && r > 0.0, "a positive number (1 is off)")?;
        let p = self.presence_penalty;
        range("presence-penalty", p, p.is_finite(), "a finite number (0 is off)")?;
        let f = self.frequency_penalty;
        range("frequency-penalty", f, f.is_finite(), "a finite number (0 is off)")?;
        for &(id, bias) in &self.logit_bias {
            if id as usize >= vocab {
                return Err(Error::Invalid(format!(
                    "logit bias names token {id}, but the vocabulary ends at {}",
                    vocab.saturating_sub(1)
                )));
            }
            range(&format!("logit bias of token {id}"), bias, bias < f32::INFINITY, "a finite number or -inf")?;
        }
        Ok(())
    }
}

/// One answer's sampler.
pub struct Sampler {
    params: SamplingParams,
    /// How often each id of the prompt or the answer was generated (0 for ids of the prompt alone).
    generated: HashMap<u32, u32>,
    /// Ids drawn so far; the counter of the random numbers.
    step: u64,
    /// The row with penalties and bias, reused; stays empty while there are none.
    adjusted: Vec<f32>,
}

impl Sampler {
    /// A sampler after `history`, the ids of the prompt. `params` have been checked.
    pub fn new(params: SamplingParams, history: &[u32]) -> Sampler {
        let generated = match params.repetition_penalty == 1.0 {
            true => HashMap::new(),
            false => history.iter().map(|&id| (id, 0)).collect(),
        };
        Sampler { params, generated, step: 0, adjusted: Vec::new() }
    }

    /// Draws the next id from `logits [vocab]` and records it. A NaN is an error that names the step and the id, and so
    /// is a row without any possible id.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        let mut adjusted = std::mem::take(&mut self.adjusted);
        let row = match self.adjusts() {
            true => {
                self.adjust(logits, &mut adjusted);
                &adjusted
            }
            false => logits,
        };
        let id = pick(row, &self.params, uniform(self.params.seed, self.step), self.step)?;
        self.adjusted = adjusted;
        self.step += 1;
        *self.generated.entry(id).or_insert(0) += 1;
        Ok(id)
    }

    fn adjusts(&self) -> bool {
        let p = &self.params;
        p.repetition_penalty != 1.0
            || p.presence_penalty != 0.0
            || p.frequency_penalty != 0.0
            || !p.logit_bias.is_empty()
    }

    /// Copies the row and changes only the ids that a penalty or a bias names.
    fn adjust(&self, logits: &[f32], row: &mut Vec<f32>) {
        row.clear();
        row.extend_from_slice(logits);
        let p = &self.params;
        for (&id, &count) in &self.generated {
            let Some(logit) = row.get_mut(id as usize) else { continue };
            *logit = if *logit < 0.0 { *logit * p.repetition_penalty } else { *logit / p.repetition_penalty };
            if count > 0 {
                *logit -= p.presence_penalty + p.frequency_penalty * count as f32;
            }
        }
        for &(id, bias) in &p.logit_bias {
            if let Some(logit) = row.get_mut(id as usize) {
                *logit += bias;
            }
        }
    }
}

/// A number in [0, 1) from the seed and a counter alone (SplitMix64's finaliser, twice): a step can be drawn again.
fn uniform(seed: u64, step: u64) -> f64 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let start = mix(seed.wrapping_add(GOLDEN));
    let bits = mix(start.wrapping_add(step.wrapping_add(1).wrapping_mul(GOLDEN)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The id that `at` in [0, 1) falls on, after temperature and filters. Every filter keeps a prefix of the ids in
/// descending order, so only as many are ranked as the shortest prefix needs.
fn pick(row: &[f32], params: &SamplingParams, at: f64, step: u64) -> Result<u32> {
    let max = maximum(row, step)?;
    if params.temperature == 0.0 {
        return Ok(row.iter().position(|&logit| logit == max).unwrap_or(0) as u32);
    }
    let temperature = f64::from(params.temperature);
    // Relative to the largest. An infinite maximum leaves nothing to the finite ones.
    let weight = |logit: f32| match logit == max {
        true => 1.0,
        false if max == f32::INFINITY => 0.0,
        false => ((f64::from(logit) - f64::from(max)) / temperature).exp(),
    };
    let filters = params.top_p < 1.0 || params.min_p > 0.0;
    let limit = if params.top_k == 0 { row.len() } else { params.top_k.min(row.len()) };
    if limit == row.len() && !filters {
        let weights: Vec<f64> = row.iter().map(|&logit| weight(logit)).collect();
        return Ok(invert(&weights, at) as u32);
    }

    let ranked_mass = |ranked: &[Ranked]| ranked.iter().map(|r| weight(r.value)).sum::<f64>();
    let mut count = if params.top_k == 0 { limit.min(256) } else { limit };
    let mut ranked = largest(row, count);
    let mass = match params.top_k {
        0 if params.top_p < 1.0 => row.iter().map(|&logit| weight(logit)).sum::<f64>(),
        _ => ranked_mass(&ranked),
    };
    loop {
        let weights = kept(&ranked, weight, params, mass);
        if weights.len() < count || count == limit {
            return Ok(ranked[invert(&weights, at)].id);
        }
        count = limit.min(count * 8);
        ranked = largest(row, count);
    }
}

/// Weights of the prefix that top-p and min-p keep: at least the best id.
fn kept(ranked: &[Ranked], weight: impl Fn(f32) -> f64, params: &SamplingParams, mass: f64) -> Vec<f64> {
    let enough = if params.top_p < 1.0 { f64::from(params.top_p) * mass } else { f64::INFINITY };
    let mut weights = Vec::with_capacity(ranked.len());
    let mut before = 0.0;
    for entry in ranked {
        let w = weight(entry.value);
        if !weights.is_empty() && (before >= enough || w < f64::from(params.min_p)) {
            break;
        }
        before += w;
        weights.push(w);
    }
    weights
}

/// The index that the share `at` of the total falls on; never one without weight.
fn invert(weights: &[f64], at: f64) -> usize {
    let target = at * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    let mut last = 0;
    for (index, &weight) in weights.iter().enumerate() {
        sum += weight;
        if weight > 0.0 {
            last = index;
            if sum > target {
                break;
            }
        }
    }
    last
}

/// The largest logit. Refuses a NaN and a row that allows nothing.
fn maximum(row: &[f32], step: u64) -> Result<f32> {
    let mut max = f32::NEG_INFINITY;
    let mut nan = false;
    for &logit in row {
        nan |= logit.is_nan();
        max = if logit > max { logit } else { max };
    }
    if nan {
        let id = row.iter().position(|logit| logit.is_nan()).unwrap_or(0);
        return Err(Error::Numeric(format!(
            "the logits of generated token {step} are not numbers (NaN first at id {id}): no token was chosen; the \
             weights or their format are damaged"
        )));
    }
    if max == f32::NEG_INFINITY {
        return Err(Error::Numeric(format!(
            "every logit of generated token {step} is minus infinity: no token can be chosen; check the logit bias"
        )));
    }
    Ok(max)
}
