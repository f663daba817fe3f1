//! HIP's C symbols: each is one row from its C arguments to a method of [`crate::calls`].
//!
//! Owns: the list of exported symbols, and every read and write through a caller's pointer. Always true: a symbol is
//! defined in the crate that uses the macro, because a library of a library does not export its symbols; a null
//! pointer where HIP needs one is `hipErrorInvalidValue`. Not here: what a call does.
//!
//! Left out on purpose (the host must live without): hipDeviceReset, hipMallocAsync, hipFreeAsync, hipGraphCreate.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::{KernelNodeParams, LAUNCH_BUFFER_POINTER, LAUNCH_BUFFER_SIZE, LAUNCH_END};
use crate::calls::{Arguments, LaunchShape};
use crate::error::{HipError, Outcome};

/// Defines every HIP symbol and every `standin_*` symbol in the using crate, over an executor:
/// `hip_facade::export!(RdnaExecutor::new);`
#[macro_export]
macro_rules! export {
    ($new:expr) => {
        $crate::export_runtime!(|| {
            // `rdna` of `hip-rdna`: the kind stands in the device's name.
            let kind = env!("CARGO_PKG_NAME").trim_start_matches("hip-");
            $crate::host::HostRuntime::new(kind, Box::new(($new)()))
        });
    };
}

/// The same over an implementation of all of HIP's calls ([`crate::calls::Runtime`]).
#[macro_export]
macro_rules! export_runtime {
    ($new:expr) => {
        static HIP_RUNTIME: std::sync::LazyLock<Box<dyn $crate::calls::Runtime>> =
            std::sync::LazyLock::new(|| Box::new(($new)()));

        /// HIP's C symbols.
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments, non_snake_case, unused_unsafe)]
        pub mod hip_symbols {
            use core::ffi::{c_char, c_int, c_uint, c_void};

            use super::HIP_RUNTIME;
            use $crate::abi::*;
            use $crate::calls::Pattern;
            use $crate::exports::*;

            $crate::export_rows!();
            $crate::export_extras!();
        }
    };
}

/// One `extern "C"` function a row.
#[doc(hidden)]
#[macro_export]
macro_rules! export_functions {
    ($($symbol:ident($($argument:ident: $type:ty),*) => |$hip:ident| $body:expr;)*) => { $(
        /// HIP's call of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $type),*) -> c_int {
            let arguments = || {
                let list: &[String] = &[$(format!("{}: {:?}", stringify!($argument), $argument)),*];
                list.join(", ")
            };
            $crate::gate::call(stringify!($symbol), arguments, || {
                let $hip = &**HIP_RUNTIME;
                // SAFETY: HIP's contract for this call, which the caller keeps: pointers are null or valid.
                unsafe { $body }
            })
        }
    )* };
}

/// The rows.
#[doc(hidden)]
#[macro_export]
macro_rules! export_rows { () => { $crate::export_functions! {
    hipInit(flags: c_uint) => |hip| hip.init(flags);
    hipRuntimeGetVersion(version: *mut c_int) => |hip| put(version, || hip.runtime_version());
    hipDriverGetVersion(version: *mut c_int) => |hip| put(version, || hip.driver_version());
    hipGetDeviceCount(count: *mut c_int) => |hip| put(count, || hip.device_count());
    hipSetDevice(device: c_int) => |hip| hip.set_device(device);
    hipGetDevice(device: *mut c_int) => |hip| put(device, || hip.device());
    hipDeviceGet(device: *mut c_int, ordinal: c_int) => |hip| put(device, || hip.device_by_ordinal(ordinal));
    hipDeviceGetName(name: *mut c_char, length: c_int, device: c_int)
        => |hip| put_text(name, length, || hip.device_name(device));
    hipDeviceTotalMem(bytes: *mut usize, device: c_int) => |hip| put(bytes, || hip.device_memory(device));
    hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int)
        => |hip| put(value, || hip.device_attribute(attribute, device));
    hipGetDevicePropertiesR0600(properties: *mut DeviceProperties, device: c_int)
        => |hip| put(properties, || hip.device_properties(device));
    hipGetDeviceProperties(properties: *mut DeviceProperties, device: c_int)
        => |hip| put(properties, || hip.device_properties(device));
    hipDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int)
        => |hip| put_text(text, length, || hip.device_bus_id(device));
    hipMemGetInfo(free: *mut usize, total: *mut usize) => |hip| put_two(free, total, || hip.memory_info());
    hipDeviceSynchronize() => |hip| hip.device_synchronize();

    hipMalloc(pointer: *mut u64, bytes: usize) => |hip| put(pointer, || hip.malloc(bytes));
    hipFree(pointer: u64) => |hip| hip.free(pointer);
    hipHostMalloc(pointer: *mut u64, bytes: usize, flags: c_uint)
        => |hip| put(pointer, || hip.host_malloc(bytes, flags));
    hipHostFree(pointer: u64) => |hip| hip.host_free(pointer);
    hipHostGetDevicePointer(device_pointer: *mut u64, pointer: u64, _flags: c_uint)
        => |hip| put(device_pointer, || hip.host_device_pointer(pointer));
    hipHostRegister(pointer: u64, bytes: usize, flags: c_uint) => |hip| hip.host_register(pointer, bytes, flags);
    hipHostUnregister(pointer: u64) => |hip| hip.host_unregister(pointer);
    hipMemcpy(to: u64, from: u64, bytes: usize, kind: c_int) => |hip| hip.copy(to, from, bytes, kind);
    hipMemcpyAsync(to: u64, from: u64, bytes: usize, kind: c_int, stream: Stream)
        => |hip| hip.copy_async(to, from, bytes, kind, stream);
    hipMemcpyHtoD(to: u64, from: u64, bytes: usize) => |hip| hip.copy(to, from, bytes, COPY_HOST_TO_DEVICE);
    hipMemcpyDtoH(to: u64, from: u64, bytes: usize) => |hip| hip.copy(to, from, bytes, COPY_DEVICE_TO_HOST);
    hipMemcpyDtoD(to: u64, from: u64, bytes: usize) => |hip| hip.copy(to, from, bytes, COPY_DEVICE_TO_DEVICE);
    hipMemcpyHtoDAsync(to: u64, from: u64, bytes: usize, stream: Stream)
        => |hip| hip.copy_async(to, from, bytes, COPY_HOST_TO_DEVICE, stream);
    hipMemcpyDtoHAsync(to: u64, from: u64, bytes: usize, stream: Stream)
        => |hip| hip.copy_async(to, from, bytes, COPY_DEVICE_TO_HOST, stream);
    hipMemcpyDtoDAsync(to: u64, from: u64, bytes: usize, stream: Stream)
        => |hip| hip.copy_async(to, from, bytes, COPY_DEVICE_TO_DEVICE, stream);
    hipMemset(to: u64, value: c_int, bytes: usize)
        => |hip| hip.fill(to, Pattern::Byte(value as u8), bytes, core::ptr::null_mut());
    hipMemsetAsync(to: u64, value: c_int, bytes: usize, stream: Stream)
        => |hip| hip.fill(to, Pattern::Byte(value as u8), bytes, stream);
    hipMemsetD8(to: u64, value: u8, count: usize)
        => |hip| hip.fill(to, Pattern::Byte(value), count, core::ptr::null_mut());
    hipMemsetD8Async(to: u64, value: u8, count: usize, stream: Stream)
        => |hip| hip.fill(to, Pattern::Byte(value), count, stream);
    hipMemsetD32(to: u64, value: c_int, count: usize)
        => |hip| hip.fill(to, Pattern::Word(value as u32), count, core::ptr::null_mut());
    hipMemsetD32Async(to: u64, value: c_int, count: usize, stream: Stream)
        => |hip| hip.fill(to, Pattern::Word(value as u32), count, stream);

    hipStreamCreate(stream: *mut Stream) => |hip| put(stream, || hip.stream_create(0));
    hipStreamCreateWithFlags(stream: *mut Stream, flags: c_uint) => |hip| put(stream, || hip.stream_create(flags));
    hipStreamDestroy(stream: Stream) => |hip| hip.stream_destroy(stream);
    hipStreamSynchronize(stream: Stream) => |hip| hip.stream_synchronize(stream);
    hipStreamQuery(stream: Stream) => |hip| hip.stream_query(stream);
    hipStreamWaitEvent(stream: Stream, event: Event, flags: c_uint)
        => |hip| hip.stream_wait_event(stream, event, flags);
    hipLaunchHostFunc(stream: Stream, function: HostFunction, user: *mut c_void)
        => |hip| hip.launch_host_function(stream, function, user);
    hipEventCreate(event: *mut Event) => |hip| put(event, || hip.event_create(0));
    hipEventCreateWithFlags(event: *mut Event, flags: c_uint) => |hip| put(event, || hip.event_create(flags));
    hipEventDestroy(event: Event) => |hip| hip.event_destroy(event);
    hipEventRecord(event: Event, stream: Stream) => |hip| hip.event_record(event, stream);
    hipEventQuery(event: Event) => |hip| hip.event_query(event);
    hipEventSynchronize(event: Event) => |hip| hip.event_synchronize(event);
    hipEventElapsedTime(milliseconds: *mut f32, start: Event, stop: Event)
        => |hip| put(milliseconds, || hip.event_elapsed(start, stop));
    hipStreamBeginCapture(stream: Stream, mode: c_int) => |hip| hip.capture_begin(stream, mode);
    hipStreamEndCapture(stream: Stream, graph: *mut Graph) => |hip| put(graph, || hip.capture_end(stream));
    hipStreamIsCapturing(stream: Stream, status: *mut c_int)
        => |hip| put(status, || hip.capture_info(stream).map(|info| info.0));
    hipStreamGetCaptureInfo(stream: Stream, status: *mut c_int, sequence: *mut u64)
        => |hip| put_two(status, sequence, || hip.capture_info(stream));

    hipModuleLoadData(module: *mut ModuleHandle, image: *const c_void) => |hip| put(module, || hip.module_load(image));
    hipModuleLoadDataEx(
        module: *mut ModuleHandle, image: *const c_void, _count: c_uint, _options: *mut c_int, _values: *mut *mut c_void
    ) => |hip| put(module, || hip.module_load(image));
    hipModuleUnload(module: ModuleHandle) => |hip| hip.module_unload(module);
    hipModuleGetFunction(function: *mut Function, module: ModuleHandle, name: *const c_char)
        => |hip| put(function, || hip.module_function(module, text(name)?));
    hipModuleGetGlobal(address: *mut u64, bytes: *mut usize, module: ModuleHandle, name: *const c_char)
        => |hip| put_two(address, bytes, || hip.module_global(module, text(name)?));
    hipFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Function)
        => |hip| put(value, || hip.function_attribute(attribute, function));
    hipFuncSetAttribute(function: Function, attribute: c_int, value: c_int)
        => |hip| hip.set_function_attribute(function, attribute, value);
    hipModuleLaunchKernel(
        function: Function, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, dynamic_lds: c_uint, stream: Stream, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) => |hip| {
        let shape = shape([grid_x, grid_y, grid_z], [block_x, block_y, block_z], dynamic_lds);
        hip.launch(function, shape, stream, arguments(parameters, extra)?)
    };
    hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: Function, block: c_int, dynamic_lds: usize
    ) => |hip| put(blocks, || hip.occupancy(function, block, dynamic_lds));

    hipGraphInstantiate(
        exec: *mut GraphExec, graph: Graph, _error_node: *mut GraphNode, _log: *mut c_char, _length: usize
    ) => |hip| put(exec, || hip.graph_instantiate(graph));
    hipGraphInstantiateWithFlags(exec: *mut GraphExec, graph: Graph, _flags: u64)
        => |hip| put(exec, || hip.graph_instantiate(graph));
    hipGraphLaunch(exec: GraphExec, stream: Stream) => |hip| hip.graph_launch(exec, stream);
    hipGraphDestroy(graph: Graph) => |hip| hip.graph_destroy(graph);
    hipGraphExecDestroy(exec: GraphExec) => |hip| hip.graph_exec_destroy(exec);
    hipGraphGetNodes(graph: Graph, nodes: *mut GraphNode, count: *mut usize)
        => |hip| put_list(nodes, count, || hip.graph_nodes(graph));
    hipGraphNodeGetType(node: GraphNode, kind: *mut c_int) => |hip| put(kind, || hip.graph_node_type(node));
    hipGraphKernelNodeGetParams(node: GraphNode, parameters: *mut KernelNodeParams)
        => |hip| put(parameters, || hip.graph_kernel_params(node));
    hipGraphExecKernelNodeSetParams(exec: GraphExec, node: GraphNode, parameters: *const KernelNodeParams) => |hip| {
        let parameters = item(parameters)?;
        let arguments = arguments(parameters.arguments, parameters.extra)?;
        hip.graph_exec_set_kernel_params(exec, node, node_shape(parameters), parameters.function, arguments)
    };
    hipGraphExecUpdate(exec: GraphExec, graph: Graph, error_node: *mut GraphNode, result: *mut c_int) => |hip| {
        let updated = hip.graph_exec_update(exec, graph);
        let (node, reason) = updated.map_or_else(|(_, node, reason)| (node, reason), |()| (core::ptr::null_mut(), 0));
        put(result, || Ok(reason))?;
        put_if_wanted(error_node, node);
        updated.map_err(|(error, _, _)| error)
    };

    hipMemAddressReserve(address: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64)
        => |hip| put(address, || hip.address_reserve(bytes, alignment, hint, flags));
    hipMemAddressFree(address: u64, bytes: usize) => |hip| hip.address_free(address, bytes);
    hipMemCreate(physical: *mut Physical, bytes: usize, properties: *const PhysicalProperties, flags: u64)
        => |hip| put(physical, || hip.physical_create(bytes, item(properties)?, flags));
    hipMemRelease(physical: Physical) => |hip| hip.physical_release(physical);
    hipMemMap(address: u64, bytes: usize, offset: usize, physical: Physical, flags: u64)
        => |hip| hip.map(address, bytes, offset, physical, flags);
    hipMemUnmap(address: u64, bytes: usize) => |hip| hip.unmap(address, bytes);
    hipMemSetAccess(address: u64, bytes: usize, access: *const MemoryAccess, count: usize)
        => |hip| hip.set_access(address, bytes, list(access, count)?);
    hipMemGetAccess(flags: *mut u64, location: *const MemoryLocation, address: u64)
        => |hip| put(flags, || hip.access(item(location)?, address));
    hipMemGetAllocationGranularity(bytes: *mut usize, properties: *const PhysicalProperties, option: c_int)
        => |hip| put(bytes, || hip.granularity(item(properties)?, option));
    hipMemRetainAllocationHandle(physical: *mut Physical, address: u64)
        => |hip| put(physical, || hip.physical_of(address));
} }; }

/// Writes a result where the caller wants it.
///
/// # Safety
/// `place` is null or valid for a write.
pub unsafe fn put<T>(place: *mut T, result: impl FnOnce() -> Outcome<T>) -> Outcome {
    if place.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the caller's.
    unsafe { place.write(result()?) };
    Ok(())
}

/// Writes two results, each only where the pointer is not null.
///
/// # Safety
/// Each pointer is null or valid for a write.
pub unsafe fn put_two<A, B>(first: *mut A, second: *mut B, result: impl FnOnce() -> Outcome<(A, B)>) -> Outcome {
    if first.is_null() && second.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let (a, b) = result()?;
    // SAFETY: the caller's.
    unsafe {
        put_if_wanted(first, a);
        put_if_wanted(second, b);
    }
    Ok(())
}

/// Writes a value unless the pointer is null.
///
/// # Safety
/// `place` is null or valid for a write.
pub unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's.
        unsafe { place.write(value) };
    }
}

/// Writes text with its final zero, cut to `length` bytes.
///
/// # Safety
/// `place` is null or valid for `length` bytes.
pub unsafe fn put_text(place: *mut c_char, length: c_int, result: impl FnOnce() -> Outcome<String>) -> Outcome {
    let room = usize::try_from(length).unwrap_or(0);
    if place.is_null() || room == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let text = result()?;
    let kept = text.len().min(room - 1);
    // SAFETY: the caller's; kept + 1 <= length.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, kept);
        place.add(kept).write(0);
    }
    Ok(())
}

/// Writes a list of at most `*count` items, or only their number if `place` is null.
///
/// # Safety
/// `count` is null or valid; `place` is null or valid for `*count` items.
pub unsafe fn put_list<T>(place: *mut T, count: *mut usize, result: impl FnOnce() -> Outcome<Vec<T>>) -> Outcome {
    if count.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let items = result()?;
    // SAFETY: the caller's.
    unsafe {
        if place.is_null() {
            count.write(items.len());
            return Ok(());
        }
        let kept = items.len().min(count.read());
        count.write(kept);
        items.into_iter().take(kept).enumerate().for_each(|(index, item)| place.add(index).write(item));
    }
    Ok(())
}

/// What a pointer points to.
///
/// # Safety
/// `place` is null or valid for reads.
pub unsafe fn item<'a, T>(place: *const T) -> Outcome<&'a T> {
    // SAFETY: the caller's.
    unsafe { place.as_ref() }.ok_or(HipError::INVALID_VALUE)
}

/// A list.
///
/// # Safety
/// `place` is null or valid for `count` items.
pub unsafe fn list<'a, T>(place: *const T, count: usize) -> Outcome<&'a [T]> {
    if place.is_null() || count == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the caller's.
    Ok(unsafe { core::slice::from_raw_parts(place, count) })
}

/// A name.
///
/// # Safety
/// `place` is null or a string that ends with a zero byte.
pub unsafe fn text<'a>(place: *const c_char) -> Outcome<&'a CStr> {
    if place.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the caller's.
    Ok(unsafe { CStr::from_ptr(place) })
}

/// A launch's shape.
pub fn shape(grid: [u32; 3], block: [u32; 3], dynamic_lds: u32) -> LaunchShape {
    LaunchShape { grid, block, dynamic_lds }
}

/// A kernel node's shape.
pub fn node_shape(node: &KernelNodeParams) -> LaunchShape {
    shape([node.grid.x, node.grid.y, node.grid.z], [node.block.x, node.block.y, node.block.z], node.dynamic_lds)
}

/// The arguments of a launch, in either of HIP's two forms.
///
/// # Safety
/// `extra` is null or a list that ends with `HIP_LAUNCH_PARAM_END`, whose buffer has the size it says.
pub unsafe fn arguments<'a>(parameters: *mut *mut c_void, extra: *mut *mut c_void) -> Outcome<Arguments<'a>> {
    if extra.is_null() {
        return Ok(Arguments::Pointers(parameters));
    }
    if !parameters.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let (mut buffer, mut bytes) = (core::ptr::null::<u8>(), None);
    // SAFETY: the caller's; a list has two entries a setting and few settings.
    unsafe {
        for pair in 0..4 {
            let value = || extra.add(2 * pair + 1).read();
            match extra.add(2 * pair).read() as usize {
                LAUNCH_BUFFER_POINTER => buffer = value().cast(),
                LAUNCH_BUFFER_SIZE => bytes = Some(*item::<usize>(value().cast())?),
                LAUNCH_END => break,
                _ => return Err(HipError::INVALID_VALUE),
            }
        }
        match bytes {
            Some(0) => Ok(Arguments::Buffer(&[])),
            Some(bytes) => Ok(Arguments::Buffer(list(buffer, bytes)?)),
            None => Err(HipError::INVALID_VALUE),
        }
    }
}
