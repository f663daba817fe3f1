//! The key-value part of a GGUF file.
//!
//! Owns: typed access to values, with a sentence for a key that is missing or has another type.
//! Always true: every value was walked to its end when the file was opened; arrays stay in the file's bytes until they
//! are asked for, so a count in a header allocates nothing.
//! Not here: which keys a model needs (`model::config_gguf`).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::weights::Bytes;

/// A value's type as the file numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 0
    U8,
    /// 1
    I8,
    /// 2
    U16,
    /// 3
    I16,
    /// 4
    U32,
    /// 5
    I32,
    /// 6
    F32,
    /// 7
    Bool,
    /// 8
    Text,
    /// 9
    Array,
    /// 10
    U64,
    /// 11
    I64,
    /// 12
    F64,
}

const KINDS: [Kind; 13] = [
    Kind::U8,
    Kind::I8,
    Kind::U16,
    Kind::I16,
    Kind::U32,
    Kind::I32,
    Kind::F32,
    Kind::Bool,
    Kind::Text,
    Kind::Array,
    Kind::U64,
    Kind::I64,
    Kind::F64,
];

impl Kind {
    /// The kind with this number.
    pub fn by_id(id: u32) -> Option<Kind> {
        KINDS.get(usize::try_from(id).ok()?).copied()
    }
    /// Its number in a file.
    pub fn id(self) -> u32 {
        self as u32
    }
    /// Bytes of a value, `None` for text and arrays.
    pub fn bytes(self) -> Option<usize> {
        Some(match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::Text | Kind::Array => return None,
        })
    }
}

/// One value: its elements' kind, how many there are, and where they lie in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Kind of the value, or of an array's elements.
    pub kind: Kind,
    /// Elements of an array, `None` for a single value.
    pub count: Option<usize>,
    /// The elements' bytes; a text has its length in front.
    pub at: Range<usize>,
}

/// All keys of a file.
#[derive(Clone)]
pub struct Metadata {
    pub(super) file: String,
    pub(super) bytes: Bytes,
    pub(super) values: BTreeMap<String, Value>,
}

impl Metadata {
    /// The file's name, for messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Whether there is this key.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// The value as stored and its bytes, for a copy.
    pub fn stored(&self, key: &str) -> Option<(&Value, &[u8])> {
        let value = self.values.get(key)?;
        Some((value, self.bytes.get(value.at.clone())?))
    }

    /// A sentence about a key.
    pub fn wrong(&self, key: &str, why: impl std::fmt::Display) -> Error {
        Error::model(format!("{}: metadata '{key}' {why}", self.file))
    }

    /// A whole number of any width that is not negative.
    pub fn integer(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        match self.element(value, 0).filter(|_| value.count.is_none()) {
            Some(Number::Integer(number)) => match u64::try_from(number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.wrong(key, format!("is {number}; it cannot be negative"))),
            },
            _ => Err(self.wrong(key, format!("is {}; a whole number is needed", describe(value)))),
        }
    }

    /// A number of any type.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        match self.element(value, 0).filter(|_| value.count.is_none()) {
            Some(Number::Float(number)) => Ok(Some(number)),
            Some(Number::Integer(number)) => Ok(Some(number as f64)),
            None => Err(self.wrong(key, format!("is {}; a number is needed", describe(value)))),
        }
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        if value.kind != Kind::Text || value.count.is_some() {
            return Err(self.wrong(key, format!("is {}; a text is needed", describe(value))));
        }
        let bytes = self.bytes.get(value.at.start + 8..value.at.end).unwrap_or(&[]);
        std::str::from_utf8(bytes).map(Some).map_err(|error| self.wrong(key, format!("is not UTF-8 text: {error}")))
    }

    /// An array of whole numbers, none negative. A single number is an array of one. True counts as 1.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let number = |i| match self.element(value, i) {
            Some(Number::Integer(number)) => {
                u64::try_from(number).map_err(|_| self.wrong(key, format!("holds {number}; it cannot be negative")))
            }
            _ => Err(self.wrong(key, format!("is {}; whole numbers are needed", describe(value)))),
        };
        (0..value.count.unwrap_or(1)).map(number).collect::<Result<_>>().map(Some)
    }

    /// An array of texts.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let (Kind::Text, Some(count)) = (value.kind, value.count) else {
            return Err(self.wrong(key, format!("is {}; texts are needed", describe(value))));
        };
        let mut rest = self.bytes.get(value.at.clone()).unwrap_or(&[]);
        let mut texts = Vec::new();
        for i in 0..count {
            let text = take_text(&mut rest).and_then(|bytes| std::str::from_utf8(bytes).ok());
            texts.push(text.ok_or_else(|| self.wrong(key, format!("holds no UTF-8 text at place {i}")))?);
        }
        Ok(Some(texts))
    }

    fn element(&self, value: &Value, i: usize) -> Option<Number> {
        let size = value.kind.bytes()?;
        let start = value.at.start + i * size;
        let bytes = self.bytes.get(start..start + size).filter(|_| start + size <= value.at.end)?;
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(bytes);
        let unsigned = u64::from_le_bytes(wide);
        // Moves the sign bit to the top and back down.
        let shift = 64 - 8 * size as u32;
        let signed = ((unsigned << shift) as i64) >> shift;
        Some(match value.kind {
            Kind::F32 => Number::Float(f64::from(f32::from_bits(unsigned as u32))),
            Kind::F64 => Number::Float(f64::from_bits(unsigned)),
            Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => Number::Integer(i128::from(signed)),
            _ => Number::Integer(i128::from(unsigned)),
        })
    }
}

enum Number {
    Integer(i128),
    Float(f64),
}

/// A text and its length from the front of `rest`.
pub(super) fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<8>()?;
    let (text, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *rest = after;
    Some(text)
}

fn describe(value: &Value) -> String {
    match value.count {
        Some(count) => format!("a list of {count} {:?} values", value.kind),
        None => format!("a single {:?}", value.kind),
    }
}
