//! Rounds of speculation over one sequence, with the model's parts in a test's hand.

use hipfire::backend::cpu::Cpu;
use hipfire::engine::sampler::{Sampler, SamplingParams};
use hipfire::engine::speculate::accept::Rule;
use hipfire::engine::speculate::{self, Clock, Depth, Lane, Receipts, Speculation, Speculator};
use hipfire::model::{Draft, Feed, LanguageModel};
use hipfire::state::Sequence;

pub type Model = hipfire::model::forward::Model<Cpu>;

/// What to generate.
pub struct Run<'a> {
    pub prompt: &'a [u32],
    pub chunk: usize,
    pub tokens: usize,
    pub params: SamplingParams,
}

pub fn fixed(depth: usize) -> Speculation {
    Speculation { depth: Depth::Fixed(depth), rule: Rule::Exact }
}

/// A sequence that has read a prompt in chunks.
pub fn read(model: &mut Model, prompt: &[u32], chunk: usize) -> Sequence {
    let mut sequence = model.new_sequence().unwrap();
    for ids in prompt.chunks(chunk) {
        model.forward(&mut [Feed { sequence: &mut sequence, ids }]).unwrap();
    }
    sequence
}

/// Lets the MTP head read everything, then feeds `next`: nothing waits to be folded in but that token itself.
pub fn settle(model: &mut Model, sequence: &mut Sequence, next: u32) {
    model.draft_first(&mut [Draft { sequence, next }]).unwrap();
    model.forward(&mut [Feed { sequence, ids: &[next] }]).unwrap();
}

/// The answer, and what speculation did. `after` sees the state after each round, with the token that comes next.
pub fn generate(
    model: &mut Model,
    run: &Run<'_>,
    choice: Speculation,
    after: &mut dyn FnMut(&mut Model, &Sequence, u32),
) -> (Vec<u32>, Receipts) {
    let vocab = model.shape().vocab;
    let mut sequence = read(model, run.prompt, run.chunk);
    let mut sampler = Sampler::new(run.params.clone(), run.prompt);
    let mut speculator = Speculator::new(choice, model.max_drafts());
    let last = (run.prompt.len() - 1) % run.chunk;
    let mut answer = vec![sampler.sample(model.logits(&[last]).unwrap()).unwrap()];
    while answer.len() < run.tokens {
        let next = answer[answer.len() - 1];
        let depth = speculator.depth(run.tokens - answer.len() - 1);
        if speculator.gave_up() {
            sequence.stop_following();
        }
        let mut clock = Clock::start();
        if depth > 0 {
            let (sequence, speculator, sampler) = (&mut sequence, &mut speculator, &mut sampler);
            speculate::draft(model, &mut [Lane { sequence, speculator, sampler, next, depth }]).unwrap();
        }
        let drafting = clock.lap();
        let mut ids = vec![next];
        ids.extend_from_slice(speculator.drafts());
        model.forward(&mut [Feed { sequence: &mut sequence, ids: &ids }]).unwrap();
        let verifying = clock.lap();
        let rows: Vec<usize> = (0..ids.len()).collect();
        for logits in model.logits(&rows).unwrap().chunks_exact(vocab) {
            let judged = speculator.judge(&mut sampler, logits).unwrap();
            answer.push(judged.id);
            if !judged.goes_on {
                break;
            }
        }
        sequence.rewind(speculator.rejected()).unwrap();
        speculator.end([drafting, verifying, clock.lap()], true);
        after(model, &sequence, answer[answer.len() - 1]);
    }
    (answer, *speculator.receipts())
}
