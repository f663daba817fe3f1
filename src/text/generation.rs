//! generation_config.json: how the model's makers want it sampled, and where an answer ends (spec 1.3, 6.3).
//!
//! Owns: reading the file and collecting the stop ids.
//! Always true: a value that exists is in its range; an absent one is `None`, for the caller's own default.
//! Not here: sampling (`engine`), what a user asked for instead (`cli`, `server`).

use serde_json::Value;

use crate::error::{Error, Result};
use crate::text::tokenizer::Tokenizer;

/// Defaults that a model brings along.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationConfig {
    /// `false` asks for the most likely token every time.
    pub do_sample: Option<bool>,
    /// Divides the logits; at least 0, and 0 is the most likely token every time.
    pub temperature: Option<f32>,
    /// Keeps the most likely tokens that together have this probability; above 0, at most 1.
    pub top_p: Option<f32>,
    /// Keeps this many tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keeps tokens with this share of the best one's probability; 0 to 1.
    pub min_p: Option<f32>,
    /// Divides (or multiplies) logits of tokens seen before; above 0.
    pub repetition_penalty: Option<f32>,
    /// `eos_token_id`, one or several.
    pub eos: Vec<u32>,
}

impl GenerationConfig {
    /// Reads the file.
    ///
    /// Errors: `Error::Model` naming the field, what it holds and what is expected.
    pub fn from_json(json: &[u8]) -> Result<GenerationConfig> {
        let root: Value = serde_json::from_slice(json)
            .map_err(|e| Error::model(format!("generation_config.json cannot be used: {e}")))?;
        if !root.is_object() {
            return Err(Error::model("generation_config.json cannot be used: it is not a JSON object"));
        }
        let file = File(&root);
        Ok(GenerationConfig {
            do_sample: file.read("do_sample", "true or false", Value::as_bool)?,
            temperature: file.number("temperature", "a number of at least 0", |v| v >= 0.0)?,
            top_p: file.number("top_p", "a number above 0 and at most 1", |v| v > 0.0 && v <= 1.0)?,
            top_k: file.read("top_k", "a whole number of at least 0", id)?,
            min_p: file.number("min_p", "a number from 0 to 1", |v| (0.0..=1.0).contains(&v))?,
            repetition_penalty: file.number("repetition_penalty", "a number above 0", |v| v > 0.0)?,
            eos: file.read("eos_token_id", "a token id or a list of them", ids)?.unwrap_or_default(),
        })
    }
}

struct File<'v>(&'v Value);

impl File<'_> {
    fn read<T>(&self, name: &str, expected: &str, convert: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
        match &self.0[name] {
            Value::Null => Ok(None),
            value => match convert(value) {
                Some(converted) => Ok(Some(converted)),
                None => Err(Error::model(format!("generation_config.json: {name} is {value}, expected {expected}"))),
            },
        }
    }

    fn number(&self, name: &str, expected: &str, fits: impl Fn(f32) -> bool) -> Result<Option<f32>> {
        let convert = |v: &Value| v.as_f64().map(|v| v as f32).filter(|v| v.is_finite() && fits(*v));
        self.read(name, expected, convert)
    }
}

fn id(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    match value.as_array() {
        Some(list) => list.iter().map(id).collect(),
        None => Some(vec![id(value)?]),
    }
}

/// Ids that end an answer: those of generation_config.json, or else the tokenizer's `eos_token`; and the config's own
/// `eos` in any case (spec 1.3: `<|im_end|>` and `<|endoftext|>`). In this order, each once.
pub fn stop_ids(generation: Option<&GenerationConfig>, tokenizer: &Tokenizer, config_eos: &[u32]) -> Vec<u32> {
    let mut stops = generation.map(|g| g.eos.clone()).unwrap_or_default();
    if stops.is_empty() {
        stops.extend(tokenizer.eos());
    }
    stops.extend(config_eos);
    let mut seen = std::collections::HashSet::new();
    stops.retain(|id| seen.insert(*id));
    stops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenizer::AddedToken;

    #[test]
    fn embers_file_is_read() {
        let config = GenerationConfig::from_json(include_bytes!("../../models/ember/generation_config.json")).unwrap();
        let expected = GenerationConfig {
            do_sample: Some(true),
            temperature: Some(0.7),
            top_p: Some(0.95),
            top_k: Some(0),
            eos: vec![2, 0],
            ..Default::default()
        };
        assert_eq!(config, expected);
        assert_eq!(GenerationConfig::from_json(b"{}").unwrap(), GenerationConfig::default());
    }

    #[test]
    fn a_wrong_field_is_named_with_its_value() {
        for (json, field) in [
            ("{\"temperature\": \"hot\"}", "temperature"),
            ("{\"temperature\": -1}", "temperature"),
            ("{\"temperature\": 1e300}", "temperature"),
            ("{\"top_p\": 0}", "top_p"),
            ("{\"top_p\": 1.5}", "top_p"),
            ("{\"top_k\": 2.5}", "top_k"),
            ("{\"min_p\": -0.1}", "min_p"),
            ("{\"repetition_penalty\": 0}", "repetition_penalty"),
            ("{\"do_sample\": 1}", "do_sample"),
            ("{\"eos_token_id\": [1, -2]}", "eos_token_id"),
            ("{\"eos_token_id\": 4294967296}", "eos_token_id"),
            ("[]", "generation_config.json"),
            ("{", "generation_config.json"),
        ] {
            match GenerationConfig::from_json(json.as_bytes()) {
                Err(Error::Model(message)) => assert!(message.contains(field), "{message}"),
                other => panic!("{json}: {other:?}"),
            }
        }
    }

    #[test]
    fn stop_ids_come_from_the_first_file_that_names_them_and_from_the_config() {
        let added = vec![AddedToken { id: 5, content: "<end>".into(), special: true }];
        let plain = Tokenizer::from_parts(vec!["a".into()], vec![], added).unwrap();
        let json = br#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
            "added_tokens": [{"id": 5, "content": "<end>", "special": true}]}"#;
        let named = Tokenizer::from_json(json, Some(br#"{"eos_token": {"content": "<end>"}}"#)).unwrap();
        let file = |eos| GenerationConfig { eos, ..Default::default() };
        assert_eq!(stop_ids(Some(&file(vec![2, 0])), &named, &[0]), [2, 0]);
        assert_eq!(stop_ids(Some(&file(vec![2])), &named, &[9, 0]), [2, 9, 0]);
        assert_eq!(stop_ids(Some(&file(vec![])), &named, &[0]), [5, 0]);
        assert_eq!(stop_ids(None, &named, &[5]), [5]);
        assert_eq!(stop_ids(None, &plain, &[]), [0u32; 0]);
    }
}
