//! Every layout of a checkpoint gives the same model, and one that is not whole says what is wrong.
//!
//! Damage to the bytes is tests/checkpoint_damage.rs, the n-gram table tests/checkpoint_ngram.rs.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hipfire::config::MoeShape;
use hipfire::weights::{Checkpoint, Experts, Format, Matrix, Source, Tensor};
use support::checkpoint::{ExpertLayout, Grid, Mtp, Naming, Recipe};
use support::safetensors::{Content, Stored, write_file};
use support::values::{Draw, Field};

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(&Source::open(folder).unwrap()).unwrap()
}

fn refusal(folder: &Path) -> String {
    Checkpoint::open(&Source::open(folder).unwrap()).err().expect("should be refused").to_string()
}

fn moe(recipe: &Recipe) -> MoeShape {
    MoeShape {
        experts: recipe.number("num_experts"),
        top_k: recipe.number("num_experts_per_tok"),
        intermediate: recipe.number("moe_intermediate_size"),
        shared_intermediate: recipe.number("shared_expert_intermediate_size"),
        normalise: true,
    }
}

fn values(matrix: &Matrix) -> Vec<f32> {
    let mut all = vec![0.0; matrix.rows * matrix.cols];
    all.chunks_exact_mut(matrix.cols).enumerate().for_each(|(r, row)| matrix.decode_row(r, row));
    all
}

/// All weights by names without prefix; experts under names that do not depend on their layout.
fn weights(recipe: &Recipe, checkpoint: &Checkpoint) -> BTreeMap<String, Vec<f32>> {
    let mut all = BTreeMap::new();
    let layers = (0..recipe.number("num_hidden_layers")).map(|i| format!("{}layers.{i}.mlp.", recipe.prefix()));
    let mtp = (recipe.mtp != Mtp::None).then(|| "mtp.layers.0.mlp.".to_string());
    let bare = |name: &str| name.strip_prefix(recipe.prefix()).unwrap_or(name).to_string();
    for prefix in layers.chain(mtp) {
        let experts = Experts::load(checkpoint, &prefix, &moe(recipe), recipe.number("hidden_size")).unwrap();
        for (e, expert) in experts.iter().enumerate() {
            for (part, matrix) in [("gate", &expert.gate), ("up", &expert.up), ("down", &expert.down)] {
                all.insert(format!("{}{e}.{part}", bare(&prefix)), values(matrix));
            }
        }
    }
    let elsewhere = [".experts.", "ngram_embedding", "model.visual."];
    for name in checkpoint.names().filter(|name| !elsewhere.iter().any(|part| name.contains(part))) {
        let tensor: Tensor = checkpoint.get(name).unwrap().unwrap();
        if tensor.format != Format::I64 {
            all.insert(bare(name), tensor.to_f32().unwrap());
        }
    }
    all
}

#[test]
fn every_naming_expert_layout_file_split_and_exact_format_holds_the_same_weights() {
    let base = Recipe { grid: Grid::Half, ..Recipe::tiny() };
    let folder = base.write_temporary();
    let expected = weights(&base, &open(folder.path()));
    // 9 MoE layers of 8 experts with 3 matrices, and the tensors beside them.
    assert!(expected.len() > 9 * 8 * 3 + 200, "{}", expected.len());
    let variants = [
        Recipe { naming: Naming::TextOnly, expert_layout: ExpertLayout::Separate, files: 3, ..base.clone() },
        Recipe { naming: Naming::Bare, expert_layout: ExpertLayout::Transposed, files: 7, ..base.clone() },
        Recipe { mtp: Mtp::Sidecar, files: 2, ..base.clone() }.formats(Format::Bf16),
        Recipe { mtp: Mtp::Sidecar, expert_layout: ExpertLayout::Transposed, ..base.clone() }.formats(Format::F16),
        Recipe { expert_layout: ExpertLayout::Separate, ..base.clone() }.formats(Format::Bf16),
    ];
    for recipe in variants {
        let folder = recipe.write_temporary();
        assert!(weights(&recipe, &open(folder.path())) == expected, "{recipe:?}");
    }
}

#[test]
fn a_square_packed_tensor_is_told_apart_by_its_partner() {
    // hidden = 2 * intermediate: gate_up is [E, 64, 64] either way.
    let base = Recipe::tiny().set("moe_intermediate_size", 32);
    let folder = base.write_temporary();
    let expected = weights(&base, &open(folder.path()));
    let turned = Recipe { expert_layout: ExpertLayout::Transposed, ..base };
    let folder = turned.write_temporary();
    assert!(weights(&turned, &open(folder.path())) == expected);
}

#[test]
fn fp8_experts_equal_the_same_weights_in_bf16() {
    // Intermediate 128 is the packed case; 160 has a cut block of 32 rows (and columns, in down).
    for intermediate in [128, 160] {
        let base = Recipe { grid: Grid::Fp8, ..Recipe::tiny() }
            .set("hidden_size", 256)
            .set("moe_intermediate_size", intermediate)
            .formats(Format::Bf16);
        let folder = base.write_temporary();
        let expected = weights(&base, &open(folder.path()));
        let mut layouts = vec![(ExpertLayout::Separate, Format::Bf16), (ExpertLayout::Separate, Format::F32)];
        if intermediate == 128 {
            layouts.push((ExpertLayout::Packed, Format::F32));
        }
        for (expert_layout, scales) in layouts {
            let recipe = Recipe { expert_layout, scales, ..base.clone() }.formats(Format::F8E4m3);
            let folder = recipe.write_temporary();
            let checkpoint = open(folder.path());
            assert!(checkpoint.list().any(|tensor| tensor.dtype == "F8_E4M3" && tensor.name.contains(".experts.")));
            assert!(weights(&recipe, &checkpoint) == expected, "{expert_layout:?} {scales}");
        }
    }
}

#[test]
fn expert_bytes_stay_in_the_file_except_for_the_transposed_layout() {
    for (expert_layout, mapped) in
        [(ExpertLayout::Packed, true), (ExpertLayout::Separate, true), (ExpertLayout::Transposed, false)]
    {
        let recipe = Recipe { expert_layout, ..Recipe::tiny() };
        let folder = recipe.write_temporary();
        let prefix = "model.language_model.layers.0.mlp.";
        let experts = Experts::load(&open(folder.path()), prefix, &moe(&recipe), 64).unwrap();
        assert!(experts.iter().all(|e| [&e.gate, &e.up, &e.down].iter().all(|m| m.data.is_mapped() == mapped)));
    }
}

#[test]
fn the_synthetic_tensor_list_is_the_one_transformers_writes() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny");
    let golden = Source::open(&data.join("model")).unwrap().with(&data.join("mtp.safetensors")).unwrap();
    let golden = Checkpoint::open(&golden).unwrap();
    // transformers writes the trunk's experts one by one, the golden MTP head is packed.
    let recipe =
        Recipe { naming: Naming::TextOnly, mtp: Mtp::None, expert_layout: ExpertLayout::Separate, ..Recipe::tiny() };
    let trunk = recipe.write_temporary();
    let head = Recipe { naming: Naming::TextOnly, ..Recipe::tiny() }.write_temporary();
    let (trunk, head) = (open(trunk.path()), open(head.path()));
    let mine = trunk.list().chain(head.list().filter(|tensor| tensor.name.starts_with("mtp.")));
    let shapes: BTreeMap<_, _> = mine.map(|tensor| (tensor.name, (tensor.dtype, tensor.shape))).collect();
    let expected: BTreeMap<_, _> = golden.list().map(|tensor| (tensor.name, (tensor.dtype, tensor.shape))).collect();
    assert_eq!(shapes, expected);
    for name in ["layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"] {
        let name = format!("model.layers.1.ple.ple_embedding.{name}");
        let numbers = |checkpoint: &Checkpoint| checkpoint.get(&name).unwrap().unwrap().to_i64().unwrap();
        assert_eq!(numbers(&trunk), numbers(&golden), "{name}");
    }
}

#[test]
#[cfg(feature = "embedded-model")]
fn the_embedded_model_is_a_checkpoint_and_none_of_it_is_copied() {
    let checkpoint = Checkpoint::open(&Source::embedded().unwrap()).unwrap();
    assert_eq!(checkpoint.bytes(), 23_886_968); // total_size of its index
    assert_eq!(checkpoint.files().count(), 2);
    for name in checkpoint.names() {
        checkpoint.get(name).unwrap().unwrap();
    }
}

#[test]
fn tensors_of_types_nobody_computes_with_hurt_only_who_asks_for_them() {
    let recipe = Recipe { visual: true, ..Recipe::tiny() };
    let folder = recipe.write_temporary();
    let checkpoint = open(folder.path());
    assert!(weights(&recipe, &checkpoint) == weights(&recipe, &open(Recipe::tiny().write_temporary().path())));
    assert!(checkpoint.contains("model.visual.c"));
    for (name, dtype) in [("model.visual.a", "F64"), ("model.visual.b", "I32"), ("model.visual.c", "Q7")] {
        let sentence = checkpoint.get(name).err().unwrap().to_string();
        for part in [name, dtype, "model.safetensors", "BF16", "F8_E4M3"] {
            assert!(sentence.contains(part), "{sentence}");
        }
    }
    assert!(checkpoint.get("model.visual.d").unwrap().is_none());
}

#[test]
fn files_that_the_index_lists_and_the_folder_lacks_are_named() {
    let folder = Recipe { files: 4, ..Recipe::tiny() }.write_temporary();
    fs::remove_file(folder.path().join("model-00002-of-00004.safetensors")).unwrap();
    fs::remove_file(folder.path().join("model-00004-of-00004.safetensors")).unwrap();
    let sentence = refusal(folder.path());
    assert!(sentence.contains("model-00002-of-00004.safetensors, model-00004-of-00004.safetensors"), "{sentence}");
}

#[test]
fn an_index_of_another_revision_is_refused() {
    let folder = Recipe { files: 2, ..Recipe::tiny() }.write_temporary();
    let index = folder.path().join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("\"lm_head.weight\"", "\"lm_head.bias\"")).unwrap();
    let sentence = refusal(folder.path());
    assert!(sentence.contains("'lm_head.bias' in model-00001-of-00002.safetensors"), "{sentence}");
    fs::write(&index, text.replace("model-00001-of-00002", "../other")).unwrap();
    assert!(refusal(folder.path()).contains("not a plain file name"));
    fs::write(&index, "{\"weight_map\": 3}").unwrap();
    assert!(refusal(folder.path()).contains("model.safetensors.index.json"));
}

#[test]
fn a_tensor_in_two_files_is_refused_and_both_are_named() {
    let folder = Recipe { mtp: Mtp::Inside, ..Recipe::tiny() }.write_temporary();
    let other = Recipe { mtp: Mtp::Sidecar, ..Recipe::tiny() }.write_temporary();
    fs::copy(other.path().join("mtp.safetensors"), folder.path().join("mtp.safetensors")).unwrap();
    let sentence = refusal(folder.path());
    for part in ["'mtp.", "model.safetensors", "mtp.safetensors"] {
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn files_without_an_index_and_without_the_usual_name_are_all_read() {
    let folder = Recipe { files: 3, ..Recipe::tiny() }.write_temporary();
    fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    assert_eq!(open(folder.path()).files().count(), 3);
    for file in fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(refusal(folder.path()).contains("has no weights"));
}

#[test]
fn experts_that_do_not_fit_the_config_are_named() {
    let packed = Recipe::tiny();
    let separate = Recipe { expert_layout: ExpertLayout::Separate, ..Recipe::tiny() };
    let prefix = "model.language_model.layers.0.mlp.";
    let sentence = |recipe: &Recipe, moe: MoeShape, prefix: &str| {
        let folder = recipe.write_temporary();
        Experts::load(&open(folder.path()), prefix, &moe, 64).err().expect("should be refused").to_string()
    };
    let wrong = sentence(&packed, MoeShape { intermediate: 32, ..moe(&packed) }, prefix);
    assert!(wrong.contains("experts.gate_up_proj") && wrong.contains("[8, 48, 64]") && wrong.contains("[8, 64, 64]"));
    let few = sentence(&separate, MoeShape { experts: 9, ..moe(&packed) }, prefix);
    assert!(few.contains("experts.8.gate_proj.weight"), "{few}");
    let many = sentence(&separate, MoeShape { experts: 7, ..moe(&packed) }, prefix);
    assert!(many.contains("more experts"), "{many}");
    let none = sentence(&packed, moe(&packed), "model.layers.0.mlp.");
    assert!(none.contains("model.layers.0.mlp.experts.gate_up_proj"), "{none}");
}

#[test]
fn fp8_experts_without_scales_are_refused() {
    let recipe = Recipe { expert_layout: ExpertLayout::Separate, ..Recipe::tiny() }.formats(Format::F8E4m3);
    let folder = recipe.write_temporary();
    let path = folder.path().join("model.safetensors");
    // Same length, so that the header stays whole.
    let mut bytes = fs::read(&path).unwrap();
    let (from, to) =
        (b"layers.0.mlp.experts.5.up_proj.weight_scale_inv", b"layers.0.mlp.experts.5.up_proj.weight_scale_xxx");
    let at = bytes.windows(from.len()).position(|part| part == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    fs::write(&path, bytes).unwrap();
    let prefix = "model.language_model.layers.0.mlp.";
    let found = Experts::load(&open(folder.path()), prefix, &moe(&recipe), 64);
    let sentence = found.err().expect("should be refused").to_string();
    assert!(sentence.contains(&format!("{prefix}experts.5.up_proj.weight_scale_inv")), "{sentence}");
}

#[test]
fn fp8_experts_with_a_nan_are_refused_by_the_name_of_their_tensor() {
    let base = Recipe { grid: Grid::Fp8, ..Recipe::tiny() }.set("hidden_size", 256).set("moe_intermediate_size", 128);
    let prefix = "model.language_model.layers.0.mlp.";
    for (expert_layout, name) in
        [(ExpertLayout::Separate, "experts.5.up_proj.weight"), (ExpertLayout::Packed, "experts.down_proj")]
    {
        let recipe = Recipe { expert_layout, scales: Format::F32, ..base.clone() }.formats(Format::F8E4m3);
        let folder = recipe.write_temporary();
        let path = folder.path().join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let stored = open(folder.path()).get(&format!("{prefix}{name}")).unwrap().unwrap();
        let at = bytes.windows(stored.data.len()).position(|part| part == &stored.data[..]).unwrap();
        bytes[at + 1000] = 0x7f;
        drop(stored);
        fs::write(&path, bytes).unwrap();
        let found = Experts::load(&open(folder.path()), prefix, &moe(&recipe), 256);
        let sentence = found.err().expect("should be refused").to_string();
        assert!(sentence.contains(&format!("'{prefix}{name}'")) && sentence.contains("element 1000"), "{sentence}");
    }
}

#[test]
fn an_fp8_block_of_a_packed_tensor_may_lie_across_gate_and_up() {
    // 320 rows, 160 of gate and 160 of up, in blocks of 128, 128 and 64: up starts inside the second.
    let (name, shape) = ("experts.gate_up_proj", [2, 320, 256]);
    let field = Field::new(3, name, Draw::Experts { rows: 320, cols: 256 }, Grid::Fp8);
    let down = Field::new(3, "down", Draw::Experts { rows: 256, cols: 160 }, Grid::Fp8);
    let tensor = |name: &str, format: Format, shape: &[usize], content| Stored {
        name: name.into(),
        dtype: format.to_string(),
        shape: shape.to_vec(),
        content,
    };
    let run = |field: &Field, format, count| Content::Run { field: field.clone(), format, first: 0, count };
    let format = Format::F32;
    let scales = Content::Scales { field: field.clone(), format, first: 0, matrices: 2, rows: 320, cols: 256 };
    let tensors = [
        tensor(name, Format::F8E4m3, &shape, run(&field, Format::F8E4m3, 2 * 320 * 256)),
        tensor("experts.gate_up_proj_scale_inv", format, &[2, 3, 2], scales),
        tensor("experts.down_proj", Format::Bf16, &[2, 256, 160], run(&down, Format::Bf16, 2 * 256 * 160)),
    ];
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    write_file(&folder.path().join("model.safetensors"), &tensors).unwrap();
    let moe = MoeShape { experts: 2, top_k: 1, intermediate: 160, shared_intermediate: 1, normalise: true };
    let experts = Experts::load(&open(folder.path()), "", &moe, 256).unwrap();
    let expected = |field: &Field, first: u64, count: u64| -> Vec<f32> {
        (first..first + count).map(|index| field.value(index)).collect()
    };
    let size = 160 * 256;
    for (e, expert) in experts.iter().enumerate() {
        let e = e as u64;
        assert!(values(&expert.gate) == expected(&field, 2 * e * size, size), "gate of {e}");
        assert!(values(&expert.up) == expected(&field, (2 * e + 1) * size, size), "up of {e}");
        assert!(values(&expert.down) == expected(&down, e * size, size), "down of {e}");
    }
}

#[test]
fn synthetic_weights_have_the_scale_they_claim() {
    let recipe = Recipe { mtp: Mtp::None, ..Recipe::tiny() }.set("hidden_size", 256);
    let folder = recipe.write_temporary();
    let checkpoint = open(folder.path());
    let fan_in = |cols: f64| 1.5 / cols.sqrt();
    for (name, mean, deviation) in [
        ("embed_tokens.weight", 0.0, 1.0),
        ("layers.0.linear_attn.in_proj_qkv.weight", 0.0, fan_in(256.0)),
        ("layers.0.mlp.experts.down_proj", 0.0, fan_in(24.0)),
        ("layers.0.attn_hyper_connection.hc_norm.weight", 0.0, 0.2),
    ] {
        let values = checkpoint.get(&format!("model.language_model.{name}")).unwrap().unwrap().to_f32().unwrap();
        let n = values.len() as f64;
        let average = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let spread = (values.iter().map(|v| (f64::from(*v) - average).powi(2)).sum::<f64>() / n).sqrt();
        // Five standard errors: of a mean 1/sqrt(n), of a deviation less than that.
        let tolerance = 5.0 * deviation / n.sqrt();
        assert!(
            (average - mean).abs() < tolerance && (spread - deviation).abs() < tolerance,
            "{name}: {average} {spread}"
        );
    }
}
