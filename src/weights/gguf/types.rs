//! The element types that a GGUF file may name, with their block sizes.
//!
//! Owns: ggml's numbers, names and block sizes, and which of them are formats that we compute with.
//! Always true: a type that is listed has a size, so a file that uses it can be checked even where we cannot use it.
//! Not here: what the bytes of a block mean (`weights::format`).

use crate::error::{Error, Result};
use crate::weights::Format;

/// One of ggml's types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredType {
    /// Its number in a file.
    pub id: u32,
    /// ggml's name, in capitals.
    pub name: &'static str,
    /// Elements in a block; a row holds whole blocks.
    pub block: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// The format we compute with, if it is one.
    pub format: Option<Format>,
}

const fn stored(id: u32, name: &'static str, block: usize, bytes: usize, format: Option<Format>) -> StoredType {
    StoredType { id, name, block, bytes, format }
}

/// Every type of ggml as of late 2026; the gaps are types that were withdrawn.
const TYPES: [StoredType; 35] = [
    stored(0, "F32", 1, 4, Some(Format::F32)),
    stored(1, "F16", 1, 2, Some(Format::F16)),
    stored(2, "Q4_0", 32, 18, Some(Format::Q4_0)),
    stored(3, "Q4_1", 32, 20, Some(Format::Q4_1)),
    stored(6, "Q5_0", 32, 22, Some(Format::Q5_0)),
    stored(7, "Q5_1", 32, 24, Some(Format::Q5_1)),
    stored(8, "Q8_0", 32, 34, Some(Format::Q8_0)),
    stored(9, "Q8_1", 32, 36, None),
    stored(10, "Q2_K", 256, 84, Some(Format::Q2K)),
    stored(11, "Q3_K", 256, 110, Some(Format::Q3K)),
    stored(12, "Q4_K", 256, 144, Some(Format::Q4K)),
    stored(13, "Q5_K", 256, 176, Some(Format::Q5K)),
    stored(14, "Q6_K", 256, 210, Some(Format::Q6K)),
    stored(15, "Q8_K", 256, 292, None),
    stored(16, "IQ2_XXS", 256, 66, None),
    stored(17, "IQ2_XS", 256, 74, None),
    stored(18, "IQ3_XXS", 256, 98, None),
    stored(19, "IQ1_S", 256, 50, None),
    stored(20, "IQ4_NL", 32, 18, Some(Format::Iq4Nl)),
    stored(21, "IQ3_S", 256, 110, None),
    stored(22, "IQ2_S", 256, 82, None),
    stored(23, "IQ4_XS", 256, 136, Some(Format::Iq4Xs)),
    stored(24, "I8", 1, 1, None),
    stored(25, "I16", 1, 2, None),
    stored(26, "I32", 1, 4, None),
    stored(27, "I64", 1, 8, Some(Format::I64)),
    stored(28, "F64", 1, 8, None),
    stored(29, "IQ1_M", 256, 56, None),
    stored(30, "BF16", 1, 2, Some(Format::Bf16)),
    stored(34, "TQ1_0", 256, 54, None),
    stored(35, "TQ2_0", 256, 66, None),
    stored(39, "MXFP4", 32, 17, None),
    stored(40, "NVFP4", 64, 36, None),
    stored(41, "Q1_0", 128, 18, None),
    stored(42, "Q2_0", 64, 18, None),
];

/// The type with this number, or `None` for one we have never heard of.
pub fn by_id(id: u32) -> Option<&'static StoredType> {
    TYPES.iter().find(|kind| kind.id == id)
}

/// The type that stores `format`. An error for FP8, which GGUF does not have.
pub fn of(format: Format) -> Result<&'static StoredType> {
    TYPES.iter().find(|kind| kind.format == Some(format)).ok_or_else(|| {
        Error::invalid(format!("a GGUF file cannot hold {format}; choose one of: {}", names().join(", ")))
    })
}

/// The weight format called `name` (`q8_0`, in any case).
pub fn parse(name: &str) -> Result<Format> {
    TYPES
        .iter()
        .find(|kind| kind.name.eq_ignore_ascii_case(name))
        .and_then(|kind| kind.format.filter(|&format| format != Format::I64))
        .ok_or_else(|| Error::invalid(format!("type '{name}' is not known; use one of: {}", names().join(", "))))
}

/// Names of all weight formats that a GGUF file can hold, as one types them.
pub fn names() -> Vec<String> {
    let weights = TYPES.iter().filter(|kind| kind.format.is_some_and(|format| format != Format::I64));
    weights.map(|kind| kind.name.to_ascii_lowercase()).collect()
}

/// For a sentence about a type that cannot be used.
pub(crate) fn supported() -> String {
    names().join(", ").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_long_as_the_format_says_and_every_weight_format_but_fp8_has_a_type() {
        for kind in &TYPES {
            if let Some(format) = kind.format {
                assert_eq!((kind.block, kind.bytes), (format.block(), format.block_bytes()), "{}", kind.name);
                assert_eq!(kind.name, format.to_string());
            }
        }
        for format in Format::ALL {
            assert_eq!(of(format).is_ok(), format != Format::F8E4m3, "{format}");
        }
        assert_eq!(parse("q4_k").unwrap(), Format::Q4K);
        assert!(parse("i64").is_err() && parse("q9").unwrap_err().to_string().contains("iq4_xs"));
    }
}
