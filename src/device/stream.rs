//! Streams and events.
//!
//! Owns: their handles, and the capture of a stream into a graph.
//! Always true: a stream does not wait for the null stream; a capture ends however its closure ends.
//! Not here: replaying a graph (`graph`), what is submitted (`memory`, `module`).

use super::context::Context;
use super::graph::Graph;
use super::sys;
use crate::error::{Error, Result};

/// An order of work on a device.
pub struct Stream {
    context: Context,
    handle: sys::hipStream_t,
}

// SAFETY: HIP's calls may come from any thread; which one does is the context's check.
unsafe impl Send for Stream {}
// SAFETY: as above; the handle is never changed.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream of the device.
    pub fn new(context: &Context) -> Result<Stream> {
        let handle = context.calls()?.create_stream()?;
        Ok(Stream { context: context.clone(), handle })
    }

    /// Its device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn handle(&self) -> sys::hipStream_t {
        self.handle
    }

    /// Waits until everything submitted has run. An error of a kernel comes out here.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle lives as long as this value.
        Ok(unsafe { self.context.calls()?.synchronize_stream(self.handle) }?)
    }

    /// Whether everything submitted has run.
    pub fn is_idle(&self) -> Result<bool> {
        // SAFETY: as above.
        idle(unsafe { self.context.calls()?.query_stream(self.handle) })
    }

    /// What is submitted after this waits until `event` was reached.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: both handles live as long as their values.
        Ok(unsafe { self.context.calls()?.wait_event(self.handle, event.handle) }?)
    }

    /// Records what `submit` submits to this stream into a graph, instead of running it. Memory must not be allocated,
    /// mapped or copied from pageable memory meanwhile, and nothing may be waited for.
    pub fn capture(&self, submit: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let api = self.context.calls()?;
        // SAFETY: the handle lives as long as this value.
        unsafe { api.begin_capture(self.handle) }?;
        let running = Capturing::new(&self.context);
        let submitted = submit();
        // SAFETY: as above.
        let ended = unsafe { api.end_capture(self.handle) };
        drop(running);
        // A refused submission may have spoilt the capture too; it is the cause and comes first.
        match (submitted, ended) {
            (Ok(()), Ok(graph)) => Graph::new(&self.context, graph),
            (Err(error), Ok(graph)) => {
                // SAFETY: the graph was just made and nobody else has it.
                self.context.record(unsafe { api.destroy_graph(graph) });
                Err(error)
            }
            (Err(error), Err(_)) => {
                api.forget_last_error();
                Err(error)
            }
            (Ok(()), Err(failure)) => Err(failure.into()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle; HIP lets submitted work finish.
        self.context.record(unsafe { self.context.api().destroy_stream(self.handle) });
    }
}

/// Counts a running capture, also while a closure unwinds.
struct Capturing<'a>(&'a Context);

impl<'a> Capturing<'a> {
    fn new(context: &'a Context) -> Capturing<'a> {
        context.enter_capture();
        Capturing(context)
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        self.0.leave_capture();
    }
}

/// A place in a stream.
pub struct Event {
    context: Context,
    handle: sys::hipEvent_t,
}

// SAFETY: HIP's calls may come from any thread; which one does is the context's check.
unsafe impl Send for Event {}
// SAFETY: as above; the handle is never changed.
unsafe impl Sync for Event {}

impl Event {
    /// An event to wait for; cheaper than one that takes the time.
    pub fn new(context: &Context) -> Result<Event> {
        Ok(Event { handle: context.calls()?.create_event(false)?, context: context.clone() })
    }

    /// An event that takes the time.
    pub fn timing(context: &Context) -> Result<Event> {
        Ok(Event { handle: context.calls()?.create_event(true)?, context: context.clone() })
    }

    /// Puts the event behind what was submitted to the stream.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both handles live as long as their values.
        Ok(unsafe { self.context.calls()?.record_event(self.handle, stream.handle) }?)
    }

    /// Waits until it was reached.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle lives as long as this value.
        Ok(unsafe { self.context.calls()?.synchronize_event(self.handle) }?)
    }

    /// The same from any thread, for a `Drop`.
    pub(super) fn finish(&self) -> Result<(), super::Failure> {
        // SAFETY: as above.
        unsafe { self.context.api().synchronize_event(self.handle) }
    }

    /// Whether it was reached.
    pub fn is_reached(&self) -> Result<bool> {
        // SAFETY: as above.
        idle(unsafe { self.context.calls()?.query_event(self.handle) })
    }

    /// Milliseconds from `earlier` to this; both must take the time and have been reached.
    pub fn milliseconds_since(&self, earlier: &Event) -> Result<f32> {
        // SAFETY: both handles live as long as their values.
        Ok(unsafe { self.context.calls()?.elapsed(earlier.handle, self.handle) }?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle.
        self.context.record(unsafe { self.context.api().destroy_event(self.handle) });
    }
}

/// "Not ready" is an answer, not an error.
fn idle(answer: Result<(), super::Failure>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(failure) if failure.is_not_ready() => Ok(false),
        Err(failure) => Err(Error::from(failure)),
    }
}
