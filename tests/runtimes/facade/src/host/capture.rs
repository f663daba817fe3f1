//! Capturing streams into graphs.
//!
//! Owns: capture sequences and which calls they forbid. Always true: nothing runs during a capture; a forbidden call
//! fails and spoils the sequence it disturbs, as on the real runtimes. Not here: graphs themselves (`graph`).

use std::collections::{BTreeMap, BTreeSet};
use std::thread::ThreadId;

use super::State;
use super::queue::{NULL_STREAM, OperationId};
use super::work::{Place, Work};
use crate::abi::{CAPTURE_GLOBAL, CAPTURE_RELAXED};
use crate::error::{HipError, Outcome};
use crate::gate::gate;

/// Number of a capture sequence.
pub type CaptureId = u64;

/// A stream's part in a capture.
#[derive(Debug, Clone)]
pub struct StreamCapture {
    /// Which sequence.
    pub id: CaptureId,
    /// Nodes that the stream's next node waits for.
    pub frontier: Vec<usize>,
}

/// A node: work, and the earlier nodes it waits for.
#[derive(Debug, Clone)]
pub struct CapturedNode {
    /// What it does.
    pub work: Work,
    /// Indices of nodes.
    pub after: Vec<usize>,
}

/// A sequence that has begun and not ended.
#[derive(Debug)]
pub struct Capture {
    origin: u64,
    mode: i32,
    thread: ThreadId,
    /// A forbidden call spoilt it.
    pub invalidated: bool,
    /// What was captured.
    pub nodes: Vec<CapturedNode>,
}

/// Sequences by number.
#[derive(Debug, Default)]
pub struct Captures {
    /// Going on.
    pub active: BTreeMap<CaptureId, Capture>,
    last: CaptureId,
}

impl State {
    /// Fails if a capture forbids calls that wait or allocate, and spoils it.
    pub fn forbid_in_capture(&mut self, call: &str) -> Outcome {
        let me = std::thread::current().id();
        let mut forbidden = false;
        for capture in self.captures.active.values_mut() {
            let mine = capture.thread == me && capture.mode != CAPTURE_RELAXED;
            if mine || capture.mode == CAPTURE_GLOBAL {
                capture.invalidated = true;
                forbidden = true;
            }
        }
        if forbidden {
            gate().explain(format!("{call} is not permitted while a stream is capturing; the capture is invalid now"));
            return Err(HipError::CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    /// Spoils the capture that a stream is part of and answers with `code`.
    pub fn spoil<T>(&mut self, id: CaptureId, code: HipError) -> Outcome<T> {
        if let Some(capture) = self.captures.active.get_mut(&id) {
            capture.invalidated = true;
        }
        Err(code)
    }

    /// Fails if the stream is capturing (and spoils that), or if using the null stream would wait for a capture.
    pub fn forbid_if_capturing(&mut self, stream: u64) -> Outcome {
        if let Some(capture) = self.queue.stream(stream)?.capture.clone() {
            return self.spoil(capture.id, HipError::CAPTURE_UNSUPPORTED);
        }
        self.forbid_implicit(stream)
    }

    fn forbid_implicit(&mut self, stream: u64) -> Outcome {
        if stream != NULL_STREAM {
            return Ok(());
        }
        let blocking = self.queue.streams.values().filter(|stream| !stream.non_blocking);
        match blocking.filter_map(|stream| stream.capture.as_ref()).map(|capture| capture.id).next() {
            Some(id) => self.spoil(id, HipError::CAPTURE_IMPLICIT),
            None => Ok(()),
        }
    }

    /// Queues work, or adds it to the stream's capture (then no operation is answered).
    pub fn submit(&mut self, stream: u64, work: Work) -> Outcome<Option<OperationId>> {
        let Some(part) = self.queue.stream(stream)?.capture.clone() else {
            self.forbid_implicit(stream)?;
            return Ok(Some(self.queue.push(stream, work, &[])));
        };
        let capture = self.captures.active.get_mut(&part.id).ok_or(HipError::CAPTURE_INVALIDATED)?;
        if capture.invalidated {
            return Err(HipError::CAPTURE_INVALIDATED);
        }
        if let Work::Copy { to, from, .. } = &work
            && !(matches!(to, Place::Known(_)) && matches!(from, Place::Known(_)))
        {
            gate().explain("a copy from or to pageable memory cannot be captured: pin the host's side");
            return self.spoil(part.id, HipError::CAPTURE_UNSUPPORTED);
        }
        let node = capture.nodes.len();
        capture.nodes.push(CapturedNode { work, after: part.frontier });
        self.queue.stream(stream)?.capture = Some(StreamCapture { id: part.id, frontier: vec![node] });
        Ok(None)
    }

    /// Begins a sequence on a stream.
    pub fn begin_capture(&mut self, stream: u64, mode: i32) -> Outcome {
        if !(CAPTURE_GLOBAL..=CAPTURE_RELAXED).contains(&mode) {
            return Err(HipError::INVALID_VALUE);
        }
        let id = self.captures.last + 1;
        let state = self.queue.stream(stream)?;
        if stream == NULL_STREAM {
            return Err(HipError::CAPTURE_UNSUPPORTED);
        }
        if state.capture.is_some() {
            return Err(HipError::ILLEGAL_STATE);
        }
        state.capture = Some(StreamCapture { id, frontier: Vec::new() });
        self.captures.last = id;
        let thread = std::thread::current().id();
        let capture = Capture { origin: stream, mode, thread, invalidated: false, nodes: Vec::new() };
        self.captures.active.insert(id, capture);
        Ok(())
    }

    /// Ends a sequence: the streams stop capturing in any case, unless the stream or thread is the wrong one.
    pub fn end_capture(&mut self, stream: u64) -> Outcome<Vec<CapturedNode>> {
        let part = self.queue.stream(stream)?.capture.clone().ok_or(HipError::ILLEGAL_STATE)?;
        let capture = self.captures.active.get(&part.id).ok_or(HipError::CAPTURE_INVALIDATED)?;
        if capture.origin != stream {
            return self.spoil(part.id, HipError::CAPTURE_UNMATCHED);
        }
        if capture.mode != CAPTURE_RELAXED && capture.thread != std::thread::current().id() {
            return Err(HipError::CAPTURE_WRONG_THREAD);
        }
        let mut ends = BTreeSet::new();
        for state in self.queue.streams.values_mut() {
            if let Some(other) = state.capture.take_if(|other| other.id == part.id) {
                ends.extend(other.frontier);
            }
        }
        let capture = self.captures.active.remove(&part.id).ok_or(HipError::CAPTURE_INVALIDATED)?;
        if capture.invalidated {
            return Err(HipError::CAPTURE_INVALIDATED);
        }
        let joined = ancestors(&capture.nodes, &part.frontier);
        if ends.iter().any(|end| !joined.contains(end)) {
            return Err(HipError::CAPTURE_UNJOINED);
        }
        Ok(capture.nodes)
    }

    /// Makes a stream wait for an event, in or out of a capture.
    pub fn wait_event(&mut self, stream: u64, event: u64) -> Outcome {
        let event = self.queue.event(event)?;
        let (captured, recorded) = (event.captured.clone(), event.recorded.clone());
        let part = self.queue.stream(stream)?.capture.clone();
        match (part, captured) {
            (None, None) => {
                self.forbid_implicit(stream)?;
                if let Some((operation, _)) = recorded {
                    self.queue.push(stream, Work::Nothing, &[operation]);
                }
                Ok(())
            }
            (Some(part), None) => match recorded {
                None => Ok(()),
                Some(_) => self.spoil(part.id, HipError::CAPTURE_ISOLATION),
            },
            (None, Some((id, frontier))) => {
                if !self.captures.active.contains_key(&id) {
                    return Err(HipError::CAPTURED_EVENT);
                }
                if stream == NULL_STREAM {
                    return self.spoil(id, HipError::CAPTURE_UNSUPPORTED);
                }
                self.queue.stream(stream)?.capture = Some(StreamCapture { id, frontier });
                Ok(())
            }
            (Some(part), Some((id, _))) if part.id != id => self.spoil(part.id, HipError::CAPTURE_MERGE),
            (Some(mut part), Some((_, frontier))) => {
                part.frontier.extend(frontier);
                part.frontier.sort_unstable();
                part.frontier.dedup();
                self.queue.stream(stream)?.capture = Some(part);
                Ok(())
            }
        }
    }
}

fn ancestors(nodes: &[CapturedNode], from: &[usize]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = from.to_vec();
    while let Some(node) = open.pop() {
        if found.insert(node) {
            open.extend(&nodes[node].after);
        }
    }
    found
}
