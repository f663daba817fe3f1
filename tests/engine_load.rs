//! Many clients at once, of all kinds, against one engine: nothing sticks, nothing leaks, nobody gets another's text.

#[path = "support/script.rs"]
mod script;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hipfire::arena::Limits;
use hipfire::engine::{Activity, Engine, Event, Options, Request, StopReason, Tokens};
use hipfire::error::Error;
use script::{Script, expected, hashing, options, request, tokens};

const CONTEXT: usize = 5000;

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

#[derive(Default)]
struct Counts {
    whole: AtomicUsize,
    cancelled: AtomicUsize,
    dropped: AtomicUsize,
    too_long: AtomicUsize,
    busy: AtomicUsize,
    no_memory: AtomicUsize,
}

/// One client: a conversation that grows, now and then begun anew, with all that can go wrong on its side.
fn client(engine: &Engine, seed: u64, until: Instant, counts: &Counts) {
    let mut dice = Dice(seed);
    let mut history: Vec<u32> = Vec::new();
    let count = |counter: &AtomicUsize| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    while Instant::now() < until {
        if history.is_empty() || history.len() > 700 || dice.roll(6) == 0 {
            // Most begin alike, as chats with one system prompt do.
            history = (0..40).map(|i| (i * 3 % 10) as u32).collect();
        }
        history.extend((0..1 + dice.roll(60)).map(|i| (i * i + seed as usize) as u32 % 10));
        let mut ids = history.clone();
        let kind = dice.roll(12);
        if kind == 0 {
            ids.resize(CONTEXT + dice.roll(50), 1);
        } else if kind == 1 {
            // More than the arena's limit allows to anyone.
            ids.resize(4900, 2);
        }
        let count_of = 1 + dice.roll(20);
        let asked = Request { max_tokens: Some(count_of), ..request(&ids) };
        let mut stream = match engine.submit(asked) {
            Ok(stream) => stream,
            Err(Error::Busy { retry, .. }) => {
                assert!(retry >= Duration::from_secs(1));
                count(&counts.busy);
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            Err(Error::ContextLength { prompt, context: CONTEXT }) => {
                assert_eq!((kind, prompt), (0, ids.len()));
                count(&counts.too_long);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let expected = expected(hashing, &ids, count_of);
        match kind {
            2 => {
                let _ = stream.by_ref().take(1 + dice.roll(6)).count();
                drop(stream);
                count(&counts.dropped);
            }
            3 => {
                let mut events: Vec<Event> = stream.by_ref().take(1 + dice.roll(6)).collect();
                stream.cancel();
                events.extend(stream);
                assert!(expected.starts_with(&tokens(&events)), "a part of the right answer");
                count(&counts.cancelled);
            }
            _ => {
                let events: Vec<Event> = stream.collect();
                match events.last() {
                    Some(Event::Done(done)) => {
                        assert_eq!(done.reason, StopReason::Length);
                        assert_eq!(tokens(&events), expected, "{} of {} were known", done.usage.cached, ids.len());
                        count(&counts.whole);
                        if kind > 3 {
                            history = [ids, expected].concat();
                        }
                    }
                    Some(Event::Failed(Error::InsufficientMemory(_))) => count(&counts.no_memory),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn a_crowd_of_clients_leaves_nothing_stuck_and_nothing_behind() {
    // 2 KiB a key and a value: 1,024 tokens are a segment of 2 MiB of either. Four slots with one of both fit, 4,900
    // tokens in one slot do not.
    const COMMITTED: usize = 18_000_000;
    let limits = Limits { committed: Some(COMMITTED), ..Limits::default() };
    let script = Script { rows: 64, rule: hashing, ..Script::new(CONTEXT, 512, limits) };
    let arena = script.arena.clone();
    let cache_memory = 8 << 20;
    let engine = script.start(Options { parallel: 4, max_queue: 12, cache_memory, ..options() });
    let counts = Counts::default();
    let crowd = |seconds: u64| {
        let until = Instant::now() + Duration::from_secs(seconds);
        std::thread::scope(|scope| {
            for seed in 0..24 {
                let (engine, counts) = (&engine, &counts);
                scope.spawn(move || client(engine, seed + seconds, until, counts));
            }
        });
    };
    crowd(3);
    let (before, memory) = (arena.usage(), resident());
    crowd(7);

    let seen = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let all = [&counts.whole, &counts.cancelled, &counts.dropped, &counts.too_long, &counts.busy, &counts.no_memory];
    println!("whole, cancelled, dropped, too long, busy, no memory: {:?}", all.map(seen));
    assert!(all.into_iter().all(|counter| seen(counter) > 0), "every kind of end was met: {:?}", all.map(seen));

    // The dropped ones are noticed within a step.
    let patience = Instant::now() + Duration::from_secs(5);
    let is_quiet = || {
        let status = engine.status();
        status.running == 0 && status.waiting == 0 && status.slots.iter().all(|slot| slot.activity == Activity::Idle)
    };
    while !is_quiet() {
        assert!(Instant::now() < patience, "a slot is stuck: {:?}", engine.status());
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = engine.status();
    let totals = status.totals;
    assert_eq!(totals.requests, totals.stopped + totals.cut + totals.cancelled + totals.failed, "everyone has left");
    // Also one that was cancelled or left alone may have found no memory.
    assert!(totals.failed as usize >= seen(&counts.no_memory));
    assert!(totals.cached_tokens > totals.prefill_tokens / 10, "beginnings were known: {totals:?}");
    assert!(status.cache.bytes <= cache_memory, "{:?}", status.cache);

    let after = arena.usage();
    // Four planes and the recurrent state a slot, from the first to the last request.
    assert_eq!((after.ranges, after.retired_ranges), (4 * 5, 0), "{before:?} {after:?}");
    assert!(after.committed <= COMMITTED && after.reserved == before.reserved, "{before:?} {after:?}");
    // Those that wanted more than was left, and hardly anybody beside them.
    assert!(seen(&counts.no_memory) < seen(&counts.whole) / 2, "{:?}", all.map(seen));
    // What may come and go: the cache, and the arena's limit. A leak of one prompt's state a request would be far more.
    let grown = resident().saturating_sub(memory);
    assert!(grown <= cache_memory + COMMITTED, "the process grew by {grown} bytes");
}

#[test]
fn everyone_who_waits_is_served_in_turn() {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let script = Script { rule: hashing, begun: begun.clone(), ..Script::new(400, 4, Limits::default()) };
    let engine = script.start(Options { parallel: 3, max_queue: 100, ..options() });
    let prompt = |number: u32| [&[number / 10, number % 10][..], &[7; 58]].concat();
    let ask = |number| engine.submit(Request { max_tokens: Some(20), ..request(&prompt(number)) }).unwrap();
    let streams: Vec<_> = (0..30).map(ask).collect();
    for (number, stream) in (0..30).zip(streams) {
        assert_eq!(script::answer(stream), expected(hashing, &prompt(number), 20));
    }
    for (place, [tens, ones]) in begun.lock().unwrap().iter().enumerate() {
        // Three that begin in one step are fed in the order of their slots.
        assert!(place.abs_diff((tens * 10 + ones) as usize) <= 2, "request {tens}{ones} began at place {place}");
    }
    assert_eq!(begun.lock().unwrap().len(), 30);
}
