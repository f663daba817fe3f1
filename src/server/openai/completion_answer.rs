//! A text completion: whole, or chunk by chunk.
//!
//! Owns: `text_completion`, and the older form of log-probabilities.
//! Always true: `finish_reason` comes last, the counts after it only where asked for, then `[DONE]`.
//! Not here: how an answer is put together (`wire::answer`), the stream's loop (`stream`).

use std::sync::Arc;

use serde_json::{Value, json};

use super::closing;
use super::completion::Asked;
use crate::engine::{Loaded, TextEvent, Token};
use crate::server::error::{ApiError, Shape};
use crate::server::stream::{Frame as Sse, Translator};
use crate::server::wire::answer::{Answer, Counts, finish_reason, finite, id, now, timings};
use crate::text::Event as Part;

/// What all chunks of an answer have in common.
pub struct Frame {
    id: String,
    created: u64,
    model: String,
    loaded: Arc<Loaded>,
    logprobs: bool,
    choices: usize,
    /// Answers to each prompt.
    copies: usize,
    usage: bool,
    echo: Option<Vec<String>>,
}

impl Frame {
    /// For one request.
    pub fn new(loaded: &Arc<Loaded>, asked: &Asked) -> Frame {
        Frame {
            id: id("cmpl-"),
            created: now(),
            model: asked.model.clone(),
            loaded: loaded.clone(),
            logprobs: asked.ask.logprobs.is_some(),
            choices: asked.choices,
            copies: asked.ask.copies,
            usage: asked.usage,
            echo: asked.echo.clone(),
        }
    }

    fn object(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": crate::server::FINGERPRINT,
            "choices": choices,
        })
    }

    fn echo(&self, choice: usize) -> &str {
        self.echo.as_ref().map_or("", |echo| &echo[choice / self.copies])
    }

    /// The older form: parallel lists; `offset` counts characters, and moves on.
    fn logprobs(&self, tokens: &[Token], offset: &mut usize) -> Value {
        let tokenizer = &self.loaded.text.tokenizer;
        let text = |id: u32| String::from_utf8_lossy(tokenizer.bytes(id)).into_owned();
        let (mut texts, mut values, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
        for token in tokens {
            let shown = text(token.id);
            offsets.push(*offset);
            *offset += shown.chars().count();
            texts.push(shown);
            values.push(token.logprob.map(finite));
            tops.push(
                token.top.iter().map(|t| (text(t.id), finite(t.value).into())).collect::<serde_json::Map<_, _>>(),
            );
        }
        json!({"tokens": texts, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets})
    }

    /// All answers at once.
    pub fn whole(&self, answers: &[Answer]) -> Value {
        let mut counts = Counts::default();
        let mut times = Value::Null;
        let choices = answers.iter().enumerate().map(|(index, answer)| {
            let mut finish = None;
            if let Some(done) = &answer.done {
                counts.add(done, index.is_multiple_of(self.copies));
                times = timings(&done.usage);
                finish = Some(finish_reason(done.reason, false));
            }
            let logprobs = self.logprobs.then(|| self.logprobs(&answer.tokens, &mut 0));
            let text = format!("{}{}", self.echo(index), answer.content);
            json!({"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish})
        });
        let choices = choices.collect();
        let mut whole = self.object(choices);
        whole["usage"] = counts.openai();
        whole["timings"] = times;
        whole
    }
}

/// Chunks of a streamed answer.
pub struct Chunks {
    frame: Frame,
    counts: Counts,
    offsets: Vec<usize>,
}

impl Chunks {
    /// At the beginning.
    pub fn new(frame: Frame) -> Chunks {
        Chunks { offsets: vec![0; frame.choices], counts: Counts::default(), frame }
    }

    fn chunk(&self, choice: usize, text: &str, logprobs: Value, finish: Option<&str>) -> Value {
        self.frame.object(json!([{"text": text, "index": choice, "logprobs": logprobs, "finish_reason": finish}]))
    }
}

impl Translator for Chunks {
    fn begin(&mut self) -> Vec<Sse> {
        let echoes = (0..self.frame.choices).filter(|&choice| !self.frame.echo(choice).is_empty());
        echoes.map(|choice| Sse::data(&self.chunk(choice, self.frame.echo(choice), Value::Null, None))).collect()
    }

    fn event(&mut self, choice: usize, event: TextEvent) -> Vec<Sse> {
        match event {
            TextEvent::Part(Part::Content(text)) => vec![Sse::data(&self.chunk(choice, &text, Value::Null, None))],
            TextEvent::Token(token) => {
                let logprobs = self.frame.logprobs(&[token], &mut self.offsets[choice]);
                vec![Sse::data(&self.chunk(choice, "", logprobs, None))]
            }
            TextEvent::Done(done) => {
                self.counts.add(&done, choice.is_multiple_of(self.frame.copies));
                let mut chunk = self.chunk(choice, "", Value::Null, Some(finish_reason(done.reason, false)));
                chunk["timings"] = timings(&done.usage);
                vec![Sse::data(&chunk)]
            }
            TextEvent::Part(_) | TextEvent::Prefill { .. } | TextEvent::Failed(_) => Vec::new(),
        }
    }

    fn end(&mut self) -> Vec<Sse> {
        let counts = self.frame.usage.then(|| {
            let mut chunk = self.frame.object(json!([]));
            chunk["usage"] = self.counts.openai();
            chunk
        });
        closing(counts)
    }

    fn failed(&mut self, error: ApiError) -> Vec<Sse> {
        vec![Sse::data(&error.body(Shape::OpenAi))]
    }
}
