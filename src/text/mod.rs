//! Text in and out of the model: ids, prompts, the answer's parts.
//!
//! Owns: tokenizer, chat template, incremental decoding, stop strings, the split of an answer into reasoning, content
//! and tool calls, and the companion file generation_config.json.
//! Always true: everything here is a pure function of files and strings; text written by a user never becomes a
//! special token.
//! Not here: sampling and constraints (`engine`), shapes of HTTP requests (`server`), config.json (`model::config`).

mod escape;
pub mod generation;
pub mod parse;
mod python;
mod schema;
pub mod stream;
pub mod template;
pub mod tokenizer;

pub use generation::{GenerationConfig, stop_ids};
pub use parse::{AnswerParser, Event};
pub use stream::{Detokenizer, StopStrings};
pub use template::{Conversation, Message, Rendered, Role, Template, ToolCall};

pub use tokenizer::{AddedToken, Tokenizer};
