//! Answers that must follow a grammar: which tokens may come next.
//!
//! Owns: the grammars a request can ask for, their compilation, the mask on one row of logits.
//! Always true: a token that the grammar does not allow is never drawn; an answer may end only where the grammar is
//! complete, and ends by itself where nothing more can follow; added tokens (`<tool_call>`) are never text, a Lark
//! grammar names them without quotes.
//! Not here: parsing (the `llguidance` crate), what is drawn from the row (`sampler`).

use std::sync::{Arc, OnceLock};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::text::Tokenizer;

/// What an answer has to look like.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// Its form.
    pub grammar: Grammar,
    /// The form begins behind this id (the end of the thinking); until then everything is allowed but an end. `None`: it
    /// begins with the first token.
    pub after: Option<u32>,
}

/// The form of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// A JSON value that a schema accepts.
    JsonSchema(Value),
    /// A text that a regular expression (Rust's syntax) matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text that a grammar in llguidance's variant of Lark derives from `start`.
    Lark(String),
}

impl Grammar {
    fn name(&self) -> &'static str {
        match self {
            Grammar::JsonSchema(_) => "JSON schema",
            Grammar::Regex(_) => "regular expression",
            Grammar::Choice(_) => "choice",
            Grammar::Lark(_) => "Lark grammar",
        }
    }

    /// A schema whose JSON has bounded white space; for `%json` in a Lark grammar too.
    pub fn bounded(schema: &Value) -> Value {
        let mut schema = schema.clone();
        if let Some(fields) = schema.as_object_mut() {
            fields.entry("x-guidance").or_insert_with(|| json!({"whitespace_pattern": WHITESPACE}));
        }
        schema
    }

    /// A schema's pattern (JavaScript's syntax) as the inside of a regular expression in a Lark grammar.
    pub fn pattern(pattern: &str) -> String {
        // JavaScript's digits and letters are ASCII's.
        llguidance::regex_to_lark(pattern, "dw")
    }

    fn top_level(&self) -> Result<TopLevelGrammar> {
        Ok(match self {
            Grammar::JsonSchema(schema) => TopLevelGrammar::from_json_schema(Grammar::bounded(schema)),
            Grammar::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Grammar::Lark(lark) => TopLevelGrammar::from_lark(lark.clone()),
            Grammar::Choice(texts) if texts.is_empty() => {
                return Err(Error::invalid("the choice is between no texts: give at least one"));
            }
            Grammar::Choice(texts) => {
                // A JSON string is a literal of the grammar, whatever it holds.
                let literals: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
                TopLevelGrammar::from_lark(format!("start: {}", literals.join(" | ")))
            }
        })
    }
}

/// Between the parts of a JSON text: a space, or a line break with its indentation. Without a bound a model that likes
/// white space may give nothing else until its tokens are used up.
const WHITESPACE: &str = r"(\x20|\x0A[\x20\x09]{0,40})";

/// Compiles grammars for one tokenizer.
pub struct Grammars {
    tokenizer: Arc<Tokenizer>,
    /// The token that ends an answer.
    end: u32,
    /// Made for the first constraint: its tables take a second where the vocabulary is large.
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl Grammars {
    /// Of a model whose answers end with one of `stop_ids`.
    pub fn new(tokenizer: Arc<Tokenizer>, stop_ids: &[u32]) -> Grammars {
        // Without an end the id behind the vocabulary stands for it, which is never drawn.
        let end = stop_ids.first().copied().unwrap_or(tokenizer.vocabulary() as u32);
        Grammars { tokenizer, end, factory: OnceLock::new() }
    }

    /// The state before the first token.
    ///
    /// # Errors
    /// `Invalid`, if the grammar is wrong or asks for what cannot be enforced.
    pub(super) fn start(&self, constraint: &Constraint) -> Result<Constrained> {
        let grammar = &constraint.grammar;
        let wrong = |problem: String| Error::Invalid(format!("the {} cannot be enforced: {problem}", grammar.name()));
        let factory = self.factory.get_or_init(|| self.factory()).as_ref().map_err(|problem| wrong(problem.clone()))?;
        let matcher = Matcher::new(factory.create_parser(grammar.top_level()?));
        if let Some(problem) = matcher.get_error() {
            return Err(wrong(problem));
        }
        Ok(Constrained { matcher, end: self.end, after: constraint.after, masked: Vec::new() })
    }

    fn factory(&self) -> Result<ParserFactory, String> {
        let tokenizer = &self.tokenizer;
        let count = (tokenizer.vocabulary() as u32).max(self.end + 1);
        let added = tokenizer.added_tokens();
        let words: Vec<Vec<u8>> = (0..count)
            .map(|id| match added.binary_search_by_key(&id, |token| token.id) {
                Ok(at) => [&[TokTrie::SPECIAL_TOKEN_MARKER], added[at].content.as_bytes()].concat(),
                Err(_) => tokenizer.bytes(id).to_vec(),
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(count, self.end), &words);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment).map_err(|error| error.to_string())?;
        factory.quiet();
        Ok(factory)
    }
}

/// A grammar in the middle of an answer.
pub(super) struct Constrained {
    matcher: Matcher,
    /// Stands for every stop id.
    end: u32,
    /// Not begun until this id.
    after: Option<u32>,
    /// The row with what is not allowed at minus infinity; reused.
    masked: Vec<f32>,
}

impl Constrained {
    /// An independent copy.
    pub fn fork(&self) -> Constrained {
        Constrained { matcher: self.matcher.deep_clone(), masked: Vec::new(), ..*self }
    }

    /// `logits` `[vocab]` with everything that may not come now at minus infinity.
    pub fn mask(&mut self, logits: &[f32], stop_ids: &[u32]) -> Result<&[f32]> {
        self.masked.clear();
        let ends = match self.after {
            Some(_) => {
                self.masked.extend_from_slice(logits);
                false
            }
            None => {
                let allowed = self.matcher.compute_mask_or_eos().map_err(stuck)?;
                let known = allowed.len().min(logits.len());
                let keep = |(id, &logit): (usize, &f32)| if allowed.get(id) { logit } else { f32::NEG_INFINITY };
                self.masked.extend(logits[..known].iter().enumerate().map(keep));
                // Ids that the tokenizer does not have.
                self.masked.resize(logits.len(), f32::NEG_INFINITY);
                (self.end as usize) < allowed.len() && allowed.is_allowed(self.end)
            }
        };
        for &id in stop_ids {
            if let Some(logit) = self.masked.get_mut(id as usize) {
                *logit = if ends { logits[id as usize] } else { f32::NEG_INFINITY };
            }
        }
        Ok(&self.masked)
    }

    /// Goes on behind `id`, which was drawn from a masked row and is no stop id. `true`: nothing more can follow.
    pub fn take(&mut self, id: u32) -> Result<bool> {
        match self.after {
            Some(after) => {
                self.after = (after != id).then_some(after);
                Ok(false)
            }
            None => {
                self.matcher.consume_token(id).map_err(stuck)?;
                Ok(self.matcher.is_stopped())
            }
        }
    }
}

/// The parser gave up, for one of its own limits.
fn stuck(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("the answer's grammar cannot be followed any further: {error}; simplify the grammar"))
}
