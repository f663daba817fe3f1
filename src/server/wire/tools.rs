//! Tools and the choice among them, in OpenAI's form.
//!
//! Owns: what a definition must have, and the meaning of `tool_choice`.
//! Always true: a definition that passes is one that the template and the parser of calls understand.
//! Not here: Anthropic's and the Responses API's spellings, which their files turn into this one.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::error::ApiError;

/// A definition as clients send it.
#[derive(Debug, Clone, Deserialize)]
pub struct Tool {
    /// `function` alone.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name, description, parameters (a JSON schema).
    pub function: Option<Value>,
}

/// Which tools an answer must, may or must not call.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// As the model likes.
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// Definitions for the template, checked.
pub fn definitions(tools: &[Tool]) -> Result<Vec<Value>, ApiError> {
    tools.iter().enumerate().map(|(at, tool)| definition(&format!("tools[{at}]"), tool)).collect()
}

fn definition(place: &str, tool: &Tool) -> Result<Value, ApiError> {
    if tool.kind != "function" {
        let message = format!("a tool of type '{}' is not supported: use 'function'", tool.kind);
        return Err(ApiError::unsupported(format!("{place}.type"), message));
    }
    let function = tool.function.as_ref().filter(|f| f.is_object()).ok_or_else(|| {
        ApiError::field(format!("{place}.function"), "a tool needs a function with a name and parameters")
    })?;
    check_name(&format!("{place}.function.name"), function["name"].as_str())?;
    let parameters = &function["parameters"];
    if !parameters.is_null() && !parameters.is_object() {
        let message = format!("the parameters are {parameters}: use a JSON schema (an object)");
        return Err(ApiError::field(format!("{place}.function.parameters"), message));
    }
    Ok(json!({"type": "function", "function": function}))
}

/// A function's name: 1 to 128 letters, digits, `_`, `-`, `.`, `:` and `/`. Anything else could not be told from the
/// marks of a call.
pub fn check_name(place: &str, name: Option<&str>) -> Result<(), ApiError> {
    let fits = |name: &&str| {
        (1..=128).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:/".contains(c))
    };
    match name.filter(fits) {
        Some(_) => Ok(()),
        None => {
            let message = "a function's name is 1 to 128 letters, digits, '_', '-', '.', ':' or '/'";
            Err(ApiError::field(place, message))
        }
    }
}

/// `tool_choice`: a word, or an object that names a function.
pub fn choice(given: Option<&Value>, tools: &[Value]) -> Result<Choice, ApiError> {
    let wrong = |message: String| ApiError::field("tool_choice", message);
    let choice = match given {
        None | Some(Value::Null) => return Ok(Choice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Choice::Auto,
            "none" => Choice::None,
            "required" => Choice::Required,
            other => return Err(wrong(format!("'{other}' is not known: use none, auto, required or a function"))),
        },
        Some(object) => {
            let name = object["function"]["name"].as_str().or_else(|| object["name"].as_str());
            let name = name.filter(|_| object["type"] == "function").ok_or_else(|| {
                wrong(format!(
                    "{object} names no function: use {{\"type\": \"function\", \"function\": {{\"name\": …}}}}"
                ))
            })?;
            if !tools.iter().any(|tool| tool["function"]["name"] == name) {
                return Err(wrong(format!("the function '{name}' is not among the tools")));
            }
            Choice::Named(name.to_string())
        }
    };
    if tools.is_empty() && matches!(choice, Choice::Required) {
        return Err(wrong("a call is required, but there are no tools".into()));
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tool: Value) -> Result<Vec<Value>, ApiError> {
        definitions(&[serde_json::from_value(tool).unwrap()])
    }

    #[test]
    fn a_definition_that_no_template_understands_is_named() {
        let good = json!({"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}});
        assert_eq!(check(good.clone()).unwrap(), [good]);
        for (tool, param) in [
            (json!({"type": "web_search"}), "tools[0].type"),
            (json!({"type": "function"}), "tools[0].function"),
            (json!({"type": "function", "function": {"name": "a b"}}), "tools[0].function.name"),
            (json!({"type": "function", "function": {"name": "a>"}}), "tools[0].function.name"),
            (json!({"type": "function", "function": {"name": "a", "parameters": 3}}), "tools[0].function.parameters"),
        ] {
            assert_eq!(check(tool).unwrap_err().param.as_deref(), Some(param));
        }
    }

    #[test]
    fn a_choice_is_a_word_or_a_known_function() {
        let tools = [json!({"type": "function", "function": {"name": "a"}})];
        let named = |name| json!({"type": "function", "function": {"name": name}});
        assert_eq!(choice(None, &tools).unwrap(), Choice::Auto);
        assert_eq!(choice(Some(&json!("required")), &tools).unwrap(), Choice::Required);
        assert_eq!(choice(Some(&named("a")), &tools).unwrap(), Choice::Named("a".into()));
        assert!(choice(Some(&named("b")), &tools).is_err());
        assert!(choice(Some(&json!("maybe")), &tools).is_err());
        assert!(choice(Some(&json!("required")), &[]).is_err());
        assert!(choice(Some(&json!({"type": "function"})), &tools).is_err());
    }
}
