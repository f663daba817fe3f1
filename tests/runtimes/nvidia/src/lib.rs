//! `libamdhip64` on an NVIDIA GPU: HIP's calls mapped onto the CUDA driver, which is loaded at run time.
//!
//! Owns: one device, its primary context, a budget of its memory. Always true: without a driver every call answers
//! `hipErrorNoDevice` and says what was tried; a kernel fault is CUDA's, which only a new process gets rid of. Not
//! here: the C symbols and the gate (`hip_facade`), bindings (`driver`).
//!
//! The host sees the card of `HIPFIRE_STANDIN_ARCH` (LDS, wavefront, version) with the GPU's own size, clocks and
//! speed. Images are PTX text that ends with a zero byte, or cubins. Of the modes in `hip_facade::modes`,
//! `vmm_not_supported`, `granularity_4k`, `device_memory_mib` and `device_count` work here: faults of virtual memory
//! are imitated on the host only, and `standin_schedule` has no say in a GPU's order.

#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "HIP's handles are raw pointers that this crate hands on; only the driver follows them"
)]

mod device;
mod driver;
mod graph;
mod memory;
mod module;
mod stream;

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hip_facade::calls::Runtime;
use hip_facade::card::Card;
use hip_facade::gate::gate;
use hip_facade::{HipError, Outcome};

use driver::Cuda;
use memory::Budget;
use module::Functions;

/// HIP on the CUDA driver.
pub struct NvidiaRuntime {
    card: Option<Card>,
    /// The driver and the primary context of device 0, or why there is none.
    device: OnceLock<Result<Device, String>>,
    budget: Mutex<Budget>,
    functions: Functions,
}

/// The driver with its device.
struct Device {
    cuda: Cuda,
    ordinal: i32,
    /// `CUcontext`, an address.
    context: usize,
}

thread_local! {
    /// The primary context is current on this thread.
    static CURRENT: Cell<bool> = const { Cell::new(false) };
}

impl NvidiaRuntime {
    /// A runtime that loads the driver at the first call.
    pub fn new() -> NvidiaRuntime {
        NvidiaRuntime {
            card: Card::from_environment(),
            device: OnceLock::new(),
            budget: Mutex::default(),
            functions: Functions::default(),
        }
    }

    fn card(&self) -> Outcome<Card> {
        self.card.filter(|_| hip_facade::card::device_count() > 0).ok_or(HipError::NO_DEVICE)
    }

    /// The device, with its context current on this thread.
    fn opened(&self) -> Outcome<&Device> {
        self.card()?;
        match self.device.get_or_init(Device::open) {
            Ok(device) => {
                if !CURRENT.get() {
                    // SAFETY: a context that is retained for the life of the process.
                    unsafe { device.cuda.ctx_set_current(device.context as *mut _) }?;
                    CURRENT.set(true);
                }
                Ok(device)
            }
            Err(problem) => {
                gate().explain(problem.clone());
                Err(HipError::NO_DEVICE)
            }
        }
    }

    fn cuda(&self) -> Outcome<&Cuda> {
        self.opened().map(|device| &device.cuda)
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for NvidiaRuntime {
    fn default() -> Self {
        NvidiaRuntime::new()
    }
}

impl Device {
    fn open() -> Result<Device, String> {
        let cuda = Cuda::load()?;
        let (mut ordinal, mut context) = (0, core::ptr::null_mut());
        let failed =
            |error: HipError| format!("the CUDA driver has no usable device: {error}; {}", gate().last_fault());
        // SAFETY: pointers to locals.
        unsafe {
            cuda.init(0).map_err(failed)?;
            cuda.device_get(&mut ordinal, 0).map_err(failed)?;
            cuda.device_primary_ctx_retain(&mut context, ordinal).map_err(failed)?;
        }
        Ok(Device { cuda, ordinal, context: context as usize })
    }
}

impl Runtime for NvidiaRuntime {
    fn reset(&self) {}

    fn profile(&self) -> String {
        "[]".to_owned()
    }
}

hip_facade::export_runtime!(NvidiaRuntime::new);
