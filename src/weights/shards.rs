//! A checkpoint in safetensors files: every tensor by name, whichever file it lies in (spec 5.1).
//!
//! Owns: the choice of files, strict headers, and the check that index and files agree.
//! Always true: an open checkpoint's tensors lie inside their files, do not overlap and are as long as shape and type
//! say; opening reads headers only. A type we cannot compute with is an error of that tensor alone, when it is asked for.
//! Not here: where files come from (`source`), which names a model needs (`model::bind`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::{BlockScales, Bytes, Format, Matrix, Source, Tensor};
use crate::error::{Error, Result};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// All tensors of a model.
pub struct Checkpoint {
    name: String,
    files: Vec<Shard>,
    tensors: BTreeMap<String, Stored>,
}

struct Shard {
    name: String,
    bytes: Bytes,
    metadata: BTreeMap<String, String>,
}

struct Stored {
    file: usize,
    dtype: String,
    shape: Vec<usize>,
    /// Offsets in the file.
    start: usize,
    end: usize,
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
    /// Reads the headers of all weight files: those of `model.safetensors.index.json`, else `model.safetensors`, else
    /// every `*.safetensors`; `mtp*.safetensors` beside them belongs to the model too. Errors name file and tensor.
    pub fn open(source: &Source) -> Result<Checkpoint> {
        let index = read_index(source)?;
        let present = source.weight_files()?;
        let mut wanted: Vec<String> = match &index {
            Some(index) => index.values().cloned().collect(),
            None if present.iter().any(|name| name == SINGLE) => vec![SINGLE.into()],
            None => present.clone(),
        };
        if wanted.is_empty() {
            return Err(Error::model(format!(
                "{} has no weights: expected {INDEX} with its files, {SINGLE}, or other *.safetensors files",
                source.name()
            )));
        }
        wanted.extend(present.into_iter().filter(|name| name.starts_with("mtp")));
        wanted.sort();
        wanted.dedup();

        let mut checkpoint = Checkpoint { name: source.name().into(), files: Vec::new(), tensors: BTreeMap::new() };
        let mut missing = Vec::new();
        for name in wanted {
            match source.file(&name)? {
                Some(bytes) => checkpoint.add(name, bytes)?,
                None => missing.push(name),
            }
        }
        if !missing.is_empty() {
            return Err(Error::model(format!(
                "{} is not complete: {INDEX} lists {}, which the folder does not have; download the rest",
                source.name(),
                some_of(&missing)
            )));
        }
        if let Some(index) = index {
            checkpoint.check_index(&index)?;
        }
        Ok(checkpoint)
    }

    fn add(&mut self, name: String, bytes: Bytes) -> Result<()> {
        let (header, body) = read_header(&name, &bytes)?;
        check_layout(&name, &header, bytes.len() - body, bytes.len())?;
        let file = self.files.len();
        for (tensor, raw) in header.tensors {
            let [start, end] = raw.data_offsets.map(|offset| offset + body);
            let stored = Stored { file, dtype: raw.dtype, shape: raw.shape, start, end };
            match self.tensors.entry(tensor) {
                Slot::Vacant(slot) => slot.insert(stored),
                Slot::Occupied(slot) => {
                    let first = self.files.get(slot.get().file).map_or(name.as_str(), |shard| shard.name.as_str());
                    return Err(Error::model(format!(
                        "tensor '{}' is in {first} and again in {name}: keep one of them",
                        slot.key()
                    )));
                }
            };
        }
        self.files.push(Shard { name, bytes, metadata: header.metadata });
        Ok(())
    }

    fn check_index(&self, index: &BTreeMap<String, String>) -> Result<()> {
        let lost: Vec<String> = index
            .iter()
            .filter(|&(tensor, file)| self.tensors.get(tensor).is_none_or(|at| self.files[at.file].name != *file))
            .map(|(tensor, file)| format!("'{tensor}' in {file}"))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        Err(Error::model(format!(
            "{INDEX} of {} does not fit its files: it lists {}, and there is no such tensor there; download index and \
             weights of the same revision",
            self.name,
            some_of(&lost)
        )))
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
        let format = match stored.dtype.as_str() {
            "F32" => Format::F32,
            "F16" => Format::F16,
            "BF16" => Format::Bf16,
            "F8_E4M3" => Format::F8E4m3,
            "I64" => Format::I64,
            other => {
                return Err(Error::model(format!(
                    "tensor '{name}' in {} has the type {other}; supported are F32, F16, BF16, F8_E4M3 and I64",
                    shard.name
                )));
            }
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
                "tensor '{name}' of {} has shape {:?}, and config.json asks for {shape:?}",
                self.name, tensor.shape
            )));
        }
        Ok(tensor)
    }

    /// The weight matrix `[rows, cols]` of this name. FP8 needs its scales beside it: `weight_scale_inv` for `weight`,
    /// one BF16 or F32 value a block of 128 x 128 (spec 5.2).
    pub fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix> {
        let mut matrix = self.expect(name, &[rows, cols])?.to_matrix()?;
        if matrix.format == Format::F8E4m3 {
            let scales = format!("{name}_scale_inv");
            let blocks = [rows.div_ceil(SCALE_BLOCK), cols.div_ceil(SCALE_BLOCK)];
            matrix.scales = Some(Arc::new(block_scales(self.expect(&scales, &blocks)?.to_f32()?, cols)));
        }
        Ok(matrix)
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

/// The first few of a list, for a sentence.
fn some_of(names: &[String]) -> String {
    let shown = names.len().min(4);
    let rest = names.len() - shown;
    let list = names[..shown].join(", ");
    if rest == 0 { list } else { format!("{list} and {rest} more") }
}

/// Tensor names and their files, or `None` without an index.
fn read_index(source: &Source) -> Result<Option<BTreeMap<String, String>>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let Some(bytes) = source.file(INDEX)? else { return Ok(None) };
    let index: Index = serde_json::from_slice(&bytes)
        .map_err(|error| Error::model(format!("{INDEX} of {} cannot be read: {error}", source.name())))?;
    Ok(Some(index.weight_map))
}

struct Header {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, RawTensor)>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    dtype: String,
    shape: Vec<usize>,
    /// Relative to the end of the header.
    data_offsets: [usize; 2],
}

/// The header and the offset of the first tensor byte.
fn read_header(file: &str, bytes: &[u8]) -> Result<(Header, usize)> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(Error::model(format!(
            "{file} has {} bytes, too few for a safetensors file: download it again",
            bytes.len()
        )));
    };
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(|| {
        Error::model(format!(
            "{file} is truncated or not a safetensors file: its header should take {length} bytes, and only {} follow; \
             download it again",
            rest.len()
        ))
    })?;
    let header: Header = serde_json::from_slice(header).map_err(|error| {
        Error::model(format!("{file} has a broken safetensors header ({error}): download it again"))
    })?;
    // Cannot overflow: the header lies inside the file.
    Ok((header, 8 + length as usize))
}

/// Sizes follow from shapes and types, and tensors fill the `available` bytes of the file without gap or overlap.
fn check_layout(file: &str, header: &Header, available: usize, size: usize) -> Result<()> {
    let mut order: Vec<&(String, RawTensor)> = header.tensors.iter().collect();
    order.sort_by_key(|(_, raw)| raw.data_offsets);
    let mut end = 0;
    for (name, raw) in order {
        let [start, stop] = raw.data_offsets;
        if start != end || stop < start {
            return Err(Error::model(format!(
                "{file} has a broken safetensors header: tensor '{name}' lies at {start}..{stop} where {end} was \
                 expected; download it again"
            )));
        }
        end = stop;
        let elements = raw.shape.iter().try_fold(1usize, |product, &dimension| product.checked_mul(dimension));
        let expected = match (elements, bits(&raw.dtype)) {
            (_, None) => continue,
            (Some(elements), Some(bits)) => elements.checked_mul(bits).map(|bits| bits.div_ceil(8)),
            (None, _) => None,
        };
        if expected != Some(stop - start) {
            return Err(Error::model(format!(
                "{file} has a broken safetensors header: tensor '{name}' of type {} and shape {:?} takes {} bytes; \
                 download it again",
                raw.dtype,
                raw.shape,
                stop - start
            )));
        }
    }
    if end != available {
        let whole = end.saturating_add(size - available);
        let what = if end > available { "is truncated" } else { "is too long" };
        return Err(Error::model(format!(
            "{file} {what}: its header describes {whole} bytes, and the file has {size}; download it again"
        )));
    }
    Ok(())
}

/// Bits of an element, for every type that safetensors defines; `None` for one we have never heard of.
fn bits(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E5M2FNUZ" | "F8_E4M3FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "F64" | "I64" | "U64" | "C64" => 64,
        _ => return None,
    })
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: BTreeMap::new(), tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value()?;
                    } else {
                        // A list and not a map: a name that is there twice must be seen, not overwritten.
                        header.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}
