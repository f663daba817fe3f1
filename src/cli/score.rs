//! `hipfire score`: one JSON line a token, then the sums.
//!
//! Owns: the form of the lines.
//! Always true: a line is written as soon as its number is known; what was written before an interruption is right.
//! Not here: the numbers (`engine`).

use serde::Serialize;

use super::args::ScoreArgs;
use super::ui::{Output, Ui};
use super::{Failure, input, interrupt};
use crate::engine::ScoreOptions;
use crate::engine::logits::Ranked;
use crate::engine::speculate::SpeculationOptions;

#[derive(Serialize)]
struct Line<'a> {
    pos: usize,
    id: u32,
    logprob: Option<f32>,
    top: &'a [Ranked],
}

#[derive(Serialize)]
struct Totals {
    tokens: usize,
    nll: f64,
    perplexity: Option<f64>,
}

enum Given {
    Text(String),
    Ids(Vec<u32>),
}

/// Scores a text or a list of ids.
pub fn score(args: &ScoreArgs, ui: &Ui) -> Result<(), Failure> {
    // Before Ctrl-C is ours: reading standard input cannot be stopped by a flag.
    let given = match &args.tokens {
        Some(path) => Given::Ids(input::token_ids(path)?),
        None => Given::Text(input::text(&args.input)?),
    };
    let cancel = interrupt()?;
    let loaded = ui.load(&args.model, SpeculationOptions::off())?;
    let ids = match given {
        Given::Ids(ids) => ids,
        Given::Text(text) => loaded.text.tokenizer.encode_raw(&text)?,
    };

    let total = ids.len();
    let options = ScoreOptions { top: args.top, chunk: args.chunk.unwrap_or(0), cancel };
    let mut output = Output::new();
    // Where the lines run over the terminal, they are the progress.
    let mut progress = (!ui.out_terminal).then(|| ui.progress("scoring"));
    let totals = loaded.engine.score(ids, options, &mut |row| {
        if let Some(progress) = &mut progress {
            progress.at(row.position as u64, total as u64);
        }
        output.json(&Line { pos: row.position, id: row.id, logprob: row.logprob, top: &row.top })
    })?;
    drop(progress);
    output.json(&Totals { tokens: totals.tokens, nll: totals.nll, perplexity: totals.perplexity() })?;
    Ok(())
}
