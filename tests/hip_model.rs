//! The model on a HIP device, as kernels on fibers: the state it keeps, what a step costs, and the same text as the CPU.
//!
//! Layer by layer the comparison is `doctor --self-test`'s, which `ladder` runs on every stand-in.

mod support;

use std::path::Path;

use hipfire::backend::hip::pack::Pack;
use hipfire::backend::hip::{Gpu, Hip};
use hipfire::config::{AttentionMode, KvBackend, KvMode};
use hipfire::model::forward::Model;
use hipfire::model::load::{self, LoadOptions};
use hipfire::model::{Draft, Feed, LanguageModel};
use hipfire::state::Sequence;
use hipfire::weights::Source;
use support::standin::Standin;

fn source() -> Source {
    Source::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny/model")).unwrap()
}

/// The same with its MTP head.
fn with_head() -> Source {
    source().with(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny/mtp.safetensors")).unwrap()
}

fn options() -> LoadOptions {
    LoadOptions { max_sequence: Some(256), max_rows: 96, kv_mode: Some(KvMode::F32), ..LoadOptions::default() }
}

/// `None` where the kernels were not built.
fn hip(standin: &Standin, options: &LoadOptions) -> Option<Model<Hip>> {
    hip_of(standin, &source(), options)
}

fn hip_of(standin: &Standin, source: &Source, options: &LoadOptions) -> Option<Model<Hip>> {
    let pack = Pack::embedded().unwrap();
    if pack.architectures().is_empty() {
        eprintln!("skipped: this build has no GPU kernels");
        return None;
    }
    let gpu = Gpu::of(&standin.context(), &pack).unwrap();
    Some(load::hip(load::open(source).unwrap(), gpu, options, &mut |_| {}).unwrap().0)
}

fn ids(count: usize) -> Vec<u32> {
    (0..count).map(|i| (i * 29 + 3) as u32 % 90).collect()
}

fn feed(model: &mut dyn LanguageModel, sequence: &mut Sequence, ids: &[u32]) -> Vec<f32> {
    model.forward(&mut [Feed { sequence, ids }]).unwrap();
    model.logits(&[ids.len() - 1]).unwrap().to_vec()
}

fn best(logits: &[f32]) -> u32 {
    logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as u32
}

/// Greedy text behind a prompt that is fed in one step.
fn greedy(model: &mut dyn LanguageModel, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut sequence = model.new_sequence().unwrap();
    let mut next = best(&feed(model, &mut sequence, prompt));
    (0..count)
        .map(|_| {
            let id = next;
            next = best(&feed(model, &mut sequence, &[id]));
            id
        })
        .collect()
}

#[test]
fn every_state_and_both_ways_to_memory_write_the_cpus_text() {
    let standin = Standin::take("fibers");
    for kv_mode in [KvMode::F32, KvMode::Q8, KvMode::Fp8] {
        let options = LoadOptions { kv_mode: Some(kv_mode), ..options() };
        let mut cpu = load::cpu(load::open(&source()).unwrap(), &options, &mut |_| {}).unwrap();
        let expected = greedy(&mut cpu, &ids(7), 24);
        for kv_backend in [KvBackend::Vmm, KvBackend::Legacy] {
            let options = LoadOptions { kv_backend: Some(kv_backend), ..options.clone() };
            let Some(mut model) = hip(&standin, &options) else { return };
            assert_eq!(greedy(&mut model, &ids(7), 24), expected, "{kv_mode}, {kv_backend}");
        }
    }
}

#[test]
fn experts_that_do_not_fit_the_device_are_read_from_the_host_and_write_the_same_text() {
    let standin = Standin::take("fibers");
    let Some(mut model) = hip(&standin, &options()) else { return };
    assert_eq!(model.backend().hosted_layers(), 0);
    let text = |model: &mut Model<Hip>| [40, 7, 60].map(|prompt| greedy(model, &ids(prompt), 12));
    let expected = text(&mut model);
    drop(model);
    let gpu = || Gpu::of(&standin.context(), &Pack::embedded().unwrap()).unwrap();
    let opened = load::open(&source()).unwrap();
    let whole = load::hip_plan(&opened, &options(), &gpu()).unwrap();
    // A byte too little, and as little as the plan can do with.
    let mut limit = whole.total() - 1;
    let mut layers = Vec::new();
    loop {
        let options = LoadOptions { memory_limit: Some(limit), ..options() };
        let plan = load::hip_plan(&opened, &options, &gpu()).unwrap();
        if plan.total() > limit {
            break;
        }
        assert!(plan.to_string().contains("in the host's memory"), "{plan}");
        let (mut model, _) = load::hip(load::open(&source()).unwrap(), gpu(), &options, &mut |_| {}).unwrap();
        layers.push(model.backend().hosted_layers());
        assert_eq!(text(&mut model), expected, "{} layers", layers[layers.len() - 1]);
        limit = plan.total() - 1;
    }
    assert!(layers.len() > 1 && layers.is_sorted(), "{layers:?}");
}

#[test]
fn dense_attention_reads_what_sparse_attention_selects_from() {
    let standin = Standin::take("fibers");
    let dense = LoadOptions { attention: AttentionMode::Dense, ..options() };
    let mut cpu = load::cpu(load::open(&source()).unwrap(), &dense, &mut |_| {}).unwrap();
    let Some(mut model) = hip(&standin, &dense) else { return };
    assert_eq!(greedy(&mut model, &ids(7), 16), greedy(&mut cpu, &ids(7), 16));
}

#[test]
fn a_recorded_step_gives_the_bits_of_one_that_was_not() {
    let standin = Standin::take("fibers");
    let Some(mut model) = hip(&standin, &options()) else { return };
    // The first step of one row runs as it is, the second is recorded, the third replayed.
    let runs: Vec<Vec<f32>> = (0..4)
        .map(|_| {
            let mut sequence = model.new_sequence().unwrap();
            feed(&mut model, &mut sequence, &ids(5));
            feed(&mut model, &mut sequence, &[17])
        })
        .collect();
    assert!(runs.iter().all(|run| run == &runs[0]));
    let replays = model.backend().journal().replays();
    assert!(replays >= 4, "{replays} replays");
}

#[test]
fn a_decode_step_allocates_nothing_and_costs_the_same_calls_at_every_length() {
    let standin = Standin::take("fibers");
    let Some(mut model) = hip(&standin, &LoadOptions { kv_backend: Some(KvBackend::Legacy), ..options() }) else {
        return;
    };
    let mut sequence = model.new_sequence().unwrap();
    for id in ids(3) {
        feed(&mut model, &mut sequence, &[id]);
    }
    let names = [
        "hipMalloc",
        "hipHostMalloc",
        "hipModuleLaunchKernel",
        "hipGraphLaunch",
        "hipMemcpyAsync",
        "hipStreamSynchronize",
    ];
    let step = |model: &mut Model<Hip>, sequence: &mut Sequence| {
        let before = names.map(|name| standin.calls(name));
        feed(model, sequence, &[5]);
        let mut cost = names.map(|name| standin.calls(name));
        cost.iter_mut().zip(before).for_each(|(after, before)| *after -= before);
        cost
    };
    let early = step(&mut model, &mut sequence);
    feed(&mut model, &mut sequence, &ids(90));
    let late = step(&mut model, &mut sequence);
    assert_eq!(early, late, "{names:?}");
    assert_eq!(early[..4], [0, 0, 0, 2], "allocations, launches, replays: {names:?}");
}

#[test]
fn forks_snapshots_and_taken_back_rows_go_on_as_if_nothing_had_happened() {
    let standin = Standin::take("fibers");
    let Some(mut model) = hip(&standin, &LoadOptions { rewind_rows: 3, ..options() }) else { return };
    let ids = ids(20);
    let mut whole = model.new_sequence().unwrap();
    feed(&mut model, &mut whole, &ids[..12]);
    let expected: Vec<Vec<f32>> = ids[12..].iter().map(|&id| feed(&mut model, &mut whole, &[id])).collect();

    let mut sequence = model.new_sequence().unwrap();
    feed(&mut model, &mut sequence, &ids[..12]);
    let snapshot = sequence.snapshot().unwrap();
    // Three drafts, of which the first is right.
    feed(&mut model, &mut sequence, &[ids[12], 1, 2]);
    sequence.rewind(2).unwrap();
    assert_eq!(feed(&mut model, &mut sequence, &[ids[13]]), expected[1]);
    let mut fork = sequence.fork().unwrap();
    assert_eq!(feed(&mut model, &mut fork, &[ids[14]]), expected[2]);
    sequence.restore(&snapshot).unwrap();
    assert_eq!(feed(&mut model, &mut sequence, &[ids[12]]), expected[0]);
    sequence.reset().unwrap();
    feed(&mut model, &mut sequence, &ids[..12]);
    assert_eq!(feed(&mut model, &mut sequence, &[ids[12]]), expected[0]);
}

#[test]
fn a_launch_that_fails_inside_a_short_step_leaves_the_sequence_as_it_was() {
    let standin = Standin::take("fibers");
    let Some(mut model) = hip(&standin, &LoadOptions { rewind_rows: 4, ..options() }) else { return };
    let mut sequence = model.new_sequence().unwrap();
    feed(&mut model, &mut sequence, &ids(20));
    feed(&mut model, &mut sequence, &[1, 2, 3]);
    sequence.rewind(1).unwrap();
    let settled = |model: &mut Model<Hip>, sequence: &Sequence| {
        let mut fork = sequence.fork().unwrap();
        [feed(model, &mut fork, &[33]), feed(model, &mut fork, &[34])]
    };
    let expected = settled(&mut model, &sequence);
    // The first step of four rows runs as it is, the second is recorded, and replayed from then on.
    for (way, call, stride) in [
        ("run", "hipModuleLaunchKernel", 5),
        ("recorded", "hipModuleLaunchKernel", 40),
        ("recorded", "hipGraphLaunch", 1),
        ("replayed", "hipGraphLaunch", 1),
    ] {
        let mut failures = 0;
        for nth in (1..).step_by(stride) {
            let mut victim = sequence.fork().unwrap();
            standin.fail(call, nth, 1);
            let step = model.forward(&mut [Feed { sequence: &mut victim, ids: &[5, 6, 7, 8] }]);
            standin.fail(call, 1, 0);
            if step.is_ok() {
                break;
            }
            failures += 1;
            assert_eq!(victim.len(), sequence.len());
            assert!(settled(&mut model, &victim) == expected, "{way}: call {nth} of {call} failed");
        }
        assert!(failures > 0, "{way}: no call of {call}");
    }
}

#[test]
fn several_sequences_in_one_step_write_what_each_writes_alone() {
    let standin = Standin::take("fibers");
    let Some(mut model) = hip(&standin, &options()) else { return };
    let prompts = [ids(5), ids(6), ids(4)];
    let alone: Vec<Vec<f32>> = prompts
        .iter()
        .map(|prompt| {
            let mut sequence = model.new_sequence().unwrap();
            feed(&mut model, &mut sequence, prompt);
            feed(&mut model, &mut sequence, &[11])
        })
        .collect();
    let mut sequences: Vec<Sequence> = prompts
        .iter()
        .map(|prompt| {
            let mut sequence = model.new_sequence().unwrap();
            feed(&mut model, &mut sequence, prompt);
            sequence
        })
        .collect();
    let mut feeds: Vec<Feed<'_>> = sequences.iter_mut().map(|sequence| Feed { sequence, ids: &[11] }).collect();
    model.forward(&mut feeds).unwrap();
    let vocab = model.shape().vocab;
    let together = model.logits(&[0, 1, 2]).unwrap();
    for (one, logits) in alone.iter().zip(together.chunks(vocab)) {
        assert_eq!(one, logits);
    }
}

#[test]
fn a_growth_that_memory_refuses_ends_the_request_alone_and_leaks_nothing() {
    let standin = Standin::take("fibers");
    let Some(mut model) = hip(&standin, &LoadOptions { kv_backend: Some(KvBackend::Vmm), ..options() }) else { return };
    let mut other = model.new_sequence().unwrap();
    let expected = feed(&mut model, &mut other, &ids(5));
    let before = model.arena().usage();
    for _ in 0..50 {
        standin.fail("hipMemCreate", 1, 2);
        let refused = model.new_sequence().and_then(|mut sequence| {
            model.forward(&mut [Feed { sequence: &mut sequence, ids: &ids(5) }])?;
            Ok(sequence)
        });
        let error = refused.err().expect("memory was refused").to_string();
        assert!(error.contains("memory"), "{error}");
    }
    let after = model.arena().usage();
    assert_eq!((before.committed, before.ranges), (after.committed, after.ranges));
    other.reset().unwrap();
    assert_eq!(feed(&mut model, &mut other, &ids(5)), expected);
}

/// Logits of two chained drafts behind each of several steps, of which some rows are taken back.
fn drafts(model: &mut dyn LanguageModel) -> Vec<Vec<f32>> {
    let ids = ids(40);
    let mut sequence = model.new_sequence().unwrap();
    let mut seen = Vec::new();
    let mut fed = 0;
    for (rows, refused) in [(6, 0), (1, 0), (4, 2), (1, 0), (4, 3), (3, 0)] {
        model.forward(&mut [Feed { sequence: &mut sequence, ids: &ids[fed..fed + rows] }]).unwrap();
        sequence.rewind(refused).unwrap();
        fed += rows - refused;
        model.draft_first(&mut [Draft { sequence: &mut sequence, next: ids[fed] }]).unwrap();
        let first = model.draft_logits(&[0]).unwrap().to_vec();
        model.draft_next(&mut [Draft { sequence: &mut sequence, next: best(&first) }]).unwrap();
        let second = model.draft_logits(&[0]).unwrap().to_vec();
        seen.extend([first, second]);
    }
    seen
}

#[test]
fn the_head_drafts_on_a_device_what_it_drafts_on_the_cpu() {
    let standin = Standin::take("fibers");
    let options = LoadOptions { mtp: true, rewind_rows: 4, ..options() };
    let mut cpu = load::cpu(load::open(&with_head()).unwrap(), &options, &mut |_| {}).unwrap();
    let expected = drafts(&mut cpu);
    let Some(mut model) = hip_of(&standin, &with_head(), &options) else { return };
    for (step, (got, want)) in drafts(&mut model).iter().zip(&expected).enumerate() {
        // Spec 8.3, for F32: steps of up to eight rows keep to it.
        let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
        assert!(worst <= 1e-4, "draft {step}: {worst}");
    }
}
