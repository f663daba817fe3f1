//! Speculation with the model's own MTP head: draft a few tokens, verify them in one step, keep the good ones (spec 4).
//!
//! Owns: one answer's drafts with the laws they were drawn from, and the judgement of the step that fed them.
//! Always true: every token's law is what it would be without drafts (unless the typical rule was asked for), penalties
//! and bias of its own position included; whatever happens, the sampler's record holds tokens of the answer only.
//! A round: [`draft`] proposes, the trunk is fed the last token and the drafts, [`Speculator::judge`] takes the rows
//! of logits in order until it says that no more are wanted, and [`Speculator::rejected`] rows are taken back.
//! Not here: the head (`model`), the state that is taken back (`state`), whose turn it is (`worker`).

pub mod accept;
pub mod depth;
pub mod options;
pub mod receipts;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::distribution::Distribution;
use super::sampler::{Purpose, Sampler};
use crate::error::Result;
use crate::model::{Draft, LanguageModel};
use crate::state::Sequence;
use accept::{Rule, Verdict};
use depth::Adaptive;
pub use options::SpeculationOptions;
pub use receipts::Receipts;

/// The most tokens that are drafted for a step.
pub const MAX_DRAFTS: usize = 7;

/// How many tokens to draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// As many in every round; 0 is off.
    Fixed(usize),
    /// As many as pay.
    Auto,
}

/// The most drafts that [`Depth::Auto`] makes: what a fourth and fifth draft add is little (spec 4.3).
const AUTO_DRAFTS: usize = 5;

impl Depth {
    /// Drafts to plan for.
    pub fn most(self) -> usize {
        match self {
            Depth::Fixed(depth) => depth,
            Depth::Auto => AUTO_DRAFTS,
        }
    }
}

/// What a user chose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speculation {
    /// How many tokens to draft.
    pub depth: Depth,
    /// When a draft is accepted.
    pub rule: Rule,
}

impl Default for Speculation {
    /// Off.
    fn default() -> Speculation {
        Speculation { depth: Depth::Fixed(0), rule: Rule::Exact }
    }
}

/// One answer's speculation.
pub struct Speculator {
    rule: Rule,
    /// Drafts of every round, unless `adaptive` says.
    fixed: usize,
    adaptive: Option<Adaptive>,
    drafts: Vec<u32>,
    /// The law each draft was drawn from; longer than `drafts` where a round drafted less than one before.
    proposals: Vec<Distribution>,
    /// Drafts judged, all of them accepted.
    accepted: usize,
    target: Distribution,
    rest: Distribution,
    receipts: Receipts,
}

/// A token of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// Its id.
    pub id: u32,
    /// It was a draft, so the state knows it already and the next row's logits give the next token.
    pub goes_on: bool,
}

impl Speculator {
    /// For answers of `model`.
    pub fn of(choice: Speculation, model: &dyn LanguageModel) -> Speculator {
        let mut speculator = Speculator::new(choice, model.max_drafts());
        speculator.receipts.dense = model.dense_passes(1 + speculator.proposals.len());
        speculator
    }

    /// For a model that allows up to `most` drafts.
    pub fn new(choice: Speculation, most: usize) -> Speculator {
        let most = choice.depth.most().min(most).min(MAX_DRAFTS);
        Speculator {
            rule: choice.rule,
            fixed: most,
            adaptive: (choice.depth == Depth::Auto).then(|| Adaptive::new(most)),
            drafts: Vec::with_capacity(most),
            proposals: vec![Distribution::default(); most],
            accepted: 0,
            target: Distribution::default(),
            rest: Distribution::default(),
            receipts: Receipts::default(),
        }
    }

    /// Drafts to make now, if at most `room` more tokens may follow the next one.
    pub fn depth(&self, room: usize) -> usize {
        self.adaptive.as_ref().map_or(self.fixed, Adaptive::depth).min(room)
    }

    /// Whether nothing will be drafted any more, so that the MTP head need not follow.
    pub fn gave_up(&self) -> bool {
        self.fixed == 0 || self.adaptive.as_ref().is_some_and(Adaptive::gave_up)
    }

    /// The drafts of this round.
    pub fn drafts(&self) -> &[u32] {
        &self.drafts
    }

    /// Drafts that are not judged as good: as many rows of the step are to be taken back.
    pub fn rejected(&self) -> usize {
        self.drafts.len() - self.accepted
    }

    /// What was done so far.
    pub fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    /// Forgets a round that was begun: nothing was decided by it.
    pub fn abandon(&mut self, sampler: &mut Sampler) {
        sampler.forget();
        self.drafts.clear();
        self.accepted = 0;
    }

    /// Leaves out all but the first `rows` drafts: a step had no room for more.
    pub fn truncate(&mut self, rows: usize) {
        self.drafts.truncate(rows);
    }

    /// Chooses the next draft from the head's logits `[vocab]`.
    fn propose(&mut self, sampler: &mut Sampler, logits: &[f32]) -> Result<u32> {
        let law = &mut self.proposals[self.drafts.len()];
        sampler.law(logits, law)?;
        let draft = law.draw(sampler.uniform(Purpose::Draft));
        self.drafts.push(draft);
        sampler.suppose(draft);
        Ok(draft)
    }

    /// Chooses the next token from the trunk's logits `[vocab]` behind the last one, and records it.
    ///
    /// # Errors
    /// See [`Sampler::sample`].
    pub fn judge(&mut self, sampler: &mut Sampler, logits: &[f32]) -> Result<Judged> {
        let Some(&draft) = self.drafts.get(self.accepted) else {
            return Ok(Judged { id: sampler.sample(logits)?, goes_on: false });
        };
        sampler.law(logits, &mut self.target)?;
        let numbers = [sampler.uniform(Purpose::Accept), sampler.uniform(Purpose::Token)];
        let proposal = &self.proposals[self.accepted];
        match accept::judge(self.rule, &self.target, proposal, draft, numbers, &mut self.rest) {
            Verdict::Accepted => {
                self.accepted += 1;
                Ok(Judged { id: sampler.record(draft)?, goes_on: true })
            }
            Verdict::Replaced(id) => Ok(Judged { id: sampler.record(id)?, goes_on: false }),
        }
    }

    /// Ends a round or a step without drafts that took `times`: drafting, verifying, choosing. Unless it did nothing
    /// else, `alone`, they say nothing about the next depth.
    pub fn end(&mut self, times: [Duration; 3], alone: bool) {
        let (drafted, accepted) = (self.drafts.len(), self.accepted);
        if let Some(adaptive) = self.adaptive.as_mut().filter(|_| alone) {
            adaptive.record(drafted, accepted, times.iter().sum::<Duration>().as_secs_f64());
        }
        if drafted > 0 {
            self.receipts.count(drafted, accepted);
            let [drafting, verifying, choosing] = times;
            self.receipts.drafting += drafting;
            self.receipts.verifying += verifying;
            self.receipts.choosing += choosing;
        }
        self.drafts.clear();
        self.accepted = 0;
    }
}

/// A sequence to draft for.
pub struct Lane<'a> {
    /// Its state, which knows everything but `next`.
    pub sequence: &'a mut Sequence,
    /// Gets the drafts.
    pub speculator: &'a mut Speculator,
    /// The answer's.
    pub sampler: &'a mut Sampler,
    /// The last token of the answer.
    pub next: u32,
    /// Drafts to make, at least 1.
    pub depth: usize,
}

/// Drafts for all lanes together, [`crate::model::LOGIT_ROWS`] of them at most; the deepest come first afterwards.
///
/// # Errors
/// Those of the model and the sampler; no lane has a draft then, and every state and record is what it was.
pub fn draft(model: &mut dyn LanguageModel, lanes: &mut [Lane<'_>]) -> Result<()> {
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.depth));
    let chained = chain(model, lanes);
    for lane in lanes.iter_mut() {
        lane.sampler.forget();
        if chained.is_err() {
            lane.speculator.abandon(lane.sampler);
        }
    }
    chained
}

fn chain(model: &mut dyn LanguageModel, lanes: &mut [Lane<'_>]) -> Result<()> {
    let vocab = model.shape().vocab;
    let places: Vec<usize> = (0..lanes.len()).collect();
    for step in 0.. {
        let going = lanes.partition_point(|lane| lane.depth > step);
        if going == 0 {
            return Ok(());
        }
        let lanes = &mut lanes[..going];
        let mut drafts: Vec<Draft<'_>> =
            lanes.iter_mut().map(|lane| Draft { sequence: &mut *lane.sequence, next: lane.next }).collect();
        if step == 0 {
            model.draft_first(&mut drafts)?
        } else {
            model.draft_next(&mut drafts)?
        }
        let logits = model.draft_logits(&places[..going])?;
        for (lane, logits) in lanes.iter_mut().zip(logits.chunks_exact(vocab)) {
            lane.next = lane.speculator.propose(lane.sampler, logits)?;
        }
    }
    Ok(())
}

/// Measures parts of a step.
pub struct Clock(Instant);

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }
    /// Time since the start or the last lap.
    pub fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }
}
