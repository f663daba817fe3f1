//! The terminal: bars, dimmed text, log lines, and checked writing to standard output.
//!
//! Owns: whether and where something is coloured or animated, and how output is written.
//! Always true: bars only on a terminal, a log line instead elsewhere; a failed write to standard error is ignored, one
//! to standard output is an error that names it.
//! Not here: what is written (`run`, `score`, `inspect`).

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::EnvFilter;

use super::Failure;
use super::args::{Color, GlobalArgs, LogFormat, ModelArgs};
use crate::config::Device;
use crate::engine::speculate::SpeculationOptions;
use crate::engine::{DeviceLock, LoadOptions, Loaded};
use crate::error::{Error, Result};

/// A prompt that is read faster than this needs no progress.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two log lines of one prompt.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// What the two standard streams are.
#[derive(Debug, Clone, Copy)]
pub struct Ui {
    color: bool,
    /// Standard error is a terminal.
    pub err_terminal: bool,
    /// Standard output is a terminal.
    pub out_terminal: bool,
    bars: bool,
}

fn color(choice: Color) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match choice {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            io::stderr().is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM") != Some("dumb".into())
        }
    }
}

/// Sends log lines to standard error. RUST_LOG decides what is said, else -v and -q.
pub fn start_logs(global: &GlobalArgs) -> Result<(), Failure> {
    let level = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) => "info",
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    let rules = std::env::var("RUST_LOG").ok().filter(|rules| !rules.is_empty()).unwrap_or_else(|| level.into());
    let filter = EnvFilter::try_new(&rules).map_err(|error| {
        Failure::Usage(format!("RUST_LOG is '{rules}', which is not a filter ({error}); use for example hipfire=debug"))
    })?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(color(global.color))
        .log_internal_errors(false);
    // A second call in one process (a test) keeps the first.
    let _ = match global.log_format {
        LogFormat::Text => logs.without_time().with_target(false).try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    Ok(())
}

impl Ui {
    /// Looks at the streams once.
    pub fn new(global: &GlobalArgs) -> Ui {
        let err_terminal = io::stderr().is_terminal();
        Ui {
            color: color(global.color),
            err_terminal,
            out_terminal: io::stdout().is_terminal(),
            bars: err_terminal && !global.quiet && global.log_format == LogFormat::Text,
        }
    }

    /// Text for standard error, dimmed where colour is on.
    pub fn dim(&self, text: &str) {
        let mut err = io::stderr().lock();
        let _ = match self.color {
            true => write!(err, "\x1b[2m{text}\x1b[0m"),
            false => write!(err, "{text}"),
        };
        let _ = err.flush();
    }

    /// Runs something long, with a bar on a terminal; `work` says the share done, from 0 to 1.
    pub fn with_bar<T>(&self, what: &'static str, work: impl FnOnce(&mut dyn FnMut(f32)) -> T) -> T {
        let bar = self.bars.then(|| {
            let style = ProgressStyle::with_template("{msg} {bar:30} {percent} %");
            let bar = ProgressBar::new(LOAD_STEPS).with_message(what);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let done = work(&mut |share| {
            if let Some(bar) = &bar {
                bar.set_position((share * LOAD_STEPS as f32) as u64);
            }
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        done
    }

    /// Loads a model, with a bar on a terminal and a log line elsewhere.
    pub fn load(&self, model: &ModelArgs, speculation: SpeculationOptions) -> Result<Loaded> {
        self.load_with(&model.load_options(speculation), &mut |_| {})
    }

    /// The same; `progress` is called with the share done, from 0 to 1.
    pub fn load_with(&self, options: &LoadOptions, progress: &mut dyn FnMut(f32)) -> Result<Loaded> {
        let lock = match options.device {
            Device::Hip(number) => Some(DeviceLock::hip(number)?),
            Device::Auto | Device::Cpu => None,
        };
        let started = Instant::now();
        let mut loaded = self.with_bar("loading the model", |bar| {
            Loaded::open(options, &mut |share| {
                progress(share);
                bar(share);
            })
        })?;
        loaded.lock = lock;
        if !self.bars {
            tracing::info!("loaded {} in {:.2} s", loaded.name, started.elapsed().as_secs_f64());
        }
        Ok(loaded)
    }

    /// Progress through tokens, shown once it has taken a second.
    pub fn progress(&self, verb: &'static str) -> Progress {
        self.progress_of(verb, Unit::Tokens)
    }

    /// Progress through bytes, shown likewise.
    pub fn bytes(&self, verb: &'static str) -> Progress {
        self.progress_of(verb, Unit::Bytes)
    }

    fn progress_of(&self, verb: &'static str, unit: Unit) -> Progress {
        Progress { bars: self.bars, verb, unit, bar: None, started: Instant::now(), logged: None }
    }
}

/// Steps of the load's bar.
const LOAD_STEPS: u64 = 1000;

/// What progress counts.
#[derive(Clone, Copy)]
enum Unit {
    Tokens,
    Bytes,
}

impl Unit {
    fn template(self) -> &'static str {
        match self {
            Unit::Tokens => "{msg} {bar:30} {pos}/{len} tokens, {per_sec}, {eta} left",
            Unit::Bytes => "{msg} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
        }
    }
    fn name(self) -> &'static str {
        match self {
            Unit::Tokens => "tokens",
            Unit::Bytes => "bytes",
        }
    }
}

/// See [`Ui::progress`].
pub struct Progress {
    bars: bool,
    verb: &'static str,
    unit: Unit,
    bar: Option<ProgressBar>,
    started: Instant,
    logged: Option<Instant>,
}

impl Progress {
    /// `done` of `total` units.
    pub fn at(&mut self, done: u64, total: u64) {
        if done == 0 {
            self.started = Instant::now();
        }
        if done >= total {
            return self.clear();
        }
        if self.started.elapsed() < PATIENCE {
            return;
        }
        if self.bars {
            let bar = self.bar.get_or_insert_with(|| {
                let style =
                    ProgressStyle::with_template(self.unit.template()).unwrap_or_else(|_| ProgressStyle::default_bar());
                ProgressBar::new(total).with_style(style).with_message(self.verb).with_elapsed(self.started.elapsed())
            });
            bar.set_position(done);
        } else if self.logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            self.logged = Some(Instant::now());
            tracing::info!("{}: {done} of {total} {}", self.verb, self.unit.name());
        }
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Standard output. Everything written has been handed to the system when a call returns.
pub struct Output(io::BufWriter<io::StdoutLock<'static>>);

impl Output {
    /// Holds standard output until dropped.
    pub fn new() -> Output {
        Output(io::BufWriter::new(io::stdout().lock()))
    }

    /// Text as it is.
    pub fn text(&mut self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).map_err(Error::io("cannot write to standard output"))
    }

    /// One JSON value and a line's end.
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let text =
            serde_json::to_string(value).map_err(|error| Error::invalid(format!("cannot write JSON: {error}")))?;
        self.bytes(format!("{text}\n").as_bytes())
    }
}
