//! HIP over host memory: everything but executing kernels.
//!
//! Owns: the runtime that `export!` makes of an executor, and its state behind one lock. Always true: a device address
//! is a host address; handles are numbers that are looked up, never followed; nothing queued runs until somebody
//! waits. Not here: the C symbols (`exports`), the kernels (an `Executor`).

mod capture;
mod device;
mod graph;
mod hostile;
mod memory;
mod module;
mod pages;
mod queue;
mod run;
mod streams;
mod vmm;
mod work;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use self::capture::Captures;
use self::graph::Graphs;
use self::memory::{Allocations, Ranges};
use self::module::Modules;
use self::queue::{OperationId, Queue};
use self::vmm::VirtualMemory;
use crate::calls::Runtime;
use crate::card::Card;
use crate::error::Outcome;
use crate::executor::Executor;

/// HIP over host memory with an executor for kernels.
pub struct HostRuntime {
    executor: Box<dyn Executor>,
    card: Option<Card>,
    kind: String,
    state: Mutex<State>,
    /// An operation ended.
    progress: Condvar,
}

/// Everything that changes.
#[derive(Default)]
struct State {
    allocations: Allocations,
    virtual_memory: VirtualMemory,
    /// Accessible memory, until it changes.
    view: Option<Arc<Ranges>>,
    queue: Queue,
    captures: Captures,
    modules: Modules,
    graphs: Graphs,
    /// Operations on the way to the one waited for, last first (`run`).
    plan: Vec<OperationId>,
    /// Choices made so far in a seeded order.
    steps: u64,
    handles: u64,
}

impl HostRuntime {
    /// A runtime of a kind (`rdna`, `fibers`), which the device's name says.
    pub fn new(kind: &str, executor: Box<dyn Executor>) -> HostRuntime {
        HostRuntime {
            executor,
            card: Card::from_environment(),
            kind: kind.to_owned(),
            state: Mutex::default(),
            progress: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the whole device, on behalf of a call that a capture forbids.
    fn wait_for_all(&self, call: &str) -> Outcome<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.forbid_in_capture(call)?;
        self.run_all(state)?;
        Ok(self.state())
    }
}

impl State {
    /// A handle no other object of any kind has. Small and odd, so that following one as a pointer is a fault.
    fn new_handle(&mut self) -> u64 {
        self.handles += 2;
        0x1001 + self.handles
    }

    /// The memory, to be changed.
    fn memory(&mut self) -> (&mut Allocations, &mut VirtualMemory) {
        self.view = None;
        (&mut self.allocations, &mut self.virtual_memory)
    }

    /// The memory that is accessible now.
    fn memory_view(&mut self) -> Result<Arc<Ranges>, String> {
        let settled = self.virtual_memory.settle();
        settled.map_err(|error| format!("virtual memory could not be set up: {error}"))?;
        let (allocations, mapped) = (&self.allocations, &self.virtual_memory);
        let view = self.view.get_or_insert_with(|| allocations.ranges(mapped.accessible().into_iter()));
        Ok(view.clone())
    }
}

impl Runtime for HostRuntime {
    fn reset(&self) {
        let mut state = self.state();
        state.queue.operations.clear();
        state.queue.streams.values_mut().for_each(|stream| stream.capture = None);
        state.queue.events.values_mut().for_each(|event| event.captured = None);
        state.captures.active.clear();
        state.plan.clear();
        state.steps = 0;
        self.progress.notify_all();
    }

    fn profile(&self) -> String {
        self.executor.profile()
    }
}
