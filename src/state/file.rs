//! A stored sequence as bytes of a file.
//!
//! Owns: the format: a mark with a version, the model's key, the sequence, and a SHA-256 of all of it.
//! Always true: what is read is what was written for the same model, or an error that says what is wrong; numbers are
//! little-endian.
//! Not here: folders, names and the order of writing (`engine::sessions`).

use std::io::{self, Write};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Snapshot;
use super::head::Head;
use super::recurrent::Pending;
use super::stored::Stored;
use crate::error::{Error, Result};

/// What a file begins with; the digit is the version.
const MARK: &[u8; 16] = b"hipfire session2";
const SUM: usize = 32;

/// Says which model a state belongs to.
pub type ModelKey = [u8; 32];

/// Writes `stored`, with its last `moments` moments only: a file is for going on, not for every way back.
pub fn write(stored: &Stored, moments: usize, key: &ModelKey, out: &mut dyn Write) -> io::Result<()> {
    let mut out = Summing { out, sum: Sha256::new() };
    out.write_all(MARK)?;
    out.write_all(key)?;
    out.number(stored.ids.len())?;
    stored.ids.iter().try_for_each(|id| out.write_all(&id.to_le_bytes()))?;
    out.number(stored.stride)?;
    out.number(stored.segments.len())?;
    for segment in &stored.segments {
        out.number(segment.len())?;
        out.write_all(segment)?;
    }
    let moments = &stored.moments[stored.moments.len().saturating_sub(moments)..];
    out.number(moments.len())?;
    for moment in moments {
        out.number(moment.ids.len())?;
        out.number(moment.pending.revocable)?;
        out.number(moment.pending.parts.len())?;
        moment.pending.parts.iter().try_for_each(|&rows| out.number(rows))?;
        out.number(usize::from(moment.head.follows()))?;
        out.number(moment.head.rows())?;
        out.number(moment.recurrent.len())?;
        out.write_all(bytemuck::cast_slice(&moment.recurrent))?;
    }
    let Summing { out, sum } = out;
    out.write_all(&sum.finalize())
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// `Invalid`: not such a file, damaged, or of another model.
pub fn read(bytes: &[u8], key: &ModelKey) -> Result<Stored> {
    let damaged = || Error::invalid("it is damaged: its checksum is not that of its content");
    if !bytes.starts_with(MARK) {
        return Err(Error::invalid("it is not a session of this version of the program"));
    }
    let (content, sum) = bytes.split_last_chunk::<SUM>().ok_or_else(damaged)?;
    if Sha256::digest(content)[..] != sum[..] {
        return Err(damaged());
    }
    let mut reader = Reader { rest: &content[MARK.len()..] };
    if reader.take(key.len()) != Some(&key[..]) {
        return Err(Error::invalid("it belongs to another model, or to other settings of it"));
    }
    reader.stored().ok_or_else(|| Error::invalid("its parts do not fit together"))
}

/// Sums what passes through.
struct Summing<'a> {
    out: &'a mut dyn Write,
    sum: Sha256,
}

impl Summing<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }
    fn number(&mut self, value: usize) -> io::Result<()> {
        self.write_all(&(value as u64).to_le_bytes())
    }
}

/// Takes parts off the front; `None` where there are fewer bytes than asked for.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(part)
    }
    fn number(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.take(8)?.try_into().ok()?)).ok()
    }

    fn pending(&mut self) -> Option<Pending> {
        let (revocable, parts) = (self.number()?, self.number()?);
        let numbers = self.take(parts.checked_mul(8)?)?.chunks_exact(8);
        let parts = numbers.map(|n| usize::try_from(u64::from_le_bytes(n.try_into().ok()?)).ok());
        Some(Pending { revocable, parts: parts.collect::<Option<_>>()? })
    }

    fn stored(&mut self) -> Option<Stored> {
        let count = self.number()?;
        let ids = self.take(count.checked_mul(4)?)?.chunks_exact(4);
        let ids: Vec<u32> = ids.filter_map(|id| Some(u32::from_le_bytes(id.try_into().ok()?))).collect();
        let stride = self.number().filter(|&stride| stride > 0)?;
        let segments = self.number().filter(|&segments| segments == count.div_ceil(stride))?;
        let mut parts = Vec::new();
        for _ in 0..segments {
            let bytes = self.number()?;
            parts.push(Arc::new(self.take(bytes)?.to_vec()));
        }
        let mut moments = Vec::new();
        let mut last = 0;
        for _ in 0..self.number()? {
            let length = self.number().filter(|length| (last + 1..=count).contains(length))?;
            let pending = self.pending()?;
            let (follows, rows) = (self.number()?, self.number()?);
            let head = Head::stored(follows == 1, rows, length)?;
            let floats = self.number()?;
            let recurrent = bytemuck::pod_collect_to_vec(self.take(floats.checked_mul(4)?)?);
            moments.push(Arc::new(Snapshot { ids: ids[..length].to_vec(), head, recurrent, pending }));
            last = length;
        }
        (last == count && count > 0 && self.rest.is_empty()).then_some(Stored { ids, stride, segments: parts, moments })
    }
}
