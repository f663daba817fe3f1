//! What speculation did: counts and times, for `--stats`, JSON and `/health`.
//!
//! Owns: the sums and the rates that follow from them.
//! Always true: `drafted[i]` counts the rounds that drafted more than i tokens, `accepted[i]` those of them whose draft i
//! became a token.
//! Not here: who measures (`worker`), how a number is shown (`cli`, `server`).

use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::MAX_DRAFTS;
use crate::backend::dense::DensePasses;

/// Sums over rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Receipts {
    /// Steps that verified drafts.
    pub rounds: u64,
    /// By depth.
    pub drafted: [u64; MAX_DRAFTS],
    /// By depth.
    pub accepted: [u64; MAX_DRAFTS],
    /// Time in the MTP head, its logits and the choice of drafts.
    pub drafting: Duration,
    /// Time in the trunk's steps that verified.
    pub verifying: Duration,
    /// Time in the trunk's logits and the choice of tokens.
    pub choosing: Duration,
    /// How dense attention cuts the widest verification; `None`, if queries read a selection.
    pub dense: Option<DensePasses>,
}

impl Receipts {
    /// Counts a round that drafted `drafted` tokens.
    pub fn count(&mut self, drafted: usize, accepted: usize) {
        self.rounds += 1;
        self.drafted.iter_mut().take(drafted).for_each(|n| *n += 1);
        self.accepted.iter_mut().take(accepted).for_each(|n| *n += 1);
    }

    /// Adds another's sums.
    pub fn add(&mut self, other: &Receipts) {
        self.rounds += other.rounds;
        self.drafted.iter_mut().zip(other.drafted).for_each(|(n, m)| *n += m);
        self.accepted.iter_mut().zip(other.accepted).for_each(|(n, m)| *n += m);
        self.drafting += other.drafting;
        self.verifying += other.verifying;
        self.choosing += other.choosing;
        self.dense = other.dense.or(self.dense);
    }

    /// Tokens drafted.
    pub fn total_drafted(&self) -> u64 {
        self.drafted.iter().sum()
    }
    /// Drafts that became tokens.
    pub fn total_accepted(&self) -> u64 {
        self.accepted.iter().sum()
    }
    /// Tokens that a round gave in the mean: accepted drafts and the one that the trunk itself chose.
    pub fn tokens_a_round(&self) -> f64 {
        ratio(self.rounds + self.total_accepted(), self.rounds)
    }
    /// Share of drafts of each depth that became tokens, as far as any were drafted.
    pub fn acceptance(&self) -> Vec<f64> {
        let depths = self.accepted.iter().zip(self.drafted).take_while(|(_, drafted)| *drafted > 0);
        depths.map(|(&accepted, drafted)| ratio(accepted, drafted)).collect()
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Serialize for Receipts {
    /// With the rates, and depths that were used only.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let used = self.drafted.iter().take_while(|drafted| **drafted > 0).count();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mut fields = serializer.serialize_struct("Receipts", 11)?;
        fields.serialize_field("rounds", &self.rounds)?;
        fields.serialize_field("drafted", &self.total_drafted())?;
        fields.serialize_field("accepted", &self.total_accepted())?;
        fields.serialize_field("drafted_by_depth", &self.drafted[..used])?;
        fields.serialize_field("accepted_by_depth", &self.accepted[..used])?;
        fields.serialize_field("acceptance_by_depth", &self.acceptance())?;
        fields.serialize_field("tokens_a_round", &self.tokens_a_round())?;
        fields.serialize_field("drafting_ms", &ms(self.drafting))?;
        fields.serialize_field("verifying_ms", &ms(self.verifying))?;
        fields.serialize_field("choosing_ms", &ms(self.choosing))?;
        fields.serialize_field("dense", &self.dense)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_is_counted_by_depth_and_rounds_without_a_depth_do_not_count_for_it() {
        let mut receipts = Receipts::default();
        receipts.count(3, 3);
        receipts.count(3, 1);
        receipts.count(1, 0);
        assert_eq!((receipts.rounds, receipts.total_drafted(), receipts.total_accepted()), (3, 7, 4));
        assert_eq!(receipts.acceptance(), [2.0 / 3.0, 0.5, 0.5]);
        assert_eq!(receipts.tokens_a_round(), 7.0 / 3.0);
        let mut twice = receipts;
        twice.add(&receipts);
        assert_eq!((twice.rounds, twice.acceptance()), (6, receipts.acceptance()));
        let json = serde_json::to_value(receipts).unwrap();
        assert_eq!(json["accepted_by_depth"], serde_json::json!([2, 1, 1]));
        assert_eq!(serde_json::to_value(Receipts::default()).unwrap()["acceptance_by_depth"], serde_json::json!([]));
    }
}
