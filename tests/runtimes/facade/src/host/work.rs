//! What one operation does.
//!
//! Owns: kernels, copies, fills and host functions as values, and doing them. Always true: a range that belongs to the
//! device is checked when the work runs, because it may be unmapped by then; what fails there is a fault of the
//! context. Not here: when work runs (`run`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::memory::Ranges;
use super::module::KernelFunction;
use super::queue::Stamp;
use crate::calls::{LaunchShape, Pattern};
use crate::executor::Launch;

/// One end of a copy.
#[derive(Debug, Clone)]
pub enum Place {
    /// Memory that this library gave out or registered: checked when the copy runs.
    Known(u64),
    /// The caller's own memory.
    Pageable(u64),
    /// Bytes that were read from the caller's memory when the copy was asked for.
    Staged(Arc<[u8]>),
}

/// A launch.
#[derive(Debug)]
pub struct KernelCall {
    /// Which kernel.
    pub function: Arc<KernelFunction>,
    /// Its shape.
    pub shape: LaunchShape,
    /// Its argument segment.
    pub arguments: Box<[u8]>,
    /// Address of the segment, for `hipGraphKernelNodeGetParams`, which answers a pointer to it.
    pub segment: Box<usize>,
}

/// The work of an operation.
#[derive(Debug, Clone)]
pub enum Work {
    /// Runs a kernel.
    Kernel(Arc<KernelCall>),
    /// Moves bytes.
    Copy {
        /// Destination.
        to: Place,
        /// Source.
        from: Place,
        /// How many.
        bytes: usize,
    },
    /// Fills memory with a pattern.
    Fill {
        /// Where.
        to: u64,
        /// With what.
        pattern: Pattern,
        /// How often.
        count: usize,
    },
    /// Calls a host function.
    Host {
        /// The function.
        function: unsafe extern "C" fn(*mut core::ffi::c_void),
        /// Its argument, an address.
        user: usize,
    },
    /// Records an event.
    Stamp(Stamp),
    /// Orders others.
    Nothing,
}

/// Bytes that a fill writes.
pub fn fill_bytes(pattern: Pattern, count: usize) -> Option<usize> {
    match pattern {
        Pattern::Byte(_) => Some(count),
        Pattern::Word(_) => count.checked_mul(4),
    }
}

impl Work {
    /// Does it. An error is a sentence, and the context is lost.
    pub fn perform(&self, memory: &Ranges, schedule: u64) -> Result<(), String> {
        match self {
            Work::Kernel(call) => call.run(memory, schedule),
            Work::Copy { to, from, bytes } => copy(to, from, *bytes, memory),
            Work::Fill { to, pattern, count } => fill(*to, *pattern, *count, memory),
            Work::Host { function, user } => {
                // SAFETY: the caller of hipLaunchHostFunc said that the function may be called with it.
                unsafe { function(*user as *mut _) };
                Ok(())
            }
            Work::Stamp(stamp) => {
                let _already_stamped_in_an_earlier_run = stamp.set(Instant::now());
                Ok(())
            }
            Work::Nothing => Ok(()),
        }
    }
}

impl KernelCall {
    fn run(&self, memory: &Ranges, schedule: u64) -> Result<(), String> {
        let kernel = &self.function.name;
        if self.function.module.is_unloaded() {
            return Err(format!("kernel {kernel} was run after its module was unloaded"));
        }
        let launch = Launch {
            kernel,
            grid: self.shape.grid,
            block: self.shape.block,
            dynamic_lds: self.shape.dynamic_lds,
            arguments: &self.arguments,
            schedule,
        };
        catch_unwind(AssertUnwindSafe(|| self.function.module.code.launch(&launch, memory)))
            .unwrap_or_else(|_| Err(format!("the executor panicked in kernel {kernel}: see standard error")))
    }
}

fn check(memory: &Ranges, address: u64, bytes: usize, what: &str) -> Result<(), String> {
    if memory.covers(address, bytes) {
        return Ok(());
    }
    Err(format!("{what} of {bytes} bytes at {address:#x}, which were not all accessible when it ran"))
}

fn copy(to: &Place, from: &Place, bytes: usize, memory: &Ranges) -> Result<(), String> {
    let source = match from {
        Place::Known(address) => {
            check(memory, *address, bytes, "a copy")?;
            *address as *const u8
        }
        Place::Pageable(address) => *address as *const u8,
        Place::Staged(staged) => staged.as_ptr(),
    };
    let destination = match to {
        Place::Known(address) => {
            check(memory, *address, bytes, "a copy")?;
            *address as *mut u8
        }
        Place::Pageable(address) => *address as *mut u8,
        Place::Staged(_) => return Err("a copy has no destination".to_owned()),
    };
    // SAFETY: known ranges are accessible as checked; pageable ones are the caller's, who vouches for them.
    unsafe { core::ptr::copy(source, destination, bytes) };
    Ok(())
}

fn fill(to: u64, pattern: Pattern, count: usize, memory: &Ranges) -> Result<(), String> {
    let bytes = fill_bytes(pattern, count).ok_or("a fill is larger than memory")?;
    check(memory, to, bytes, "a fill")?;
    // SAFETY: the range is accessible as checked; words are aligned as checked when the fill was asked for.
    unsafe {
        match pattern {
            Pattern::Byte(value) => core::ptr::write_bytes(to as *mut u8, value, count),
            Pattern::Word(value) => core::slice::from_raw_parts_mut(to as *mut u32, count).fill(value),
        }
    }
    Ok(())
}
