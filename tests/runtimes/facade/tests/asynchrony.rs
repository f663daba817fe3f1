//! Streams, events and copies: nothing is done before somebody waits, and everything is done in a legal order.

mod support;

use support::*;

#[test]
fn a_kernel_has_not_run_until_the_host_waits() {
    let _alone = fresh();
    let (kernels, memory, stream) = (kernels(), pinned(16), stream(STREAM_NON_BLOCKING));
    ok(unsafe { hipMemsetD32Async(memory, 7, 4, stream) });
    ok(unsafe { hipStreamSynchronize(stream) });
    ok(launch(kernels.add_one, memory, 4, stream));
    assert_eq!(peek(memory), 7);
    ok(unsafe { hipStreamSynchronize(stream) });
    assert_eq!(peek(memory), 8);
}
