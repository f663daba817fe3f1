//! `hipfire run`: one prompt, one answer.
//!
//! Owns: the order of things, and what is left behind when the answer is cut short.
//! Always true: what was generated has been written before the program ends, however it ends.
//! Not here: the forms of output (`export`), templates and tokens (`text`), generation (`engine`).

use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};

use serde_json::{Map, Value};

use super::args::RunArgs;
use super::export::{self, Context};
use super::settings::Setting;
use super::ui::Ui;
use super::{Failure, input, interrupt};
use crate::engine::{Loaded, Prompt, Request, SamplingParams, StopReason, TextEvent, TextStream};
use crate::error::Error;
use crate::text::{Conversation, Message, Role};

/// Answers the prompt.
pub fn run(args: &RunArgs, settings: &[Setting], ui: Ui) -> Result<(), Failure> {
    // Before Ctrl-C is ours: reading standard input cannot be stopped by a flag.
    let text = input::text(&args.input)?;
    let cancel = interrupt()?;
    let loaded = ui.load(&args.model)?;
    let prompt = prompt(args, &loaded, &text)?;
    // 53 bits, so that every JSON reader gives the same number back.
    let drawn = std::hash::RandomState::new().build_hasher().finish() >> 11;
    let params = args.sampling.over(loaded.text.sampling.clone(), drawn);
    let context = Context { model: loaded.name.clone(), settings: effective(settings, &params) };

    let request = Request {
        ids: prompt.ids.clone(),
        max_tokens: args.max_tokens,
        params,
        stop_ids: loaded.text.stop_ids.clone(),
        logprobs: None,
        cancel,
    };
    let stream = TextStream::new(loaded.engine.submit(request)?, &loaded.text, &prompt, &args.stop);
    let mut exporter = export::export(args.format, ui, args.show_thinking, context);
    let mut progress = ui.progress("reading the prompt");
    for event in stream {
        match event {
            TextEvent::Done(done) => {
                let memory = loaded.memory();
                exporter.end(&done, &memory)?;
                if args.stats {
                    let _ = io::stderr().write_all(export::footer(&done, &memory).as_bytes());
                }
                return match done.reason {
                    StopReason::Cancelled => Err(Error::Cancelled.into()),
                    _ => Ok(()),
                };
            }
            TextEvent::Failed(error) => {
                progress.clear();
                exporter.failed(&error.to_string())?;
                return Err(error.into());
            }
            event => {
                if let TextEvent::Prefill { done, total } = event {
                    progress.at(done, total);
                }
                exporter.event(&event)?;
            }
        }
    }
    Ok(())
}

/// The settings with the sampling values that were used, whoever chose them.
fn effective(settings: &[Setting], params: &SamplingParams) -> Value {
    let mut map: Map<String, Value> = settings.iter().map(|s| (s.name.clone(), s.json())).collect();
    let used = [
        ("temperature", Value::from(params.temperature)),
        ("top-k", params.top_k.into()),
        ("top-p", params.top_p.into()),
        ("min-p", params.min_p.into()),
        ("repetition-penalty", params.repetition_penalty.into()),
        ("presence-penalty", params.presence_penalty.into()),
        ("frequency-penalty", params.frequency_penalty.into()),
        ("seed", params.seed.into()),
    ];
    map.extend(used.map(|(name, value)| (name.to_string(), value)));
    Value::Object(map)
}

/// The prompt's ids: the text alone with `--raw`, else a conversation of one message.
fn prompt(args: &RunArgs, loaded: &Loaded, text: &str) -> Result<Prompt, Failure> {
    if args.raw {
        let unused = [("--system", args.system.is_some()), ("--reasoning-effort", args.reasoning_effort.is_some())];
        return match unused.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(Failure::Usage(format!(
                "{name} is a part of the chat template, which --raw does without: drop one"
            ))),
            None => Ok(loaded.text.raw_prompt(text)?),
        };
    }
    let mut conversation = Conversation { add_generation_prompt: true, ..Conversation::default() };
    if let Some(system) = &args.system {
        conversation.messages.push(Message::new(Role::System, system.as_str()));
    }
    conversation.messages.push(Message::new(Role::User, text));
    conversation.enable_thinking = args.thinking();
    conversation.reasoning_effort = args.reasoning_effort.map(|effort| effort.name().to_string());
    Ok(loaded.text.chat_prompt(&conversation)?)
}
