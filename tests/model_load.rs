//! Loading whole models: what is refused and in which words, which layouts are the same model, which shapes are legal.

mod support;

use hipfire::backend::cpu::Cpu;
use hipfire::config::{KvBackend, KvMode};
use hipfire::error::{Error, Result};
use hipfire::model::forward::Model;
use hipfire::model::load::{self, LoadOptions};
use hipfire::model::{Feed, LanguageModel};
use hipfire::weights::{Format, Source};
use serde_json::{Value, json};
use support::checkpoint::{ExpertLayout, Mtp, Naming, Recipe};
use support::values::Grid;

fn try_load(recipe: &Recipe, options: &LoadOptions) -> Result<Model<Cpu>> {
    let folder = recipe.write_temporary();
    load::cpu(load::open(&Source::open(folder.path())?)?, options, &mut |_| {})
}

fn load(recipe: &Recipe, options: &LoadOptions) -> Model<Cpu> {
    try_load(recipe, options).unwrap()
}

fn ids(count: usize, vocab: usize) -> Vec<u32> {
    let mut x = 11u64;
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((x >> 33) as usize % vocab) as u32
        })
        .collect()
}

/// Logits of the last of `ids`, fed in chunks.
fn last_logits(model: &mut Model<Cpu>, ids: &[u32], chunk: usize) -> Vec<f32> {
    let mut sequence = model.new_sequence().unwrap();
    let mut last = 0;
    for part in ids.chunks(chunk) {
        model.forward(&mut [Feed { sequence: &mut sequence, ids: part }]).unwrap();
        last = part.len() - 1;
    }
    model.logits(&[last]).unwrap().to_vec()
}

#[test]
fn a_config_that_cannot_be_honoured_is_refused_with_the_key_the_value_and_what_is_known() {
    let cases: Vec<(&str, Value, &[&str])> = vec![
        ("hidden_act", json!("gelu"), &["hidden_act", "gelu", "silu"]),
        ("output_gate_type", json!("tanh"), &["output_gate_type", "tanh", "sigmoid"]),
        ("attention_bias", json!(true), &["attention_bias", "false"]),
        ("hc_count", json!(1), &["hc_count", "2 streams"]),
        ("indexer_kv_heads", json!(2), &["indexer_kv_heads"]),
        ("indexer_budget", json!(9), &["indexer_budget", "multiple"]),
        ("indexer_head_dim", json!(8), &["indexer_head_dim", "rotate"]),
        ("num_key_value_heads", json!(3), &["num_attention_heads", "multiple"]),
        ("linear_num_value_heads", json!(5), &["linear_num_value_heads", "multiple"]),
        ("num_experts_per_tok", json!(9), &["num_experts_per_tok", "9 of 8"]),
        ("ple_embed_dim", json!(66), &["ple_embed_dim", "multiple"]),
        ("ple_layer_ids", json!([4]), &["ple_layer_ids", "linear_attention"]),
        ("ple_layer_ids", json!([0]), &["ple_layer_ids", "one-based"]),
        ("eos_token_id", Value::Null, &["eos_token_id", "ple_layer_ids"]),
        ("eos_token_id", json!(96), &["eos_token_id", "96", "vocabulary"]),
        ("layer_types", json!(["mamba"]), &["layer_types", "1 layers"]),
        ("layer_types", json!(vec!["mamba"; 8]), &["layer_types", "mamba", "indexed_attention"]),
        ("rope_parameters", json!({"rope_type": "longrope"}), &["rope_type", "longrope", "yarn"]),
        ("rope_parameters", json!({"partial_rotary_factor": 0.03}), &["partial_rotary_factor", "even"]),
        ("hidden_size", json!(0), &["hidden_size", "0"]),
        ("hidden_size", json!("64"), &["hidden_size", "whole number"]),
        ("vocab_size", json!(1e12), &["vocab_size"]),
        ("mtp_num_hidden_layers", json!(2), &["mtp_num_hidden_layers"]),
        ("mamba_ssm_dtype", json!("bfloat16"), &["mamba_ssm_dtype", "float32"]),
    ];
    for (key, value, words) in cases {
        let mut config = Recipe::tiny().config;
        config[key] = value.clone();
        let json = json!({"model_type": "qwen4_exp", "text_config": config}).to_string();
        let message = hipfire::model::config::parse(json.as_bytes()).unwrap_err().to_string();
        for word in words {
            assert!(message.contains(word), "{key} = {value}: '{message}' does not name '{word}'");
        }
    }
}

#[test]
fn missing_keys_other_architectures_and_other_quantisations_are_named() {
    let message = |json: Value| hipfire::model::config::parse(json.to_string().as_bytes()).unwrap_err().to_string();
    let mut config = Recipe::tiny().config;
    config.as_object_mut().unwrap().remove("hc_lowrank");
    assert!(
        message(json!({"model_type": "qwen4_exp", "text_config": config}))
            .contains("text_config.hc_lowrank: is missing")
    );
    assert!(message(json!({"model_type": "llama"})).contains("\"llama\"; hipfire runs qwen4_exp"));
    let quantised = json!({"model_type": "qwen4_exp", "quantization_config": {"quant_method": "awq"}});
    assert!(message(quantised).contains("awq"));
    let blocks = json!({"quant_method": "fp8", "weight_block_size": [64, 64]});
    assert!(message(json!({"model_type": "qwen4_exp", "quantization_config": blocks})).contains("[64,64]"));
    assert!(hipfire::model::config::parse(b"{").unwrap_err().to_string().contains("not JSON"));
}

#[test]
fn all_layouts_and_exact_formats_of_one_model_give_the_same_bits() {
    let base = Recipe { grid: Grid::Half, ..Recipe::tiny() };
    let ids = ids(30, 96);
    let expected = last_logits(&mut load(&base, &LoadOptions::default()), &ids, 30);
    let variations = [
        Recipe { naming: Naming::TextOnly, ..base.clone() },
        Recipe { naming: Naming::Bare, files: 3, ..base.clone() },
        Recipe { expert_layout: ExpertLayout::Separate, mtp: Mtp::Sidecar, ..base.clone() },
        Recipe { expert_layout: ExpertLayout::Transposed, visual: true, ..base.clone() },
        Recipe { table_sharded: false, ..base.clone() }.formats(Format::Bf16),
        base.clone().formats(Format::F16),
    ];
    for (i, recipe) in variations.iter().enumerate() {
        let logits = last_logits(&mut load(recipe, &LoadOptions::default()), &ids, 30);
        assert!(logits == expected, "variation {i}");
    }
}

#[test]
fn the_fp8_checkpoint_gives_the_bits_of_the_same_weights_in_bf16() {
    // Spec 8.5, test 8: hidden 256 and intermediate 128, power-of-two scales.
    let base = Recipe { grid: Grid::Fp8, expert_layout: ExpertLayout::Separate, ..Recipe::tiny() }
        .set("hidden_size", 256)
        .set("moe_intermediate_size", 128);
    let ids = ids(20, 96);
    let bf16 = last_logits(&mut load(&base.clone().formats(Format::Bf16), &LoadOptions::default()), &ids, 20);
    let fp8 = last_logits(&mut load(&base.formats(Format::F8E4m3), &LoadOptions::default()), &ids, 20);
    assert!(bf16 == fp8);
}

#[test]
fn every_legal_shape_runs_and_does_not_care_how_its_prompt_is_cut() {
    let tiny = Recipe::tiny;
    let shapes = [
        ("two streams", tiny().set("hc_count", 2)),
        ("blocks of three", tiny().set("indexer_compress_ratio", 3).set("indexer_budget", 6)),
        ("bigrams only", tiny().set("ngram_size", 2).set("ple_embed_dim", 64)),
        ("two n-gram layers", tiny().set("ple_layer_ids", json!([1, 6]))),
        ("no n-grams", tiny().set("ple_layer_ids", json!([]))),
        ("SiLU gate", tiny().set("output_gate_type", "silu")),
        ("weights as they come", tiny().set("norm_topk_prob", false)),
        ("odd head widths", tiny().set("linear_key_head_dim", 12).set("linear_value_head_dim", 20)),
        ("long taps", tiny().set("linear_conv_kernel_dim", 6).set("ple_conv_kernel_size", 3)),
        ("one head group", tiny().set("num_attention_heads", 2).set("num_key_value_heads", 2)),
        ("only GDN", tiny().set("layer_types", json!(vec!["linear_attention"; 8]))),
        (
            "yarn",
            tiny().set(
                "rope_parameters",
                json!({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "partial_rotary_factor": 0.5}),
            ),
        ),
    ];
    let ids = ids(45, 96);
    for (name, recipe) in shapes {
        let mut model = load(&recipe, &LoadOptions::default());
        let whole = last_logits(&mut model, &ids, 45);
        assert!(whole.iter().all(|x| x.is_finite()), "{name}");
        for chunk in [1, 7] {
            assert!(last_logits(&mut model, &ids, chunk) == whole, "{name} in chunks of {chunk}");
        }
    }
}

#[test]
fn a_tied_head_is_the_embedding() {
    let recipe = Recipe::tiny().set("tie_word_embeddings", true);
    let logits = last_logits(&mut load(&recipe, &LoadOptions::default()), &ids(9, 96), 9);
    assert!(logits.iter().all(|x| x.is_finite()));
}

#[test]
fn chunks_of_a_long_prompt_agree_within_the_chunked_delta_rules_rounding() {
    let mut model = load(&Recipe::tiny(), &LoadOptions::default());
    let ids = ids(300, 96);
    let whole = last_logits(&mut model, &ids, 300);
    for chunk in [1, 63, 64, 65, 128] {
        // The two forms differ by some F32 roundings a layer; logits here are of order 1. Spec 3.1 saw 3e-5 in F32.
        let difference = support::golden::worst(&last_logits(&mut model, &ids, chunk), &whole);
        assert!(difference <= 1e-4, "chunks of {chunk}: {difference}");
    }
}

#[test]
fn both_backends_of_context_memory_give_the_same_bits_and_coarser_states_stay_close() {
    let recipe = Recipe::tiny();
    let ids = ids(60, 96);
    let run = |options: LoadOptions| last_logits(&mut load(&recipe, &options), &ids, 16);
    let exact = run(LoadOptions::default());
    assert!(run(LoadOptions { kv_backend: Some(KvBackend::Legacy), ..LoadOptions::default() }) == exact);
    for (mode, relative) in [(KvMode::Q8, 1.0 / 254.0), (KvMode::Fp8, 1.0 / 16.0)] {
        // A stored value is off by up to `relative` of its block's largest; what attention adds to the logits is of order
        // 1, so a few times that bounds the change, unless a coarser index key selects another block (BF16 keys: the
        // golden margin of 4e-3 is half of BF16's step, so that can happen once and move a logit by order 1).
        let logits = run(LoadOptions { kv_mode: Some(mode), ..LoadOptions::default() });
        let difference = support::golden::worst(&logits, &exact);
        assert!(difference > 0.0, "{mode} is not the F32 state");
        assert!(difference <= 8.0 * relative + 1.0, "{mode}: {difference}");
    }
}

#[test]
fn memory_for_the_steps_after_one_is_there_before_they_begin() {
    // Keys and values of 512 dimensions: a segment of 2 MiB holds 1,024 tokens.
    let options = LoadOptions { max_sequence: Some(2048), ..LoadOptions::default() };
    let mut model = load::cpu(load::Opened::synthetic("small:q8_0").unwrap(), &options, &mut |_| {}).unwrap();
    let (mut sequence, ids) = (model.new_sequence().unwrap(), ids(1030, 96));
    let mut committed = Vec::new();
    for part in ids[..1000].chunks(500).chain(ids[1000..].chunks(1)) {
        model.forward(&mut [Feed { sequence: &mut sequence, ids: part }]).unwrap();
        committed.push((sequence.len(), model.arena().usage().committed));
    }
    let grown: Vec<usize> = committed.windows(2).filter(|pair| pair[0].1 < pair[1].1).map(|pair| pair[1].0).collect();
    assert_eq!(grown, [1009], "sixteen tokens ahead of the end of a segment: {committed:?}");
}

#[test]
fn a_limit_that_cannot_hold_the_plan_says_by_how_much_and_which_context_would_fit() {
    let recipe = Recipe::tiny().set("max_position_embeddings", 65536);
    let full = load::plan(&open(&recipe), &LoadOptions::default()).unwrap();
    let limit = full.total() - (8 << 20);
    let refused = try_load(&recipe, &LoadOptions { memory_limit: Some(limit), ..LoadOptions::default() });
    let Err(Error::InsufficientMemory(message)) = refused.map(|_| ()) else { panic!("not refused") };
    assert!(message.contains("8.00 MiB more"), "{message}");
    let advised: usize = message.rsplit(' ').next().unwrap().parse().unwrap();
    let fits = |context| {
        let options = LoadOptions { memory_limit: Some(limit), max_sequence: Some(context), ..LoadOptions::default() };
        try_load(&recipe, &options).is_ok()
    };
    assert!(fits(advised) && !fits(advised + 256), "{message}");
}

fn open(recipe: &Recipe) -> load::Opened {
    let folder = recipe.write_temporary();
    load::open(&Source::open(folder.path()).unwrap()).unwrap()
}

#[test]
fn nan_weights_are_an_error_that_names_the_position_not_a_token() {
    let folder = Recipe::tiny().write_temporary();
    let file = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let end = bytes.len();
    bytes[end / 2..end / 2 + 4096].fill(0xff);
    std::fs::write(&file, bytes).unwrap();
    let opened = load::open(&Source::open(folder.path()).unwrap()).unwrap();
    let mut model = load::cpu(opened, &LoadOptions::default(), &mut |_| {}).unwrap();
    let mut sequence = model.new_sequence().unwrap();
    model.forward(&mut [Feed { sequence: &mut sequence, ids: &ids(40, 96) }]).unwrap();
    let rows: Vec<usize> = (24..40).collect();
    let message = model.logits(&rows).unwrap_err().to_string();
    assert!(message.contains("position") && message.contains("not numbers"), "{message}");
}
