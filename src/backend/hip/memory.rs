//! Device memory of a model: weights, activation buffers, scratch, and the way of weights to the device.
//!
//! Owns: how allocations are cut into parts, the pinned buffers that weights pass through.
//! Always true: a part is aligned to [`ALIGN`] and lives as long as the backend; nothing is allocated after a load.
//! Not here: what the parts mean (the operations), the context's memory (`arena`).

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::matrix::Strided;
use crate::device::{Context, DeviceMemory, PinnedMemory, Stream};
use crate::error::{Error, Result};

/// Alignment of every part: whole lines of the device's caches, and more than any kernel asks for.
pub const ALIGN: usize = 256;
/// What is allocated at once for small weights.
const SLAB: usize = 64 << 20;
/// Parts from this size on are allocated alone: no two of them share a slab, and too little comes that is small enough for
/// the rest of one (1.1 GiB of slabs stayed empty at the released geometry).
const ALONE: usize = SLAB / 2;
/// A slab with less room is closed: what little parts could use of it is not worth the search.
const LEAST_ROOM: usize = 16 << 10;
/// Bytes of each of the two pinned buffers.
const STAGE: usize = 16 << 20;
/// A copy into pinned memory is shared among threads in pieces of this many bytes: reading a file is what takes time.
const PIECE: usize = 1 << 20;

/// Activation rows on the device.
pub struct Buffer(pub(super) DeviceMemory);

impl Buffer {
    /// Its first address.
    pub fn address(&self) -> u64 {
        self.0.address()
    }
}

/// Cuts one allocation into parts, or only counts what they take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cutter {
    base: u64,
    used: usize,
}

impl Cutter {
    /// Starts at an address; at 0 to count.
    pub fn new(base: u64) -> Cutter {
        Cutter { base, used: 0 }
    }
    /// The address of the next `count` elements of `size` bytes.
    pub fn take(&mut self, count: usize, size: usize) -> u64 {
        let address = self.base + self.used as u64;
        self.used += (count * size).next_multiple_of(ALIGN);
        address
    }
    /// The address of the next `count` floats.
    pub fn floats(&mut self, count: usize) -> u64 {
        self.take(count, size_of::<f32>())
    }
    /// Bytes taken so far.
    pub fn used(&self) -> usize {
        self.used
    }
}

/// The way of a step's rows to the device: through pinned memory, so that the host goes on to the next step's while the
/// device computes this one's.
pub struct Uploads {
    stage: PinnedMemory,
}

impl Uploads {
    /// For rows of up to `floats` values in all.
    pub fn new(context: &Context, floats: usize) -> Result<Uploads> {
        Ok(Uploads { stage: PinnedMemory::new(context, floats * size_of::<f32>())? })
    }

    /// Submits a copy of `bytes` to the front of a buffer; waits only for the copy before it.
    ///
    /// # Errors
    /// `Invalid` for more than was planned, `Device`.
    pub fn send(&mut self, stream: &Stream, bytes: &[u8], to: &Buffer) -> Result<()> {
        let planned = self.stage.len();
        let Some(stage) = self.stage.bytes_mut()?.get_mut(..bytes.len()) else {
            return Err(Error::invalid(format!("{} bytes of rows for the device, {planned} are planned", bytes.len())));
        };
        copy(&Strided::whole(bytes), 0, stage);
        to.0.span().upload_pinned(stream, &self.stage, 0..bytes.len())
    }
}

/// A copy that threads share.
fn copy(parts: &Strided<'_>, from: usize, to: &mut [u8]) {
    to.par_chunks_mut(PIECE).enumerate().for_each(|(i, to)| parts.copy(from + i * PIECE, to));
}

/// Memory for weights, and what copies them there.
pub struct Loader {
    context: Context,
    stream: Arc<Stream>,
    slabs: Vec<DeviceMemory>,
    /// Slabs with room, and the offset of their free end: small parts fill what large ones leave.
    open: Vec<(usize, usize)>,
    stages: [PinnedMemory; 2],
    /// Which of them is being filled.
    stage: usize,
    filled: usize,
    /// Where its parts go, one behind the other: slab and bytes within it.
    parts: Vec<(usize, Range<usize>)>,
}

impl Loader {
    /// Bytes that it holds beside the weights: pinned memory, and the end of its last slab.
    pub const OVERHEAD: usize = 2 * STAGE + SLAB;

    /// With nothing allocated but the pinned buffers.
    pub fn new(context: &Context, stream: Arc<Stream>) -> Result<Loader> {
        let stages = [PinnedMemory::new(context, STAGE)?, PinnedMemory::new(context, STAGE)?];
        let (slabs, open, parts) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Loader { context: context.clone(), stream, slabs, open, stages, stage: 0, filled: 0, parts })
    }

    /// Takes a copy of `bytes`, which will lie at the address returned after the next `flush`.
    ///
    /// # Errors
    /// `InsufficientMemory`, `Device`.
    pub fn store(&mut self, bytes: &[u8]) -> Result<u64> {
        self.gather(&Strided::whole(bytes))
    }

    /// The same for parts of bytes, one behind the other.
    pub fn gather(&mut self, parts: &Strided<'_>) -> Result<u64> {
        let bytes = parts.len();
        let (slab, start) = self.take(bytes)?;
        let mut done = 0;
        while done < bytes {
            if self.filled == STAGE {
                self.flush()?;
            }
            let count = (bytes - done).min(STAGE - self.filled);
            let to = &mut self.stages[self.stage].bytes_mut()?[self.filled..self.filled + count];
            copy(parts, done, to);
            self.parts.push((slab, start + done..start + done + count));
            self.filled += count;
            done += count;
        }
        Ok(self.slabs[slab].address() + start as u64)
    }

    /// A slab with room for `bytes`, and the offset of that room.
    fn take(&mut self, bytes: usize) -> Result<(usize, usize)> {
        let bytes = bytes.next_multiple_of(ALIGN).max(ALIGN);
        if bytes >= ALONE {
            self.slabs.push(DeviceMemory::new(&self.context, bytes)?);
            return Ok((self.slabs.len() - 1, 0));
        }
        let slabs = &self.slabs;
        let open = self.open.iter().position(|&(slab, used)| slabs[slab].len() - used >= bytes);
        let at = match open {
            Some(at) => at,
            None => {
                let slab = DeviceMemory::new(&self.context, SLAB)?;
                self.slabs.push(slab);
                self.open.push((self.slabs.len() - 1, 0));
                self.open.len() - 1
            }
        };
        let (slab, start) = self.open[at];
        self.open[at].1 += bytes;
        if self.slabs[slab].len() - self.open[at].1 < LEAST_ROOM {
            self.open.remove(at);
        }
        Ok((slab, start))
    }

    /// Submits the copies of everything that was stored, and turns to the other buffer while they run.
    pub fn flush(&mut self) -> Result<()> {
        let mut at = 0;
        for (slab, part) in self.parts.drain(..) {
            let count = part.len();
            let span = self.slabs[slab].span().part(part)?;
            span.upload_pinned(&self.stream, &self.stages[self.stage], at..at + count)?;
            at += count;
        }
        (self.stage, self.filled) = (1 - self.stage, 0);
        Ok(())
    }
}
