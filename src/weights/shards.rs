//! Safetensors files: the choice of files, strict headers, and the check that index and files agree (spec 5.1).
//!
//! Always true: tensors of a header that was read are as long as shape and type say and fill the file without gaps.
//! Not here: where files come from (`source`), looking tensors up (`checkpoint`).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::checkpoint::{Checkpoint, Stored};
use super::{Bytes, Format, Source};
use crate::error::{Error, Result};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// For a sentence about a type that cannot be used.
pub(super) const SUPPORTED: &str = "F32, F16, BF16, F8_E4M3 and I64";

/// Reads the headers of all weight files: those of `model.safetensors.index.json`, else `model.safetensors`, else
/// every `*.safetensors`; `mtp*.safetensors` beside them belongs to the model too. Errors name file and tensor.
pub(super) fn open(source: &Source) -> Result<Checkpoint> {
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

    let mut checkpoint = Checkpoint::empty(source);
    let mut missing = Vec::new();
    for name in wanted {
        match source.file(&name)? {
            Some(bytes) => add(&mut checkpoint, name, bytes)?,
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
        check_index(&checkpoint, &index)?;
    }
    Ok(checkpoint)
}

fn add(checkpoint: &mut Checkpoint, name: String, bytes: Bytes) -> Result<()> {
    let (header, body) = read_header(&name, &bytes)?;
    check_layout(&name, &header, bytes.len() - body, bytes.len())?;
    let tensors = header.tensors.into_iter().map(|(tensor, raw)| {
        let [start, end] = raw.data_offsets.map(|offset| offset + body);
        let format = format(&raw.dtype);
        (tensor, Stored { file: 0, dtype: raw.dtype, format, shape: raw.shape, start, end })
    });
    checkpoint.add(name, bytes, header.metadata, tensors)
}

/// The format of a type's name, `None` for one we cannot compute with.
fn format(dtype: &str) -> Option<Format> {
    Some(match dtype {
        "F32" => Format::F32,
        "F16" => Format::F16,
        "BF16" => Format::Bf16,
        "F8_E4M3" => Format::F8E4m3,
        "I64" => Format::I64,
        _ => return None,
    })
}

fn check_index(checkpoint: &Checkpoint, index: &BTreeMap<String, String>) -> Result<()> {
    let lost: Vec<String> = index
        .iter()
        .filter(|&(tensor, file)| checkpoint.file_of(tensor) != Some(file.as_str()))
        .map(|(tensor, file)| format!("'{tensor}' in {file}"))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(Error::model(format!(
        "{INDEX} of {} does not fit its files: it lists {}, and there is no such tensor there; download index and \
         weights of the same revision",
        checkpoint.name(),
        some_of(&lost)
    )))
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
