//! Streams, events and capture: CUDA's, one to one.
//!
//! Owns: nothing but the calls. Always true: flags and modes have the same numbers in both. Not here: graphs (`graph`).

use core::ffi::c_void;

use hip_facade::abi::{EVENT_DISABLE_TIMING, Event, Graph, HostFunction, STREAM_NON_BLOCKING, Stream};
use hip_facade::calls::StreamCalls;
use hip_facade::{HipError, Outcome};

use crate::NvidiaRuntime;

/// `hipEventBlockingSync`, `hipEventDisableTiming`: CUDA's too. HIP has fence flags beside them.
const EVENT_FLAGS: u32 = 1 | EVENT_DISABLE_TIMING;

// SAFETY, for every call below: pointers are to locals; CUDA checks handles; the host function is the caller's.
impl StreamCalls for NvidiaRuntime {
    fn stream_create(&self, flags: u32) -> Outcome<Stream> {
        if flags & !STREAM_NON_BLOCKING != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let mut stream = core::ptr::null_mut();
        // SAFETY: as above.
        unsafe { self.cuda()?.stream_create(&mut stream, flags) }?;
        Ok(stream)
    }

    fn stream_destroy(&self, stream: Stream) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.stream_destroy(stream) }
    }

    fn stream_synchronize(&self, stream: Stream) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.stream_synchronize(stream) }
    }

    fn stream_query(&self, stream: Stream) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.stream_query(stream) }
    }

    fn stream_wait_event(&self, stream: Stream, event: Event, flags: u32) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.stream_wait_event(stream, event, flags) }
    }

    unsafe fn launch_host_function(&self, stream: Stream, function: HostFunction, user: *mut c_void) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.launch_host_func(stream, function, user) }
    }

    fn event_create(&self, flags: u32) -> Outcome<Event> {
        let mut event = core::ptr::null_mut();
        // SAFETY: as above.
        unsafe { self.cuda()?.event_create(&mut event, flags & EVENT_FLAGS) }?;
        Ok(event)
    }

    fn event_destroy(&self, event: Event) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.event_destroy(event) }
    }

    fn event_record(&self, event: Event, stream: Stream) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.event_record(event, stream) }
    }

    fn event_query(&self, event: Event) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.event_query(event) }
    }

    fn event_synchronize(&self, event: Event) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.event_synchronize(event) }
    }

    fn event_elapsed(&self, start: Event, stop: Event) -> Outcome<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: as above.
        unsafe { self.cuda()?.event_elapsed(&mut milliseconds, start, stop) }?;
        Ok(milliseconds)
    }

    fn capture_begin(&self, stream: Stream, mode: i32) -> Outcome {
        // SAFETY: as above.
        unsafe { self.cuda()?.stream_begin_capture(stream, mode) }
    }

    fn capture_end(&self, stream: Stream) -> Outcome<Graph> {
        let mut graph = core::ptr::null_mut();
        // SAFETY: as above.
        unsafe { self.cuda()?.stream_end_capture(stream, &mut graph) }?;
        Ok(graph)
    }

    fn capture_info(&self, stream: Stream) -> Outcome<(i32, u64)> {
        let (mut status, mut id) = (0, 0);
        let null = core::ptr::null_mut;
        // SAFETY: as above; what is not wanted may be null.
        unsafe {
            let (graph, nodes, count) = (null(), core::ptr::null_mut(), core::ptr::null_mut());
            self.cuda()?.stream_capture_info(stream, &mut status, &mut id, graph, nodes, count)
        }?;
        Ok((status, id))
    }
}
