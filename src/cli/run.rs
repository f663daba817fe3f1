//! `hipfire run`: one prompt, one answer.
//!
//! Owns: the order of things, and what is left behind when the answer is cut short.
//! Always true: what was generated has been written before the program ends, however it ends.
//! Not here: the forms of output (`export`), templates and tokens (`text`), generation (`engine`).

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::args::RunArgs;
use super::export::{self, Context};
use super::settings::{Origin, Setting};
use super::ui::Ui;
use super::{Failure, input, interrupt};
use crate::engine::{
    Loaded, Prompt, Request, SamplingParams, StopReason, TextEvent, TextOptions, TextStream, drawn_seed,
};
use crate::error::Error;
use crate::text::{Conversation, GenerationConfig, Message, Role};

/// Answers the prompt.
pub fn run(args: &RunArgs, settings: &[Setting], ui: Ui) -> Result<(), Failure> {
    // Before Ctrl-C is ours: reading standard input cannot be stopped by a flag.
    let text = input::text(&args.input)?;
    let cancel = interrupt()?;
    let loaded = ui.load(&args.model, args.speculation.options())?;
    let prompt = prompt(args, &loaded, &text)?;
    let params = args.sampling.over(SamplingParams::of_model(loaded.text.generation.as_ref()), drawn_seed());
    let context = Context {
        model: loaded.name.clone(),
        receipt: loaded.receipt.clone(),
        ran: loaded.ran.clone(),
        settings: effective(settings, &params),
    };

    let request = Request {
        ids: prompt.ids,
        max_tokens: args.max_tokens,
        params,
        stop_ids: loaded.text.stop_ids.clone(),
        logprobs: None,
        constraint: None,
        cancel,
    };
    let options = TextOptions { stops: args.stop.clone(), tools: Vec::new() };
    let stream = TextStream::new(loaded.engine.submit(request)?, &loaded.text.tokenizer, prompt.reading, options)?;
    let mut exporter = export::export(args.format, ui, args.thinking.show_thinking, context);
    let mut progress = ui.progress("reading the prompt");
    for event in stream {
        match event {
            TextEvent::Done(done) => {
                exporter.end(&done)?;
                if args.stats {
                    let _ = io::stderr().write_all(export::footer(&done, &loaded.receipt, &(loaded.ran)()).as_bytes());
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
                    progress.at(done as u64, total as u64);
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
    // As they are written: 0.7 as an f64 would read 0.699999988079071.
    let short = |value: f32| Value::from(value.to_string().parse::<f64>().unwrap_or_else(|_| value.into()));
    let used = [
        ("temperature", short(params.temperature)),
        ("top-k", params.top_k.into()),
        ("top-p", short(params.top_p)),
        ("min-p", short(params.min_p)),
        ("repetition-penalty", short(params.repetition_penalty)),
        ("presence-penalty", short(params.presence_penalty)),
        ("frequency-penalty", short(params.frequency_penalty)),
        ("seed", params.seed.into()),
    ];
    map.extend(used.map(|(name, value)| (name.to_string(), value)));
    Value::Object(map)
}

/// Fills in the sampling values that nobody gave.
pub fn model_defaults(settings: &mut [Setting], file: Option<&GenerationConfig>) {
    let used = SamplingParams::of_model(file);
    let says = |has: fn(&GenerationConfig) -> bool| file.is_some_and(has);
    let values = [
        ("temperature", used.temperature.to_string(), says(|f| f.temperature.is_some() || f.do_sample == Some(false))),
        ("top-k", used.top_k.to_string(), says(|f| f.top_k.is_some())),
        ("top-p", used.top_p.to_string(), says(|f| f.top_p.is_some())),
        ("min-p", used.min_p.to_string(), says(|f| f.min_p.is_some())),
        ("repetition-penalty", used.repetition_penalty.to_string(), says(|f| f.repetition_penalty.is_some())),
        ("presence-penalty", used.presence_penalty.to_string(), false),
        ("frequency-penalty", used.frequency_penalty.to_string(), false),
    ];
    for (name, value, said) in values {
        if let Some(setting) = settings.iter_mut().find(|s| s.name == name && s.values.is_empty()) {
            setting.values.push(value);
            setting.origin = if said { Origin::Model("generation_config.json") } else { Origin::Default };
        }
    }
}

/// The prompt's ids: the text alone with `--raw`, else a conversation of one message.
fn prompt(args: &RunArgs, loaded: &Loaded, text: &str) -> Result<Prompt, Failure> {
    if args.raw {
        let unused =
            [("--system", args.system.is_some()), ("--reasoning-effort", args.thinking.reasoning_effort.is_some())];
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
    conversation.enable_thinking = args.thinking.enabled();
    conversation.reasoning_effort = args.thinking.effort();
    Ok(loaded.text.chat_prompt(&conversation)?)
}
