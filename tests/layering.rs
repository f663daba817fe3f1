//! The rules of the house that a compiler does not check: who imports whom, how long a file is, where `unsafe` stands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders of `src/`, and what each may import. `error`, `config` and `e4m3` are leaves that everyone may use.
///
/// `engine` reads `arena`, `backend` and `device` for `doctor` alone: what it describes lies there.
const MAY_IMPORT: [(&str, &[&str]); 10] = [
    ("device", &[]),
    ("arena", &["device"]),
    ("weights", &["arena"]),
    ("state", &["arena"]),
    ("backend", &["arena", "device", "state", "weights"]),
    ("model", &["arena", "backend", "state", "weights"]),
    ("text", &[]),
    ("engine", &["arena", "backend", "device", "model", "state", "text", "weights"]),
    ("server", &["engine", "text"]),
    ("cli", &["engine", "server", "text"]),
];
const LEAVES: [&str; 3] = ["error", "config", "e4m3"];
const MAX_LINES: usize = 500;

/// What bindgen wrote: no reader holds it in the head, and none of its `unsafe` is ours to explain.
const GENERATED: [&str; 2] = ["src/backend/hip/abi.rs", "src/device/sys.rs"];

/// Folders that may hold `unsafe`: the edge to HIP, and the stand-ins that are its other side.
const UNSAFE_FOLDERS: [&str; 2] = ["src/device", STAND_INS];
const STAND_INS: &str = "tests/runtimes";

/// Files that may hold `unsafe`: the host's mappings, the CPU's vector instructions and tasks, an allocator that counts.
const UNSAFE: [&str; 17] = [
    "benches/arena_growth.rs",
    "src/arena/host.rs",
    "src/backend/cpu/avx2.rs",
    "src/backend/cpu/blocks.rs",
    "src/backend/cpu/crew.rs",
    "src/backend/cpu/integers.rs",
    "src/backend/cpu/lanes.rs",
    "src/backend/cpu/linear.rs",
    "src/backend/cpu/moe.rs",
    "src/backend/cpu/target.rs",
    "src/backend/cpu/tile.rs",
    "benches/ceiling/mod.rs",
    "tests/gguf_damage.rs",
    "tests/speculation_memory.rs",
    "tests/support/standin.rs",
    "tests/vmm_rules.rs",
    "tests/vmm_sequences.rs",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every source file, relative to the crate.
fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = vec![root().join("src"), root().join("tests"), root().join("benches")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&entry).unwrap();
                files.push((entry.strip_prefix(root()).unwrap().to_path_buf(), text));
            }
        }
    }
    assert!(files.len() > 50, "the sources were found");
    files
}

/// The sources without what was generated.
fn hand_written() -> impl Iterator<Item = (PathBuf, String)> {
    sources().into_iter().filter(|(path, _)| GENERATED.iter().all(|file| path != Path::new(file)))
}

/// The folder of `src/` that a file belongs to; `None` for lib.rs, main.rs and tests.
fn folder(path: &Path) -> Option<String> {
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    (parts.next()? == "src").then_some(())?;
    let first = parts.next()?;
    parts.next().map(|_| first)
}

/// Folders named after `crate::` in a text, comments left out.
fn imports(text: &str) -> BTreeSet<String> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect();
    code.split("crate::")
        .skip(1)
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
        .filter(|name| root().join("src").join(name).is_dir() || LEAVES.contains(&name.as_str()))
        .collect()
}

#[test]
fn folders_import_downwards_only() {
    for (path, text) in sources() {
        let Some(folder) = folder(&path) else { continue };
        let allowed = MAY_IMPORT.iter().find(|(name, _)| *name == folder);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("src/{folder} has no rule: add it to MAY_IMPORT"));
        for import in imports(&text) {
            let fine = import == folder || LEAVES.contains(&import.as_str()) || allowed.contains(&import.as_str());
            assert!(fine, "{} imports {import}, which {folder} must not", path.display());
        }
    }
}

#[test]
fn leaves_import_nothing_but_each_other() {
    for leaf in LEAVES {
        let text = std::fs::read_to_string(root().join(format!("src/{leaf}.rs"))).unwrap();
        assert!(imports(&text).iter().all(|import| LEAVES.contains(&import.as_str())), "{leaf} is a leaf");
    }
}

#[test]
fn no_hand_written_file_is_longer_than_anyone_can_hold_in_the_head() {
    for (path, text) in hand_written() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines: split it where its seams are", path.display());
    }
}

#[test]
fn every_source_file_says_what_it_owns() {
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{} has no head", path.display());
    }
}

#[test]
fn unsafe_stands_only_where_it_may_and_always_says_why() {
    for (path, text) in hand_written() {
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let uses = code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
            if !uses || path == Path::new("tests/layering.rs") {
                continue;
            }
            let allowed = UNSAFE.iter().any(|file| path == Path::new(file))
                || UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder));
            assert!(allowed, "{}:{} uses unsafe", path.display(), i + 1);
            // A stand-in exports C functions and implements traits of them: their contracts are HIP's own.
            let declares = !code.contains("unsafe {") && !code.contains("unsafe impl");
            if declares && path.starts_with(STAND_INS) {
                continue;
            }
            let reason =
                lines[..=i].iter().rev().take(12).any(|line| line.contains("SAFETY:") || line.contains("# Safety"));
            assert!(reason, "{}:{} has no SAFETY line", path.display(), i + 1);
        }
    }
}
