//! Ids to text while they arrive, and where text has to stop.
//!
//! Owns: the bytes of a character that is not complete yet, and the text that may still become a stop string.
//! Always true: what comes out, put together, depends on all that went in and not on how it was cut.
//! Not here: what the text means (`parse`), stop ids (`generation`).

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::text::tokenizer::Tokenizer;

/// Ids to text, a whole character at a time. Special tokens are left out; other added tokens (`<think>`, `<tool_call>`)
/// are text (spec 6.1).
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    /// The beginning of a character, at most three bytes.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// At the beginning of a text.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Detokenizer {
        Detokenizer { tokenizer, pending: Vec::new() }
    }

    /// The text that `id` completes. Bytes that no character begins with are U+FFFD, as in `String::from_utf8_lossy`.
    pub fn push(&mut self, id: u32) -> String {
        if self.tokenizer.is_special(id) {
            return String::new();
        }
        self.pending.extend_from_slice(self.tokenizer.bytes(id));
        let kept = self.pending.len() - incomplete(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..kept]).into_owned();
        self.pending.drain(..kept);
        text
    }

    /// What is left at the end: a character cut short is U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// How many bytes at the end are the beginning of a character.
fn incomplete(bytes: &[u8]) -> usize {
    // A character has four bytes at most, so the last three hold all beginnings.
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    (1..=tail.len())
        .find(|&n| {
            let ending = std::str::from_utf8(&tail[tail.len() - n..]);
            ending.is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .unwrap_or(0)
}

/// Ends a text before the first of some strings.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<String>,
    /// A suffix of the text so far that a stop string begins with.
    held: String,
    /// Which of them was found.
    found: Option<usize>,
}

impl StopStrings {
    /// For any number of strings.
    ///
    /// Errors: `Error::Invalid` if one is empty, since it would stop everything.
    pub fn new(stops: Vec<String>) -> Result<StopStrings> {
        if stops.iter().any(String::is_empty) {
            return Err(Error::invalid("a stop string is empty: leave it out or write at least one character"));
        }
        Ok(StopStrings { stops, held: String::new(), found: None })
    }

    /// Text that can be shown now, and whether a stop string was found: it and all that follows are swallowed.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.found.is_some() {
            return (String::new(), true);
        }
        self.held.push_str(text);
        // The string that is complete first wins, and of those the one that began first, so that the cut does not
        // depend on how much text arrived at once.
        let ends = self.stops.iter().enumerate().filter_map(|(which, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, which))
        });
        if let Some((_, start, which)) = ends.min() {
            self.found = Some(which);
            self.held.truncate(start);
            return (std::mem::take(&mut self.held), true);
        }
        let shown = self.held.len() - self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(shown);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The string that ended the text.
    pub fn found(&self) -> Option<&str> {
        self.found.map(|which| self.stops[which].as_str())
    }

    /// The text that was held back and did not become a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length of the longest end of `text` that `stop` begins with, short of all of it.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest).rev().find(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_held_back_and_junk_is_not() {
        for (bytes, held) in [
            (&b""[..], 0),
            (b"abc", 0),
            (b"a\xc3", 1),
            (b"\xe2\x82", 2),
            (b"\xf0\x9f\x91", 3),
            (b"\xf0\x9f\x91\x8d", 0),
            (b"\x80\x80\x80", 0),
            (b"\xe2\x28", 0),
            (b"\xff", 0),
            (b"\xed\xa0", 0),
            (b"\xf0\x9f\xf0", 1),
        ] {
            assert_eq!(incomplete(bytes), held, "{bytes:x?}");
        }
    }

    #[test]
    fn text_is_held_back_only_while_it_may_become_a_stop_string() {
        let mut stops = StopStrings::new(vec!["END".into(), "\n\n".into()]).unwrap();
        assert_eq!(stops.push("a\n"), ("a".into(), false));
        assert_eq!(stops.push("bEN"), ("\nb".into(), false));
        assert_eq!(stops.push("EN"), ("EN".into(), false));
        assert_eq!(stops.push("D and more"), (String::new(), true));
        assert_eq!(stops.push("more"), (String::new(), true));
        assert_eq!(stops.finish(), "");
    }

    #[test]
    fn held_text_comes_out_at_the_end() {
        let mut stops = StopStrings::new(vec!["STOP".into()]).unwrap();
        assert_eq!(stops.push("no STO"), ("no ".into(), false));
        assert_eq!(stops.finish(), "STO");
    }

    #[test]
    fn an_empty_stop_string_is_refused_and_none_lets_all_through() {
        assert!(matches!(StopStrings::new(vec![String::new()]), Err(Error::Invalid(_))));
        assert_eq!(StopStrings::new(vec![]).unwrap().push("abc"), ("abc".into(), false));
    }
}
