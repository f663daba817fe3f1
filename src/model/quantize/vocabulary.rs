//! tokenizer.json and its companions → the vocabulary that a GGUF file holds.
//!
//! Owns: the id order, token types, merges as text, and which files name the special ids.
//! Always true: the list has an entry for every row of the embedding; ids without a token are marked unused.
//! Not here: encoding (`text`), the keys of the file (`keys`).

use serde_json::Value;

use crate::error::{Error, Result};
use crate::weights::Source;
use crate::weights::gguf::Vocabulary;
use crate::weights::gguf::vocabulary::{PRE_TOKENIZER, Sampling, TokenKind};

/// The pre-tokenizer that GGUF calls "qwen35" (spec 6.1).
const PATTERN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The vocabulary of a folder, `None` if it has no tokenizer.json. `count` is the number of rows of the embedding.
///
/// # Errors
/// `Model`, naming the file and what in it GGUF cannot hold.
pub fn read(source: &Source, count: usize) -> Result<Option<Vocabulary>> {
    let Some(tokenizer) = json(source, "tokenizer.json")? else { return Ok(None) };
    let config = json(source, "tokenizer_config.json")?.unwrap_or_default();
    let generation = json(source, "generation_config.json")?.unwrap_or_default();
    let model = json(source, "config.json")?.unwrap_or_default();
    let wrong = |why: String| Error::model(format!("tokenizer.json of {}: {why}", source.name()));
    if tokenizer["model"]["type"] != "BPE" {
        return Err(wrong(format!("its model is {}, and the architecture has BPE", tokenizer["model"]["type"])));
    }
    if !contains_text(&tokenizer["pre_tokenizer"], PATTERN) {
        return Err(wrong(format!("its pre_tokenizer is not the one that GGUF calls \"{PRE_TOKENIZER}\"")));
    }
    let mut tokens: Vec<Option<String>> = vec![None; count];
    let mut kinds = vec![TokenKind::Unused; count];
    let mut place = |id: &Value, text: &str, kind: TokenKind| -> Result<()> {
        let slot = id.as_u64().and_then(|id| usize::try_from(id).ok()).filter(|&id| id < count);
        let slot =
            slot.ok_or_else(|| wrong(format!("token '{text}' has id {id}, and the embedding has {count} rows")))?;
        (tokens[slot], kinds[slot]) = (Some(text.to_owned()), kind);
        Ok(())
    };
    let vocabulary = tokenizer["model"]["vocab"].as_object().ok_or_else(|| wrong("it has no vocabulary".into()))?;
    for (text, id) in vocabulary {
        place(id, text, TokenKind::Normal)?;
    }
    for added in tokenizer["added_tokens"].as_array().into_iter().flatten() {
        let text = added["content"].as_str().ok_or_else(|| wrong("an added token has no content".into()))?;
        let kind = if added["special"] == true { TokenKind::Control } else { TokenKind::UserDefined };
        place(&added["id"], text, kind)?;
    }
    let named = |key: &str| {
        let text = config[key].as_str().or_else(|| config[key]["content"].as_str())?;
        tokens.iter().position(|token| token.as_deref() == Some(text)).map(|id| id as u32)
    };
    let id = |value: &Value| {
        let value = if value.is_array() { &value[0] } else { value };
        value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|&id| (id as usize) < count)
    };
    let text_config = if model["text_config"].is_object() { &model["text_config"] } else { &model };
    Ok(Some(Vocabulary {
        merges: merges(&tokenizer["model"]["merges"]).ok_or_else(|| wrong("its merges are not pairs".into()))?,
        eos: named("eos_token").or_else(|| id(&generation["eos_token_id"])),
        bos: named("bos_token").or_else(|| id(&text_config["bos_token_id"])),
        padding: named("pad_token").or_else(|| id(&generation["pad_token_id"])),
        chat_template: template(source, &config)?,
        sampling: Sampling {
            temperature: generation["temperature"].as_f64(),
            top_k: generation["top_k"].as_u64(),
            top_p: generation["top_p"].as_f64(),
            min_p: generation["min_p"].as_f64(),
        },
        tokens: tokens.into_iter().enumerate().map(|(i, t)| t.unwrap_or_else(|| format!("[PAD{i}]"))).collect(),
        kinds,
    }))
}

fn json(source: &Source, name: &str) -> Result<Option<Value>> {
    let Some(bytes) = source.file(name)? else { return Ok(None) };
    let parsed = serde_json::from_slice(&bytes);
    parsed.map(Some).map_err(|error| Error::model(format!("{name} of {} is not JSON: {error}", source.name())))
}

/// Merges as "left right"; files have that, or pairs.
fn merges(list: &Value) -> Option<Vec<String>> {
    let text = |merge: &Value| match merge {
        Value::String(text) => Some(text.clone()),
        Value::Array(pair) => Some(format!("{} {}", pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
        _ => None,
    };
    list.as_array()?.iter().map(text).collect()
}

fn template(source: &Source, config: &Value) -> Result<Option<String>> {
    if let Some(bytes) = source.file("chat_template.jinja")? {
        let text = String::from_utf8(bytes.to_vec());
        return text
            .map(Some)
            .map_err(|_| Error::model(format!("chat_template.jinja of {} is not UTF-8", source.name())));
    }
    let inside = &config["chat_template"];
    // Several templates are a list with names.
    let named = inside.as_array().into_iter().flatten().find(|entry| entry["name"] == "default");
    Ok(inside.as_str().or_else(|| named?["template"].as_str()).map(str::to_owned))
}

fn contains_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found == text,
        Value::Array(list) => list.iter().any(|value| contains_text(value, text)),
        Value::Object(map) => map.values().any(|value| contains_text(value, text)),
        _ => false,
    }
}
