//! A round of speculation that fails, or is given up, anywhere leaves the sequence as it was; a chunk of a prompt may tear it,
//! and then it says so.

#[path = "support/golden.rs"]
mod golden;
#[path = "speculation/rounds.rs"]
#[allow(dead_code)] // whole answers are the other file's
mod rounds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use golden::{head_of, state_of};
use hipfire::backend::Observer;
use hipfire::engine::sampler::{Sampler, SamplingParams};
use hipfire::engine::speculate::{self, Lane, Speculator};
use hipfire::error::{Error, Result};
use hipfire::model::load::LoadOptions;
use hipfire::model::{Feed, LanguageModel};
use hipfire::state::Sequence;
use rounds::{Model, fixed, read, settle};

const DEPTH: usize = 3;
const NEXT: u32 = 33;

fn model(max_sequence: usize) -> Model {
    let options =
        LoadOptions { mtp: true, rewind_rows: DEPTH + 1, max_sequence: Some(max_sequence), ..LoadOptions::default() };
    golden::model("tiny", &options)
}

fn prompt(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 37 + 5) % 96).collect()
}

/// Everything, once one more token has folded in what was pending.
fn settled(model: &mut Model, sequence: &Sequence) -> Vec<Vec<f32>> {
    let mut fork = sequence.fork().unwrap();
    settle(model, &mut fork, NEXT);
    [state_of(model, &fork), vec![head_of(model, &fork)]].concat()
}

fn drafts(model: &mut Model, sequence: &mut Sequence, depth: usize) -> Result<(Vec<u32>, Sampler)> {
    let mut sampler = Sampler::new(SamplingParams::default(), &[]);
    let mut speculator = Speculator::new(fixed(DEPTH), model.max_drafts());
    let lane = Lane { sequence, speculator: &mut speculator, sampler: &mut sampler, next: NEXT, depth };
    let drafted = speculate::draft(model, &mut [lane]);
    assert!(drafted.is_ok() || speculator.drafts().is_empty(), "nothing is left of a chain that failed");
    drafted.map(|()| ([&[NEXT], speculator.drafts()].concat(), sampler))
}

/// Panics when the count of observed values has run down to zero.
fn fuse(left: &Arc<AtomicUsize>) -> Observer {
    let left = left.clone();
    Box::new(move |_, _| {
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic!("injected");
        }
    })
}

/// Whether `work` met the failure at the `fail_at`th value that it computes; it may compute fewer.
fn fails(model: &mut Model, fail_at: usize, work: impl FnOnce(&mut Model) -> Result<()>) -> bool {
    let left = Arc::new(AtomicUsize::new(fail_at));
    model.set_observers(Some(fuse(&left)), None);
    let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut *model)));
    model.set_observers(None, None);
    outcome.is_err()
}

/// A sequence whose last step is revocable and was partly taken back, as within an answer.
fn within_an_answer(model: &mut Model) -> Sequence {
    let mut sequence = read(model, &prompt(20), 512);
    model.forward(&mut [Feed { sequence: &mut sequence, ids: &[1, 2, 3] }]).unwrap();
    sequence.rewind(1).unwrap();
    sequence
}

#[test]
fn a_failure_at_any_value_of_a_round_leaves_the_sequence_as_it_was() {
    let mut model = model(64);
    let sequence = within_an_answer(&mut model);
    let before = settled(&mut model, &sequence);
    let (mut inside, mut behind) = (0, 0);
    for fail_at in 1.. {
        let mut victim = sequence.fork().unwrap();
        let failed = fails(&mut model, fail_at, |model| {
            let (ids, _) = drafts(model, &mut victim, DEPTH)?;
            model.forward(&mut [Feed { sequence: &mut victim, ids: &ids }])?;
            model.logits(&[0, 1, 2, 3]).map(drop)
        });
        if !failed {
            break;
        }
        match victim.len() - sequence.len() {
            0 => inside += 1,
            // The step itself ran: its logits did not.
            rows => {
                behind += 1;
                victim.rewind(rows).unwrap();
            }
        }
        assert!(settled(&mut model, &victim) == before, "failure at value {fail_at}");
        // A moment of it is one to come back to.
        let moment = victim.snapshot().unwrap();
        model.forward(&mut [Feed { sequence: &mut victim, ids: &prompt(30) }]).unwrap();
        victim.restore(&moment).unwrap();
        assert!(settled(&mut model, &victim) == before, "restored after a failure at value {fail_at}");
    }
    assert!(inside > 100 && behind > 0, "{inside} inside the step, {behind} behind it");
}

#[test]
fn two_failures_in_a_row_take_nothing_more_than_one() {
    let mut model = model(64);
    let sequence = within_an_answer(&mut model);
    let before = settled(&mut model, &sequence);
    let mut victim = sequence.fork().unwrap();
    for fail_at in [50, 20, 70] {
        let step = |model: &mut Model| model.forward(&mut [Feed { sequence: &mut victim, ids: &[7, 8, 9, 10] }]);
        assert!(fails(&mut model, fail_at, step));
    }
    assert_eq!(victim.pending(), 0, "what was folded in stays");
    assert!(victim.rewind(1).is_err());
    assert!(settled(&mut model, &victim) == before);
}

#[test]
fn a_failure_inside_a_chunk_of_a_prompt_leaves_a_sequence_that_refuses_work_until_restored() {
    let mut model = model(64);
    let sequence = within_an_answer(&mut model);
    let before = settled(&mut model, &sequence);
    let (mut torn, mut whole) = (0, 0);
    for fail_at in (1..).step_by(7) {
        let mut victim = sequence.fork().unwrap();
        let snapshot = victim.snapshot().unwrap();
        let step = |model: &mut Model| model.forward(&mut [Feed { sequence: &mut victim, ids: &prompt(30) }]);
        if !fails(&mut model, fail_at, step) {
            break;
        }
        if victim.check().is_err() {
            torn += 1;
            assert!(model.forward(&mut [Feed { sequence: &mut victim, ids: &[1] }]).is_err());
            assert!(victim.fork().is_err() && victim.rewind(0).is_err() && victim.snapshot().is_err());
            victim.restore(&snapshot).unwrap();
        } else {
            whole += 1;
        }
        assert!(settled(&mut model, &victim) == before, "failure at value {fail_at}");
    }
    assert!(torn > 5 && whole > 0, "{torn} torn, {whole} whole");
}

#[test]
fn a_chain_that_leaves_the_context_fails_alone_and_shorter_ones_still_work() {
    let mut model = model(32);
    let mut sequence = read(&mut model, &prompt(31), 512);
    let before = (settled(&mut model, &sequence), sequence.len());
    // The head reads row 30; drafts would take rows 31 and 32.
    let error = drafts(&mut model, &mut sequence, DEPTH).err().unwrap();
    assert!(matches!(error, Error::ContextLength { context: 32, .. }), "{error}");
    assert!((settled(&mut model, &sequence), sequence.len()) == before);
    let (ids, _) = drafts(&mut model, &mut sequence, 1).unwrap();
    assert!(model.forward(&mut [Feed { sequence: &mut sequence, ids: &ids }]).is_err());
    assert!((settled(&mut model, &sequence), sequence.len()) == before);
    model.forward(&mut [Feed { sequence: &mut sequence, ids: &ids[..1] }]).unwrap();
}

#[test]
fn a_round_given_up_between_any_two_of_its_parts_continues_exactly() {
    let mut model = model(64);
    let mut sequence = read(&mut model, &prompt(21), 512);
    let before = settled(&mut model, &sequence);
    let mut drafted = sequence.fork().unwrap();
    drafts(&mut model, &mut drafted, DEPTH).unwrap();
    assert!(settled(&mut model, &drafted) == before, "after drafting");
    let (ids, _) = drafts(&mut model, &mut drafted, 2).unwrap();
    model.forward(&mut [Feed { sequence: &mut drafted, ids: &ids }]).unwrap();
    drafted.rewind(3).unwrap();
    assert!(settled(&mut model, &drafted) == before, "after verifying");
    // Another token than the one that was promised to the head.
    let other = [NEXT + 1];
    model.forward(&mut [Feed { sequence: &mut drafted, ids: &other }]).unwrap();
    model.forward(&mut [Feed { sequence: &mut sequence, ids: &other }]).unwrap();
    assert!(settled(&mut model, &drafted) == settled(&mut model, &sequence), "another token came");
}

#[test]
fn a_row_that_is_not_a_number_ends_the_round_and_records_nothing() {
    let mut sampler = Sampler::new(SamplingParams::default(), &[]);
    let mut speculator = Speculator::new(fixed(DEPTH), DEPTH);
    let (first, damaged) = ([0.0, 1.0], [0.0, f32::NAN]);
    assert_eq!(speculator.judge(&mut sampler, &first).unwrap().id, 1);
    let Err(Error::Numeric(message)) = speculator.judge(&mut sampler, &damaged) else { panic!("no error") };
    assert!(message.contains("token 1") && message.contains("id 1"), "{message}");
    speculator.abandon(&mut sampler);
    assert_eq!(speculator.judge(&mut sampler, &first).unwrap().id, 1);
}

#[test]
fn what_cannot_be_drafted_says_why() {
    let mut model = model(64);
    let says = |error: Error, part: &str| assert!(error.to_string().contains(part), "{error}");
    let mut empty = model.new_sequence().unwrap();
    says(drafts(&mut model, &mut empty, 1).err().unwrap(), "does not follow");
    let mut sequence = read(&mut model, &prompt(20), 512);
    says(model.draft_logits(&[1]).err().unwrap(), "last 1 drafts");
    says(model.draft_next(&mut []).err().unwrap(), "1 to 16 sequences");
    sequence.stop_following();
    says(drafts(&mut model, &mut sequence, 1).err().unwrap(), "does not follow");
    // Without a head that follows, a sequence still works, and its next user has one again.
    model.forward(&mut [Feed { sequence: &mut sequence, ids: &prompt(18) }]).unwrap();
    sequence.reset().unwrap();
    model.forward(&mut [Feed { sequence: &mut sequence, ids: &prompt(18) }]).unwrap();
    drafts(&mut model, &mut sequence, 2).unwrap();
    let mut headless = golden::model("tiny", &LoadOptions { rewind_rows: 4, ..LoadOptions::default() });
    let mut sequence = read(&mut headless, &prompt(20), 512);
    assert_eq!(headless.max_drafts(), 0);
    says(
        headless.draft_first(&mut [hipfire::model::Draft { sequence: &mut sequence, next: 1 }]).unwrap_err(),
        "without",
    );
}
