//! A safetensors file written as a stream.
//!
//! Owns: the header and the order of bytes; what a tensor's bytes are made of.
//! Always true: a few thousand values are in memory at a time, however large the tensor.
//! Not here: names and shapes (`tensors`), values (`values`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use hipfire::weights::format::Format;
use serde_json::{Map, Value, json};

use super::values::Field;

/// A tensor of a file.
pub struct Stored {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<usize>,
    pub content: Content,
}

/// What a tensor's bytes are.
pub enum Content {
    /// `count` consecutive elements of a field.
    Run { field: Field, format: Format, first: u64, count: u64 },
    /// A field `[experts, rows, cols]` stored as `[experts, cols, rows]`.
    Turned { field: Field, format: Format, experts: usize, rows: usize, cols: usize },
    /// FP8 scales of `matrices` matrices `[rows, cols]` from matrix `first` on, one for each block of 128 x 128.
    Scales { field: Field, format: Format, first: u64, matrices: u64, rows: usize, cols: usize },
    /// I64 numbers.
    Integers(Vec<u64>),
    /// That many bytes of nothing.
    Zeros(u64),
}

impl Stored {
    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        let elements = |format: &Format, count: u64| format.row_bytes(1) as u64 * count;
        match &self.content {
            Content::Run { format, count, .. } => elements(format, *count),
            Content::Turned { format, experts, rows, cols, .. } => elements(format, (experts * rows * cols) as u64),
            Content::Scales { format, matrices, rows, cols, .. } => {
                elements(format, matrices * (rows.div_ceil(128) * cols.div_ceil(128)) as u64)
            }
            Content::Integers(numbers) => 8 * numbers.len() as u64,
            Content::Zeros(bytes) => *bytes,
        }
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut stream = Stream { to, bytes: Vec::new() };
        match &self.content {
            Content::Run { field, format, first, count } => {
                for index in *first..first + count {
                    field.encode(index, *format, &mut stream.bytes);
                    stream.pass(false)?;
                }
            }
            Content::Turned { field, format, experts, rows, cols } => {
                for expert in 0..*experts {
                    for (c, r) in (0..*cols).flat_map(|c| (0..*rows).map(move |r| (c, r))) {
                        let index = (expert * rows + r) * cols + c;
                        field.encode(index as u64, *format, &mut stream.bytes);
                        stream.pass(false)?;
                    }
                }
            }
            Content::Scales { field, format, first, matrices, rows, cols } => {
                for matrix in *first..first + matrices {
                    for r in (0..*rows).step_by(128) {
                        for c in (0..*cols).step_by(128) {
                            let index = matrix * (rows * cols) as u64 + (r * cols + c) as u64;
                            format.encode_row(&[field.scale(index)], &mut stream.bytes);
                            stream.pass(false)?;
                        }
                    }
                }
            }
            Content::Integers(numbers) => stream.bytes.extend(numbers.iter().flat_map(|n| n.to_le_bytes())),
            Content::Zeros(bytes) => stream.bytes.resize(*bytes as usize, 0),
        }
        stream.pass(true)
    }
}

struct Stream<'a, W> {
    to: &'a mut W,
    bytes: Vec<u8>,
}

impl<W: Write> Stream<'_, W> {
    /// Passes the bytes on once they are many, or all of them at the end.
    fn pass(&mut self, all: bool) -> io::Result<()> {
        if all || self.bytes.len() >= 1 << 16 {
            self.to.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// Writes the tensors in the order given.
pub fn write_file(path: &Path, tensors: &[Stored]) -> io::Result<()> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut end = 0;
    for tensor in tensors {
        let start = end;
        end += tensor.bytes();
        let entry = json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end] });
        header.insert(tensor.name.clone(), entry);
    }
    let mut header = serde_json::to_vec(&Value::Object(header))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for tensor in tensors {
        tensor.write(&mut file)?;
    }
    file.flush()
}
