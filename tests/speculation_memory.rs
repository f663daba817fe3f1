//! What a round of speculation takes from the allocator and from the arena: the same at every length of the context.

#[path = "speculation/rounds.rs"]
#[allow(dead_code)] // whole answers are another file's
mod rounds;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hipfire::engine::sampler::{Sampler, SamplingParams};
use hipfire::engine::speculate::{self, Lane, Speculator};
use hipfire::model::load::{self, LoadOptions};
use hipfire::model::{Feed, LanguageModel};
use hipfire::weights::Source;
use rounds::{fixed, read};

thread_local! {
    /// Bytes asked for by this thread.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is handed on to the system's allocator as it came; counting touches a thread-local number that has
// no destructor and needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + layout.size()));
        // SAFETY: the caller's promise about `layout` is the system allocator's own condition.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; `memory` came from `alloc`, so from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the second round after a prompt asked for: the first one fills what is reused.
#[derive(Debug, Default)]
struct Asked {
    /// Bytes, from drafting to taking back.
    round: usize,
    /// Bytes, of the step that verifies and its logits.
    verify: usize,
    /// Bytes that the arena committed.
    committed: usize,
}

fn ask(model: &mut rounds::Model, tokens: u32) -> Asked {
    let prompt: Vec<u32> = (0..tokens).map(|i| 300 + i * 7 % 3000).collect();
    let mut sequence = read(model, &prompt, 512);
    let mut sampler = Sampler::new(SamplingParams::default(), &[]);
    let mut speculator = Speculator::new(fixed(3), model.max_drafts());
    let vocab = model.shape().vocab;
    let mut asked = Asked::default();
    for _ in 0..2 {
        let (before, committed) = (ASKED.with(Cell::get), model.arena().usage().committed);
        let lane =
            Lane { sequence: &mut sequence, speculator: &mut speculator, sampler: &mut sampler, next: 11, depth: 3 };
        speculate::draft(model, &mut [lane]).unwrap();
        let mut ids = [11; 4];
        ids[1..].copy_from_slice(speculator.drafts());
        let drafted = ASKED.with(Cell::get);
        model.forward(&mut [Feed { sequence: &mut sequence, ids: &ids }]).unwrap();
        let logits = model.logits(&[0, 1, 2, 3]).unwrap();
        asked.verify = ASKED.with(Cell::get) - drafted;
        for logits in logits.chunks_exact(vocab) {
            if !speculator.judge(&mut sampler, logits).unwrap().goes_on {
                break;
            }
        }
        sequence.rewind(speculator.rejected()).unwrap();
        speculator.end(Default::default(), true);
        asked.round = ASKED.with(Cell::get) - before;
        asked.committed = model.arena().usage().committed - committed;
    }
    asked
}

#[test]
fn a_round_takes_no_memory_that_grows_with_the_context() {
    let options = LoadOptions { mtp: true, rewind_rows: 4, ..LoadOptions::default() };
    let model = load::cpu(load::open(&Source::embedded().unwrap()).unwrap(), &options, &mut |_| {}).unwrap();
    // One thread: the operations of a step run where they are counted.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let all = pool.install(|| {
        let mut model = model;
        // The first one fills what the model reuses.
        ask(&mut model, 700);
        [40, 700, 1900].map(|tokens| ask(&mut model, tokens))
    });
    println!("{all:?}");
    for asked in &all {
        assert_eq!(asked.verify, all[0].verify, "the same for every context");
        assert_eq!(asked.committed, 0, "the arena's pages reach beyond a round");
        // Ids, positions and references of a handful of rows, and what the judgement of a few drafts needs: no plane of
        // scores, no copy of rows.
        assert!(asked.round < 16 << 10, "{asked:?}");
    }
}
