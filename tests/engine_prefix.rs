//! Prompts that begin like earlier ones: what is read again, and that the text is that of a fresh run, bit for bit.

#[path = "support/golden.rs"]
mod golden;
#[path = "support/script.rs"]
mod script;

use std::path::Path;

use hipfire::arena::Limits;
use hipfire::config::KvMode;
use hipfire::engine::{Done, Engine, Event, Options, Request, SamplingParams, Stream, Token};
use hipfire::model::LanguageModel;
use hipfire::model::load::{self, LoadOptions};
use hipfire::weights::Source;
use script::{Script, answer, expected, hashing, options, request};

const CACHE: usize = 1 << 20;

fn engine(script: Script, parallel: usize, cache_memory: usize) -> Engine {
    Script { rule: hashing, ..script }.start(Options { parallel, cache_memory, ..options() })
}

/// Tokens with their numbers, and the end.
fn run(stream: Stream) -> (Vec<Token>, Done) {
    let mut tokens = Vec::new();
    for event in stream {
        match event {
            Event::Token(token) => tokens.push(token),
            Event::Done(done) => return (tokens, done),
            Event::Failed(error) => panic!("{error}"),
            Event::Prefill { .. } => {}
        }
    }
    panic!("the stream ended without its last event");
}

/// Asks, checks the answer against the rule, and says how much of the prompt was known.
fn cached(engine: &Engine, prompt: &[u32]) -> usize {
    let (tokens, done) = run(engine.submit(request(prompt)).unwrap());
    assert_eq!(tokens.iter().map(|t| t.id).collect::<Vec<_>>(), expected(hashing, prompt, 4));
    done.usage.cached
}

fn text(seed: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * i + seed * i + seed) % 10).collect()
}

/// A prompt, its answer and something new.
fn turn(prompt: &[u32], new: &[u32]) -> Vec<u32> {
    [prompt, &expected(hashing, prompt, 4), new].concat()
}

#[test]
fn a_following_turn_reads_only_what_is_new() {
    for cache in [CACHE, 0] {
        let engine = engine(Script::small(), 1, cache);
        let first = text(1, 20);
        assert_eq!(cached(&engine, &first), 0);
        // The last token of an answer that was cut is known, but was not fed.
        assert_eq!(cached(&engine, &turn(&first, &[7, 7])), 23);
        assert_eq!(engine.status().totals.prefill_tokens, 20 + 3, "with a cache of {cache} bytes");
    }
}

#[test]
fn the_same_prompt_again_reads_its_last_token_only() {
    let engine = engine(Script::small(), 1, CACHE);
    let prompt = text(2, 30);
    assert_eq!(cached(&engine, &prompt), 0);
    assert_eq!(cached(&engine, &prompt), 29);
    // An answer that was not wanted is no part of the next turn.
    assert_eq!(cached(&engine, &[&prompt[..], &[9, 9, 9]].concat()), 29);
}

#[test]
fn one_conversation_does_not_cost_another_its_beginning() {
    for parallel in [1, 2] {
        let engine = engine(Script::small(), parallel, CACHE);
        let (mut a, mut b) = (text(1, 15), text(3, 18));
        for round in 0..4 {
            for conversation in [&mut a, &mut b] {
                let known = cached(&engine, conversation);
                assert_eq!(known, if round == 0 { 0 } else { conversation.len() - 3 }, "round {round}");
                *conversation = turn(conversation, &[5, round]);
            }
        }
    }
}

#[test]
fn a_prompt_that_departs_in_the_middle_is_known_up_to_the_chunk_before() {
    let engine = engine(Script::small(), 1, CACHE);
    let first = text(1, 55);
    assert_eq!(cached(&engine, &first), 0);
    let mut second = first.clone();
    second[45] = (second[45] + 1) % 10;
    assert_eq!(cached(&engine, &second), 40);
    // The first one was put aside before its rows were overwritten.
    assert_eq!(cached(&engine, &first), 54);
    let mut third = first.clone();
    third[19] = (third[19] + 1) % 10;
    assert_eq!(cached(&engine, &third), 0);
}

#[test]
fn a_beginning_is_copied_from_a_slot_that_runs() {
    let script = Script { pause: std::time::Duration::from_millis(3), ..Script::new(200, 4, Limits::default()) };
    let engine = engine(script, 2, CACHE);
    let prompt = text(4, 50);
    let mut running = engine.submit(Request { max_tokens: Some(100), ..request(&prompt) }).unwrap();
    while !matches!(running.next(), Some(Event::Token(_))) {}
    assert_eq!(cached(&engine, &[&prompt[..49], &[8, 8]].concat()), 49);
    assert_eq!(run(running).0.len(), 99);
}

#[test]
fn the_budget_is_kept_and_the_least_recently_used_leaves_first() {
    // Room for a few sequences, not for all.
    let limit = 15_000;
    let engine = engine(Script::small(), 1, limit);
    let prompts: Vec<Vec<u32>> = (0..10).map(|seed| text(seed, 50)).collect();
    for prompt in &prompts {
        let _ = cached(&engine, prompt);
        let cache = engine.status().cache;
        assert!(cache.bytes <= limit, "{cache:?}");
    }
    assert!(engine.status().cache.stored >= 2);
    assert_eq!(cached(&engine, &prompts[8]), 49, "the last but one is known");
    assert_eq!(cached(&engine, &prompts[0]), 0, "the first is forgotten");
}

#[test]
fn conversations_that_begin_alike_share_the_memory_of_their_beginning() {
    let engine = engine(Script::new(700, 64, Limits::default()), 1, 1 << 24);
    let beginning = text(3, 520);
    let ask = |last: u32| cached(&engine, &[&beginning[..], &[last; 8]].concat());
    assert_eq!(ask(1), 0);
    // Something else takes the slot, so that the first is put aside; the second then begins with a copy.
    assert_eq!(cached(&engine, &text(4, 30)), 0);
    let one = engine.status().cache.bytes;
    assert!(ask(2) >= 500 && ask(3) >= 500);
    assert_eq!(cached(&engine, &text(6, 30)), 0);
    let status = engine.status().cache;
    assert!(status.stored >= 3, "{status:?}");
    // 512 of the 532 tokens are two segments that all three hold together.
    assert!(status.bytes < one * 3 / 2, "{status:?}, the first alone took {one}");
}

#[test]
fn several_answers_read_their_prompt_once_and_are_those_of_their_seeds() {
    let params = SamplingParams { temperature: 1.0, seed: 40, ..SamplingParams::default() };
    let prompt = text(5, 45);
    let asked = |seed| {
        let params = SamplingParams { seed, ..params.clone() };
        Request { params, max_tokens: Some(8), ..request(&prompt) }
    };
    let alone = engine(Script::small(), 1, 0);
    let alone: Vec<_> = (40..45).map(|seed| answer(alone.submit(asked(seed)).unwrap())).collect();
    assert!(alone.windows(2).any(|pair| pair[0] != pair[1]), "seeds matter");
    for (parallel, cache) in [(1, CACHE), (3, CACHE), (8, CACHE), (8, 0)] {
        let engine = engine(Script::small(), parallel, cache);
        let streams = engine.submit_many(asked(40), 5).unwrap();
        let together: Vec<_> = streams.into_iter().map(answer).collect();
        assert_eq!(together, alone, "{parallel} slots, cache of {cache}");
        // One reads all, the others the last token.
        assert_eq!(engine.status().totals.prefill_tokens, 45 + 4, "{parallel} slots, cache of {cache}");
    }
}

#[test]
fn answers_whose_first_one_is_cancelled_still_come() {
    let script = Script { pause: std::time::Duration::from_millis(5), ..Script::small() };
    let engine = engine(script, 2, CACHE);
    let prompt = text(6, 55);
    let mut streams = engine.submit_many(request(&prompt), 3).unwrap();
    drop(streams.remove(0));
    for stream in streams {
        assert_eq!(answer(stream), expected(hashing, &prompt, 4));
    }
}

/// Conversations of three turns in which the second departs within the first's prompt, as one does whose thinking the
/// template leaves out; with and without anything kept.
fn reuse_changes_nothing(model: &dyn Fn() -> Box<dyn LanguageModel>, prompts: &[Vec<u32>]) {
    let start = |cache_memory, parallel| {
        let options = Options { prefill_chunk: 8, parallel, cache_memory, ..options() };
        Engine::start(model(), options).unwrap()
    };
    let ask = |engine: &Engine, ids: &[u32]| {
        let params = SamplingParams { temperature: 0.8, seed: 3, ..SamplingParams::default() };
        run(engine.submit(Request { params, logprobs: Some(3), max_tokens: Some(6), ..request(ids) }).unwrap())
    };
    for parallel in [1, 2] {
        let kept = start(1 << 30, parallel);
        let mut known = 0;
        for prompt in prompts {
            let fresh = start(0, 1);
            let (expected, _) = ask(&fresh, prompt);
            let (tokens, done) = ask(&kept, prompt);
            assert_eq!(tokens, expected, "{} of {} tokens were known", done.usage.cached, prompt.len());
            known += done.usage.cached;
        }
        assert!(known > prompts[0].len(), "something was known");
    }
}

#[test]
fn reuse_on_the_golden_model_gives_the_same_tokens_and_probabilities_bit_for_bit() {
    let golden = golden::Golden::read("tiny");
    let ids = golden.ids("input_ids");
    let mut turned = ids.clone();
    turned[25] ^= 1;
    let prompts = [ids[..20].to_vec(), ids.clone(), turned.clone(), ids[..33].to_vec(), turned[..30].to_vec(), ids];
    for kv_mode in [KvMode::F32, KvMode::Fp8, KvMode::Q8] {
        let options = LoadOptions { kv_mode: Some(kv_mode), ..LoadOptions::default() };
        reuse_changes_nothing(&|| Box::new(golden::model("tiny", &options)), &prompts);
    }
}

#[test]
fn reuse_on_ember_gives_the_same_tokens_and_probabilities_bit_for_bit() {
    let source = Source::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/ember")).unwrap();
    let options = LoadOptions { max_sequence: Some(256), ..LoadOptions::default() };
    let model = || -> Box<dyn LanguageModel> {
        Box::new(load::cpu(load::open(&source).unwrap(), &options, &mut |_| {}).unwrap())
    };
    let ids: Vec<u32> = (0..40).map(|i| 300 + i * 7 % 90).collect();
    let mut turned = ids.clone();
    turned[21] += 1;
    reuse_changes_nothing(&model, &[ids[..20].to_vec(), ids.clone(), turned, ids[..31].to_vec(), ids]);
}
