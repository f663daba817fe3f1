//! Damaged weight files: whatever byte is wrong, the answer is a sentence or a model, never a panic.

mod support;

use std::fs;

use hipfire::config::MoeShape;
use hipfire::error::Error;
use hipfire::weights::{Bytes, Checkpoint, Experts, NgramTable, Source};
use support::checkpoint::{Mtp, Recipe};

/// A model of some hundred kilobytes: one layer of each kind.
fn small() -> Vec<u8> {
    let recipe = Recipe { mtp: Mtp::None, visual: true, ..Recipe::tiny() }
        .set("hidden_size", 16)
        .set("vocab_size", 16)
        .set("num_hidden_layers", 3)
        .set("layer_types", vec!["linear_attention", "linear_attention", "full_attention"])
        .set("num_experts", 2);
    let folder = recipe.write_temporary();
    fs::read(folder.path().join("model.safetensors")).unwrap()
}

/// Opens a file and reads all that a loader would. An error must be a sentence of ours.
fn load(bytes: Bytes) -> Result<(), String> {
    let source = Source::from_files(
        "damaged",
        [("config.json".to_string(), Bytes::embedded(b"{}")), ("model.safetensors".to_string(), bytes)],
    );
    let read = || -> hipfire::error::Result<()> {
        let checkpoint = Checkpoint::open(&source?)?;
        let moe = MoeShape { experts: 2, top_k: 1, intermediate: 24, shared_intermediate: 24, normalise: true };
        for name in checkpoint.names() {
            // An unsupported type is one tensor's error and not the model's.
            let Ok(Some(tensor)) = checkpoint.get(name) else { continue };
            let elements: usize = tensor.shape.iter().product();
            assert_eq!(tensor.data.len(), tensor.format.row_bytes(elements), "{name}");
            let _ = (tensor.to_f32(), tensor.to_i64(), tensor.to_matrix());
        }
        Experts::load(&checkpoint, "model.language_model.layers.0.mlp.", &moe, 16)?;
        let table = NgramTable::load(&checkpoint, "model.language_model.layers.1.ple.ple_embedding.", 240, 16)?;
        table.gather(&[0, 59, 60, 239], &mut [0.0; 64])
    };
    match read() {
        Ok(()) => Ok(()),
        Err(Error::Model(sentence)) => {
            assert!(sentence.len() > 20, "{sentence}");
            Err(sentence)
        }
        Err(other) => panic!("damage is the model's fault, not {other:?}"),
    }
}

fn header_end(file: &[u8]) -> usize {
    8 + u64::from_le_bytes(*file.first_chunk().unwrap()) as usize
}

#[test]
fn the_whole_file_loads() {
    load(Bytes::heap(small())).unwrap();
}

#[test]
fn a_file_cut_anywhere_is_refused_with_both_sizes_once_the_header_is_whole() {
    let file = small();
    let (end, size) = (header_end(&file), file.len());
    let bytes = Bytes::heap(file);
    // Every cut in the first kilobyte, then about two thousand more.
    for cut in (0..1024).chain((1024..size).step_by(size / 2000)).chain([size - 1]) {
        let sentence = load(bytes.slice(0..cut).unwrap()).unwrap_err();
        assert!(sentence.contains("model.safetensors"), "{sentence}");
        assert!(sentence.contains("download it again"), "{sentence}");
        if cut >= end {
            assert!(sentence.contains(&size.to_string()) && sentence.contains(&cut.to_string()), "{sentence}");
        }
    }
}

#[test]
fn a_file_with_something_behind_its_end_is_refused() {
    let mut file = small();
    file.push(0);
    assert!(load(Bytes::heap(file)).unwrap_err().contains("too long"));
}

#[test]
fn no_changed_header_byte_makes_a_panic() {
    let mut file = small();
    let end = header_end(&file);
    let mut refused = 0;
    let mut cases = 0;
    // All values of the length, then three changes of every other header byte: low bit, digit and letter, structure.
    let length = (0..8).flat_map(|at| (0..=255).map(move |byte| (at, byte)));
    let original = file.clone();
    let rest = (8..end).flat_map(|at| [original[at] ^ 1, original[at] ^ 0x10, b'"'].map(|byte| (at, byte)));
    for (at, byte) in length.chain(rest.step_by(7)) {
        if byte == original[at] {
            continue;
        }
        file[at] = byte;
        cases += 1;
        refused += usize::from(load(Bytes::heap(file.clone())).is_err());
        file[at] = original[at];
    }
    // Most of a header is load-bearing; names that nobody asks for here are the exception.
    assert!(cases > 4000 && refused * 2 > cases, "{refused} of {cases}");
}

#[test]
fn numbers_that_overflow_are_refused() {
    for entry in [
        r#"{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}"#,
        r#"{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[4,8]}"#,
        r#"{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}"#,
        r#"{"dtype":"F32","shape":[1]}"#,
        r#"{"dtype":"Q7","shape":[1],"data_offsets":[0,9]}"#,
        r#"[1]"#,
    ] {
        let header = format!(r#"{{"w":{entry}}}"#);
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend([0; 4]);
        assert!(load(Bytes::heap(file)).is_err(), "{entry}");
    }
}

#[test]
fn a_name_twice_in_one_header_and_overlapping_tensors_are_refused() {
    let tensor = |start, end| format!(r#"{{"dtype":"F32","shape":[1],"data_offsets":[{start},{end}]}}"#);
    for (header, body, word) in [
        (format!(r#"{{"w":{},"w":{}}}"#, tensor(0, 4), tensor(4, 8)), 8, "again in"),
        (format!(r#"{{"a":{},"b":{}}}"#, tensor(0, 4), tensor(0, 4)), 4, "'b'"),
        (format!(r#"{{"a":{},"b":{}}}"#, tensor(0, 4), tensor(8, 12)), 12, "'b'"),
    ] {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(vec![0; body]);
        let sentence = load(Bytes::heap(file)).unwrap_err();
        assert!(sentence.contains(word), "{sentence}");
    }
}
