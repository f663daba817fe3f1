//! Speculation where selection begins: a model with the released budget of 2,048 tokens.

#[path = "speculation/rounds.rs"]
#[allow(dead_code)] // single rounds are other files'
mod rounds;
mod support;

use hipfire::engine::sampler::SamplingParams;
use hipfire::model::LanguageModel;
use hipfire::model::load::{self, LoadOptions};
use hipfire::weights::Source;
use rounds::{Run, fixed, generate};
use support::checkpoint::Recipe;

#[test]
fn greedy_text_is_the_same_where_selection_begins_and_at_the_edges_of_chunks_and_blocks() {
    // The released budget of 2,048 tokens and three more: from 2,052 on a query reads a selection.
    let recipe = Recipe::tiny().set("indexer_budget", 2048).set("max_position_embeddings", 4096);
    let folder = recipe.write_temporary();
    let options = LoadOptions { mtp: true, rewind_rows: 6, max_sequence: Some(2200), ..LoadOptions::default() };
    let opened = load::open(&Source::open(folder.path()).unwrap()).unwrap();
    let mut model = load::cpu(opened, &options, &mut |_| {}).unwrap();
    let vocab = model.shape().vocab;
    for (prompt, chunk, tokens) in [(2030, 512, 60), (2047, 500, 20), (2048, 512, 12), (2051, 128, 12)] {
        let prompt: Vec<u32> = (0..prompt).map(|i| (1 + i * 2_654_435_761 % (vocab - 1)) as u32).collect();
        let run = Run { prompt: &prompt, chunk, tokens, params: SamplingParams::default() };
        let (plain, _) = generate(&mut model, &run, fixed(0), &mut |_, _, _| {});
        for depth in [1, 3, 5] {
            let (text, _) = generate(&mut model, &run, fixed(depth), &mut |_, _, _| {});
            assert!(text == plain, "{} tokens in chunks of {chunk}, depth {depth}", prompt.len());
        }
    }
}
