//! A conversation rendered by the model's chat template (spec 6.2).
//!
//! Owns: the conversation's types, the checks that hold for every template of this architecture, the values a template
//! sees, and the rendered prompt as text and as ids.
//! Always true: a string that a user wrote, at whatever depth (contents, reasoning, tool definitions, names, keys and
//! values of arguments), is hidden by `escape` while the template runs, so only tokens the template wrote become ids.
//! Not here: Python's semantics (`python`), the shapes of HTTP requests (`server`).
//!
//! A template therefore cannot look for a tag inside user text. The one place where the released template does, the
//! reasoning inside an assistant's content, is split here before.

use minijinja::{Environment, Value};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::text::escape::Escape;
use crate::text::python::{self, Raised, strip};
use crate::text::tokenizer::{Piece, Tokenizer};

/// The speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions; only the first message may be one.
    System,
    /// A person.
    User,
    /// The model, earlier.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The name that templates compare with.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What was said; empty if nothing.
    pub content: String,
    /// What the assistant thought before it spoke.
    pub reasoning_content: Option<String>,
    /// Calls that the assistant made after it spoke.
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool message answers.
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of text alone.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, content: content.into(), reasoning_content: None, tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// A tool call in the history.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The call's id, if the client gave one.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// An object, or a string holding one (OpenAI's form).
    pub arguments: Json,
}

/// Everything that a prompt is rendered from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// In order.
    pub messages: Vec<Message>,
    /// Definitions in OpenAI's form, with the wrapper `{"type": "function", "function": ...}`.
    pub tools: Vec<Json>,
    /// The template's default if `None`.
    pub enable_thinking: Option<bool>,
    /// One of the template's own words; see [`Conversation::set_effort`].
    pub reasoning_effort: Option<String>,
    /// Whether earlier turns keep their reasoning; the template's default if `None`.
    pub preserve_thinking: Option<bool>,
    /// Ends the prompt where the assistant's answer begins.
    pub add_generation_prompt: bool,
}

impl Conversation {
    /// Takes an effort in the words of any API: `none` turns thinking off, `minimal` is low and `high` is xhigh
    /// (spec 7, 41: the template knows only low, medium and xhigh).
    ///
    /// Errors: `Error::Invalid` for another word.
    pub fn set_effort(&mut self, effort: &str) -> Result<()> {
        let word = match effort {
            "none" => {
                self.enable_thinking = Some(false);
                return Ok(());
            }
            "minimal" | "low" => "low",
            "medium" => "medium",
            "high" | "xhigh" => "xhigh",
            other => {
                return Err(Error::invalid(format!(
                    "reasoning effort '{other}' is not known; use none, minimal, low, medium, high or xhigh"
                )));
            }
        };
        self.reasoning_effort = Some(word.to_owned());
        Ok(())
    }

    /// Spec 6.2, step 3.
    fn check(&self) -> Result<()> {
        if let Some(at) = self.messages.iter().skip(1).position(|m| m.role == Role::System) {
            return Err(Error::invalid(format!(
                "message {} is a system message: only the first message may be one",
                at + 1
            )));
        }
        let asks = |m: &Message| {
            let text = strip(&m.content, None, true, true);
            m.role == Role::User && !(text.starts_with("<tool_response>") && text.ends_with("</tool_response>"))
        };
        match self.messages.iter().any(asks) {
            true => Ok(()),
            false => Err(Error::invalid("No user query found in messages.")),
        }
    }
}

/// A chat template, parsed.
pub struct Template {
    env: Environment<'static>,
    escape: Escape,
    named: Vec<(&'static str, String)>,
}

const NAME: &str = "chat_template";

impl Template {
    /// Parses a template for the tokens of `tokenizer`.
    ///
    /// Errors: `Error::Model` with the template's line.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Template> {
        let mut env = python::environment();
        env.add_template_owned(NAME, source.to_owned())
            .map_err(|e| Error::model(format!("the chat template cannot be parsed: {e}; use --raw")))?;
        let escape = Escape::new(tokenizer.added_tokens())?;
        Ok(Template { env, escape, named: tokenizer.named_tokens().to_vec() })
    }

    /// The source of a model's template: chat_template.jinja, else `chat_template` of tokenizer_config.json (a text, or
    /// a list of which "default" is taken).
    ///
    /// Errors: `Error::Model` if there is none.
    pub fn source(chat_template: Option<&str>, tokenizer_config: Option<&[u8]>) -> Result<String> {
        if let Some(source) = chat_template {
            return Ok(source.to_owned());
        }
        let config: Json = match tokenizer_config.map(serde_json::from_slice).transpose() {
            Ok(config) => config.unwrap_or_default(),
            Err(e) => return Err(Error::model(format!("tokenizer_config.json cannot be used: {e}"))),
        };
        let field = &config["chat_template"];
        let named = |list: &Vec<Json>| list.iter().find(|t| t["name"] == "default").map(|t| t["template"].clone());
        let found = field.as_array().and_then(named).unwrap_or_else(|| field.clone());
        found.as_str().map(str::to_owned).ok_or_else(|| {
            Error::model(
                "the model has no chat template (neither chat_template.jinja nor a default chat_template in \
                 tokenizer_config.json): use --raw to give it plain text",
            )
        })
    }

    /// The prompt of a conversation.
    ///
    /// Errors: `Error::Invalid` with the template's sentence if it raised one, or naming a message that cannot be
    /// rendered; `Error::Model` if the template itself fails.
    pub fn render(&self, conversation: &Conversation) -> Result<Rendered> {
        conversation.check()?;
        let template = self.env.get_template(NAME).map_err(|e| self.failure(e))?;
        let values = self.values(conversation)?;
        let hidden = template.render(Value::from_iter(values)).map_err(|e| self.failure(e))?;
        Ok(Rendered { hidden, escape: self.escape.clone() })
    }

    fn failure(&self, error: minijinja::Error) -> Error {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(at) = cause {
            if let Some(Raised(sentence)) = at.downcast_ref() {
                return Error::invalid(self.escape.show(sentence));
            }
            cause = at.source();
        }
        let problem = self.escape.show(&error.to_string());
        Error::model(format!("the chat template failed: {problem}; use --raw or correct chat_template.jinja"))
    }

    /// What the template sees, by name. A switch that the caller left open stays undefined.
    fn values(&self, conversation: &Conversation) -> Result<Vec<(&'static str, Value)>> {
        let messages = conversation.messages.iter().enumerate();
        let messages = messages.map(|(at, m)| self.message(at, m)).collect::<Result<Vec<_>>>()?;
        let tools: Vec<Value> = conversation.tools.iter().map(|tool| self.json(tool)).collect();
        let mut values = vec![
            ("messages", Value::from(messages)),
            ("tools", if tools.is_empty() { Value::from(()) } else { Value::from(tools) }),
            ("add_generation_prompt", conversation.add_generation_prompt.into()),
        ];
        let switches = [
            ("enable_thinking", conversation.enable_thinking.map(Value::from)),
            ("reasoning_effort", conversation.reasoning_effort.as_ref().map(|text| self.text(text))),
            ("preserve_thinking", conversation.preserve_thinking.map(Value::from)),
        ];
        values.extend(switches.into_iter().filter_map(|(name, value)| Some((name, value?))));
        values.extend(self.named.iter().map(|(name, text)| (*name, Value::from(text.as_str()))));
        Ok(values)
    }

    fn message(&self, at: usize, message: &Message) -> Result<Value> {
        let (mut content, mut reasoning) = (message.content.as_str(), message.reasoning_content.clone());
        let thought = reasoning.as_deref().is_some_and(|r| !strip(r, None, true, true).is_empty());
        if message.role == Role::Assistant
            && !thought
            && let (Some((before, _)), Some((_, after))) = (content.split_once(CLOSE), content.rsplit_once(CLOSE))
        {
            reasoning = Some(strip(&before.replace(OPEN, ""), None, true, true).to_owned());
            content = strip(after, None, true, true);
        }
        let mut fields = vec![("role", Value::from(message.role.name())), ("content", self.text(content))];
        if let Some(reasoning) = &reasoning {
            fields.push(("reasoning_content", self.text(reasoning)));
        }
        if !message.tool_calls.is_empty() {
            let calls = message.tool_calls.iter().map(|call| self.call(at, call)).collect::<Result<Vec<_>>>()?;
            fields.push(("tool_calls", calls.into()));
        }
        if let Some(id) = &message.tool_call_id {
            fields.push(("tool_call_id", self.text(id)));
        }
        Ok(Value::from_iter(fields))
    }

    fn call(&self, at: usize, call: &ToolCall) -> Result<Value> {
        let arguments = arguments_object(&call.arguments).map_err(|problem| {
            Error::invalid(format!("message {at}: arguments of tool call '{}' {problem}", call.name))
        })?;
        let function = [("name", self.text(&call.name)), ("arguments", self.json(&arguments))];
        let mut fields = vec![("type", Value::from("function")), ("function", Value::from_iter(function))];
        if let Some(id) = &call.id {
            fields.push(("id", self.text(id)));
        }
        Ok(Value::from_iter(fields))
    }

    fn text(&self, text: &str) -> Value {
        self.escape.hide(text).into()
    }

    fn json(&self, value: &Json) -> Value {
        match value {
            Json::String(text) => self.text(text),
            Json::Array(items) => Value::from(items.iter().map(|item| self.json(item)).collect::<Vec<_>>()),
            Json::Object(fields) => Value::from_iter(fields.iter().map(|(k, v)| (self.escape.hide(k), self.json(v)))),
            plain => Value::from_serialize(plain),
        }
    }
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Arguments as a mapping (spec 7, 43): a template iterates over the characters of anything else.
fn arguments_object(arguments: &Json) -> std::result::Result<Json, String> {
    let parsed = match arguments {
        Json::String(text) => serde_json::from_str(text).map_err(|e| format!("are not JSON ({e}): {text}"))?,
        other => other.clone(),
    };
    if parsed.is_object() { Ok(parsed) } else { Err(format!("must be a JSON object, not {parsed}")) }
}

/// A prompt whose user text is still told apart from the template's.
#[derive(Debug, Clone)]
pub struct Rendered {
    hidden: String,
    escape: Escape,
}

impl Rendered {
    /// The prompt as plain text.
    pub fn text(&self) -> String {
        self.escape.show(&self.hidden)
    }

    /// The prompt as ids: the template's added tokens as such, all else as text.
    ///
    /// Errors: `Error::Model` if the tokenizer fails.
    pub fn ids(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for piece in tokenizer.pieces(&self.hidden) {
            match piece {
                Piece::Text(hidden) => ids.extend(tokenizer.encode_plain(&self.escape.show(hidden))?),
                Piece::Added(id) => ids.push(id),
            }
        }
        Ok(ids)
    }

    /// Whether the answer begins inside the thinking block, because the template opened it.
    pub fn opens_thinking(&self) -> bool {
        self.hidden.trim_end().ends_with(OPEN)
    }
}
