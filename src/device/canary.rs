//! Whether freshly mapped memory keeps what is stored in it.
//!
//! Owns: the question (`Prove`), and its answer on a device: the `canary` kernel writes words that depend on their place
//! and reads them back.
//! Always true: a proof overwrites the range, and tells a loss from a failure of the device.
//! Not here: how often to ask and what to do about a loss (`arena::vmm`).

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::{DeviceMemory, DeviceSpan};
use super::module::{Function, Shape};
use super::stream::Stream;
use crate::error::Result;

/// Proves mapped memory. A value is used by one thread at a time.
pub trait Prove: Send + Sync {
    /// Overwrites the span and reads it back: the number of words that were lost. A number above zero may turn to zero
    /// when the host waits (VMM.md row 2).
    fn lost_words(&self, span: DeviceSpan<'_>) -> Result<u32>;
}

/// hip/abi.h, `CanaryArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CanaryArguments {
    /// Device address of the words.
    pub words: u64,
    /// What the words are made of.
    pub seed: u64,
    /// Device address of one counter.
    pub mismatches: u64,
    /// Number of words.
    pub count: u32,
    /// 0 writes, 1 compares.
    pub phase: u32,
}

const WORD: usize = 8;
const THREADS: u32 = 256;
/// Words of a launch: 16 GiB.
const MOST_WORDS: usize = 1 << 31;

/// The `canary` kernel of a pack.
pub struct KernelCanary {
    function: Function,
    stream: Stream,
    counter: Mutex<DeviceMemory>,
    seed: AtomicU64,
}

impl KernelCanary {
    /// Name of the kernel.
    pub const KERNEL: &'static str = "canary";

    /// Over the kernel of a loaded module.
    pub fn new(function: Function, stream: Stream) -> Result<KernelCanary> {
        let counter = Mutex::new(DeviceMemory::new(stream.context(), 4)?);
        Ok(KernelCanary { function, stream, counter, seed: AtomicU64::new(0) })
    }

    fn run(&self, words: u64, count: u32, seed: u64, mismatches: u64, phase: u32) -> Result<()> {
        let arguments = CanaryArguments { words, seed, mismatches, count, phase };
        self.function.launch(&self.stream, Shape::linear(count.div_ceil(THREADS), THREADS), &arguments)
    }
}

impl Prove for KernelCanary {
    fn lost_words(&self, span: DeviceSpan<'_>) -> Result<u32> {
        let counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        // Another seed each time, so that what an earlier proof left is not taken for what was just written.
        let seed = self.seed.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        counter.span().fill(&self.stream, 0)?;
        let words = span.len() / WORD;
        for phase in 0..2 {
            for first in (0..words).step_by(MOST_WORDS) {
                let count = (words - first).min(MOST_WORDS) as u32;
                let at = span.address() + (first * WORD) as u64;
                self.run(at, count, seed ^ first as u64, counter.address(), phase)?;
            }
        }
        let mut lost = [0; 4];
        counter.span().download(&self.stream, &mut lost)?;
        Ok(u32::from_ne_bytes(lost))
    }
}
