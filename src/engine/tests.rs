//! The engine over a scripted timeline: order of events, stopping, limits, errors. No arithmetic of a model.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::*;

/// Always predicts the last id plus one; slow or broken on request.
#[derive(Default)]
struct Counting {
    fed: Vec<u32>,
    last: Vec<u32>,
    logits: Vec<f32>,
    pause: Duration,
    break_at: Option<usize>,
    steps: Arc<AtomicUsize>,
    chunks: Arc<Mutex<Vec<usize>>>,
}

const VOCAB: usize = 10;

impl Timeline for Counting {
    fn vocab(&self) -> usize {
        VOCAB
    }
    fn max_rows(&self) -> usize {
        20
    }
    fn max_sequence(&self) -> usize {
        60
    }
    fn restart(&mut self) -> Result<()> {
        self.fed.clear();
        Ok(())
    }
    fn feed(&mut self, ids: &[u32]) -> Result<()> {
        std::thread::sleep(self.pause);
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.chunks.lock().unwrap().push(ids.len());
        self.fed.extend_from_slice(ids);
        self.last = ids.to_vec();
        match self.break_at {
            Some(at) if self.fed.len() > at => panic!("the script breaks here"),
            _ => Ok(()),
        }
    }
    fn logits(&mut self, rows: &[usize]) -> Result<&[f32]> {
        assert!(rows.len() <= crate::model::LOGIT_ROWS);
        self.logits.clear();
        for &row in rows {
            let next = (self.last[row] as usize + 1) % VOCAB;
            self.logits.extend((0..VOCAB).map(|id| if id == next { 3.0 } else { 0.0 }));
        }
        Ok(&self.logits)
    }
}

fn request(ids: &[u32]) -> Request {
    Request {
        ids: ids.to_vec(),
        max_tokens: Some(4),
        params: SamplingParams::default(),
        stop_ids: vec![],
        logprobs: None,
        cancel: Cancel::default(),
    }
}

fn engine(timeline: Counting, chunk: usize) -> Engine {
    Engine::over(Box::new(timeline), Options { prefill_chunk: chunk, memory: Arc::new(MemoryUse::default), threads: 1 })
        .unwrap()
}

fn tokens(events: &[Event]) -> Vec<u32> {
    events.iter().filter_map(|e| if let Event::Token(t) = e { Some(t.id) } else { None }).collect()
}

fn end(events: &[Event]) -> &Done {
    match events.last() {
        Some(Event::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_come_in_order_and_end_once() {
    let engine = engine(Counting::default(), 2);
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
    let engine = engine(Counting::default(), 0);
    let events: Vec<Event> = engine.submit(Request { stop_ids: vec![5], ..request(&[2]) }).unwrap().collect();
    assert_eq!(tokens(&events), [3, 4]);
    assert_eq!(end(&events).reason, StopReason::Stop);
}

#[test]
fn zero_tokens_read_the_prompt_and_generate_nothing() {
    let engine = engine(Counting::default(), 0);
    let events: Vec<Event> = engine.submit(Request { max_tokens: Some(0), ..request(&[2]) }).unwrap().collect();
    assert!(tokens(&events).is_empty());
    assert_eq!(end(&events).reason, StopReason::Length);
}

#[test]
fn an_answer_ends_with_the_context() {
    let engine = engine(Counting::default(), 0);
    let events: Vec<Event> = engine.submit(Request { max_tokens: None, ..request(&[1; 57]) }).unwrap().collect();
    assert_eq!(tokens(&events), [2, 3, 4]);
    assert_eq!(end(&events).reason, StopReason::Length);
}

#[test]
fn a_chunk_is_never_larger_than_the_models_rows() {
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let engine = engine(Counting { chunks: chunks.clone(), ..Counting::default() }, 1000);
    let _ = engine.submit(Request { max_tokens: Some(1), ..request(&[1; 50]) }).unwrap().count();
    assert_eq!(*chunks.lock().unwrap(), [20, 20, 10]);
}

#[test]
fn bad_requests_are_refused_before_anything_runs() {
    let steps = Arc::new(AtomicUsize::new(0));
    let engine = engine(Counting { steps: steps.clone(), ..Counting::default() }, 0);
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
    let engine = engine(Counting { steps: steps.clone(), pause, ..Counting::default() }, 0);
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
    let engine = engine(Counting { steps: steps.clone(), pause, ..Counting::default() }, 0);
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
    let engine = engine(Counting { break_at: Some(6), ..Counting::default() }, 0);
    let events: Vec<Event> = engine.submit(Request { max_tokens: None, ..request(&[1; 4]) }).unwrap().collect();
    assert!(matches!(events.last(), Some(Event::Failed(_))));
    let events: Vec<Event> = engine.submit(Request { max_tokens: Some(1), ..request(&[1]) }).unwrap().collect();
    assert_eq!(tokens(&events), [2]);
    assert!(engine.score(vec![1; 20], ScoreOptions::default(), &mut |_| Ok(())).is_err());
}

#[test]
fn requests_run_in_the_order_they_came() {
    let engine = engine(Counting::default(), 0);
    let first = engine.submit(request(&[1])).unwrap();
    let second = engine.submit(request(&[5])).unwrap();
    assert_eq!(tokens(&second.collect::<Vec<_>>()), [6, 7, 8, 9]);
    assert_eq!(tokens(&first.collect::<Vec<_>>()), [2, 3, 4, 5]);
}

#[test]
fn logprobs_come_from_the_raw_logits() {
    let engine = engine(Counting::default(), 0);
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
        let engine = engine(Counting::default(), 0);
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
    let engine = engine(Counting { steps: steps.clone(), ..Counting::default() }, 1);
    let stopped = engine.score(vec![1; 50], ScoreOptions::default(), &mut |_| Err(Error::Cancelled));
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let totals = engine.score(vec![1], ScoreOptions::default(), &mut |_| Ok(())).unwrap();
    assert_eq!((totals.tokens, totals.perplexity()), (1, None));
}
