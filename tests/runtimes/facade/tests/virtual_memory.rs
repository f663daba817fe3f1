//! Virtual memory: remapping is real, misuse is refused, and each known fault of ROCm can be switched on.

mod support;

use std::ptr::null_mut;

use support::*;

const MIB2: usize = 2 << 20;

fn properties() -> PhysicalProperties {
    PhysicalProperties {
        kind: ALLOCATION_PINNED,
        handle_type: 0,
        location: MemoryLocation { kind: LOCATION_DEVICE, id: 0 },
        win32_meta_data: null_mut(),
        compression: 0,
        rdma: 0,
        usage: 0,
    }
}

fn access_code(address: u64, bytes: usize, flags: i32) -> i32 {
    let access = MemoryAccess { location: MemoryLocation { kind: LOCATION_DEVICE, id: 0 }, flags };
    // SAFETY: one entry.
    unsafe { hipMemSetAccess(address, bytes, &access, 1) }
}

fn set_access(address: u64, bytes: usize) {
    ok(access_code(address, bytes, ACCESS_READ_WRITE));
}

fn reserve(bytes: usize) -> u64 {
    // SAFETY: `get` hands over a valid pointer.
    get(0, |out| unsafe { hipMemAddressReserve(out, bytes, 0, 0, 0) })
}

fn create(bytes: usize) -> Physical {
    // SAFETY: as above.
    get(null_mut(), |out| unsafe { hipMemCreate(out, bytes, &properties(), 0) })
}

fn map(address: u64, bytes: usize, physical: Physical) {
    hip!(hipMemMap(address, bytes, 0, physical, 0));
}

fn fill(address: u64, value: i32) {
    hip!(hipMemsetD32(address, value, 4));
    hip!(hipDeviceSynchronize());
}

/// A reservation of four segments, with two handles mapped at its start and accessible.
fn two_segments() -> (u64, [Physical; 2]) {
    let (base, handles) = (reserve(4 * MIB2), [create(MIB2), create(MIB2)]);
    map(base, MIB2, handles[0]);
    map(base + MIB2 as u64, MIB2, handles[1]);
    set_access(base, 2 * MIB2);
    (base, handles)
}

#[test]
fn remapping_moves_real_contents_between_addresses() {
    let _alone = fresh();
    let (base, [first, second]) = two_segments();
    let next = base + MIB2 as u64;
    fill(base, 1);
    fill(next, 2);
    hip!(hipMemUnmap(base, MIB2));
    hip!(hipMemUnmap(next, MIB2));
    map(base, MIB2, second);
    map(next, MIB2, first);
    set_access(base, 2 * MIB2);
    assert_eq!((read(base, 1), read(next, 1)), (vec![2], vec![1]));
    let mut retained = null_mut();
    hip!(hipMemRetainAllocationHandle(&mut retained, next + 5));
    assert_eq!(retained, first);
}

#[test]
fn a_kernel_reaches_mapped_memory_across_segments_and_faults_where_there_is_none_or_no_access() {
    let _alone = fresh();
    let (kernels, (base, _)) = (kernels(), two_segments());
    let edge = base + MIB2 as u64 - 8;
    hip!(hipMemsetD32(edge, 4, 4));
    ok(launch(kernels.add_one, edge, 4, null_mut()));
    assert_eq!(read(edge, 4), [5; 4]);
    ok(access_code(base, 2 * MIB2, ACCESS_NONE));
    fails!(INVALID_VALUE, hipMemsetD32(base, 0, 1));
    ok(launch(kernels.add_one, base, 4, null_mut()));
    fails!(LAUNCH_FAILURE, hipDeviceSynchronize());
}

#[test]
fn unmapping_under_queued_work_is_a_fault_when_it_runs() {
    let _alone = fresh();
    let (kernels, (base, _), stream) = (kernels(), two_segments(), stream(STREAM_NON_BLOCKING));
    ok(launch(kernels.add_one, base, 4, stream));
    hip!(hipMemUnmap(base, MIB2));
    fails!(LAUNCH_FAILURE, hipStreamSynchronize(stream));
}

#[test]
fn a_captured_graph_survives_growth_at_the_same_addresses() {
    let _alone = fresh();
    let (kernels, (base, _), stream) = (kernels(), two_segments(), stream(STREAM_NON_BLOCKING));
    let far = base + 2 * MIB2 as u64;
    hip!(hipStreamBeginCapture(stream, CAPTURE_GLOBAL));
    ok(launch(kernels.add_one, far, 4, stream));
    // SAFETY: `get` hands over valid pointers.
    let graph = get(null_mut(), |out| unsafe { hipStreamEndCapture(stream, out) });
    let exec = get(null_mut(), |out| unsafe { hipGraphInstantiateWithFlags(out, graph, 0) });
    map(far, MIB2, create(MIB2));
    set_access(base, 3 * MIB2);
    fill(far, 1);
    hip!(hipGraphLaunch(exec, stream));
    hip!(hipStreamSynchronize(stream));
    assert_eq!(read(far, 1), [2]);
}

#[test]
fn every_misuse_is_refused() {
    let _alone = fresh();
    let (base, [first, _]) = two_segments();
    let (spare, mut out) = (create(MIB2), 0);
    let segment = MIB2 as u64;
    fails!(INVALID_VALUE, hipMemAddressReserve(&mut out, MIB2 + 4096, 0, 0, 0));
    fails!(INVALID_VALUE, hipMemAddressReserve(&mut out, MIB2, 3, 0, 0));
    fails!(INVALID_VALUE, hipMemCreate(&mut null_mut(), 4096, &properties(), 0));
    fails!(INVALID_VALUE, hipMemCreate(&mut null_mut(), 0, &properties(), 0));
    fails!(INVALID_VALUE, hipMemMap(base, MIB2, 0, spare, 0));
    fails!(INVALID_VALUE, hipMemMap(base + 2 * segment, 2 * MIB2, 0, spare, 0));
    fails!(INVALID_VALUE, hipMemMap(base + 2 * segment, MIB2, MIB2, spare, 0));
    fails!(INVALID_VALUE, hipMemMap(base + 2 * segment + 4096, MIB2, 0, spare, 0));
    fails!(INVALID_VALUE, hipMemMap(base + 4 * segment, MIB2, 0, spare, 0));
    fails!(INVALID_VALUE, hipMemMap(base + 2 * segment, MIB2, 0, 0x77 as Physical, 0));
    fails!(INVALID_VALUE, hipMemUnmap(base + 2 * segment, MIB2));
    fails!(INVALID_VALUE, hipMemUnmap(base, MIB2 / 2));
    fails!(INVALID_VALUE, hipMemAddressFree(base, 4 * MIB2));
    fails!(INVALID_VALUE, hipMemAddressFree(base, 2 * MIB2));
    assert_eq!(access_code(base, 3 * MIB2, ACCESS_READ_WRITE), code::INVALID_VALUE);
    assert_eq!(access_code(base, MIB2 / 2, ACCESS_READ_WRITE), code::INVALID_VALUE);
    assert_eq!(access_code(base, MIB2, 1), code::NOT_SUPPORTED);
    hip!(hipMemRelease(first));
    fails!(INVALID_VALUE, hipMemRelease(first));
    hip!(hipMemUnmap(base, 2 * MIB2));
    hip!(hipMemAddressFree(base, 4 * MIB2));
    fails!(INVALID_VALUE, hipMemAddressFree(base, 4 * MIB2));
    fails!(INVALID_VALUE, hipMemUnmap(base, MIB2));
}

#[test]
fn a_released_handle_lives_until_its_mapping_goes() {
    let _alone = fresh();
    let before = memory_info().0;
    let (base, [first, second]) = two_segments();
    fill(base, 3);
    hip!(hipMemRelease(first));
    hip!(hipMemRelease(second));
    assert_eq!((read(base, 1), memory_info().0), (vec![3], before - 2 * MIB2));
    fails!(INVALID_VALUE, hipMemMap(base + 2 * MIB2 as u64, MIB2, 0, first, 0));
    hip!(hipMemUnmap(base, 2 * MIB2));
    assert_eq!(memory_info().0, before);
}

#[test]
fn row_1_remap_reads_first_backing() {
    let _alone = fresh();
    mode(c"remap_reads_first_backing", 1);
    let (base, [first, second]) = two_segments();
    fill(base, 1);
    fill(base + MIB2 as u64, 2);
    hip!(hipMemUnmap(base, 2 * MIB2));
    map(base, MIB2, second);
    set_access(base, MIB2);
    assert_eq!(read(base, 1), [1], "the first backing, not the second");
    hip!(hipMemUnmap(base, MIB2));
    standin_reset();
    map(base, MIB2, second);
    set_access(base, MIB2);
    assert_eq!(read(base, 1), [2]);
    hip!(hipMemUnmap(base, MIB2));
    hip!(hipMemRelease(first));
    hip!(hipMemAddressFree(base, 4 * MIB2));
}

#[test]
fn row_2_fresh_mapping_loses_stores() {
    let _alone = fresh();
    let (kernels, base, physical) = (kernels(), reserve(MIB2), create(MIB2));
    mode(c"fresh_mapping_loses_stores", 150_000);
    map(base, MIB2, physical);
    set_access(base, MIB2);
    assert_eq!(read(base, 1), [0]);
    hip!(hipMemsetD32(base, 5, 4));
    assert_eq!(read(base, 1), [0], "the store is lost");
    ok(launch(kernels.add_one, base, 4, null_mut()));
    assert_eq!(read(base, 1), [0]);
    std::thread::sleep(std::time::Duration::from_millis(160));
    hip!(hipMemsetD32(base, 5, 4));
    ok(launch(kernels.add_one, base, 4, null_mut()));
    assert_eq!(read(base, 1), [6]);
}

#[test]
fn row_3_set_access_refuses_subrange() {
    let _alone = fresh();
    mode(c"set_access_refuses_subrange", 1);
    let (base, _) = two_segments();
    let third = base + 2 * MIB2 as u64;
    map(third, MIB2, create(MIB2));
    assert_eq!(access_code(third, MIB2, ACCESS_READ_WRITE), code::INVALID_VALUE);
    assert_eq!(access_code(base, 2 * MIB2, ACCESS_READ_WRITE), code::INVALID_VALUE);
    set_access(base, 3 * MIB2);
}

#[test]
fn row_3_set_access_refuses_size() {
    let _alone = fresh();
    mode(c"set_access_refuses_size", 2 * MIB2 as u64);
    let (base, _) = two_segments();
    map(base + 2 * MIB2 as u64, MIB2, create(MIB2));
    assert_eq!(access_code(base, 3 * MIB2, ACCESS_READ_WRITE), code::INVALID_VALUE);
}

#[test]
fn row_4_access_only_first_mapping() {
    let _alone = fresh();
    let (base, _) = two_segments();
    let third = base + 2 * MIB2 as u64;
    map(third, MIB2, create(MIB2));
    let location = MemoryLocation { kind: LOCATION_DEVICE, id: 0 };
    // SAFETY: `get` hands over a valid pointer.
    let access = || get(9, |out| unsafe { hipMemGetAccess(out, &location, third) });
    mode(c"access_only_first_mapping", 1);
    set_access(third, MIB2);
    assert_eq!(access(), ACCESS_NONE as u64);
    mode(c"access_only_first_mapping", 2);
    set_access(base, 3 * MIB2);
    assert_eq!(access(), ACCESS_NONE as u64);
    mode(c"access_only_first_mapping", 1);
    set_access(base, 3 * MIB2);
    assert_eq!(access(), ACCESS_READ_WRITE as u64);
}

#[test]
fn row_5_unmap_spanning_handles_leaves_range() {
    let _alone = fresh();
    let (base, _) = two_segments();
    mode(c"unmap_spanning_handles_leaves_range", 1);
    hip!(hipMemUnmap(base, 2 * MIB2));
    fails!(INVALID_VALUE, hipMemAddressFree(base, 4 * MIB2));
    hip!(hipMemUnmap(base + MIB2 as u64, MIB2));
    hip!(hipMemAddressFree(base, 4 * MIB2));
}

#[test]
fn row_6_release_while_mapped_leaks() {
    let _alone = fresh();
    let before = memory_info().0;
    mode(c"release_while_mapped_leaks", 1);
    let (base, [first, second]) = two_segments();
    hip!(hipMemRelease(first));
    hip!(hipMemUnmap(base, 2 * MIB2));
    hip!(hipMemRelease(second));
    assert_eq!(memory_info().0, before - MIB2, "only the handle released after its unmap came back");
}

#[test]
fn row_7_map_deadlocks_on_busy_null_stream() {
    let _alone = fresh();
    let (kernels, (base, _), list) = (kernels(), two_segments(), notes());
    let (third, physical) = (base + 2 * MIB2 as u64, create(MIB2));
    mode(c"map_deadlocks_on_busy_null_stream", 5);
    ok(launch(kernels.note, list, 1, null_mut()));
    fails!(LAUNCH_TIME_OUT, hipMemMap(third, MIB2, 0, physical, 0));
    fails!(LAUNCH_TIME_OUT, hipMemUnmap(base, MIB2));
    hip!(hipDeviceSynchronize());
    map(third, MIB2, physical);
    ok(launch(kernels.note, list, 1, stream(STREAM_NON_BLOCKING)));
    hip!(hipMemUnmap(third, MIB2));
}

#[test]
fn row_8_handles_hold_file_descriptors_and_a_low_limit_looks_like_out_of_memory() {
    let _alone = fresh();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid pointer.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    let low = libc::rlimit { rlim_cur: 64, ..limit };
    // SAFETY: as above; the old limit is put back below.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &low) }, 0);
    let (mut handles, mut physical) = (Vec::new(), null_mut());
    // SAFETY: valid pointers.
    while unsafe { hipMemCreate(&mut physical, MIB2, &properties(), 0) } == 0 {
        handles.push(physical);
    }
    fails!(OUT_OF_MEMORY, hipMemCreate(&mut physical, MIB2, &properties(), 0));
    let (fault, count) = (last_fault(), handles.len());
    hip!(hipMemRelease(handles.pop().unwrap()));
    let again = create(MIB2);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    handles.push(again);
    handles.into_iter().for_each(|handle| hip!(hipMemRelease(handle)));
    assert!((20..64).contains(&count), "{count}");
    assert!(fault.contains("Too many open files"), "{fault}");
}

#[test]
fn row_9_granularity_4k() {
    let _alone = fresh();
    // SAFETY: valid pointers.
    let granularity = || get(0, |out| unsafe { hipMemGetAllocationGranularity(out, &properties(), 0) });
    assert_eq!(granularity(), MIB2);
    mode(c"granularity_4k", 1);
    assert_eq!(granularity(), 4096);
    fails!(INVALID_VALUE, hipMemCreate(&mut null_mut(), 4096, &properties(), 0));
}

#[test]
fn row_10_physical_kept_until_address_free() {
    let _alone = fresh();
    let before = memory_info().0;
    mode(c"physical_kept_until_address_free", 1);
    let (base, [first, second]) = two_segments();
    hip!(hipMemUnmap(base, MIB2));
    hip!(hipMemRelease(first));
    hip!(hipMemRelease(second));
    hip!(hipMemUnmap(base + MIB2 as u64, MIB2));
    assert_eq!(memory_info().0, before - 2 * MIB2);
    hip!(hipMemAddressFree(base, 4 * MIB2));
    assert_eq!(memory_info().0, before);
}

#[test]
fn row_11_reserve_commits_everything() {
    let _alone = fresh();
    let (free, total) = memory_info();
    hip!(hipMemAddressFree(reserve(2 * total), 2 * total));
    mode(c"reserve_commits_everything", 1);
    let (base, mut out) = (reserve(64 * MIB2), 0);
    assert_eq!(memory_info().0, free - 64 * MIB2);
    fails!(OUT_OF_MEMORY, hipMemAddressReserve(&mut out, total, 0, 0, 0));
    hip!(hipMemAddressFree(base, 64 * MIB2));
    assert_eq!(memory_info().0, free);
}

#[test]
fn row_11_vmm_not_supported() {
    let _alone = fresh();
    let mut supported = 9;
    hip!(hipDeviceGetAttribute(&mut supported, 89, 0));
    assert_eq!(supported, 1);
    mode(c"vmm_not_supported", 1);
    hip!(hipDeviceGetAttribute(&mut supported, 89, 0));
    assert_eq!(supported, 0);
    fails!(NOT_SUPPORTED, hipMemAddressReserve(&mut 0, MIB2, 0, 0, 0));
}
