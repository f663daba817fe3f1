//! What a slot works on: an answer, or the score of a text. The worker treats both alike.
//!
//! Owns: the ids of a request (prompt, then answer) as the step wants them.
//! Always true: the state of a slot holds a prefix of its work's ids; what is missing is what the next steps feed.
//! Not here: what happens with a row of logits (`answer`, `score`).

use std::time::{Duration, Instant};

use super::answer::Answer;
use super::counters::{Activity, End};
use super::request::StopReason;
use super::score::Scoring;
use super::speculate::{Lane, Receipts, Speculator};
use super::{MemoryProbe, scheduler::Seen};
use crate::error::Error;
use crate::state::Sequence;

/// Whether a request goes on.
pub(super) enum Verdict {
    Continue,
    End(Ending),
}

/// How a request ends.
pub(super) enum Ending {
    Finished(StopReason),
    Failed(Error),
    /// Nobody listens any more.
    Gone,
}

/// The task behind the ids.
pub(super) enum Task {
    Answer(Box<Answer>),
    Score(Scoring),
}

/// A request, waiting or in a slot.
pub(super) struct Work {
    /// Its number since the start.
    pub number: u64,
    /// The request with the same prompt that reads it for both.
    pub follows: Option<u64>,
    /// Others follow it.
    leads: bool,
    /// There is a budget for what it leaves behind.
    kept: bool,
    /// Tokens of the prompt that were known.
    cached: usize,
    /// Prompt, answer, and drafts that wait for their step.
    ids: Vec<u32>,
    /// Ids of the prompt.
    prompt: usize,
    task: Task,
}

impl Work {
    pub fn new(number: u64, ids: Vec<u32>, task: Task) -> Work {
        Work { number, follows: None, leads: false, kept: false, cached: 0, prompt: ids.len(), ids, task }
    }

    /// One of several with the same prompt, the first of which has the number `first`.
    pub fn of_several(self, first: u64) -> Work {
        let leads = self.number == first;
        Work { follows: (!leads).then_some(first), leads, ..self }
    }

    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
    pub fn cached(&self) -> usize {
        self.cached
    }
    /// Whether its prompt is still being read, or was not begun.
    pub fn reads(&self) -> bool {
        matches!(&self.task, Task::Answer(answer) if answer.reads())
    }
    /// Whether a known beginning of its ids serves it; a score wants the logits of every row.
    pub fn reuses(&self) -> bool {
        matches!(self.task, Task::Answer(_))
    }
    /// Whether the state after `held` tokens is worth keeping: the end of a chunk, and the end of the prompt without its
    /// last token, whose logits everyone who asks the same wants.
    pub fn keeps(&self, held: usize) -> bool {
        self.kept && held < self.prompt || self.leads && held == self.prompt - 1
    }
    /// Whether what it leaves behind at its end is worth keeping.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    pub fn prompt(&self) -> usize {
        self.prompt
    }

    /// Somebody asked it to stop.
    pub fn cancelled(&self) -> bool {
        match &self.task {
            Task::Answer(answer) => answer.cancelled(),
            Task::Score(scoring) => scoring.cancelled(),
        }
    }

    pub fn submitted(&self) -> Instant {
        match &self.task {
            Task::Answer(answer) => answer.submitted(),
            Task::Score(scoring) => scoring.submitted(),
        }
    }

    /// What it does, and how many tokens it has generated.
    pub fn activity(&self) -> (Activity, usize) {
        match &self.task {
            Task::Answer(answer) if answer.reads() => (Activity::Reading, 0),
            Task::Answer(answer) => (Activity::Answering, answer.generated()),
            Task::Score(_) => (Activity::Scoring, 0),
        }
    }

    /// It has got a slot of a model that holds `context` tokens, whose state has the first `cached` of its own; `cache`
    /// says whether anything is kept for later requests. An answer may draft by `speculator`.
    pub fn begin(&mut self, context: usize, cached: usize, cache: bool, speculator: Speculator) -> Verdict {
        (self.cached, self.kept) = (cached, cache && self.reuses());
        match &mut self.task {
            Task::Answer(answer) => answer.begin(context, cached, speculator),
            Task::Score(scoring) => scoring.begin(&self.ids),
        }
    }

    /// As the scheduler sees it, with `held` ids in the state of `slot`.
    pub fn seen(&self, slot: usize, held: usize, served: u64) -> Seen {
        let (end, reads, most) = match &self.task {
            // Before the last token of a prompt lies the moment that `keeps` names.
            Task::Answer(answer) if answer.reads() && (self.kept || self.leads) => {
                (self.prompt, true, (self.prompt - 1 - held).max(1))
            }
            Task::Answer(answer) if answer.reads() => (self.prompt, true, usize::MAX),
            Task::Answer(_) => (self.ids.len(), false, usize::MAX),
            // The last token predicts nothing that is asked for.
            Task::Score(scoring) => (self.ids.len() - 1, true, scoring.chunk()),
        };
        Seen { slot, ready: end - held, reads, most, served }
    }

    /// The next `rows` ids to feed to a state that holds `held`.
    pub fn next(&self, held: usize, rows: usize) -> &[u32] {
        &self.ids[held..held + rows]
    }

    /// Whether it may draft, so that the MTP head has to follow its state.
    pub fn drafts(&self) -> bool {
        matches!(self.task, Task::Answer(_))
    }

    /// What to draft for, if it is an answer that may and its state holds all but the last id.
    pub fn lane<'a>(&'a mut self, sequence: &'a mut Sequence) -> Option<Lane<'a>> {
        match &mut self.task {
            Task::Answer(answer) => answer.lane(&self.ids, sequence),
            Task::Score(_) => None,
        }
    }

    /// Puts drafts that were chosen where the next step finds them, once; the state holds `held` ids.
    pub fn take_drafts(&mut self, held: usize) {
        if let Task::Answer(answer) = &mut self.task
            && held + 1 == self.ids.len()
        {
            self.ids.extend_from_slice(answer.speculator().drafts());
        }
    }

    /// Tokens of a state that holds `held` which are to stay.
    pub fn kept(&self, held: usize) -> usize {
        match &self.task {
            Task::Answer(answer) => answer.kept(held),
            Task::Score(_) => held,
        }
    }

    /// Everything wanted of a step was taken. `times` are those of drafting, verifying and choosing; `alone` says that
    /// the step read no prompt beside the answers.
    pub fn round_ended(&mut self, times: [Duration; 3], alone: bool) {
        if let Task::Answer(answer) = &mut self.task
            && !answer.reads()
        {
            answer.speculator().end(times, alone);
        }
    }

    /// What its drafts came to.
    pub fn receipts(&self) -> Receipts {
        match &self.task {
            Task::Answer(answer) => *answer.receipts(),
            Task::Score(_) => Receipts::default(),
        }
    }

    /// A step has fed `rows` ids, so that the state holds `held` now. Says of how many of them, counted from the last,
    /// [`Work::take`] wants the logits.
    pub fn stepped(&mut self, held: usize, rows: usize) -> (usize, Verdict) {
        match &mut self.task {
            Task::Answer(answer) => answer.stepped(held, rows, &mut self.ids),
            Task::Score(_) => (rows, Verdict::Continue),
        }
    }

    /// The logits `[vocab]` of the next row that it wanted.
    pub fn take(&mut self, logits: &[f32]) -> Verdict {
        match &mut self.task {
            Task::Answer(answer) => answer.take(logits, &mut self.ids),
            Task::Score(scoring) => scoring.take(logits, &self.ids),
        }
    }

    /// What an ending means for the totals.
    pub fn outcome(&self, ending: &Ending) -> End {
        let generated = match &self.task {
            Task::Answer(answer) => answer.generated(),
            Task::Score(_) => 0,
        };
        match ending {
            Ending::Finished(reason) => End::Answered(*reason, generated),
            Ending::Failed(_) => End::Failed(generated),
            Ending::Gone => End::Gone(generated),
        }
    }

    /// Says the last word.
    pub fn finish(self, ending: Ending, memory: &MemoryProbe) {
        match self.task {
            Task::Answer(answer) => answer.finish(ending, memory),
            Task::Score(scoring) => scoring.finish(ending),
        }
    }
}
