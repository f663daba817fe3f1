//! How long each launch takes.
//!
//! Owns: the events around the launches of a profile, and their sum by kernel.
//! Always true: while a profile runs, no program is replayed, so that every launch is seen; an event pair costs one to two
//! microseconds, which a launch's time includes.
//! Not here: what is measured (`engine::bench`).

use std::collections::HashMap;

use crate::backend::KernelTime;
use crate::device::{Context, Event, Stream};
use crate::error::Result;

/// Launches between events that take the time.
pub struct Profile {
    context: Context,
    launches: Vec<(String, [Event; 2])>,
}

impl Profile {
    /// Without any.
    pub fn new(context: &Context) -> Profile {
        Profile { context: context.clone(), launches: Vec::new() }
    }

    /// Submits a launch between two events.
    pub fn around(&mut self, stream: &Stream, kernel: &str, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        let events = [Event::timing(&self.context)?, Event::timing(&self.context)?];
        events[0].record(stream)?;
        launch()?;
        events[1].record(stream)?;
        self.launches.push((kernel.into(), events));
        Ok(())
    }

    /// The sums by kernel, the longest first; waits for the launches.
    pub fn finish(self) -> Result<Vec<KernelTime>> {
        let mut sums: HashMap<String, KernelTime> = HashMap::new();
        for (kernel, [begin, end]) in self.launches {
            end.synchronize()?;
            let sum = sums.entry(kernel.clone()).or_insert(KernelTime { kernel, launches: 0, milliseconds: 0.0 });
            sum.launches += 1;
            sum.milliseconds += f64::from(end.milliseconds_since(&begin)?);
        }
        let mut times = Vec::from_iter(sums.into_values());
        times.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds).then_with(|| a.kernel.cmp(&b.kernel)));
        Ok(times)
    }
}
