//! Writes a GGUF file as a stream.
//!
//! Owns: the byte layout of header and data, and the promise that what was announced is what is written.
//! Always true: the whole size is known before the first byte; tensors are written in the announced order, each with
//! exactly its bytes; nothing but the header is held in memory.
//! Not here: which tensors and keys (`model::quantize`), files (`model::quantize`).

use std::io::{self, Write};

use super::metadata::Kind;
use super::read::{ALIGNMENT, MAGIC, VERSION};
use super::types::StoredType;
use crate::error::{Error, Result};

/// A value to write.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// u32
    U32(u32),
    /// f32
    F32(f32),
    /// bool
    Bool(bool),
    /// string
    Text(String),
    /// i32 array
    I32s(Vec<i32>),
    /// u32 array
    U32s(Vec<u32>),
    /// u64 array
    U64s(Vec<u64>),
    /// string array
    Texts(Vec<String>),
    /// A value of another file, as it lay there.
    Copied {
        /// Of the value or its elements.
        kind: Kind,
        /// Elements of an array.
        count: Option<usize>,
        /// As stored.
        bytes: Vec<u8>,
    },
}

impl Field {
    fn write(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: Kind, count: Option<usize>| {
            if let Some(count) = count {
                out.extend(Kind::Array.id().to_le_bytes());
                out.extend(kind.id().to_le_bytes());
                out.extend((count as u64).to_le_bytes());
            } else {
                out.extend(kind.id().to_le_bytes());
            }
        };
        match self {
            Field::U32(value) => {
                head(out, Kind::U32, None);
                out.extend(value.to_le_bytes());
            }
            Field::F32(value) => {
                head(out, Kind::F32, None);
                out.extend(value.to_le_bytes());
            }
            Field::Bool(value) => {
                head(out, Kind::Bool, None);
                out.push(u8::from(*value));
            }
            Field::Text(text) => {
                head(out, Kind::Text, None);
                write_text(out, text);
            }
            Field::I32s(values) => {
                head(out, Kind::I32, Some(values.len()));
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Field::U32s(values) => {
                head(out, Kind::U32, Some(values.len()));
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Field::U64s(values) => {
                head(out, Kind::U64, Some(values.len()));
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Field::Texts(texts) => {
                head(out, Kind::Text, Some(texts.len()));
                texts.iter().for_each(|text| write_text(out, text));
            }
            Field::Copied { kind, count, bytes } => {
                head(out, *kind, *count);
                out.extend_from_slice(bytes);
            }
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A tensor to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Announced {
    /// Full name.
    pub name: String,
    /// How it is stored.
    pub kind: &'static StoredType,
    /// Dimensions, outermost first; the last is a multiple of the type's block.
    pub shape: Vec<usize>,
}

impl Announced {
    /// Bytes of its data, padding not counted.
    pub fn bytes(&self) -> u64 {
        let elements: u64 = self.shape.iter().map(|&size| size as u64).product();
        elements / self.kind.block as u64 * self.kind.bytes as u64
    }
}

/// What a file will hold, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layout {
    /// Keys; the order is kept.
    pub pairs: Vec<(String, Field)>,
    /// Tensors; the order is kept.
    pub tensors: Vec<Announced>,
}

impl Layout {
    /// The header, padded to where the data starts.
    pub fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, field) in &self.pairs {
            write_text(&mut out, key);
            field.write(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            write_text(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            out.extend(tensor.shape.iter().rev().flat_map(|&size| (size as u64).to_le_bytes()));
            out.extend(tensor.kind.id.to_le_bytes());
            out.extend(u64::to_le_bytes(offset));
            offset += padded(tensor.bytes());
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.header().len() as u64 + self.tensors.iter().map(|tensor| padded(tensor.bytes())).sum::<u64>()
    }
}

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT as u64)
}

/// Writes the data that a [`Layout`] announced.
pub struct Writer<'a, W: Write> {
    layout: &'a Layout,
    out: W,
    /// The tensor being written.
    at: usize,
    /// Its bytes so far.
    written: u64,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes the header.
    pub fn start(layout: &'a Layout, mut out: W) -> io::Result<Self> {
        out.write_all(&layout.header())?;
        Ok(Writer { layout, out, at: 0, written: 0 })
    }

    /// Appends to the tensor `name`. An error of kind `InvalidInput` if it is not its turn or the bytes are too many.
    pub fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let refuse = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let tensor = self.layout.tensors.get(self.at).filter(|tensor| tensor.name == name);
        let tensor = tensor.ok_or_else(|| refuse(format!("it is not the turn of tensor '{name}'")))?;
        self.written += bytes.len() as u64;
        if self.written > tensor.bytes() {
            return Err(refuse(format!("tensor '{name}' has more than the {} bytes announced", tensor.bytes())));
        }
        self.out.write_all(bytes)?;
        if self.written == tensor.bytes() {
            let padding = (padded(self.written) - self.written) as usize;
            self.out.write_all(&[0; ALIGNMENT][..padding])?;
            (self.at, self.written) = (self.at + 1, 0);
        }
        Ok(())
    }

    /// Ends the file. An error unless every tensor is complete.
    pub fn finish(mut self) -> Result<W> {
        if let Some(tensor) = self.layout.tensors.get(self.at) {
            return Err(Error::model(format!(
                "tensor '{}' got {} of its {} bytes",
                tensor.name,
                self.written,
                tensor.bytes()
            )));
        }
        self.out.flush().map_err(Error::io("cannot write a GGUF file"))?;
        Ok(self.out)
    }
}
