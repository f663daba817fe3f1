//! Streams, events and copies: nothing is done before somebody waits, and everything is done in a legal order.

mod support;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use support::*;

#[test]
fn a_kernel_has_not_run_until_the_host_waits() {
    let _alone = fresh();
    let (kernels, memory, stream) = (kernels(), pinned(16), stream(STREAM_NON_BLOCKING));
    hip!(hipMemsetD32Async(memory, 7, 4, stream));
    hip!(hipStreamSynchronize(stream));
    ok(launch(kernels.add_one, memory, 4, stream));
    assert_eq!(peek(memory), 7);
    hip!(hipStreamSynchronize(stream));
    assert_eq!(peek(memory), 8);
}

#[test]
fn a_copy_from_pageable_memory_reads_its_source_at_the_call_and_one_from_pinned_memory_when_it_runs() {
    let _alone = fresh();
    let (first, second, source, stream) = (malloc(4), malloc(4), pinned(4), stream(STREAM_NON_BLOCKING));
    let mut word = 1u32;
    // SAFETY: the pinned word is live and nothing runs.
    unsafe { *(source as *mut u32) = 1 };
    hip!(hipMemcpyHtoDAsync(first, &raw const word as u64, 4, stream));
    hip!(hipMemcpyHtoDAsync(second, source, 4, stream));
    // SAFETY: as above.
    unsafe {
        (&raw mut word).write_volatile(2);
        *(source as *mut u32) = 2;
    }
    hip!(hipStreamSynchronize(stream));
    assert_eq!((read(first, 1), read(second, 1)), (vec![1], vec![2]));
}

#[test]
fn a_copy_to_pageable_memory_is_done_when_it_returns_and_one_to_pinned_memory_is_not() {
    let _alone = fresh();
    let (source, target, stream) = (malloc(4), pinned(4), stream(STREAM_NON_BLOCKING));
    hip!(hipMemsetD32Async(source, 5, 1, stream));
    // SAFETY: the pinned word is live and nothing runs.
    unsafe { *(target as *mut u32) = 0 };
    hip!(hipMemcpyDtoHAsync(target, source, 4, stream));
    assert_eq!(peek(target), 0);
    let mut word = 0u32;
    hip!(hipMemcpyDtoHAsync(&raw mut word as u64, source, 4, stream));
    assert_eq!((word, peek(target)), (5, 5));
}

#[test]
fn a_poll_runs_one_operation_and_answers_what_it_found_before() {
    let _alone = fresh();
    let (kernels, list, stream) = (kernels(), notes(), stream(STREAM_NON_BLOCKING));
    ok(launch(kernels.note, list, 1, stream));
    ok(launch(kernels.note, list, 2, stream));
    fails!(NOT_READY, hipStreamQuery(stream));
    assert_eq!(noted(list), [1]);
    fails!(NOT_READY, hipStreamQuery(stream));
    hip!(hipStreamQuery(stream));
    assert_eq!(noted(list), [1, 2]);
    assert_eq!(hipGetLastError(), 0, "an unfinished stream is no error to remember");
}

#[test]
fn a_stream_waits_for_the_event_of_another_and_waiting_runs_no_more_than_that() {
    let _alone = fresh();
    let (kernels, list, event) = (kernels(), notes(), event());
    let (first, second) = (stream(STREAM_NON_BLOCKING), stream(STREAM_NON_BLOCKING));
    ok(launch(kernels.note, list, 1, first));
    hip!(hipEventRecord(event, first));
    ok(launch(kernels.note, list, 9, first));
    hip!(hipStreamWaitEvent(second, event, 0));
    ok(launch(kernels.note, list, 2, second));
    hip!(hipStreamSynchronize(second));
    assert_eq!(noted(list), [1, 2]);
    hip!(hipDeviceSynchronize());
    assert_eq!(noted(list), [1, 2, 9]);
}

#[test]
fn the_null_stream_and_blocking_streams_wait_for_each_other_and_others_do_not() {
    let _alone = fresh();
    let (kernels, list) = (kernels(), notes());
    let (blocking, other) = (stream(0), stream(STREAM_NON_BLOCKING));
    ok(launch(kernels.note, list, 1, other));
    ok(launch(kernels.note, list, 2, blocking));
    ok(launch(kernels.note, list, 3, null_mut()));
    ok(launch(kernels.note, list, 4, blocking));
    hip!(hipStreamSynchronize(blocking));
    assert_eq!(noted(list), [2, 3, 4]);
    hip!(hipStreamSynchronize(other));
    assert_eq!(noted(list), [2, 3, 4, 1]);
}

#[test]
fn a_blocking_copy_does_not_wait_for_a_non_blocking_stream() {
    let _alone = fresh();
    let (memory, stream) = (malloc(4), stream(STREAM_NON_BLOCKING));
    hip!(hipMemsetD32(memory, 1, 1));
    hip!(hipDeviceSynchronize());
    hip!(hipMemsetD32Async(memory, 2, 1, stream));
    assert_eq!(read(memory, 1), [1]);
    hip!(hipStreamSynchronize(stream));
    assert_eq!(read(memory, 1), [2]);
}

#[test]
fn a_seed_gives_another_legal_order() {
    let _alone = fresh();
    let kernels = kernels();
    let streams: Vec<_> = (0..3).map(|_| stream(STREAM_NON_BLOCKING)).collect();
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..20 {
        standin_schedule(seed);
        let list = notes();
        for number in 0..9 {
            ok(launch(kernels.note, list, number, streams[number as usize % 3]));
        }
        hip!(hipDeviceSynchronize());
        let order = noted(list);
        for stream in 0..3 {
            let own: Vec<_> = order.iter().copied().filter(|number| number % 3 == stream).collect();
            assert_eq!(own, [stream, stream + 3, stream + 6]);
        }
        assert!(seed != 0 || order.is_sorted(), "seed 0 is the natural order");
        orders.insert(order);
    }
    assert!(orders.len() > 10);
}

#[test]
fn elapsed_time_needs_two_events_that_were_reached() {
    let _alone = fresh();
    let (start, stop, stream) = (event(), event(), stream(STREAM_NON_BLOCKING));
    let mut time = -1f32;
    fails!(INVALID_HANDLE, hipEventElapsedTime(&mut time, start, stop));
    hip!(hipEventRecord(start, stream));
    hip!(hipEventRecord(stop, stream));
    fails!(NOT_READY, hipEventElapsedTime(&mut time, start, stop));
    fails!(NOT_READY, hipEventQuery(stop));
    hip!(hipEventSynchronize(stop));
    hip!(hipEventQuery(start));
    hip!(hipEventElapsedTime(&mut time, start, stop));
    assert!((0.0..1e4).contains(&time));
    hip!(hipEventDestroy(stop));
    fails!(INVALID_HANDLE, hipEventQuery(stop));
}

#[test]
fn freeing_waits_for_work_that_uses_the_memory() {
    let _alone = fresh();
    let (kernels, memory, list, stream) = (kernels(), malloc(64), notes(), stream(STREAM_NON_BLOCKING));
    ok(launch(kernels.add_one, memory, 16, stream));
    ok(launch(kernels.note, list, 1, stream));
    hip!(hipFree(memory));
    assert_eq!(noted(list), [1]);
    fails!(INVALID_VALUE, hipFree(memory));
}

#[test]
fn a_host_function_is_called_in_its_turn_and_may_wait_for_another_thread_that_calls_hip() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn callback(list: *mut std::ffi::c_void) {
        SEEN.store(peek(list as u64), Ordering::SeqCst);
        std::thread::spawn(memory_info).join().unwrap();
    }
    let _alone = fresh();
    let (kernels, list, stream) = (kernels(), notes(), stream(STREAM_NON_BLOCKING));
    ok(launch(kernels.note, list, 1, stream));
    hip!(hipLaunchHostFunc(stream, Some(callback), list as *mut _));
    ok(launch(kernels.note, list, 2, stream));
    assert_eq!(SEEN.load(Ordering::SeqCst), 0);
    hip!(hipStreamSynchronize(stream));
    assert_eq!((SEEN.load(Ordering::SeqCst), noted(list)), (1, vec![1, 2]));
}

#[test]
fn a_kernel_fault_surfaces_at_the_wait_and_loses_the_context_until_reset() {
    let _alone = fresh();
    let (kernels, memory, stream) = (kernels(), malloc(8), stream(STREAM_NON_BLOCKING));
    ok(launch(kernels.fault, 0, 0, stream));
    hip!(hipMemsetD32Async(memory, 1, 2, stream));
    fails!(LAUNCH_FAILURE, hipStreamSynchronize(stream));
    assert_eq!(last_fault(), "fault always fails");
    fails!(LAUNCH_FAILURE, hipMemsetD32(memory, 1, 2));
    assert_eq!(hipPeekAtLastError(), code::LAUNCH_FAILURE);
    standin_reset();
    assert_eq!(hipPeekAtLastError(), 0);
    hip!(hipDeviceSynchronize());
    hip!(hipFree(memory));
}

#[test]
fn a_kernel_that_leaves_its_allocation_faults_with_the_address() {
    let _alone = fresh();
    let (kernels, memory) = (kernels(), malloc(40));
    ok(launch(kernels.add_one, memory, 11, null_mut()));
    fails!(LAUNCH_FAILURE, hipDeviceSynchronize());
    assert_eq!(last_fault(), format!("add_one: store to {memory:#x}, no such memory"));
}
