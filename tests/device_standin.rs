//! The device layer on a stand-in: every safe type, its bounds, and what a failing call leaves behind.

mod support;

use hipfire::device::canary::{CanaryArguments, KernelCanary};
use hipfire::device::{Context, DeviceMemory, DeviceSpan, Event, Function, Module, PinnedMemory, Shape, Stream};
use hipfire::error::{Error, Result};
use support::standin::{Standin, code_object};

fn message(result: Result<impl Sized>) -> String {
    result.err().expect("an error").to_string()
}

/// The canary kernel, as something that writes words that a host can compute.
fn canary(context: &Context) -> Option<Function> {
    let image = code_object("canary", &context.properties().arch)?;
    Some(Module::load(context, &image).unwrap().function(KernelCanary::KERNEL, size_of::<CanaryArguments>()).unwrap())
}

fn word(seed: u64, i: u64) -> u64 {
    let mut x = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x ^= x >> 31;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 29
}

fn words(span: DeviceSpan<'_>, stream: &Stream) -> Vec<u64> {
    let mut bytes = vec![0; span.len()];
    span.download(stream, &mut bytes).unwrap();
    bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_device_says_what_it_is() {
    let standin = Standin::take("fibers");
    assert_eq!((standin.library.device_count().unwrap(), standin.library.missing()), (1, vec![]));
    let context = standin.context();
    let properties = context.properties();
    assert_eq!((properties.arch.as_str(), properties.warp_size, properties.integrated), ("gfx1201", Some(32), false));
    assert!(properties.compute_units.unwrap() > 0 && properties.pci.as_ref().unwrap().len() > 6, "{properties:?}");
    let before = context.memory_info().unwrap();
    let memory = DeviceMemory::new(&context, 64 << 20).unwrap();
    assert_eq!(before.free - context.memory_info().unwrap().free, 64 << 20);
    memory.free().unwrap();
    assert_eq!(context.memory_info().unwrap(), before);
    assert!(message(Context::new(&standin.library, 1)).contains("no HIP device 1"));
    standin.mode("device_count", 1);
    assert!(standin.library.device_count().unwrap_err().is_no_device());
}

#[test]
fn copies_go_both_ways_and_end_at_the_bounds() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let stream = Stream::new(&context).unwrap();
    let (a, b) = (DeviceMemory::new(&context, 1000).unwrap(), DeviceMemory::new(&context, 1000).unwrap());
    let bytes: Vec<u8> = (0..1000).map(|i| i as u8).collect();
    a.span().upload(&stream, &bytes).unwrap();
    b.span().fill(&stream, 7).unwrap();
    b.span().part(100..1000).unwrap().copy_from(&stream, a.span().part(0..900).unwrap()).unwrap();
    let mut back = vec![0; 1000];
    b.span().download(&stream, &mut back).unwrap();
    assert!(back[..100].iter().all(|&byte| byte == 7));
    assert_eq!(back[100..], bytes[..900]);

    let mut pinned = PinnedMemory::new(&context, 64).unwrap();
    assert!(pinned.bytes().unwrap().iter().all(|&byte| byte == 0));
    pinned.bytes_mut().unwrap().fill(9);
    a.span().upload_pinned(&stream, &pinned, 0..64).unwrap();
    // On another stream: the second copy waits for the first.
    let other = Stream::new(&context).unwrap();
    a.span().part(32..96).unwrap().download_pinned(&other, &mut pinned, 0..64).unwrap();
    let expected: Vec<u8> = (32..96).map(|i| if i < 64 { 9 } else { i as u8 }).collect();
    assert_eq!(pinned.bytes().unwrap(), expected);

    for refused in [
        message(a.span().part(900..1001)),
        message(a.span().upload(&stream, &[0; 1001])),
        message(a.span().download(&stream, &mut [0; 1001])),
        message(a.span().upload_pinned(&stream, &pinned, 0..65)),
        message(a.span().part(990..1000).unwrap().download_pinned(&stream, &mut pinned, 0..11)),
        message(a.span().part(1..1000).unwrap().copy_from(&stream, b.span())),
    ] {
        assert!(refused.contains("are not within"), "{refused}");
    }
    assert!(a.span().part(0..0).unwrap().is_empty());
}

#[test]
fn events_order_streams_and_take_the_time() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let (first, second) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let memory = DeviceMemory::new(&context, 1 << 20).unwrap();
    let (start, end) = (Event::timing(&context).unwrap(), Event::timing(&context).unwrap());
    start.record(&first).unwrap();
    memory.span().fill(&first, 1).unwrap();
    end.record(&first).unwrap();
    second.wait(&end).unwrap();
    memory.span().fill(&second, 2).unwrap();
    second.synchronize().unwrap();
    assert!(second.is_idle().unwrap() && end.is_reached().unwrap());
    assert!(end.milliseconds_since(&start).unwrap() >= 0.0);
    let mut byte = [0];
    memory.span().download(&first, &mut byte).unwrap();
    assert_eq!(byte, [2]);
}

#[test]
fn a_kernel_gets_its_struct_and_nothing_of_another_size() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let Some(function) = canary(&context) else { return };
    let stream = Stream::new(&context).unwrap();
    let memory = DeviceMemory::new(&context, 8 * 1000).unwrap();
    let arguments = CanaryArguments { words: memory.address(), seed: 42, mismatches: 0, count: 1000, phase: 0 };
    function.launch(&stream, Shape::linear(4, 256), &arguments).unwrap();
    let expected: Vec<u64> = (0..1000).map(|i| word(42, i)).collect();
    assert_eq!(words(memory.span(), &stream), expected);
    assert!(message(function.launch(&stream, Shape::linear(4, 256), &[0u64; 5])).contains("takes 32 bytes"));
    assert!(message(function.launch_bytes(&stream, Shape::linear(4, 256), &[0; 31])).contains("was given 31"));
    assert!(message(function.launch(&stream, Shape::linear(0, 256), &arguments)).contains("may be 0"));
}

#[test]
fn a_captured_graph_replays_and_takes_new_arguments() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let Some(function) = canary(&context) else { return };
    let stream = Stream::new(&context).unwrap();
    let memory = DeviceMemory::new(&context, 8 * 512).unwrap();
    let halves = [memory.span().part(0..2048).unwrap(), memory.span().part(2048..4096).unwrap()];
    let arguments = |half: usize, seed| CanaryArguments {
        words: halves[half].address(),
        seed,
        mismatches: 0,
        count: 256,
        phase: 0,
    };
    let mut graph = stream
        .capture(|| {
            assert!(context.is_capturing());
            memory.span().fill(&stream, 0)?;
            (0..2).try_for_each(|half| function.launch(&stream, Shape::linear(1, 256), &arguments(half, half as u64)))
        })
        .unwrap();
    assert!(!context.is_capturing());
    assert_eq!(graph.kernels(), 2);
    for round in 0..3 {
        graph.update(1, &function, Shape::linear(1, 256), &arguments(1, 100 + round)).unwrap();
        graph.launch(&stream).unwrap();
        let found = words(memory.span(), &stream);
        let expected: Vec<u64> = (0..256).map(|i| word(0, i)).chain((0..256).map(|i| word(100 + round, i))).collect();
        assert_eq!(found, expected, "round {round}");
    }
    assert!(message(graph.update(2, &function, Shape::linear(1, 256), &arguments(0, 0))).contains("no launch 2"));
    assert!(message(graph.update(0, &function, Shape::linear(1, 256), &0u64)).contains("takes 32 bytes"));
}

#[test]
fn a_capture_that_fails_ends_and_says_why() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let stream = Stream::new(&context).unwrap();
    let text = message(stream.capture(|| Err(Error::invalid("a reason"))));
    assert_eq!(text, "a reason");
    assert!(!context.is_capturing());
    standin.fail("hipGraphInstantiate", 1, 2);
    let memory = DeviceMemory::new(&context, 64).unwrap();
    let outcome = stream.capture(|| memory.span().fill(&stream, 1));
    assert!(matches!(outcome, Err(Error::InsufficientMemory(_))));
    stream.capture(|| memory.span().fill(&stream, 1)).unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn an_error_of_a_drop_comes_out_at_the_next_call_and_only_once() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let memory = DeviceMemory::new(&context, 64).unwrap();
    standin.fail("hipFree", 1, 1);
    let address = memory.address();
    drop(memory);
    let text = message(DeviceMemory::new(&context, 64));
    assert!(text.contains(&format!("hipFree({address:#x}) failed: hipErrorInvalidValue (1)")), "{text}");
    DeviceMemory::new(&context, 64).unwrap();
    assert!(context.take_failure().is_none());
}

#[test]
fn a_device_belongs_to_one_thread_until_another_adopts_it() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    let memory = DeviceMemory::new(&context, 64).unwrap();
    std::thread::scope(|scope| {
        let other = context.clone();
        scope.spawn(move || {
            assert!(message(other.synchronize()).contains("belongs to another thread"));
            // Freeing is allowed anywhere: a value may be dropped where its owner does not run.
            drop(memory);
            other.adopt().unwrap();
            other.synchronize().unwrap();
        });
    });
    assert!(message(context.memory_info()).contains("Context::adopt"));
    context.adopt().unwrap();
    context.memory_info().unwrap();
    assert!(context.take_failure().is_none());
}

#[test]
fn an_unknown_code_is_a_number_and_an_impossible_allocation_is_insufficient_memory() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    standin.fail("hipDeviceSynchronize", 1, 9999);
    assert_eq!(message(context.synchronize()), "hipDeviceSynchronize() failed: hipError 9999 (unknown)");
    let error = DeviceMemory::new(&context, 1 << 50).err().unwrap();
    assert!(matches!(&error, Error::InsufficientMemory(text) if text.contains("hipMalloc(1125899906842624 bytes)")));
}

#[test]
fn what_is_no_code_object_is_refused() {
    let standin = Standin::take("fibers");
    let context = standin.context();
    assert!(message(Module::load(&context, b"\x7fELF")).contains("4 bytes"));
    let text = message(Module::load(&context, &[0; 4096]));
    assert!(text.contains("hipModuleLoadData") && text.contains("not built for this GPU"), "{text}");
}
