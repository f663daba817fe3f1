//! Which type each tensor gets (spec 5.4, precision constraints).
//!
//! Owns: the default recipe and the exceptions that a user names.
//! Always true: a row holds whole blocks of its type; an exception that cannot be met, or meets no tensor, is an error.
//! Not here: encoding.

use std::str::FromStr;

use super::plan::{Output, Role};
use crate::error::{Error, Result};
use crate::weights::Format;
use crate::weights::gguf::types;

/// `PATTERN=TYPE`: tensors whose name contains the pattern, where `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Part of a GGUF tensor name.
    pub pattern: String,
    /// The type it gets.
    pub format: Format,
}

impl FromStr for Override {
    type Err = Error;
    fn from_str(text: &str) -> Result<Override> {
        let (pattern, name) = text
            .split_once('=')
            .filter(|(pattern, _)| !pattern.is_empty())
            .ok_or_else(|| Error::invalid(format!("'{text}' is not PATTERN=TYPE, such as ffn_down_exps=q8_0")))?;
        Ok(Override { pattern: pattern.to_owned(), format: types::parse(name)? })
    }
}

impl Override {
    fn matches(&self, name: &str) -> bool {
        // A pattern is a part of the name: each piece is looked for behind the one before.
        let mut rest = name;
        self.pattern.split('*').all(|piece| match rest.find(piece) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    }
}

/// The type of every output.
pub fn formats(outputs: &[Output], default: Format, overrides: &[Override]) -> Result<Vec<Format>> {
    types::of(default)?;
    if let Some(idle) = overrides.iter().find(|o| !outputs.iter().any(|output| o.matches(&output.name))) {
        return Err(Error::invalid(format!("--tensor-type {}: no tensor's name contains that", idle.pattern)));
    }
    outputs.iter().map(|output| format(output, default, overrides)).collect()
}

fn format(output: &Output, default: Format, overrides: &[Override]) -> Result<Format> {
    let cols = output.shape.last().copied().unwrap_or(0);
    let asked = overrides.iter().rev().find(|o| o.matches(&output.name)).map(|o| o.format);
    match (output.role, asked) {
        // A pattern such as "blk.3" means the matrices of the layer.
        (Role::Exact, _) | (Role::Control, None) => Ok(Format::F32),
        (_, Some(format)) if fits(format, cols) => Ok(format),
        (_, Some(format)) => Err(Error::invalid(format!(
            "tensor '{}' has rows of {cols} values and cannot be {format}, whose blocks do not divide that",
            output.name
        ))),
        (Role::Weight, None) => Ok(fitting(default, cols)),
    }
}

fn fits(format: Format, cols: usize) -> bool {
    types::of(format).is_ok() && cols.is_multiple_of(format.block())
}

/// `format`, or for rows that are not whole blocks of it a 32-wide type of no less precision, or F16.
fn fitting(format: Format, cols: usize) -> Format {
    let narrow = match format {
        Format::Q2K | Format::Q3K | Format::Iq4Xs => Format::Iq4Nl,
        Format::Q4K => Format::Q5_0,
        Format::Q5K => Format::Q5_1,
        _ => Format::Q8_0,
    };
    [format, narrow].into_iter().find(|&format| fits(format, cols)).unwrap_or(Format::F16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_part_of_a_name_with_gaps() {
        let matches =
            |pattern: &str, name: &str| Override { pattern: pattern.into(), format: Format::F16 }.matches(name);
        assert!(matches("ffn_down", "blk.3.ffn_down_exps.weight"));
        assert!(matches("blk.3.*exps", "blk.3.ffn_down_exps.weight"));
        assert!(matches("blk.*.ffn_down_exps.weight", "blk.3.ffn_down_exps.weight"));
        assert!(!matches("blk.4.*exps", "blk.3.ffn_down_exps.weight"));
        assert!(!matches("exps*blk", "blk.3.ffn_down_exps.weight"));
    }

    #[test]
    fn an_override_is_read_or_told_what_one_looks_like() {
        let good: Override = "ffn_down_exps=BF16".parse().unwrap();
        assert_eq!(good, Override { pattern: "ffn_down_exps".into(), format: Format::Bf16 });
        for text in ["ffn_down_exps", "=f16", "a=float"] {
            assert!(text.parse::<Override>().is_err(), "{text}");
        }
    }
}
