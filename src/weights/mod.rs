//! Tensors as a checkpoint stores them: found by name, kept in their stored type, mapped rather than read.
//!
//! Owns: checkpoints (safetensors shards and index, GGUF files), the bytes of every tensor, storage formats and their
//! decode, rows of the n-gram table.
//! Always true: a tensor's bytes are as long as its shape and format say; opening a checkpoint reads headers only.
//! Not here: which names a model needs (`model::bind`), arithmetic (`backend`).

pub mod checkpoint;
pub mod experts;
pub mod format;
pub mod gguf;
pub mod hash;
pub mod ngram;
pub mod shards;
pub mod source;

use std::ops::Range;
use std::sync::Arc;

use crate::arena::host::FileMap;
use crate::error::{Error, Result};
pub use checkpoint::Checkpoint;
pub use experts::{Expert, Experts};
pub use format::Format;
pub use ngram::NgramTable;
pub use source::Source;

/// Bytes that somebody keeps alive: a mapped file, the binary itself, or an owned copy. Cheap to clone and to slice.
#[derive(Clone)]
pub struct Bytes {
    owner: Owner,
    range: Range<usize>,
}

#[derive(Clone)]
enum Owner {
    Map(Arc<FileMap>),
    Static(&'static [u8]),
    Heap(Arc<Vec<u8>>),
}

impl Bytes {
    /// A whole mapped file.
    pub fn mapped(map: Arc<FileMap>) -> Bytes {
        let range = 0..map.bytes().len();
        Bytes { owner: Owner::Map(map), range }
    }
    /// Bytes inside the binary.
    pub fn embedded(bytes: &'static [u8]) -> Bytes {
        Bytes { owner: Owner::Static(bytes), range: 0..bytes.len() }
    }
    /// An owned copy.
    pub fn heap(bytes: Vec<u8>) -> Bytes {
        let range = 0..bytes.len();
        Bytes { owner: Owner::Heap(Arc::new(bytes)), range }
    }
    /// A part of these bytes, by an offset within them. `None` if it is not inside.
    pub fn slice(&self, part: Range<usize>) -> Option<Bytes> {
        if part.start > part.end || part.end > self.range.len() {
            return None;
        }
        let start = self.range.start;
        Some(Bytes { owner: self.owner.clone(), range: start + part.start..start + part.end })
    }
    /// Whether the bytes lie in a file that the system may page in and out.
    pub fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Map(_))
    }
    /// Tells the system that these bytes are read at random places. Nothing happens to bytes that are not mapped; the
    /// same holds for the two below.
    pub fn expect_random(&self) {
        if let Owner::Map(map) = &self.owner {
            map.expect_random(self.range.clone());
        }
    }
    /// Starts reading a part (an offset within these bytes) from the disk without waiting for it.
    pub fn prefetch(&self, part: Range<usize>) {
        if let Owner::Map(map) = &self.owner
            && part.end <= self.range.len()
        {
            map.prefetch(self.range.start + part.start..self.range.start + part.end);
        }
    }
    /// Takes the pages of these bytes out of this process; they come back when they are read.
    pub fn release(&self) {
        if let Owner::Map(map) = &self.owner {
            map.release(self.range.clone());
        }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let all = match &self.owner {
            Owner::Map(map) => map.bytes(),
            Owner::Static(bytes) => bytes,
            Owner::Heap(bytes) => bytes,
        };
        &all[self.range.clone()]
    }
}

/// A tensor as stored: `shape` in PyTorch order, the last dimension contiguous.
#[derive(Clone)]
pub struct Tensor {
    /// Full name in the checkpoint.
    pub name: String,
    /// Storage format of every element.
    pub format: Format,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Exactly the tensor's bytes, without alignment promise.
    pub data: Bytes,
}

impl Tensor {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    /// Whether a dimension is 0.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
    /// Every element's value, in order. Integers are an error: they must not pass through a float (spec 7.23). So are
    /// rows that end inside a block.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        if self.format == Format::I64 {
            return Err(Error::model(format!(
                "tensor '{}' holds integers (I64) where weights are expected",
                self.name
            )));
        }
        self.format.check_columns(&self.name, self.shape.last().copied().unwrap_or(1))?;
        let mut values = vec![0.0; self.len()];
        self.format.decode_row(&self.data, &mut values);
        Ok(values)
    }
    /// Every integer, in order; an error unless the tensor is I64.
    pub fn to_i64(&self) -> Result<Vec<i64>> {
        if self.format != Format::I64 {
            return Err(Error::model(format!(
                "tensor '{}' is {} where integers (I64) are expected",
                self.name, self.format
            )));
        }
        Ok(self.data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
    }
    /// This tensor as a matrix without scales. An error unless it has two dimensions, holds weights, and
    /// its rows are whole blocks.
    pub fn to_matrix(&self) -> Result<Matrix> {
        match *self.shape {
            [rows, cols] if self.format != Format::I64 => {
                self.format.check_columns(&self.name, cols)?;
                Ok(Matrix {
                    name: self.name.clone(),
                    format: self.format,
                    rows,
                    cols,
                    data: self.data.clone(),
                    scales: None,
                })
            }
            _ => Err(Error::model(format!(
                "tensor '{}' is {} {:?} where a weight matrix [out, in] is expected",
                self.name, self.format, self.shape
            ))),
        }
    }
}

/// A weight matrix `[rows, cols]` (`[out, in]`) in its stored format; row `r` starts at `r * format.row_bytes(cols)`.
#[derive(Clone)]
pub struct Matrix {
    /// For messages.
    pub name: String,
    /// Storage format of a row.
    pub format: Format,
    /// Output features.
    pub rows: usize,
    /// Input features, contiguous.
    pub cols: usize,
    /// The rows, one after another.
    pub data: Bytes,
    /// Scales beside the bytes (FP8 checkpoints), else `None`.
    pub scales: Option<Arc<BlockScales>>,
}

/// Scales of a block-quantised matrix: element (r, c) is multiplied by `row(r)[c / block]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockScales {
    /// Rows and columns a scale covers: 128.
    pub block: usize,
    /// Scales in a row of blocks: `cols.div_ceil(block)`.
    pub across: usize,
    /// Rows of the first block that lie before row 0: a slice of a matrix may start inside a block. Less than `block`.
    pub row_offset: usize,
    /// Row-major, F32 whatever the file held.
    pub values: Vec<f32>,
}

impl BlockScales {
    /// Scales of row `r`, `[across]`: one for every `block` columns.
    pub fn row(&self, r: usize) -> &[f32] {
        let first = (r + self.row_offset) / self.block * self.across;
        &self.values[first..first + self.across]
    }

    /// Scales of a slice of rows, by a range within the matrix.
    fn sub_rows(&self, rows: Range<usize>) -> BlockScales {
        let (start, end) = (rows.start + self.row_offset, rows.end + self.row_offset);
        let blocks = start / self.block..end.div_ceil(self.block);
        BlockScales {
            block: self.block,
            across: self.across,
            row_offset: start % self.block,
            values: self.values[blocks.start * self.across..blocks.end * self.across].to_vec(),
        }
    }
}

impl Matrix {
    /// Bytes of row `r`. `r < rows`.
    pub fn row(&self, r: usize) -> &[u8] {
        let bytes = self.format.row_bytes(self.cols);
        &self.data[r * bytes..(r + 1) * bytes]
    }
    /// Values of row `r`, scales applied: `out[c] = f32(stored) * scale`. `out` is `[cols]`.
    pub fn decode_row(&self, r: usize, out: &mut [f32]) {
        self.format.decode_row(self.row(r), out);
        if let Some(scales) = &self.scales {
            for (part, scale) in out.chunks_mut(scales.block).zip(scales.row(r)) {
                part.iter_mut().for_each(|value| *value *= scale);
            }
        }
    }
    /// Some of the columns, as a copy. `None` if they are not inside; a cut through a block becomes F32.
    pub fn sub_cols(&self, cols: Range<usize>) -> Option<Matrix> {
        if cols.start > cols.end || cols.end > self.cols {
            return None;
        }
        let block = self.format.block();
        let whole = self.scales.is_none() && cols.start.is_multiple_of(block) && cols.len().is_multiple_of(block);
        let mut data = Vec::new();
        let mut values = vec![0.0; self.cols];
        for r in 0..self.rows {
            if whole {
                let bytes = self.format.row_bytes(cols.start)..self.format.row_bytes(cols.end);
                data.extend_from_slice(&self.row(r)[bytes]);
            } else {
                self.decode_row(r, &mut values);
                Format::F32.encode_row(&values[cols.clone()], &mut data);
            }
        }
        let format = if whole { self.format } else { Format::F32 };
        let (name, data) = (self.name.clone(), Bytes::heap(data));
        Some(Matrix { name, format, rows: self.rows, cols: cols.len(), data, scales: None })
    }
    /// The named rows in this order, as a copy. `None` if one is not inside.
    pub fn pick_rows(&self, rows: &[u32]) -> Option<Matrix> {
        if rows.iter().any(|&row| row as usize >= self.rows) {
            return None;
        }
        let mut data = Vec::with_capacity(rows.len() * self.format.row_bytes(self.cols));
        let mut values = vec![0.0; self.cols];
        for &row in rows {
            match self.scales {
                None => data.extend_from_slice(self.row(row as usize)),
                Some(_) => {
                    self.decode_row(row as usize, &mut values);
                    Format::F32.encode_row(&values, &mut data);
                }
            }
        }
        let format = if self.scales.is_none() { self.format } else { Format::F32 };
        let (name, data) = (self.name.clone(), Bytes::heap(data));
        Some(Matrix { name, format, rows: rows.len(), cols: self.cols, data, scales: None })
    }
    /// Some of the rows, sharing the bytes. `None` if they are not inside.
    pub fn sub_rows(&self, rows: Range<usize>) -> Option<Matrix> {
        if rows.start > rows.end || rows.end > self.rows {
            return None;
        }
        let bytes = self.format.row_bytes(self.cols);
        Some(Matrix {
            name: self.name.clone(),
            format: self.format,
            rows: rows.len(),
            cols: self.cols,
            data: self.data.slice(rows.start * bytes..rows.end * bytes)?,
            scales: self.scales.as_ref().map(|scales| Arc::new(scales.sub_rows(rows))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 5 x 5 matrix of ones whose scales (blocks of 2) say where they come from: 10 * block row + block column.
    fn scaled() -> Matrix {
        let mut data = Vec::new();
        Format::F8E4m3.encode_row(&[1.0; 25], &mut data);
        let values = (0..9).map(|i| (10 * (i / 3) + i % 3) as f32).collect();
        let scales = BlockScales { block: 2, across: 3, row_offset: 0, values };
        let (format, data) = (Format::F8E4m3, Bytes::heap(data));
        Matrix { name: "w".into(), format, rows: 5, cols: 5, data, scales: Some(Arc::new(scales)) }
    }

    fn row(matrix: &Matrix, r: usize) -> Vec<f32> {
        let mut out = vec![0.0; matrix.cols];
        matrix.decode_row(r, &mut out);
        out
    }

    #[test]
    fn picked_rows_keep_their_values_and_their_order() {
        let picked = scaled().pick_rows(&[3, 0, 3]).unwrap();
        assert_eq!([0, 1, 2].map(|r| row(&picked, r)), [3, 0, 3].map(|r| row(&scaled(), r)));
        let plain = Matrix { scales: None, ..scaled() };
        assert_eq!((plain.pick_rows(&[4]).unwrap().format, plain.pick_rows(&[5]).is_none()), (Format::F8E4m3, true));
    }

    #[test]
    fn a_scale_covers_its_block_and_a_cut_block_at_the_edge() {
        assert_eq!(row(&scaled(), 0), [0.0, 0.0, 1.0, 1.0, 2.0]);
        assert_eq!(row(&scaled(), 3), [10.0, 10.0, 11.0, 11.0, 12.0]);
        assert_eq!(row(&scaled(), 4), [20.0, 20.0, 21.0, 21.0, 22.0]);
    }

    #[test]
    fn row_slices_keep_the_scales_of_the_rows_they_hold_however_often_they_are_cut() {
        let whole = scaled();
        for start in 0..=5 {
            for end in start..=5 {
                let part = whole.sub_rows(start..end).unwrap();
                for r in 0..part.rows {
                    assert_eq!(row(&part, r), row(&whole, start + r));
                }
                for again in 0..part.rows {
                    let tail = part.sub_rows(again..part.rows).unwrap();
                    assert_eq!(row(&tail, 0), row(&whole, start + again));
                }
            }
        }
        assert!(whole.sub_rows(3..6).is_none());
    }

    #[test]
    fn integers_and_weights_are_not_mistaken_for_each_other() {
        let data = Bytes::heap(i64::MAX.to_le_bytes().to_vec());
        let integers = Tensor { name: "ids".into(), format: Format::I64, shape: vec![1], data: data.clone() };
        assert_eq!(integers.to_i64().unwrap(), [i64::MAX]);
        assert!(integers.to_f32().unwrap_err().to_string().contains("'ids'"));
        let floats = Tensor { name: "w".into(), format: Format::F32, shape: vec![2], data };
        assert!(floats.to_i64().is_err());
        assert!(floats.to_matrix().is_err());
    }
}
