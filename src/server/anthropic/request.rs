//! A Messages request: its fields, and what they ask for.
//!
//! Owns: blocks of content, and their translation into a conversation.
//! Always true: a field whose meaning is not supported is refused by name.
//! Not here: the answer's shape (`answer`).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::{Loaded, SamplingParams};
use crate::server::App;
use crate::server::body::Fields;
use crate::server::error::ApiError;
use crate::server::wire::Ask;
use crate::server::wire::form::{Form, response_format};
use crate::server::wire::sampling::{Sampling, most_tokens, stops};
use crate::server::wire::tools::{self, Choice};
use crate::text::{Conversation, Message, Role, ToolCall};

#[derive(Debug, Deserialize)]
struct Request {
    model: String,
    messages: Vec<Turn>,
    max_tokens: Option<i64>,
    system: Option<Blocks>,
    stop_sequences: Option<Vec<String>>,
    stream: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    mcp_servers: Option<Vec<Value>>,
    container: Option<Value>,
    #[serde(rename = "metadata")]
    _metadata: Option<Value>,
    #[serde(rename = "service_tier")]
    _service_tier: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OutputConfig {
    effort: Option<String>,
    format: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Turn {
    role: String,
    content: Blocks,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of blocks with a type")]
enum Blocks {
    Text(String),
    List(Vec<Block>),
}

#[derive(Debug, Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    tool_use_id: Option<String>,
    content: Option<Box<Blocks>>,
    is_error: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: String,
    description: Option<String>,
    input_schema: Option<Value>,
    strict: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    budget_tokens: Option<i64>,
}

/// A request, understood.
pub struct Asked {
    /// What to generate.
    pub ask: Ask,
    /// The model's name, as the client spelt it.
    pub model: String,
    /// As events.
    pub stream: bool,
}

impl Asked {
    /// Reads and checks a body. `answer` says that tokens are asked for, not only counted.
    pub fn read(object: &Value, app: &App, loaded: &Loaded, answer: bool) -> Result<Asked, ApiError> {
        let mut fields = Fields::of(object);
        let request: Request = fields.read()?;
        let model = app.model(loaded, Some(&request.model))?;
        request.refuse()?;
        if answer && request.max_tokens.is_none() {
            return Err(ApiError::field("max_tokens", "it is missing: say how long the answer may be"));
        }
        let mut conversation = request.conversation()?;
        let prefill = prefill(&mut conversation)?;
        let sampling = Sampling {
            temperature: request.temperature,
            top_p: request.top_p,
            top_k: request.top_k,
            ..Sampling::default()
        };
        let defaults = SamplingParams::of_model(loaded.text.generation.as_ref());
        let params = sampling.params(defaults, loaded.engine.vocab())?;
        let choice = request.choice(&conversation.tools)?;
        let format = request.output_config.as_ref().and_then(|config| config.format.as_ref());
        let content = response_format("output_config.format", format)?;
        let mut ask = Ask::chat(conversation, "messages", params);
        ask.prefill = prefill;
        ask.max_tokens = most_tokens("max_tokens", request.max_tokens)?;
        ask.stops = stops("stop_sequences", request.stop_sequences.clone().unwrap_or_default())?;
        ask.form = Form { content, field: "output_config.format", choice };
        ask.one_call = request.tool_choice.is_some_and(|choice| choice.disable_parallel_tool_use == Some(true));
        Ok(Asked { ask, model, stream: request.stream == Some(true) })
    }
}

/// An answer that the client has begun: the model goes on with it.
fn prefill(conversation: &mut Conversation) -> Result<String, ApiError> {
    let begun = |message: &mut Message| message.role == Role::Assistant && message.tool_calls.is_empty();
    let Some(message) = conversation.messages.pop_if(begun) else { return Ok(String::new()) };
    match conversation.enable_thinking {
        Some(false) => Ok(message.content),
        _ => {
            Err(ApiError::unsupported("messages", "an answer that was begun cannot think any more: turn thinking off"))
        }
    }
}

impl Request {
    fn refuse(&self) -> Result<(), ApiError> {
        if self.mcp_servers.as_ref().is_some_and(|list| !list.is_empty()) {
            return Err(ApiError::unsupported("mcp_servers", "the engine calls nobody: leave it out"));
        }
        if self.container.as_ref().is_some_and(|container| !container.is_null()) {
            return Err(ApiError::unsupported("container", "the engine runs no code: leave it out"));
        }
        Ok(())
    }

    fn choice(&self, tools: &[Value]) -> Result<Choice, ApiError> {
        let Some(choice) = &self.tool_choice else { return Ok(Choice::Auto) };
        let given = match (choice.kind.as_str(), &choice.name) {
            ("auto" | "none", _) => json!(choice.kind),
            ("any", _) => json!("required"),
            ("tool", Some(name)) => json!({"type": "function", "function": {"name": name}}),
            (kind, _) => {
                let message = format!("the type '{kind}' is not known or lacks a name: use auto, any, tool or none");
                return Err(ApiError::field("tool_choice", message));
            }
        };
        tools::choice(Some(&given), tools)
    }

    fn conversation(&self) -> Result<Conversation, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::field("messages", "there is no message: send at least one of role 'user'"));
        }
        let mut conversation = Conversation { add_generation_prompt: true, ..Conversation::default() };
        if let Some(system) = &self.system {
            conversation.messages.push(Message::new(Role::System, system.text("system")?));
        }
        for (at, turn) in self.messages.iter().enumerate() {
            let place = format!("messages[{at}]");
            match turn.role.as_str() {
                "user" => turn.user(&place, &mut conversation.messages)?,
                "assistant" => conversation.messages.push(turn.assistant(&place)?),
                other => {
                    let message = format!("the role '{other}' is not known: use user or assistant");
                    return Err(ApiError::field(format!("{place}.role"), message));
                }
            }
        }
        for (at, tool) in self.tools.iter().flatten().enumerate() {
            conversation.tools.push(tool.definition(&format!("tools[{at}]"))?);
        }
        self.think(&mut conversation)?;
        Ok(conversation)
    }

    /// Off unless asked for. A budget becomes the nearest effort: the model keeps no count of its thoughts.
    fn think(&self, conversation: &mut Conversation) -> Result<(), ApiError> {
        conversation.enable_thinking = Some(false);
        let Some(thinking) = &self.thinking else { return Ok(()) };
        match thinking.kind.as_str() {
            "disabled" => return Ok(()),
            "enabled" | "adaptive" => conversation.enable_thinking = Some(true),
            other => {
                let message = format!("the type '{other}' is not known: use enabled, adaptive or disabled");
                return Err(ApiError::field("thinking.type", message));
            }
        }
        let effort = match (thinking.budget_tokens, self.output_config.as_ref().and_then(|c| c.effort.as_deref())) {
            (_, Some("max")) => Some("xhigh"),
            (_, Some(effort)) => Some(effort),
            (Some(..1), None) => {
                return Err(ApiError::field("thinking.budget_tokens", "use 1 or more"));
            }
            (Some(..4096), None) => Some("low"),
            (Some(..16384), None) => Some("medium"),
            (Some(_), None) => Some("xhigh"),
            (None, None) => None,
        };
        match effort {
            Some(effort) => {
                conversation.set_effort(effort).map_err(|error| ApiError::from(error).blame("output_config.effort"))
            }
            None => Ok(()),
        }
    }
}

impl Blocks {
    /// The text of blocks that may hold nothing else.
    fn text(&self, place: &str) -> Result<String, ApiError> {
        let blocks = match self {
            Blocks::Text(text) => return Ok(text.clone()),
            Blocks::List(blocks) => blocks,
        };
        let texts = blocks.iter().enumerate().map(|(at, block)| match block.kind.as_str() {
            "text" => block.text(&format!("{place}[{at}]")),
            _ => Err(block.strange(&format!("{place}[{at}]"))),
        });
        texts.collect()
    }
}

impl Block {
    fn text(&self, place: &str) -> Result<&str, ApiError> {
        self.text.as_deref().ok_or_else(|| ApiError::field(format!("{place}.text"), "the block has no text"))
    }

    fn strange(&self, place: &str) -> ApiError {
        let message = format!("a block of type '{}' cannot be read here: this engine takes text alone", self.kind);
        ApiError::unsupported(place, message)
    }
}

impl Turn {
    fn blocks(&self) -> Vec<&Block> {
        match &self.content {
            Blocks::Text(_) => Vec::new(),
            Blocks::List(blocks) => blocks.iter().collect(),
        }
    }

    /// Results of calls become messages of their own, in their place among the texts.
    fn user(&self, place: &str, messages: &mut Vec<Message>) -> Result<(), ApiError> {
        if let Blocks::Text(text) = &self.content {
            messages.push(Message::new(Role::User, text.as_str()));
            return Ok(());
        }
        let mut text = String::new();
        for (at, block) in self.blocks().into_iter().enumerate() {
            let place = format!("{place}.content[{at}]");
            match block.kind.as_str() {
                "text" => text.push_str(block.text(&place)?),
                "tool_result" => {
                    if !text.is_empty() {
                        messages.push(Message::new(Role::User, std::mem::take(&mut text)));
                    }
                    let content = block.content.as_ref().map(|content| content.text(&format!("{place}.content")));
                    let mut content = content.transpose()?.unwrap_or_default();
                    if block.is_error == Some(true) {
                        content.insert_str(0, "error: ");
                    }
                    let mut message = Message::new(Role::Tool, content);
                    message.tool_call_id = block.tool_use_id.clone();
                    messages.push(message);
                }
                _ => return Err(block.strange(&place)),
            }
        }
        if !text.is_empty() {
            messages.push(Message::new(Role::User, text));
        }
        Ok(())
    }

    fn assistant(&self, place: &str) -> Result<Message, ApiError> {
        let mut message = Message::new(Role::Assistant, "");
        if let Blocks::Text(text) = &self.content {
            message.content.push_str(text);
        }
        for (at, block) in self.blocks().into_iter().enumerate() {
            let place = format!("{place}.content[{at}]");
            match block.kind.as_str() {
                "text" => message.content.push_str(block.text(&place)?),
                "thinking" => {
                    let thought = block.thinking.as_deref().unwrap_or_default();
                    message.reasoning_content.get_or_insert_default().push_str(thought);
                }
                // Another server's secret: nobody here can read it.
                "redacted_thinking" => {}
                "tool_use" => {
                    tools::check_name(&format!("{place}.name"), block.name.as_deref())?;
                    let arguments = block.input.clone().unwrap_or_else(|| json!({}));
                    if !arguments.is_object() {
                        return Err(ApiError::field(format!("{place}.input"), "the input is not a JSON object"));
                    }
                    let name = block.name.clone().unwrap_or_default();
                    message.tool_calls.push(ToolCall { id: block.id.clone(), name, arguments });
                }
                _ => return Err(block.strange(&place)),
            }
        }
        Ok(message)
    }
}

impl Tool {
    fn definition(&self, place: &str) -> Result<Value, ApiError> {
        if let Some(kind) = self.kind.as_deref().filter(|kind| *kind != "custom") {
            let message =
                format!("a tool of type '{kind}' runs on Anthropic's servers: define it with an input_schema");
            return Err(ApiError::unsupported(format!("{place}.type"), message));
        }
        tools::check_name(&format!("{place}.name"), Some(&self.name))?;
        let schema = self.input_schema.as_ref().filter(|schema| schema.is_object());
        let parameters = schema.ok_or_else(|| {
            ApiError::field(format!("{place}.input_schema"), "a tool needs a JSON schema (an object)")
        })?;
        let mut function = json!({"name": self.name, "parameters": parameters});
        if let Some(description) = &self.description {
            function["description"] = description.as_str().into();
        }
        if let Some(strict) = self.strict {
            function["strict"] = strict.into();
        }
        Ok(json!({"type": "function", "function": function}))
    }
}
