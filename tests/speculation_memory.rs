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

/// Bytes that a round asks for after `tokens` tokens, its second one: the first one fills what is reused.
fn round_bytes(model: &mut rounds::Model, tokens: u32) -> (usize, usize) {
    let prompt: Vec<u32> = (0..tokens).map(|i| 300 + i * 7 % 3000).collect();
    let mut sequence = read(model, &prompt, 512);
    let mut sampler = Sampler::new(SamplingParams::default(), &[]);
    let mut speculator = Speculator::new(fixed(3), model.max_drafts());
    let vocab = model.shape().vocab;
    let (mut bytes, mut committed) = (0, 0);
    for _ in 0..2 {
        let before = (ASKED.with(Cell::get), model.arena().usage().committed);
        let lane =
            Lane { sequence: &mut sequence, speculator: &mut speculator, sampler: &mut sampler, next: 11, depth: 3 };
        speculate::draft(model, &mut [lane]).unwrap();
        let mut ids = [11; 4];
        ids[1..].copy_from_slice(speculator.drafts());
        model.forward(&mut [Feed { sequence: &mut sequence, ids: &ids }]).unwrap();
        for logits in model.logits(&[0, 1, 2, 3]).unwrap().chunks_exact(vocab) {
            if !speculator.judge(&mut sampler, logits).unwrap().goes_on {
                break;
            }
        }
        sequence.rewind(speculator.rejected()).unwrap();
        speculator.end(Default::default(), true);
        bytes = ASKED.with(Cell::get) - before.0;
        committed = model.arena().usage().committed - before.1;
    }
    (bytes, committed)
}

#[test]
fn a_round_takes_no_memory_that_grows_with_the_context() {
    let options = LoadOptions { mtp: true, rewind_rows: 4, ..LoadOptions::default() };
    let model = load::cpu(load::open(&Source::embedded().unwrap()).unwrap(), &options, &mut |_| {}).unwrap();
    // One thread: the operations of a step run where they are counted.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let [short, middle, long] = pool.install(|| {
        let mut model = model;
        [40, 700, 1900].map(|tokens| round_bytes(&mut model, tokens))
    });
    println!("bytes asked for in a round: {short:?}, {middle:?}, {long:?}");
    assert_eq!(short.0, middle.0);
    assert_eq!(middle.0, long.0);
    // Ids, positions and references of a handful of rows; no plane of scores, no copy of rows.
    assert!(long.0 < 64 << 10, "{} bytes", long.0);
    assert_eq!([short.1, middle.1, long.1], [0; 3], "the arena's pages reach beyond a round");
}
