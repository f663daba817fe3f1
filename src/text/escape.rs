//! Keeps user text apart from the template's through a rendering.
//!
//! Owns: hiding, in every string a user wrote, the characters an added token can begin with, and showing them again.
//! Always true: `show(hide(text)) == text` for every text; hidden text holds none of those characters, so a token found
//! in a rendered prompt was begun by the template. Hiding is one character for one (unless the user wrote one of the
//! 32 noncharacters U+FDD0..U+FDEF, which Unicode keeps for uses like this), so trims and slices work as before.
//! Not here: which strings are the user's (`template`), finding the tokens (`tokenizer`).

use crate::error::{Error, Result};
use crate::text::tokenizer::AddedToken;

/// Stands before a noncharacter that the user wrote.
const LITERAL: char = '\u{fdd0}';
/// The first stand-in; as many follow as there are noncharacters left in the block.
const STAND_IN: u32 = 0xfdd1;
const STAND_INS: usize = 31;

/// The characters to hide, each with its stand-in by position.
#[derive(Debug, Clone)]
pub struct Escape {
    firsts: Vec<char>,
}

impl Escape {
    /// For the tokens of one tokenizer.
    ///
    /// Errors: `Error::Model` if they begin with more than 31 different characters.
    pub fn new(added: &[AddedToken]) -> Result<Escape> {
        let mut firsts: Vec<char> = added.iter().filter_map(|t| t.content.chars().next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        if firsts.len() > STAND_INS {
            return Err(Error::model(format!(
                "the tokenizer's added tokens begin with {} different characters, and {STAND_INS} can be kept apart \
                 from the text of a chat; use --raw",
                firsts.len()
            )));
        }
        Ok(Escape { firsts })
    }

    /// `text` without a character that an added token begins with.
    pub fn hide(&self, text: &str) -> String {
        let mut hidden = String::with_capacity(text.len());
        for c in text.chars() {
            let stand_in = self.firsts.iter().zip(STAND_IN..).find(|(first, _)| **first == c);
            match stand_in.and_then(|(_, code)| char::from_u32(code)) {
                Some(stand_in) => hidden.push(stand_in),
                None => {
                    if ('\u{fdd0}'..='\u{fdef}').contains(&c) {
                        hidden.push(LITERAL);
                    }
                    hidden.push(c);
                }
            }
        }
        hidden
    }

    /// The text that was hidden.
    pub fn show(&self, hidden: &str) -> String {
        let mut text = String::with_capacity(hidden.len());
        let mut chars = hidden.chars();
        while let Some(c) = chars.next() {
            match (c as u32).checked_sub(STAND_IN).and_then(|at| self.firsts.get(at as usize)) {
                Some(&first) => text.push(first),
                None if c == LITERAL => text.extend(chars.next()),
                None => text.push(c),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn escape() -> Escape {
        let token = |id, content: &str| AddedToken { id, content: content.into(), special: true };
        Escape::new(&[token(0, "<a>"), token(1, "<b>"), token(2, "\u{ff5c}x"), token(3, "[P]")]).unwrap()
    }

    proptest! {
        #[test]
        fn hiding_loses_nothing_and_leaves_no_first_character(text in "(\\PC|[<\\[\u{ff5c}\u{fdd0}-\u{fdef}]){0,40}") {
            let hidden = escape().hide(&text);
            let shows = hidden.contains(['<', '[', '\u{ff5c}']);
            prop_assert!(!shows);
            prop_assert_eq!(escape().show(&hidden), text);
        }
    }

    #[test]
    fn too_many_first_characters_are_an_error() {
        let tokens: Vec<_> =
            ('A'..='`').map(|c| AddedToken { id: c as u32, content: c.to_string(), special: true }).collect();
        assert!(Escape::new(&tokens[..31]).is_ok());
        assert!(matches!(Escape::new(&tokens), Err(Error::Model(_))));
    }
}
