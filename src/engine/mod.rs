//! The only boundary above the model: `submit(Request) -> Stream` of events, and `score`.
//!
//! Owns: the thread that owns the model, requests and their events, sampling, scoring.
//! Always true: a request is checked before anything runs; requests run one after another in the order they came; a
//! stream ends with exactly one `Done` or `Failed`; dropping or cancelling it stops within one step.
//! Not here: arithmetic (`model`, `backend`), the terminal (`cli`), the wire (`server`).

pub mod bench;
mod build;
mod device;
pub mod doctor;
mod inspect;
mod kernels;
mod load;
pub mod logits;
mod quantize;
pub mod sampler;
mod score;
mod text_stream;
mod timeline;
mod worker;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod text_tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::LanguageModel;
pub use crate::model::load::Plan;
pub use build::{Built, MemoryProbe, MemoryUse, Placement};
pub use inspect::{Fact, Group, Summary};
pub use kernels::{KernelEntry, KernelList, list_kernels};
pub use load::{LoadOptions, Loaded, MemoryLimit, TextSide, describe, generation_config, memory_plan};
use logits::Ranked;
pub use quantize::{QuantizeOptions, Quantized, QuantizedGroup, quantize_model, quantize_types};
pub use sampler::SamplingParams;
pub use score::{Row, ScoreOptions, ScoreTotals};
pub use text_stream::{Prompt, Reading, TextDone, TextEvent, TextOptions, TextStream, Tokens};
use timeline::{Single, Timeline};
use worker::Job;

/// A flag that stops a request within one step, shared with whoever may want to (a signal handler, a connection).
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Over a flag that something else sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Cancel {
        Cancel(flag)
    }
    /// Asks to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What to generate.
#[derive(Debug, Clone)]
pub struct Request {
    /// The prompt: at least one id, fewer than the context holds.
    pub ids: Vec<u32>,
    /// The most tokens to generate; `None` is as many as the context holds.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub params: SamplingParams,
    /// Ids that end the answer; they are not part of it.
    pub stop_ids: Vec<u32>,
    /// With `Some(n)`, every token comes with its log-probability and the `n` most likely ids, by the model alone
    /// (before penalties, temperature and filters).
    pub logprobs: Option<usize>,
    /// Stops the request from outside.
    pub cancel: Cancel,
}

/// What happens while a request runs.
#[derive(Debug)]
pub enum Event {
    /// The prompt is being read. The first one has `done` 0, the last one `done == total`.
    Prefill {
        /// Prompt tokens read.
        done: usize,
        /// Prompt tokens.
        total: usize,
    },
    /// One more token.
    Token(Token),
    /// The end. Nothing follows.
    Done(Done),
    /// The end, by an error. Nothing follows.
    Failed(Error),
}

/// A generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Natural log of its probability, if asked for.
    pub logprob: Option<f32>,
    /// The most likely ids with theirs, if asked for.
    pub top: Vec<Ranked>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model produced a stop id.
    Stop,
    /// `max_tokens` or the context was reached.
    Length,
    /// The text reached a stop string (decided above the engine).
    StopString,
    /// Somebody cancelled.
    Cancelled,
}

impl StopReason {
    /// The word that outputs use.
    pub fn name(self) -> &'static str {
        match self {
            StopReason::Stop => "stop",
            StopReason::Length => "length",
            StopReason::StopString => "stop_string",
            StopReason::Cancelled => "cancelled",
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Why.
    pub reason: StopReason,
    /// What it took.
    pub usage: Usage,
    /// What the model held at the end, the request's own state included.
    pub memory: MemoryUse,
}

/// Counts and times of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: usize,
    /// Tokens of the answer, without a stop id.
    pub generated: usize,
    /// Steps of one token after the prompt.
    pub steps: usize,
    /// From submission until the model began.
    pub queued: Duration,
    /// Reading the prompt.
    pub prefill: Duration,
    /// From submission to the first token; zero without one.
    pub first_token: Duration,
    /// From the end of the prompt to the end.
    pub decode: Duration,
}

impl Usage {
    /// Prompt tokens a second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt, self.prefill)
    }
    /// Decode steps a second. The first token needs no step: its logits come with the prompt.
    pub fn decode_rate(&self) -> f64 {
        rate(self.steps, self.decode)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// The events of one request.
pub struct Stream {
    events: Receiver<Event>,
    cancel: Cancel,
    ended: bool,
}

impl Tokens for Stream {
    /// What was generated until then still arrives, and `Done` with `Cancelled`.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl Drop for Stream {
    /// Nobody listens any more: the request stops within one step.
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Iterator for Stream {
    type Item = Event;
    /// Waits for the next event.
    fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().unwrap_or_else(|_| Event::Failed(gone()));
        self.ended = matches!(event, Event::Done(_) | Event::Failed(_));
        Some(event)
    }
}

fn gone() -> Error {
    Error::model("the engine has ended before the request did: this is a bug, please report it with the prompt")
}

/// The choices of an engine.
#[derive(Clone)]
pub struct Options {
    /// Prompt tokens a step takes; 0 or more than the model's rows means as many as the model has rows.
    pub prefill_chunk: usize,
    /// Says what the model holds.
    pub memory: MemoryProbe,
    /// Threads that a step's work is shared among; the engine's own thread is one of them.
    pub threads: usize,
}

/// A running model.
pub struct Engine {
    jobs: Option<SyncSender<Job>>,
    stop: Cancel,
    thread: Option<JoinHandle<()>>,
    limits: Limits,
}

/// What a request is checked against.
#[derive(Debug, Clone, Copy)]
struct Limits {
    vocab: usize,
    context: usize,
}

impl Engine {
    /// Starts the thread that owns `model`.
    pub fn start(model: Box<dyn LanguageModel>, options: Options) -> Result<Engine> {
        Engine::over(Box::new(Single::new(model)), options)
    }

    fn over(timeline: Box<dyn Timeline>, options: Options) -> Result<Engine> {
        let limits = Limits { vocab: timeline.vocab(), context: timeline.max_sequence() };
        // A handful may wait; whoever submits more than that waits in `submit`.
        let (jobs, queue) = sync_channel(64);
        let stop = Cancel::default();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|i| format!("cpu-{i}"))
            .build()
            .map_err(|e| Error::Io {
                what: "cannot start the worker threads".into(),
                source: std::io::Error::other(e),
            })?;
        let worker = worker::Worker::new(timeline, options, stop.clone());
        let thread = std::thread::Builder::new()
            .name("engine".into())
            // Inside the pool a step starts its parallel work without waking anyone for it first.
            .spawn(move || pool.install(|| worker.run(queue)))
            .map_err(Error::io("cannot start the engine's thread"))?;
        Ok(Engine { jobs: Some(jobs), stop, thread: Some(thread), limits })
    }

    /// The most tokens, prompt and answer together, that a request may hold.
    pub fn context(&self) -> usize {
        self.limits.context
    }

    /// Ids are `0..vocab`.
    pub fn vocab(&self) -> usize {
        self.limits.vocab
    }

    /// Starts a request behind those that wait already. Fails before anything runs: an empty prompt, an id outside the
    /// vocabulary, a prompt that leaves no room for an answer ([`Error::ContextLength`]), a sampling value out of range.
    pub fn submit(&self, request: Request) -> Result<Stream> {
        let Limits { vocab, context } = self.limits;
        check_ids(&request.ids, vocab)?;
        request.params.check(vocab)?;
        if request.ids.len() >= context {
            return Err(Error::ContextLength { prompt: request.ids.len(), context });
        }
        let (events, receiver) = channel();
        // Its own flag: ending one stream must not set a flag that its owner shares with others.
        let cancel = Cancel::default();
        self.send(Job::Generate { request, events, stop: cancel.clone(), submitted: Instant::now() })?;
        Ok(Stream { events: receiver, cancel, ended: false })
    }

    /// Log-probabilities of `ids`, each given its predecessors: `on_row` gets one [`Row`] a token, in order, while the
    /// model runs. An error from `on_row` stops the work and is returned.
    pub fn score(
        &self,
        ids: Vec<u32>,
        options: ScoreOptions,
        on_row: &mut dyn FnMut(Row) -> Result<()>,
    ) -> Result<ScoreTotals> {
        let Limits { vocab, context } = self.limits;
        check_ids(&ids, vocab)?;
        if ids.len() > context {
            return Err(Error::ContextLength { prompt: ids.len(), context });
        }
        let total = ids.len();
        // Bounded: a reader that is slower than the model must not pile up rows.
        let (rows, receiver) = sync_channel(256);
        self.send(Job::Score { ids, options, rows })?;
        let mut totals = ScoreTotals::default();
        for row in receiver {
            let row = row?;
            totals.add(&row);
            on_row(row)?;
        }
        if totals.tokens == total { Ok(totals) } else { Err(gone()) }
    }

    fn send(&self, job: Job) -> Result<()> {
        self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or_else(gone)
    }
}

impl Drop for Engine {
    /// Stops what runs within one step and waits for the thread.
    fn drop(&mut self) {
        self.stop.cancel();
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported to its stream.
            let _ = thread.join();
        }
    }
}

fn check_ids(ids: &[u32], vocab: usize) -> Result<()> {
    if ids.is_empty() {
        return Err(Error::invalid("the prompt is empty: give at least one token"));
    }
    match ids.iter().position(|&id| id as usize >= vocab) {
        None => Ok(()),
        Some(at) => Err(Error::Invalid(format!(
            "token {at} of the prompt has id {}, but the model's vocabulary holds 0 to {}",
            ids[at],
            vocab.saturating_sub(1)
        ))),
    }
}
