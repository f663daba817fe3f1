//! The n-gram table: the same rows from every layout and format, read on demand and not kept.

mod support;

use std::fs;
use std::path::Path;

use hipfire::config::PleShape;
use hipfire::weights::{Bytes, Checkpoint, Format, NgramTable, Source, hash};
use support::checkpoint::{Grid, Recipe};
use support::values::{Draw, Field};

const PREFIX: &str = "model.language_model.layers.1.ple.ple_embedding.";
const ROWS: u64 = 240;
const WIDTH: usize = 16;

fn load(folder: &Path, rows: u64, width: usize) -> Result<NgramTable, String> {
    let checkpoint = Checkpoint::open(&Source::open(folder).unwrap()).unwrap();
    NgramTable::load(&checkpoint, PREFIX, rows, width).map_err(|error| error.to_string())
}

fn all(table: &NgramTable) -> Vec<f32> {
    let rows: Vec<u64> = (0..table.rows()).collect();
    let mut out = vec![0.0; rows.len() * table.row_dim()];
    table.gather(&rows, &mut out).unwrap();
    out
}

#[test]
fn every_layout_and_format_gives_the_rows_that_were_written() {
    let field = Field::new(7, "layers.1.ple.ple_embedding.ngram_embedding.", Draw::Table, Grid::Fp8);
    let expected: Vec<f32> = (0..ROWS * WIDTH as u64).map(|index| field.value(index)).collect();
    let base = Recipe { grid: Grid::Fp8, ..Recipe::tiny() };
    for format in [Format::F32, Format::F16, Format::Bf16, Format::F8E4m3] {
        // 12 parts: shard 10 follows shard 9. 7 parts: six of 35 rows and one of 30.
        for parts in [4, 12, 7, 1] {
            let recipe = Recipe { table: format, files: 3, ..base.clone() }.set("split_ngram_parts", parts);
            let folder = recipe.write_temporary();
            let table = load(folder.path(), ROWS, WIDTH).unwrap();
            assert_eq!(table.format(), format);
            assert!(all(&table) == expected, "{format} in {parts}");
        }
        let folder = Recipe { table: format, table_sharded: false, ..base.clone() }.write_temporary();
        assert!(all(&load(folder.path(), ROWS, WIDTH).unwrap()) == expected, "{format} in one tensor");
    }
}

#[test]
fn rows_come_in_the_order_asked_for_and_may_repeat() {
    let folder = Recipe::tiny().write_temporary();
    let table = load(folder.path(), ROWS, WIDTH).unwrap();
    let (whole, asked) = (all(&table), [239, 0, 61, 61, 59]);
    let mut out = vec![0.0; asked.len() * WIDTH];
    table.prefetch(&asked).unwrap();
    table.gather(&asked, &mut out).unwrap();
    for (row, got) in asked.iter().zip(out.chunks_exact(WIDTH)) {
        assert_eq!(got, &whole[*row as usize * WIDTH..][..WIDTH]);
    }
    assert!(table.gather(&[240], &mut out[..WIDTH]).unwrap_err().to_string().contains("row 240"));
    assert!(table.gather(&[u64::MAX], &mut out[..WIDTH]).is_err());
    assert!(table.gather(&[1, 2], &mut out[..WIDTH]).is_err());
}

#[test]
fn an_fp8_row_is_rounded_to_bf16_after_its_scale() {
    // A scale that is no power of two, so that the rounding shows: 0.1 is not a BF16 value.
    let folder =
        Recipe { table: Format::F8E4m3, scales: Format::F32, table_sharded: false, ..Recipe::tiny() }.write_temporary();
    let path = folder.path().join("model.safetensors");
    let name = format!("{PREFIX}ngram_embedding.weight_scale");
    let file = fs::read(&path).unwrap();
    let body = 8 + u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..body]).unwrap();
    let at = |name: &str| body + header[name]["data_offsets"][0].as_u64().unwrap() as usize;
    let mut changed = file.clone();
    changed[at(&name)..][..4].copy_from_slice(&0.1f32.to_le_bytes());
    let first = at(&format!("{PREFIX}ngram_embedding.weight"));
    changed[first] = 0x3c; // 1.5
    fs::write(&path, changed).unwrap();
    let table = load(folder.path(), ROWS, WIDTH).unwrap();
    let mut row = [0.0; WIDTH];
    table.gather(&[0], &mut row).unwrap();
    // 1.5 * f32(0.1) = 0.15000001; its neighbours in BF16 are 76.5 / 512 and 77 / 512.
    assert_eq!(row[0], 77.0 / 512.0);
}

#[test]
fn a_table_that_is_not_the_models_is_refused() {
    let whole = Recipe::tiny();
    let folder = whole.write_temporary();
    let sentence = load(folder.path(), 248, WIDTH).err().unwrap();
    assert!(sentence.contains("240 rows") && sentence.contains("248"), "{sentence}");
    assert!(load(folder.path(), ROWS, 32).err().unwrap().contains("[rows, 32]"));

    // Names of the same length, so that the header stays whole.
    let rename = |recipe: &Recipe, from: &str, to: &str| {
        let folder = recipe.write_temporary();
        let path = folder.path().join("model.safetensors");
        let mut file = fs::read(&path).unwrap();
        let at = file.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        file[at..at + to.len()].copy_from_slice(to.as_bytes());
        fs::write(&path, file).unwrap();
        load(folder.path(), ROWS, WIDTH).err().expect("should be refused")
    };
    let gap = rename(&whole, "ngram_embedding.shard_2", "ngram_embedding.shard_9");
    assert!(gap.contains("120 rows in 2 tensors"), "{gap}");
    let none = rename(&whole, "ngram_embedding.shard_0", "ngram_embedding.shard_9");
    assert!(none.contains("no n-gram table"), "{none}");
    let fp8 = Recipe { table: Format::F8E4m3, ..whole };
    let unscaled = rename(&fp8, "ngram_embedding.weight_scale", "ngram_embedding.weight_scalf");
    assert!(unscaled.contains("without its scale"), "{unscaled}");
}

#[test]
fn hashing_and_gathering_the_golden_prompt_gives_transformers_rows_and_embeddings() {
    for name in ["tiny", "tiny_bf16"] {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let model = Checkpoint::open(&Source::open(&data.join("model")).unwrap()).unwrap();
        let golden = Source::from_files("golden", [("config.json".to_string(), Bytes::embedded(b"{}"))]).unwrap();
        let golden = Checkpoint::open(&golden.with(&data.join("golden.safetensors")).unwrap()).unwrap();
        let tensor = |name: &str| golden.get(name).unwrap().unwrap();
        let ids: Vec<u32> = tensor("input_ids").to_i64().unwrap().iter().map(|id| *id as u32).collect();
        let (expected_rows, expected) = (tensor("layer1.ple_rows").to_i64().unwrap(), tensor("layer1.ple_emb"));

        let hash = hash::derive(96, 1234, 0, 3, 2, 50, 8).unwrap();
        let table = NgramTable::load(&model, "model.layers.1.ple.ple_embedding.", hash.table_rows, WIDTH).unwrap();
        let ple =
            PleShape { layers: vec![1], embed_dim: 64, conv_kernel: 4, ngram: 3, heads_per_ngram: 2, hash: vec![hash] };
        let mut rows = vec![0; ids.len() * ple.heads()];
        for (t, out) in rows.chunks_exact_mut(ple.heads()).enumerate() {
            hash::rows(&ple.hash[0], &ple, &hash::context(&ids, t, 90, ple.ngram), out);
        }
        assert!(
            rows.iter().zip(&expected_rows).all(|(row, expected)| *row == *expected as u64)
                && rows.len() == expected_rows.len(),
            "{name}"
        );
        let mut embedding = vec![0.0; rows.len() * WIDTH];
        table.gather(&rows, &mut embedding).unwrap();
        assert!(embedding == expected.to_f32().unwrap(), "{name}");
    }
}

/// Resident bytes of the mappings of `path` in this process.
#[cfg(target_os = "linux")]
fn resident(path: &Path) -> usize {
    let path = path.to_string_lossy().into_owned();
    let (mut ours, mut sum) = (false, 0);
    for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        if line.split_whitespace().next().is_some_and(|word| word.contains('-')) {
            ours = line.ends_with(&path);
        } else if let Some(size) = line.strip_prefix("Rss:")
            && ours
        {
            sum += size.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024;
        }
    }
    sum
}

#[test]
#[cfg(target_os = "linux")]
fn reading_the_whole_table_keeps_a_bounded_share_of_it_resident() {
    const LIMIT: usize = 4 << 20;
    // 4 heads of 40,000 rows and 64 bytes a row: 10 MB in F32.
    let recipe = Recipe::tiny().set("ngram_vocab_size_base", 40_000);
    let folder = recipe.write_temporary();
    let path = folder.path().join("model.safetensors");
    let checkpoint = Checkpoint::open(&Source::open(folder.path()).unwrap()).unwrap();
    let rows: usize =
        checkpoint.list().filter(|tensor| tensor.name.contains("ngram_embedding.shard")).map(|t| t.shape[0]).sum();
    let opened = resident(&path);
    let table = NgramTable::load(&checkpoint, PREFIX, rows as u64, WIDTH).unwrap();
    assert!(opened < 1 << 20, "opening read {opened} bytes");

    let table = table.with_resident_limit(usize::MAX);
    let expected = all(&table);
    let unbounded = resident(&path);
    assert!(unbounded > 2 * LIMIT, "{unbounded} bytes resident: the measurement proves nothing");

    let table = table.with_resident_limit(LIMIT);
    let mut most = 0;
    let mut row = vec![0.0; WIDTH * 16];
    for first in (0..rows as u64 - 16).step_by(16) {
        let asked: Vec<u64> = (first..first + 16).collect();
        table.gather(&asked, &mut row).unwrap();
        assert!(row == expected[first as usize * WIDTH..][..16 * WIDTH]);
        if first % 1600 == 0 {
            most = most.max(resident(&path));
        }
    }
    // Beside the table: the header and the pages at the shards' edges.
    assert!(most < LIMIT + opened + (1 << 20), "{most} bytes resident with a limit of {LIMIT}");
}
