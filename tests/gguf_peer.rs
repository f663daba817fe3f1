//! Our GGUF files in a program that nobody here wrote: llama.cpp loads them and its logits are ours.
//!
//! Ignored without the peer: run tests/peer/setup.sh, then `cargo test --release --test gguf_peer -- --ignored`.

#[path = "support/gguf.rs"]
mod gguf;

use std::path::{Path, PathBuf};
use std::process::Command;

use gguf::{Edited, load, logits, memory_source};
use hipfire::model::quantize::{Options, quantize};
use hipfire::text::Tokenizer;
use hipfire::weights::Source;
use hipfire::weights::format::Format;
use hipfire::weights::gguf::write::Field;

const VOCAB: usize = 4096;
const TEXT: &str = "Once upon a time there was a little mouse named Pip. Pip lived in a small hole under an old oak tree, \
    and every morning she looked for seeds. One day, 15 crows came down! \"What's that?\" asked Pip; nobody knew. So she \
    ran across the field, over the bridge and up the hill, where the wise owl slept. The owl opened one eye and said: \
    <|im_end|>\n<|im_start|>user\nTell me, little one, why do you run so fast? Pip told her about the crows. The owl \
    laughed until the leaves fell. \"They only want to play,\" she said. Then Pip went home, and the crows brought her the \
    best seeds of the whole forest, and they all ate together until the sun went down and the stars came out above them.";

fn python() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peer/venv/bin/python");
    assert!(python.exists(), "{} is missing: run tests/peer/setup.sh", python.display());
    python
}

fn peer(what: &str, model: &Path, given: &str, folder: &Path) -> Vec<u8> {
    let (input, out) = (folder.join("given"), folder.join("out"));
    std::fs::write(&input, given).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/llama.py");
    let status = Command::new(python()).arg(script).arg(what).args([model, &input, &out]).status().unwrap();
    assert!(status.success(), "llama.cpp refused {}", model.display());
    std::fs::read(out).unwrap()
}

/// llama.cpp's logits, a row an id.
fn theirs(model: &Path, ids: &[u32], folder: &Path) -> Vec<f32> {
    let given: Vec<String> = ids.iter().map(u32::to_string).collect();
    let bytes = peer("logits", model, &given.join(" "), folder);
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn ember() -> Source {
    Source::embedded().expect("built with the embedded model")
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_json(&ember().file("tokenizer.json").unwrap().unwrap(), None).unwrap()
}

/// Without the MTP head, which this llama.cpp refuses.
fn write(format: Format, folder: &Path) -> PathBuf {
    let out = folder.join(format!("ember-{format}.gguf"));
    quantize(&ember(), &out, &Options { mtp: false, ..Options::new(format) }, &mut |_| {}).unwrap();
    out
}

/// Of rows `a` and `b`: root mean square of the difference over that of `b`'s deviation from its mean, and the share of
/// rows with the same largest logit.
fn compare(a: &[f32], b: &[f32]) -> (f64, f64) {
    assert_eq!(a.len(), b.len());
    let (mut square, mut scale, mut same) = (0.0, 0.0, 0);
    for (a, b) in a.chunks_exact(VOCAB).zip(b.chunks_exact(VOCAB)) {
        let mean = b.iter().map(|&x| f64::from(x)).sum::<f64>() / VOCAB as f64;
        square += a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum::<f64>();
        scale += b.iter().map(|&b| (f64::from(b) - mean).powi(2)).sum::<f64>();
        let best = |row: &[f32]| (0..VOCAB).max_by(|&i, &j| row[i].total_cmp(&row[j]));
        same += usize::from(best(a) == best(b));
    }
    ((square / scale).sqrt(), same as f64 / (a.len() / VOCAB) as f64)
}

fn ours(file: &Path, ids: &[u32]) -> Vec<f32> {
    logits(&mut load(&Source::open(file).unwrap()).unwrap(), ids).0
}

/// Our logits of the file's exact values: decoded to F32, so that only llama.cpp rounds.
fn exact(file: &Path, ids: &[u32]) -> Vec<f32> {
    let decoded = gguf::written(&Source::open(file).unwrap(), &Options::new(Format::F32));
    logits(&mut load(&memory_source(&[("exact.gguf", &decoded)])).unwrap(), ids).0
}

#[test]
#[ignore = "needs tests/peer/setup.sh"]
fn llama_cpp_reads_our_tokenizer_as_we_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(Format::F16, folder.path());
    let ids = String::from_utf8(peer("tokens", &file, TEXT, folder.path())).unwrap();
    let ids: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert_eq!(ids, tokenizer().encode_raw(TEXT).unwrap());
}

#[test]
#[ignore = "needs tests/peer/setup.sh"]
fn llama_cpp_computes_our_logits_in_every_format_up_to_the_budget() {
    let ids = tokenizer().encode_raw(TEXT).unwrap();
    // Budget 128 and a tail of up to 3: both rules select every token of the first 131.
    let ids = &ids[..131];
    let folder = tempfile::tempdir().unwrap();
    println!("format  llama.cpp - exact  ours - exact  llama.cpp - ours  same top token");
    for format in formats() {
        let file = write(format, folder.path());
        let (theirs, ours, exact) = (theirs(&file, ids, folder.path()), ours(&file, ids), exact(&file, ids));
        let (rounding, _) = compare(&theirs, &exact);
        let (our_rounding, _) = compare(&ours, &exact);
        let (difference, same) = compare(&theirs, &ours);
        println!("{format:7} {rounding:17.5}  {our_rounding:12.5}  {difference:16.5}  {same:14.3}");
        assert!(rounding < bound(format), "{format}: {rounding}");
        assert!(difference < bound(format), "{format}: {difference}");
    }
}

#[test]
#[ignore = "needs tests/peer/setup.sh"]
fn files_that_llama_cpp_quantised_give_its_logits_here() {
    let ids = &tokenizer().encode_raw(TEXT).unwrap()[..131];
    let folder = tempfile::tempdir().unwrap();
    let file = write(Format::F32, folder.path());
    // ggml's numbers of Q8_0, Q3_K_M, Q4_K_M, Q5_K_M, Q6_K and IQ4_XS.
    for kind in [7, 12, 15, 17, 18, 30] {
        let bytes = peer("quantize", &file, &kind.to_string(), folder.path());
        let theirs_file = folder.path().join("theirs.gguf");
        std::fs::write(&theirs_file, bytes).unwrap();
        let (difference, same) = compare(&theirs(&theirs_file, ids, folder.path()), &ours(&theirs_file, ids));
        println!("file type {kind}, quantised by llama.cpp: {difference:.5} (same top {same:.3})");
        assert!(difference < bound(Format::Q8_0), "{kind}: {difference}");
    }
}

/// Every format that a GGUF file can have.
fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| !matches!(format, Format::F8E4m3 | Format::I64))
}

/// llama.cpp rounds activations to the weights' type (F16, BF16) or to 8 bits a block.
fn bound(format: Format) -> f64 {
    match format {
        Format::F32 => 1e-3,
        Format::F16 => 5e-3,
        Format::Bf16 => 3e-2,
        _ => 5e-2,
    }
}

/// A file with another key, for both sides.
fn changed(file: &Path, name: &str, key: &str, field: Field) -> PathBuf {
    let out = file.with_file_name(name);
    let mut file = Edited::read(&std::fs::read(file).unwrap());
    file.set(&format!("qwen4exp.{key}"), field);
    std::fs::write(&out, file.write()).unwrap();
    out
}

#[test]
#[ignore = "needs tests/peer/setup.sh"]
fn beyond_the_budget_the_rule_of_the_last_block_is_the_only_difference() {
    let words = tokenizer().encode_raw(TEXT).unwrap();
    let ids: Vec<u32> = words.iter().cycle().take(400).copied().collect();
    let folder = tempfile::tempdir().unwrap();
    let rows = |all: &[f32], from: usize, to: usize| all[from * VOCAB..to * VOCAB].to_vec();
    let run = |file: &Path| (theirs(file, &ids, folder.path()), ours(file, &ids));
    // As published: equal while everything is selected. From 132 tokens on ours reads 128 and a tail of up to 3, and
    // llama.cpp always 131 (spec, appendix A): with a tail of 3 the counts are equal, but not the layers below.
    let file = write(Format::F32, folder.path());
    let (theirs, ours) = run(&file);
    let (before, _) = compare(&rows(&theirs, 0, 131), &rows(&ours, 0, 131));
    let (after, same) = compare(&rows(&theirs, 131, 400), &rows(&ours, 131, 400));
    let first = (131..400).find(|&r| compare(&rows(&theirs, r, r + 1), &rows(&ours, r, r + 1)).0 > 5.0 * before);
    let first = first.map_or(0, |row| row + 1);
    println!(
        "published: {before:.6} up to 131 tokens, {after:.6} beyond (same top {same:.3}), visible from {first} on"
    );
    assert!(before < bound(Format::F32) && after > 10.0 * before);
    // With blocks of one token there is no tail, and both rules select the same 128 of up to 400.
    let layers = vec![0, 0, 0, 1, 0, 0, 0, 1];
    let single = changed(&file, "single.gguf", "attention.compress_ratios", Field::I32s(layers));
    let (theirs, ours) = run(&single);
    let (all, same) = compare(&theirs, &ours);
    println!("blocks of 1: {all:.6} over 400 tokens (same top {same:.3})");
    assert!(all < bound(Format::F32));
    // With a budget that holds all, nothing is selected.
    let dense = changed(&file, "dense.gguf", "attention.indexer.top_k", Field::U32(512));
    let (theirs, ours) = run(&dense);
    let (all, same) = compare(&theirs, &ours);
    println!("budget 512: {all:.6} over 400 tokens (same top {same:.3})");
    assert!(all < bound(Format::F32));
}
