//! A model loaded here answers.
//!
//! Owns: the request of a turn.
//! Always true: every turn sends the whole conversation; what the engine knows of it already is not read again.
//! Not here: the loop (`chat`).

use super::{ChatArgs, Partner, Piece};
use crate::cli::ui::Ui;
use crate::engine::{Cancel, Loaded, Request, SamplingParams, TextEvent, TextOptions, TextStream, drawn_seed};
use crate::error::Result;
use crate::text::{Conversation, Event as Part, Message};

/// See the file's head.
pub(super) struct Local {
    loaded: Loaded,
    args: ChatArgs,
    ui: Ui,
}

impl Local {
    /// Loads the model.
    pub(super) fn new(args: &ChatArgs, ui: &Ui) -> Result<Local> {
        Ok(Local { loaded: ui.load(&args.model, args.speculation.options())?, args: args.clone(), ui: *ui })
    }
}

impl Partner for Local {
    fn answer(
        &mut self,
        messages: &[Message],
        stop: &Cancel,
        say: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let text = &self.loaded.text;
        let conversation = Conversation {
            messages: messages.to_vec(),
            enable_thinking: self.args.thinking.enabled(),
            reasoning_effort: self.args.thinking.effort(),
            add_generation_prompt: true,
            ..Conversation::default()
        };
        let prompt = text.chat_prompt(&conversation)?;
        let request = Request {
            ids: prompt.ids,
            max_tokens: self.args.max_tokens,
            params: self.args.sampling.over(SamplingParams::of_model(text.generation.as_ref()), drawn_seed()),
            stop_ids: text.stop_ids.clone(),
            logprobs: None,
            constraint: None,
            cancel: stop.clone(),
        };
        let stream = self.loaded.engine.submit(request)?;
        let mut progress = self.ui.progress("reading");
        for event in TextStream::new(stream, &text.tokenizer, prompt.reading, TextOptions::default())? {
            match event {
                TextEvent::Prefill { done, total } => progress.at(done as u64, total as u64),
                TextEvent::Part(Part::Reasoning(text)) => say(Piece::Reasoning(&text))?,
                TextEvent::Part(Part::Content(text)) => say(Piece::Content(&text))?,
                // There are no tools to call.
                TextEvent::Part(_) | TextEvent::Token(_) => {}
                TextEvent::Done(_) => return Ok(()),
                TextEvent::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }
}
