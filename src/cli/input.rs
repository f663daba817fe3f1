//! The text or the token ids that a verb works on.
//!
//! Owns: where they come from (argument, option, file, standard input) and the sentences when they are not usable.
//! Always true: text is passed on as it is, with every white space; it is valid UTF-8 and never empty.
//! Not here: tokens (`text`), the context's size (`engine`).

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use super::Failure;
use super::args::InputArgs;
use crate::error::{Error, Result};

/// The text that `args` name, else standard input unless it is a terminal.
pub fn text(args: &InputArgs) -> Result<String, Failure> {
    let given = args.text.as_ref().or(args.prompt.as_ref());
    let text = match (given, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) if path.as_os_str() != "-" => file(path)?,
        (None, None) if io::stdin().is_terminal() => {
            return Err(Failure::Usage(
                "no text: give it as PROMPT, with -p, in a file with -f, or on standard input".into(),
            ));
        }
        _ => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map_err(Error::io("cannot read standard input"))?;
            utf8(bytes, "standard input")?
        }
    };
    if text.trim().is_empty() {
        return Err(Failure::Usage("the prompt is empty: give at least one character that is not white space".into()));
    }
    Ok(text)
}

/// A file's text.
fn file(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    utf8(fs::read(path).map_err(Error::io(format!("cannot read {name}")))?, &name)
}

fn utf8(bytes: Vec<u8>, name: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        Error::Invalid(format!(
            "{name} is not UTF-8 text: byte {at} (0x{byte:02x}) starts no valid character; convert it first, for example with iconv"
        ))
    })
}

/// The ids of a file, separated by white space.
pub fn token_ids(path: &Path) -> Result<Vec<u32>> {
    let name = path.display();
    let mut ids = Vec::new();
    for (line, words) in file(path)?.lines().enumerate() {
        for word in words.split_whitespace() {
            ids.push(word.parse().map_err(|_| {
                Error::Invalid(format!("{name}, line {}: '{word}' is not a token id (a whole number from 0)", line + 1))
            })?);
        }
    }
    match ids.is_empty() {
        true => Err(Error::Invalid(format!("{name} holds no token ids: write them separated by white space"))),
        false => Ok(ids),
    }
}
