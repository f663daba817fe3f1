//! Streams and events as one graph of operations that have not run yet.
//!
//! Owns: what is queued and what must run before what. Always true: an operation waits for its stream's last one; the
//! legacy null stream and the blocking streams wait for each other; an operation waits for lower numbers only, so there
//! is no cycle. Not here: running them (`run`), capture (`capture`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::capture::{CaptureId, StreamCapture};
use super::work::Work;
use crate::error::{HipError, Outcome};

/// Number of a queued operation.
pub type OperationId = u64;

/// A queued operation.
#[derive(Debug)]
pub struct Operation {
    /// Those it waits for.
    pub after: Vec<OperationId>,
    /// What it does.
    pub work: Work,
    /// A thread is running it, outside the lock.
    pub running: bool,
}

/// A stream.
#[derive(Debug, Default)]
pub struct StreamState {
    /// `hipStreamNonBlocking`: nothing to do with the null stream.
    pub non_blocking: bool,
    /// Its last operation.
    pub tail: Option<OperationId>,
    /// The capture it is part of.
    pub capture: Option<StreamCapture>,
}

/// When an event was reached.
pub type Stamp = Arc<OnceLock<Instant>>;

/// An event.
#[derive(Debug, Default)]
pub struct EventState {
    /// Made with `hipEventDisableTiming`.
    pub no_timing: bool,
    /// Its last record.
    pub recorded: Option<(OperationId, Stamp)>,
    /// Recorded in a capture: which, and the nodes it stands for.
    pub captured: Option<(CaptureId, Vec<usize>)>,
}

/// Handle of the null stream.
pub const NULL_STREAM: u64 = 0;

/// Everything queued.
#[derive(Debug)]
pub struct Queue {
    /// Not finished yet.
    pub operations: BTreeMap<OperationId, Operation>,
    /// Streams by handle.
    pub streams: BTreeMap<u64, StreamState>,
    /// Events by handle.
    pub events: BTreeMap<u64, EventState>,
    last: OperationId,
}

impl Default for Queue {
    fn default() -> Self {
        let streams = BTreeMap::from([(NULL_STREAM, StreamState::default())]);
        Queue { operations: BTreeMap::new(), streams, events: BTreeMap::new(), last: 0 }
    }
}

impl Queue {
    /// A stream by its handle.
    pub fn stream(&mut self, stream: u64) -> Outcome<&mut StreamState> {
        self.streams.get_mut(&stream).ok_or(HipError::INVALID_HANDLE)
    }

    /// An event by its handle.
    pub fn event(&mut self, event: u64) -> Outcome<&mut EventState> {
        self.events.get_mut(&event).ok_or(HipError::INVALID_HANDLE)
    }

    /// What an operation on this stream must wait for now.
    fn before(&self, stream: u64) -> Vec<OperationId> {
        let Some(state) = self.streams.get(&stream) else { return Vec::new() };
        let others = self.streams.iter().filter(|(handle, other)| {
            let one_is_null = stream == NULL_STREAM || **handle == NULL_STREAM;
            one_is_null && !state.non_blocking && !other.non_blocking
        });
        let tails = state.tail.into_iter().chain(others.filter_map(|(_, other)| other.tail));
        let pending: BTreeSet<_> = tails.filter(|tail| self.operations.contains_key(tail)).collect();
        pending.into_iter().collect()
    }

    /// Queues work on a stream, after what HIP's rules and `also` say.
    pub fn push(&mut self, stream: u64, work: Work, also: &[OperationId]) -> OperationId {
        let mut after = self.before(stream);
        after.extend(also.iter().filter(|id| self.operations.contains_key(id)));
        let id = self.push_after(work, after);
        if let Some(state) = self.streams.get_mut(&stream) {
            state.tail = Some(id);
        }
        id
    }

    /// Queues work after exactly these operations, on no stream: a node of a graph.
    pub fn push_after(&mut self, work: Work, after: Vec<OperationId>) -> OperationId {
        self.last += 1;
        self.operations.insert(self.last, Operation { after, work, running: false });
        self.last
    }

    /// Queues a whole graph on a stream; `nodes` are work with the indices of earlier nodes it waits for.
    pub fn push_graph<'a>(&mut self, stream: u64, nodes: impl Iterator<Item = (&'a Work, &'a [usize])>) {
        let before = self.before(stream);
        let mut ids: Vec<OperationId> = Vec::new();
        for (work, after) in nodes {
            let mut needs: Vec<_> = after.iter().map(|index| ids[*index]).collect();
            if needs.is_empty() {
                needs.clone_from(&before);
            }
            ids.push(self.push_after(work.clone(), needs));
        }
        self.push(stream, Work::Nothing, &ids);
    }

    /// Whether an operation is finished.
    pub fn is_done(&self, id: OperationId) -> bool {
        !self.operations.contains_key(&id)
    }

    /// Whether the operation could run now.
    pub fn is_ready(&self, id: OperationId) -> bool {
        self.operations
            .get(&id)
            .is_some_and(|operation| !operation.running && operation.after.iter().all(|before| self.is_done(*before)))
    }

    /// What must run for the target to be done, ascending: a legal order.
    pub fn needed(&self, target: OperationId) -> Vec<OperationId> {
        let mut needed = BTreeSet::new();
        let mut open = vec![target];
        while let Some(id) = open.pop() {
            if let Some(operation) = self.operations.get(&id)
                && needed.insert(id)
            {
                open.extend(&operation.after);
            }
        }
        needed.into_iter().collect()
    }

    /// Whether the null stream or a stream that waits for it has work.
    pub fn null_stream_is_busy(&self) -> bool {
        self.streams.values().any(|stream| !stream.non_blocking && stream.tail.is_some_and(|tail| !self.is_done(tail)))
    }
}
