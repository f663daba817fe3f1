//! The golden model as GGUF: the same logits as from safetensors, in every spelling that published files have.

#[path = "support/gguf.rs"]
mod gguf;
#[path = "support/golden.rs"]
mod golden;

use gguf::{Edited, golden_source, load, logits, memory_source, written};
use golden::{Golden, worst};
use hipfire::config::HeadMap;
use hipfire::model::quantize::Options;
use hipfire::weights::Source;
use hipfire::weights::format::Format;
use hipfire::weights::gguf::metadata::Kind;
use hipfire::weights::gguf::types;
use hipfire::weights::gguf::write::Field;

/// Spec 8.3: absolute, for F32 runs. Value heads are summed in another order, so bits may differ.
const TOLERANCE: f32 = 1e-4;

fn prompt() -> Vec<u32> {
    Golden::read("tiny").ids("input_ids")
}

fn f32_file() -> Vec<u8> {
    written(&golden_source("tiny"), &Options::new(Format::F32))
}

/// Logits of trunk and head are those of the F32 golden model.
fn assert_golden(source: &Source) {
    let golden = Golden::read("tiny");
    let mut model = load(source).unwrap();
    let (trunk, head) = logits(&mut model, &golden.ids("input_ids"));
    let differences = (worst(&trunk, golden.floats("logits")), worst(&head, golden.floats("mtp.logits")));
    assert!(differences.0 <= TOLERANCE && differences.1 <= TOLERANCE, "{differences:?}");
}

#[test]
fn an_f32_file_gives_the_reference_logits_of_trunk_and_head() {
    let file = f32_file();
    let source = memory_source(&[("tiny.gguf", &file)]);
    let model = load(&source).unwrap();
    use hipfire::model::LanguageModel;
    assert_eq!(model.shape().gdn.head_map, HeadMap::Tiled);
    assert_golden(&source);
}

#[test]
fn a_bf16_file_gives_the_logits_of_the_bf16_checkpoint() {
    let source = golden_source("tiny_bf16");
    let (trunk, head) = logits(&mut load(&source).unwrap(), &prompt());
    let file = written(&source, &Options::new(Format::Bf16));
    let parts = Edited::read(&file);
    assert!(parts.tensors.iter().any(|part| part.kind.name == "BF16"));
    let (ours, our_head) = logits(&mut load(&memory_source(&[("t.gguf", &file)])).unwrap(), &prompt());
    let differences = (worst(&ours, &trunk), worst(&our_head, &head));
    assert!(differences.0 <= TOLERANCE && differences.1 <= TOLERANCE, "{differences:?}");
}

#[test]
fn a_file_written_from_a_file_in_the_same_type_has_the_same_tensors() {
    let first = f32_file();
    let again = written(&memory_source(&[("a.gguf", &first)]), &Options::new(Format::F32));
    let (first, again) = (Edited::read(&first), Edited::read(&again));
    assert_eq!(first.tensors.len(), again.tensors.len());
    for (a, b) in first.tensors.iter().zip(&again.tensors) {
        assert!(a.name == b.name && a.shape == b.shape && a.data == b.data, "{}", a.name);
    }
    let mut keys = [first.pairs, again.pairs].map(|pairs| pairs.into_iter().map(|(key, _)| key).collect::<Vec<_>>());
    keys.iter_mut().for_each(|keys| keys.sort());
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn tensors_and_keys_are_those_of_the_specification() {
    let mut file = Edited::read(&f32_file());
    // 6 GDN layers of 25, 2 QSA layers and the head's of 26, 6 of PLE, 6 of the trunk; the head's input and mixer.
    assert_eq!(file.tensors.len(), 6 * 25 + 3 * 26 + 6 + 6 + 6);
    for (name, shape) in [
        ("token_embd.weight", vec![96, 64]),
        ("per_layer_token_embd.weight", vec![240, 16]),
        ("blk.0.ssm_conv1d.weight", vec![160, 4]),
        ("blk.0.ssm_a", vec![6]),
        ("blk.0.ssm_dt.bias", vec![6]),
        ("blk.0.ffn_gate_inp_shexp.weight", vec![64]),
        ("blk.0.ffn_down_exps.weight", vec![8, 64, 24]),
        ("blk.3.indexer.k_proj.weight", vec![16, 64]),
        ("blk.8.nextn.eh_proj.weight", vec![64, 128]),
        ("blk.8.nextn.hnorm.weight", vec![256]),
    ] {
        assert_eq!(file.tensor(name).shape, shape, "{name}");
    }
    let keys: Vec<&str> = file.pairs.iter().map(|(key, _)| key.as_str()).collect();
    for key in ["block_count", "ple.layer_multipliers", "rope.dimension_sections", "nextn_predict_layers"] {
        assert!(keys.contains(&format!("qwen4exp.{key}").as_str()), "{key}");
    }
}

#[test]
fn norms_stored_as_streams_and_taps_with_a_middle_dimension_are_the_same_tensors() {
    let mut file = Edited::read(&f32_file());
    for name in ["output_hc_norm.weight", "blk.2.hc_ffn_norm.weight", "blk.1.ple_norm_query.weight"] {
        file.tensor(name).shape = vec![4, 64];
    }
    file.tensor("blk.0.ssm_conv1d.weight").shape = vec![160, 1, 4];
    file.tensor("blk.0.ffn_gate_inp_shexp.weight").shape = vec![1, 64];
    assert_golden(&memory_source(&[("a.gguf", &file.write())]));
}

#[test]
fn experts_with_gate_and_up_fused_are_the_same_experts() {
    let mut file = Edited::read(&f32_file());
    for block in 0..9 {
        let gate = file.take(&format!("blk.{block}.ffn_gate_exps.weight"));
        let up = file.tensor(&format!("blk.{block}.ffn_up_exps.weight"));
        let each = gate.data.len() / 8;
        let both = gate.data.chunks(each).zip(up.data.chunks(each)).flat_map(|(gate, up)| [gate, up].concat());
        up.data = both.collect();
        up.shape = vec![8, 48, 64];
        up.name = format!("blk.{block}.ffn_gate_up_exps.weight");
    }
    assert_golden(&memory_source(&[("a.gguf", &file.write())]));
}

#[test]
fn the_head_is_found_in_every_dialect() {
    // mihailescu2m's fork: input matrices apart, the mixer without "head_".
    let mut file = Edited::read(&f32_file());
    let joined = file.take("blk.8.nextn.eh_proj.weight");
    for (i, name) in ["fc_embd", "fc_hidden"].into_iter().enumerate() {
        let mut half = joined.clone();
        half.name = format!("blk.8.nextn.{name}.weight");
        half.shape = vec![64, 64];
        half.data = joined.data.chunks(64 * 4).skip(i).step_by(2).flatten().copied().collect();
        file.tensors.push(half);
    }
    for part in ["norm", "down", "up"] {
        file.rename(&format!("blk.8.nextn.hc_head_{part}.weight"), &format!("blk.8.nextn.hc_{part}.weight"));
    }
    assert_golden(&memory_source(&[("a.gguf", &file.write())]));
    // Input norms without the 1 that others add.
    for name in ["enorm", "hnorm"] {
        let norm = file.tensor(&format!("blk.8.nextn.{name}.weight"));
        let values: Vec<f32> = norm.f32().iter().map(|w| w - 1.0).collect();
        norm.set_f32(&values);
    }
    assert_golden(&memory_source(&[("a.gguf", &file.write())]));
}

#[test]
fn an_early_file_whose_head_has_no_mixer_uses_the_trunks() {
    let mut file = Edited::read(&f32_file());
    let mixers = ["norm", "down", "up"].map(|part| file.take(&format!("blk.8.nextn.hc_head_{part}.weight")));
    let mut model = load(&memory_source(&[("a.gguf", &file.write())])).unwrap();
    let (_, head) = logits(&mut model, &prompt());
    // The same as a file whose head has a copy of the trunk's mixer.
    for (part, mixer) in ["norm", "down", "up"].into_iter().zip(mixers) {
        let trunk = file.tensor(&format!("output_hc_{part}.weight")).clone();
        file.tensors.push(gguf::Part { name: mixer.name, ..trunk });
    }
    let (_, expected) = logits(&mut load(&memory_source(&[("a.gguf", &file.write())])).unwrap(), &prompt());
    assert_eq!(head, expected);
}

#[test]
fn head_counts_may_be_lists_and_ratios_all_zero() {
    let mut file = Edited::read(&f32_file());
    file.set("qwen4exp.attention.head_count", Field::I32s(vec![0, 0, 0, 4, 0, 0, 0, 4, 4]));
    file.set("qwen4exp.attention.head_count_kv", Field::U32s(vec![0, 0, 0, 2, 0, 0, 0, 2, 2]));
    file.set("qwen4exp.attention.compress_ratios", Field::I32s(vec![0; 9]));
    assert_golden(&memory_source(&[("a.gguf", &file.write())]));
    file.remove("qwen4exp.attention.compress_ratios");
    file.remove("qwen4exp.full_attention_interval");
    let layers = (0..9).map(|i| u8::from(i % 4 != 3 && i != 8)).collect();
    let recurrent = Field::Copied { kind: Kind::Bool, count: Some(9), bytes: layers };
    file.set("qwen4exp.attention.recurrent_layers", recurrent);
    assert_golden(&memory_source(&[("a.gguf", &file.write())]));
}

#[test]
fn a_table_is_found_under_its_three_names_and_in_a_file_beside() {
    let mut file = Edited::read(&f32_file());
    for name in ["ple.weight", "ple_ngram_embd.weight"] {
        let mut other = file.clone();
        other.rename("per_layer_token_embd.weight", name);
        assert_golden(&memory_source(&[("a.gguf", &other.write())]));
    }
    let table = file.take("per_layer_token_embd.weight");
    let trunk = file.write();
    let mut beside = Edited::default();
    beside.set("general.architecture", Field::Text("qwen4exp".into()));
    beside.tensors.push(gguf::Part { name: "ple.weight".into(), ..table });
    let beside = beside.write();
    assert_golden(&memory_source(&[("a.gguf", &trunk), ("table.gguf", &beside)]));
    // From a folder, and by the file's name; what is broken beside it does not matter.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.gguf"), &trunk).unwrap();
    std::fs::write(folder.path().join("table.gguf"), &beside).unwrap();
    std::fs::write(folder.path().join("broken.gguf"), b"GGUF").unwrap();
    assert_golden(&Source::open(folder.path()).unwrap());
    assert_golden(&Source::open(&folder.path().join("a.gguf")).unwrap());
}

#[test]
fn a_split_model_is_opened_by_any_part_and_by_its_folder() {
    let file = Edited::read(&f32_file());
    let folder = tempfile::tempdir().unwrap();
    // As unsloth does: the first part has the keys only.
    let cuts = [0, 0, 100, file.tensors.len()];
    for part in 0..3 {
        let mut one = Edited { pairs: Vec::new(), tensors: file.tensors[cuts[part]..cuts[part + 1]].to_vec() };
        if part == 0 {
            one.pairs = file.pairs.clone();
        }
        let small =
            |value: usize, kind| Field::Copied { kind, count: None, bytes: (value as u16).to_le_bytes().into() };
        one.set("split.no", small(part, Kind::U16));
        one.set("split.count", small(3, Kind::U16));
        one.set("split.tensors.count", Field::U32(file.tensors.len() as u32));
        let name = format!("tiny-{:05}-of-00003.gguf", part + 1);
        std::fs::write(folder.path().join(name), one.write()).unwrap();
    }
    assert_golden(&Source::open(folder.path()).unwrap());
    assert_golden(&Source::open(&folder.path().join("tiny-00002-of-00003.gguf")).unwrap());
    std::fs::remove_file(folder.path().join("tiny-00003-of-00003.gguf")).unwrap();
    let message = load(&Source::open(folder.path()).unwrap()).err().unwrap().to_string();
    assert!(message.contains("tiny-00003-of-00003.gguf is missing"), "{message}");
}

#[test]
fn protected_tensors_stay_f32_and_rows_get_a_type_whose_blocks_they_fill() {
    let source = golden_source("tiny");
    let mut exact = Edited::read(&f32_file());
    for format in [Format::F16, Format::Q8_0, Format::Q4_0, Format::Q4K, Format::Iq4Xs] {
        let mut parts = Edited::read(&written(&source, &Options::new(format)));
        for name in
            ["blk.0.hc_attn_inject.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ssm_conv1d.weight", "blk.0.ssm_a"]
        {
            assert!(parts.tensor(name).data == exact.tensor(name).data, "{format}: {name}");
        }
        // Rows of 24 are no whole blocks of 32, rows of 64 none of 256.
        assert_eq!(parts.tensor("blk.0.ffn_down_exps.weight").kind.name, "F16");
        let narrow = match format {
            Format::Q4K => Format::Q5_0,
            Format::Iq4Xs => Format::Iq4Nl,
            other => other,
        };
        assert_eq!(parts.tensor("blk.0.attn_qkv.weight").kind, types::of(narrow).unwrap());
    }
}

#[test]
fn an_f16_file_gives_the_logits_of_its_rounded_weights() {
    let source = golden_source("tiny");
    let f16 = written(&source, &Options::new(Format::F16));
    // The same values, decoded to F32: what the file says, through other products.
    let f32 = written(&memory_source(&[("a.gguf", &f16)]), &Options::new(Format::F32));
    let (a, _) = logits(&mut load(&memory_source(&[("a.gguf", &f16)])).unwrap(), &prompt());
    let (b, _) = logits(&mut load(&memory_source(&[("b.gguf", &f32)])).unwrap(), &prompt());
    let difference = worst(&a, &b);
    assert!(difference <= TOLERANCE, "{difference}");
}
