//! The form an answer must have: JSON, a grammar, calls of tools.
//!
//! Owns: the spellings of a form (`response_format`, vLLM's `structured_outputs`), and calls as a grammar.
//! Always true: a call that the grammar lets through is one that the parser of calls reads; thinking stays free, the
//! form begins behind it.
//! Not here: enforcing (`engine::constrain`), which tools there are (`tools`).

use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::tools::Choice;
use crate::engine::{Constraint, Grammar, Reading};
use crate::server::error::ApiError;
use crate::text::Tokenizer;

/// vLLM's way to ask for a form.
#[derive(Debug, Clone, Deserialize)]
pub struct StructuredOutputs {
    json: Option<Value>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
}

/// What the content must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// As the model likes.
    Free,
    /// A JSON value that a schema accepts.
    Json(Value),
    /// What a grammar derives.
    Grammar(Grammar),
}

/// The form of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// Its content.
    pub content: Content,
    /// The field that asked for the content.
    pub field: &'static str,
    /// Its calls.
    pub choice: Choice,
}

impl Form {
    /// Nothing is asked for.
    pub fn free() -> Form {
        Form { content: Content::Free, field: "tools", choice: Choice::Auto }
    }

    /// The field to blame for a form that cannot be enforced.
    pub fn blamed(&self) -> &'static str {
        if self.content == Content::Free { "tools" } else { self.field }
    }

    /// What the engine enforces for an answer that is read this way; `None` if nothing is.
    pub fn constraint(&self, tools: &[Value], reading: Reading, tokenizer: &Tokenizer) -> Option<Constraint> {
        let after = match reading {
            Reading::Chat { thinking: true } => tokenizer.added_id("</think>"),
            Reading::Chat { thinking: false } | Reading::Plain => None,
        };
        // The model leaves a line free between its thinking and what follows.
        let gap = if after.is_some() { "\"\\n\\n\"? " } else { "" };
        let strict = |tool: &&Value| tool["function"]["strict"] == true;
        let grammar = match (&self.content, &self.choice) {
            (_, Choice::Required) => Grammar::Lark(format!("start: {gap}calls\n{}", calls(tools.iter()))),
            (_, Choice::Named(name)) => {
                let named = tools.iter().filter(|tool| tool["function"]["name"] == name.as_str());
                Grammar::Lark(format!("start: {gap}calls\n{}", calls(named)))
            }
            (Content::Json(schema), Choice::Auto) if !tools.is_empty() => {
                let calls = calls(tools.iter());
                Grammar::Lark(format!("start: {gap}(json | calls)\njson: %json {}\n{calls}", Grammar::bounded(schema)))
            }
            (Content::Json(schema), _) => {
                Grammar::Lark(format!("start: {gap}json\njson: %json {}\n", Grammar::bounded(schema)))
            }
            (Content::Grammar(grammar), _) => grammar.clone(),
            (Content::Free, Choice::Auto) if tools.iter().any(|tool| strict(&tool)) => {
                Grammar::Lark(format!("start: text | text calls\ntext: /(.|\\n)*/\n{}", calls(tools.iter())))
            }
            (Content::Free, _) => return None,
        };
        Some(Constraint { grammar, after })
    }
}

/// OpenAI's `response_format` (or the Responses API's `text.format`, which has the same words without the wrapper).
pub fn response_format(field: &str, format: Option<&Value>) -> Result<Content, ApiError> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(Content::Free) };
    match format["type"].as_str() {
        Some("text") => Ok(Content::Free),
        Some("json_object") => Ok(Content::Json(json!({"type": "object"}))),
        Some("json_schema") => {
            let schema = [&format["json_schema"]["schema"], &format["schema"]].into_iter().find(|s| s.is_object());
            match schema {
                Some(schema) => Ok(Content::Json(schema.clone())),
                None => {
                    Err(ApiError::field(field, "it has no schema: give one as {\"json_schema\": {\"schema\": {…}}}"))
                }
            }
        }
        _ => Err(ApiError::unsupported(field, format!("{format} is not known: use text, json_object or json_schema"))),
    }
}

impl StructuredOutputs {
    /// The content that is asked for.
    pub fn content(&self) -> Result<Content, ApiError> {
        let field = "structured_outputs";
        let mut asked = Vec::new();
        match &self.json {
            Some(schema @ Value::Object(_)) => asked.push(Content::Json(schema.clone())),
            None | Some(Value::Null) => {}
            Some(_) => return Err(ApiError::field("structured_outputs.json", "it is not a JSON schema (an object)")),
        }
        asked.extend(self.regex.clone().map(|regex| Content::Grammar(Grammar::Regex(regex))));
        asked.extend(self.choice.clone().map(|choice| Content::Grammar(Grammar::Choice(choice))));
        asked.extend(self.grammar.clone().map(|lark| Content::Grammar(Grammar::Lark(lark))));
        match (asked.pop(), asked.is_empty()) {
            (Some(content), true) => Ok(content),
            _ => {
                Err(ApiError::field(field, "it names no form, or several: give one of json, regex, choice and grammar"))
            }
        }
    }
}

/// Rules for one or more calls, in the words that the template teaches: `calls` and what it needs.
fn calls<'t>(tools: impl Iterator<Item = &'t Value>) -> String {
    let mut rules = String::new();
    let mut names = Vec::new();
    for (at, tool) in tools.enumerate() {
        let function = &tool["function"];
        let parameters = &function["parameters"];
        let required: Vec<&str> =
            parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut body = String::new();
        for (number, (name, schema)) in parameters["properties"].as_object().into_iter().flatten().enumerate() {
            let rule = format!("value_{at}_{number}");
            // Writing into a text cannot fail.
            let _ = write!(rules, "{}", value(&rule, schema, parameters));
            let head = literal(&format!("<parameter={name}>\n"));
            let _ = match required.contains(&name.as_str()) {
                true => write!(body, " {head} {rule}"),
                false => write!(body, " ({head} {rule})?"),
            };
        }
        let head = literal(&format!("\n<function={}>\n", function["name"].as_str().unwrap_or_default()));
        let _ = writeln!(rules, "call_{at}: <tool_call> {head}{body} \"</function>\\n\" </tool_call>");
        names.push(format!("call_{at}"));
    }
    format!("calls: call (\"\\n\" call)*\ncall: {}\n{rules}", names.join(" | "))
}

/// A parameter's value with what closes it. A text ends where its parameter does; anything else is JSON.
fn value(rule: &str, schema: &Value, parameters: &Value) -> String {
    let end = literal("\n</parameter>\n");
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if let Some(texts) = schema["enum"].as_array().filter(|list| !list.is_empty() && list.iter().all(Value::is_string))
    {
        let texts: Vec<String> = texts.iter().filter_map(Value::as_str).map(literal).collect();
        return format!("{rule}: ({}) {end}\n", texts.join(" | "));
    }
    if kinds.is_empty() || kinds.contains(&"string") {
        let end = end.as_str();
        return match limits(schema, end).filter(|_| kinds.iter().all(|kind| ["string", "null"].contains(kind))) {
            Some(text) => {
                let null = if kinds.contains(&"null") { format!(" | \"null\" {end}") } else { String::new() };
                let name = rule.to_uppercase();
                format!("{rule}: {rule}_text{null}\n{rule}_text[lazy]: {name}\n{name}: {text}\n")
            }
            None => format!("{rule}[lazy]: /(.|\\n)*/ {end}\n"),
        };
    }
    // What the schema refers to stands beside it.
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    let shared: Map<String, Value> = ["$defs", "definitions"]
        .into_iter()
        .filter_map(|name| Some((name.to_string(), parameters.get(name)?.clone())))
        .collect();
    schema.extend(shared);
    format!("{rule}: {rule}_json {end}\n{rule}_json: %json {}\n", Grammar::bounded(&Value::Object(schema)))
}

/// A text of the length and pattern that a schema asks for, and its end, as a terminal of which the shortest match
/// counts; `None` if the schema asks for neither.
fn limits(schema: &Value, end: &str) -> Option<String> {
    let (least, most) = (schema["minLength"].as_u64(), schema["maxLength"].as_u64());
    let pattern = schema["pattern"].as_str();
    if least.is_none() && most.is_none() && pattern.is_none() {
        return None;
    }
    let least = least.unwrap_or(0);
    let length = format!("/(?s:.{{{least},{}}})/", most.map_or(String::new(), |n| n.to_string()));
    let Some(pattern) = pattern else {
        // An end that comes too early is none: the text would be cut there. (To forbid every other end too is the same
        // language, but a bound of 3,000 characters then takes llguidance more fuel than a grammar has.)
        let early = match least.checked_sub(1) {
            Some(shorter) => format!(" & ~(/(?s:.{{0,{shorter}}})/ {end} /(?s:.*)/)"),
            None => String::new(),
        };
        return Some(format!("{length} {end}{early}"));
    };
    // A schema's pattern is searched for, a terminal must match as a whole.
    let (before, pattern) = match pattern.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => ("(?s:.*)", pattern),
    };
    let (pattern, behind) = match pattern.strip_suffix('$').filter(|rest| !rest.ends_with('\\')) {
        Some(rest) => (rest, ""),
        None => (pattern, "(?s:.*)"),
    };
    let pattern = Grammar::pattern(pattern);
    Some(format!("({length} & /{before}(?:{pattern}){behind}/) {end} & ~(/(?s:.*)/ {end} /(?s:.+)/)"))
}

/// A text as a literal of the grammar.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(strict: bool) -> Value {
        let properties = json!({"town": {"type": "string"}, "days": {"type": "integer"}});
        let parameters = json!({"type": "object", "properties": properties, "required": ["town"]});
        json!({"type": "function", "function": {"name": "weather", "strict": strict, "parameters": parameters}})
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_json(include_bytes!("../../../models/ember/tokenizer.json"), None).unwrap()
    }

    fn lark(form: &Form, strict: bool, thinking: bool) -> Option<(String, bool)> {
        let constraint = form.constraint(&[tool(strict)], Reading::Chat { thinking }, &tokenizer())?;
        match constraint.grammar {
            Grammar::Lark(text) => Some((text, constraint.after.is_some())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_required_call_is_a_grammar_that_begins_behind_the_thinking() {
        let form = Form { choice: Choice::Required, ..Form::free() };
        let (text, after) = lark(&form, false, true).unwrap();
        assert!(after && text.starts_with("start: \"\\n\\n\"? calls\n"), "{text}");
        assert!(
            text.contains("call_0: <tool_call> \"\\n<function=weather>\\n\" \"<parameter=town>\\n\" value_0_0"),
            "{text}"
        );
        assert!(text.contains("(\"<parameter=days>\\n\" value_0_1)?"), "an optional parameter: {text}");
        assert!(text.contains("value_0_0[lazy]: ") && text.contains("value_0_1_json: %json"), "{text}");
        let (text, after) = lark(&form, false, false).unwrap();
        assert!(!after && text.starts_with("start: calls\n"), "{text}");
    }

    #[test]
    fn a_texts_limits_become_a_terminal_that_ends_where_the_parameter_does() {
        let parameters = Value::Null;
        let rule = |schema: Value| value("v", &schema, &parameters);
        assert!(rule(json!({"type": "string"})).starts_with("v[lazy]: "));
        let end = "\"\\n</parameter>\\n\"";
        let short = rule(json!({"type": ["string", "null"], "maxLength": 9}));
        let expected = format!("v: v_text | \"null\" {end}\nv_text[lazy]: V\nV: /(?s:.{{0,9}})/ {end}\n");
        assert_eq!(short, expected);
        let untyped = rule(json!({"minLength": 3}));
        let expected = format!("V: /(?s:.{{3,}})/ {end} & ~(/(?s:.{{0,2}})/ {end} /(?s:.*)/)\n");
        assert!(untyped.ends_with(&expected), "without a type it is a text: {untyped}");
        let number = rule(json!({"type": ["string", "integer"], "maxLength": 9}));
        assert!(number.starts_with("v[lazy]: "), "a number has no length: {number}");
        for (pattern, terminal) in
            [("^a|b$", "/(?:a|b)/"), (r"a/\d", r"/(?s:.*)(?:a\/[0-9])(?s:.*)/"), (r"^a\/\$", r"/(?:a\/\$)(?s:.*)/")]
        {
            let rule = rule(json!({"type": "string", "minLength": 2, "pattern": pattern}));
            assert!(rule.contains(&format!("(/(?s:.{{2,}})/ & {terminal})")), "{rule}");
        }
    }

    #[test]
    fn without_a_demand_only_strict_tools_are_enforced() {
        assert_eq!(lark(&Form::free(), false, true), None);
        assert!(lark(&Form::free(), true, true).unwrap().0.starts_with("start: text | text calls\n"));
    }

    #[test]
    fn formats_are_understood_or_named() {
        let schema = json!({"type": "object"});
        let format = |value: Value| response_format("response_format", Some(&value));
        assert_eq!(format(json!({"type": "text"})).unwrap(), Content::Free);
        assert_eq!(format(json!({"type": "json_object"})).unwrap(), Content::Json(schema.clone()));
        let nested = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
        assert_eq!(format(nested).unwrap(), Content::Json(schema.clone()));
        assert_eq!(format(json!({"type": "json_schema", "schema": schema})).unwrap(), Content::Json(schema));
        for wrong in [json!({"type": "yaml"}), json!({"type": "json_schema"}), json!("json")] {
            assert_eq!(format(wrong).unwrap_err().param.as_deref(), Some("response_format"));
        }
        let outputs = |value: Value| serde_json::from_value::<StructuredOutputs>(value).unwrap().content();
        assert_eq!(outputs(json!({"regex": "a+"})).unwrap(), Content::Grammar(Grammar::Regex("a+".into())));
        assert!(outputs(json!({})).is_err() && outputs(json!({"regex": "a", "choice": ["b"]})).is_err());
    }
}
