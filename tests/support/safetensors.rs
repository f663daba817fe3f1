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
        match &self.content {
            Content::Run { field, format, first, count } => {
                stream(to, *format, (*first..first + count).map(|index| field.stored(index, *format)))
            }
            Content::Turned { field, format, experts, rows, cols } => {
                let matrix =
                    |expert| (0..*cols).flat_map(move |c| (0..*rows).map(move |r| (expert * rows + r) * cols + c));
                let indices = (0..*experts).flat_map(matrix);
                stream(to, *format, indices.map(|index| field.stored(index as u64, *format)))
            }
            Content::Scales { field, format, first, matrices, rows, cols } => {
                let corners = |matrix| {
                    let blocks = (0..*rows).step_by(128).flat_map(|r| (0..*cols).step_by(128).map(move |c| (r, c)));
                    blocks.map(move |(r, c)| (matrix * rows + r) * cols + c)
                };
                let (first, matrices) = (*first as usize, *matrices as usize);
                let indices = (first..first + matrices).flat_map(corners);
                stream(to, *format, indices.map(|index| field.scale(index as u64)))
            }
            Content::Integers(numbers) => numbers.iter().try_for_each(|number| to.write_all(&number.to_le_bytes())),
            Content::Zeros(bytes) => to.write_all(&vec![0; *bytes as usize]),
        }
    }
}

fn stream(to: &mut impl Write, format: Format, mut values: impl Iterator<Item = f32>) -> io::Result<()> {
    let (mut part, mut bytes) = (Vec::new(), Vec::new());
    loop {
        part.clear();
        part.extend(values.by_ref().take(4096));
        if part.is_empty() {
            return Ok(());
        }
        bytes.clear();
        format.encode_row(&part, &mut bytes);
        to.write_all(&bytes)?;
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
