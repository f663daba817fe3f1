//! A Responses request: its fields, and what they ask for.
//!
//! Owns: the items of a history, and their translation into a conversation.
//! Always true: thinking, text and calls that follow each other are one turn of the assistant.
//! Not here: the response's shape (`answer`).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::{Loaded, SamplingParams};
use crate::server::App;
use crate::server::body::Fields;
use crate::server::error::ApiError;
use crate::server::wire::Ask;
use crate::server::wire::content::Content;
use crate::server::wire::form::{Form, response_format};
use crate::server::wire::sampling::{Sampling, logprobs, most_tokens};
use crate::server::wire::tools::{self, Tool};
use crate::text::{Conversation, Message, Role, ToolCall};

/// What `include` asks for log-probabilities with.
const LOGPROBS: &str = "message.output_text.logprobs";
const INCLUDED: &str = "nothing more than the answer can be included, and its message.output_text.logprobs";

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    input: Input,
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_logprobs: Option<i64>,
    stream: Option<bool>,
    tools: Option<Vec<FlatTool>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    reasoning: Option<Reasoning>,
    text: Option<TextSettings>,
    previous_response_id: Option<String>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    store: Option<bool>,
    background: Option<bool>,
    truncation: Option<String>,
    include: Option<Vec<String>>,
    max_tool_calls: Option<i64>,
    #[serde(rename = "metadata")]
    _metadata: Option<Value>,
    #[serde(rename = "user")]
    _user: Option<String>,
    #[serde(rename = "service_tier")]
    _service_tier: Option<String>,
    #[serde(rename = "prompt_cache_key")]
    _prompt_cache_key: Option<String>,
    #[serde(rename = "safety_identifier")]
    _safety_identifier: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of items")]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

#[derive(Debug, Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Value>,
    summary: Option<Value>,
    name: Option<String>,
    arguments: Option<String>,
    call_id: Option<String>,
    output: Option<Content>,
}

#[derive(Debug, Deserialize)]
struct FlatTool {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Reasoning {
    effort: Option<String>,
    #[serde(rename = "summary")]
    _summary: Option<String>,
}

#[derive(Debug, Deserialize)]
struct TextSettings {
    format: Option<Value>,
    #[serde(rename = "verbosity")]
    _verbosity: Option<String>,
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
    /// Reads and checks a body.
    pub fn read(object: &Value, app: &App, loaded: &Loaded) -> Result<Asked, ApiError> {
        let mut fields = Fields::of(object);
        let request: Request = fields.read()?;
        let model = app.model(loaded, request.model.as_deref())?;
        request.refuse()?;
        let conversation = request.conversation()?;
        let sampling = Sampling { temperature: request.temperature, top_p: request.top_p, ..Sampling::default() };
        let defaults = SamplingParams::of_model(loaded.text.generation.as_ref());
        let params = sampling.params(defaults, loaded.engine.vocab())?;
        let choice = tools::choice(request.tool_choice.as_ref(), &conversation.tools)?;
        let content = response_format("text.format", request.text.as_ref().and_then(|text| text.format.as_ref()))?;
        let mut ask = Ask::chat(conversation, "input", params);
        ask.max_tokens = most_tokens("max_output_tokens", request.max_output_tokens)?;
        ask.form = Form { content, field: "text.format", choice };
        ask.one_call = request.parallel_tool_calls == Some(false);
        let included = request.include.iter().flatten().any(|what| what == LOGPROBS);
        let how = format!("include [\"{LOGPROBS}\"]");
        ask.logprobs = logprobs(included, request.top_logprobs, &how)?;
        Ok(Asked { ask, model, stream: request.stream == Some(true) })
    }
}

impl Request {
    /// Fields that ask for what this engine cannot do.
    fn refuse(&self) -> Result<(), ApiError> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(|v| !v.is_null());
        let stateless = "nothing is kept between requests: send the whole history as input";
        let known = |what: &String| what == LOGPROBS || what == "reasoning.encrypted_content";
        let included = |list: &Vec<String>| !list.iter().all(known);
        let refusals = [
            ("previous_response_id", self.previous_response_id.is_some(), stateless),
            ("conversation", given(&self.conversation), stateless),
            ("store", self.store == Some(true), "answers are not stored: leave it out or say false"),
            ("background", self.background == Some(true), "use a stream instead"),
            ("prompt", given(&self.prompt), "there are no stored prompts: send the text as input"),
            ("truncation", self.truncation.as_deref() == Some("auto"), "nothing is cut silently: use disabled"),
            ("include", self.include.as_ref().is_some_and(included), INCLUDED),
            ("max_tool_calls", self.max_tool_calls.is_some(), "the engine calls nobody itself: leave it out"),
        ];
        match refusals.into_iter().find(|(_, given, _)| *given) {
            Some((field, _, message)) => Err(ApiError::unsupported(field, message)),
            None => Ok(()),
        }
    }

    fn conversation(&self) -> Result<Conversation, ApiError> {
        let mut conversation = Conversation { add_generation_prompt: true, ..Conversation::default() };
        let mut history = History::default();
        if let Some(instructions) = &self.instructions {
            history.say(Message::new(Role::System, instructions.as_str()));
        }
        match &self.input {
            Input::Text(text) => history.say(Message::new(Role::User, text.as_str())),
            Input::Items(items) if items.is_empty() => {
                return Err(ApiError::field("input", "there is no item: send at least a message of role 'user'"));
            }
            Input::Items(items) => {
                for (at, item) in items.iter().enumerate() {
                    item.read(&format!("input[{at}]"), &mut history)?;
                }
            }
        }
        conversation.messages = history.messages;
        let tools: Vec<Tool> = self.tools.iter().flatten().map(FlatTool::nested).collect();
        conversation.tools = tools::definitions(&tools)?;
        if let Some(effort) = self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref()) {
            conversation.set_effort(effort).map_err(|error| ApiError::from(error).blame("reasoning.effort"))?;
        }
        Ok(conversation)
    }
}

/// Messages so far.
#[derive(Default)]
struct History {
    messages: Vec<Message>,
}

impl History {
    /// A message; several instructions at the beginning are one.
    fn say(&mut self, message: Message) {
        match self.messages.as_mut_slice() {
            [only] if only.role == Role::System && message.role == Role::System => {
                only.content = format!("{}\n\n{}", only.content, message.content);
            }
            _ => self.messages.push(message),
        }
    }

    /// The assistant's turn that is being told; a new one unless `goes_on`.
    fn turn(&mut self, goes_on: impl Fn(&Message) -> bool) -> &mut Message {
        if !self.messages.last().is_some_and(|last| last.role == Role::Assistant && goes_on(last)) {
            self.messages.push(Message::new(Role::Assistant, ""));
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }
}

impl Item {
    fn read(&self, place: &str, history: &mut History) -> Result<(), ApiError> {
        match self.kind.as_deref().unwrap_or("message") {
            "message" => self.message(place, history),
            "reasoning" => {
                let texts = [&self.content, &self.summary].into_iter().flatten();
                let thought: String =
                    texts.flat_map(Value::as_array).flatten().filter_map(|p| p["text"].as_str()).collect();
                let turn = history.turn(|turn| turn.content.is_empty() && turn.tool_calls.is_empty());
                turn.reasoning_content.get_or_insert_default().push_str(&thought);
                Ok(())
            }
            "function_call" => {
                tools::check_name(&format!("{place}.name"), self.name.as_deref())?;
                let text = self.arguments.as_deref().map(str::trim).filter(|text| !text.is_empty()).unwrap_or("{}");
                let arguments = match serde_json::from_str(text) {
                    Ok(arguments @ Value::Object(_)) => arguments,
                    _ => return Err(ApiError::field(format!("{place}.arguments"), "they are not a JSON object")),
                };
                let name = self.name.clone().unwrap_or_default();
                history.turn(|_| true).tool_calls.push(ToolCall { id: self.call_id.clone(), name, arguments });
                Ok(())
            }
            "function_call_output" => {
                let field = format!("{place}.output");
                let missing = || ApiError::field(&field, "the item has no output");
                let output = self.output.as_ref().ok_or_else(missing)?.text(&field)?;
                let mut message = Message::new(Role::Tool, output);
                message.tool_call_id = self.call_id.clone();
                history.say(message);
                Ok(())
            }
            other => {
                let message = format!("an item of type '{other}' cannot be read: use messages and function calls");
                Err(ApiError::unsupported(place, message))
            }
        }
    }

    fn message(&self, place: &str, history: &mut History) -> Result<(), ApiError> {
        let field = format!("{place}.content");
        let content = self.content.clone().unwrap_or_default();
        let content: Content =
            serde_json::from_value(content).map_err(|error| ApiError::field(&field, error.to_string()))?;
        let content = content.text(&field)?;
        let role = match self.role.as_deref() {
            Some("system" | "developer") => Role::System,
            Some("user") => Role::User,
            Some("assistant") => {
                history.turn(|turn| turn.content.is_empty() && turn.tool_calls.is_empty()).content = content;
                return Ok(());
            }
            other => {
                let message = format!(
                    "the role '{}' is not known: use system, developer, user or assistant",
                    other.unwrap_or_default()
                );
                return Err(ApiError::field(format!("{place}.role"), message));
            }
        };
        history.say(Message::new(role, content));
        Ok(())
    }
}

impl FlatTool {
    /// In the chat API's form, which the template knows.
    fn nested(&self) -> Tool {
        let mut function = json!({"name": self.name});
        let fields = [
            ("description", self.description.clone().map(Value::from)),
            ("parameters", self.parameters.clone()),
            ("strict", self.strict.map(Value::from)),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                function[name] = value;
            }
        }
        Tool { kind: self.kind.clone(), function: Some(function) }
    }
}
