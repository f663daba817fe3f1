//! The only boundary above the model: `submit(Request) -> Stream` of events, and `score`.
//!
//! Owns: the thread that owns the model, requests and their events, sampling, scoring.
//! Always true: a request is checked before anything runs; requests begin in the order they came and then share the
//! steps; each gets the text it would get alone; a stream ends with exactly one `Done` or `Failed`; dropping or
//! cancelling it stops within one step.
//! Not here: arithmetic (`model`, `backend`), the terminal (`cli`), the wire (`server`).

mod answer;
pub mod bench;
mod build;
mod cache;
mod constrain;
mod counters;
mod device;
pub mod distribution;
pub mod doctor;
mod inspect;
mod kernels;
mod load;
mod lock;
pub mod logits;
mod prefix;
mod quantize;
mod request;
pub mod sampler;
mod scheduler;
mod score;
mod sessions;
mod slot;
pub mod speculate;
mod text_stream;
mod work;
mod worker;

#[cfg(test)]
mod text_tests;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

pub use crate::backend::journal::Ran;
use crate::error::{Error, Result};
use crate::model::LanguageModel;
pub use crate::model::load::Plan;
use answer::Answer;
pub use build::{Built, MemoryProbe, MemoryUse, Placement, RanProbe, Receipt};
use constrain::Constrained;
pub use constrain::{Constraint, Grammar, Grammars};
use counters::Board;
pub use counters::{Activity, CacheStatus, SlotStatus, Status, Totals};
pub use inspect::{Fact, Group, Kept, Summary};
pub use kernels::{KernelEntry, KernelList, list_kernels};
pub use load::{LoadOptions, Loaded, MemoryLimit, TextSide, describe, generation_config, memory_plan};
pub use lock::DeviceLock;
pub use quantize::{QuantizeOptions, Quantized, QuantizedGroup, quantize_model, quantize_types};
pub use request::{Cancel, Done, Event, Request, StopReason, Token, Usage};
pub use sampler::{SamplingParams, drawn_seed};
use scheduler::Limits;
use score::Scoring;
pub use score::{Row, ScoreOptions, ScoreTotals};
pub use sessions::SessionFolder;
use speculate::Speculation;
pub use text_stream::{Prompt, Reading, TextDone, TextEvent, TextOptions, TextStream, Tokens};
use work::{Task, Work};

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
    /// Requests that run at a time, at least 1.
    pub parallel: usize,
    /// Requests that may wait beside them.
    pub max_queue: usize,
    /// Bytes that may be kept of earlier requests beside the slots' own states, so that a later prompt with the same
    /// beginning need not be read from it; 0 keeps nothing.
    pub cache_memory: usize,
    /// Where sessions outlive the process, within as many bytes as `cache_memory`; `None`: nowhere.
    pub sessions: Option<SessionFolder>,
    /// Compiles what requests ask of their answers' form; `None`: no request may.
    pub grammars: Option<Arc<Grammars>>,
    /// Says what the model holds.
    pub memory: MemoryProbe,
    /// How tokens are drafted.
    pub speculation: Speculation,
    /// Threads that a step's work is shared among; the engine's own thread is one of them.
    pub threads: usize,
}

/// The time in UTC, to the second, for receipts.
fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Second).map_or_else(|_| String::new(), |now| now.to_string())
}

/// A running model.
pub struct Engine {
    jobs: Option<Sender<Work>>,
    stop: Cancel,
    thread: Option<JoinHandle<()>>,
    board: Arc<Board>,
    grammars: Option<Arc<Grammars>>,
    vocab: usize,
    context: usize,
}

impl Engine {
    /// Starts the thread that owns `model`. Fails with `Invalid` for choices that do not fit together, and with `Io` if
    /// a thread cannot be started or the session folder not be used.
    pub fn start(model: Box<dyn LanguageModel>, options: Options) -> Result<Engine> {
        let (vocab, context) = (model.shape().vocab, model.max_sequence());
        let rows = model.max_rows().max(1);
        let limits = Limits {
            parallel: options.parallel.max(1),
            queue: options.max_queue,
            rows,
            chunk: if options.prefill_chunk == 0 { rows } else { options.prefill_chunk.min(rows) },
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|i| format!("cpu-{i}"))
            .build()
            .map_err(|e| Error::Io {
                what: "cannot start the worker threads".into(),
                source: std::io::Error::other(e),
            })?;
        // Unbounded: the board counts who is inside.
        let (jobs, queue) = channel();
        if options.sessions.is_some() && options.cache_memory == 0 {
            return Err(Error::invalid("--session-dir keeps what --cache-memory holds: give that more than 0 bytes"));
        }
        let grammars = options.grammars.clone();
        let (stop, board) = (Cancel::default(), Arc::new(Board::new(limits)));
        let worker = worker::Worker::new(model, limits, options, board.clone(), stop.clone())?;
        let thread = std::thread::Builder::new()
            .name("engine".into())
            // Inside the pool a step starts its parallel work without waking anyone for it first.
            .spawn(move || pool.install(|| worker.run(queue)))
            .map_err(Error::io("cannot start the engine's thread"))?;
        Ok(Engine { jobs: Some(jobs), stop, thread: Some(thread), board, grammars, vocab, context })
    }

    /// The most tokens, prompt and answer together, that a request may hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Ids are `0..vocab`.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// What it does now, and sums since the start.
    pub fn status(&self) -> Status {
        self.board.status()
    }

    /// Starts a request behind those that wait already. Fails before anything runs: an empty prompt, an id outside the
    /// vocabulary, a prompt that leaves no room for an answer ([`Error::ContextLength`]), a sampling value out of range,
    /// a form that cannot be enforced, a full queue ([`Error::Busy`]).
    pub fn submit(&self, request: Request) -> Result<Stream> {
        self.submit_many(request, 1).map(|mut streams| streams.remove(0))
    }

    /// Starts `count` answers to one prompt, which is read once; answer i draws with the seed plus i. All of them start,
    /// or none. Fails as [`Engine::submit`].
    pub fn submit_many(&self, request: Request, count: usize) -> Result<Vec<Stream>> {
        check_ids(&request.ids, self.vocab)?;
        request.params.check(self.vocab)?;
        if count == 0 {
            return Err(Error::invalid("0 answers were asked for: ask for at least one"));
        }
        if request.ids.len() >= self.context {
            return Err(Error::ContextLength { prompt: request.ids.len(), context: self.context });
        }
        let constrained = match (&request.constraint, &self.grammars) {
            (None, _) => None,
            (Some(constraint), Some(grammars)) => Some(grammars.start(constraint)?),
            (Some(_), None) => {
                return Err(Error::invalid("this engine has no tokenizer, so it cannot hold an answer to a form"));
            }
        };
        let first = self.board.enter(count)?;
        let start = |index: u64| {
            let (events, receiver) = channel();
            // Its own flag: ending one stream must not set a flag that its owner shares with others.
            let cancel = Cancel::default();
            let mut request = request.clone();
            request.params.seed = request.params.seed.wrapping_add(index);
            let ids = request.ids.clone();
            let answer = Answer::new(request, constrained.as_ref().map(Constrained::fork), events, cancel.clone());
            let work = Work::new(first + index, ids, Task::Answer(Box::new(answer)));
            self.send(if count > 1 { work.of_several(first) } else { work })?;
            Ok(Stream { events: receiver, cancel, ended: false })
        };
        (0..count as u64).map(start).collect()
    }

    /// Log-probabilities of `ids`, each given its predecessors: `on_row` gets one [`Row`] a token, in order, while the
    /// model runs. An error from `on_row` stops the work and is returned.
    pub fn score(
        &self,
        ids: Vec<u32>,
        options: ScoreOptions,
        on_row: &mut dyn FnMut(Row) -> Result<()>,
    ) -> Result<ScoreTotals> {
        check_ids(&ids, self.vocab)?;
        if ids.len() > self.context {
            return Err(Error::ContextLength { prompt: ids.len(), context: self.context });
        }
        let total = ids.len();
        // Bounded: a reader that is slower than the model must not pile up rows.
        let (rows, receiver) = sync_channel(256);
        self.send(Work::new(self.board.enter(1)?, ids, Task::Score(Scoring::new(options, rows))))?;
        let mut totals = ScoreTotals::default();
        for row in receiver {
            let row = row?;
            totals.add(&row);
            on_row(row)?;
        }
        if totals.tokens == total { Ok(totals) } else { Err(gone()) }
    }

    fn send(&self, work: Work) -> Result<()> {
        self.jobs.as_ref().and_then(|jobs| jobs.send(work).ok()).ok_or_else(gone)
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
