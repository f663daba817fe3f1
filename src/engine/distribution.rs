//! The law that a row of logits gives the next token, after temperature and filters.
//!
//! Owns: the order of the filters (temperature → top-k → top-p → min-p), and a draw by one number in [0, 1).
//! Always true: a law has at least one id with weight; equal logits rank by the lower id; greedy is a law of one id.
//! Not here: penalties and random numbers (`sampler`), what two laws say about a draft (`speculate::accept`).

use super::logits::{Ranked, largest};
use super::sampler::SamplingParams;
use crate::error::{Error, Result};

/// Ids with weights, not normalised.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    /// In the order that [`Distribution::draw`] walks: ascending ids without a filter, else most likely first.
    entries: Vec<(u32, f64)>,
    total: f64,
}

impl Distribution {
    /// Over these ids with these weights, for laws that do not come from logits.
    pub fn from_weights(entries: impl IntoIterator<Item = (u32, f64)>) -> Distribution {
        let mut law = Distribution::default();
        law.fill(entries);
        law
    }

    /// Takes the place of what was there.
    pub fn fill(&mut self, entries: impl IntoIterator<Item = (u32, f64)>) {
        self.entries.clear();
        self.entries.extend(entries.into_iter().filter(|(_, weight)| *weight > 0.0));
        self.total = self.entries.iter().map(|(_, weight)| weight).sum();
    }

    /// Ids with a weight, each with it.
    pub fn entries(&self) -> &[(u32, f64)] {
        &self.entries
    }

    /// Sum of the weights.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Probability of an id.
    pub fn probability(&self, id: u32) -> f64 {
        self.entries.iter().find(|(entry, _)| *entry == id).map_or(0.0, |(_, weight)| weight / self.total)
    }

    /// The id that the share `at` in [0, 1) of the total falls on.
    pub fn draw(&self, at: f64) -> u32 {
        let target = at * self.total;
        let mut sum = 0.0;
        for &(id, weight) in &self.entries {
            sum += weight;
            if sum > target {
                return id;
            }
        }
        self.entries.last().map_or(0, |(id, _)| *id)
    }

    /// The law of `row` `[vocab]`, the logits of generated token `step`. Every filter keeps a prefix of the ids in
    /// descending order, so only as many are ranked as the shortest prefix needs.
    ///
    /// # Errors
    /// `Numeric` for a NaN and for a row that allows nothing.
    pub fn of(&mut self, row: &[f32], params: &SamplingParams, step: u64) -> Result<()> {
        let max = maximum(row, step)?;
        if params.temperature == 0.0 {
            let best = row.iter().position(|&logit| logit == max).unwrap_or(0);
            self.fill([(best as u32, 1.0)]);
            return Ok(());
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
            self.fill(row.iter().enumerate().map(|(id, &logit)| (id as u32, weight(logit))));
            return Ok(());
        }
        let ranked_mass = |ranked: &[Ranked]| ranked.iter().map(|r| weight(r.value)).sum::<f64>();
        let mut count = if params.top_k == 0 { limit.min(256) } else { limit };
        let mut ranked = largest(row, count);
        let mass = match params.top_k {
            0 if params.top_p < 1.0 => row.iter().map(|&logit| weight(logit)).sum::<f64>(),
            _ => ranked_mass(&ranked),
        };
        loop {
            let kept = kept(&ranked, weight, params, mass);
            if kept < count || count == limit {
                self.fill(ranked[..kept].iter().map(|entry| (entry.id, weight(entry.value))));
                return Ok(());
            }
            count = limit.min(count * 8);
            ranked = largest(row, count);
        }
    }
}

/// Length of the prefix that top-p and min-p keep: at least the best id.
fn kept(ranked: &[Ranked], weight: impl Fn(f32) -> f64, params: &SamplingParams, mass: f64) -> usize {
    let enough = if params.top_p < 1.0 { f64::from(params.top_p) * mass } else { f64::INFINITY };
    let mut before = 0.0;
    for (rank, entry) in ranked.iter().enumerate() {
        let w = weight(entry.value);
        if rank > 0 && (before >= enough || w < f64::from(params.min_p)) {
            return rank;
        }
        before += w;
    }
    ranked.len()
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
