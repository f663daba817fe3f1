//! The calls about streams, events and captures.
//!
//! Owns: what each call checks before it queues, waits or polls. Always true: a poll answers what it found and then
//! runs one operation, so a host that polls once learns nothing new. Not here: the rules themselves (`queue`, `run`,
//! `capture`).

use core::ffi::c_void;

use super::HostRuntime;
use super::queue::{EventState, NULL_STREAM, OperationId, StreamState};
use super::work::Work;
use crate::abi::{
    CAPTURE_STATUS_ACTIVE, CAPTURE_STATUS_INVALIDATED, CAPTURE_STATUS_NONE, EVENT_DISABLE_TIMING, Event, Graph,
    HostFunction, STREAM_NON_BLOCKING, Stream,
};
use crate::calls::StreamCalls;
use crate::error::{HipError, Outcome};

impl HostRuntime {
    /// The operation an event stands for, none if it was never recorded.
    fn recorded(&self, event: Event) -> Outcome<Option<OperationId>> {
        let mut state = self.state();
        let event = state.queue.event(event as u64)?;
        if let Some((id, _)) = event.captured {
            return state.spoil(id, HipError::CAPTURED_EVENT);
        }
        Ok(event.recorded.as_ref().map(|(operation, _)| *operation))
    }

    fn poll(&self, operation: Option<OperationId>) -> Outcome {
        let state = self.state();
        match operation.filter(|operation| !state.queue.is_done(*operation)) {
            None => Ok(()),
            Some(operation) => self.run_one(state, operation).and(Err(HipError::NOT_READY)),
        }
    }

    /// The last operation of a stream, which must not be capturing.
    fn tail(&self, stream: Stream) -> Outcome<Option<OperationId>> {
        let mut state = self.state();
        state.forbid_if_capturing(stream as u64)?;
        if stream as u64 == NULL_STREAM {
            // Waiting for the null stream is waiting for the blocking streams too.
            return Ok(Some(state.queue.push(NULL_STREAM, Work::Nothing, &[])));
        }
        Ok(state.queue.stream(stream as u64)?.tail)
    }
}

impl StreamCalls for HostRuntime {
    fn stream_create(&self, flags: u32) -> Outcome<Stream> {
        if flags & !STREAM_NON_BLOCKING != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let mut state = self.state();
        let handle = state.new_handle();
        let stream = StreamState { non_blocking: flags & STREAM_NON_BLOCKING != 0, ..StreamState::default() };
        state.queue.streams.insert(handle, stream);
        Ok(handle as Stream)
    }

    fn stream_destroy(&self, stream: Stream) -> Outcome {
        if stream.is_null() {
            return Err(HipError::INVALID_HANDLE);
        }
        self.stream_synchronize(stream)?;
        self.state().queue.streams.remove(&(stream as u64)).map(drop).ok_or(HipError::INVALID_HANDLE)
    }

    fn stream_synchronize(&self, stream: Stream) -> Outcome {
        match self.tail(stream)? {
            Some(operation) => self.run_until(self.state(), operation),
            None => Ok(()),
        }
    }

    fn stream_query(&self, stream: Stream) -> Outcome {
        let mut state = self.state();
        state.forbid_if_capturing(stream as u64)?;
        let tail = state.queue.stream(stream as u64)?.tail;
        drop(state);
        self.poll(tail)
    }

    fn stream_wait_event(&self, stream: Stream, event: Event, flags: u32) -> Outcome {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        self.state().wait_event(stream as u64, event as u64)
    }

    unsafe fn launch_host_function(&self, stream: Stream, function: HostFunction, user: *mut c_void) -> Outcome {
        let function = function.ok_or(HipError::INVALID_VALUE)?;
        self.state().submit(stream as u64, Work::Host { function, user: user as usize }).map(drop)
    }

    fn event_create(&self, flags: u32) -> Outcome<Event> {
        let mut state = self.state();
        let handle = state.new_handle();
        let no_timing = flags & EVENT_DISABLE_TIMING != 0;
        state.queue.events.insert(handle, EventState { no_timing, ..EventState::default() });
        Ok(handle as Event)
    }

    fn event_destroy(&self, event: Event) -> Outcome {
        self.state().queue.events.remove(&(event as u64)).map(drop).ok_or(HipError::INVALID_HANDLE)
    }

    fn event_record(&self, event: Event, stream: Stream) -> Outcome {
        let (mut state, event, stream) = (self.state(), event as u64, stream as u64);
        state.queue.event(event)?;
        if let Some(part) = state.queue.stream(stream)?.capture.clone() {
            state.queue.event(event)?.captured = Some((part.id, part.frontier));
            return Ok(());
        }
        let stamp = super::queue::Stamp::default();
        let operation = state.submit(stream, Work::Stamp(stamp.clone()))?;
        let event = state.queue.event(event)?;
        event.captured = None;
        event.recorded = operation.map(|operation| (operation, stamp));
        Ok(())
    }

    fn event_query(&self, event: Event) -> Outcome {
        let operation = self.recorded(event)?;
        self.poll(operation)
    }

    fn event_synchronize(&self, event: Event) -> Outcome {
        match self.recorded(event)? {
            Some(operation) => self.run_until(self.state(), operation),
            None => Ok(()),
        }
    }

    fn event_elapsed(&self, start: Event, stop: Event) -> Outcome<f32> {
        let mut state = self.state();
        let mut moment = |event: Event| {
            let event = state.queue.event(event as u64)?;
            let stamp = event.recorded.as_ref().filter(|_| !event.no_timing).ok_or(HipError::INVALID_HANDLE)?;
            stamp.1.get().copied().ok_or(HipError::NOT_READY)
        };
        let (start, stop) = (moment(start)?, moment(stop)?);
        let backwards = start.saturating_duration_since(stop).as_secs_f32();
        Ok((stop.saturating_duration_since(start).as_secs_f32() - backwards) * 1e3)
    }

    fn capture_begin(&self, stream: Stream, mode: i32) -> Outcome {
        self.state().begin_capture(stream as u64, mode)
    }

    fn capture_end(&self, stream: Stream) -> Outcome<Graph> {
        let mut state = self.state();
        let nodes = state.end_capture(stream as u64)?;
        let handles = nodes.iter().map(|_| state.new_handle()).collect();
        let graph = state.new_handle();
        state.graphs.insert(graph, nodes, handles);
        Ok(graph as Graph)
    }

    fn capture_info(&self, stream: Stream) -> Outcome<(i32, u64)> {
        let mut state = self.state();
        let Some(part) = state.queue.stream(stream as u64)?.capture.clone() else {
            return Ok((CAPTURE_STATUS_NONE, 0));
        };
        let spoilt = state.captures.active.get(&part.id).is_none_or(|capture| capture.invalidated);
        Ok((if spoilt { CAPTURE_STATUS_INVALIDATED } else { CAPTURE_STATUS_ACTIVE }, part.id))
    }
}
