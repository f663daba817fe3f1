//! `hipfire chat`: a conversation in the terminal.
//!
//! Owns: the loop of lines and answers, the commands, what is kept of a conversation.
//! Always true: only answers go to standard output; an answer that was stopped stays in the conversation as far as it
//! came; a failed one is taken back with its question.
//! Not here: who answers (`local`, `remote`).

mod local;
mod remote;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::Failure;
use super::args::{ModelArgs, SamplingArgs};
use super::speculation::SpeculationArgs;
use super::thinking::ThinkingArgs;
use super::ui::{Output, Ui};
use super::values;
use crate::engine::Cancel;
use crate::error::{Error, Result};
use crate::text::{Message, Role};

/// `hipfire chat`.
#[derive(Debug, Clone, Args)]
pub struct ChatArgs {
    /// A server to talk to instead of a model loaded here, as http://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The server's key; better in HIPFIRE_API_KEY
    #[arg(long, value_name = "KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// System message
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// The most tokens of an answer [default: what the context holds]
    #[arg(short = 'n', long, value_name = "N", value_parser = values::positive_size)]
    pub max_tokens: Option<usize>,
    /// Whether and how long to think.
    #[command(flatten)]
    pub thinking: ThinkingArgs,
    /// Speculation.
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// A piece of an answer.
enum Piece<'t> {
    /// Thinking.
    Reasoning(&'t str),
    /// The answer proper.
    Content(&'t str),
}

/// Whoever answers.
trait Partner {
    /// Answers the conversation; `say` gets every piece as it comes. An answer that is stopped ends without an error.
    fn answer(
        &mut self,
        messages: &[Message],
        stop: &Cancel,
        say: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()>;
}

const HELP: &str = "\
/system TEXT  begin anew with this system message (without TEXT: with none)
/reset        begin anew
/save FILE    write the conversation as JSON
/quit         end (so does Ctrl-D); Ctrl-C stops an answer
";

/// What a line asks for.
#[derive(Debug, PartialEq)]
enum Line<'l> {
    Nothing,
    Say(&'l str),
    System(&'l str),
    Reset,
    Save(&'l Path),
    Help,
    Quit,
    Unknown(&'l str),
}

impl Line<'_> {
    fn read(line: &str) -> Line<'_> {
        let line = line.trim();
        let Some(command) = line.strip_prefix('/') else {
            return if line.is_empty() { Line::Nothing } else { Line::Say(line) };
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        match (name, rest.trim()) {
            ("system", text) => Line::System(text),
            ("reset", "") => Line::Reset,
            ("save", file) if !file.is_empty() => Line::Save(Path::new(file)),
            ("help" | "?", _) => Line::Help,
            ("quit" | "exit", "") => Line::Quit,
            _ => Line::Unknown(line),
        }
    }
}

/// Talks until the input ends.
pub fn chat(args: &ChatArgs, ui: Ui) -> Result<(), Failure> {
    let stopped = Arc::new(AtomicBool::new(false));
    // In this order: a second Ctrl-C ends a program that does not react to the first.
    flag::register_conditional_shutdown(SIGINT, 130, stopped.clone())
        .and_then(|_| flag::register(SIGINT, stopped.clone()))
        .map_err(Error::io("cannot listen for Ctrl-C"))?;
    let mut partner: Box<dyn Partner> = match &args.url {
        Some(url) => Box::new(remote::Remote::new(url, args)?),
        None => Box::new(local::Local::new(args, &ui)?),
    };
    let mut talk = Talk::new(args, ui);
    let mut lines = Lines::open(args.system.is_none())?;
    while let Some(line) = lines.next()? {
        stopped.store(false, Ordering::Relaxed);
        match Line::read(&line) {
            Line::Nothing => {}
            Line::Quit => break,
            Line::Help => talk.note(HELP),
            Line::Unknown(line) => talk.note(&format!("{line} is not a command; /help lists them\n")),
            Line::Reset => talk.messages.retain(|message| message.role == Role::System),
            Line::System(text) => talk.begin(Some(text)),
            Line::Save(path) => match talk.save(path) {
                Ok(()) => talk.note(&format!("saved in {}\n", path.display())),
                Err(error) => talk.note(&format!("{error}\n")),
            },
            Line::Say(text) => talk.say(text, partner.as_mut(), &Cancel::from_flag(stopped.clone()))?,
        }
        stopped.store(false, Ordering::Relaxed);
    }
    lines.close();
    Ok(())
}

/// A conversation so far.
struct Talk {
    messages: Vec<Message>,
    ui: Ui,
    show_thinking: bool,
}

impl Talk {
    fn new(args: &ChatArgs, ui: Ui) -> Talk {
        let mut talk = Talk { messages: Vec::new(), ui, show_thinking: args.thinking.show_thinking || ui.err_terminal };
        talk.begin(args.system.as_deref());
        talk
    }

    fn begin(&mut self, system: Option<&str>) {
        self.messages.clear();
        self.messages.extend(system.filter(|text| !text.is_empty()).map(|text| Message::new(Role::System, text)));
    }

    fn note(&self, text: &str) {
        self.ui.dim(text);
    }

    /// Asks, and shows the answer. Only a failed output ends the chat: whatever else is wrong may be right next time.
    fn say(&mut self, text: &str, partner: &mut dyn Partner, stop: &Cancel) -> Result<()> {
        self.messages.push(Message::new(Role::User, text));
        let mut output = Output::new();
        let (mut content, mut reasoning) = (String::new(), String::new());
        let answered = partner.answer(&self.messages, stop, &mut |piece| match piece {
            Piece::Reasoning(text) => {
                reasoning.push_str(text);
                if self.show_thinking {
                    self.ui.dim(text);
                }
                Ok(())
            }
            Piece::Content(text) => {
                if content.is_empty() && !reasoning.is_empty() && self.show_thinking {
                    self.ui.dim("\n\n");
                }
                content.push_str(text);
                output.text(text)
            }
        });
        if !content.is_empty() || answered.is_ok() {
            output.text("\n")?;
        }
        match answered {
            Ok(()) => {
                let mut message = Message::new(Role::Assistant, content);
                message.reasoning_content = Some(reasoning).filter(|text| !text.is_empty());
                self.messages.push(message);
                if stop.is_cancelled() {
                    self.note("(stopped)\n");
                }
                Ok(())
            }
            Err(error @ Error::Io { .. }) if output.text("").is_err() => Err(error),
            Err(error) => {
                self.messages.pop();
                self.note(&format!("error: {error}\n"));
                Ok(())
            }
        }
    }

    fn save(&self, path: &Path) -> Result<()> {
        let messages: Value = self.messages.iter().map(wire).collect();
        let text = format!("{:#}\n", json!({"messages": messages}));
        std::fs::write(path, text).map_err(Error::io(format!("cannot write {}", path.display())))
    }
}

/// A message in OpenAI's form.
fn wire(message: &Message) -> Value {
    let mut value = json!({"role": message.role.name(), "content": message.content});
    if let Some(reasoning) = &message.reasoning_content {
        value["reasoning_content"] = reasoning.as_str().into();
    }
    value
}

/// Where lines come from: an editor with a history on a terminal, else standard input as it is.
struct Lines {
    editor: Option<(rustyline::Editor<(), FileHistory>, Option<PathBuf>)>,
}

impl Lines {
    fn open(greet: bool) -> Result<Lines> {
        if !std::io::stdin().is_terminal() {
            return Ok(Lines { editor: None });
        }
        let failed = |error: ReadlineError| Error::invalid(format!("the terminal cannot be read: {error}"));
        let mut editor = rustyline::DefaultEditor::new().map_err(failed)?;
        let history = history();
        if let Some(path) = &history {
            // The first chat has no history yet.
            let _ = editor.load_history(path);
        }
        if greet {
            let _ = writeln!(std::io::stderr(), "/help lists the commands");
        }
        Ok(Lines { editor: Some((editor, history)) })
    }

    /// The next line; `None` at the end of the input, or for a second Ctrl-C.
    fn next(&mut self) -> Result<Option<String>> {
        let Some((editor, _)) = &mut self.editor else {
            let mut line = String::new();
            let read = std::io::stdin().read_line(&mut line).map_err(Error::io("cannot read standard input"))?;
            return Ok((read > 0).then_some(line));
        };
        let mut interrupted = false;
        loop {
            match editor.readline("> ") {
                Ok(line) => {
                    // A line that is not remembered is no reason to end.
                    let _ = editor.add_history_entry(line.as_str());
                    return Ok(Some(line));
                }
                Err(ReadlineError::Interrupted) if !interrupted => {
                    interrupted = true;
                    let _ = writeln!(std::io::stderr(), "(Ctrl-D ends)");
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(None),
                Err(error) => return Err(Error::invalid(format!("the terminal cannot be read: {error}"))),
            }
        }
    }

    fn close(mut self) {
        if let Some((editor, Some(path))) = &mut self.editor {
            let saved = path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::from);
            if let Err(error) = saved.and_then(|()| editor.save_history(path)) {
                tracing::debug!("the history was not saved in {}: {error}", path.display());
            }
        }
    }
}

/// The file that keeps earlier lines.
fn history() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("hipfire/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_unless_it_begins_with_a_slash() {
        assert_eq!(Line::read(" hello \n"), Line::Say("hello"));
        assert_eq!(Line::read("\n"), Line::Nothing);
        assert_eq!(Line::read("/system  Be brief. "), Line::System("Be brief."));
        assert_eq!(Line::read("/system"), Line::System(""));
        assert_eq!(Line::read("/save a b.json"), Line::Save(Path::new("a b.json")));
        assert_eq!(Line::read("/save"), Line::Unknown("/save"));
        assert_eq!(Line::read("/reset"), Line::Reset);
        assert_eq!(Line::read("/sing"), Line::Unknown("/sing"));
    }
}
