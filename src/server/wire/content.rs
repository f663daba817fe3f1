//! A message's content: a text, or a list of parts that are texts.
//!
//! Owns: both spellings, and what is said about parts that are not text.
//! Always true: texts are put together as they stand, with nothing between.
//! Not here: roles and calls (the APIs' own files).

use serde::Deserialize;

use crate::server::error::ApiError;

/// A text or parts.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a text or a list of parts with a type")]
pub enum Content {
    /// A text.
    Text(String),
    /// Parts in order.
    Parts(Vec<Part>),
}

/// One part.
#[derive(Debug, Clone, Deserialize)]
pub struct Part {
    /// `text` (OpenAI, Anthropic), `input_text`, `output_text` (Responses), ….
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    pub text: Option<String>,
    /// What the assistant refused with.
    pub refusal: Option<String>,
}

impl Content {
    /// The text; `field` is where the content stands.
    ///
    /// Errors: 400 naming the part that is not text.
    pub fn text(&self, field: &str) -> Result<String, ApiError> {
        let parts = match self {
            Content::Text(text) => return Ok(text.clone()),
            Content::Parts(parts) => parts,
        };
        let mut whole = String::new();
        for (at, part) in parts.iter().enumerate() {
            let place = format!("{field}[{at}]");
            let text = match part.kind.as_str() {
                "text" | "input_text" | "output_text" => part.text.as_deref(),
                "refusal" => part.refusal.as_deref(),
                other => {
                    let message = format!("a part of type '{other}' cannot be read: this engine takes text alone");
                    return Err(ApiError::unsupported(place, message));
                }
            };
            let missing = || ApiError::field(&place, format!("a part of type '{}' has no text", part.kind));
            whole.push_str(text.ok_or_else(missing)?);
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(json: serde_json::Value) -> Result<String, ApiError> {
        serde_json::from_value::<Content>(json).unwrap().text("messages[2].content")
    }

    #[test]
    fn texts_are_joined_and_another_part_is_named() {
        assert_eq!(read(json!("a")).unwrap(), "a");
        assert_eq!(read(json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])).unwrap(), "ab");
        let image = read(json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}])).unwrap_err();
        assert_eq!(image.param.as_deref(), Some("messages[2].content[1]"));
        assert!(read(json!([{"type": "text"}])).is_err());
    }
}
