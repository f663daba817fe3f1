//! Experts of whole layers in pinned memory of the host, and their way to the device.
//!
//! Owns: these layers' bytes, the two slots of device memory that they take turns in, the copies.
//! Always true: few rows read the host's memory where it lies; a step of many rows meets these layers in the order they
//! were loaded in, each once, and finds each in a slot: its copy was submitted two layers before, on a stream of its own.
//! The host waits for nothing. Not here: which layers (`model::load`), the products (`expert`).

use std::cell::Cell;
use std::sync::Arc;

use crate::device::{Context, DeviceMemory, Event, PinnedMemory, Stream};
use crate::error::{Error, Result};

/// Layers that are on the device at a time: one that is multiplied, one that arrives.
pub const SLOTS: usize = 2;

/// A layer's experts, one behind the other as they lie in a slot.
struct Layer {
    bytes: PinnedMemory,
    /// Device addresses of its table of experts in each slot.
    tables: [u64; SLOTS],
}

struct Slot {
    memory: DeviceMemory,
    /// Behind the copy to it.
    arrived: Event,
    /// Behind the last products that read it.
    read: Event,
}

/// All such layers.
pub struct Hosted {
    context: Context,
    copies: Stream,
    slot_bytes: usize,
    slots: Vec<Slot>,
    layers: Vec<Layer>,
    /// Layers that steps have met so far: number c was in slot c mod [`SLOTS`].
    met: Cell<usize>,
}

impl Hosted {
    /// With slots of `slot_bytes`, the largest layer's; they are taken with the first layer.
    pub fn new(context: &Context, slot_bytes: usize) -> Result<Hosted> {
        let copies = Stream::new(context)?;
        let (slots, layers) = (Vec::new(), Vec::new());
        Ok(Hosted { context: context.clone(), copies, slot_bytes, slots, layers, met: Cell::new(0) })
    }

    /// Memory for a layer's experts, and the addresses that they have in each slot.
    ///
    /// # Errors
    /// `InsufficientMemory`, `Device`.
    pub fn allocate(&mut self, bytes: usize) -> Result<(PinnedMemory, [u64; SLOTS])> {
        if bytes > self.slot_bytes {
            let planned = self.slot_bytes;
            return Err(Error::model(format!("a layer's experts take {bytes} bytes and {planned} were planned")));
        }
        while self.slots.len() < SLOTS {
            let (arrived, read) = (Event::new(&self.context)?, Event::new(&self.context)?);
            self.slots.push(Slot { memory: DeviceMemory::new(&self.context, self.slot_bytes)?, arrived, read });
        }
        let addresses = std::array::from_fn(|slot| self.slots[slot].memory.address());
        Ok((PinnedMemory::new(&self.context, bytes)?, addresses))
    }

    /// Keeps a layer whose bytes and tables are ready; returns its place.
    pub fn keep(&mut self, bytes: PinnedMemory, tables: [u64; SLOTS]) -> usize {
        self.layers.push(Layer { bytes, tables });
        self.layers.len() - 1
    }

    /// How many layers there are.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Submits the copies of the first layers.
    pub fn start(&self) -> Result<()> {
        self.met.set(0);
        (0..SLOTS.min(self.layers.len())).try_for_each(|number| self.copy(number))
    }

    /// Lets `stream` wait until layer `place` is in its slot; returns its table there.
    pub fn meet(&self, stream: &Arc<Stream>, place: usize) -> Result<u64> {
        if self.met.get() % self.layers.len() != place {
            // A step ended within its layers: begin again from here.
            self.met.set(place);
            (place..place + SLOTS).try_for_each(|number| self.copy(number))?;
        }
        let slot = self.met.get() % SLOTS;
        stream.wait(&self.slots[slot].arrived)?;
        Ok(self.layers[place].tables[slot])
    }

    /// The layer that was met is not read by what is submitted from now on: its slot takes the next but one.
    pub fn leave(&self, stream: &Arc<Stream>) -> Result<()> {
        let number = self.met.get();
        self.slots[number % SLOTS].read.record(stream)?;
        self.met.set(number + 1);
        self.copy(number + SLOTS)
    }

    /// Submits the copy of the layer that is met as `number`, behind what reads its slot.
    fn copy(&self, number: usize) -> Result<()> {
        let (layer, slot) = (&self.layers[number % self.layers.len()], &self.slots[number % SLOTS]);
        self.copies.wait(&slot.read)?;
        slot.memory.span().upload_pinned(&self.copies, &layer.bytes, 0..layer.bytes.len())?;
        slot.arrived.record(&self.copies)
    }
}
