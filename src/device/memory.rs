//! Memory of the device and pinned memory of the host, and copies between them.
//!
//! Owns: allocations, the bounds of copies, and when the host may touch pinned memory that a copy uses.
//! Always true: a copy from or to pageable memory has ended when its call returns; pinned memory is handed out only after
//! the copies on it have ended. Contents of device memory are the owner's matter: nothing is zeroed.
//! Not here: memory that grows with context (`arena`).

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use super::context::Context;
use super::stream::{Event, Stream};
use super::sys::hipMemcpyKind as Kind;
use crate::error::{Error, Result};

/// Bytes of a device, borrowed from whoever keeps them alive.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSpan<'a> {
    address: u64,
    bytes: usize,
    alive: PhantomData<&'a ()>,
}

impl<'a> DeviceSpan<'a> {
    /// Bytes that something else keeps alive, an arena's range for example.
    ///
    /// # Safety
    /// `bytes` from `address` are accessible memory of the device for the whole of `'a`.
    pub unsafe fn from_raw(address: u64, bytes: usize) -> DeviceSpan<'a> {
        DeviceSpan { address, bytes, alive: PhantomData }
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// A part of it.
    pub fn part(&self, part: Range<usize>) -> Result<DeviceSpan<'a>> {
        check(&part, self.bytes, "device memory")?;
        let address = self.address + part.start as u64;
        Ok(DeviceSpan { address, bytes: part.len(), alive: PhantomData })
    }

    fn fits(&self, bytes: usize) -> Result<()> {
        check(&(0..bytes), self.bytes, "device memory")
    }

    /// Copies host bytes to the front of it and waits for them.
    pub fn upload(&self, stream: &Stream, from: &[u8]) -> Result<()> {
        self.fits(from.len())?;
        let api = stream.context().calls()?;
        let source = from.as_ptr().expose_provenance() as u64;
        // SAFETY: both ends are as long as the copy, which has ended when the next line returns.
        let submitted =
            unsafe { api.copy(self.address, source, from.len(), Kind::hipMemcpyHostToDevice, stream.handle()) };
        ended(stream, submitted)
    }

    /// Copies the front of it to the host and waits for it.
    pub fn download(&self, stream: &Stream, into: &mut [u8]) -> Result<()> {
        self.fits(into.len())?;
        let api = stream.context().calls()?;
        let target = into.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: as above.
        let submitted =
            unsafe { api.copy(target, self.address, into.len(), Kind::hipMemcpyDeviceToHost, stream.handle()) };
        ended(stream, submitted)
    }

    /// Submits a copy of pinned bytes to the front of it.
    pub fn upload_pinned(&self, stream: &Stream, from: &PinnedMemory, part: Range<usize>) -> Result<()> {
        check(&part, from.bytes, "pinned memory")?;
        self.fits(part.len())?;
        let (at, bytes) = (from.address() + part.start as u64, part.len());
        from.during(stream, |api| {
            // SAFETY: both ends are as long as the copy; the pinned one is not touched before its event.
            unsafe { api.copy(self.address, at, bytes, Kind::hipMemcpyHostToDevice, stream.handle()) }
        })
    }

    /// Submits a copy of the front of it to pinned bytes.
    pub fn download_pinned(&self, stream: &Stream, into: &mut PinnedMemory, part: Range<usize>) -> Result<()> {
        check(&part, into.bytes, "pinned memory")?;
        self.fits(part.len())?;
        let (at, bytes) = (into.address() + part.start as u64, part.len());
        into.during(stream, |api| {
            // SAFETY: as above.
            unsafe { api.copy(at, self.address, bytes, Kind::hipMemcpyDeviceToHost, stream.handle()) }
        })
    }

    /// Submits a copy of another span to the front of it.
    pub fn copy_from(&self, stream: &Stream, from: DeviceSpan<'_>) -> Result<()> {
        self.fits(from.bytes)?;
        let api = stream.context().calls()?;
        // SAFETY: both spans are as long as the copy. HIP waits for it before either is freed.
        unsafe { api.copy(self.address, from.address, from.bytes, Kind::hipMemcpyDeviceToDevice, stream.handle()) }?;
        Ok(())
    }

    /// Submits a write of `value` to every byte.
    pub fn fill(&self, stream: &Stream, value: u8) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let api = stream.context().calls()?;
        // SAFETY: the span is that long. HIP waits for the write before it is freed.
        Ok(unsafe { api.fill(self.address, value, self.bytes, stream.handle()) }?)
    }
}

/// Refuses a part that does not lie in `bytes`.
fn check(part: &Range<usize>, bytes: usize, what: &str) -> Result<()> {
    match part.start <= part.end && part.end <= bytes {
        true => Ok(()),
        false => Err(Error::invalid(format!("bytes {}..{} are not within {bytes} of {what}", part.start, part.end))),
    }
}

/// Waits even if the copy was refused: part of it may have been submitted.
fn ended(stream: &Stream, submitted: Result<(), super::Failure>) -> Result<()> {
    let waited = stream.synchronize();
    submitted?;
    waited
}

/// Memory of a device.
pub struct DeviceMemory {
    context: Context,
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates at least one byte; the content is whatever was there.
    pub fn new(context: &Context, bytes: usize) -> Result<DeviceMemory> {
        let address = context.calls()?.malloc(bytes.max(1))?;
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// All of it.
    pub fn span(&self) -> DeviceSpan<'_> {
        DeviceSpan { address: self.address, bytes: self.bytes, alive: PhantomData }
    }

    /// Frees it now, to hear of an error at once. HIP waits for work that uses it.
    pub fn free(self) -> Result<()> {
        let memory = std::mem::ManuallyDrop::new(self);
        // SAFETY: the value is consumed and not dropped. Its context is read out, so that the count stays right.
        let context = unsafe { std::ptr::read(&memory.context) };
        // SAFETY: the address came from `malloc`, and the value is consumed.
        Ok(unsafe { context.api().free(memory.address) }?)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the address came from `malloc`, and nobody can name it any more.
        self.context.record(unsafe { self.context.api().free(self.address) });
    }
}

/// Page-locked memory of the host: copies of it run beside the host at the full speed of the link.
///
/// A replayed graph that copies it does not show here: synchronise the stream of the replay before touching it.
pub struct PinnedMemory {
    context: Context,
    address: NonNull<u8>,
    bytes: usize,
    event: Event,
    busy: AtomicBool,
}

// SAFETY: the bytes belong to this value alone and are reached only through its borrows.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; a shared borrow only reads, and waits for a copy that may write.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates `bytes` zeros.
    pub fn new(context: &Context, bytes: usize) -> Result<PinnedMemory> {
        let event = Event::new(context)?;
        let address = context.calls()?.malloc_host(bytes.max(1))?;
        let address = NonNull::new(address)
            .ok_or_else(|| Error::Device(format!("hipHostMalloc({bytes} bytes) succeeded and gave no address")))?;
        // SAFETY: HIP has just given this many bytes, to nobody else.
        unsafe { address.as_ptr().write_bytes(0, bytes) };
        Ok(PinnedMemory { context: context.clone(), address, bytes, event, busy: AtomicBool::new(false) })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where kernels read it: HIP maps what it allocates on the host at the same addresses for the device.
    pub fn address(&self) -> u64 {
        self.address.as_ptr().expose_provenance() as u64
    }

    /// The bytes, after the copies on them have ended.
    pub fn bytes(&self) -> Result<&[u8]> {
        self.wait()?;
        // SAFETY: that many initialised bytes, which no copy writes any more.
        Ok(unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.bytes) })
    }

    /// The bytes to write, after the copies on them have ended.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.wait()?;
        // SAFETY: as above, and the borrow is exclusive.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) })
    }

    fn wait(&self) -> Result<()> {
        if self.busy.load(Ordering::Acquire) {
            self.event.synchronize()?;
            self.busy.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Submits a copy and an event behind it. While a capture runs, nothing runs and nothing is to be waited for.
    fn during(&self, stream: &Stream, copy: impl FnOnce(&super::api::Api) -> Result<(), super::Failure>) -> Result<()> {
        let api = stream.context().calls()?;
        if stream.context().is_capturing() {
            return Ok(copy(api)?);
        }
        // One event stands for the last copy only, so a copy on another stream waits for it first.
        if self.busy.swap(true, Ordering::AcqRel) {
            stream.wait(&self.event)?;
        }
        let submitted = copy(api);
        self.event.record(stream)?;
        Ok(submitted?)
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let api = self.context.api();
        if self.busy.load(Ordering::Acquire) {
            self.context.record(self.event.finish());
        }
        // SAFETY: the address came from `malloc_host`; the copies on it have ended and nobody can name it any more.
        self.context.record(unsafe { api.free_host(self.address.as_ptr()) });
    }
}
