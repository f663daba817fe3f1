//! GGUF files that are wrong: each is refused with a sentence, none ends the process or takes memory that it does not
//! have bytes for.

#[path = "support/gguf.rs"]
mod gguf;

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

use gguf::{Edited, golden_source, load, memory_source, written};
use hipfire::model::quantize::Options;
use hipfire::weights::format::Format;
use hipfire::weights::gguf::read;
use hipfire::weights::gguf::types;
use hipfire::weights::gguf::write::Field;
use hipfire::weights::{Bytes, Checkpoint, Source};

/// Counts, for each thread alone, what it holds, the peak of that, and the largest piece.
struct Counting;

#[derive(Clone, Copy)]
struct Count {
    held: isize,
    peak: isize,
    largest: usize,
}

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { held: 0, peak: 0, largest: 0 }) };
}

fn count(change: isize, size: usize) {
    // A thread that ends has no counter any more.
    let _ = COUNT.try_with(|cell| {
        let Count { held, peak, largest } = cell.get();
        let held = held + change;
        cell.set(Count { held, peak: peak.max(held), largest: largest.max(size) });
    });
}

// SAFETY: every call goes to the system's allocator unchanged; the counters touch no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        count(layout.size() as isize, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Memory) {
        count(-(layout.size() as isize), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn file() -> Vec<u8> {
    written(&golden_source("tiny"), &Options::new(Format::F32))
}

fn sentence(file: &[u8]) -> String {
    load(&memory_source(&[("m.gguf", file)])).err().expect("should be refused").to_string()
}

/// Whether the header of `file` is good. What reading it took is in proportion to the file, and so is every piece.
fn opened(file: &[u8], what: &str) -> bool {
    let bytes = Bytes::heap(file.to_vec());
    let held = COUNT.get().held;
    COUNT.set(Count { held, peak: held, largest: 0 });
    let good = read::header("m.gguf", &bytes).is_ok();
    let Count { peak, largest, .. } = COUNT.get();
    // What is kept of a header is an index of it, and its unit is an entry that was walked to its end, never a count that
    // the file names. A tensor takes 24 bytes, its name and 8 a dimension in the file, and 72, the same name and 8 a
    // dimension in memory; a key takes 13 bytes or more, its name and its value in the file, and its name and 72 in a map
    // whose nodes hold 11 and are half full or more. Arrays (the vocabulary) stay in the file's bytes. With names as long as
    // this architecture's that is less than two bytes for one: 1.9 at most here, 1.0 in one piece (one-letter keys alone
    // would reach 12). Beside it stand a sentence and the map's first node, a kilobyte each, however short the file is.
    let (size, total) = (file.len(), peak - held);
    assert!(largest <= size + 1024, "{what}: a piece of {largest} bytes for a file of {size}");
    assert!(total <= (2 * size + 4096) as isize, "{what}: {total} bytes for a file of {size}");
    good
}

#[test]
fn thousands_of_cuts_and_flips_neither_panic_nor_allocate_beyond_the_file() {
    let whole = file();
    let header = Edited::read(&whole);
    let start = whole.len() - header.tensors.iter().map(|part| part.data.len().next_multiple_of(32)).sum::<usize>();
    // Cuts: everywhere in the header, and through the data in steps.
    for end in (0..start).chain((start..whole.len()).step_by(997)) {
        assert!(!opened(&whole[..end], "cut"), "cut at {end} of {}", whole.len());
    }
    // Flips: every header byte. What still opens is bound, which may fail but not end the process.
    let mut damaged = whole.clone();
    let mut survivors = 0;
    for at in 0..start {
        damaged[at] = [0xff, whole[at] ^ 0x01, whole[at] ^ 0x80][at % 3];
        if opened(&damaged, "flip") && at % 5 == 0 {
            survivors += 1;
            let bytes = Bytes::heap(damaged.clone());
            if let Ok(source) = Source::from_files("m", [("m.gguf".to_string(), bytes)]) {
                let _ = hipfire::model::load::open(&source);
            }
        }
        damaged[at] = whole[at];
    }
    assert!(survivors > 50, "flips inside values open: {survivors}");
}

#[test]
fn what_is_not_a_gguf_file_of_version_3_is_named() {
    let mut other = file();
    other[0] = b'X';
    assert!(sentence(&other).contains("it is not a GGUF file"), "{}", sentence(&other));
    let mut old = file();
    old[4] = 2;
    assert!(sentence(&old).contains("GGUF version 2; version 3 is supported"));
    let mut big = file();
    big[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert!(sentence(&big).contains("big-endian"));
    assert!(sentence(b"").contains("truncated"));
}

#[test]
fn counts_that_overflow_are_seen_before_anything_is_allocated() {
    for at in [8, 16] {
        for count in [u64::MAX, 1 << 60, 1 << 32] {
            let mut file = file();
            file[at..at + 8].copy_from_slice(&count.to_le_bytes());
            let message = sentence(&file);
            assert!(message.contains("m.gguf"), "{message}");
        }
    }
}

#[test]
fn names_that_are_there_twice_are_refused() {
    let mut tensors = Edited::read(&file());
    let again = tensors.tensor("output.weight").clone();
    tensors.tensors.push(again);
    assert!(sentence(&tensors.write()).contains("it has tensor 'output.weight' twice"));
    let mut keys = Edited::read(&file());
    keys.pairs.push(("general.type".into(), Field::U32(1)));
    assert!(sentence(&keys.write()).contains("'general.type' twice"));
}

/// The offset of a tensor is the 8 bytes before the next tensor's name.
fn set_offset(file: &mut [u8], tensor: &str, offset: impl Fn(u64) -> u64) {
    let name = tensor.as_bytes();
    let at = file.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    let dimensions = u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let at = at + 4 + dimensions * 8 + 4;
    let old = u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    file[at..at + 8].copy_from_slice(&offset(old).to_le_bytes());
}

#[test]
fn offsets_that_are_unaligned_outside_or_over_each_other_are_refused() {
    for (change, expected) in [
        ((|old| old + 4) as fn(u64) -> u64, "not at a multiple of 32"),
        (|_| 1 << 40, "is truncated: tensor 'output.weight'"),
        (|_| u64::MAX - 31, "is truncated: tensor 'output.weight'"),
        (|_| 0, "lie over each other"),
    ] {
        let mut file = file();
        set_offset(&mut file, "output.weight", change);
        assert!(sentence(&file).contains(expected), "{}", sentence(&file));
    }
}

#[test]
fn another_architecture_is_named_with_the_one_that_runs() {
    let mut other = Edited::read(&file());
    other.set("general.architecture", Field::Text("llama".into()));
    let message = sentence(&other.write());
    assert!(message.contains("\"llama\"") && message.contains("hipfire runs qwen4exp"), "{message}");
    other.remove("general.architecture");
    assert!(sentence(&other.write()).contains("general.architecture"));
}

#[test]
fn a_table_that_does_not_fit_the_metadata_is_refused() {
    for rows in [100, 224 + 8192] {
        let mut other = Edited::read(&file());
        let table = other.tensor("per_layer_token_embd.weight");
        table.shape[0] = rows;
        table.data.resize(rows * 16 * 4, 0);
        assert!(sentence(&other.write()).contains("the table belongs to another model"));
    }
    let mut none = Edited::read(&file());
    none.take("per_layer_token_embd.weight");
    assert!(sentence(&none.write()).contains("has no n-gram table"));
    let mut constants = Edited::read(&file());
    constants.set("qwen4exp.ple.layer_multipliers", Field::U64s(vec![u64::MAX; 3]));
    assert!(sentence(&constants.write()).contains("hash constants"));
}

#[test]
fn a_type_that_is_not_supported_is_named_with_its_tensor_when_it_is_needed() {
    let mut other = Edited::read(&file());
    let head = other.tensor("output.weight");
    head.kind = types::by_id(28).unwrap();
    head.data.resize(96 * 64 * 8, 0);
    let message = sentence(&other.write());
    assert!(message.contains("'output.weight'") && message.contains("F64") && message.contains("Q4_K"), "{message}");
    // 31 was Q4_0_4_4 once.
    let mut withdrawn = file();
    let at = withdrawn.windows(13).position(|window| window == b"output.weight").unwrap() + 13 + 4 + 16;
    withdrawn[at] = 31;
    assert!(sentence(&withdrawn).contains("tensor 'output.weight' has the type 31, which is not known"));
}

#[test]
fn missing_and_misshapen_keys_and_tensors_are_named() {
    for key in ["block_count", "embedding_length", "attention.head_count", "ple.head_offsets", "ple.eos_token_id"] {
        let mut other = Edited::read(&file());
        other.remove(&format!("qwen4exp.{key}"));
        assert!(sentence(&other.write()).contains(&format!("'qwen4exp.{key}' is missing")), "{key}");
    }
    let mut text = Edited::read(&file());
    text.set("qwen4exp.expert_count", Field::Text("many".into()));
    assert!(sentence(&text.write()).contains("a whole number is needed"));
    let mut lists = Edited::read(&file());
    lists.set("qwen4exp.attention.head_count_kv", Field::U32s(vec![2, 4]));
    assert!(sentence(&lists.write()).contains("differs by layer"));
    for name in ["blk.3.attn_k.weight", "blk.0.ssm_a", "blk.3.indexer.q_proj.weight"] {
        let mut other = Edited::read(&file());
        other.take(name);
        assert!(sentence(&other.write()).contains(name), "{name}");
    }
    let mut narrow = Edited::read(&file());
    narrow.tensor("blk.0.attn_qkv.weight").shape = vec![80, 128];
    assert!(sentence(&narrow.write()).contains("'blk.0.attn_qkv.weight'"));
}

#[test]
fn a_folder_with_two_models_asks_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = file();
    for name in ["a-q4.gguf", "a-q8.gguf"] {
        std::fs::write(folder.path().join(name), &file).unwrap();
    }
    let message = Source::open(folder.path()).err().unwrap().to_string();
    assert!(message.contains("a-q4.gguf, a-q8.gguf"), "{message}");
    assert!(Checkpoint::open(&Source::open(&folder.path().join("a-q8.gguf")).unwrap()).is_ok());
}

#[test]
fn a_part_that_says_another_number_than_its_name_is_refused() {
    let mut part = Edited::read(&file());
    part.set("split.no", Field::U32(1));
    part.set("split.count", Field::U32(1));
    assert!(sentence(&part.write()).contains("split.no"));
}
