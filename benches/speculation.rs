//! What drafts give on the CPU: speed and acceptance by depth, on ember's own kind of text.
//!
//! Owns: the prompts and the comparison; all depths take turns within one run, and what counts is the time that the
//! process ran, so that a neighbour disturbs all of them alike.
//! Run with `cargo bench --bench speculation -- [--threads N]` on Linux; it takes about a minute.

use std::sync::Arc;
use std::time::Duration;

use hipfire::engine::speculate::accept::Rule;
use hipfire::engine::speculate::{Depth, Receipts, Speculation};
use hipfire::engine::{Cancel, Engine, Event, MemoryUse, Options, Request, SamplingParams};
use hipfire::model::load::{self, LoadOptions};
use hipfire::text::Tokenizer;
use hipfire::weights::Source;

const PROMPTS: [&str; 4] = [
    "Once upon a time, Lily found a small red box in the garden. She",
    "Tom and his dog went to the lake. The dog",
    "One day, a bird sat on the old wall and said",
    "Sam wanted to bake a cake for his grandmother.",
];
const TOKENS: usize = 256;
const TURNS: usize = 5;

struct Candidate {
    name: String,
    engine: Engine,
    tokens: usize,
    time: Duration,
    receipts: Receipts,
}

fn candidate(depth: Depth, threads: usize) -> Candidate {
    let most = depth.most();
    let options = LoadOptions {
        mtp: most > 0,
        rewind_rows: if most > 0 { most + 1 } else { 0 },
        threads,
        ..LoadOptions::default()
    };
    let model = load::cpu(load::open(&Source::embedded().unwrap()).unwrap(), &options, &mut |_| {}).unwrap();
    let options = Options {
        prefill_chunk: 0,
        parallel: 1,
        max_queue: 1,
        cache_memory: 0,
        sessions: None,
        grammars: None,
        memory: Arc::new(MemoryUse::default),
        speculation: Speculation { depth, rule: Rule::Exact },
        threads,
    };
    let name = match depth {
        Depth::Fixed(depth) => depth.to_string(),
        Depth::Auto => "auto".into(),
    };
    let engine = Engine::start(Box::new(model), options).unwrap();
    Candidate { name, engine, tokens: 0, time: Duration::ZERO, receipts: Receipts::default() }
}

/// Time that the threads of this process ran.
fn time_run() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanoseconds = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

impl Candidate {
    fn answer(&mut self, ids: Vec<u32>, params: &SamplingParams) {
        let request = Request {
            ids,
            max_tokens: Some(TOKENS),
            params: params.clone(),
            stop_ids: vec![],
            logprobs: None,
            constraint: None,
            cancel: Cancel::default(),
        };
        let mut first = None;
        for event in self.engine.submit(request).unwrap() {
            match event {
                Event::Token(_) => first = first.or_else(|| Some(time_run())),
                Event::Done(done) => {
                    self.tokens += done.usage.generated - 1;
                    self.time += time_run() - first.unwrap();
                    self.receipts.add(&done.usage.speculation);
                }
                Event::Failed(error) => panic!("{error}"),
                Event::Prefill { .. } => {}
            }
        }
    }

    fn rate(&self) -> f64 {
        self.tokens as f64 / self.time.as_secs_f64()
    }
}

fn report(title: &str, params: &SamplingParams, threads: usize) {
    let tokenizer = Tokenizer::from_json(include_bytes!("../models/ember/tokenizer.json"), None).unwrap();
    let depths = (0..=5).map(Depth::Fixed).chain([Depth::Auto]);
    let mut candidates: Vec<Candidate> = depths.map(|depth| candidate(depth, threads)).collect();
    for turn in 0..TURNS {
        for prompt in PROMPTS {
            let params = SamplingParams { seed: turn as u64, ..params.clone() };
            candidates.iter_mut().for_each(|c| c.answer(tokenizer.encode_raw(prompt).unwrap(), &params));
        }
    }
    println!("\n{title}, {threads} threads, {TURNS} turns of {} prompts, {TOKENS} tokens each\n", PROMPTS.len());
    println!(
        "| drafts | tokens a second run | against none | accepted by depth | tokens a round | drafting / verifying / choosing |"
    );
    println!("|---|---|---|---|---|---|");
    let plain = candidates[0].rate();
    for c in &candidates {
        let shares: Vec<String> =
            c.receipts.acceptance().iter().map(|share| format!("{:.0} %", 100.0 * share)).collect();
        let parts = [c.receipts.drafting, c.receipts.verifying, c.receipts.choosing];
        let whole = parts.iter().sum::<Duration>().as_secs_f64().max(f64::MIN_POSITIVE);
        let parts: Vec<String> =
            parts.iter().map(|part| format!("{:.0} %", 100.0 * part.as_secs_f64() / whole)).collect();
        println!(
            "| {} | {:.0} | {:.2} | {} | {:.2} | {} |",
            c.name,
            c.rate(),
            c.rate() / plain,
            shares.join(", "),
            c.receipts.tokens_a_round(),
            parts.join(" / ")
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let given = args.iter().position(|arg| arg == "--threads").and_then(|i| args.get(i + 1)?.parse().ok());
    let threads = given.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    report("greedy", &SamplingParams::default(), threads);
    let sampled = SamplingParams { temperature: 1.0, top_k: 20, top_p: 0.95, ..SamplingParams::default() };
    report("sampled (temperature 1, top-k 20, top-p 0.95)", &sampled, threads);
}
