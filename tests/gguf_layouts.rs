//! Every layout of a safetensors checkpoint, rewritten as GGUF, computes what the checkpoint computes; and rewriting
//! holds a small part of a model in memory.

#[path = "support/gguf.rs"]
mod gguf;
#[path = "support/mod.rs"]
mod support;

use gguf::{load, logits, memory_source, written};
use hipfire::model::quantize::Options;
use hipfire::weights::Source;
use hipfire::weights::format::Format;
use support::checkpoint::{ExpertLayout, Grid, Mtp, Naming, Recipe};

const IDS: [u32; 20] = [3, 7, 90, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28];
/// Spec 8.3: sums of value heads are in another order.
const TOLERANCE: f32 = 1e-4;

fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn assert_same(recipe: &Recipe, format: Format) {
    let folder = recipe.write_temporary();
    let source = Source::open(folder.path()).unwrap();
    let (trunk, head) = logits(&mut load(&source).unwrap(), &IDS);
    let file = written(&source, &Options::new(format));
    let (ours, our_head) = logits(&mut load(&memory_source(&[("a.gguf", &file)])).unwrap(), &IDS);
    assert_eq!(head.is_empty(), recipe.mtp == Mtp::None);
    let differences = (worst(&ours, &trunk), worst(&our_head, &head));
    assert!(differences.0 <= TOLERANCE && differences.1 <= TOLERANCE, "{recipe:?}: {differences:?}");
}

#[test]
fn every_naming_expert_layout_and_place_of_the_head_is_written_alike() {
    for (naming, expert_layout, mtp, files, table_sharded) in [
        (Naming::Hub, ExpertLayout::Packed, Mtp::Inside, 1, true),
        (Naming::TextOnly, ExpertLayout::Separate, Mtp::Sidecar, 1, false),
        (Naming::Bare, ExpertLayout::Transposed, Mtp::None, 3, true),
    ] {
        let recipe = Recipe { naming, expert_layout, mtp, files, table_sharded, visual: true, ..Recipe::tiny() };
        assert_same(&recipe, Format::F32);
    }
}

#[test]
fn fp8_experts_and_table_are_written_with_their_scales_applied() {
    let recipe = Recipe { grid: Grid::Fp8, expert_layout: ExpertLayout::Separate, ..Recipe::tiny() }
        .set("hidden_size", 256)
        .set("moe_intermediate_size", 160)
        .formats(Format::F8E4m3);
    // The grid's values are BF16 values, so nothing is lost.
    assert_same(&recipe, Format::Bf16);
}

#[test]
#[ignore = "writes 1.5 GB; run it alone: cargo test --release --test gguf_layouts -- --ignored --nocapture"]
fn nearly_a_gigabyte_is_rewritten_with_a_fraction_of_it_in_memory() {
    use std::process::{Command, Stdio};
    let recipe = Recipe { files: 4, ..Recipe::tiny() }
        .set("hidden_size", 1024)
        .set("num_experts", 64)
        .set("moe_intermediate_size", 256)
        .set("ngram_vocab_size_base", 500_000)
        .formats(Format::Bf16);
    let folder = recipe.write_temporary();
    let source: u64 = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    let out = folder.path().join("out.gguf");
    let mut child = Command::new(env!("CARGO_BIN_EXE_hipfire"))
        .arg("quantize")
        .arg(folder.path())
        .arg("-o")
        .arg(&out)
        .args(["--type", "q4_k"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Highest seen, in KiB: memory of its own, and with the mapped files.
    let (mut anonymous, mut resident) = (0, 0);
    let status = loop {
        let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        anonymous = anonymous.max(field("RssAnon:").unwrap_or(0));
        resident = resident.max(field("VmRSS:").unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert!(status.success());
    println!(
        "{} MiB of BF16: {} MiB of memory, {} MiB with mapped files",
        source >> 20,
        anonymous >> 10,
        resident >> 10
    );
    assert!(source > 900 << 20 && anonymous << 10 < source / 16 && resident << 10 < source / 8);
}
