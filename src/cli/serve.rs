//! `hipfire serve`: from what was typed to a running server.
//!
//! Owns: the keys' sources, the settings that `/props` shows.
//! Always true: a secret is never printed; a mistake is found before the socket listens.
//! Not here: the server itself (`server`).

use serde_json::{Map, Value};

use super::Failure;
use super::serve_args::ServeArgs;
use super::settings::Setting;
use super::ui::Ui;
use crate::error::Error;
use crate::server::{self, Ended, Key, Options};

/// Settings that clients are not shown: secrets, and what lies where on this machine.
const PRIVATE: [&str; 6] = ["api-key", "api-key-file", "model", "config", "host", "session-dir"];

/// Serves until a signal.
pub fn serve(args: &ServeArgs, settings: &[Setting], ui: Ui) -> Result<(), Failure> {
    let mut keys = Vec::new();
    if let Some(secret) = &args.api_key {
        keys.push(Key::new(secret).map_err(|error| Failure::Usage(format!("--api-key: {error}")))?);
    }
    if let Some(path) = &args.api_key_file {
        keys.push(Key::from_file(path).map_err(usage)?);
    }
    let shown = |setting: &&Setting| !PRIVATE.contains(&&*setting.name);
    let settings: Map<String, Value> = settings.iter().filter(shown).map(|s| (s.name.clone(), s.json())).collect();
    let options = Options {
        host: args.host,
        port: args.port,
        keys,
        cors_origins: args.cors_origin.clone(),
        aliases: args.alias.clone(),
        body_limit: args.body_limit,
        grace: args.grace,
        watchdog: args.watchdog,
        reasoning_field: args.reasoning_field.into(),
        settings: settings.into(),
    };
    options.check().map_err(usage)?;
    let load = args.serving.apply(args.model.load_options(args.speculation.options()));
    match server::serve(options, move |progress| ui.load_with(&load, progress))? {
        Ended::Drained => Ok(()),
        Ended::Stuck(message) => Err(Failure::Stuck(message)),
    }
}

fn usage(error: Error) -> Failure {
    match error {
        Error::Invalid(message) => Failure::Usage(message),
        error => error.into(),
    }
}
