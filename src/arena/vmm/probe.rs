//! The start-up probe: every call of a growing range once, on small pieces, with what each answered.
//!
//! Owns: the steps and their words (`hipfire doctor` prints them).
//! Always true: memory is given back whatever happens; the addresses stay reserved, as always (32 MiB of them).
//! Not here: what follows from a refusal (`vmm`).

use serde::Serialize;

use super::decide;
use crate::arena::ledger::size;
use crate::device::canary::Prove;
use crate::device::vm::{self, AddressRange};
use crate::device::{Context, Stream};
use crate::error::{Error, Result};

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What was tried.
    pub name: &'static str,
    /// What came out.
    pub detail: String,
    /// Whether it is as it must be.
    pub passed: bool,
}

/// What the probe saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// In order; the first that failed is the last but for giving back.
    pub steps: Vec<Step>,
    /// Bytes to use.
    pub granularity: Option<usize>,
}

impl Probe {
    /// The granularity to use, or why virtual memory is not used.
    pub fn verdict(&self) -> Result<usize, String> {
        match (self.steps.iter().find(|step| !step.passed), self.granularity) {
            (Some(step), _) => Err(format!("{}: {}", step.name, step.detail)),
            (None, Some(granularity)) => Ok(granularity),
            (None, None) => Err("the probe did not run".into()),
        }
    }

    fn step<T>(&mut self, name: &'static str, outcome: Result<(T, String)>) -> Option<T> {
        let (value, passed, detail) = match outcome {
            Ok((value, detail)) => (Some(value), true, detail),
            Err(error) => (None, false, error.to_string()),
        };
        self.steps.push(Step { name, detail, passed });
        value
    }
}

/// Addresses to reserve; more than is mapped, so that a driver that fills reservations at once shows.
const ADDRESSES: usize = 32 << 20;

/// Runs it.
pub fn run(context: &Context, prove: &dyn Prove) -> Probe {
    let mut probe = Probe { steps: Vec::new(), granularity: None };
    let granularity = vm::granularity(context).and_then(|reported| {
        let used = decide::granularity(reported, &context.properties().arch)?;
        Ok((used, decide::granularity_text(reported, used)))
    });
    let Some(granularity) = probe.step("granularity", granularity) else { return probe };
    let Some(mut range) = probe.step("reserve addresses", reserve(context, granularity)) else { return probe };

    let Some(stream) = probe.step("stream", Stream::new(context).map(|stream| (stream, "created".into()))) else {
        return probe;
    };

    // Three growths: the second and third re-apply access over what was mapped before, and differ in size.
    let growths = [
        ("map the first piece", granularity),
        ("map a second piece behind it", granularity),
        ("map a larger piece behind both", 4 * granularity),
    ];
    let grown = growths.into_iter().all(|(name, bytes)| {
        let outcome = grow(&mut range, prove, &stream, bytes);
        probe.step(name, outcome).is_some()
    });
    let given_back = give_back(context, &mut range);
    probe.step("unmap each piece and release it", given_back);
    probe.granularity = grown.then_some(granularity);
    probe
}

fn reserve(context: &Context, granularity: usize) -> Result<(AddressRange, String)> {
    let bytes = ADDRESSES.max(8 * granularity);
    let before = context.memory_info()?.free;
    let range = AddressRange::reserve(context, bytes, granularity)?;
    let taken = before.saturating_sub(context.memory_info()?.free);
    // Others may allocate in between; a driver that fills the reservation takes all of it.
    if taken >= bytes {
        return Err(Error::Device(format!(
            "reserving {} of addresses took {} of memory: this driver fills a reservation at once",
            size(bytes),
            size(taken)
        )));
    }
    let base = range.base();
    Ok((range, format!("{} at {base:#x}", size(bytes))))
}

/// Obtains, maps, gives access from the base, and proves everything from the base: also what was proven before, whose
/// access the new call could have taken away.
fn grow(range: &mut AddressRange, prove: &dyn Prove, stream: &Stream, bytes: usize) -> Result<((), String)> {
    range.obtain(bytes)?;
    range.map()?;
    super::prove(prove, stream, range.span())?;
    Ok(((), format!("access to {} from the base, and every word of them keeps what is stored", size(range.end()))))
}

fn give_back(context: &Context, range: &mut AddressRange) -> Result<((), String)> {
    let (bytes, before) = (range.end(), context.memory_info()?.free);
    let mut first = Ok(());
    while range.end() > 0 {
        // Every piece is tried, so that one that stays does not keep the others.
        let outcome = range.give_back().map(|_| ());
        first = first.and(outcome);
    }
    first?;
    let kept = decide::kept(before, context.memory_info()?.free, bytes);
    Ok((
        (),
        match kept {
            0 => format!("{} are free again", size(bytes)),
            kept => format!("the driver keeps {} of {} until the process ends", size(kept), size(bytes)),
        },
    ))
}
