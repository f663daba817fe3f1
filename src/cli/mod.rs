//! The command line: one file a verb, and what they share.
//!
//! Owns: exit codes (0; 1 failed; 2 usage; 3 stuck device; 130 interrupted; a closed pipe is 0) and who prints
//! the final sentence.
//! Always true: standard output holds only what was asked for; everything else goes to standard error.
//! Not here: how text is generated (`engine`), what it means (`text`).

pub mod args;
mod bench;
pub mod chat;
mod doctor;
mod export;
mod input;
mod inspect;
mod quantize;
mod run;
mod score;
mod serve;
pub mod serve_args;
pub mod serving;
pub mod settings;
pub mod speculation;
mod thinking;
mod ui;
pub mod values;

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::CommandFactory;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::engine::{Cancel, generation_config};
use crate::error::{Error, Result};
use args::{Cli, Verb};
use settings::{Resolved, Setting};
use ui::{Output, Ui};

/// Why the program does not end with success.
pub enum Failure {
    /// The command line, an environment name or a configuration key is wrong: exit code 2.
    Usage(String),
    /// The same, found by clap; also its way to print a help.
    Clap(Box<clap::Error>),
    /// The device does not answer any more: exit code 3, so that a supervisor starts the program anew.
    Stuck(String),
    /// What was asked for could not be done: exit code 1, or 130 if it was interrupted.
    Failed(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Failed(error)
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Failure {
        Failure::Clap(Box::new(error))
    }
}

/// Runs the program with its arguments (the first is its name) and says how to exit.
pub fn main(args: Vec<OsString>) -> ExitCode {
    match dispatch(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

fn dispatch(args: Vec<OsString>) -> Result<(), Failure> {
    let Resolved { cli, settings } = settings::resolve(args)?;
    ui::start_logs(&cli.global)?;
    let ui = Ui::new(&cli.global);
    if cli.global.print_config {
        return print_config(&cli, settings);
    }
    match cli.verb {
        None => Output::new().text(&Cli::command().render_help().to_string()).map_err(Failure::from),
        Some(Verb::Run(args)) => run::run(&args, &settings, ui),
        Some(Verb::Chat(args)) => Ok(chat::chat(&args, ui)?),
        Some(Verb::Serve(args)) => serve::serve(&args, &settings, ui),
        Some(Verb::Score(args)) => score::score(&args, &ui),
        Some(Verb::Inspect(args)) => inspect::inspect(&args),
        Some(Verb::Bench(args)) => bench::bench(&args, &ui),
        Some(Verb::Doctor(args)) => doctor::doctor(&args, &ui),
        Some(Verb::Quantize(args)) => quantize::quantize(&args, &ui),
        Some(Verb::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "hipfire", &mut script);
            Ok(Output::new().bytes(&script)?)
        }
    }
}

/// The settings, and under them what the model brings along (if its folder can be read).
fn print_config(cli: &Cli, mut settings: Vec<Setting>) -> Result<(), Failure> {
    if let Some(Verb::Run(args)) = &cli.verb {
        let folder = args.model.folder();
        if let Ok(file) = generation_config(folder.as_deref()) {
            run::model_defaults(&mut settings, file.as_ref());
        }
    }
    let lines: String = settings.iter().map(|setting| format!("{setting}\n")).collect();
    Ok(Output::new().text(&lines)?)
}

/// Prints the last sentence. Standard error may be gone too, which changes nothing.
fn report(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Usage(message) => {
            let _ = writeln!(io::stderr(), "error: {message}");
            ExitCode::from(2)
        }
        Failure::Clap(error) => {
            let _ = error.print();
            ExitCode::from(error.exit_code() as u8)
        }
        Failure::Stuck(message) => {
            let _ = writeln!(io::stderr(), "error: {message}");
            ExitCode::from(3)
        }
        Failure::Failed(Error::Cancelled) => ExitCode::from(130),
        // Only standard output is written to: whoever read it has seen enough.
        Failure::Failed(Error::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Failure::Failed(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A flag that the first Ctrl-C sets; the second one ends the process at once with 130.
fn interrupt() -> Result<Cancel> {
    let stop = Arc::new(AtomicBool::new(false));
    // In this order: the shutdown looks at the flag before the first signal sets it.
    flag::register_conditional_shutdown(SIGINT, 130, stop.clone())
        .and_then(|_| flag::register(SIGINT, stop.clone()))
        .map_err(Error::io("cannot listen for Ctrl-C"))?;
    Ok(Cancel::from_flag(stop))
}
