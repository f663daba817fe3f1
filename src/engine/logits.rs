//! Plain arithmetic on one row of logits: the largest few, and log-probabilities.
//!
//! Owns: partial selection and the log-softmax normaliser, shared by the sampler and by scoring.
//! Always true: equal logits rank by the lower id (also -0.0 and 0.0); no full sort unless every id is asked for.
//! Not here: what is drawn from a row (`sampler`), which rows are computed (`score`, `worker`).

use std::cmp::Ordering;

use serde::Serialize;

/// An id with its value (a logit or a log-probability).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ranked {
    /// Token id.
    pub id: u32,
    /// The logit, or the natural log of the probability (its name in outputs).
    #[serde(rename = "logprob")]
    pub value: f32,
}

/// Descending value, then ascending id. Values are finite or infinite, never -0.0 (see [`largest`]).
fn order(a: &Ranked, b: &Ranked) -> Ordering {
    b.value.total_cmp(&a.value).then(a.id.cmp(&b.id))
}

/// The `count` largest of `logits [vocab]`, best first; ties by the lower id. One pass with a running floor: a row of
/// 248,320 logits and a small `count` costs about one comparison an id.
pub fn largest(logits: &[f32], count: usize) -> Vec<Ranked> {
    let count = count.min(logits.len());
    if count == 0 {
        return Vec::new();
    }
    let room = count + count.max(256);
    let mut kept: Vec<Ranked> = Vec::with_capacity(room.min(logits.len()));
    // Ids come in ascending order: once `count` are held, a later id must be strictly above the last of them.
    let mut floor = None;
    for (id, &logit) in logits.iter().enumerate() {
        if floor.is_some_and(|floor| logit <= floor) {
            continue;
        }
        // Adding 0.0 turns -0.0 into 0.0, so that both tie under a total order.
        kept.push(Ranked { id: id as u32, value: logit + 0.0 });
        if kept.len() == room {
            kept.select_nth_unstable_by(count - 1, order);
            kept.truncate(count);
            floor = kept.last().map(|last| last.value);
        }
    }
    if kept.len() > count {
        kept.select_nth_unstable_by(count - 1, order);
        kept.truncate(count);
    }
    kept.sort_unstable_by(order);
    kept
}

/// The natural log of a softmax, one row at a time.
#[derive(Debug, Clone, Copy)]
pub struct LogSoftmax {
    max: f32,
    /// ln of the sum of exp(logit - max).
    log_sum: f64,
}

impl LogSoftmax {
    /// The normaliser of `logits [vocab]`: exponentials in f32, their sum in f64 in id order, so that it is the same
    /// for every thread count. A row with +inf gives all its mass to the ids that hold it.
    pub fn of(logits: &[f32]) -> LogSoftmax {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 =
            logits.iter().map(|&logit| if logit == max { 1.0 } else { f64::from((logit - max).exp()) }).sum();
        LogSoftmax { max, log_sum: sum.ln() }
    }

    /// ln p of an id with this logit.
    pub fn log_probability(&self, logit: f32) -> f32 {
        let below = if logit == self.max { 0.0 } else { f64::from(logit) - f64::from(self.max) };
        (below - self.log_sum) as f32
    }

    /// The `count` most likely ids of the row with ln p, best first.
    pub fn top(&self, logits: &[f32], count: usize) -> Vec<Ranked> {
        let mut top = largest(logits, count);
        for entry in &mut top {
            entry.value = self.log_probability(entry.value);
        }
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize) -> Vec<f32> {
        // Few distinct values: many exact ties.
        (0..count as u64).map(|i| ((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as f32) - 30.0).collect()
    }

    #[test]
    fn largest_equals_a_full_stable_sort_with_many_ties() {
        for vocab in [1, 2, 255, 256, 257, 5000] {
            let logits = rows(vocab);
            let mut all: Vec<u32> = (0..vocab as u32).collect();
            all.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
            for count in [0, 1, 2, 20, 300, vocab, vocab + 1] {
                let ids: Vec<u32> = largest(&logits, count).iter().map(|r| r.id).collect();
                assert_eq!(ids, all[..count.min(vocab)], "vocab {vocab}, count {count}");
            }
        }
    }

    #[test]
    fn negative_zero_ties_with_zero() {
        assert_eq!(largest(&[-0.0, 0.0], 2).iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(largest(&[-1.0, -0.0, 0.0], 1)[0].id, 1);
    }

    #[test]
    fn probabilities_sum_to_one() {
        let logits = rows(5000);
        let softmax = LogSoftmax::of(&logits);
        let total: f64 = logits.iter().map(|&l| f64::from(softmax.log_probability(l)).exp()).sum();
        // The sum is in f64; what is left is f32: the rounding of each exponential (a few units in the last place,
        // averaging out) and of each log-probability, |ln p| * 2^-24 <= 70 * 6e-8.
        assert!((total - 1.0).abs() < 70.0 * f64::from(f32::EPSILON), "{total}");
    }

    #[test]
    fn infinite_logits_share_the_mass() {
        let softmax = LogSoftmax::of(&[f32::INFINITY, 1.0, f32::INFINITY]);
        assert_eq!(softmax.log_probability(f32::INFINITY), -(2.0f64.ln()) as f32);
        assert_eq!(softmax.log_probability(1.0), f32::NEG_INFINITY);
    }
}
