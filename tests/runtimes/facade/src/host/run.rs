//! Running queued work when somebody waits.
//!
//! Owns: which operation runs next. Always true: nothing runs by itself, so a host that forgets to wait reads old data;
//! with seed 0 only what the wait needs runs, in the order it was queued; with another seed any ready operation may run
//! first. A fault loses the context and drops everything queued. Not here: what must wait for what (`queue`).
//!
//! A kernel runs under the lock: no other call can take its memory away meanwhile. Host functions run outside it.

use std::sync::{MutexGuard, PoisonError};

use super::queue::OperationId;
use super::work::Work;
use super::{HostRuntime, State};
use crate::error::{HipError, Outcome};
use crate::gate::gate;

/// The oldest operations, among whose ready ones a seeded order chooses: the oldest of all is always ready.
const WINDOW: usize = 128;

/// The lock: it is given up while a host function runs.
type Guard<'a> = MutexGuard<'a, State>;

impl HostRuntime {
    /// Runs until an operation is done.
    pub(super) fn run_until(&self, guard: Guard<'_>, target: OperationId) -> Outcome {
        self.run(guard, &[target])
    }

    /// Runs until nothing is queued.
    pub(super) fn run_all(&self, guard: Guard<'_>) -> Outcome {
        let targets: Vec<_> = guard.queue.operations.keys().copied().collect();
        self.run(guard, &targets)
    }

    fn run<'a>(&'a self, mut guard: Guard<'a>, targets: &[OperationId]) -> Outcome {
        for target in targets {
            while !guard.queue.is_done(*target) {
                let next = guard.next(*target);
                guard = match next {
                    Some(id) => self.perform(guard, id)?,
                    // Another thread is inside a host function that this one needs.
                    None => self.progress.wait(guard).unwrap_or_else(PoisonError::into_inner),
                };
            }
        }
        if gate().context_lost() { Err(HipError::LAUNCH_FAILURE) } else { Ok(()) }
    }

    /// Runs one operation that the target needs, for a poll.
    pub(super) fn run_one(&self, mut guard: Guard<'_>, target: OperationId) -> Outcome {
        match guard.next(target) {
            Some(id) => self.perform(guard, id).map(drop),
            None => Ok(()),
        }
    }

    fn perform<'a>(&'a self, mut guard: Guard<'a>, id: OperationId) -> Outcome<Guard<'a>> {
        let Some(operation) = guard.queue.operations.get_mut(&id) else { return Ok(guard) };
        operation.running = true;
        let work = operation.work.clone();
        let result = if matches!(work, Work::Host { .. }) {
            drop(guard);
            let result = work.perform(&Default::default(), 0);
            guard = self.state();
            result
        } else {
            guard.memory_view().and_then(|memory| work.perform(&memory, gate().schedule()))
        };
        guard.queue.operations.remove(&id);
        if let Err(fault) = result {
            guard.queue.operations.clear();
            gate().lose_context(fault);
        }
        self.progress.notify_all();
        if gate().context_lost() { Err(HipError::LAUNCH_FAILURE) } else { Ok(guard) }
    }
}

impl State {
    /// The operation to run next on the way to the target.
    fn next(&mut self, target: OperationId) -> Option<OperationId> {
        let seed = gate().schedule();
        if seed == 0 {
            // Kept from call to call and taken from its end, else a graph of n nodes costs n² look-ups.
            if self.plan.first() != Some(&target) {
                self.plan = self.queue.needed(target);
                self.plan.reverse();
            }
            while self.plan.pop_if(|id| self.queue.is_done(*id)).is_some() {}
            let queue = &self.queue;
            return self.plan.iter().rev().copied().find(|id| queue.is_ready(*id));
        }
        self.steps += 1;
        let ready = self.queue.operations.keys().take(WINDOW).filter(|id| self.queue.is_ready(**id));
        let ready: Vec<_> = ready.copied().collect();
        let choice = mix(seed ^ self.steps.rotate_left(32)) % ready.len().max(1) as u64;
        ready.get(choice as usize).copied()
    }
}

/// Spreads a number over 64 bits.
fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
