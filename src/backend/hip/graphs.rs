//! Programs that were recorded once and are replayed.
//!
//! Owns: which steps share a recording, and when one is made.
//! Always true: a program of few rows is run once as it is (so that every error shows where it happens), recorded the
//! second time and replayed from then on; what changes between steps is data that was uploaded before.
//! Not here: the launches (the operations), capturing itself (`device::stream`).

use std::collections::HashMap;

use super::Hip;
use super::matrix::GEMV_ROWS;
use crate::backend::Program;
use crate::device::Graph;
use crate::error::Result;

/// Steps whose launches are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    program: Program,
    rows: usize,
    sequences: usize,
    /// Rows that logits are computed for.
    chosen: usize,
}

/// Recordings.
pub struct Graphs {
    /// `None`: ran once.
    known: HashMap<Key, Option<Graph>>,
    recording: bool,
}

impl Graphs {
    /// Without any.
    pub fn new() -> Graphs {
        Graphs { known: HashMap::new(), recording: false }
    }

    /// Whether launches are recorded now and do not run.
    pub fn is_recording(&self) -> bool {
        self.recording
    }
}

/// Runs a program, recorded where it pays.
pub fn run(hip: &mut Hip, program: Program, work: &mut dyn FnMut(&mut Hip) -> Result<()>) -> Result<()> {
    let by_choice = matches!(program, Program::Logits | Program::MtpLogits | Program::DraftLogits);
    let key = match by_choice {
        true => Key { program, rows: 0, sequences: 0, chosen: hip.step.chosen },
        false => Key { program, rows: hip.step.rows, sequences: hip.step.segments.len(), chosen: 0 },
    };
    if hip.observer.is_some() || hip.profile.get_mut().is_some() || key.rows.max(key.chosen) > GEMV_ROWS {
        return work(hip);
    }
    match hip.graphs.known.get(&key) {
        None => {
            work(hip)?;
            hip.graphs.known.insert(key, None);
            Ok(())
        }
        Some(None) => {
            let stream = hip.stream.clone();
            hip.graphs.recording = true;
            let graph = stream.capture(|| work(hip));
            hip.graphs.recording = false;
            let graph = graph?;
            graph.launch(&stream)?;
            hip.graphs.known.insert(key, Some(graph));
            hip.journal.replayed();
            Ok(())
        }
        Some(Some(graph)) => {
            graph.launch(&hip.stream)?;
            hip.journal.replayed();
            Ok(())
        }
    }
}
