//! The arena on a stand-in that has the known faults of ROCm's virtual memory: one test a row of VMM.md.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hipfire::arena::vmm::{self, Opened, Options, Unload};
use hipfire::arena::{KvBackend, Limits, Range, ensure_ahead};
use hipfire::device::canary::Prove;
use hipfire::device::{Context, DeviceSpan, Stream};
use hipfire::error::{Error, Result};
use support::standin::{CopyCanary, Standin};

const MIB: usize = 1 << 20;

fn message(result: Result<impl Sized>) -> String {
    result.err().expect("an error").to_string()
}

fn open(context: &Context, choice: Option<KvBackend>) -> Result<Opened> {
    let options = Options { choice, segment: 2 * MIB, ..Options::default() };
    vmm::open(context, CopyCanary::new(context), options)
}

/// The committed prefix.
fn bytes(range: &Range, stream: &Stream) -> Vec<u8> {
    let mut bytes = vec![1; range.committed()];
    span(range).download(stream, &mut bytes).unwrap();
    bytes
}

fn span(range: &Range) -> DeviceSpan<'_> {
    // SAFETY: the arena has committed these bytes, and the range outlives the span.
    unsafe { DeviceSpan::from_raw(range.base(), range.committed()) }
}

#[test]
fn auto_maps_what_is_written_on_both_known_cards_and_gives_it_back() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let free = context.memory_info().unwrap().free;
    let Opened { arena, fallback } = open(&context, None).unwrap();
    assert_eq!((arena.usage().backend, fallback), (KvBackend::Vmm, None));
    let stream = Stream::new(&context).unwrap();
    let mut range = arena.reserve("keys", 100 * MIB).unwrap();
    assert_eq!((range.reserved(), range.committed()), (100 * MIB, 0));
    range.ensure(3 * MIB).unwrap();
    assert_eq!((range.committed(), free - context.memory_info().unwrap().free), (4 * MIB, 4 * MIB));
    assert!(bytes(&range, &stream).iter().all(|&byte| byte == 0), "new memory reads zero");
    span(&range).fill(&stream, 5).unwrap();
    range.ensure(5 * MIB).unwrap();
    let found = bytes(&range, &stream);
    assert!(found[..4 * MIB].iter().all(|&byte| byte == 5) && found[4 * MIB..].iter().all(|&byte| byte == 0));
    drop(range);
    assert_eq!(context.memory_info().unwrap().free, free);
    assert_eq!((arena.usage().committed, arena.usage().retired), (0, 100 * MIB));
}

#[test]
fn the_canary_kernel_proves_memory_as_copies_do() {
    for name in ["fibers", "rdna"] {
        let standin = Standin::take(name);
        let context = standin.context();
        let Some(canary) = standin.kernel_canary(&context) else { return };
        standin.mode("fresh_mapping_loses_stores", 3000);
        let Opened { arena, fallback } =
            vmm::open(&context, canary, Options { segment: MIB, ..Options::default() }).unwrap();
        assert_eq!(fallback, None, "{name}");
        let mut range = arena.reserve("keys", 8 * MIB).unwrap();
        range.ensure(1).unwrap();
        let stream = Stream::new(&context).unwrap();
        assert!(bytes(&range, &stream).iter().all(|&byte| byte == 0), "{name}");
    }
}

#[test]
fn row_1_no_address_is_mapped_twice_so_nothing_reads_its_first_backing() {
    let standin = Standin::take("fibers");
    standin.mode("remap_reads_first_backing", 1);
    let context = standin.context();
    let arena = open(&context, None).unwrap().arena;
    let stream = Stream::new(&context).unwrap();
    let mut seen: Vec<std::ops::Range<u64>> = Vec::new();
    for round in 0..20u8 {
        let mut range = arena.reserve("keys", 4 * MIB).unwrap();
        let addresses = range.base()..range.base() + range.reserved() as u64;
        assert!(seen.iter().all(|old| old.end <= addresses.start || addresses.end <= old.start));
        seen.push(addresses);
        range.ensure(4 * MIB).unwrap();
        assert!(bytes(&range, &stream).iter().all(|&byte| byte == 0));
        span(&range).fill(&stream, round + 1).unwrap();
        assert!(bytes(&range, &stream).iter().all(|&byte| byte == round + 1));
    }
    assert_eq!(standin.calls("hipMemAddressFree"), 0);
    assert_eq!((arena.usage().retired_ranges, arena.usage().retired), (20, 80 * MIB));

    // A range that had to unmap what it mapped does not map there again.
    let mut range = arena.reserve("keys", 8 * MIB).unwrap();
    range.ensure(2 * MIB).unwrap();
    standin.fail("hipMemSetAccess", 1, 1);
    assert!(range.ensure(4 * MIB).is_err());
    assert!(message(range.ensure(4 * MIB)).contains("start a new sequence"));
    assert_eq!(range.committed(), 2 * MIB);
}

#[test]
fn row_1_retired_addresses_are_bounded_and_the_refusal_says_restart() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let limits = Limits { retired_bytes: 8 * MIB, ..Limits::default() };
    let arena = vmm::open(&context, CopyCanary::new(&context), Options { limits, ..Options::default() }).unwrap().arena;
    (0..2).for_each(|_| drop(arena.reserve("keys", 4 * MIB).unwrap()));
    assert!(message(arena.reserve("keys", 4 * MIB)).contains("restart the process"));
    // Allocations go back to the driver, so they do not count.
    let options = Options { limits, choice: Some(KvBackend::Legacy), ..Options::default() };
    let arena = vmm::open(&context, CopyCanary::new(&context), options).unwrap().arena;
    (0..5).for_each(|_| drop(arena.reserve("keys", 4 * MIB).unwrap()));
    assert_eq!((arena.usage().retired, arena.usage().reserved), (0, 0));
}

#[test]
fn row_2_a_range_is_handed_out_only_when_its_memory_keeps_what_is_stored() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let arena = open(&context, None).unwrap().arena;
    let stream = Stream::new(&context).unwrap();
    let mut range = arena.reserve("keys", 64 * MIB).unwrap();
    for segments in 1..6 {
        standin.mode("fresh_mapping_loses_stores", 5000);
        let started = Instant::now();
        range.ensure(segments * 2 * MIB).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(5), "it waited on the host");
        span(&range).fill(&stream, 3).unwrap();
        assert!(bytes(&range, &stream).iter().all(|&byte| byte == 3), "no store is lost afterwards");
    }
}

#[test]
fn row_2_memory_that_never_works_is_an_error_and_auto_goes_on_with_legacy() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let arena = open(&context, None).unwrap().arena;
    let mut range = arena.reserve("keys", 8 * MIB).unwrap();
    range.ensure(2 * MIB).unwrap();
    standin.mode("fresh_mapping_loses_stores", 60_000_000);
    let before = arena.usage();
    let text = message(range.ensure(4 * MIB));
    assert!(text.contains("'keys'") && text.contains("still lost after"), "{text}");
    assert_eq!((arena.usage().committed, range.committed()), (before.committed, 2 * MIB));
    // New ranges come whole; the old one keeps what it has.
    assert_eq!(arena.usage().backend, KvBackend::Legacy);
    let whole = arena.reserve("keys", 8 * MIB).unwrap();
    assert_eq!(whole.committed(), 8 * MIB);
    let stream = Stream::new(&context).unwrap();
    assert!(bytes(&whole, &stream).iter().all(|&byte| byte == 0));
}

#[test]
fn row_2_the_next_step_is_mapped_ahead_and_a_lack_of_memory_is_no_error_yet() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    // 64 MiB more than what other tests lost on purpose.
    let memory = context.memory_info().unwrap();
    standin.mode("device_memory_mib", ((memory.total - memory.free) / MIB + 64) as u64);
    let arena = open(&context, None).unwrap().arena;
    let mut range = arena.reserve("keys", 512 * MIB).unwrap();
    assert!(ensure_ahead(&mut [(&mut range, 2 * MIB)]).unwrap());
    let mapped = standin.calls("hipMemMap");
    range.ensure(2 * MIB).unwrap();
    assert_eq!(standin.calls("hipMemMap"), mapped, "the step itself maps nothing");
    assert!(!ensure_ahead(&mut [(&mut range, 500 * MIB)]).unwrap());
    assert!(ensure_ahead(&mut [(&mut range, 4 * MIB)]).unwrap(), "memory ran out before any address was mapped");
    assert_eq!(range.committed(), 4 * MIB);
}

#[test]
fn row_3_access_is_asked_for_from_the_base_over_the_whole_prefix() {
    let standin = Standin::take("fibers");
    standin.mode("set_access_refuses_subrange", 1);
    let context = standin.context();
    let Opened { arena, fallback } = open(&context, None).unwrap();
    assert_eq!(fallback, None);
    let mut range = arena.reserve("keys", 64 * MIB).unwrap();
    (1..20).for_each(|step| range.ensure(step * 3 * MIB).unwrap());
}

#[test]
fn row_3_a_refused_size_rolls_back_and_falls_back_once_with_the_reason() {
    let standin = Standin::take("fibers");
    standin.mode("set_access_refuses_size", 20 << 20);
    let context = standin.context();
    // The probe's sizes are accepted; the range meets the refusal at 22 MiB.
    let arena = open(&context, None).unwrap().arena;
    let mut range = arena.reserve("keys", 64 * MIB).unwrap();
    range.ensure(20 * MIB).unwrap();
    let free = context.memory_info().unwrap().free;
    let text = message(range.ensure(22 * MIB));
    assert!(text.contains("'keys': hipMemSetAccess") && text.contains("hipErrorInvalidValue"), "{text}");
    assert_eq!((range.committed(), context.memory_info().unwrap().free), (20 * MIB, free));
    assert_eq!(arena.reserve("keys", 30 * MIB).unwrap().committed(), 30 * MIB, "whole from now on");

    // What the probe already meets is a fallback at once, and an error where the user insists.
    standin.mode("set_access_refuses_size", 3 << 20);
    let Opened { arena, fallback } = open(&context, None).unwrap();
    assert_eq!(arena.usage().backend, KvBackend::Legacy);
    let reason = fallback.unwrap();
    assert!(reason.contains("second piece") && reason.contains("hipMemSetAccess"), "{reason}");
    let text = message(open(&context, Some(KvBackend::Vmm)));
    assert!(text.contains("vmm cannot be had") && text.contains("use auto or legacy"), "{text}");
}

#[test]
fn row_3_an_explicit_vmm_does_not_fall_back_later() {
    let standin = Standin::take("fibers");
    standin.mode("set_access_refuses_size", 20 << 20);
    let context = standin.context();
    let arena = open(&context, Some(KvBackend::Vmm)).unwrap().arena;
    let mut range = arena.reserve("keys", 64 * MIB).unwrap();
    assert!(matches!(range.ensure(22 * MIB), Err(Error::Device(_))));
    assert_eq!(arena.usage().backend, KvBackend::Vmm);
}

#[test]
fn row_4_access_of_later_mappings_is_applied_again_from_the_base() {
    let standin = Standin::take("fibers");
    standin.mode("access_only_first_mapping", 1);
    let context = standin.context();
    let arena = open(&context, None).unwrap().arena;
    let stream = Stream::new(&context).unwrap();
    let mut range = arena.reserve("keys", 16 * MIB).unwrap();
    for step in 1..8 {
        range.ensure(step * 2 * MIB).unwrap();
        span(&range).fill(&stream, 9).unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
fn row_4_a_driver_that_gives_access_to_the_first_mapping_only_is_found_by_the_probe() {
    let standin = Standin::take("fibers");
    standin.mode("access_only_first_mapping", 2);
    let context = standin.context();
    let Opened { arena, fallback } = open(&context, None).unwrap();
    assert!(fallback.unwrap().contains("second piece"));
    let stream = Stream::new(&context).unwrap();
    let range = arena.reserve("keys", 4 * MIB).unwrap();
    assert!(bytes(&range, &stream).iter().all(|&byte| byte == 0), "the device survived the probe");
}

#[test]
fn rows_5_and_6_each_piece_is_unmapped_alone_and_then_released_so_nothing_leaks() {
    let standin = Standin::take("fibers");
    standin.mode("unmap_spanning_handles_leaves_range", 1);
    standin.mode("release_while_mapped_leaks", 1);
    let context = standin.context();
    let free = context.memory_info().unwrap().free;
    let arena = open(&context, None).unwrap().arena;
    for _ in 0..10 {
        let mut range = arena.reserve("keys", 64 * MIB).unwrap();
        range.ensure(20 * MIB).unwrap();
        drop(range);
        assert_eq!(context.memory_info().unwrap().free, free);
    }
    let unmapped = standin.calls("hipMemUnmap");
    assert_eq!((unmapped, standin.calls("hipMemRelease")), (standin.calls("hipMemMap"), unmapped));
}

#[test]
fn row_7_nothing_is_mapped_during_a_capture_and_growth_does_not_wait_for_our_streams() {
    let standin = Standin::take("fibers");
    standin.mode("map_deadlocks_on_busy_null_stream", 1000);
    let context = standin.context();
    let arena = open(&context, None).unwrap().arena;
    let stream = Stream::new(&context).unwrap();
    let mut range = arena.reserve("keys", 64 * MIB).unwrap();
    range.ensure(2 * MIB).unwrap();
    let mapped = standin.calls("hipMemMap");
    let graph = stream.capture(|| {
        let text = message(range.ensure(4 * MIB));
        assert!(text.contains("while a graph is being captured"), "{text}");
        span(&range).fill(&stream, 1)
    });
    graph.unwrap().launch(&stream).unwrap();
    assert_eq!(standin.calls("hipMemMap"), mapped);
    assert_eq!(arena.usage().backend, KvBackend::Vmm, "a caller's mistake is no fault of the driver");
    // Work is queued while the range grows and shrinks.
    let started = Instant::now();
    for step in 1..10 {
        span(&range).fill(&stream, step).unwrap();
        range.ensure(usize::from(step) * 3 * MIB).unwrap();
    }
    drop(range);
    assert!(started.elapsed() < Duration::from_secs(1), "no mapping waited for a stream");
}

#[test]
fn row_9_four_kibibytes_of_granularity_are_not_believed_on_rdna4() {
    let standin = Standin::take("fibers");
    standin.mode("granularity_4k", 1);
    let context = standin.context();
    let Opened { arena, fallback } = open(&context, None).unwrap();
    assert_eq!(fallback, None);
    let mut range = arena.reserve("keys", 5000).unwrap();
    assert_eq!(range.reserved(), 2 * MIB);
    range.ensure(5000).unwrap();
}

#[test]
fn row_10_what_the_driver_keeps_after_unloading_is_measured() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    for (kept, expected) in [(0, 0), (1, 10 * MIB)] {
        standin.mode("physical_kept_until_address_free", kept);
        let arena = open(&context, None).unwrap().arena;
        let mut range = arena.reserve("keys", 64 * MIB).unwrap();
        range.ensure(10 * MIB).unwrap();
        let unload = Unload::begin(&context, arena.usage().committed).unwrap();
        drop(range);
        assert_eq!(unload.finish().unwrap(), expected);
    }
}

#[test]
fn row_11_a_driver_that_fills_reservations_at_once_or_has_none_means_legacy() {
    let standin = Standin::take("fibers");
    standin.mode("reserve_commits_everything", 1);
    let reason = open(&standin.context(), None).unwrap().fallback.unwrap();
    assert!(reason.contains("fills a reservation at once"), "{reason}");
    standin.mode("reserve_commits_everything", 0);
    standin.mode("vmm_not_supported", 1);
    let context = standin.context();
    let Opened { arena, fallback } = open(&context, None).unwrap();
    assert!(fallback.unwrap().contains("no virtual memory"));
    assert_eq!(arena.reserve("keys", 4 * MIB).unwrap().committed(), 4 * MIB);
    assert!(message(open(&context, Some(KvBackend::Vmm))).contains("cannot be had"));
}

#[test]
fn every_call_of_a_growth_may_fail_and_leaves_everything_as_it_was() {
    for call in ["hipMemCreate", "hipMemMap", "hipMemSetAccess", "hipMemsetAsync", "hipStreamSynchronize"] {
        for nth in 1..4 {
            let standin = Standin::take("fibers");
            let context = standin.context();
            let arena = open(&context, Some(KvBackend::Vmm)).unwrap().arena;
            let mut range = arena.reserve("keys", 64 * MIB).unwrap();
            range.ensure(2 * MIB).unwrap();
            let (usage, free) = (arena.usage(), context.memory_info().unwrap().free);
            standin.fail(call, nth, 2);
            match range.ensure(8 * MIB) {
                // This growth makes fewer calls of the kind than that.
                Ok(()) => assert!(nth > 1, "{call} was not called"),
                Err(error) => {
                    assert!(error.to_string().contains(call), "{error}");
                    assert_eq!((arena.usage(), range.committed()), (usage, 2 * MIB), "{call} {nth}");
                    assert_eq!(context.memory_info().unwrap().free, free, "{call} {nth}");
                }
            }
        }
    }
}

#[test]
fn a_captured_graph_survives_the_growth_of_what_it_touches() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let arena = open(&context, None).unwrap().arena;
    let stream = Stream::new(&context).unwrap();
    let mut range = arena.reserve("keys", 64 * MIB).unwrap();
    range.ensure(2 * MIB).unwrap();
    let first = span(&range).part(0..4096).unwrap().address();
    let graph = stream.capture(|| span(&range).part(0..4096).unwrap().fill(&stream, 6)).unwrap();
    for step in 1..16 {
        range.ensure(step * 4 * MIB).unwrap();
        span(&range).fill(&stream, 0).unwrap();
        graph.launch(&stream).unwrap();
        let found = bytes(&range, &stream);
        assert_eq!(span(&range).address(), first);
        assert!(found[..4096].iter().all(|&byte| byte == 6) && found[4096..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn the_probe_lists_its_steps_and_gives_its_memory_back() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let free = context.memory_info().unwrap().free;
    let canary: Arc<dyn Prove> = CopyCanary::new(&context);
    let probe = vmm::probe::run(&context, &*canary);
    assert_eq!(probe.verdict(), Ok(2 * MIB));
    assert_eq!(probe.steps.len(), 7, "{probe:?}");
    standin.fail("hipMemUnmap", 1, 1);
    let probe = vmm::probe::run(&context, &*canary);
    assert!(probe.verdict().unwrap_err().contains("hipMemUnmap"));
    assert_eq!(
        context.memory_info().unwrap().free,
        free - 8 * MIB,
        "the piece that stayed is lost, the others are not"
    );
}
