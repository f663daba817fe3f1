//! The arena against a model, against a memory that fails, and against what the kernel says is resident.

use std::ops::Range as Span;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipfire::arena::host::HostMemory;
use hipfire::arena::vm::{Mapping, VirtualMemory};
use hipfire::arena::{Arena, KvBackend, Limits, Range, Usage, ensure_ahead, ensure_all};
use hipfire::config::{AttentionShape, IndexerShape, KvMode};
use hipfire::error::{Error, Result};
use hipfire::state::kv::{KvCache, KvLayout};
use proptest::prelude::*;

const MIB: usize = 1 << 20;
const SEGMENT: usize = 2 * MIB;

/// Tests that touch much memory run one at a time, because one of them measures what is resident.
static QUIET: Mutex<()> = Mutex::new(());
fn quiet() -> MutexGuard<'static, ()> {
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}

fn host(backend: KvBackend, committed: Option<usize>) -> Arena {
    Arena::new(Box::new(HostMemory::new()), backend, Limits { committed, ..Limits::default() })
}

fn message(result: Result<impl Sized>) -> String {
    result.err().expect("an error").to_string()
}

// --- A model of the account, for random sequences of operations.

#[derive(Debug, Clone)]
enum Op {
    Reserve(usize),
    Ensure(usize, usize),
    Write(usize, usize),
    Drop(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (1usize..8 * MIB).prop_map(Op::Reserve),
        5 => (any::<usize>(), 0usize..9 * MIB).prop_map(|(i, bytes)| Op::Ensure(i, bytes)),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(i, at)| Op::Write(i, at)),
        1 => any::<usize>().prop_map(Op::Drop),
    ]
}

struct Modelled {
    range: Range,
    base: u64,
    committed: usize,
    written: Vec<usize>,
}

fn run(backend: KvBackend, limit: usize, ops: &[Op], retired: &mut Vec<Span<u64>>) -> usize {
    let arena = host(backend, Some(limit));
    let mut live: Vec<Modelled> = Vec::new();
    let (mut gone, mut gone_bytes, mut refused) = (0, 0, 0);
    for op in ops {
        let before = arena.usage();
        match *op {
            Op::Reserve(bytes) => match arena.reserve("r", bytes) {
                Ok(range) => {
                    let span = range.base()..range.base() + range.reserved() as u64;
                    let others = live.iter().map(|m| m.base..m.base + m.range.reserved() as u64);
                    for other in others.chain(retired.iter().cloned()) {
                        assert!(span.end <= other.start || other.end <= span.start, "{span:?} overlaps {other:?}");
                    }
                    assert!(range.reserved() >= bytes && range.reserved() < bytes + 65_536 + 1);
                    assert_eq!(range.base() % 64, 0);
                    let committed = if backend == KvBackend::Legacy { range.reserved() } else { 0 };
                    assert_eq!(range.committed(), committed);
                    live.push(Modelled { base: range.base(), range, committed, written: vec![] });
                }
                Err(error) => {
                    assert!(matches!(error, Error::InsufficientMemory(_)) && backend == KvBackend::Legacy, "{error}");
                    assert!(before.committed + bytes.next_multiple_of(4096) > limit);
                    assert_eq!(arena.usage(), before);
                    refused += 1;
                }
            },
            Op::Ensure(i, bytes) if !live.is_empty() => {
                let i = i % live.len();
                let m = &mut live[i];
                let target = bytes.next_multiple_of(SEGMENT).min(m.range.reserved()).max(m.committed);
                let growth = if bytes <= m.committed { 0 } else { target - m.committed };
                match m.range.ensure(bytes) {
                    Ok(()) => {
                        m.committed += growth;
                        assert!(bytes <= m.range.committed() && before.committed + growth <= limit);
                    }
                    Err(Error::Invalid(message)) => {
                        assert!(bytes > m.range.reserved() && message.contains("'r'"), "{message}");
                    }
                    Err(Error::InsufficientMemory(message)) => {
                        assert!(before.committed + growth > limit && message.contains("'r'"), "{message}");
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Op::Write(i, at) if !live.is_empty() => {
                let i = i % live.len();
                let m = &mut live[i];
                if m.committed > 0 {
                    m.range.bytes_mut()[at % m.committed] = 0xa5;
                    m.written.push(at % m.committed);
                }
            }
            Op::Drop(i) if !live.is_empty() => {
                let m = live.swap_remove(i % live.len());
                gone += 1;
                gone_bytes += m.range.reserved();
                retired.push(m.base..m.base + m.range.reserved() as u64);
            }
            _ => {}
        }
        for m in &live {
            assert_eq!(
                (m.range.base(), m.range.committed(), m.range.bytes().len()),
                (m.base, m.committed, m.committed)
            );
            assert_eq!(m.range.bytes().first().copied().unwrap_or(0), if m.written.contains(&0) { 0xa5 } else { 0 });
        }
        let expected = Usage {
            reserved: live.iter().map(|m| m.range.reserved()).sum(),
            committed: live.iter().map(|m| m.committed).sum(),
            retired: gone_bytes,
            ranges: live.len(),
            retired_ranges: gone,
            growths: arena.usage().growths,
            backend,
        };
        assert_eq!(arena.usage(), expected);
        assert!(expected.committed <= limit);
    }
    // Every byte that was not written is zero, at the written places and one beside each.
    for m in &live {
        for &at in &m.written {
            assert_eq!(m.range.bytes()[at], 0xa5);
            if at + 1 < m.committed && !m.written.contains(&(at + 1)) {
                assert_eq!(m.range.bytes()[at + 1], 0);
            }
        }
    }
    refused
}

#[test]
fn a_thousand_random_sequences_keep_the_account_and_never_hand_an_address_out_twice() {
    let _quiet = quiet();
    // Addresses of every case so far: a later case must not see one of them again.
    let (retired, refused) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let cases = (any::<bool>(), MIB..24 * MIB, prop::collection::vec(op(), 1..40));
    runner
        .run(&cases, |(legacy, limit, ops)| {
            let backend = if legacy { KvBackend::Legacy } else { KvBackend::Vmm };
            let mut retired = retired.lock().unwrap_or_else(PoisonError::into_inner);
            refused.fetch_add(run(backend, limit, &ops, &mut retired), Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
    assert!(retired.into_inner().unwrap().len() > 1000 && refused.into_inner() > 100, "both paths were taken");
}

// --- The host's memory.

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn released_layout() -> KvLayout {
    let attention = AttentionShape { query_heads: 24, kv_heads: 2, head_dim: 256 };
    let indexer = IndexerShape { heads: 4, head_dim: 128, budget: 2048, ratio: 4 };
    KvLayout::new(KvMode::F32, attention, indexer).unwrap()
}

#[test]
fn the_whole_released_context_is_reserved_and_only_what_is_written_becomes_resident() {
    let _quiet = quiet();
    let arena = host(KvBackend::Vmm, None);
    let before = resident();
    let mut caches: Vec<KvCache> = (0..12)
        .map(|layer| KvCache::new(&arena, &format!("layer {layer}"), released_layout(), 262_144).unwrap())
        .collect();
    assert_eq!(arena.usage().reserved, 14_208 * MIB);
    assert_eq!((arena.usage().committed, arena.usage().ranges), (0, 48));

    let (row, index) = ([1.0; 512], [1.0; 128]);
    for cache in &mut caches {
        cache.ensure(1000).unwrap();
        for token in 0..1000 {
            cache.write(token, &row, &row);
            cache.write_index(token, &index);
        }
        (0..250).for_each(|block| cache.write_block(block, &index));
    }
    let grown = resident().saturating_sub(before);
    let written = 12 * 1000 * 4736;
    // The kernel counts resident pages in batches a CPU, and other tests run beside: 4 MiB. A plane may hold one huge
    // page more than was written.
    assert!(grown + 4 * MIB >= written, "{grown} bytes resident, {written} written");
    assert!(grown < written + 48 * SEGMENT + 4 * MIB, "{grown} bytes resident, {written} written");
    // 1,000 rows of 2 KiB fit one segment, so every plane has exactly one.
    assert_eq!(arena.usage().committed, 48 * SEGMENT);

    drop(caches);
    let left = resident().saturating_sub(before);
    assert!(left < written / 4, "dropping a cache gives its pages back: {left} bytes of {written} stay");
    assert_eq!((arena.usage().committed, arena.usage().reserved), (0, 0));
    assert_eq!((arena.usage().retired, arena.usage().retired_ranges), (14_208 * MIB, 48));
}

#[test]
fn legacy_counts_everything_at_once_and_refuses_what_the_limit_does_not_hold() {
    let arena = host(KvBackend::Legacy, Some(10 * MIB));
    let mut first = arena.reserve("first", 8 * MIB).unwrap();
    assert_eq!((first.committed(), first.bytes().len(), arena.usage().committed), (8 * MIB, 8 * MIB, 8 * MIB));
    first.ensure(8 * MIB).unwrap();
    first.bytes_mut()[8 * MIB - 1] = 1;
    let usage = arena.usage();
    let text = message(arena.reserve("second", 3 * MIB));
    assert!(["'second'", "3.00 MiB", "8.00 MiB", "10.00 MiB"].iter().all(|part| text.contains(part)), "{text}");
    assert_eq!(arena.usage(), usage);
    drop(first);
    assert_eq!(arena.usage().committed, 0);
    arena.reserve("second", 3 * MIB).unwrap();
}

#[test]
fn a_growth_past_the_limit_names_what_was_asked_and_can_be_retried_when_memory_is_free() {
    let arena = host(KvBackend::Vmm, Some(4 * MIB));
    let mut a = arena.reserve("a", 64 * MIB).unwrap();
    let mut b = arena.reserve("b", 64 * MIB).unwrap();
    a.ensure(1).unwrap();
    a.bytes_mut()[0] = 7;
    let before = arena.usage();
    let text = message(b.ensure(3 * MIB));
    assert!(["'b'", "4.00 MiB more", "2.00 MiB of at most 4.00 MiB"].iter().all(|p| text.contains(p)), "{text}");
    assert_eq!((arena.usage(), b.committed(), a.bytes()[0]), (before, 0, 7));
    drop(a);
    b.ensure(3 * MIB).unwrap();
    assert!(b.bytes().iter().all(|&byte| byte == 0));
}

#[test]
fn several_ranges_grow_together_or_not_at_all() {
    let arena = host(KvBackend::Vmm, Some(6 * MIB));
    let mut a = arena.reserve("a", 64 * MIB).unwrap();
    let mut b = arena.reserve("b", 64 * MIB).unwrap();
    let before = arena.usage();
    assert!(ensure_all(&mut [(&mut a, 4 * MIB), (&mut b, 4 * MIB)]).is_err());
    assert_eq!((arena.usage(), a.committed(), b.committed()), (before, 0, 0));
    assert!(a.bytes().is_empty());
    assert!(ensure_all(&mut [(&mut a, 4 * MIB), (&mut b, 65 * MIB)]).is_err());
    assert_eq!((arena.usage(), a.committed(), b.committed()), (before, 0, 0));
    ensure_all(&mut [(&mut a, 4 * MIB), (&mut b, 2 * MIB)]).unwrap();
    assert_eq!((a.committed(), b.committed()), (4 * MIB, 2 * MIB));
}

#[test]
fn impossible_sizes_are_sentences() {
    for backend in [KvBackend::Vmm, KvBackend::Legacy] {
        let arena = Arena::host(backend);
        let usage = arena.usage();
        assert!(message(arena.reserve("nothing", 0)).contains("'nothing'"));
        assert!(message(arena.reserve("all", usize::MAX)).contains("'all'"));
        // More than 47 bits of addresses: the system refuses.
        assert!(message(arena.reserve("most", 1 << 60)).contains("'most'"));
        assert_eq!(arena.usage(), usage);
    }
}

#[test]
fn too_many_retired_addresses_ask_for_a_restart() {
    for limits in [
        Limits { committed: None, retired_ranges: 3, retired_bytes: usize::MAX },
        Limits { committed: None, retired_ranges: usize::MAX, retired_bytes: 3 * MIB },
    ] {
        let arena = Arena::new(Box::new(HostMemory::new()), KvBackend::Vmm, limits);
        let kept = arena.reserve("kept", MIB).unwrap();
        for _ in 0..3 {
            drop(arena.reserve("passing", MIB).unwrap());
        }
        let text = message(arena.reserve("next", MIB));
        assert!(text.contains("restart") && text.contains("'next'"), "{text}");
        assert_eq!((arena.usage().ranges, arena.usage().retired_ranges), (1, 3));
        drop(kept);
    }
}

// --- A memory that keeps a device's rules and fails on demand.

#[derive(Default)]
struct Script {
    calls: Mutex<Vec<String>>,
    /// Calls that still succeed before one fails, by kind.
    map: AtomicUsize,
    allow: AtomicUsize,
    unmap: AtomicUsize,
    next_base: AtomicUsize,
}

const NEVER: usize = usize::MAX / 2;

impl Script {
    fn new() -> Arc<Script> {
        let script = Script::default();
        [&script.map, &script.allow, &script.unmap].iter().for_each(|fuse| fuse.store(NEVER, Ordering::SeqCst));
        Arc::new(script)
    }
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
    fn call(&self, fuse: &AtomicUsize, text: String) -> Result<()> {
        self.calls.lock().unwrap().push(text.clone());
        match fuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Ok(()),
            Err(_) => {
                fuse.store(NEVER, Ordering::SeqCst);
                Err(Error::InsufficientMemory(format!("the driver refused {text}")))
            }
        }
    }
}

struct FakeDevice {
    script: Arc<Script>,
    remaps: bool,
}

struct FakeMapping {
    script: Arc<Script>,
    base: u64,
    mapped: Vec<Span<usize>>,
    unmapped: Vec<Span<usize>>,
    allowed: usize,
    remaps: bool,
}

impl VirtualMemory for FakeDevice {
    fn granularity(&self) -> usize {
        2
    }
    fn reserve(&self, bytes: usize) -> Result<Box<dyn Mapping>> {
        let base = 64 + self.script.next_base.fetch_add(bytes.next_multiple_of(64), Ordering::SeqCst) as u64;
        let (script, remaps) = (self.script.clone(), self.remaps);
        Ok(Box::new(FakeMapping { script, base, mapped: vec![], unmapped: vec![], allowed: 0, remaps }))
    }
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Mapping>> {
        let base = 64 + self.script.next_base.fetch_add(bytes.next_multiple_of(64), Ordering::SeqCst) as u64;
        let (script, remaps) = (self.script.clone(), self.remaps);
        let whole = Span { start: 0, end: bytes };
        Ok(Box::new(FakeMapping { script, base, mapped: vec![whole], unmapped: vec![], allowed: bytes, remaps }))
    }
}

impl Mapping for FakeMapping {
    fn base(&self) -> u64 {
        self.base
    }
    fn segment(&self) -> usize {
        4
    }
    fn map(&mut self, piece: Span<usize>) -> Result<()> {
        assert_eq!(piece.start, self.mapped.last().map_or(0, |last| last.end), "pieces extend the prefix");
        assert!(self.remaps || self.unmapped.iter().all(|old| old.end <= piece.start || piece.end <= old.start));
        self.script.call(&self.script.map, format!("map {piece:?}"))?;
        self.mapped.push(piece);
        Ok(())
    }
    fn allow(&mut self, prefix: usize) -> Result<()> {
        assert_eq!(prefix, self.mapped.last().map_or(0, |last| last.end), "access covers what is mapped");
        // Also when it fails: the driver may have mapped some of it.
        self.allowed = prefix;
        self.script.call(&self.script.allow, format!("allow 0..{prefix}"))
    }
    fn unmap(&mut self, piece: Span<usize>) -> Result<bool> {
        assert!(self.mapped.contains(&piece), "{piece:?} is one mapped piece of {:?}", self.mapped);
        self.mapped.retain(|mapped| *mapped != piece);
        // Only a piece that was accessible spoils its addresses.
        let used = piece.start < self.allowed;
        if used {
            self.unmapped.push(piece.clone());
        }
        self.script.call(&self.script.unmap, format!("unmap {piece:?}")).map(|()| self.remaps || !used)
    }
}

fn fake(remaps: bool, backend: KvBackend) -> (Arc<Script>, Arena) {
    let script = Script::new();
    let memory = FakeDevice { script: script.clone(), remaps };
    (script, Arena::new(Box::new(memory), backend, Limits::default()))
}

#[test]
fn growth_maps_segments_and_sets_access_from_the_base_once() {
    let (script, arena) = fake(false, KvBackend::Vmm);
    let mut range = arena.reserve("r", 10).unwrap();
    range.ensure(5).unwrap();
    range.ensure(8).unwrap();
    assert_eq!(script.take(), ["map 0..4", "map 4..8", "allow 0..8"]);
    range.ensure(9).unwrap();
    assert_eq!(script.take(), ["map 8..10", "allow 0..10"], "the last piece is cut to the reservation");
    assert!(range.bytes().is_empty() && range.bytes_mut().is_empty());
    drop(range);
    assert_eq!(script.take(), ["unmap 8..10", "unmap 4..8", "unmap 0..4"], "each piece by itself");
}

#[test]
fn a_refused_piece_or_access_is_rolled_back_and_named() {
    let refused_piece = ["map 4..8", "map 8..12", "unmap 4..8"].as_slice();
    let refused_access = ["map 4..8", "map 8..12", "allow 0..12", "unmap 8..12", "unmap 4..8"].as_slice();
    for (kind, calls) in [("map", refused_piece), ("allow", refused_access)] {
        let (script, arena) = fake(true, KvBackend::Vmm);
        let mut range = arena.reserve("r", 40).unwrap();
        range.ensure(4).unwrap();
        let before = arena.usage();
        script.take();
        match kind {
            "map" => script.map.store(1, Ordering::SeqCst),
            _ => script.allow.store(0, Ordering::SeqCst),
        }
        let text = message(range.ensure(12));
        assert!(text.contains("'r'") && text.contains(&format!("refused {kind}")), "{text}");
        assert_eq!(script.take(), calls);
        assert_eq!((arena.usage(), range.committed()), (before, 4));
        range.ensure(40).unwrap();
        assert_eq!(range.committed(), 40);
    }
}

#[test]
fn a_failure_in_the_second_range_takes_the_first_back_too() {
    let (script, arena) = fake(true, KvBackend::Vmm);
    let (mut a, mut b) = (arena.reserve("a", 40).unwrap(), arena.reserve("b", 40).unwrap());
    let before = arena.usage();
    script.map.store(2, Ordering::SeqCst);
    let text = message(ensure_all(&mut [(&mut a, 4), (&mut b, 8)]));
    assert!(text.contains("'b'"), "{text}");
    assert_eq!(script.take(), ["map 0..4", "map 0..4", "map 4..8", "unmap 0..4", "unmap 0..4"]);
    assert_eq!((arena.usage(), a.committed(), b.committed()), (before, 0, 0));
}

#[test]
fn where_memory_ran_out_before_an_address_was_mapped_every_range_may_try_again() {
    let (script, arena) = fake(false, KvBackend::Vmm);
    let (mut a, mut b) = (arena.reserve("a", 40).unwrap(), arena.reserve("b", 40).unwrap());
    script.map.store(2, Ordering::SeqCst);
    assert!(!ensure_ahead(&mut [(&mut a, 4), (&mut b, 8)]).unwrap(), "nothing for the next step, and no error yet");
    assert_eq!((a.committed(), b.committed(), arena.usage().committed), (0, 0, 0));
    assert!(ensure_ahead(&mut [(&mut a, 4), (&mut b, 4000)]).unwrap(), "ahead ends where the range does");
    assert_eq!((a.committed(), b.committed()), (4, 40));
}

#[test]
fn where_addresses_are_not_mapped_twice_a_rolled_back_range_stops_growing() {
    let (script, arena) = fake(false, KvBackend::Vmm);
    let mut range = arena.reserve("r", 40).unwrap();
    range.ensure(4).unwrap();
    // Nothing was mapped yet when the first piece fails: growth may be tried again.
    script.map.store(0, Ordering::SeqCst);
    assert!(range.ensure(8).is_err());
    range.ensure(8).unwrap();
    script.allow.store(0, Ordering::SeqCst);
    assert!(range.ensure(12).is_err());
    let text = message(range.ensure(12));
    assert!(text.contains("'r'") && text.contains("new sequence"), "{text}");
    range.ensure(8).unwrap();
    assert_eq!((range.committed(), arena.usage().committed), (8, 8));
}

#[test]
fn memory_that_cannot_be_given_back_stays_counted_and_the_next_reservation_says_so() {
    for backend in [KvBackend::Vmm, KvBackend::Legacy] {
        let (script, arena) = fake(false, backend);
        let mut range = arena.reserve("r", 4).unwrap();
        range.ensure(4).unwrap();
        script.unmap.store(0, Ordering::SeqCst);
        drop(range);
        assert_eq!((arena.usage().committed, arena.usage().retired_ranges), (4, 1));
        let text = message(arena.reserve("next", 4));
        assert!(text.contains("'r'") && text.contains("unmap 0..4"), "{text}");
        arena.reserve("next", 4).unwrap();
    }
}
