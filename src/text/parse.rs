//! The answer, split while it arrives into reasoning, content and tool calls (spec 6.3).
//!
//! Owns: where each part begins and ends, and the arguments of a call as JSON.
//! Always true: `<think>`, `</think>`, `<tool_call>` and `</tool_call>` count only as the ids of added tokens, so text
//! that looks like one is text; the events, put together, do not depend on how the text was cut; of a call that does
//! not follow the format every character arrives as content.
//! Not here: ids to text (`stream`), types of parameters (`schema`). Stop strings apply behind this, to the content.
//!
//! White space around a part is the template's and left out: around reasoning, before content that follows a tag, and
//! between content and a call.

use serde_json::{Map, Value};

use crate::text::schema::Types;
use crate::text::tokenizer::Tokenizer;

/// A piece of an answer. Pieces of one kind follow each other until another kind begins.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Thinking.
    Reasoning(String),
    /// The answer proper.
    Content(String),
    /// A call begins; calls count from 0.
    ToolStart {
        /// Which call of this answer.
        index: usize,
        /// The function.
        name: String,
    },
    /// More of a call's arguments.
    ToolArgument {
        /// Which call of this answer.
        index: usize,
        /// The parameter.
        parameter: String,
        /// What the model wrote of its value, as it wrote it.
        text: String,
        /// The next piece of the arguments as one JSON object. A string's characters come as they arrive, another
        /// type's value when it is complete. With the last piece from [`Event::ToolEnd`] the object is complete.
        json: String,
    },
    /// A call is complete.
    ToolEnd {
        /// Which call of this answer.
        index: usize,
        /// All arguments, each of a type that the tool's schema allows.
        arguments: Map<String, Value>,
        /// Closes the JSON object.
        json: String,
    },
    /// A call that began does not follow the format; it comes again, whole, as content.
    ToolBroken {
        /// Which call of this answer.
        index: usize,
    },
}

/// Splits one answer.
pub struct AnswerParser {
    tags: [Option<u32>; 4],
    tools: Vec<Value>,
    state: State,
    /// White space that is shown only if more of the same part follows.
    held: String,
    /// Nothing of this part was shown yet, and white space before it is left out.
    blank: bool,
    /// A call ended at `</function>`, and its `</tool_call>` is due.
    closing: bool,
    calls: usize,
    events: Vec<Event>,
}

enum State {
    Reasoning,
    Content,
    Call(Box<Call>),
}

const TAGS: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
const THINK: usize = 0;
const THOUGHT: usize = 1;
const CALL: usize = 2;
const CALLED: usize = 3;

impl AnswerParser {
    /// At the beginning of an answer. `tools` as in [`crate::text::Conversation`]; `thinking` says that the prompt
    /// opened the thinking block ([`crate::text::Rendered::opens_thinking`]).
    pub fn new(tokenizer: &Tokenizer, tools: &[Value], thinking: bool) -> AnswerParser {
        AnswerParser {
            tags: TAGS.map(|tag| tokenizer.added_id(tag)),
            tools: tools.to_vec(),
            state: if thinking { State::Reasoning } else { State::Content },
            held: String::new(),
            blank: thinking,
            closing: false,
            calls: 0,
            events: Vec::new(),
        }
    }

    /// Whether the answer is inside its thinking.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning)
    }

    /// Whether the answer is in its content proper: neither thinking nor a call.
    pub fn is_content(&self) -> bool {
        matches!(self.state, State::Content)
    }

    /// The next token and the text that it completed (from [`crate::text::Detokenizer`]; may be empty).
    pub fn push(&mut self, id: u32, piece: &str) -> Vec<Event> {
        match self.tags.iter().position(|tag| *tag == Some(id)) {
            None => self.text(piece),
            Some(tag) => {
                // Before a tag may stand the replacement of a character that was cut short.
                self.text(piece.strip_suffix(TAGS[tag]).unwrap_or_default());
                self.tag(tag);
            }
        }
        std::mem::take(&mut self.events)
    }

    /// The end of the answer, `rest` being what the detokenizer still held.
    pub fn finish(&mut self, rest: &str) -> Vec<Event> {
        self.text(rest);
        if matches!(self.state, State::Call(_)) {
            // A call cut short could lack a parameter: it must not be made.
            self.broken();
        }
        if matches!(self.state, State::Content) && !self.held.is_empty() {
            self.events.push(Event::Content(std::mem::take(&mut self.held)));
        }
        std::mem::take(&mut self.events)
    }

    fn tag(&mut self, tag: usize) {
        match (&mut self.state, tag) {
            (State::Reasoning, THINK) if self.blank => {}
            (State::Reasoning, THOUGHT) => self.begin(State::Content),
            (State::Content, THINK) => self.begin(State::Reasoning),
            (State::Content, CALL) => self.open_call(),
            (State::Content, CALLED) if self.closing => {
                self.begin(State::Content);
                self.closing = false;
            }
            (State::Call(call), CALL) if !matches!(call.stage, Stage::Value(_)) => {
                self.broken();
                self.open_call();
            }
            (State::Call(call), CALLED) => match call.close(&mut self.events) {
                true => self.begin(State::Content),
                false => {
                    call.raw.push_str(TAGS[CALLED]);
                    self.broken();
                }
            },
            _ => self.text(TAGS[tag]),
        }
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.held.clear();
        self.blank = true;
    }

    fn open_call(&mut self) {
        let raw = std::mem::take(&mut self.held) + TAGS[CALL];
        self.closing = false;
        self.state = State::Call(Box::new(Call::new(self.calls, raw)));
    }

    /// Gives the call back as content.
    fn broken(&mut self) {
        let State::Call(call) = std::mem::replace(&mut self.state, State::Content) else { return };
        if call.begun {
            self.events.push(Event::ToolBroken { index: call.index });
            self.calls += 1;
        }
        self.blank = false;
        self.text(&call.raw);
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let State::Call(call) = &mut self.state else { return self.show(text) };
        match call.push(text, &self.tools, &mut self.events) {
            Step::More => {}
            Step::Broken => self.broken(),
            Step::Done(rest) => {
                self.calls += 1;
                self.begin(State::Content);
                self.closing = true;
                self.show(&rest);
            }
        }
    }

    /// Reasoning or content, its white space at both ends kept back.
    fn show(&mut self, text: &str) {
        self.held.push_str(text);
        if self.blank {
            let leading = self.held.len() - self.held.trim_start().len();
            self.held.drain(..leading);
        }
        let rest = self.held.split_off(self.held.trim_end().len());
        let shown = std::mem::replace(&mut self.held, rest);
        if shown.is_empty() {
            return;
        }
        self.blank = false;
        self.events.push(match self.state {
            State::Reasoning => Event::Reasoning(shown),
            _ => Event::Content(shown),
        });
    }
}

/// A call that is being written: `<function=NAME>`, then `<parameter=NAME>` VALUE `</parameter>` as often as it likes,
/// then `</function>`, with white space between.
struct Call {
    index: usize,
    /// All of it so far, for the case that it breaks.
    raw: String,
    /// What is not understood yet.
    buffer: String,
    stage: Stage,
    name: String,
    begun: bool,
    arguments: Map<String, Value>,
    /// A parameter was written into the JSON object.
    opened: bool,
}

enum Stage {
    Function,
    Between,
    Value(Parameter),
}

struct Parameter {
    name: String,
    types: Types,
    /// Its value so far.
    text: String,
    /// The first character did not come yet: if it is a line feed, it is the template's.
    fresh: bool,
    /// It is certainly a string, and what came is in the JSON object.
    streaming: bool,
}

enum Step {
    More,
    Broken,
    /// Complete, and text follows.
    Done(String),
}

const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

impl Call {
    fn new(index: usize, raw: String) -> Call {
        Call {
            index,
            raw,
            buffer: String::new(),
            stage: Stage::Function,
            name: String::new(),
            begun: false,
            arguments: Map::new(),
            opened: false,
        }
    }

    fn push(&mut self, text: &str, tools: &[Value], events: &mut Vec<Event>) -> Step {
        self.raw.push_str(text);
        self.buffer.push_str(text);
        loop {
            let advanced = match &self.stage {
                Stage::Function => match opening(&self.buffer, FUNCTION) {
                    Found::Name(name, end) => {
                        self.buffer.drain(..end);
                        self.name = name.clone();
                        self.begun = true;
                        self.stage = Stage::Between;
                        events.push(Event::ToolStart { index: self.index, name });
                        true
                    }
                    Found::Perhaps => false,
                    Found::Not => return Step::Broken,
                },
                Stage::Between => {
                    if let Some(rest) = self.buffer.trim_start().strip_prefix(FUNCTION_END) {
                        let rest = rest.to_owned();
                        self.end(events);
                        return Step::Done(rest);
                    }
                    match opening(&self.buffer, PARAMETER) {
                        Found::Name(name, end) => {
                            self.buffer.drain(..end);
                            let types = Types::of(tools, &self.name, &name);
                            let (text, fresh, streaming) = (String::new(), true, false);
                            self.stage = Stage::Value(Parameter { name, types, text, fresh, streaming });
                            true
                        }
                        Found::Perhaps => false,
                        Found::Not if FUNCTION_END.starts_with(self.buffer.trim_start()) => false,
                        Found::Not => return Step::Broken,
                    }
                }
                Stage::Value(_) => self.value(events),
            };
            if !advanced {
                return Step::More;
            }
        }
    }

    /// Takes of the value what is certain. True if the value ended.
    ///
    /// It ends at the first `</parameter>` behind which the call goes on, so that a value may speak of the tag.
    fn value(&mut self, events: &mut Vec<Event>) -> bool {
        self.strip_first_line_feed();
        let mut from = 0;
        while let Some(found) = self.buffer[from..].find(PARAMETER_END) {
            let (at, behind) = (from + found, from + found + PARAMETER_END.len());
            let next = self.buffer[behind..].trim_start();
            if [PARAMETER, FUNCTION_END].iter().any(|tag| next.starts_with(tag)) {
                self.end_value(at, behind, events);
                return true;
            }
            if [PARAMETER, FUNCTION_END].iter().any(|tag| tag.starts_with(next)) {
                self.take(at - usize::from(self.buffer[..at].ends_with('\n')), events);
                return false;
            }
            from = behind;
        }
        let line_end = "\n</parameter>";
        let beginning = |n: &usize| {
            let end = &self.buffer.as_bytes()[self.buffer.len() - n..];
            line_end.as_bytes().starts_with(end) || PARAMETER_END.as_bytes().starts_with(end)
        };
        let kept = (1..=self.buffer.len().min(line_end.len())).rev().find(beginning).unwrap_or(0);
        self.take(self.buffer.len() - kept, events);
        false
    }

    fn strip_first_line_feed(&mut self) {
        if let Stage::Value(parameter) = &mut self.stage
            && !self.buffer.is_empty()
        {
            if parameter.fresh && self.buffer.starts_with('\n') {
                self.buffer.drain(..1);
            }
            parameter.fresh = false;
        }
    }

    /// Moves `length` bytes of the buffer into the value.
    fn take(&mut self, length: usize, events: &mut Vec<Event>) {
        let Stage::Value(parameter) = &mut self.stage else { return };
        if length == 0 {
            return;
        }
        let text: String = self.buffer.drain(..length).collect();
        parameter.text.push_str(&text);
        let mut json = String::new();
        if parameter.streaming {
            json = quoted(&text);
            json = json[1..json.len() - 1].to_owned();
        } else if parameter.types.is_string(&parameter.text) {
            parameter.streaming = true;
            let value = quoted(&parameter.text);
            json = key(&mut self.opened, &parameter.name) + &value[..value.len() - 1];
        }
        events.push(Event::ToolArgument { index: self.index, parameter: parameter.name.clone(), text, json });
    }

    /// The value ends before `at` in the buffer, its tag before `behind`.
    fn end_value(&mut self, at: usize, behind: usize, events: &mut Vec<Event>) {
        let length = at - usize::from(self.buffer[..at].ends_with('\n'));
        self.take(length, events);
        self.buffer.drain(..behind - length);
        let Stage::Value(parameter) = std::mem::replace(&mut self.stage, Stage::Between) else { return };
        let Parameter { name, types, text, streaming, .. } = parameter;
        let (value, json) = if streaming {
            (Value::String(text), "\"".to_owned())
        } else {
            let value = types.convert(&text);
            let json = key(&mut self.opened, &name) + &value.to_string();
            (value, json)
        };
        let text = String::new();
        events.push(Event::ToolArgument { index: self.index, parameter: name.clone(), text, json });
        self.arguments.insert(name, value);
    }

    fn end(&mut self, events: &mut Vec<Event>) {
        let json = if self.opened { "}" } else { "{}" }.to_owned();
        events.push(Event::ToolEnd { index: self.index, arguments: std::mem::take(&mut self.arguments), json });
    }

    /// `</tool_call>` came: true if only `</function>` is missing, and the call is complete without it.
    fn close(&mut self, events: &mut Vec<Event>) -> bool {
        if matches!(self.stage, Stage::Value(_)) && self.buffer.trim_end().ends_with(PARAMETER_END) {
            self.strip_first_line_feed();
            let at = self.buffer.trim_end().len() - PARAMETER_END.len();
            self.end_value(at, at + PARAMETER_END.len(), events);
        }
        let complete = matches!(self.stage, Stage::Between) && self.buffer.trim().is_empty();
        if complete {
            self.end(events);
        }
        complete
    }
}

/// What a buffer begins with, white space aside.
enum Found {
    /// The tag with this name; it ends here.
    Name(String, usize),
    /// Perhaps the tag, once more has come.
    Perhaps,
    Not,
}

/// Looks for `tag`, a name and `>`.
fn opening(buffer: &str, tag: &str) -> Found {
    let trimmed = buffer.trim_start();
    let Some(rest) = trimmed.strip_prefix(tag) else {
        return if tag.starts_with(trimmed) { Found::Perhaps } else { Found::Not };
    };
    match rest.split_once(['>', '\n']) {
        None => Found::Perhaps,
        Some((name, behind)) if !name.is_empty() && rest[name.len()..].starts_with('>') => {
            Found::Name(name.to_owned(), buffer.len() - behind.len())
        }
        Some(_) => Found::Not,
    }
}

/// What stands before a value in the JSON object.
fn key(opened: &mut bool, name: &str) -> String {
    let before = if std::mem::replace(opened, true) { ',' } else { '{' };
    format!("{before}{}:", quoted(name))
}

/// A JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
