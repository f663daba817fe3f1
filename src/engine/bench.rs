//! How fast a model runs: prompts and answers of given lengths at given depths, in llama-bench's terms.
//!
//! Owns: what is timed and how often, the rows of the result.
//! Always true: a time is of whole steps up to the logits of their last row, on a warm model; every repetition starts from
//! the same state; ids come from a fixed generator.
//! Not here: printing (`cli::bench`), loading (`build`).

use std::time::{Duration, Instant};

use serde::Serialize;
use sha2::{Digest, Sha256};

pub use crate::backend::KernelTime;

use super::build::{self, Built, Placement};
use super::load::{LoadOptions, open_weights};
use super::logits::largest;
use super::sampler::{Sampler, SamplingParams};
use super::speculate::{self, Clock, Lane, MAX_DRAFTS, Speculation, Speculator};
use crate::error::{Error, Result};
use crate::model::{Feed, LanguageModel};
use crate::state::Sequence;

/// What to time.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Lengths of prompts.
    pub prompts: Vec<usize>,
    /// Lengths of answers.
    pub answers: Vec<usize>,
    /// Tokens in the context before either.
    pub depths: Vec<usize>,
    /// Repetitions behind one that is not counted.
    pub repetitions: usize,
}

impl BenchOptions {
    /// Whether it is a prompt's, and its tokens.
    fn tests(&self) -> impl Iterator<Item = (bool, usize)> {
        let tests = self.prompts.iter().map(|&n| (true, n)).chain(self.answers.iter().map(|&n| (false, n)));
        tests.filter(|&(_, count)| count > 0)
    }
}

/// The long-context protocol.
#[derive(Debug, Clone)]
pub struct CellOptions {
    /// Lengths of prompts.
    pub cells: Vec<usize>,
    /// Runs of each cell and seed.
    pub windows: usize,
    /// What the prompts are drawn from.
    pub seeds: Vec<u64>,
    /// The most tokens of an answer.
    pub answer: usize,
    /// How drafts are made and judged.
    pub speculation: Speculation,
}

/// What ran.
#[derive(Debug, Clone, Serialize)]
pub struct BenchSetting {
    /// The model's name.
    pub model: String,
    /// Hash of its tensors' names, shapes and types, or the synthetic model's name.
    pub model_hash: String,
    /// Bytes of its weights.
    pub weights: u64,
    /// Where it ran.
    #[serde(flatten)]
    pub placement: Placement,
    /// Bytes that the memory plan counted.
    pub planned: u64,
    /// Rows of a prefill chunk.
    pub prefill_chunk: usize,
    /// Tokens that the context holds.
    pub context: usize,
    /// Of this program.
    pub version: &'static str,
    /// When, in UTC.
    pub date: String,
}

/// One test.
#[derive(Debug, Clone, Serialize)]
pub struct BenchRow {
    /// `pp512` or `tg128`.
    pub test: String,
    /// Tokens in the context before it.
    pub depth: usize,
    /// Tokens a second, mean of the repetitions.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Each repetition.
    pub samples: Vec<f64>,
}

/// One window of the long-context protocol.
#[derive(Debug, Clone, Serialize)]
pub struct CellRow {
    /// Prompt tokens.
    pub cell: usize,
    /// What its ids were drawn from.
    pub seed: u64,
    /// Which run of that cell and seed.
    pub window: usize,
    /// "fits", or what was exceeded.
    pub status: String,
    /// Prompt tokens a second.
    pub prefill: f64,
    /// Answer tokens a second behind the first.
    pub decode: f64,
    /// Seconds to the first token.
    pub first_token: f64,
    /// Seconds altogether.
    pub wall: f64,
    /// Answer tokens.
    pub tokens: usize,
    /// Hash of the answer's ids: the same for the same text.
    pub text: String,
    /// Tokens that a round of drafts gave; 0 without any.
    pub tokens_a_round: f64,
    /// Bytes of context memory committed at the end.
    pub committed: u64,
    /// Bytes of the device's memory taken at the end; nothing is given back before. 0 on the host.
    pub device_bytes: u64,
    /// The most bytes that the process had resident on the host.
    pub peak: u64,
}

/// A model to time.
pub struct Bench {
    built: Built,
    chunk: usize,
    /// How the model drafts.
    pub speculation: Speculation,
    /// What runs.
    pub setting: BenchSetting,
}

/// What a kernel took of a test.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileRow {
    /// `pp512` or `tg128`.
    pub test: String,
    /// Tokens in the context before it.
    pub depth: usize,
    /// Its launches.
    #[serde(flatten)]
    pub time: KernelTime,
    /// Of all launches' time, in percent.
    pub share: f64,
}

/// A prompt or an answer of so many tokens, behind `depth` others.
struct Test {
    prompt: bool,
    count: usize,
    depth: usize,
}

impl Test {
    /// As llama-bench calls it.
    fn name(&self) -> String {
        format!("{}{}", if self.prompt { "pp" } else { "tg" }, self.count)
    }
}

/// Runs a test once.
type Once<'a> = dyn FnMut(&mut dyn LanguageModel) -> Result<Duration> + 'a;
/// Measures a test.
type Measure<'a> = dyn FnMut(&mut dyn LanguageModel, &Test, &mut Once<'_>) -> Result<()> + 'a;

impl Bench {
    /// Loads the model. `progress` is called with the share done, from 0 to 1.
    ///
    /// # Errors
    /// Those of a load.
    pub fn open(load: &LoadOptions, progress: &mut dyn FnMut(f32)) -> Result<Bench> {
        let (opened, source) = open_weights(load)?;
        let name = opened.checkpoint.name().to_string();
        let model_hash = load.synthetic.clone().unwrap_or_else(|| opened.fingerprint());
        let built = build::build(opened, source.as_ref(), load, progress)?;
        let setting = BenchSetting {
            model: name,
            model_hash,
            weights: (built.memory)().weights,
            placement: built.receipt.placement.clone(),
            planned: built.planned,
            prefill_chunk: built.model.max_rows(),
            context: built.model.max_sequence(),
            version: env!("CARGO_PKG_VERSION"),
            date: super::now(),
        };
        Ok(Bench { chunk: built.model.max_rows(), speculation: built.speculation, built, setting })
    }

    /// Runs every test; `row` hears of each as it ends.
    ///
    /// # Errors
    /// `ContextLength`, if a test does not fit; those of a step.
    pub fn run(&mut self, options: &BenchOptions, row: &mut dyn FnMut(&BenchRow)) -> Result<Vec<BenchRow>> {
        let mut rows = Vec::new();
        self.each(options, &mut |model, test, once| {
            // The first run warms up.
            once(model)?;
            let samples: Vec<f64> = (0..options.repetitions)
                .map(|_| Ok(test.count as f64 / once(model)?.as_secs_f64()))
                .collect::<Result<_>>()?;
            let (mean, deviation) = statistics(&samples);
            rows.push(BenchRow { test: test.name(), depth: test.depth, mean, deviation, samples });
            rows.last().into_iter().for_each(&mut *row);
            Ok(())
        })?;
        Ok(rows)
    }

    /// Times every kernel launch of each test instead, once and behind a warm run; nothing on a backend without launches.
    ///
    /// # Errors
    /// As of [`Bench::run`].
    pub fn profile(&mut self, options: &BenchOptions, row: &mut dyn FnMut(&ProfileRow)) -> Result<()> {
        self.each(options, &mut |model, test, once| {
            once(model)?;
            model.profile(true)?;
            once(model)?;
            let times = model.profile(false)?;
            let all: f64 = times.iter().map(|time| time.milliseconds).sum();
            for time in times {
                let share = 100.0 * time.milliseconds / all;
                row(&ProfileRow { test: test.name(), depth: test.depth, time, share });
            }
            Ok(())
        })
    }

    /// Prepares every test and hands it to `measure`, with what runs it once: from the same state each time, and says how
    /// long it took.
    fn each(&mut self, options: &BenchOptions, measure: &mut Measure<'_>) -> Result<()> {
        let (chunk, model) = (self.chunk, &mut *self.built.model);
        let mut sequence = model.new_sequence()?;
        for &depth in &options.depths {
            sequence.reset()?;
            let mut ids = Ids::new(depth as u64, model.shape().vocab);
            feed(model, &mut sequence, &ids.take(depth), chunk)?;
            let start = sequence.snapshot()?;
            for (prompt, count) in options.tests() {
                let tokens = ids.take(count);
                measure(model, &Test { prompt, count, depth }, &mut |model| {
                    sequence.restore(&start)?;
                    let started = Instant::now();
                    match prompt {
                        true => {
                            feed(model, &mut sequence, &tokens, chunk)?;
                        }
                        false => decode(model, &mut sequence, tokens[0], count)?,
                    }
                    Ok(started.elapsed())
                })?;
            }
        }
        Ok(())
    }

    /// Feeds a prompt of a seed's ids and then `answer` tokens one by one: `next` sees the logits behind the prompt and
    /// behind each token but the last, and chooses the token that follows.
    ///
    /// # Errors
    /// `Invalid`, for an empty prompt; `ContextLength`, if they do not fit; those of a step.
    pub fn follow(
        &mut self,
        prompt: usize,
        seed: u64,
        answer: usize,
        next: &mut dyn FnMut(&[f32]) -> u32,
    ) -> Result<()> {
        let (chunk, model) = (self.chunk, &mut *self.built.model);
        let last = prompt.checked_sub(1).ok_or_else(|| Error::invalid("a text to follow begins with a prompt"))?;
        let mut sequence = model.new_sequence()?;
        let ids = Ids::new(seed, model.shape().vocab).take(prompt);
        feed(model, &mut sequence, &ids, chunk)?;
        let mut row = last % chunk;
        for left in (0..answer).rev() {
            let id = next(model.logits(&[row])?);
            if left > 0 {
                model.forward(&mut [Feed { sequence: &mut sequence, ids: &[id] }])?;
                row = 0;
            }
        }
        Ok(())
    }

    /// Runs the long-context protocol: a cold prompt and an answer a window. What does not fit is a row, not an error.
    ///
    /// # Errors
    /// Those of a step other than running out of context or memory.
    pub fn cells(&mut self, options: &CellOptions, row: &mut dyn FnMut(&CellRow)) -> Result<Vec<CellRow>> {
        let mut rows = Vec::new();
        let (chunk, model) = (self.chunk, &mut *self.built.model);
        let mut sequence = model.new_sequence()?;
        for &cell in &options.cells {
            for &seed in &options.seeds {
                for window in 0..options.windows {
                    sequence.reset()?;
                    let ids = Ids::new(seed, model.shape().vocab).take(cell);
                    let mut result = CellRow {
                        cell,
                        seed,
                        window,
                        status: "fits".into(),
                        prefill: 0.0,
                        decode: 0.0,
                        first_token: 0.0,
                        wall: 0.0,
                        tokens: 0,
                        text: String::new(),
                        tokens_a_round: 0.0,
                        committed: 0,
                        device_bytes: 0,
                        peak: 0,
                    };
                    let started = Instant::now();
                    match answer(model, &mut sequence, &ids, chunk, options, started, &mut result) {
                        Ok(()) => {}
                        Err(error @ (Error::ContextLength { .. } | Error::InsufficientMemory(_))) => {
                            result.status = error.to_string();
                        }
                        Err(error) => return Err(error),
                    }
                    result.wall = started.elapsed().as_secs_f64();
                    let memory = (self.built.memory)();
                    (result.committed, result.peak) = (memory.committed, memory.peak_resident);
                    result.device_bytes = model.device_bytes().unwrap_or(0);
                    row(&result);
                    rows.push(result);
                }
            }
        }
        Ok(rows)
    }
}

fn answer(
    model: &mut dyn LanguageModel,
    sequence: &mut Sequence,
    ids: &[u32],
    chunk: usize,
    options: &CellOptions,
    started: Instant,
    result: &mut CellRow,
) -> Result<()> {
    let first = feed(model, sequence, ids, chunk)?;
    result.first_token = started.elapsed().as_secs_f64();
    result.prefill = ids.len() as f64 / result.first_token;
    result.tokens = 1;
    let most = options.answer.min(model.max_sequence() - sequence.len());
    let vocab = model.shape().vocab;
    let (mut sampler, mut next) = (Sampler::new(SamplingParams::default(), ids), first);
    let mut speculator = Speculator::of(options.speculation, model);
    let mut text = Sha256::new_with_prefix(first.to_le_bytes());
    let (mut step, rows): (Vec<u32>, Vec<usize>) = (Vec::new(), (0..=MAX_DRAFTS).collect());
    let decoding = Instant::now();
    while result.tokens < most {
        let depth = speculator.depth(most - result.tokens - 1);
        let mut clock = Clock::start();
        if depth > 0 {
            let (sampler, speculator) = (&mut sampler, &mut speculator);
            speculate::draft(model, &mut [Lane { sequence: &mut *sequence, speculator, sampler, next, depth }])?;
        }
        let drafting = clock.lap();
        step.clear();
        step.push(next);
        step.extend_from_slice(speculator.drafts());
        model.forward(&mut [Feed { sequence: &mut *sequence, ids: &step }])?;
        let logits = model.logits(&rows[..step.len()])?;
        let verifying = clock.lap();
        for logits in logits.chunks_exact(vocab) {
            let judged = speculator.judge(&mut sampler, logits)?;
            next = judged.id;
            text.update(next.to_le_bytes());
            result.tokens += 1;
            if !judged.goes_on {
                break;
            }
        }
        sequence.rewind(speculator.rejected())?;
        speculator.end([drafting, verifying, clock.lap()], true);
        result.decode = (result.tokens - 1) as f64 / decoding.elapsed().as_secs_f64();
    }
    result.text = format!("{:x}", text.finalize())[..16].to_string();
    result.tokens_a_round = speculator.receipts().tokens_a_round();
    Ok(())
}

/// Feeds a prompt in chunks and returns the most likely next id; 0 behind an empty one.
fn feed(model: &mut dyn LanguageModel, sequence: &mut Sequence, ids: &[u32], chunk: usize) -> Result<u32> {
    let mut last = 0;
    for ids in ids.chunks(chunk) {
        model.forward(&mut [Feed { sequence, ids }])?;
        last = ids.len();
    }
    match last {
        0 => Ok(0),
        rows => Ok(best(model.logits(&[rows - 1])?)),
    }
}

/// Feeds `count` tokens one by one, `first` and those that are most likely.
fn decode(model: &mut dyn LanguageModel, sequence: &mut Sequence, first: u32, count: usize) -> Result<()> {
    let mut next = first;
    for _ in 0..count {
        model.forward(&mut [Feed { sequence, ids: &[next] }])?;
        next = best(model.logits(&[0])?);
    }
    Ok(())
}

/// The most likely id.
fn best(logits: &[f32]) -> u32 {
    largest(logits, 1).first().map_or(0, |best| best.id)
}

fn statistics(samples: &[f64]) -> (f64, f64) {
    let count = samples.len().max(1) as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// Token ids of a fixed generator.
struct Ids {
    state: u64,
    vocab: u64,
}

impl Ids {
    fn new(seed: u64, vocab: usize) -> Ids {
        Ids { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, vocab: vocab as u64 }
    }
    fn take(&mut self, count: usize) -> Vec<u32> {
        let mut next = || {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            (self.state % self.vocab) as u32
        };
        (0..count).map(|_| next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_that_of_a_sample() {
        assert_eq!(statistics(&[2.0, 4.0, 6.0]), (4.0, 2.0));
        assert_eq!(statistics(&[3.0]), (3.0, 0.0));
    }
}
