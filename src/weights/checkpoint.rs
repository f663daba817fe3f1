//! A checkpoint: every tensor by name, whichever file it lies in and whichever kind of file that is.
//!
//! Owns: looking tensors up by name and shape, FP8 scales beside them, listings.
//! Always true: an open checkpoint's tensors lie inside their files, do not overlap and are as long as shape and type
//! say; opening reads headers only. A type we cannot compute with is an error of that tensor alone, when it is asked for.
//! Not here: reading safetensors (`shards`) and GGUF headers (`gguf`), which names a model needs (`model::names`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::gguf::{self, Metadata};
use super::{BlockScales, Bytes, Format, Matrix, Source, Tensor, shards};
use crate::error::{Error, Result};

/// All tensors of a model.
pub struct Checkpoint {
    name: String,
    files: Vec<Shard>,
    tensors: BTreeMap<String, Stored>,
    gguf: Option<Metadata>,
}

struct Shard {
    name: String,
    bytes: Bytes,
    metadata: BTreeMap<String, String>,
}

/// A tensor as a file's header describes it. Offsets count from the file's start.
pub(super) struct Stored {
    pub(super) dtype: String,
    /// `None` for a type we cannot compute with.
    pub(super) format: Option<Format>,
    pub(super) shape: Vec<usize>,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Index into the files; [`Checkpoint::add`] sets it.
    pub(super) file: usize,
}

/// One line of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Full name.
    pub name: &'a str,
    /// The element type as the file spells it, supported or not.
    pub dtype: &'a str,
    /// Dimensions, outermost first.
    pub shape: &'a [usize],
    /// The file it lies in.
    pub file: &'a str,
    /// Bytes it takes there.
    pub bytes: usize,
}

/// One weight file of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedFile<'a> {
    /// File name.
    pub name: &'a str,
    /// Size, header included.
    pub bytes: usize,
    /// The header's `__metadata__`: who wrote the file, in which convention.
    pub metadata: &'a BTreeMap<String, String>,
}

impl Checkpoint {
    /// Reads the headers of all weight files of `source`. Errors name file and tensor.
    pub fn open(source: &Source) -> Result<Checkpoint> {
        if source.is_gguf() { gguf::open(source) } else { shards::open(source) }
    }

    /// A checkpoint without tensors, of a model that is in no file.
    pub fn nowhere(name: &str) -> Checkpoint {
        Checkpoint { name: name.into(), files: Vec::new(), tensors: BTreeMap::new(), gguf: None }
    }

    pub(super) fn empty(source: &Source) -> Checkpoint {
        Checkpoint::nowhere(source.name())
    }

    /// Adds a file's tensors; a name that is there already is an error.
    pub(super) fn add(
        &mut self,
        name: String,
        bytes: Bytes,
        metadata: BTreeMap<String, String>,
        tensors: impl IntoIterator<Item = (String, Stored)>,
    ) -> Result<()> {
        let file = self.files.len();
        for (tensor, stored) in tensors {
            match self.tensors.entry(tensor) {
                Slot::Vacant(slot) => slot.insert(Stored { file, ..stored }),
                Slot::Occupied(slot) => {
                    let first = self.files.get(slot.get().file).map_or(name.as_str(), |shard| shard.name.as_str());
                    return Err(Error::model(format!(
                        "tensor '{}' is in {first} and again in {name}: keep one of them",
                        slot.key()
                    )));
                }
            };
        }
        self.files.push(Shard { name, bytes, metadata });
        Ok(())
    }

    pub(super) fn set_gguf(&mut self, metadata: Metadata) {
        self.gguf = Some(metadata);
    }

    /// The keys of a GGUF file, `None` for a safetensors checkpoint.
    pub fn gguf(&self) -> Option<&Metadata> {
        self.gguf.as_ref()
    }

    /// What says which shapes a model has, for messages.
    pub fn described_by(&self) -> &'static str {
        if self.gguf.is_some() { "its metadata" } else { "config.json" }
    }

    /// The shape of a tensor, of whatever type.
    pub fn shape_of(&self, tensor: &str) -> Option<&[usize]> {
        Some(&self.tensors.get(tensor)?.shape)
    }

    /// The file that holds this tensor.
    pub fn file_of(&self, tensor: &str) -> Option<&str> {
        Some(self.files[self.tensors.get(tensor)?.file].name.as_str())
    }

    /// The model's name for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is a tensor of this name, of whatever type.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The tensor of this name, if there is one. An error if its type is not one we compute with.
    pub fn get(&self, name: &str) -> Result<Option<Tensor>> {
        let Some(stored) = self.tensors.get(name) else { return Ok(None) };
        let shard = &self.files[stored.file];
        let Some(format) = stored.format else {
            let supported = if self.gguf.is_some() { gguf::types::supported() } else { shards::SUPPORTED.into() };
            return Err(Error::model(format!(
                "tensor '{name}' in {} has the type {}; supported are {supported}",
                shard.name, stored.dtype
            )));
        };
        let data = shard.bytes.slice(stored.start..stored.end);
        let data = data.ok_or_else(|| Error::model(format!("tensor '{name}' does not lie inside {}", shard.name)))?;
        Ok(Some(Tensor { name: name.into(), format, shape: stored.shape.clone(), data }))
    }

    /// The tensor of this name and shape; anything else is an error that says what was expected.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let Some(tensor) = self.get(name)? else {
            return Err(Error::model(format!("{} has no tensor '{name}' (expected with shape {shape:?})", self.name)));
        };
        if tensor.shape != shape {
            return Err(Error::model(format!(
                "tensor '{name}' of {} has shape {:?}, and {} asks for {shape:?}",
                self.name,
                tensor.shape,
                self.described_by()
            )));
        }
        Ok(tensor)
    }

    /// The weight matrix `[rows, cols]` of this name. FP8 needs its scales beside it: `weight_scale_inv` for `weight`,
    /// one BF16 or F32 value a block of 128 x 128 (spec 5.2), and nothing but numbers.
    pub fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix> {
        let mut matrix = self.expect(name, &[rows, cols])?.to_matrix()?;
        if matrix.format == Format::F8E4m3 {
            matrix.format.check_numbers(name, &matrix.data)?;
            let scales = format!("{name}_scale_inv");
            let blocks = [rows.div_ceil(SCALE_BLOCK), cols.div_ceil(SCALE_BLOCK)];
            matrix.scales = Some(Arc::new(block_scales(self.expect(&scales, &blocks)?.to_f32()?, cols)));
        }
        Ok(matrix)
    }

    /// A hash of every tensor's name, type and shape and of its first bytes, as much as a page holds of them: two
    /// trainings of one model differ in it, and it takes a page of every tensor, not all of them.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut sum = Sha256::new();
        for (name, stored) in &self.tensors {
            sum.update(format!("{name} {} {:?}", stored.dtype, stored.shape));
            let end = stored.end.min(stored.start + 1024);
            if let Some(first) = self.files.get(stored.file).and_then(|file| file.bytes.get(stored.start..end)) {
                sum.update(first);
            }
        }
        sum.finalize().into()
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Bytes of all tensors together, headers not counted.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|stored| (stored.end - stored.start) as u64).sum()
    }

    /// Every tensor, sorted by name.
    pub fn list(&self) -> impl Iterator<Item = Listed<'_>> {
        self.tensors.iter().map(|(name, stored)| Listed {
            name,
            dtype: &stored.dtype,
            shape: &stored.shape,
            file: &self.files[stored.file].name,
            bytes: stored.end - stored.start,
        })
    }

    /// Every weight file, sorted by name.
    pub fn files(&self) -> impl Iterator<Item = ListedFile<'_>> {
        self.files.iter().map(|shard| ListedFile {
            name: &shard.name,
            bytes: shard.bytes.len(),
            metadata: &shard.metadata,
        })
    }
}

/// Rows and columns that one FP8 scale covers (spec 5.2).
pub(super) const SCALE_BLOCK: usize = 128;

/// Scales `[rows.div_ceil(128), cols.div_ceil(128)]` of a whole matrix.
pub(super) fn block_scales(values: Vec<f32>, cols: usize) -> BlockScales {
    BlockScales { block: SCALE_BLOCK, across: cols.div_ceil(SCALE_BLOCK), row_offset: 0, values }
}
