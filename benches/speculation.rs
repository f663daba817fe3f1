//! What drafts give: speed and acceptance by depth, on ember's own kind of text.
//!
//! Owns: the prompts and the comparison; all depths take turns within one run. On the CPU what counts is the time that the
//! process ran, so that a neighbour disturbs all of them alike; on a GPU, for which the process waits, the clock's.
//! Run with `cargo bench --bench speculation -- [--turns N] [--threads N] [--hip KERNEL_PACK|embedded] [--model DIR]` on
//! Linux; with --hip both devices are measured.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hipfire::config::Device;
use hipfire::engine::speculate::{Depth, Receipts, SpeculationOptions};
use hipfire::engine::{Cancel, Event, LoadOptions, Loaded, Request, SamplingParams};

const PROMPTS: [&str; 4] = [
    "Once upon a time, Lily found a small red box in the garden. She",
    "Tom and his dog went to the lake. The dog",
    "One day, a bird sat on the old wall and said",
    "Sam wanted to bake a cake for his grandmother.",
];
const TOKENS: usize = 256;

struct Candidate {
    name: String,
    loaded: Loaded,
    /// What time it is.
    clock: fn() -> Duration,
    tokens: usize,
    time: Duration,
    receipts: Receipts,
}

fn candidate(depth: Depth, options: &LoadOptions) -> Candidate {
    let speculation = SpeculationOptions { depth: Some(depth), ..SpeculationOptions::default() };
    let loaded = Loaded::open(&LoadOptions { speculation, ..options.clone() }, &mut |_| {}).unwrap();
    let name = match depth {
        Depth::Fixed(depth) => depth.to_string(),
        Depth::Auto => "auto".into(),
    };
    let clock = if options.device == Device::Cpu { time_run } else { time_passed };
    Candidate { name, loaded, clock, tokens: 0, time: Duration::ZERO, receipts: Receipts::default() }
}

/// Time since this was first asked.
fn time_passed() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
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
        for event in self.loaded.engine.submit(request).unwrap() {
            match event {
                Event::Token(_) => first = first.or_else(|| Some((self.clock)())),
                Event::Done(done) => {
                    self.tokens += done.usage.generated - 1;
                    self.time += (self.clock)() - first.unwrap();
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

fn report(title: &str, params: &SamplingParams, turns: usize, options: &LoadOptions) {
    let depths = (0..=5).map(Depth::Fixed).chain([Depth::Auto]);
    let mut candidates: Vec<Candidate> = depths.map(|depth| candidate(depth, options)).collect();
    for turn in 0..turns {
        for prompt in PROMPTS {
            let params = SamplingParams { seed: turn as u64, ..params.clone() };
            for c in &mut candidates {
                let ids = c.loaded.text.tokenizer.encode_raw(prompt).unwrap();
                c.answer(ids, &params);
            }
        }
    }
    let (device, threads) = (&candidates[0].loaded.receipt.placement.device, candidates[0].loaded.receipt.threads);
    println!(
        "\n{title}, {device}, {threads} threads, {turns} turns of {} prompts, {TOKENS} tokens each\n",
        PROMPTS.len()
    );
    let second = if options.device == Device::Cpu { "tokens a second run" } else { "tokens/s" };
    println!(
        "| drafts | {second} | against none | accepted by depth | tokens a round | drafting / verifying / choosing |"
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
    let given = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let pack = given("--hip");
    let options = LoadOptions {
        model: given("--model").map(PathBuf::from),
        kernel_pack: pack.filter(|pack| *pack != "embedded").map(PathBuf::from),
        threads: given("--threads").map(|threads| threads.parse().expect("--threads takes a number")),
        ..LoadOptions::default()
    };
    let turns = given("--turns").map_or(5, |turns| turns.parse().expect("--turns takes a number"));
    let sampled = SamplingParams { temperature: 1.0, top_k: 20, top_p: 0.95, ..SamplingParams::default() };
    for device in pack.map(|_| Device::Hip(0)).into_iter().chain([Device::Cpu]) {
        let options = LoadOptions { device, ..options.clone() };
        report("greedy", &SamplingParams::default(), turns, &options);
        report("sampled (temperature 1, top-k 20, top-p 0.95)", &sampled, turns, &options);
    }
}
