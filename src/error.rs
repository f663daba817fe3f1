//! The one error type of the crate.
//!
//! Owns: the kinds of failure a caller may treat differently (a server maps each to a status, the command line to an
//! exit code) and the sentence a person reads.
//! Always true: a message names the thing (file, tensor, field, value) and says what to do about it.
//! Not here: printing, exit codes (`cli`), HTTP statuses (`server`).

use std::io;
use std::time::Duration;

/// What went wrong, in the terms a caller can act on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting or a request that cannot be honoured as written.
    #[error("{0}")]
    Invalid(String),
    /// A prompt that does not fit the context; nothing was cut.
    #[error(
        "the prompt has {prompt} tokens and the context holds {context}: shorten it or raise --max-seq \
         (at least one more token is needed to answer)"
    )]
    ContextLength {
        /// Tokens in the prompt.
        prompt: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// The memory plan, or a growth of the context, does not fit.
    #[error("{0}")]
    InsufficientMemory(String),
    /// As many requests run and wait as may: a later one will be taken.
    #[error(
        "the engine is busy: {parallel} requests run and {queue} wait, which is as many as --parallel and --max-queue \
         allow; try again in {} s", .retry.as_secs()
    )]
    Busy {
        /// Requests that run at a time.
        parallel: usize,
        /// Requests that wait at a time.
        queue: usize,
        /// When to try again.
        retry: Duration,
    },
    /// A checkpoint (or one of its companion files) whose content is wrong, missing or not supported.
    #[error("{0}")]
    Model(String),
    /// An operating-system call on `what` failed.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted, on which path.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A GPU or its library: missing, refusing, or lost.
    #[error("{0}")]
    Device(String),
    /// The arithmetic left the numbers (NaN): names the layer or step.
    #[error("{0}")]
    Numeric(String),
    /// The caller asked to stop.
    #[error("interrupted")]
    Cancelled,
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An [`Error::Io`] with its attempt in words, for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// An [`Error::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(message.into())
    }

    /// The same for one more request that met it: a step that fails takes several along.
    pub fn again(&self) -> Error {
        match self {
            Error::Invalid(message) => Error::Invalid(message.clone()),
            Error::ContextLength { prompt, context } => Error::ContextLength { prompt: *prompt, context: *context },
            Error::InsufficientMemory(message) => Error::InsufficientMemory(message.clone()),
            Error::Busy { parallel, queue, retry } => Error::Busy { parallel: *parallel, queue: *queue, retry: *retry },
            Error::Model(message) => Error::Model(message.clone()),
            Error::Io { what, source } => {
                Error::Io { what: what.clone(), source: io::Error::new(source.kind(), source.to_string()) }
            }
            Error::Device(message) => Error::Device(message.clone()),
            Error::Numeric(message) => Error::Numeric(message.clone()),
            Error::Cancelled => Error::Cancelled,
        }
    }

    /// An [`Error::Model`].
    pub fn model(message: impl Into<String>) -> Error {
        Error::Model(message.into())
    }
}
