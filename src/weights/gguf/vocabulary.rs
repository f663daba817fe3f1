//! The tokenizer and chat template inside a GGUF file, as plain values.
//!
//! Owns: the `tokenizer.*` keys and the checks that make the lists usable.
//! Always true: there is one type a token; ids that are named lie inside the list.
//! Not here: encoding and decoding (`text`), which does not import this: the engine hands the lists over.

use super::metadata::Metadata;
use crate::error::Result;

/// What a token is (`tokenizer.ggml.token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Part of the BPE vocabulary.
    Normal,
    /// Stands beside it and is left out of decoded text (`<|im_end|>`).
    Control,
    /// Stands beside it and is shown (`<think>`).
    UserDefined,
    /// Fills the list up to the embedding's rows; never encoded.
    Unused,
}

impl TokenKind {
    /// Its number in a file.
    pub fn id(self) -> u32 {
        match self {
            TokenKind::Normal => 1,
            TokenKind::Control => 3,
            TokenKind::UserDefined => 4,
            TokenKind::Unused => 5,
        }
    }
}

/// Everything that turns text into ids and back.
#[derive(Debug, Clone, PartialEq)]
pub struct Vocabulary {
    /// Texts by id, in the byte alphabet of byte-level BPE; the added ones are literal.
    pub tokens: Vec<String>,
    /// One a token.
    pub kinds: Vec<TokenKind>,
    /// Pairs "left right", first merged first.
    pub merges: Vec<String>,
    /// What ends an answer (`<|im_end|>`); not the id that separates n-grams.
    pub eos: Option<u32>,
    /// Never added by itself.
    pub bos: Option<u32>,
    /// Fills batches elsewhere; unused here.
    pub padding: Option<u32>,
    /// Jinja text.
    pub chat_template: Option<String>,
    /// Sampling that the author recommends.
    pub sampling: Sampling,
}

/// `general.sampling.*`
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: Option<f64>,
    /// 0 is no limit.
    pub top_k: Option<u64>,
    /// 1 is no limit.
    pub top_p: Option<f64>,
    /// 0 is no limit.
    pub min_p: Option<f64>,
}

/// The pre-tokenizer's name in GGUF (spec 6.1).
pub const PRE_TOKENIZER: &str = "qwen35";

impl Vocabulary {
    /// The vocabulary of a file, `None` if it has none.
    pub fn read(metadata: &Metadata) -> Result<Option<Vocabulary>> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let Some(tokens) = metadata.texts(TOKENS)? else { return Ok(None) };
        for (key, only) in [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", PRE_TOKENIZER)] {
            if let Some(other) = metadata.text(key)?.filter(|&found| found != only) {
                return Err(metadata.wrong(key, format!("is \"{other}\"; this architecture's tokenizer is \"{only}\"")));
            }
        }
        let kinds = match metadata.integers("tokenizer.ggml.token_type")? {
            None => vec![TokenKind::Normal; tokens.len()],
            Some(kinds) if kinds.len() == tokens.len() => kinds
                .into_iter()
                .map(|kind| match kind {
                    3 => TokenKind::Control,
                    4 => TokenKind::UserDefined,
                    5 => TokenKind::Unused,
                    _ => TokenKind::Normal,
                })
                .collect(),
            Some(kinds) => {
                let why = format!("has {} entries for {} tokens", kinds.len(), tokens.len());
                return Err(metadata.wrong("tokenizer.ggml.token_type", why));
            }
        };
        let id = |key: &str| match metadata.integer(key)? {
            Some(id) if id >= tokens.len() as u64 => {
                Err(metadata.wrong(key, format!("is {id}, and there are {} tokens", tokens.len())))
            }
            id => Ok(id.map(|id| id as u32)),
        };
        let merges = metadata.texts("tokenizer.ggml.merges")?.unwrap_or_default();
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Ok(Some(Vocabulary {
            eos: id("tokenizer.ggml.eos_token_id")?,
            bos: id("tokenizer.ggml.bos_token_id")?,
            padding: id("tokenizer.ggml.padding_token_id")?,
            tokens: owned(&tokens),
            kinds,
            merges: owned(&merges),
            chat_template: metadata.text("tokenizer.chat_template")?.map(str::to_owned),
            sampling: Sampling {
                temperature: metadata.float("general.sampling.temp")?,
                top_k: metadata.integer("general.sampling.top_k")?,
                top_p: metadata.float("general.sampling.top_p")?,
                min_p: metadata.float("general.sampling.min_p")?,
            },
        }))
    }
}
