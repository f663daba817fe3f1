//! Sessions on disk: they survive restarts and kills, and what cannot be used is left alone.

#[path = "support/script.rs"]
mod script;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hipfire::arena::Limits;
use hipfire::config::{Device, KvMode};
use hipfire::engine::speculate::SpeculationOptions;
use hipfire::engine::{Engine, Event, LoadOptions, Loaded, Options, SessionFolder};
use hipfire::error::Error;
use script::{Script, expected, hashing, options, request, tokens};

fn engine_of(folder: &Path, model: u8, cache_memory: usize) -> Engine {
    let sessions = Some(SessionFolder { path: folder.into(), model: [model; 32] });
    let script = Script { rule: hashing, ..Script::new(700, 4, Limits::default()) };
    script.start(Options { sessions, cache_memory, parallel: 2, ..options() })
}

fn engine(folder: &Path) -> Engine {
    engine_of(folder, 1, 1 << 24)
}

fn prompt(number: u32) -> Vec<u32> {
    (0..300).map(|i| (i * i + number * i + number / 10) % 10).collect()
}

/// Asks, checks the answer, says how much was known.
fn ask(engine: &Engine, ids: &[u32]) -> usize {
    let events: Vec<Event> = engine.submit(request(ids)).unwrap().collect();
    assert_eq!(tokens(&events), expected(hashing, ids, 4));
    match events.last() {
        Some(Event::Done(done)) => done.usage.cached,
        other => panic!("{other:?}"),
    }
}

/// The prompt, its answer and something new.
fn turn(ids: &[u32]) -> Vec<u32> {
    [ids, &expected(hashing, ids, 4), &[3, 1, 4]].concat()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_conversation_goes_on_where_it_was_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("made/when/needed");
    let (a, b) = (prompt(1), prompt(2));
    let first = engine(&sessions);
    assert_eq!((ask(&first, &a), ask(&first, &b)), (0, 0));
    drop(first);
    let second = engine(&sessions);
    assert_eq!(second.status().totals.requests, 0);
    // All but the last token of the answer, which was not fed.
    assert_eq!(ask(&second, &turn(&a)), a.len() + 3);
    assert_eq!(ask(&second, &b), b.len() - 1, "another answer to the same prompt");
    drop(second);
    // The first turn's file was superseded by the second's.
    assert_eq!(files(&sessions).len(), 2);
    let third = engine(&sessions);
    assert_eq!(ask(&third, &turn(&turn(&a))), turn(&a).len() + 3);
}

#[test]
fn what_is_damaged_cut_or_of_another_model_is_ignored_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(ask(&engine(folder.path()), &prompt(1)), 0);
    let [file] = &files(folder.path())[..] else { panic!("one session") };
    let whole = std::fs::read(file).unwrap();
    assert!(ask(&engine(folder.path()), &turn(&prompt(1))) > 0);
    let [file] = &files(folder.path())[..] else { panic!("one session") };
    let second = std::fs::read(file).unwrap();
    assert!(second.len() > whole.len());

    let cuts = (0..whole.len()).step_by(whole.len() / 40);
    let cut = cuts.map(|length| whole[..length].to_vec());
    let flipped = (0..whole.len()).step_by(whole.len() / 40).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes
    });
    let longer = [&whole[..], b"x"].concat();
    for bytes in cut.chain(flipped).chain([longer]) {
        std::fs::write(file, &bytes).unwrap();
        assert!(hipfire::state::file::read(&bytes, &[1; 32]).is_err());
        let engine = engine_of(folder.path(), 1, 1 << 24);
        assert_eq!(engine.status().cache.on_disk, 0, "nothing was taken from it");
        assert_eq!(std::fs::read(file).unwrap(), bytes, "left alone");
    }
    std::fs::write(file, &whole).unwrap();
    assert!(
        matches!(hipfire::state::file::read(&whole, &[2; 32]), Err(Error::Invalid(m)) if m.contains("another model"))
    );
    assert_eq!(ask(&engine_of(folder.path(), 2, 1 << 24), &turn(&prompt(1))), 0);
    assert_eq!(ask(&engine(folder.path()), &turn(&prompt(1))), prompt(1).len() + 3, "the right model still has it");
}

#[test]
fn the_folder_keeps_to_the_budget_and_forgets_the_oldest() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_of(folder.path(), 1, 100_000);
    for number in 0..20 {
        let _ = ask(&engine, &prompt(number));
    }
    drop(engine);
    let bytes: u64 = files(folder.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes <= 100_000 && files(folder.path()).len() >= 2, "{bytes}");
    let engine = engine_of(folder.path(), 1, 100_000);
    assert_eq!((ask(&engine, &prompt(19)), ask(&engine, &prompt(0))), (299, 0));
}

#[test]
fn sessions_without_memory_for_them_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Some(SessionFolder { path: folder.path().into(), model: [0; 32] });
    let refused = Engine::start(Box::new(Script::small()), Options { sessions, ..options() }).err().unwrap();
    assert!(refused.to_string().contains("--cache-memory"), "{refused}");
}

#[test]
fn a_loaded_models_sessions_are_its_own_and_those_of_its_settings() {
    let folder = tempfile::tempdir().unwrap();
    let known = |kv_mode| {
        let options = LoadOptions {
            max_seq: Some(256),
            threads: Some(1),
            kv_mode: Some(kv_mode),
            device: Device::Cpu,
            speculation: SpeculationOptions::off(),
            prefill_chunk: Some(64),
            max_queue: 4,
            cache_memory: 1 << 26,
            session_dir: Some(folder.path().into()),
            ..LoadOptions::default()
        };
        let loaded = Loaded::open(&options, &mut |_| {}).unwrap();
        let ids = loaded.text.tokenizer.encode_raw("Once upon a time there was a fox.").unwrap();
        let last = loaded.engine.submit(request(&ids)).unwrap().last();
        match last {
            Some(Event::Done(done)) => (done.usage.cached, ids.len() - 1),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(known(KvMode::F32).0, 0);
    let (cached, most) = known(KvMode::F32);
    assert_eq!(cached, most);
    assert_eq!(known(KvMode::Q8).0, 0, "another form of the same model");
    assert_eq!(files(folder.path()).len(), 2);
}

/// The variable that makes this program the one that is killed.
const CHILD: &str = "HIPFIRE_TEST_SESSION_FOLDER";

/// Keeps session after session and says so, until somebody kills it. Without the variable it is not the child.
#[test]
fn child_that_is_killed() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    for number in 0.. {
        // The drop waits until everything is on the disk.
        let _ = ask(&engine(Path::new(&folder)), &prompt(number));
        println!("kept {number}");
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    let mut acknowledged = 0;
    for round in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_is_killed", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut kept = lines.map_while(Result::ok).filter(|line| line.contains("kept ")).take(3 + round % 3);
        let last = kept.by_ref().last();
        // At some moment of the next writes.
        std::thread::sleep(Duration::from_micros(300 * round as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(last.is_some(), "the child kept sessions");
        let engine = engine(folder.path());
        let odd = files(folder.path()).into_iter().find(|file| file.extension().is_none_or(|e| e != "session"));
        assert_eq!(odd, None, "half a file is not left behind");
        for number in 0..3 + round as u32 % 3 {
            assert_eq!(ask(&engine, &turn(&prompt(number))), 303, "round {round}: session {number}");
            acknowledged += 1;
        }
    }
    assert_eq!(acknowledged, 31);
}
