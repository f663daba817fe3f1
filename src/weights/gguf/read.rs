//! The header of one GGUF file, version 3: keys, tensors and where the data starts.
//!
//! Owns: the byte layout of the header and every check of it.
//! Always true: a header that was read has unique names; every tensor's bytes are as long as its type and shape say, lie
//! inside the file, start aligned and overlap no other. What is allocated is in proportion to bytes that are there: a
//! count is never trusted before its elements have been walked.
//! Not here: which files belong together (`open`), what the keys mean (`model::config_gguf`).

use std::collections::BTreeMap;

use super::metadata::{Kind, Metadata, Value, take_text};
use super::types::{self, StoredType};
use crate::error::{Error, Result};
use crate::weights::Bytes;

/// What a file starts with.
pub const MAGIC: &[u8; 4] = b"GGUF";
/// The only version that this architecture's files have.
pub const VERSION: u32 = 3;
/// Alignment of a file that does not name one.
pub const ALIGNMENT: usize = 32;
/// Dimensions that ggml has.
const MAX_DIMENSIONS: u32 = 4;

/// One tensor of a header.
pub struct Entry {
    /// Full name.
    pub name: String,
    /// Its type, supported or not.
    pub kind: &'static StoredType,
    /// Dimensions, outermost first: the reverse of the file's order.
    pub shape: Vec<usize>,
    /// Offset of its first byte in the file.
    pub start: usize,
    /// Offset after its last byte.
    pub end: usize,
}

/// A file's header.
pub struct Header {
    /// Its keys.
    pub metadata: Metadata,
    /// Its tensors, in the file's order.
    pub tensors: Vec<Entry>,
}

/// Reads and checks the header of `file`, whose content is `bytes`.
///
/// # Errors
/// `Model`, naming the file, the key or tensor, and what is wrong with it.
pub fn header(file: &str, bytes: &Bytes) -> Result<Header> {
    let mut reader = Reader { file, rest: bytes, size: bytes.len() };
    let magic = reader.take(4, "its first bytes")?;
    if magic != MAGIC {
        return Err(reader.wrong("it does not start with \"GGUF\": it is not a GGUF file"));
    }
    let version = reader.u32("its version")?;
    if version.swap_bytes() == VERSION {
        return Err(reader.wrong("it is in big-endian byte order; get the little-endian file"));
    }
    if version != VERSION {
        return Err(reader.wrong(format!("it has GGUF version {version}; version {VERSION} is supported")));
    }
    let tensor_count = reader.u64("its number of tensors")?;
    let key_count = reader.u64("its number of keys")?;
    let mut values = BTreeMap::new();
    for i in 0..key_count {
        let (key, value) = reader.pair(i)?;
        if values.contains_key(&key) {
            return Err(reader.wrong(format!("its metadata has '{key}' twice")));
        }
        values.insert(key, value);
    }
    let metadata = Metadata { file: file.into(), bytes: bytes.clone(), values };
    let alignment = alignment(&metadata)?;
    // Walked once for nothing: then the count is true, and the list is as long as it will be.
    let mut ahead = reader.clone();
    for i in 0..tensor_count {
        ahead.tensor(i)?;
    }
    let mut raw = Vec::with_capacity(tensor_count as usize);
    for i in 0..tensor_count {
        raw.push(reader.tensor(i)?);
    }
    check_names(&reader, &raw)?;
    // Cannot overflow: the position is inside the file.
    let data = reader.position().next_multiple_of(alignment);
    let tensors = raw.into_iter().map(|tensor| reader.place(tensor, data, alignment)).collect::<Result<Vec<_>>>()?;
    check_overlap(&reader, &tensors)?;
    Ok(Header { metadata, tensors })
}

fn alignment(metadata: &Metadata) -> Result<usize> {
    const KEY: &str = "general.alignment";
    match metadata.integer(KEY)? {
        None => Ok(ALIGNMENT),
        // ggml takes any power of two; a page of the largest kind is 2^30.
        Some(value) if value.is_power_of_two() && value <= 1 << 30 => Ok(value as usize),
        Some(value) => Err(metadata.wrong(KEY, format!("is {value}; a power of two is needed"))),
    }
}

fn check_names(reader: &Reader<'_>, tensors: &[RawTensor]) -> Result<()> {
    let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(reader.wrong(format!("it has tensor '{}' twice", pair[0]))),
    }
}

fn check_overlap(reader: &Reader<'_>, tensors: &[Entry]) -> Result<()> {
    let mut order: Vec<&Entry> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.start);
    match order.windows(2).find(|pair| pair[0].end > pair[1].start) {
        None => Ok(()),
        Some(pair) => {
            Err(reader.wrong(format!("its tensors '{}' and '{}' lie over each other", pair[0].name, pair[1].name)))
        }
    }
}

struct RawTensor {
    name: String,
    kind: &'static StoredType,
    shape: Vec<usize>,
    bytes: usize,
    offset: u64,
}

/// Walks a header from front to back.
#[derive(Clone)]
struct Reader<'a> {
    file: &'a str,
    rest: &'a [u8],
    size: usize,
}

impl<'a> Reader<'a> {
    fn position(&self) -> usize {
        self.size - self.rest.len()
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Error {
        Error::model(format!("{} cannot be read: {why}; download it again or take another file", self.file))
    }

    fn truncated(&self, what: &str) -> Error {
        Error::model(format!(
            "{} is truncated: its {} bytes end before {what}; download it again",
            self.file, self.size
        ))
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.truncated(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.truncated(what))?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.truncated(what))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn name(&mut self, what: &str) -> Result<String> {
        let bytes = take_text(&mut self.rest).ok_or_else(|| self.truncated(&format!("the name of {what}")))?;
        match std::str::from_utf8(bytes) {
            // GGUF bounds keys at 65535 bytes; a longer name is a misread length.
            Ok(name) if !name.is_empty() && name.len() <= 65535 => Ok(name.to_owned()),
            _ => Err(self.wrong(format!("the name of {what} is not a name"))),
        }
    }

    fn pair(&mut self, i: u64) -> Result<(String, Value)> {
        let key = self.name(&format!("key {i}"))?;
        let what = format!("the value of '{key}'");
        let kind = self.kind(&key)?;
        let value = match kind {
            Kind::Array => {
                let kind = self.kind(&key)?;
                let count = self.u64(&what)?;
                self.elements(kind, Some(count), &key)?
            }
            kind => self.elements(kind, None, &key)?,
        };
        Ok((key, value))
    }

    fn kind(&mut self, key: &str) -> Result<Kind> {
        let id = self.u32(&format!("the type of '{key}'"))?;
        Kind::by_id(id)
            .ok_or_else(|| self.wrong(format!("metadata '{key}' has the type {id}, which GGUF does not have")))
    }

    fn elements(&mut self, kind: Kind, count: Option<u64>, key: &str) -> Result<Value> {
        let start = self.position();
        let short = format!("the value of '{key}'");
        // More elements than bytes cannot be; this also makes the count fit.
        let elements = usize::try_from(count.unwrap_or(1)).ok().filter(|&elements| elements <= self.rest.len());
        let elements = elements.ok_or_else(|| self.truncated(&short))?;
        match (kind, kind.bytes()) {
            (Kind::Array, _) => return Err(self.wrong(format!("metadata '{key}' is a list of lists"))),
            (_, Some(size)) => {
                let bytes = elements.checked_mul(size).ok_or_else(|| self.truncated(&short))?;
                self.take(bytes, &short)?;
            }
            (_, None) => {
                for _ in 0..elements {
                    take_text(&mut self.rest).ok_or_else(|| self.truncated(&short))?;
                }
            }
        }
        Ok(Value { kind, count: count.map(|_| elements), at: start..self.position() })
    }

    fn tensor(&mut self, i: u64) -> Result<RawTensor> {
        let name = self.name(&format!("tensor {i}"))?;
        let what = format!("the description of tensor '{name}'");
        let dimensions = self.u32(&what)?;
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(self.wrong(format!("tensor '{name}' has {dimensions} dimensions; 1 to 4 are possible")));
        }
        let mut shape = Vec::with_capacity(dimensions as usize);
        for _ in 0..dimensions {
            let size = self.u64(&what)?;
            let fits = usize::try_from(size).ok().filter(|&size| size > 0);
            shape.push(fits.ok_or_else(|| self.wrong(format!("tensor '{name}' has a dimension of {size}")))?);
        }
        let id = self.u32(&what)?;
        let offset = self.u64(&what)?;
        let kind = types::by_id(id)
            .ok_or_else(|| self.wrong(format!("tensor '{name}' has the type {id}, which is not known")))?;
        if !shape[0].is_multiple_of(kind.block) {
            return Err(self.wrong(format!(
                "tensor '{name}' has rows of {} values, and its type {} has blocks of {}",
                shape[0], kind.name, kind.block
            )));
        }
        let elements = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        let bytes = elements.and_then(|elements| (elements / kind.block).checked_mul(kind.bytes));
        let bytes =
            bytes.ok_or_else(|| self.wrong(format!("tensor '{name}' of shape {shape:?} is impossibly large")))?;
        shape.reverse();
        Ok(RawTensor { name, kind, shape, bytes, offset })
    }

    fn place(&self, tensor: RawTensor, data: usize, alignment: usize) -> Result<Entry> {
        let RawTensor { name, kind, shape, bytes, offset } = tensor;
        if !offset.is_multiple_of(alignment as u64) {
            return Err(self.wrong(format!("tensor '{name}' starts at {offset}, not at a multiple of {alignment}")));
        }
        let start = usize::try_from(offset).ok().and_then(|offset| data.checked_add(offset));
        let end = start.and_then(|start| start.checked_add(bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.size => Ok(Entry { name, kind, shape, start, end }),
            _ => Err(Error::model(format!(
                "{} is truncated: tensor '{name}' takes {bytes} bytes from {offset} on, and the file has {}; download \
                 it again",
                self.file, self.size
            ))),
        }
    }
}
