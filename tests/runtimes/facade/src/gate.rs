//! The gate every exported call passes: counted, logged, made to fail on demand.
//!
//! Owns: call counts, planted failures, the schedule's seed, the last fault's text, a lost context, the thread's last
//! error, and reading `HIPFIRE_STANDIN`. Always true: a planted failure happens instead of the call; a panic behind
//! the gate becomes `hipErrorUnknown`. Not here: what a call does (`calls`), what a mode does (`modes`).
//!
//! `HIPFIRE_STANDIN` is a list of settings, split by `;`:
//! `mode=NAME[:VALUE]` (value 1 if left out), `fail=CALL:NTH:CODE`, `schedule=SEED`, `log=1` (to standard error).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{self, HipError, Outcome};
use crate::modes::{Mode, Modes};

/// State behind the gate of one stand-in.
#[derive(Debug)]
pub struct Gate {
    modes: Modes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: BTreeMap<&'static str, u64>,
    failures: Vec<Failure>,
    schedule: u64,
    fault: String,
    context_lost: bool,
    log: bool,
}

#[derive(Debug)]
struct Failure {
    call: String,
    /// How many calls until it fails; 0 is every call.
    nth: u32,
    code: HipError,
}

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// The gate of this library.
pub fn gate() -> &'static Gate {
    static GATE: OnceLock<Gate> = OnceLock::new();
    GATE.get_or_init(|| {
        let gate = Gate { modes: Modes::default(), state: Mutex::default() };
        gate.read_environment();
        gate
    })
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a hostile mode or setting.
    pub fn mode(&self, mode: Mode) -> u64 {
        self.modes.value(mode)
    }

    /// Whether a hostile mode is on.
    pub fn is_on(&self, mode: Mode) -> bool {
        self.mode(mode) != 0
    }

    /// Sets a mode by name; false if there is none of that name.
    pub fn set_mode(&self, name: &str, value: u64) -> bool {
        self.modes.set(name, value)
    }

    /// Makes the `nth` next call fail with `code`; 0 is every call, code 0 takes back what was planted for the call.
    pub fn fail(&self, call: &str, nth: u32, code: i32) {
        let mut state = self.state();
        if code == 0 {
            state.failures.retain(|failure| failure.call != call);
        } else {
            state.failures.push(Failure { call: call.to_owned(), nth, code: HipError(code) });
        }
    }

    /// The seed of the order work is done in.
    pub fn schedule(&self) -> u64 {
        self.state().schedule
    }

    /// Sets that seed.
    pub fn set_schedule(&self, seed: u64) {
        self.state().schedule = seed;
    }

    /// Calls of this name so far.
    pub fn calls(&self, call: &str) -> u64 {
        self.state().calls.get(call).copied().unwrap_or(0)
    }

    /// Keeps the text of an error that HIP has only a number for.
    pub fn explain(&self, text: impl Into<String>) {
        self.state().fault = text.into();
    }

    /// A kernel faulted: every call fails with `hipErrorLaunchFailure` until `standin_reset`.
    pub fn lose_context(&self, text: impl Into<String>) {
        let mut state = self.state();
        state.fault = text.into();
        state.context_lost = true;
    }

    /// Whether a kernel fault lost the context.
    pub fn context_lost(&self) -> bool {
        self.state().context_lost
    }

    /// Text of the last fault, empty if there was none.
    pub fn last_fault(&self) -> String {
        self.state().fault.clone()
    }

    /// Back to the start: as the environment says.
    pub fn reset(&self) {
        *self.state() = State::default();
        self.modes.clear();
        self.read_environment();
        LAST_ERROR.set(0);
    }

    fn read_environment(&self) {
        let Ok(settings) = std::env::var("HIPFIRE_STANDIN") else { return };
        for setting in settings.split(';').map(str::trim).filter(|setting| !setting.is_empty()) {
            if let Err(problem) = self.apply(setting) {
                eprintln!("HIPFIRE_STANDIN: {problem}");
                // A mistyped test must not pass: without a context nothing works.
                self.lose_context(format!("HIPFIRE_STANDIN: {problem}"));
            }
        }
    }

    fn apply(&self, setting: &str) -> Result<(), String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` in `{setting}` is no number"));
        let (key, value) = setting.split_once('=').ok_or(format!("`{setting}` is not KEY=VALUE"))?;
        let parts: Vec<&str> = value.split(':').collect();
        match (key, parts.as_slice()) {
            ("mode", [name, rest @ ..]) if rest.len() < 2 => {
                let value = rest.first().map_or(Ok(1), |text| number(text))?;
                self.set_mode(name, value).then_some(()).ok_or(format!("there is no mode `{name}`"))
            }
            ("fail", [call, nth, code]) => {
                let nth = u32::try_from(number(nth)?).map_err(|_| format!("`{nth}` calls are too many"))?;
                let code = i32::try_from(number(code)?).map_err(|_| format!("`{code}` is no HIP error"))?;
                self.fail(call, nth, code);
                Ok(())
            }
            ("schedule", [seed]) => {
                self.set_schedule(number(seed)?);
                Ok(())
            }
            ("log", [flag]) => {
                self.state().log = number(flag)? != 0;
                Ok(())
            }
            _ => Err(format!("`{setting}` is none of mode=NAME[:VALUE], fail=CALL:NTH:CODE, schedule=SEED, log=1")),
        }
    }

    /// Counts a call and answers whether it may go on, and whether to log it.
    fn admit(&self, call: &'static str) -> (Outcome, bool) {
        let mut state = self.state();
        *state.calls.entry(call).or_insert(0) += 1;
        let mut planted = None;
        state.failures.retain_mut(|failure| {
            if failure.call != call {
                return true;
            }
            if failure.nth == 0 {
                planted = Some(failure.code);
                return true;
            }
            failure.nth -= 1;
            if failure.nth == 0 {
                planted = Some(failure.code);
            }
            failure.nth != 0
        });
        let outcome = match planted {
            Some(code) => Err(code),
            None if state.context_lost => Err(HipError::LAUNCH_FAILURE),
            None => Ok(()),
        };
        (outcome, state.log)
    }
}

/// Runs a call through the gate and answers HIP's number. `arguments` are written only when the log is on.
pub fn call(name: &'static str, arguments: impl FnOnce() -> String, body: impl FnOnce() -> Outcome) -> i32 {
    let (admitted, log) = gate().admit(name);
    let outcome = admitted.and_then(|()| {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
            gate().explain(format!("the stand-in panicked in {name}: see standard error"));
            Err(HipError::UNKNOWN)
        })
    });
    let code = outcome.err().map_or(0, |error| error.0);
    // As ROCm: a poll that finds work unfinished is no error to remember.
    if code != 0 && code != HipError::NOT_READY.0 {
        LAST_ERROR.set(code);
    }
    if log {
        eprintln!("{name}({}) = {}", arguments(), error::name(code).to_string_lossy());
    }
    code
}

/// The thread's last error, cleared.
pub fn take_last_error() -> i32 {
    LAST_ERROR.replace(0)
}

/// The thread's last error.
pub fn peek_last_error() -> i32 {
    LAST_ERROR.get()
}
