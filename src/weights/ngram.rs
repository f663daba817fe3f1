//! The n-gram table: hundreds of millions of rows that stay in their files, of which a token reads a few (spec 2.6, 5.1).
//!
//! Owns: finding a row in its shard, its decode, and how much of the table this process keeps in memory.
//! Always true: opening reads no row; rows are read through the mapping, ahead of use; a bounded share of the mapping
//! is resident; byte offsets are 64 bits wide.
//! Not here: which rows (`hash`), what becomes of them (`backend`).

use std::sync::atomic::{AtomicUsize, Ordering};

use half::bf16;
use rayon::prelude::*;

use super::format::E4M3;
use super::{Bytes, Checkpoint, Format, Tensor};
use crate::error::{Error, Result};

/// What one row may bring into memory: the kernel maps a fault's neighbours up to this size if the page cache has them.
const FAULT_BYTES: usize = 64 << 10;

/// Bytes of the table's mapping that may be resident before all are released. The page cache keeps what it likes, so a
/// row that comes back costs a minor fault.
pub const RESIDENT_BYTES: usize = 256 << 20;

/// From this many rows on, threads share a call: a chunk of a GPU's prompt, which waits for them.
const SHARED_ROWS: usize = 16 << 10;

/// The table of one PLE layer.
pub struct NgramTable {
    format: Format,
    row_dim: usize,
    rows: u64,
    /// Rows of every shard but perhaps the last, which may have fewer.
    shard_rows: u64,
    shards: Vec<Bytes>,
    /// FP8 only: the value of every byte, scale applied and rounded to BF16 as the reference does.
    values: Option<Box<[f32; 256]>>,
    limit: usize,
    /// Upper bound of what was made resident since the last release.
    resident: AtomicUsize,
}

impl NgramTable {
    /// The table under `prefix` (ends in `ple_embedding.`) with `rows` rows of `row_dim` values: one tensor
    /// `ngram_embedding.weight`, or `ngram_embedding.shard_0.weight` and so on.
    pub fn load(checkpoint: &Checkpoint, prefix: &str, rows: u64, row_dim: usize) -> Result<NgramTable> {
        let single = format!("{prefix}ngram_embedding.weight");
        let shard = |i: usize| format!("{prefix}ngram_embedding.shard_{i}.weight");
        let mut tensors = Vec::from_iter(checkpoint.get(&single)?);
        if tensors.is_empty() {
            // By number: a lexicographic order would put shard 10 before shard 2.
            while let Some(tensor) = checkpoint.get(&shard(tensors.len()))? {
                tensors.push(tensor);
            }
        } else if checkpoint.contains(&shard(0)) {
            let twice = format!("{} has the n-gram table twice: '{single}' and '{}'", checkpoint.name(), shard(0));
            return Err(Error::model(twice));
        }
        let Some(first) = tensors.first() else {
            return Err(Error::model(format!(
                "{} has no n-gram table: expected '{single}' or '{}'",
                checkpoint.name(),
                shard(0)
            )));
        };
        let values = table_values(checkpoint, &format!("{prefix}ngram_embedding.weight_scale"), first.format)?;
        NgramTable::assemble(checkpoint, tensors, values, rows, row_dim)
    }

    /// The table in the one tensor `name`, `[rows, row_dim]` (GGUF, spec 5.4).
    pub fn whole(checkpoint: &Checkpoint, name: &str, rows: u64, row_dim: usize) -> Result<NgramTable> {
        let missing = || Error::model(format!("{} has no n-gram table '{name}'", checkpoint.name()));
        NgramTable::of(checkpoint, checkpoint.get(name)?.ok_or_else(missing)?, rows, row_dim)
    }

    /// The table in a tensor `[rows, row_dim]`; `checkpoint` is named in messages.
    pub fn of(checkpoint: &Checkpoint, tensor: Tensor, rows: u64, row_dim: usize) -> Result<NgramTable> {
        NgramTable::assemble(checkpoint, vec![tensor], None, rows, row_dim)
    }

    fn assemble(
        checkpoint: &Checkpoint,
        tensors: Vec<Tensor>,
        values: Option<Box<[f32; 256]>>,
        rows: u64,
        row_dim: usize,
    ) -> Result<NgramTable> {
        let shard_rows = check_shards(&tensors, row_dim)?;
        let total: u64 = tensors.iter().map(|tensor| tensor.shape[0] as u64).sum();
        let (first, format) = (&tensors[0].name, tensors[0].format);
        if total != rows {
            return Err(Error::model(format!(
                "the n-gram table of {} has {total} rows in {} tensors from '{first}' on, and {} asks for {rows}; \
                 a shard is missing or the table belongs to another model",
                checkpoint.name(),
                tensors.len(),
                checkpoint.described_by()
            )));
        }
        let shards: Vec<Bytes> = tensors.into_iter().map(|tensor| tensor.data).collect();
        shards.iter().for_each(Bytes::expect_random);
        let resident = AtomicUsize::new(0);
        Ok(NgramTable { format, row_dim, rows, shard_rows, shards, values, limit: RESIDENT_BYTES, resident })
    }

    /// The same table with another bound of its resident share, in bytes.
    pub fn with_resident_limit(mut self, bytes: usize) -> NgramTable {
        self.limit = bytes;
        self
    }

    /// Rows of the table.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Values of a row.
    pub fn row_dim(&self) -> usize {
        self.row_dim
    }

    /// How the rows are stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Starts reading `rows` from the disk, all at once, without waiting. Call it as soon as ids are known.
    pub fn prefetch(&self, rows: &[u64]) -> Result<()> {
        for &row in rows {
            let (shard, start) = self.place(row)?;
            if shard.is_mapped() {
                shard.prefetch(start..start + self.format.row_bytes(self.row_dim));
            }
        }
        Ok(())
    }

    /// Reads `rows` into `out` `[rows.len(), row_dim]`, dequantised. A row outside the table is an error.
    pub fn gather(&self, rows: &[u64], out: &mut [f32]) -> Result<()> {
        if out.len() != rows.len() * self.row_dim {
            return Err(Error::invalid(format!(
                "{} values are no room for {} rows of {} values",
                out.len(),
                rows.len(),
                self.row_dim
            )));
        }
        // In parts: the bound holds for one huge call too, and a part's reads overlap on the disk.
        let part = (self.limit / FAULT_BYTES).clamp(1, 4096);
        let shared = rows.len() >= SHARED_ROWS;
        for (rows, out) in rows.chunks(part).zip(out.chunks_mut((part * self.row_dim).max(1))) {
            self.make_room(rows.len());
            self.prefetch(rows)?;
            let read = |(&row, out): (&u64, &mut [f32])| {
                self.decode(self.stored_row(row)?, out);
                Ok::<_, Error>(())
            };
            let width = self.row_dim.max(1);
            match shared {
                true => rows.par_iter().zip(out.par_chunks_mut(width)).try_for_each(read)?,
                false => rows.iter().zip(out.chunks_mut(width)).try_for_each(read)?,
            }
        }
        Ok(())
    }

    /// A row as stored, and [`NgramTable::decode`] its values `[row_dim]`: for whoever walks the whole table.
    pub fn stored_row(&self, row: u64) -> Result<&[u8]> {
        let (shard, start) = self.place(row)?;
        Ok(&shard[start..start + self.format.row_bytes(self.row_dim)])
    }

    /// The values of a stored row, dequantised.
    pub fn decode(&self, stored: &[u8], out: &mut [f32]) {
        match &self.values {
            Some(values) => out.iter_mut().zip(stored).for_each(|(to, from)| *to = values[usize::from(*from)]),
            None => self.format.decode_row(stored, out),
        }
    }

    /// Takes the pages of the table out of this process.
    pub fn release(&self) {
        self.shards.iter().for_each(Bytes::release);
    }

    /// The shard of a row and the row's byte offset in it.
    fn place(&self, row: u64) -> Result<(&Bytes, usize)> {
        let shard = row.checked_div(self.shard_rows).and_then(|index| self.shards.get(usize::try_from(index).ok()?));
        match shard {
            Some(shard) if row < self.rows => {
                Ok((shard, (row % self.shard_rows) as usize * self.format.row_bytes(self.row_dim)))
            }
            _ => Err(Error::invalid(format!("row {row} is outside the n-gram table of {} rows", self.rows))),
        }
    }

    /// Releases the mapping once reading `rows` more could pass the limit.
    fn make_room(&self, rows: usize) {
        let more = rows * FAULT_BYTES;
        if self.resident.fetch_add(more, Ordering::Relaxed) + more > self.limit {
            self.shards.iter().for_each(Bytes::release);
            self.resident.store(more, Ordering::Relaxed);
        }
    }
}

/// Rows of every shard but the last. All have the first one's format and rows of `row_dim` values.
fn check_shards(tensors: &[Tensor], row_dim: usize) -> Result<u64> {
    let (first, last) = (&tensors[0], tensors.len() - 1);
    for (i, tensor) in tensors.iter().enumerate() {
        if tensor.format == Format::I64 || tensor.shape.len() != 2 || tensor.shape[1] != row_dim {
            return Err(Error::model(format!(
                "tensor '{}' is {} {:?}, and the n-gram table needs weights of shape [rows, {row_dim}]",
                tensor.name, tensor.format, tensor.shape
            )));
        }
        let fits = tensor.shape[0] == first.shape[0] || (i == last && tensor.shape[0] < first.shape[0]);
        if tensor.format != first.format || !fits {
            return Err(Error::model(format!(
                "tensor '{}' is {} {:?} and '{}' is {} {:?}: all shards of the n-gram table need the same type and \
                 number of rows (the last may have fewer)",
                tensor.name, tensor.format, tensor.shape, first.name, first.format, first.shape
            )));
        }
    }
    Ok(first.shape[0] as u64)
}

/// Values of the 256 bytes of an FP8 table: `bf16(f32(byte) * f32(scale))` with one scale for all shards (spec 5.2).
fn table_values(checkpoint: &Checkpoint, name: &str, format: Format) -> Result<Option<Box<[f32; 256]>>> {
    let scale = checkpoint.get(name)?;
    match (format, scale) {
        (Format::F8E4m3, Some(scale)) if scale.len() == 1 => {
            let scale = scale.to_f32()?[0];
            Ok(Some(Box::new(E4M3.map(|value| bf16::from_f32(value * scale).to_f32()))))
        }
        (Format::F8E4m3, Some(scale)) => Err(Error::model(format!(
            "tensor '{name}' has shape {:?}; the n-gram table has one scale, shape [1]",
            scale.shape
        ))),
        (Format::F8E4m3, None) => {
            Err(Error::model(format!("{} has an FP8 n-gram table without its scale '{name}'", checkpoint.name())))
        }
        (_, Some(_)) => Err(Error::model(format!(
            "{} has a scale '{name}' beside an n-gram table that is {format}: only FP8 has one",
            checkpoint.name()
        ))),
        (_, None) => Ok(None),
    }
}
