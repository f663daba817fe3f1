//! From one row of logits to one token id.
//!
//! Owns: the penalties, the random numbers, and the record of what was generated, tokens that are only supposed included.
//! Always true: penalties → bias → temperature → top-k → top-p → min-p, the order of Hugging Face's `generate`; equal
//! logits rank by the lower id; the same seed and logits give the same ids on every machine (spec, 2.7 and 6.3).
//! Not here: where logits come from (`worker`), the filters (`distribution`), log-probabilities (`logits`), grammars.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use super::distribution::Distribution;
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

/// What a random number is for. Each purpose has its own numbers, so that none is used twice for one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The token itself, or the one that takes a refused draft's place.
    Token,
    /// A draft of it.
    Draft,
    /// Whether its draft is accepted.
    Accept,
}

/// One answer's sampler.
pub struct Sampler {
    params: SamplingParams,
    /// How often each id of the prompt or the answer was generated (0 for ids of the prompt alone).
    generated: HashMap<u32, u32>,
    /// Tokens recorded so far, supposed ones included; the counter of the random numbers.
    step: u64,
    /// Supposed tokens, each with the count that its id had before.
    supposed: Vec<(u32, Option<u32>)>,
    /// The row with penalties and bias, reused; stays empty while there are none.
    adjusted: Vec<f32>,
    /// The law of the last token, reused.
    law: Distribution,
}

impl Sampler {
    /// A sampler after `history`, the ids of the prompt. `params` have been checked.
    pub fn new(params: SamplingParams, history: &[u32]) -> Sampler {
        let generated = match params.repetition_penalty == 1.0 {
            true => HashMap::new(),
            false => history.iter().map(|&id| (id, 0)).collect(),
        };
        Sampler { params, generated, step: 0, supposed: Vec::new(), adjusted: Vec::new(), law: Distribution::default() }
    }

    /// Draws the next id from `logits [vocab]` and records it. A NaN is an error that names the step and the id, and so
    /// is a row without any possible id.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        let mut law = std::mem::take(&mut self.law);
        let drawn = self.law(logits, &mut law).map(|()| law.draw(self.uniform(Purpose::Token)));
        self.law = law;
        self.record(drawn?)
    }

    /// The law of the next id, given `logits [vocab]` and everything recorded and supposed. Fails as
    /// [`Sampler::sample`] does.
    pub fn law(&mut self, logits: &[f32], law: &mut Distribution) -> Result<()> {
        if !self.adjusts() {
            return law.of(logits, &self.params, self.step);
        }
        let mut adjusted = std::mem::take(&mut self.adjusted);
        self.adjust(logits, &mut adjusted);
        let result = law.of(&adjusted, &self.params, self.step);
        self.adjusted = adjusted;
        result
    }

    /// The number in [0, 1) that belongs to the next id.
    pub fn uniform(&self, purpose: Purpose) -> f64 {
        // Far apart, so that no seed a person gives meets another purpose's.
        let seed = match purpose {
            Purpose::Token => self.params.seed,
            Purpose::Draft => self.params.seed ^ 0xD1B5_4A32_D192_ED03,
            Purpose::Accept => self.params.seed ^ 0xAEF1_7502_108E_F2D9,
        };
        uniform(seed, self.step)
    }

    /// Records an id as generated, and gives it back.
    pub fn record(&mut self, id: u32) -> Result<u32> {
        if !self.supposed.is_empty() {
            return Err(Error::model("a token was recorded behind supposed ones: this is a bug, please report it"));
        }
        self.step += 1;
        *self.generated.entry(id).or_insert(0) += 1;
        Ok(id)
    }

    /// Counts an id as generated until [`Sampler::forget`].
    pub fn suppose(&mut self, id: u32) {
        let before = self.generated.get(&id).copied();
        self.supposed.push((id, before));
        self.generated.insert(id, before.unwrap_or(0) + 1);
        self.step += 1;
    }

    /// Takes every supposed id back.
    pub fn forget(&mut self) {
        while let Some((id, before)) = self.supposed.pop() {
            match before {
                Some(count) => self.generated.insert(id, count),
                None => self.generated.remove(&id),
            };
            self.step -= 1;
        }
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
