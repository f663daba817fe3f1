//! The engine over a scripted model: order of events, stopping, limits, errors, and requests that share it.

#[path = "support/script.rs"]
mod script;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hipfire::arena::Limits;
use hipfire::engine::{
    Activity, Done, Engine, Event, Options, Request, SamplingParams, ScoreOptions, StopReason, Tokens,
};
use hipfire::error::Error;
use script::{Script, answer, counting, expected, hashing, options, request, tokens};

fn engine(script: Script, chunk: usize) -> Engine {
    script.start(Options { prefill_chunk: chunk, ..options() })
}

fn end(events: &[Event]) -> &Done {
    match events.last() {
        Some(Event::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_come_in_order_and_end_once() {
    let engine = engine(Script::small(), 2);
    let mut stream = engine.submit(request(&[1, 2, 3, 4, 5])).unwrap();
    let events: Vec<Event> = stream.by_ref().collect();
    let prefill =
        events.iter().filter_map(|e| if let Event::Prefill { done, total } = e { Some((*done, *total)) } else { None });
    assert_eq!(prefill.collect::<Vec<_>>(), [(0, 5), (2, 5), (4, 5), (5, 5)]);
    assert_eq!(tokens(&events), [6, 7, 8, 9]);
    let done = end(&events);
    assert_eq!((done.reason, done.usage.prompt, done.usage.generated, done.usage.steps), (StopReason::Length, 5, 4, 3));
    assert!(stream.next().is_none());
}

#[test]
fn a_stop_id_ends_the_answer_and_is_not_part_of_it() {
    let engine = engine(Script::small(), 0);
    let events: Vec<Event> = engine.submit(Request { stop_ids: vec![5], ..request(&[2]) }).unwrap().collect();
    assert_eq!(tokens(&events), [3, 4]);
    assert_eq!(end(&events).reason, StopReason::Stop);
}

#[test]
fn zero_tokens_read_the_prompt_and_generate_nothing() {
    let engine = engine(Script::small(), 0);
    let events: Vec<Event> = engine.submit(Request { max_tokens: Some(0), ..request(&[2]) }).unwrap().collect();
    assert!(tokens(&events).is_empty());
    assert_eq!(end(&events).reason, StopReason::Length);
}

#[test]
fn an_answer_ends_with_the_context() {
    let engine = engine(Script::small(), 0);
    let events: Vec<Event> = engine.submit(Request { max_tokens: None, ..request(&[1; 57]) }).unwrap().collect();
    assert_eq!(tokens(&events), [2, 3, 4]);
    assert_eq!(end(&events).reason, StopReason::Length);
}

#[test]
fn a_chunk_is_never_larger_than_the_models_rows() {
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let engine = engine(Script { shares: chunks.clone(), ..Script::small() }, 1000);
    let _ = engine.submit(Request { max_tokens: Some(1), ..request(&[1; 50]) }).unwrap().count();
    assert_eq!(*chunks.lock().unwrap(), [[20], [20], [10]]);
}

#[test]
fn bad_requests_are_refused_before_anything_runs() {
    let steps = Arc::new(AtomicUsize::new(0));
    let engine = engine(Script { steps: steps.clone(), ..Script::small() }, 0);
    let refused = |r: Request| engine.submit(r).err().unwrap();
    assert!(refused(request(&[])).to_string().contains("empty"));
    assert!(refused(request(&[1, 10])).to_string().contains("token 1 of the prompt has id 10"));
    assert!(matches!(refused(request(&[1; 60])), Error::ContextLength { prompt: 60, context: 60 }));
    let hot = SamplingParams { temperature: f32::NAN, ..SamplingParams::default() };
    assert!(refused(Request { params: hot, ..request(&[1]) }).to_string().contains("temperature"));
    let bias = SamplingParams { logit_bias: vec![(11, 1.0)], ..SamplingParams::default() };
    assert!(refused(Request { params: bias, ..request(&[1]) }).to_string().contains("token 11"));
    drop(engine);
    assert_eq!(steps.load(Ordering::Relaxed), 0);
}

#[test]
fn cancelling_stops_within_one_step_and_says_so() {
    let steps = Arc::new(AtomicUsize::new(0));
    let pause = Duration::from_millis(20);
    let engine = engine(Script { steps: steps.clone(), pause, ..Script::small() }, 0);
    let mut stream = engine.submit(Request { max_tokens: None, ..request(&[1]) }).unwrap();
    while !matches!(stream.next(), Some(Event::Token(_))) {}
    stream.cancel();
    let before = steps.load(Ordering::Relaxed);
    let rest: Vec<Event> = stream.collect();
    assert_eq!(end(&rest).reason, StopReason::Cancelled);
    assert!(steps.load(Ordering::Relaxed) <= before + 1);
}

#[test]
fn dropping_a_stream_stops_its_request_and_frees_the_engine() {
    let steps = Arc::new(AtomicUsize::new(0));
    let pause = Duration::from_millis(20);
    let engine = engine(Script { steps: steps.clone(), pause, ..Script::small() }, 0);
    let mut stream = engine.submit(Request { max_tokens: None, ..request(&[1]) }).unwrap();
    while !matches!(stream.next(), Some(Event::Token(_))) {}
    drop(stream);
    let before = steps.load(Ordering::Relaxed);
    let events: Vec<Event> = engine.submit(request(&[4])).unwrap().collect();
    assert_eq!(tokens(&events), [5, 6, 7, 8]);
    // The dropped one may have been inside one step; the new one takes a prefill and three steps.
    assert!(steps.load(Ordering::Relaxed) <= before + 1 + 4);
}

#[test]
fn a_request_that_meets_a_bug_fails_alone() {
    let engine = engine(Script { break_at: Some(6), ..Script::small() }, 0);
    let events: Vec<Event> = engine.submit(Request { max_tokens: None, ..request(&[1; 4]) }).unwrap().collect();
    assert!(matches!(events.last(), Some(Event::Failed(_))));
    let events: Vec<Event> = engine.submit(Request { max_tokens: Some(1), ..request(&[1]) }).unwrap().collect();
    assert_eq!(tokens(&events), [2]);
    assert!(engine.score(vec![1; 20], ScoreOptions::default(), &mut |_| Ok(())).is_err());
}

#[test]
fn requests_run_in_the_order_they_came() {
    let engine = engine(Script::small(), 0);
    let first = engine.submit(request(&[1])).unwrap();
    let second = engine.submit(request(&[5])).unwrap();
    assert_eq!(tokens(&second.collect::<Vec<_>>()), [6, 7, 8, 9]);
    assert_eq!(tokens(&first.collect::<Vec<_>>()), [2, 3, 4, 5]);
}

#[test]
fn logprobs_come_from_the_raw_logits() {
    let engine = engine(Script::small(), 0);
    let params = SamplingParams { logit_bias: vec![(7, 100.0)], ..SamplingParams::default() };
    let asked = Request { params, logprobs: Some(2), max_tokens: Some(1), ..request(&[1]) };
    let events: Vec<Event> = engine.submit(asked).unwrap().collect();
    let Some(Event::Token(token)) = events.iter().find(|e| matches!(e, Event::Token(_))) else { panic!() };
    assert_eq!(token.id, 7);
    let sum = (3.0f64.exp() + 9.0).ln();
    // One rounding of the exponential and one of the result, both f32.
    let close = |a: f32, b: f64| (f64::from(a) - b).abs() <= 4.0 * f64::from(f32::EPSILON) * b.abs().max(1.0);
    assert!(close(token.logprob.unwrap(), -sum));
    assert_eq!(token.top.iter().map(|t| t.id).collect::<Vec<_>>(), [2, 0]);
    assert!(close(token.top[0].value, 3.0 - sum));
}

#[test]
fn scores_are_the_same_for_every_chunk_size() {
    let ids: Vec<u32> = (0..55).map(|i| i * i % 10).collect();
    let run = |chunk: usize| {
        let engine = engine(Script::small(), 0);
        let mut rows = Vec::new();
        let options = ScoreOptions { top: 3, chunk, ..ScoreOptions::default() };
        let totals = engine.score(ids.clone(), options, &mut |row| {
            rows.push(row);
            Ok(())
        });
        (rows, totals.unwrap())
    };
    let (rows, totals) = run(1);
    assert_eq!(
        rows.iter().map(|r| (r.position as u32, r.id)).collect::<Vec<_>>(),
        (0..55).zip(ids.clone()).collect::<Vec<_>>()
    );
    assert_eq!((rows[0].logprob, rows[0].top.len(), rows[1].top.len()), (None, 0, 3));
    let hits = ids.windows(2).filter(|w| w[1] == (w[0] + 1) % 10).count() as f64;
    let nll = 54.0 * (3.0f64.exp() + 9.0).ln() - 3.0 * hits;
    assert!((totals.nll - nll).abs() < 54.0 * 4.0 * 4.0 * f64::from(f32::EPSILON), "{} {nll}", totals.nll);
    assert_eq!(totals.perplexity().unwrap(), (totals.nll / 54.0).exp());
    for chunk in [2, 7, 16, 17, 20, 0] {
        assert_eq!(run(chunk), (rows.clone(), totals), "chunk {chunk}");
    }
}

#[test]
fn scoring_stops_when_the_reader_does_and_one_token_has_no_perplexity() {
    let steps = Arc::new(AtomicUsize::new(0));
    let engine = engine(Script { steps: steps.clone(), ..Script::small() }, 1);
    let stopped = engine.score(vec![1; 50], ScoreOptions::default(), &mut |_| Err(Error::Cancelled));
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let totals = engine.score(vec![1], ScoreOptions::default(), &mut |_| Ok(())).unwrap();
    assert_eq!((totals.tokens, totals.perplexity()), (1, None));
}

fn side_by_side(script: Script, parallel: usize) -> Engine {
    Script { rule: hashing, ..script }.start(Options { parallel, ..options() })
}

#[test]
fn requests_that_run_together_get_the_text_each_gets_alone() {
    let shares = Arc::new(Mutex::new(Vec::new()));
    let pause = Duration::from_millis(2);
    let engine = side_by_side(Script { shares: shares.clone(), pause, ..Script::small() }, 3);
    let prompts: Vec<Vec<u32>> = (1..=7).map(|n| (0..n * 5).map(|i| (i * n) as u32 % 10).collect()).collect();
    let ask = |ids: &Vec<u32>| engine.submit(Request { max_tokens: Some(12), ..request(ids) }).unwrap();
    let streams: Vec<_> = prompts.iter().map(ask).collect();
    for (prompt, stream) in prompts.iter().zip(streams) {
        assert_eq!(answer(stream), expected(hashing, prompt, 12), "{prompt:?}");
    }
    let shares = shares.lock().unwrap();
    assert!(shares.iter().any(|step| step.len() == 3), "steps are shared");
    // Three slots, seven requests: far fewer steps than one after another would take.
    assert!(shares.len() < 7 * 12, "{} steps", shares.len());
}

#[test]
fn an_answer_that_runs_gets_a_row_in_every_step_of_a_long_prompt() {
    let shares = Arc::new(Mutex::new(Vec::new()));
    let script =
        Script { shares: shares.clone(), pause: Duration::from_millis(5), ..Script::new(400, 4, Limits::default()) };
    let engine = side_by_side(script, 2);
    let mut running = engine.submit(Request { max_tokens: Some(100), ..request(&[1]) }).unwrap();
    while !matches!(running.next(), Some(Event::Token(_))) {}
    let long: Vec<u32> = (0..300).map(|i| i % 10).collect();
    assert_eq!(answer(engine.submit(request(&long)).unwrap()), expected(hashing, &long, 4));
    let shares = shares.lock().unwrap();
    let reading: Vec<&Vec<usize>> = shares.iter().filter(|step| step.iter().any(|&rows| rows > 1)).collect();
    // 300 tokens, 19 a step beside the answer's one.
    assert_eq!(reading.len(), 16);
    assert!(reading.iter().all(|step| step.len() == 2 && step[0] == 1), "{reading:?}");
}

#[test]
fn a_full_queue_turns_away_with_a_hint_and_takes_the_next_one_when_it_is_not() {
    let script = Script { pause: Duration::from_millis(20), ..Script::small() };
    let engine = script.start(Options { parallel: 1, max_queue: 1, ..options() });
    let mut first = engine.submit(Request { max_tokens: None, ..request(&[1]) }).unwrap();
    while !matches!(first.next(), Some(Event::Token(_))) {}
    let second = engine.submit(request(&[2])).unwrap();
    match engine.submit(request(&[3])).err() {
        Some(Error::Busy { parallel: 1, queue: 1, retry }) => assert!(retry >= Duration::from_secs(1)),
        other => panic!("{other:?}"),
    }
    let status = engine.status();
    assert_eq!((status.running, status.waiting, status.totals.refused), (1, 1, 1));
    drop(first);
    assert_eq!(answer(second), [3, 4, 5, 6]);
    assert_eq!(answer(engine.submit(request(&[3])).unwrap()), [4, 5, 6, 7]);
}

#[test]
fn a_request_whose_memory_cannot_be_had_fails_alone() {
    // 4 KiB a key and as much a value: 512 tokens are a segment of 2 MiB of either.
    let limits = Limits { committed: Some(10 << 20), ..Limits::default() };
    let script = Script { rows: 64, pause: Duration::from_millis(1), ..Script::new(4000, 1024, limits) };
    let arena = script.arena.clone();
    let engine = side_by_side(script, 3);
    let small = |id| engine.submit(Request { max_tokens: Some(60), ..request(&[id]) }).unwrap();
    let small = [small(5), small(6)];
    let large = engine.submit(request(&[1; 3000])).unwrap();
    let events: Vec<Event> = large.collect();
    assert!(matches!(events.last(), Some(Event::Failed(Error::InsufficientMemory(_)))), "{:?}", events.last());
    for (small, id) in small.into_iter().zip([5, 6]) {
        assert_eq!(answer(small), expected(hashing, &[id], 60));
    }
    // One whose memory is there once the idle states are given up.
    let middle = [2; 800];
    assert_eq!(answer(engine.submit(request(&middle)).unwrap()), expected(hashing, &middle, 4));
    assert!(arena.usage().committed <= 10 << 20);
    assert_eq!(arena.usage().retired_ranges, 0, "an idle state gave its memory back and kept its addresses");
}

#[test]
fn who_cannot_have_memory_beside_others_waits_for_it() {
    // Two sequences of one segment each fit, or one of two.
    let limits = Limits { committed: Some(9 << 20), ..Limits::default() };
    let script = Script { rows: 64, pause: Duration::from_millis(1), ..Script::new(1500, 1024, limits) };
    let engine = side_by_side(script, 3);
    let small = |id| engine.submit(Request { max_tokens: Some(40), ..request(&[id]) }).unwrap();
    let running = [small(5), small(6)];
    let large = engine.submit(request(&[1; 800])).unwrap();
    let last = small(7);
    assert_eq!(answer(large), expected(hashing, &[1; 800], 4));
    for (stream, id) in running.into_iter().chain([last]).zip([5, 6, 7]) {
        assert_eq!(answer(stream), expected(hashing, &[id], 40));
    }
    assert_eq!(engine.status().totals.failed, 0);
}

#[test]
fn a_damaged_row_fails_its_own_request_only() {
    let engine = Script { poison: Some(9), pause: Duration::from_millis(2), ..Script::small() }
        .start(Options { parallel: 2, ..options() });
    let bad = engine.submit(Request { max_tokens: Some(10), ..request(&[5]) }).unwrap();
    let good = engine.submit(Request { max_tokens: Some(8), ..request(&[0]) }).unwrap();
    let events: Vec<Event> = bad.collect();
    assert_eq!(tokens(&events), [6, 7, 8, 9]);
    assert!(matches!(events.last(), Some(Event::Failed(Error::Numeric(_)))));
    assert_eq!(answer(good), expected(counting, &[0], 8));
}

#[test]
fn the_status_tells_what_every_slot_does_and_the_totals_add_up() {
    let script = Script { pause: Duration::from_millis(10), ..Script::small() };
    let engine = script.start(Options { parallel: 2, ..options() });
    let mut stream = engine.submit(Request { max_tokens: Some(20), ..request(&[1, 2, 3]) }).unwrap();
    while !matches!(stream.next(), Some(Event::Token(_))) {}
    let _ = stream.next();
    let status = engine.status();
    assert_eq!((status.parallel, status.max_queue, status.running, status.waiting), (2, 64, 1, 0));
    let slot = status.slots[0];
    assert_eq!((slot.activity, slot.request, slot.prompt), (Activity::Answering, 1, 3));
    assert!(slot.generated >= 1 && slot.held >= 3);
    assert_eq!(status.slots[1].activity, Activity::Idle);
    drop(stream);
    let _ = answer(engine.submit(request(&[1; 30])).unwrap());
    let totals = engine.status().totals;
    assert_eq!((totals.requests, totals.cancelled, totals.cut, totals.prompt_tokens), (2, 1, 1, 33));
    assert_eq!((totals.prefill_tokens, totals.failed), (33, 0));
    assert!(totals.generated_tokens >= 5 && totals.rows >= totals.steps);
}
