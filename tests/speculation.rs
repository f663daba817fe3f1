//! Speculation with the MTP head changes no text and leaves the state that the accepted tokens alone would leave.

#[path = "support/golden.rs"]
mod golden;
#[path = "speculation/rounds.rs"]
mod rounds;

use std::sync::LazyLock;

use golden::{head_of, state_of};
use hipfire::engine::sampler::SamplingParams;
use hipfire::engine::speculate::accept::Rule;
use hipfire::engine::speculate::{Depth, Speculation};
use hipfire::model::load::{self, LoadOptions};
use hipfire::model::{Feed, LanguageModel};
use hipfire::text::Tokenizer;
use hipfire::weights::Source;
use rounds::{Model, Run, fixed, generate};

/// Rewinds up to seven drafts.
fn options(max_sequence: Option<usize>) -> LoadOptions {
    LoadOptions { mtp: true, rewind_rows: 8, max_sequence, ..LoadOptions::default() }
}

fn tiny() -> Model {
    golden::model("tiny", &options(None))
}

fn ember() -> Model {
    load::cpu(load::open(&Source::embedded().unwrap()).unwrap(), &options(None), &mut |_| {}).unwrap()
}

static TOKENIZER: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_json(include_bytes!("../models/ember/tokenizer.json"), None).unwrap());

/// A beginning of the kind of text that ember knows.
fn story() -> Vec<u32> {
    TOKENIZER.encode_raw("Once upon a time, Lily found a small red box in the garden. She").unwrap()
}

/// Ids without a meaning.
fn noise(count: usize, vocab: u32) -> Vec<u32> {
    (0..count as u64).map(|i| (1 + i.wrapping_mul(2_654_435_761) % u64::from(vocab - 1)) as u32).collect()
}

#[test]
fn greedy_text_is_the_same_at_every_depth_whether_drafts_are_good_or_bad() {
    // Random weights refuse nearly every draft; a trained model takes most of them.
    let cases = [(tiny(), noise(37, 96), 420), (ember(), story(), 1000)];
    for (mut model, prompt, tokens) in cases {
        let run = Run { prompt: &prompt, chunk: 512, tokens, params: SamplingParams::default() };
        let (plain, none) = generate(&mut model, &run, fixed(0), &mut |_, _, _| {});
        assert_eq!((plain.len(), none.rounds), (tokens, 0));
        for depth in 1..=5 {
            let (text, receipts) = generate(&mut model, &run, fixed(depth), &mut |_, _, _| {});
            assert!(text == plain, "depth {depth}");
            println!("depth {depth}: {:?}, {:.2} tokens a round", receipts.acceptance(), receipts.tokens_a_round());
        }
    }
}

#[test]
fn greedy_text_with_penalties_and_bias_is_the_same_so_they_count_at_each_position() {
    let mut model = ember();
    let params = SamplingParams {
        repetition_penalty: 1.2,
        presence_penalty: 0.4,
        frequency_penalty: 0.3,
        logit_bias: vec![(11, 2.0), (300, f32::NEG_INFINITY)],
        ..SamplingParams::default()
    };
    let prompt = story();
    let run = Run { prompt: &prompt, chunk: 512, tokens: 300, params };
    let (plain, _) = generate(&mut model, &run, fixed(0), &mut |_, _, _| {});
    for depth in [1, 3, 5] {
        let (text, receipts) = generate(&mut model, &run, fixed(depth), &mut |_, _, _| {});
        assert!(text == plain, "depth {depth}");
        assert!(receipts.total_accepted() > 0);
    }
}

#[test]
fn after_every_round_the_state_is_that_of_a_run_of_the_accepted_tokens() {
    // Prompts that end at every place of a block and of a segment of kept rows, chunks that cut them anywhere.
    for (prompt, chunk) in [(1, 512), (15, 512), (16, 512), (17, 4), (30, 16), (31, 7), (33, 17)] {
        let mut model = tiny();
        let ids = noise(prompt, 96);
        for depth in 1..=5 {
            let run = Run { prompt: &ids, chunk, tokens: 40, params: SamplingParams::default() };
            let mut fresh = rounds::read(&mut model, &ids, chunk);
            let (_, receipts) = generate(&mut model, &run, fixed(depth), &mut |model, sequence, next| {
                let (fed, all) = (fresh.len(), sequence.ids().to_vec());
                for id in &all[fed..] {
                    model.forward(&mut [Feed { sequence: &mut fresh, ids: std::slice::from_ref(id) }]).unwrap();
                }
                // One more token folds what is pending in both; the originals go on as they were.
                let [mut ours, mut theirs] = [sequence.fork().unwrap(), fresh.fork().unwrap()];
                for fork in [&mut ours, &mut theirs] {
                    rounds::settle(model, fork, next);
                }
                assert_eq!(
                    ours.head().rows(),
                    ours.len() - 1,
                    "the head knows everything but the last token's successor"
                );
                let all = |sequence| [state_of(model, sequence), vec![head_of(model, sequence)]].concat();
                let [ours, theirs] = [all(&ours), all(&theirs)];
                for (part, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                    assert!(ours == theirs, "prompt {prompt}, chunk {chunk}, depth {depth}: part {part}");
                }
            });
            assert!(receipts.rounds > 0);
        }
    }
}

#[test]
fn sampled_text_depends_on_the_seed_alone() {
    let mut model = ember();
    let prompt = story();
    let run = |seed| Run {
        prompt: &prompt,
        chunk: 512,
        tokens: 200,
        params: SamplingParams { temperature: 1.0, top_k: 20, top_p: 0.95, seed, ..SamplingParams::default() },
    };
    let mut text = |seed| generate(&mut model, &run(seed), fixed(3), &mut |_, _, _| {}).0;
    assert!(text(5) == text(5));
    assert!(text(5) != text(6));
}

#[test]
fn the_typical_rule_accepts_more_and_is_exact_where_the_law_is_certain() {
    let mut model = ember();
    let prompt = story();
    let hot = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let typical = Speculation { depth: Depth::Fixed(3), rule: Rule::Typical(0.05) };
    let run = Run { prompt: &prompt, chunk: 512, tokens: 300, params: hot };
    let (_, exact) = generate(&mut model, &run, fixed(3), &mut |_, _, _| {});
    let (_, loose) = generate(&mut model, &run, typical, &mut |_, _, _| {});
    assert!(loose.tokens_a_round() > exact.tokens_a_round(), "{loose:?} {exact:?}");
    let run = Run { params: SamplingParams::default(), ..run };
    let (plain, _) = generate(&mut model, &run, fixed(0), &mut |_, _, _| {});
    assert!(generate(&mut model, &run, typical, &mut |_, _, _| {}).0 == plain);
}

#[test]
fn adaptive_depth_changes_no_greedy_text() {
    for (mut model, prompt, tokens) in [(tiny(), noise(37, 96), 300), (ember(), story(), 400)] {
        let run = Run { prompt: &prompt, chunk: 512, tokens, params: SamplingParams::default() };
        let (plain, _) = generate(&mut model, &run, fixed(0), &mut |_, _, _| {});
        let auto = Speculation { depth: Depth::Auto, rule: Rule::Exact };
        let (text, receipts) = generate(&mut model, &run, auto, &mut |_, _, _| {});
        assert!(text == plain);
        println!("auto: {receipts:?}");
    }
}
