//! Speculation behind the engine's boundary: events, ends, several requests at once, the list of ids to draft from.

use std::sync::{Arc, LazyLock};

use hipfire::engine::speculate::accept::Rule;
use hipfire::engine::speculate::{Depth, Speculation};
use hipfire::engine::{
    Cancel, Constraint, Done, Engine, Event, Grammar, Grammars, MemoryUse, Options, Request, SamplingParams,
    StopReason, Token,
};
use hipfire::model::load::{self, LoadOptions};
use hipfire::text::Tokenizer;
use hipfire::weights::Source;

static TOKENIZER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(Tokenizer::from_json(include_bytes!("../models/ember/tokenizer.json"), None).unwrap()));

const STORIES: [&str; 3] = [
    "Once upon a time, Lily found a small red box in the garden. She",
    "Tom and his dog went to the lake. The dog",
    "One day, a bird sat on the old wall and said",
];

fn prompt(text: &str) -> Vec<u32> {
    TOKENIZER.encode_raw(text).unwrap()
}

/// ember with `depth` drafts a round.
fn engine(depth: usize, parallel: usize, draft_ids: Option<Vec<u32>>) -> Engine {
    let options = LoadOptions {
        mtp: depth > 0,
        rewind_rows: if depth > 0 { depth + 1 } else { 0 },
        draft_ids,
        ..LoadOptions::default()
    };
    let model = load::cpu(load::open(&Source::embedded().unwrap()).unwrap(), &options, &mut |_| {}).unwrap();
    let options = Options {
        prefill_chunk: 0,
        parallel,
        max_queue: 8,
        cache_memory: 0,
        sessions: None,
        grammars: Some(Arc::new(Grammars::new(TOKENIZER.clone(), &[0]))),
        memory: Arc::new(MemoryUse::default),
        speculation: Speculation { depth: Depth::Fixed(depth), rule: Rule::Exact },
        threads: 1,
    };
    Engine::start(Box::new(model), options).unwrap()
}

fn request(text: &str, max_tokens: usize) -> Request {
    Request {
        ids: prompt(text),
        max_tokens: Some(max_tokens),
        params: SamplingParams::default(),
        stop_ids: vec![],
        logprobs: None,
        constraint: None,
        cancel: Cancel::default(),
    }
}

fn answer(engine: &Engine, request: Request) -> (Vec<Token>, Done) {
    collect(engine.submit(request).unwrap())
}

fn collect(events: impl Iterator<Item = Event>) -> (Vec<Token>, Done) {
    let mut tokens = Vec::new();
    for event in events {
        match event {
            Event::Token(token) => tokens.push(token),
            Event::Done(done) => return (tokens, done),
            Event::Failed(error) => panic!("{error}"),
            Event::Prefill { .. } => {}
        }
    }
    panic!("no end")
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

#[test]
fn answers_with_drafts_have_the_events_of_answers_without() {
    let (plain, drafting) = (engine(0, 1, None), engine(3, 1, None));
    let free = answer(&plain, request(STORIES[0], 80)).0;
    // A stop id in every place of a round, a length in every place, the whole list of log-probabilities.
    for place in 20..28 {
        let asked = Request { stop_ids: vec![free[place].id], logprobs: Some(3), ..request(STORIES[0], 80) };
        let (expected, without) = answer(&plain, asked.clone());
        let (tokens, with) = answer(&drafting, asked);
        assert_eq!((tokens, with.reason), (expected, without.reason));
        assert_eq!(with.reason, StopReason::Stop);
        let (tokens, done) = answer(&drafting, request(STORIES[0], place));
        assert_eq!((ids(&tokens), done.reason), (ids(&free[..place]), StopReason::Length));
        assert_eq!(done.usage.generated, place);
    }
    let receipts = drafting.status().speculation;
    assert!(receipts.rounds > 0 && receipts.total_accepted() > receipts.rounds, "{receipts:?}");
    assert_eq!(plain.status().speculation.rounds, 0);
}

#[test]
fn an_answer_with_drafts_fills_the_context_to_its_last_token() {
    let (plain, drafting) = (engine(0, 1, None), engine(5, 1, None));
    // Ids that no text has, so that nothing ends early.
    let long: Vec<u32> = (0..2000u32).map(|i| 300 + i * 7 % 3000).collect();
    let asked = Request { max_tokens: None, ..Request { ids: long, ..request("a", 0) } };
    let [(expected, _), (tokens, done)] = [answer(&plain, asked.clone()), answer(&drafting, asked)];
    assert_eq!((tokens.len(), done.reason), (48, StopReason::Length));
    assert_eq!(ids(&tokens), ids(&expected));
}

#[test]
fn requests_that_share_steps_draft_together_and_get_their_own_text() {
    let plain = engine(0, 1, None);
    let expected: Vec<Vec<u32>> = STORIES.iter().map(|story| ids(&answer(&plain, request(story, 150)).0)).collect();
    let together = engine(3, 3, None);
    for _ in 0..2 {
        let streams: Vec<_> = STORIES.iter().map(|story| together.submit(request(story, 150)).unwrap()).collect();
        for (stream, expected) in streams.into_iter().zip(&expected) {
            assert_eq!(ids(&collect(stream).0), *expected);
        }
    }
}

#[test]
fn a_request_after_a_cancelled_round_is_not_touched_by_it() {
    let (plain, drafting) = (engine(0, 1, None), engine(3, 1, None));
    let expected = ids(&answer(&plain, request(STORIES[1], 60)).0);
    for tokens in [1, 2, 5] {
        let mut stream = drafting.submit(request(STORIES[0], 400)).unwrap();
        let seen = stream.by_ref().filter(|event| matches!(event, Event::Token(_))).take(tokens).count();
        assert_eq!(seen, tokens);
        drop(stream);
        assert_eq!(ids(&answer(&drafting, request(STORIES[1], 60)).0), expected);
    }
}

#[test]
fn a_draft_vocabulary_changes_what_is_drafted_and_no_text() {
    let plain = engine(0, 1, None);
    let expected = ids(&answer(&plain, request(STORIES[2], 200)).0);
    let full = engine(3, 1, None);
    answer(&full, request(STORIES[2], 200));
    // The ids of the text itself, and a list that has almost none of them.
    for (list, good) in [(expected.clone(), true), (vec![4000, 4001], false)] {
        let few = engine(3, 1, Some(list));
        assert_eq!(ids(&answer(&few, request(STORIES[2], 200)).0), expected);
        let (few, full) = (few.status().speculation, full.status().speculation);
        match good {
            true => assert!(few.acceptance()[0] >= full.acceptance()[0], "{few:?} {full:?}"),
            false => assert!(few.acceptance()[0] < 0.05, "{few:?}"),
        }
    }
    // An id outside the list is still generated.
    let hot = SamplingParams { temperature: 1.0, seed: 3, ..SamplingParams::default() };
    let few = engine(3, 1, Some(vec![4000, 4001]));
    let (tokens, _) = answer(&few, Request { params: hot, ..request(STORIES[2], 100) });
    assert!(tokens.iter().any(|token| token.id < 4000));
}

#[test]
fn a_conversation_goes_on_from_the_state_that_drafts_left() {
    let (plain, drafting) = (engine(0, 1, None), engine(3, 1, None));
    // Lengths that end an answer in every place of a round.
    for length in 20..26 {
        let (mut expected, mut given) = (prompt(STORIES[0]), prompt(STORIES[0]));
        for turn in 0..3 {
            for (engine, ids) in [(&plain, &mut expected), (&drafting, &mut given)] {
                let (tokens, done) = answer(engine, Request { ids: ids.clone(), ..request("a", length) });
                assert!(turn == 0 || done.usage.cached > 0, "the state was known");
                ids.extend(tokens.iter().map(|token| token.id));
                ids.extend(prompt(" Then"));
            }
            assert_eq!(given, expected, "turn {turn}, {length} tokens");
        }
    }
}

#[test]
fn a_grammar_holds_at_every_position_of_a_round() {
    let [plain, drafting] = [0, 3].map(|depth| engine(depth, 1, None));
    let constraint = |text: &str| Constraint { grammar: Grammar::Regex(text.to_string()), after: None };
    for regex in ["( (a|the|and|to|dog|was|it|he|she|[a-z]{1,6})){12}", "[0-9]{30}", "( ?[a-z]+[,.]?){40}"] {
        let asked = || Request { constraint: Some(constraint(regex)), stop_ids: vec![0], ..request(STORIES[1], 40) };
        let [(expected, without), (tokens, with)] = [&plain, &drafting].map(|engine| answer(engine, asked()));
        assert_eq!((ids(&tokens), with.reason), (ids(&expected), without.reason), "{regex}");
    }
}
