//! Tensors as a checkpoint stores them: found by name, kept in their stored type, mapped rather than read.
//!
//! Owns: checkpoint folders (safetensors shards and index), the bytes of every tensor, storage formats and their
//! decode, rows of the n-gram table.
//! Always true: a tensor's bytes are as long as its shape and format say; opening a checkpoint reads headers only.
//! Not here: which names a model needs (`model::bind`), arithmetic (`backend`).

pub mod format;

use std::ops::Range;
use std::sync::Arc;

use crate::arena::host::FileMap;
pub use format::Format;

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

/// Scales of a block-quantised matrix: element (r, c) is multiplied by `values[(r / block) * across + c / block]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockScales {
    /// Rows and columns a scale covers: 128.
    pub block: usize,
    /// Scales in a row of blocks: `cols.div_ceil(block)`.
    pub across: usize,
    /// Row-major, F32 whatever the file held.
    pub values: Vec<f32>,
}

impl Matrix {
    /// Bytes of row `r`. `r < rows`.
    pub fn row(&self, r: usize) -> &[u8] {
        let bytes = self.format.row_bytes(self.cols);
        &self.data[r * bytes..(r + 1) * bytes]
    }
}
