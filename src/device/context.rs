//! A device in use: who may call, and the errors that had nobody to go to.
//!
//! Owns: the device's number, its owner thread, whether a capture is running, and the first error of a `Drop`.
//! Always true: calls come from one thread at a time, the owner, because HIP's current device and capture are a
//! thread's; another thread takes over with `adopt`. A recorded error is returned by the next call.
//! Not here: what is allocated or run (`memory`, `stream`, `module`).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::api::Api;
use super::library::Library;
use super::properties::{MemoryInfo, Properties};
use crate::error::{Error, Result};

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);
thread_local! {
    /// A number of this thread: comparing it is one load, `std::thread::current()` counts references.
    static THREAD: u64 = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
}

fn this_thread() -> u64 {
    // A thread that is ending has lost its number; 0 is nobody's.
    THREAD.try_with(|number| *number).unwrap_or(0)
}

/// A device of a library. Cheap to clone; clones are the same device.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
}

struct Shared {
    library: Library,
    properties: Properties,
    owner: AtomicU64,
    captures: AtomicUsize,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl Context {
    /// Takes the device into use; the calling thread owns it.
    pub fn new(library: &Library, device: i32) -> Result<Context> {
        let count = library.device_count()?;
        if device < 0 || device >= count {
            return Err(Error::Device(format!(
                "there is no HIP device {device}: {} has {count}, counted from 0; `hipfire doctor` lists them",
                library.path().display()
            )));
        }
        let properties = library.properties(device)?;
        let shared = Shared {
            library: library.clone(),
            properties,
            owner: AtomicU64::new(0),
            captures: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        };
        let context = Context { shared: Arc::new(shared) };
        context.adopt()?;
        Ok(context)
    }

    /// Makes the calling thread the owner. The one before must be done with the device.
    pub fn adopt(&self) -> Result<()> {
        self.api().set_device(self.device())?;
        self.shared.owner.store(this_thread(), Ordering::Release);
        Ok(())
    }

    /// The library.
    pub fn library(&self) -> &Library {
        &self.shared.library
    }
    /// What the device is.
    pub fn properties(&self) -> &Properties {
        &self.shared.properties
    }
    /// HIP's number of it.
    pub fn device(&self) -> i32 {
        self.shared.properties.device
    }

    /// The calls, without a check.
    pub(super) fn api(&self) -> &Api {
        &self.shared.library.api
    }

    /// The calls, for the owner, unless an earlier error is still to be heard.
    pub(super) fn calls(&self) -> Result<&Api> {
        if self.shared.owner.load(Ordering::Acquire) != this_thread() {
            return Err(Error::Device(format!(
                "device {} belongs to another thread: the thread that uses it calls Context::adopt first",
                self.device()
            )));
        }
        if self.shared.failed.load(Ordering::Acquire) {
            self.take_failure().map_or(Ok(()), Err)?;
        }
        Ok(self.api())
    }

    /// Returns and forgets the error of an earlier `Drop`.
    pub fn take_failure(&self) -> Option<Error> {
        let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.failed.store(false, Ordering::Release);
        failure.take()
    }

    /// Keeps the first error for the next call.
    pub(super) fn record<E: Into<Error>>(&self, outcome: Result<(), E>) {
        if let Err(error) = outcome {
            let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error.into());
            self.shared.failed.store(true, Ordering::Release);
        }
    }

    /// Waits for everything submitted to the device.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.calls()?.synchronize_device()?)
    }

    /// The same from any thread, for a `Drop`.
    pub(super) fn finish(&self) -> Result<()> {
        if self.shared.owner.load(Ordering::Acquire) != this_thread() {
            self.api().set_device(self.device())?;
        }
        Ok(self.api().synchronize_device()?)
    }

    /// Memory now.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (free, total) = self.calls()?.memory_info()?;
        Ok(MemoryInfo { free, total })
    }

    /// Whether a stream of the device records instead of running.
    pub fn is_capturing(&self) -> bool {
        self.shared.captures.load(Ordering::Acquire) > 0
    }

    pub(super) fn enter_capture(&self) {
        self.shared.captures.fetch_add(1, Ordering::AcqRel);
    }
    pub(super) fn leave_capture(&self) {
        self.shared.captures.fetch_sub(1, Ordering::AcqRel);
    }
}
