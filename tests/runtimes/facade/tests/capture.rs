//! Capture and graphs: nothing runs while capturing, what is forbidden spoils the capture, a replay does it all.

mod support;

use std::ptr::null_mut;

use support::*;

fn begin(stream: Stream) {
    hip!(hipStreamBeginCapture(stream, CAPTURE_GLOBAL));
}

fn end(stream: Stream) -> Graph {
    // SAFETY: `get` hands over a valid pointer.
    get(null_mut(), |out| unsafe { hipStreamEndCapture(stream, out) })
}

fn instantiate(graph: Graph) -> GraphExec {
    // SAFETY: as above.
    get(null_mut(), |out| unsafe { hipGraphInstantiate(out, graph, null_mut(), null_mut(), 0) })
}

fn nodes(graph: Graph) -> Vec<GraphNode> {
    // SAFETY: as above.
    let mut count = get(0, |out| unsafe { hipGraphGetNodes(graph, null_mut(), out) });
    let mut nodes = vec![null_mut(); count];
    hip!(hipGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    nodes
}

#[test]
fn nothing_runs_while_capturing_and_every_replay_runs_it_all() {
    let _alone = fresh();
    let (kernels, memory, source, stream) = (kernels(), malloc(16), pinned(16), stream(STREAM_NON_BLOCKING));
    begin(stream);
    hip!(hipMemsetD32Async(memory, 5, 4, stream));
    ok(launch(kernels.add_one, memory, 2, stream));
    hip!(hipMemcpyDtoHAsync(source, memory, 16, stream));
    let graph = end(stream);
    hip!(hipStreamSynchronize(stream));
    assert_ne!(peek(source), 6);
    let exec = instantiate(graph);
    for _ in 0..3 {
        hip!(hipGraphLaunch(exec, stream));
        hip!(hipStreamSynchronize(stream));
        assert_eq!((peek(source), peek(source + 8)), (6, 5));
    }
    let kinds: Vec<i32> = nodes(graph)
        .into_iter()
        // SAFETY: `get` hands over a valid pointer.
        .map(|node| get(9, |out| unsafe { hipGraphNodeGetType(node, out) }))
        .collect();
    assert_eq!(kinds, [NODE_FILL, NODE_KERNEL, NODE_COPY]);
    hip!(hipGraphDestroy(graph));
    hip!(hipGraphLaunch(exec, stream));
    hip!(hipGraphExecDestroy(exec));
    hip!(hipStreamSynchronize(stream));
    fails!(INVALID_VALUE, hipGraphLaunch(exec, stream));
}

#[test]
fn events_fork_and_join_a_capture_and_every_seed_keeps_its_order() {
    let _alone = fresh();
    let (kernels, list) = (kernels(), notes());
    let (main, side) = (stream(STREAM_NON_BLOCKING), stream(STREAM_NON_BLOCKING));
    let (fork, join) = (event(), event());
    begin(main);
    ok(launch(kernels.note, list, 1, main));
    hip!(hipEventRecord(fork, main));
    hip!(hipStreamWaitEvent(side, fork, 0));
    ok(launch(kernels.note, list, 2, side));
    ok(launch(kernels.note, list, 3, main));
    hip!(hipEventRecord(join, side));
    fails!(CAPTURED_EVENT, hipEventQuery(join));
    let mut graph = null_mut();
    fails!(CAPTURE_INVALIDATED, hipStreamEndCapture(main, &mut graph));

    begin(main);
    ok(launch(kernels.note, list, 1, main));
    hip!(hipEventRecord(fork, main));
    hip!(hipStreamWaitEvent(side, fork, 0));
    ok(launch(kernels.note, list, 2, side));
    ok(launch(kernels.note, list, 3, main));
    hip!(hipEventRecord(join, side));
    hip!(hipStreamWaitEvent(main, join, 0));
    ok(launch(kernels.note, list, 4, main));
    let exec = instantiate(end(main));
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..16 {
        standin_schedule(seed);
        hip!(hipMemsetD32(list, 0, 1));
        hip!(hipDeviceSynchronize());
        hip!(hipGraphLaunch(exec, main));
        hip!(hipStreamSynchronize(main));
        orders.insert(noted(list));
    }
    assert_eq!(orders.into_iter().collect::<Vec<_>>(), [vec![1, 2, 3, 4], vec![1, 3, 2, 4]]);
}

#[test]
fn a_fork_that_is_not_joined_and_an_end_on_the_wrong_stream_fail() {
    let _alone = fresh();
    let (kernels, list, fork) = (kernels(), notes(), event());
    let (main, side) = (stream(STREAM_NON_BLOCKING), stream(STREAM_NON_BLOCKING));
    let mut graph = null_mut();
    begin(main);
    hip!(hipEventRecord(fork, main));
    hip!(hipStreamWaitEvent(side, fork, 0));
    ok(launch(kernels.note, list, 2, side));
    fails!(CAPTURE_UNJOINED, hipStreamEndCapture(main, &mut graph));
    begin(main);
    hip!(hipEventRecord(fork, main));
    hip!(hipStreamWaitEvent(side, fork, 0));
    fails!(CAPTURE_UNMATCHED, hipStreamEndCapture(side, &mut graph));
    fails!(CAPTURE_INVALIDATED, hipStreamEndCapture(main, &mut graph));
    assert!(graph.is_null());
    ok(launch(kernels.note, list, 3, side));
    hip!(hipDeviceSynchronize());
    assert_eq!(noted(list), [3], "both streams are free again");
}

#[test]
fn calls_that_wait_or_allocate_are_refused_and_spoil_the_capture() {
    let _alone = fresh();
    let (kernels, memory, stream) = (kernels(), malloc(64), stream(STREAM_NON_BLOCKING));
    let mut word = 0u32;
    let host = &raw mut word as u64;
    let forbidden: [&dyn Fn() -> i32; 9] = [
        // SAFETY: for all of them, pointers to locals, or none.
        &|| unsafe { hipMalloc(&mut 0, 16) },
        &|| unsafe { hipFree(memory) },
        &|| unsafe { hipDeviceSynchronize() },
        &|| unsafe { hipStreamSynchronize(stream) },
        &|| unsafe { hipStreamQuery(stream) },
        &|| unsafe { hipMemcpyDtoH(host, memory, 4) },
        &|| unsafe { hipMemcpyHtoDAsync(memory, host, 4, stream) },
        &|| unsafe { hipMemAddressReserve(&mut 0, 2 << 20, 0, 0, 0) },
        &|| unsafe { hipModuleUnload(kernels.module) },
    ];
    for (index, call) in forbidden.iter().enumerate() {
        begin(stream);
        assert_eq!(call(), code::CAPTURE_UNSUPPORTED, "call {index}");
        assert_eq!(launch(kernels.add_one, memory, 1, stream), code::CAPTURE_INVALIDATED);
        let (mut graph, mut status) = (null_mut(), 0);
        hip!(hipStreamIsCapturing(stream, &mut status));
        assert_eq!(status, CAPTURE_STATUS_INVALIDATED);
        fails!(CAPTURE_INVALIDATED, hipStreamEndCapture(stream, &mut graph));
        hip!(hipStreamIsCapturing(stream, &mut status));
        assert_eq!(status, CAPTURE_STATUS_NONE);
    }
}

#[test]
fn a_relaxed_capture_permits_them() {
    let _alone = fresh();
    let stream = stream(STREAM_NON_BLOCKING);
    hip!(hipStreamBeginCapture(stream, CAPTURE_RELAXED));
    hip!(hipFree(malloc(64)));
    end(stream);
}

#[test]
fn the_null_stream_cannot_be_used_beside_the_capture_of_a_blocking_stream() {
    let _alone = fresh();
    let (kernels, list, blocking) = (kernels(), notes(), stream(0));
    let mut graph = null_mut();
    fails!(CAPTURE_UNSUPPORTED, hipStreamBeginCapture(null_mut(), CAPTURE_GLOBAL));
    begin(blocking);
    assert_eq!(launch(kernels.note, list, 1, null_mut()), code::CAPTURE_IMPLICIT);
    fails!(CAPTURE_INVALIDATED, hipStreamEndCapture(blocking, &mut graph));
    let other = stream(STREAM_NON_BLOCKING);
    begin(other);
    ok(launch(kernels.note, list, 1, null_mut()));
    end(other);
}

#[test]
fn a_capture_cannot_wait_for_work_outside_it_or_in_another_capture() {
    let _alone = fresh();
    let (first, second) = (stream(STREAM_NON_BLOCKING), stream(STREAM_NON_BLOCKING));
    let (outside, inside) = (event(), event());
    let mut graph = null_mut();
    hip!(hipEventRecord(outside, second));
    begin(first);
    fails!(CAPTURE_ISOLATION, hipStreamWaitEvent(first, outside, 0));
    fails!(CAPTURE_INVALIDATED, hipStreamEndCapture(first, &mut graph));
    begin(first);
    begin(second);
    hip!(hipEventRecord(inside, first));
    fails!(CAPTURE_MERGE, hipStreamWaitEvent(second, inside, 0));
    fails!(CAPTURE_INVALIDATED, hipStreamEndCapture(second, &mut graph));
    end(first);
}

#[test]
fn parameters_of_a_kernel_node_are_updated_in_the_executable_only_and_for_later_launches() {
    let _alone = fresh();
    let (kernels, first, second, stream) = (kernels(), malloc(4), malloc(4), stream(STREAM_NON_BLOCKING));
    hip!(hipMemsetD32(first, 0, 1));
    hip!(hipMemsetD32(second, 0, 1));
    hip!(hipDeviceSynchronize());
    begin(stream);
    ok(launch(kernels.add_one, first, 1, stream));
    let graph = end(stream);
    let exec = instantiate(graph);
    let node = nodes(graph)[0];
    // SAFETY: zeros are a valid value; the node's pointers live as long as the graph.
    let mut parameters =
        get(unsafe { std::mem::zeroed::<KernelNodeParams>() }, |out| unsafe { hipGraphKernelNodeGetParams(node, out) });
    // SAFETY: the list has one pointer, to the sixteen bytes of the node.
    let captured = unsafe { *(*parameters.arguments).cast::<[u64; 2]>() };
    assert_eq!((captured, parameters.function, parameters.block.x), ([first, 1], kernels.add_one, 32));
    hip!(hipGraphLaunch(exec, stream));
    let mut arguments = [second, 1];
    let mut list = [(&raw mut arguments).cast()];
    parameters.arguments = list.as_mut_ptr();
    hip!(hipGraphExecKernelNodeSetParams(exec, node, &parameters));
    hip!(hipGraphLaunch(exec, stream));
    hip!(hipGraphLaunch(exec, stream));
    hip!(hipStreamSynchronize(stream));
    assert_eq!((read(first, 1), read(second, 1)), (vec![1], vec![2]));
    let again = instantiate(graph);
    hip!(hipGraphLaunch(again, stream));
    hip!(hipStreamSynchronize(stream));
    assert_eq!(read(first, 1), [2], "the graph itself is as it was");
    hip!(hipGraphDestroy(graph));
    fails!(INVALID_VALUE, hipGraphExecKernelNodeSetParams(exec, node, &parameters));
}

#[test]
fn an_executable_takes_over_a_graph_of_the_same_shape_and_names_the_node_that_differs() {
    let _alone = fresh();
    let (kernels, first, second, stream) = (kernels(), malloc(4), malloc(4), stream(STREAM_NON_BLOCKING));
    hip!(hipMemsetD32(second, 0, 1));
    hip!(hipDeviceSynchronize());
    let capture = |function, address| {
        begin(stream);
        ok(launch(function, address, 1, stream));
        end(stream)
    };
    let exec = instantiate(capture(kernels.add_one, first));
    let (mut node, mut result) = (null_mut(), 9);
    hip!(hipGraphExecUpdate(exec, capture(kernels.add_one, second), &mut node, &mut result));
    assert_eq!((node, result), (null_mut(), UPDATE_SUCCESS));
    hip!(hipGraphLaunch(exec, stream));
    hip!(hipStreamSynchronize(stream));
    assert_eq!(read(second, 1), [1]);
    let other = capture(kernels.note, second);
    fails!(GRAPH_EXEC_UPDATE_FAILURE, hipGraphExecUpdate(exec, other, &mut node, &mut result));
    assert_eq!((node, result), (nodes(other)[0], UPDATE_FUNCTION_CHANGED));
}

#[test]
fn a_replay_after_its_module_was_unloaded_is_a_fault() {
    let _alone = fresh();
    let (kernels, memory, stream) = (kernels(), malloc(4), stream(STREAM_NON_BLOCKING));
    begin(stream);
    ok(launch(kernels.add_one, memory, 1, stream));
    let exec = instantiate(end(stream));
    hip!(hipModuleUnload(kernels.module));
    hip!(hipGraphLaunch(exec, stream));
    fails!(LAUNCH_FAILURE, hipStreamSynchronize(stream));
    assert_eq!(last_fault(), "kernel add_one was run after its module was unloaded");
}
