//! What a user asked of speculation, against what the model has.
//!
//! Owns: the defaults, the ranked list of ids that drafts are chosen from.
//! Always true: what was asked for and cannot be had is an error before anything is loaded; a default never is.
//! Not here: flags (`cli`), the rounds (`speculate`).

use std::path::{Path, PathBuf};

use super::accept::Rule;
use super::{Depth, MAX_DRAFTS, Speculation};
use crate::error::{Error, Result};
use crate::weights::Source;

/// Drafts of a round where the model has a head and nobody chose (spec 4.3).
const DEFAULT_DRAFTS: usize = 3;

/// The list's name in a model's folder.
pub const VOCABULARY_FILE: &str = "draft_vocabulary.txt";

/// The choices. `Default` leaves all of them to the program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpeculationOptions {
    /// How many tokens to draft; none: three where the model has a head.
    pub depth: Option<Depth>,
    /// Accept what is typical instead of what keeps the law exact.
    pub typical: Option<f64>,
    /// A ranked list of ids instead of the model's own.
    pub vocabulary: Option<PathBuf>,
}

impl SpeculationOptions {
    /// Without drafts.
    pub fn off() -> SpeculationOptions {
        SpeculationOptions { depth: Some(Depth::Fixed(0)), ..SpeculationOptions::default() }
    }

    /// What holds for a model.
    ///
    /// # Errors
    /// `Invalid`, if drafts were asked for and the model has no head, or a value is out of range.
    pub fn resolve(&self, has_head: bool) -> Result<Speculation> {
        let depth = match self.depth {
            Some(depth) if depth.most() > 0 && !has_head => {
                return Err(Error::invalid("this model has no MTP head that could draft: use --mtp 0"));
            }
            Some(Depth::Fixed(depth)) if depth > MAX_DRAFTS => {
                return Err(Error::invalid(format!(
                    "--mtp {depth} is more than a step verifies: use 0 to {MAX_DRAFTS}"
                )));
            }
            Some(depth) => depth,
            None if has_head => Depth::Fixed(DEFAULT_DRAFTS),
            None => Depth::Fixed(0),
        };
        let rule = match self.typical {
            Some(threshold) if !(0.0..=1.0).contains(&threshold) => {
                return Err(Error::invalid(format!("--typical-threshold {threshold}: use a number from 0 to 1")));
            }
            Some(threshold) => Rule::Typical(threshold),
            None => Rule::Exact,
        };
        Ok(Speculation { depth, rule })
    }

    /// The ids that drafts are chosen from: those of the named file, or of the model's own list if it has one.
    ///
    /// # Errors
    /// `Io` for the file, `Invalid` for what it says, naming the line.
    pub fn draft_ids(&self, source: &Source, vocab: usize) -> Result<Option<Vec<u32>>> {
        if let Some(path) = &self.vocabulary {
            let what = format!("cannot read the draft vocabulary {}", path.display());
            let text = std::fs::read_to_string(path).map_err(Error::io(what))?;
            return parse(&text, path, vocab).map(Some);
        }
        let Some(bytes) = source.file(VOCABULARY_FILE)? else { return Ok(None) };
        let path = Path::new(VOCABULARY_FILE);
        let text = std::str::from_utf8(&bytes).map_err(|error| wrong(path, 1, &error.to_string()))?;
        parse(text, path, vocab).map(Some)
    }
}

/// Ids separated by white space, most likely first. A second mention of an id is left out.
fn parse(text: &str, path: &Path, vocab: usize) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    let mut seen = vec![false; vocab];
    for (line, words) in text.lines().enumerate() {
        for word in words.split_whitespace() {
            let id: u32 = word.parse().map_err(|_| wrong(path, line + 1, &format!("'{word}' is not a token id")))?;
            let place = seen.get_mut(id as usize).ok_or_else(|| {
                wrong(path, line + 1, &format!("the vocabulary has no token {id}: its ids end at {}", vocab - 1))
            })?;
            if !std::mem::replace(place, true) {
                ids.push(id);
            }
        }
    }
    if ids.is_empty() {
        return Err(wrong(path, 1, "it names no token"));
    }
    Ok(ids)
}

fn wrong(path: &Path, line: usize, what: &str) -> Error {
    Error::invalid(format!("the draft vocabulary {}, line {line}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_with_a_head_drafts_three_and_one_without_refuses_only_what_was_asked() {
        let choice = |depth| SpeculationOptions { depth, ..SpeculationOptions::default() };
        let depth = |choice: SpeculationOptions, head| choice.resolve(head).map(|s| s.depth);
        assert_eq!(depth(choice(None), true).unwrap(), Depth::Fixed(3));
        assert_eq!(depth(choice(None), false).unwrap(), Depth::Fixed(0));
        assert_eq!(depth(choice(Some(Depth::Fixed(0))), false).unwrap(), Depth::Fixed(0));
        assert_eq!(depth(choice(Some(Depth::Auto)), true).unwrap(), Depth::Auto);
        assert!(depth(choice(Some(Depth::Auto)), false).unwrap_err().to_string().contains("--mtp 0"));
        assert!(depth(choice(Some(Depth::Fixed(8))), true).unwrap_err().to_string().contains("0 to 7"));
        for typical in [-0.1, 1.5, f64::NAN] {
            let choice = SpeculationOptions { typical: Some(typical), ..SpeculationOptions::default() };
            assert!(choice.resolve(true).unwrap_err().to_string().contains("typical-threshold"), "{typical}");
        }
    }

    #[test]
    fn a_list_of_ids_keeps_its_order_and_its_mistakes_are_named_with_their_line() {
        let parse = |text| parse(text, Path::new("list.txt"), 100);
        assert_eq!(parse("5 3\n\n 99 5\t3 0").unwrap(), [5, 3, 99, 0]);
        for (text, part) in [("1\n100", "line 2"), ("1 x", "'x'"), (" \n", "no token"), ("-1", "'-1'")] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("list.txt"), "{message}");
        }
    }
}
