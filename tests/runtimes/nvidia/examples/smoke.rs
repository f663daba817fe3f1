//! Checks the stand-in on a machine with an NVIDIA GPU: `smoke path/to/libhip_nvidia.so`.
//!
//! Owns: one run through allocation, copies, launches, events, capture, replay with new parameters, virtual memory
//! that grows under a graph, and the gate. Always true: each check prints a line; the first that fails ends the program
//! with status 1 and the stand-in's own words. Not here: kernels of the product (`hipfire doctor --self-test`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::time::Instant;

use hip_facade::abi::*;
use libloading::Library;

const PTX: &str = concat!(include_str!("smoke.ptx"), "\0");
const MIB: usize = 1 << 20;
type Check<T = ()> = Result<T, String>;

struct Hip(Library);

impl Hip {
    /// Calls a function by name, with its arguments as one tuple type `F` spells out.
    fn symbol<F: Copy>(&self, name: &str) -> Check<F> {
        // SAFETY: callers name the type that HIP's headers give.
        unsafe { self.0.get::<F>(name.as_bytes()) }
            .map(|symbol| *symbol)
            .map_err(|problem| format!("{name}: {problem}"))
    }

    fn last_fault(&self) -> String {
        let mut buffer = vec![0u8; 4096];
        let symbol = self.symbol::<unsafe extern "C" fn(*mut c_char, usize) -> usize>("standin_last_fault");
        // SAFETY: the buffer has the length it says.
        symbol.map(|read| unsafe { read(buffer.as_mut_ptr().cast(), buffer.len()) }).unwrap_or(0);
        CStr::from_bytes_until_nul(&buffer).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn check(&self, name: &str, code: c_int) -> Check {
        if code == 0 { Ok(()) } else { Err(format!("{name} answered {code}: {}", self.last_fault())) }
    }
}

/// `call!(hip, name(type: value, ...))` calls a HIP function and turns its error into words.
macro_rules! call {
    ($hip:expr, $name:ident($($type:ty: $value:expr),*)) => {{
        let function = $hip.symbol::<unsafe extern "C" fn($($type),*) -> c_int>(stringify!($name))?;
        // SAFETY: the types are HIP's; pointers are to live values.
        $hip.check(stringify!($name), unsafe { function($($value),*) })
    }};
}

fn malloc(hip: &Hip, bytes: usize) -> Check<u64> {
    let mut address = 0;
    call!(hip, hipMalloc(*mut u64: &mut address, usize: bytes))?;
    Ok(address)
}

fn read(hip: &Hip, address: u64, count: usize) -> Check<Vec<u32>> {
    let mut words = vec![0u32; count];
    call!(hip, hipMemcpyDtoH(*mut c_void: words.as_mut_ptr().cast(), u64: address, usize: 4 * count))?;
    Ok(words)
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Check {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, expected {wanted:?}")) }
}

fn synchronize(hip: &Hip, stream: Stream) -> Check {
    call!(hip, hipStreamSynchronize(Stream: stream))
}

fn launch(hip: &Hip, function: Function, arguments: [u64; 2], threads: u32, stream: Stream) -> Check {
    let mut arguments = arguments;
    let mut list: [*mut c_void; 1] = [arguments.as_mut_ptr().cast()];
    call!(hip, hipModuleLaunchKernel(
        Function: function, u32: arguments[1].div_ceil(u64::from(threads)) as u32, u32: 1, u32: 1, u32: threads,
        u32: 1, u32: 1, u32: 0, Stream: stream, *mut *mut c_void: list.as_mut_ptr(), *mut *mut c_void: null_mut()
    ))
}

fn device(hip: &Hip) -> Check<String> {
    let (mut count, mut free, mut total, mut multiprocessors) = (0, 0, 0, 0);
    let mut name = [0u8; 256];
    call!(hip, hipInit(u32: 0))?;
    call!(hip, hipGetDeviceCount(*mut c_int: &mut count))?;
    call!(hip, hipDeviceGetName(*mut u8: name.as_mut_ptr(), c_int: 256, c_int: 0))?;
    call!(hip, hipMemGetInfo(*mut usize: &mut free, *mut usize: &mut total))?;
    call!(hip, hipDeviceGetAttribute(*mut c_int: &mut multiprocessors, c_int: 63, c_int: 0))?;
    let mut properties = DeviceProperties::default();
    call!(hip, hipGetDevicePropertiesR0600(*mut DeviceProperties: &mut properties, c_int: 0))?;
    let name = CStr::from_bytes_until_nul(&name).map_err(|problem| problem.to_string())?.to_string_lossy();
    Ok(format!("{name}, {count} device, {} of {} MiB free, {multiprocessors} multiprocessors", free / MIB, total / MIB))
}

fn functions(hip: &Hip) -> Check<[Function; 2]> {
    let (mut module, mut broken) = (null_mut(), null_mut());
    call!(hip, hipModuleLoadData(*mut ModuleHandle: &mut module, *const u8: PTX.as_ptr()))?;
    let nonsense = c".version 7.0 nonsense";
    let wrong = call!(hip, hipModuleLoadData(*mut ModuleHandle: &mut broken, *const c_char: nonsense.as_ptr()));
    println!("   a broken module: {}", wrong.err().ok_or("a broken module was loaded")?);
    let find = |name: &CStr| {
        let mut function = null_mut();
        let name = name.as_ptr();
        call!(hip, hipModuleGetFunction(*mut Function: &mut function, ModuleHandle: module, *const c_char: name))?;
        Ok::<_, String>(function)
    };
    expect("a kernel that is not there", find(c"nothing").is_err(), true)?;
    Ok([find(c"add_one")?, find(c"big_lds")?])
}

fn copies(hip: &Hip) -> Check {
    let (memory, words) = (malloc(hip, 4 * MIB)?, (0..MIB as u32).collect::<Vec<_>>());
    call!(hip, hipMemcpyHtoD(u64: memory, *const u32: words.as_ptr(), usize: 4 * MIB))?;
    expect("copied words", read(hip, memory, MIB)? == words, true)?;
    call!(hip, hipMemsetD32(u64: memory, c_int: 9, usize: 5))?;
    call!(hip, hipDeviceSynchronize())?;
    expect("filled words", read(hip, memory, 6)?, vec![9, 9, 9, 9, 9, 5])?;
    call!(hip, hipFree(u64: memory))
}

fn kernels(hip: &Hip, [add_one, big_lds]: [Function; 2], stream: Stream) -> Check<String> {
    let memory = malloc(hip, 4 * 1000)?;
    call!(hip, hipMemsetD32Async(u64: memory, c_int: 1, usize: 1000, Stream: stream))?;
    launch(hip, add_one, [memory, 999], 256, stream)?;
    synchronize(hip, stream)?;
    expect("words after a launch", read(hip, memory + 4 * 998, 2)?, vec![2, 1])?;
    launch(hip, big_lds, [memory, 77], 128, stream)?;
    synchronize(hip, stream)?;
    expect("a word by way of 64 KiB of LDS", read(hip, memory, 1)?, vec![77])?;
    let (mut arguments, mut bytes) = ([memory, 1u64], 16usize);
    let mut extra: [*mut c_void; 5] =
        [1 as _, arguments.as_mut_ptr().cast(), 2 as _, (&raw mut bytes).cast(), LAUNCH_END as _];
    call!(hip, hipModuleLaunchKernel(
        Function: add_one, u32: 1, u32: 1, u32: 1, u32: 32, u32: 1, u32: 1, u32: 0, Stream: stream,
        *mut *mut c_void: null_mut(), *mut *mut c_void: extra.as_mut_ptr()
    ))?;
    synchronize(hip, stream)?;
    expect("a word after a launch by buffer", read(hip, memory, 1)?, vec![78])?;

    let (mut start, mut stop, mut time) = (null_mut(), null_mut(), 0f32);
    call!(hip, hipEventCreate(*mut Event: &mut start))?;
    call!(hip, hipEventCreate(*mut Event: &mut stop))?;
    call!(hip, hipEventRecord(Event: start, Stream: stream))?;
    for _ in 0..100 {
        launch(hip, add_one, [memory, 1000], 256, stream)?;
    }
    call!(hip, hipEventRecord(Event: stop, Stream: stream))?;
    call!(hip, hipEventSynchronize(Event: stop))?;
    call!(hip, hipEventElapsedTime(*mut f32: &mut time, Event: start, Event: stop))?;
    let mut registers = 0;
    call!(hip, hipFuncGetAttribute(*mut c_int: &mut registers, c_int: 1, Function: big_lds))?;
    expect("LDS of the large kernel", registers, 65536)?;
    call!(hip, hipFree(u64: memory))?;
    Ok(format!("100 launches in {time:.3} ms"))
}

fn capture(hip: &Hip, stream: Stream, work: impl FnOnce() -> Check) -> Check<(Graph, GraphExec)> {
    let (mut graph, mut exec) = (null_mut(), null_mut());
    call!(hip, hipStreamBeginCapture(Stream: stream, c_int: CAPTURE_GLOBAL))?;
    work()?;
    call!(hip, hipStreamEndCapture(Stream: stream, *mut Graph: &mut graph))?;
    call!(hip, hipGraphInstantiate(
        *mut GraphExec: &mut exec, Graph: graph, *mut c_void: null_mut(), *mut c_void: null_mut(), usize: 0
    ))?;
    Ok((graph, exec))
}

fn graphs(hip: &Hip, add_one: Function, stream: Stream) -> Check<String> {
    let (first, second) = (malloc(hip, 64)?, malloc(hip, 64)?);
    call!(hip, hipMemsetD32Async(u64: first, c_int: 0, usize: 16, Stream: stream))?;
    call!(hip, hipMemsetD32Async(u64: second, c_int: 0, usize: 16, Stream: stream))?;
    let (graph, exec) = capture(hip, stream, || launch(hip, add_one, [first, 16], 32, stream))?;
    let replay = || call!(hip, hipGraphLaunch(GraphExec: exec, Stream: stream));
    replay()?;
    let (mut node, mut count) = (null_mut(), 1usize);
    call!(hip, hipGraphGetNodes(Graph: graph, *mut GraphNode: &mut node, *mut usize: &mut count))?;
    // SAFETY: zeros are null pointers and sizes.
    let mut parameters: KernelNodeParams = unsafe { std::mem::zeroed() };
    call!(hip, hipGraphKernelNodeGetParams(GraphNode: node, *mut KernelNodeParams: &mut parameters))?;
    expect("nodes and block size", (count, parameters.block.x), (1, 32))?;
    let mut arguments = [second, 16u64];
    let mut list: [*mut c_void; 1] = [arguments.as_mut_ptr().cast()];
    (parameters.arguments, parameters.extra) = (list.as_mut_ptr(), null_mut());
    call!(hip, hipGraphExecKernelNodeSetParams(
        GraphExec: exec, GraphNode: node, *const KernelNodeParams: &parameters
    ))?;
    replay()?;
    replay()?;
    synchronize(hip, stream)?;
    expect("both buffers", [read(hip, first, 1)?, read(hip, second, 1)?], [vec![1], vec![2]])?;
    let (other, _) = capture(hip, stream, || launch(hip, add_one, [first, 8], 32, stream))?;
    let mut result = 9;
    call!(hip, hipGraphExecUpdate(
        GraphExec: exec, Graph: other, *mut GraphNode: &mut node, *mut c_int: &mut result
    ))?;
    replay()?;
    synchronize(hip, stream)?;
    expect("the first buffer after an update", read(hip, first + 28, 2)?, vec![2, 1])?;

    call!(hip, hipStreamBeginCapture(Stream: stream, c_int: CAPTURE_GLOBAL))?;
    expect("waiting in a capture", synchronize(hip, stream).is_err(), true)?;
    let mut spoilt = null_mut();
    let end = call!(hip, hipStreamEndCapture(Stream: stream, *mut Graph: &mut spoilt));
    expect("ending a spoilt capture", end.is_err(), true)?;

    let (_, many) = capture(hip, stream, || (0..500).try_for_each(|_| launch(hip, add_one, [first, 16], 32, stream)))?;
    call!(hip, hipGraphLaunch(GraphExec: many, Stream: stream))?;
    synchronize(hip, stream)?;
    let start = Instant::now();
    call!(hip, hipGraphLaunch(GraphExec: many, Stream: stream))?;
    synchronize(hip, stream)?;
    Ok(format!("500 nodes replayed in {:?}", start.elapsed()))
}

fn virtual_memory(hip: &Hip, add_one: Function, stream: Stream) -> Check<String> {
    let location = MemoryLocation { kind: LOCATION_DEVICE, id: 0 };
    let properties = PhysicalProperties {
        kind: ALLOCATION_PINNED,
        handle_type: 0,
        location,
        win32_meta_data: null_mut(),
        compression: 0,
        rdma: 0,
        usage: 0,
    };
    let access = MemoryAccess { location, flags: ACCESS_READ_WRITE };
    let mut granularity = 0;
    call!(hip, hipMemGetAllocationGranularity(
        *mut usize: &mut granularity, *const PhysicalProperties: &properties, c_int: 0
    ))?;
    let (segment, total) = (32 * MIB, 16 << 30);
    expect("a segment is a multiple of the granularity", segment % granularity, 0)?;
    let (mut base, start) = (0u64, Instant::now());
    call!(hip, hipMemAddressReserve(*mut u64: &mut base, usize: total, usize: 0, u64: 0, u64: 0))?;
    let reserved = start.elapsed();
    let (mut handles, mut slowest) = (Vec::new(), std::time::Duration::ZERO);
    let mut grow = |handles: &mut Vec<Physical>| {
        let (start, mut handle) = (Instant::now(), null_mut());
        call!(hip, hipMemCreate(
            *mut Physical: &mut handle, usize: segment, *const PhysicalProperties: &properties, u64: 0
        ))?;
        let address = base + (handles.len() * segment) as u64;
        call!(hip, hipMemMap(u64: address, usize: segment, usize: 0, Physical: handle, u64: 0))?;
        handles.push(handle);
        call!(hip, hipMemSetAccess(
            u64: base, usize: handles.len() * segment, *const MemoryAccess: &access, usize: 1
        ))?;
        slowest = slowest.max(start.elapsed());
        call!(hip, hipMemsetD32Async(u64: address, c_int: 0, usize: segment / 4, Stream: stream))
    };
    grow(&mut handles)?;
    // One kernel at the start, one in the last segment, which is not mapped yet.
    let last = base + 7 * segment as u64;
    let (graph, exec) = capture(hip, stream, || {
        launch(hip, add_one, [base, 16], 32, stream)?;
        launch(hip, add_one, [last, 16], 32, stream)
    })?;
    while handles.len() < 8 {
        grow(&mut handles)?;
    }
    for _ in 0..3 {
        call!(hip, hipGraphLaunch(GraphExec: exec, Stream: stream))?;
    }
    synchronize(hip, stream)?;
    expect("first and last segment", [read(hip, base, 1)?, read(hip, last, 1)?], [vec![3], vec![3]])?;
    let mut flags = 0u64;
    call!(hip, hipMemGetAccess(*mut u64: &mut flags, *const MemoryLocation: &location, u64: last))?;
    expect("access", flags, 3)?;
    for (index, handle) in handles.into_iter().enumerate() {
        call!(hip, hipMemUnmap(u64: base + (index * segment) as u64, usize: segment))?;
        call!(hip, hipMemRelease(Physical: handle))?;
    }
    call!(hip, hipMemAddressFree(u64: base, usize: total))?;
    call!(hip, hipGraphExecDestroy(GraphExec: exec))?;
    call!(hip, hipGraphDestroy(Graph: graph))?;
    Ok(format!("granularity {granularity}, 16 GiB reserved in {reserved:?}, slowest segment of 32 MiB {slowest:?}"))
}

fn gate(hip: &Hip) -> Check {
    let fail = hip.symbol::<unsafe extern "C" fn(*const c_char, u32, i32)>("standin_fail")?;
    let mode = hip.symbol::<unsafe extern "C" fn(*const c_char, u64) -> i32>("standin_mode")?;
    // SAFETY: strings.
    unsafe { fail(c"hipMalloc".as_ptr(), 1, 2) };
    expect("a planted failure", malloc(hip, 16).is_err(), true)?;
    // SAFETY: a string.
    expect("a mode", unsafe { mode(c"device_memory_mib".as_ptr(), 64) }, 0)?;
    expect("an allocation beyond the budget", malloc(hip, 65 * MIB).is_err(), true)?;
    let memory = malloc(hip, 63 * MIB)?;
    call!(hip, hipFree(u64: memory))?;
    // SAFETY: a string.
    expect("a mode", unsafe { mode(c"device_memory_mib".as_ptr(), 0) }, 0)
}

fn run(path: &str) -> Check {
    // SAFETY: the library's constructors do nothing.
    let hip = Hip(unsafe { Library::new(path) }.map_err(|problem| problem.to_string())?);
    println!("ok device: {}", device(&hip)?);
    let mut stream = null_mut();
    call!(hip, hipStreamCreateWithFlags(*mut Stream: &mut stream, u32: STREAM_NON_BLOCKING))?;
    let functions = functions(&hip)?;
    println!("ok module");
    copies(&hip)?;
    println!("ok copies");
    println!("ok kernels and events: {}", kernels(&hip, functions, stream)?);
    println!("ok graphs: {}", graphs(&hip, functions[0], stream)?);
    println!("ok virtual memory: {}", virtual_memory(&hip, functions[0], stream)?);
    gate(&hip)?;
    println!("ok gate");
    Ok(())
}

fn main() {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: smoke path/to/libhip_nvidia.so");
        std::process::exit(2);
    };
    if let Err(problem) = run(&path) {
        println!("FAILED {problem}");
        std::process::exit(1);
    }
}
