//! A device's memory for the arena: reserve, map in segments, prove, and fall back to whole allocations.
//!
//! Owns: the rules of VMM.md (shared design notes on ROCm's virtual memory), each named where it is kept.
//! Always true: a range is handed out only after its memory was proven and zeroed; an address that was mapped once is
//! not mapped again; whatever fails takes back what it did; a fallback is logged once, with its reason.
//! Not here: HIP's calls (`device::vm`), accounting and rollback across ranges (`arena`), when to grow (`engine`).
//!
//! | row | kept by |
//! |---|---|
//! | 1 addresses read their first backing | `AddressRange` never frees one, `unmap` says no to a second mapping |
//! | 2 fresh mappings lose stores | [`prove`] before a prefix is handed out, `arena::ensure_ahead` before it is needed |
//! | 3, 4 access of a part is refused or forgotten | access from the base; a refusal rolls back, then [`gave_up`] |
//! | 5, 6, 7 order of unmapping | `AddressRange::give_back`; nothing is mapped during a capture |
//! | 8 a file descriptor a segment | [`decide::segment`], the raised limit, [`decide::explain_full`] |
//! | 9 granularity | [`decide::granularity`] |
//! | 10 memory kept after unloading | [`Unload`] |
//! | 11 eager reservation | [`decide::plan`], and the probe looks at free memory |
//!
//! [`gave_up`]: super::vm::VirtualMemory::gave_up

pub mod decide;
pub mod probe;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::ledger::size;
use super::vm::{Mapping, OnDevice, VirtualMemory};
use super::{Arena, KvBackend, Limits};
use crate::device::canary::Prove;
use crate::device::vm::AddressRange;
use crate::device::{Context, DeviceMemory, DeviceSpan, Stream, limits as process};
use crate::error::{Error, Result};
use decide::Plan;
pub use probe::{Probe, Step};

/// How long fresh memory may take to work. Reports say 1 to 2 ms (VMM.md row 2).
const PATIENCE: Duration = Duration::from_millis(250);

/// An arena on a device.
pub struct Opened {
    /// The arena.
    pub arena: Arena,
    /// Why memory is allocated whole although nobody asked for that.
    pub fallback: Option<String>,
}

/// What an arena on a device is to be.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How memory is obtained; `None` is `auto`.
    pub choice: Option<KvBackend>,
    /// What it may hold.
    pub limits: Limits,
    /// The least bytes of a segment.
    pub segment: usize,
}

impl Default for Options {
    /// `auto`, no limit but the system's, segments of 32 MiB.
    fn default() -> Options {
        Options { choice: None, limits: Limits::default(), segment: 32 << 20 }
    }
}

/// Opens an arena on the device. `Vmm` that cannot be had is an error; `auto` falls back to `Legacy` and logs why.
pub fn open(context: &Context, prove: Arc<dyn Prove>, options: Options) -> Result<Opened> {
    let Options { choice, limits, segment } = options;
    let memory = |segments: Option<Segments>| -> Result<Box<DeviceVirtualMemory>> {
        let (context, prove, stream) = (context.clone(), prove.clone(), Stream::new(context)?);
        let shared =
            Arc::new(Shared { context, prove, stream, auto: choice.is_none(), gave_up: AtomicBool::new(false) });
        Ok(Box::new(DeviceVirtualMemory { shared, segments }))
    };
    let refused = match decide::plan(choice, &decide::platform(context))? {
        Plan::Legacy(reason) => reason,
        Plan::Probe => match probe::run(context, &*prove).verdict() {
            Ok(granularity) => {
                let files = process::raise_open_files().and_then(|limit| limit.soft);
                let used = process::files_in_use().unwrap_or(0);
                let segments = Segments { granularity, least: segment, handles: Arc::new(Handles::new(files, used)) };
                let arena = Arena::new(memory(Some(segments))?, KvBackend::Vmm, limits);
                return Ok(Opened { arena, fallback: None });
            }
            Err(reason) if choice == Some(KvBackend::Vmm) => {
                return Err(Error::Device(format!("--kv-backend vmm cannot be had: {reason}; use auto or legacy")));
            }
            Err(reason) => Some(reason),
        },
    };
    if let Some(reason) = &refused {
        tracing::warn!("the context's memory is allocated whole at load (legacy): {reason}");
    }
    Ok(Opened { arena: Arena::new(memory(None)?, KvBackend::Legacy, limits), fallback: refused })
}

struct Shared {
    context: Context,
    prove: Arc<dyn Prove>,
    stream: Stream,
    /// Falling back later is allowed.
    auto: bool,
    gave_up: AtomicBool,
}

impl Shared {
    /// Remembers that reserving does not work here, where the user left the choice.
    fn give_up(&self, error: &Error) {
        if self.auto && !self.gave_up.swap(true, Ordering::AcqRel) {
            tracing::warn!("the context's memory is allocated whole from now on (legacy): {error}");
        }
    }

    fn zero(&self, span: DeviceSpan<'_>) -> Result<()> {
        span.fill(&self.stream, 0)?;
        self.stream.synchronize()
    }
}

/// How ranges are cut.
struct Segments {
    granularity: usize,
    /// The least bytes of one.
    least: usize,
    handles: Arc<Handles>,
}

/// File descriptors that ranges may come to hold.
struct Handles {
    budget: usize,
    planned: AtomicUsize,
}

impl Handles {
    fn new(files: Option<u64>, used: u64) -> Handles {
        Handles { budget: decide::handle_budget(files, used), planned: AtomicUsize::new(0) }
    }
}

/// Memory of one device.
struct DeviceVirtualMemory {
    shared: Arc<Shared>,
    /// `None`: allocate only.
    segments: Option<Segments>,
}

impl VirtualMemory for DeviceVirtualMemory {
    fn granularity(&self) -> usize {
        self.segments.as_ref().map_or(decide::ALLOCATION, |segments| segments.granularity)
    }

    fn reserve(&self, bytes: usize) -> Result<Box<dyn Mapping>> {
        let Some(Segments { granularity, least, handles }) = &self.segments else { return self.allocate(bytes) };
        let free = handles.budget.saturating_sub(handles.planned.load(Ordering::Acquire));
        let segment = decide::segment(bytes, (*least).next_multiple_of(*granularity), free);
        let range = AddressRange::reserve(&self.shared.context, bytes, *granularity)?;
        let planned = bytes.div_ceil(segment);
        handles.planned.fetch_add(planned, Ordering::AcqRel);
        let (shared, handles) = (self.shared.clone(), handles.clone());
        Ok(Box::new(Reserved { shared, handles, planned, range, segment, proven: 0 }))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Mapping>> {
        let memory = DeviceMemory::new(&self.shared.context, bytes)?;
        self.shared.zero(memory.span())?;
        Ok(Box::new(Allocated { shared: self.shared.clone(), base: memory.address(), bytes, memory: Some(memory) }))
    }

    fn recycles_allocations(&self) -> bool {
        true
    }

    fn gave_up(&self) -> bool {
        self.shared.gave_up.load(Ordering::Acquire)
    }
}

/// A reserved range with a mapped prefix.
struct Reserved {
    shared: Arc<Shared>,
    handles: Arc<Handles>,
    /// Handles it may come to hold.
    planned: usize,
    range: AddressRange,
    segment: usize,
    /// Prefix that was proven and zeroed.
    proven: usize,
}

impl Mapping for Reserved {
    fn base(&self) -> u64 {
        self.range.base()
    }

    fn segment(&self) -> usize {
        self.segment
    }

    fn map(&mut self, piece: Range<usize>) -> Result<()> {
        self.range.obtain(piece.len()).map_err(|error| match error {
            Error::InsufficientMemory(message) => {
                let (used, files) = (process::files_in_use(), process::open_files());
                Error::InsufficientMemory(decide::explain_full(message, used, files))
            }
            other => other,
        })
    }

    fn allow(&mut self, prefix: usize) -> Result<()> {
        let shared = self.shared.clone();
        let capturing = shared.context.is_capturing();
        let outcome = self.range.map().and_then(|()| {
            let fresh = self.range.span().part(self.proven..prefix)?;
            prove(&*shared.prove, &shared.stream, fresh)?;
            shared.zero(fresh)
        });
        match outcome {
            Ok(()) => self.proven = prefix,
            // A caller's mistake, or memory that ran out, says nothing about the driver.
            Err(Error::Device(_)) if capturing => {}
            Err(ref error @ Error::Device(_)) => shared.give_up(error),
            Err(_) => {}
        }
        outcome
    }

    fn unmap(&mut self, piece: Range<usize>) -> Result<bool> {
        self.proven = self.proven.min(piece.start);
        self.range.give_back()
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        Some(OnDevice { span: self.range.span(), stream: &self.shared.stream })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.handles.planned.fetch_sub(self.planned, Ordering::AcqRel);
    }
}

/// Memory in one piece.
struct Allocated {
    shared: Arc<Shared>,
    base: u64,
    bytes: usize,
    memory: Option<DeviceMemory>,
}

impl Mapping for Allocated {
    fn base(&self) -> u64 {
        self.base
    }
    fn segment(&self) -> usize {
        self.bytes
    }
    fn map(&mut self, _: Range<usize>) -> Result<()> {
        Ok(())
    }
    fn allow(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
    fn unmap(&mut self, _: Range<usize>) -> Result<bool> {
        self.memory.take().map_or(Ok(()), DeviceMemory::free).map(|()| false)
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let memory = self.memory.as_ref()?;
        Some(OnDevice { span: memory.span(), stream: &self.shared.stream })
    }
}

/// Waits until fresh memory keeps what is stored in it; the content is spoilt. Waiting happens on the host: submitting
/// more work to the device does not help (VMM.md row 2).
fn prove(prove: &dyn Prove, stream: &Stream, fresh: DeviceSpan<'_>) -> Result<()> {
    // Only the pauses count: on an emulator the canary itself takes longer than a driver may.
    let (mut waited, mut pause) = (Duration::ZERO, Duration::from_micros(500));
    // A copy of the last word first: where access is missing it is refused, and a kernel would lose the device.
    let last = fresh.len().saturating_sub(8);
    fresh.part(last..fresh.len())?.download(stream, &mut [0; 8][..fresh.len() - last])?;
    loop {
        let lost = prove.lost_words(fresh)?;
        if lost == 0 {
            tracing::debug!("{} at {:#x} work after waiting {waited:?}", size(fresh.len()), fresh.address());
            return Ok(());
        }
        if waited > PATIENCE {
            return Err(Error::Device(format!(
                "{lost} of {} words stored in freshly mapped memory at {:#x} were still lost after {} ms: the driver's \
                 virtual memory does not work here",
                fresh.len() / 8,
                fresh.address(),
                waited.as_millis()
            )));
        }
        std::thread::sleep(pause);
        waited += pause;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Measures what the driver keeps when a model is unloaded (VMM.md row 10).
pub struct Unload {
    context: Context,
    free: usize,
    committed: usize,
}

impl Unload {
    /// Before: `committed` bytes are about to be given back.
    pub fn begin(context: &Context, committed: usize) -> Result<Unload> {
        Ok(Unload { context: context.clone(), free: context.memory_info()?.free, committed })
    }

    /// After: how many bytes the driver kept, also logged.
    pub fn finish(self) -> Result<usize> {
        self.context.synchronize()?;
        let kept = decide::kept(self.free, self.context.memory_info()?.free, self.committed);
        if kept > 0 {
            tracing::warn!(
                "the driver kept {} of {} after they were given back; only a restart returns them",
                size(kept),
                size(self.committed)
            );
        }
        Ok(kept)
    }
}
