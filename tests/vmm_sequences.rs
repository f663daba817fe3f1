//! Random lives of an arena on a stand-in whose calls fail, and the limit on open files in processes of their own.

mod support;

use std::process::Command;

use hipfire::arena::vmm::{self, Options};
use hipfire::arena::{Arena, KvBackend, Range, ensure_all};
use hipfire::device::{Context, DeviceSpan, Stream, limits};
use hipfire::error::Error;
use proptest::prelude::*;
use support::standin::{CopyCanary, Standin};

const MIB: usize = 1 << 20;
const SEGMENT: usize = 2 * MIB;

fn open(context: &Context) -> Arena {
    let options = Options { choice: Some(KvBackend::Vmm), segment: SEGMENT, ..Options::default() };
    vmm::open(context, CopyCanary::new(context), options).unwrap().arena
}

#[derive(Debug, Clone)]
enum Op {
    Reserve(usize),
    Grow(usize, usize),
    GrowTwo(usize, usize),
    /// Start over in the same range: nothing is mapped or unmapped by it.
    Rewind(usize),
    Retire(usize),
}

#[derive(Debug, Clone)]
struct Fault(&'static str, u32);

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1..12 * MIB).prop_map(Op::Reserve),
        5 => (any::<usize>(), 0..13 * MIB).prop_map(|(i, bytes)| Op::Grow(i, bytes)),
        2 => (any::<usize>(), 0..13 * MIB).prop_map(|(i, bytes)| Op::GrowTwo(i, bytes)),
        1 => any::<usize>().prop_map(Op::Rewind),
        2 => any::<usize>().prop_map(Op::Retire),
    ]
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
    const CALLS: [&str; 8] = [
        "hipMemAddressReserve",
        "hipMemCreate",
        "hipMemMap",
        "hipMemSetAccess",
        "hipMemUnmap",
        "hipMemRelease",
        "hipMemsetAsync",
        "hipDeviceSynchronize",
    ];
    prop::option::weighted(
        0.3,
        (prop::sample::select(CALLS.to_vec()), 1u32..4).prop_map(|(call, nth)| Fault(call, nth)),
    )
}

/// A living range and what a user of it believes.
struct Live {
    range: Range,
    base: u64,
    committed: usize,
    mark: u8,
}

fn span(range: &Range) -> DeviceSpan<'_> {
    // SAFETY: the arena has committed these bytes, and the range outlives the span.
    unsafe { DeviceSpan::from_raw(range.base(), range.committed()) }
}

struct World<'a> {
    standin: &'a Standin,
    context: &'a Context,
    arena: &'a Arena,
    stream: &'a Stream,
    /// Every address ever reserved.
    seen: &'a mut Vec<std::ops::Range<u64>>,
    live: Vec<Live>,
    failures: usize,
}

impl World<'_> {
    fn used(&self) -> usize {
        let memory = self.context.memory_info().unwrap();
        memory.total - memory.free
    }

    fn step(&mut self, op: &Op, fault: &Option<Fault>) {
        if let Some(Fault(call, nth)) = fault {
            // Invalid value: neither a lack of memory nor the end of the device.
            self.standin.fail(call, *nth, 1);
        }
        let before: Vec<usize> = self.live.iter().map(|live| live.committed).collect();
        match *op {
            Op::Reserve(bytes) => self.reserve(bytes),
            Op::Grow(i, bytes) if !self.live.is_empty() => {
                let i = i % self.live.len();
                let outcome = self.live[i].range.ensure(bytes);
                self.grown(outcome, &before);
            }
            Op::GrowTwo(i, bytes) if self.live.len() >= 2 => {
                let i = i % (self.live.len() - 1);
                let (a, b) = self.live.split_at_mut(i + 1);
                let outcome = ensure_all(&mut [(&mut a[i].range, bytes), (&mut b[0].range, bytes / 2)]);
                self.grown(outcome, &before);
            }
            Op::Rewind(i) if !self.live.is_empty() => {
                let i = i % self.live.len();
                self.live[i].mark = self.live[i].mark.wrapping_add(1).max(1);
                let live = &self.live[i];
                if live.committed > 0 {
                    span(&live.range).fill(self.stream, live.mark).ok();
                    // A planted failure may have hit this fill.
                    self.standin.fail("hipMemsetAsync", 0, 0);
                    span(&live.range).fill(self.stream, live.mark).unwrap();
                }
            }
            Op::Retire(i) if !self.live.is_empty() => drop(self.live.swap_remove(i % self.live.len())),
            _ => {}
        }
        if let Some(Fault(call, _)) = fault {
            self.standin.fail(call, 0, 0);
        }
    }

    fn reserve(&mut self, bytes: usize) {
        // The first attempt may bring the error of an earlier drop.
        let range = self.arena.reserve("r", bytes).or_else(|_| self.arena.reserve("r", bytes));
        let Ok(range) = range else { return self.failures += 1 };
        let addresses = range.base()..range.base() + range.reserved() as u64;
        for old in self.seen.iter() {
            assert!(old.end <= addresses.start || addresses.end <= old.start, "{addresses:x?} was {old:x?} before");
        }
        self.seen.push(addresses);
        assert_eq!(range.committed(), 0);
        self.live.push(Live { base: range.base(), range, committed: 0, mark: 0 });
    }

    fn grown(&mut self, outcome: Result<(), Error>, before: &[usize]) {
        for (live, before) in self.live.iter_mut().zip(before) {
            let after = live.range.committed();
            match &outcome {
                Ok(()) => {
                    assert!(after >= *before && (after.is_multiple_of(SEGMENT) || after == live.range.reserved()))
                }
                Err(_) => assert_eq!(after, *before, "a failed growth changes nothing"),
            }
            live.committed = after;
        }
        self.failures += usize::from(outcome.is_err());
    }

    /// What must hold between any two steps.
    fn check(&self, lost: isize) {
        let usage = self.arena.usage();
        assert_eq!(usage.reserved, self.live.iter().map(|live| live.range.reserved()).sum::<usize>());
        assert_eq!(usage.ranges, self.live.len());
        // The stand-in's own count of memory is the ledger's, pieces that could not be given back included.
        assert_eq!(self.used() as isize - usage.committed as isize, lost, "ledger and device agree");
        for live in &self.live {
            assert_eq!((live.range.base(), live.range.committed()), (live.base, live.committed));
            if live.committed == 0 {
                continue;
            }
            // The whole prefix is mapped and accessible: its first and last byte are what was written, or zero.
            for at in [0, live.committed - 1] {
                let mut byte = [0xee];
                span(&live.range).part(at..at + 1).unwrap().download(self.stream, &mut byte).unwrap();
                assert!(byte[0] == live.mark || byte[0] == 0, "{byte:?}");
            }
        }
    }
}

#[test]
fn a_thousand_random_lives_with_failing_calls_keep_ledger_prefix_and_addresses() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let arena = open(&context);
    let stream = Stream::new(&context).unwrap();
    let memory = context.memory_info().unwrap();
    let lost = (memory.total - memory.free) as isize;
    let seen = std::cell::RefCell::new(Vec::new());
    let failures = std::cell::Cell::new(0);
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::with_cases(1000) };
    proptest::test_runner::TestRunner::new(config)
        .run(&prop::collection::vec((op(), fault()), 4..14), |steps| {
            let mut seen = seen.borrow_mut();
            let (standin, context, arena, stream) = (&standin, &context, &arena, &stream);
            let mut world = World { standin, context, arena, stream, seen: &mut seen, live: vec![], failures: 0 };
            for (op, fault) in &steps {
                world.step(op, fault);
                world.check(lost);
            }
            failures.set(failures.get() + world.failures);
            world.live.clear();
            world.check(lost);
            // What a drop could not give back is said once.
            let _ = arena.reserve("last", SEGMENT).map(drop);
            Ok(())
        })
        .unwrap();
    let ranges = seen.borrow().len();
    assert!(ranges > 1000 && failures.get() > 200, "{ranges} ranges, {} failures", failures.get());
}

// --- VMM.md row 8: a file descriptor a segment. A limit is a process's, so each test has one of its own.

/// Runs a test of this file in a process with these soft and hard limits on open files.
fn with_open_files(test: &str, soft: u32, hard: u32) {
    let executable = std::env::current_exe().unwrap();
    let script = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" --exact {test} --ignored");
    let output = Command::new("bash").args(["-c", &script]).arg(executable).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn row_8_a_process_out_of_files_is_told_so_and_not_that_memory_ran_out() {
    with_open_files("with_160_open_files", 160, 160);
}

#[test]
fn row_8_the_soft_limit_is_raised_at_start() {
    with_open_files("with_64_open_files_of_4096", 64, 4096);
}

#[test]
#[ignore = "run by row_8_a_process_out_of_files_is_told_so_and_not_that_memory_ran_out"]
fn with_160_open_files() {
    if limits::open_files().unwrap().soft != Some(160) {
        return;
    }
    let standin = Standin::take("fibers");
    let context = standin.context();
    let arena = open(&context);
    // There are few descriptors to spare, so a segment is half of the range or more, and not 2 MiB.
    let mut first = arena.reserve("first", 64 * MIB).unwrap();
    first.ensure(1).unwrap();
    assert!(first.committed() >= 32 * MIB, "{}", first.committed());
    let mut ranges = Vec::new();
    let error = loop {
        let mut range = arena.reserve("keys", SEGMENT).unwrap();
        match range.ensure(1) {
            Ok(()) => ranges.push(range),
            Err(error) => break error,
        }
        assert!(ranges.len() < 160, "the limit was not reached");
    };
    assert!(ranges.len() > 100, "{}", ranges.len());
    assert!(matches!(error, Error::InsufficientMemory(_)));
    let text = error.to_string();
    for part in ["of 160 files open", "not a lack of memory", "ulimit -n", "hipMemCreate"] {
        assert!(text.contains(part), "{text}");
    }
    // One range less is one descriptor more.
    let usage = arena.usage();
    drop(ranges.pop());
    let mut range = arena.reserve("keys", SEGMENT).unwrap();
    range.ensure(1).unwrap();
    assert_eq!(arena.usage().committed, usage.committed);
}

#[test]
#[ignore = "run by row_8_the_soft_limit_is_raised_at_start"]
fn with_64_open_files_of_4096() {
    if limits::open_files().unwrap().soft != Some(64) {
        return;
    }
    let standin = Standin::take("fibers");
    let context = standin.context();
    let arena = open(&context);
    assert_eq!(limits::open_files().unwrap().soft, Some(4096));
    let mut range = arena.reserve("keys", 200 * MIB).unwrap();
    range.ensure(200 * MIB).unwrap();
    assert!(limits::files_in_use().unwrap() > 100);
}
