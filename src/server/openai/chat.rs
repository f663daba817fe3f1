//! A chat request: its fields, and what they ask for.
//!
//! Owns: the messages of OpenAI's form and their translation into a conversation.
//! Always true: a field whose meaning is not supported is refused by name.
//! Not here: fields that text completions share (`wire::sampling`), the answer's shape (`chat_answer`).

use serde::Deserialize;
use serde_json::Value;

use crate::engine::{Loaded, SamplingParams};
use crate::server::App;
use crate::server::body::Fields;
use crate::server::error::ApiError;
use crate::server::wire::Ask;
use crate::server::wire::content::Content;
use crate::server::wire::form::{Form, StructuredOutputs, response_format};
use crate::server::wire::sampling::{Sampling, logprobs, most_tokens};
use crate::server::wire::tools::{self, Tool};
use crate::text::{Conversation, Message, Role, ToolCall};

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    messages: Vec<ChatMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    return_progress: Option<bool>,
    max_completion_tokens: Option<i64>,
    logprobs: Option<bool>,
    top_logprobs: Option<i64>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<Value>,
    structured_outputs: Option<StructuredOutputs>,
    reasoning_effort: Option<String>,
    chat_template_kwargs: Option<TemplateArguments>,
    // Refused unless they say what happens anyway.
    modalities: Option<Vec<String>>,
    audio: Option<Value>,
    prediction: Option<Value>,
    web_search_options: Option<Value>,
    functions: Option<Value>,
    function_call: Option<Value>,
    store: Option<bool>,
    #[serde(rename = "metadata")]
    _metadata: Option<Value>,
}

/// What a stream carries besides the answer.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct StreamOptions {
    /// A last chunk with the counts.
    pub include_usage: Option<bool>,
}

/// Arguments of the template that local engines let through.
#[derive(Debug, Default, Deserialize)]
struct TemplateArguments {
    enable_thinking: Option<bool>,
    preserve_thinking: Option<bool>,
    reasoning_effort: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<Call>>,
    tool_call_id: Option<String>,
    function_call: Option<Value>,
    audio: Option<Value>,
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "refusal")]
    _refusal: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
    #[serde(rename = "type")]
    _kind: Option<String>,
    #[serde(rename = "index")]
    _index: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    arguments: Value,
}

/// A request, understood.
pub struct Asked {
    /// What to generate.
    pub ask: Ask,
    /// The model's name, as the client spelt it.
    pub model: String,
    /// Answers.
    pub choices: usize,
    /// As events.
    pub stream: bool,
    /// With counts at the stream's end.
    pub usage: bool,
    /// With progress while the prompt is read.
    pub progress: bool,
}

impl Asked {
    /// Reads and checks a body.
    pub fn read(object: &Value, app: &App, loaded: &Loaded) -> Result<Asked, ApiError> {
        let mut fields = Fields::of(object);
        let request: Request = fields.read()?;
        let sampling: Sampling = fields.read()?;
        let model = app.model(loaded, request.model.as_deref())?;
        request.refuse()?;

        let conversation = request.conversation()?;
        let defaults = SamplingParams::of_model(loaded.text.generation.as_ref());
        let params = sampling.params(defaults, loaded.engine.vocab())?;
        let choice = tools::choice(request.tool_choice.as_ref(), &conversation.tools)?;
        let content = match &request.structured_outputs {
            Some(outputs) => outputs.content()?,
            None => response_format("response_format", request.response_format.as_ref())?,
        };
        let mut ask = Ask::chat(conversation, "messages", params);
        ask.max_tokens = match request.max_completion_tokens {
            None => most_tokens("max_tokens", sampling.max_tokens)?,
            given => most_tokens("max_completion_tokens", given)?,
        };
        ask.stops = sampling.stops()?;
        ask.copies = sampling.copies()?;
        ask.ignore_stop_ids = sampling.ignore_eos == Some(true);
        ask.logprobs = logprobs(request.logprobs == Some(true), request.top_logprobs, "set logprobs to true")?;
        ask.one_call = request.parallel_tool_calls == Some(false);
        ask.form = Form { content, field: "response_format", choice };
        Ok(Asked {
            choices: ask.copies,
            ask,
            model,
            stream: request.stream == Some(true),
            usage: request.stream_options.unwrap_or_default().include_usage == Some(true),
            progress: request.return_progress == Some(true),
        })
    }
}

impl Request {
    /// Fields that ask for what this engine cannot do.
    fn refuse(&self) -> Result<(), ApiError> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(|v| !v.is_null());
        let refusals = [
            ("audio", given(&self.audio), "the engine cannot speak: leave it out"),
            ("prediction", given(&self.prediction), "predicted outputs are not supported: leave it out"),
            ("web_search_options", given(&self.web_search_options), "the engine does not search: leave it out"),
            ("functions", given(&self.functions), "use tools instead"),
            ("function_call", given(&self.function_call), "use tool_choice instead"),
            ("store", self.store == Some(true), "answers are not stored: leave it out or say false"),
            (
                "modalities",
                self.modalities.as_ref().is_some_and(|list| list.iter().any(|m| m != "text")),
                "the engine answers with text alone: use [\"text\"]",
            ),
            (
                "stream_options",
                self.stream_options.is_some() && self.stream != Some(true),
                "it belongs to a stream: set stream to true or leave it out",
            ),
        ];
        match refusals.into_iter().find(|(_, given, _)| *given) {
            Some((field, _, message)) => Err(ApiError::unsupported(field, message)),
            None => Ok(()),
        }
    }

    fn conversation(&self) -> Result<Conversation, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::field("messages", "there is no message: send at least one of role 'user'"));
        }
        let mut conversation = Conversation { add_generation_prompt: true, ..Conversation::default() };
        for (at, message) in self.messages.iter().enumerate() {
            let message = message.read(&format!("messages[{at}]"))?;
            match conversation.messages.last_mut() {
                // Several instructions at the beginning are one: the template knows one system message.
                Some(last) if at > 0 && last.role == Role::System && message.role == Role::System => {
                    last.content = format!("{}\n\n{}", last.content, message.content);
                }
                _ => conversation.messages.push(message),
            }
        }
        conversation.tools = tools::definitions(self.tools.as_deref().unwrap_or_default())?;
        if let Some(arguments) = &self.chat_template_kwargs {
            conversation.enable_thinking = arguments.enable_thinking;
            conversation.preserve_thinking = arguments.preserve_thinking;
            if let Some(effort) = &arguments.reasoning_effort {
                let set = conversation.set_effort(effort).map_err(ApiError::from);
                set.map_err(|error| error.blame("chat_template_kwargs.reasoning_effort"))?;
            }
        }
        if let Some(effort) = &self.reasoning_effort {
            let set = conversation.set_effort(effort).map_err(ApiError::from);
            set.map_err(|error| error.blame("reasoning_effort"))?;
        }
        Ok(conversation)
    }
}

impl ChatMessage {
    fn read(&self, place: &str) -> Result<Message, ApiError> {
        let role = match self.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            other => {
                let message =
                    format!("the role '{other}' is not known: use system, developer, user, assistant or tool");
                return Err(ApiError::field(format!("{place}.role"), message));
            }
        };
        let given = |value: &Option<Value>| value.as_ref().is_some_and(|v| !v.is_null());
        if given(&self.function_call) {
            return Err(ApiError::unsupported(format!("{place}.function_call"), "use tool_calls instead"));
        }
        if given(&self.audio) {
            return Err(ApiError::unsupported(format!("{place}.audio"), "the engine reads text alone"));
        }
        let field = format!("{place}.content");
        let content = match &self.content {
            Some(content) => content.text(&field)?,
            None if role == Role::Assistant => String::new(),
            None => return Err(ApiError::field(field, "the message has no content")),
        };
        let mut message = Message::new(role, content);
        message.tool_call_id = self.tool_call_id.clone();
        if role == Role::Tool && message.tool_call_id.is_none() {
            return Err(ApiError::field(format!("{place}.tool_call_id"), "a tool message names the call it answers"));
        }
        if role == Role::Assistant {
            message.reasoning_content = self.reasoning_content.clone();
        }
        for (at, call) in self.tool_calls.iter().flatten().enumerate() {
            let place = format!("{place}.tool_calls[{at}]");
            if role != Role::Assistant {
                return Err(ApiError::field(place, "only a message of role 'assistant' makes calls"));
            }
            tools::check_name(&format!("{place}.function.name"), Some(&call.function.name))?;
            message.tool_calls.push(call.read(&place)?);
        }
        Ok(message)
    }
}

impl Call {
    fn read(&self, place: &str) -> Result<ToolCall, ApiError> {
        let arguments = match &self.function.arguments {
            // Some clients send an empty text for a call without arguments.
            Value::String(text) if text.trim().is_empty() => Ok(Value::Object(Default::default())),
            Value::String(text) => serde_json::from_str(text),
            other => Ok(other.clone()),
        };
        match arguments {
            Ok(arguments @ Value::Object(_)) => {
                Ok(ToolCall { id: self.id.clone(), name: self.function.name.clone(), arguments })
            }
            _ => Err(ApiError::field(format!("{place}.function.arguments"), "the arguments are not a JSON object")),
        }
    }
}
