//! Allocations, copies, launches and devices: what is checked, and how the stand-in answers.

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;

use support::*;

#[test]
fn the_device_has_as_much_memory_as_it_is_told_and_says_when_it_is_full() {
    let _alone = fresh();
    let (before, total) = memory_info();
    assert_eq!(total, 32 << 30);
    mode(c"device_memory_mib", ((total - before) >> 20) as u64 + 64);
    let memory = malloc(60 << 20);
    let mut pointer = 0;
    fails!(OUT_OF_MEMORY, hipMalloc(&mut pointer, 5 << 20));
    assert_eq!(pointer, 0);
    hip!(hipFree(memory));
    hip!(hipMalloc(&mut pointer, 5 << 20));
    hip!(hipFree(pointer));
}

#[test]
fn a_large_allocation_costs_nothing_until_it_is_written_and_starts_out_poisoned() {
    let _alone = fresh();
    let bytes = 20usize << 30;
    let memory = malloc(bytes);
    assert_eq!(read(memory + bytes as u64 - 8, 2), [0xfffd_fffd; 2]);
    hip!(hipMemsetD32(memory + (7 << 30), 3, 4));
    assert_eq!(read(memory + (7 << 30), 5), [3, 3, 3, 3, 0xfffd_fffd]);
    hip!(hipFree(memory));
}

#[test]
fn zero_bytes_are_a_null_pointer_and_freeing_it_is_fine() {
    let _alone = fresh();
    assert_eq!((malloc(0), pinned(0)), (0, 0));
    hip!(hipFree(0));
    hip!(hipHostFree(0));
}

#[test]
fn copies_are_refused_beyond_an_allocation_and_where_device_memory_is_claimed_but_is_not() {
    let _alone = fresh();
    let (memory, host) = (malloc(16), [0u32; 8]);
    let host = host.as_ptr() as u64;
    fails!(INVALID_VALUE, hipMemcpyHtoD(memory, host, 20));
    fails!(INVALID_VALUE, hipMemcpyHtoD(memory + 16, host, 4));
    fails!(INVALID_VALUE, hipMemcpyDtoD(memory, host, 4));
    fails!(INVALID_VALUE, hipMemset(host, 0, 4));
    fails!(INVALID_VALUE, hipMemcpyHtoD(memory, 0, 4));
    fails!(INVALID_VALUE, hipMemsetD32(memory + 2, 0, 1));
    hip!(hipMemcpyHtoD(memory, host, 0));
    hip!(hipMemcpy(memory, host, 16, COPY_DEFAULT));
    assert_eq!(read(memory, 4), [0; 4]);
}

#[test]
fn registered_host_memory_is_reachable_by_kernels_and_ordinary_memory_is_not() {
    let _alone = fresh();
    let (kernels, mut words) = (kernels(), vec![1u32; 8]);
    let address = words.as_mut_ptr() as u64;
    let mut device = 0;
    fails!(INVALID_VALUE, hipHostGetDevicePointer(&mut device, address, 0));
    hip!(hipHostRegister(address, 32, 0));
    fails!(HOST_MEMORY_ALREADY_REGISTERED, hipHostRegister(address + 16, 32, 0));
    hip!(hipHostGetDevicePointer(&mut device, address, 0));
    ok(launch(kernels.add_one, device, 8, null_mut()));
    hip!(hipHostUnregister(address));
    assert_eq!(peek(address), 2, "unregistering waits");
    fails!(HOST_MEMORY_NOT_REGISTERED, hipHostUnregister(address));
    ok(launch(kernels.add_one, address, 8, null_mut()));
    fails!(LAUNCH_FAILURE, hipDeviceSynchronize());
}

#[test]
fn a_launch_takes_its_arguments_as_one_pointer_or_as_a_buffer_of_the_right_size() {
    let _alone = fresh();
    let (kernels, memory) = (kernels(), malloc(16));
    hip!(hipMemsetD32(memory, 1, 4));
    let (mut arguments, mut bytes) = ([memory, 4], 16usize);
    let mut extra: [*mut c_void; 5] = [
        LAUNCH_BUFFER_POINTER as *mut _,
        arguments.as_mut_ptr().cast(),
        LAUNCH_BUFFER_SIZE as *mut _,
        (&raw mut bytes).cast(),
        LAUNCH_END as *mut _,
    ];
    let mut launch = |grid: u32, block: u32, lds: u32| {
        let extra = extra.as_mut_ptr();
        // SAFETY: the list ends as HIP wants it.
        unsafe { hipModuleLaunchKernel(kernels.add_one, grid, 1, 1, block, 1, 1, lds, null_mut(), null_mut(), extra) }
    };
    ok(launch(1, 32, 0));
    assert_eq!(launch(1, 257, 0), code::INVALID_CONFIGURATION);
    assert_eq!(launch(0, 32, 0), code::INVALID_CONFIGURATION);
    assert_eq!(launch(1, 32, 65_536), code::LAUNCH_OUT_OF_RESOURCES);
    assert_eq!(read(memory, 1), [2]);
    // SAFETY: a local, which HIP reads through the pointer above.
    unsafe { (&raw mut bytes).write_volatile(12) };
    let extra = extra.as_mut_ptr();
    let function = kernels.add_one;
    fails!(INVALID_VALUE, hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, null_mut(), null_mut(), extra));
    assert_eq!(last_fault(), "kernel add_one takes 16 bytes of arguments, not 12");
}

#[test]
fn a_module_is_checked_and_its_functions_end_with_it() {
    let _alone = fresh();
    let (kernels, mut module, mut function) = (kernels(), null_mut(), null_mut());
    fails!(INVALID_IMAGE, hipModuleLoadData(&mut module, [7u8; 64].as_ptr().cast()));
    let mut image = image();
    image[15] = 1;
    fails!(INVALID_IMAGE, hipModuleLoadData(&mut module, image.as_ptr().cast()));
    assert_eq!(last_fault(), "the code object is not for gfx1201");
    // Machine AMDGPU, EF_AMDGPU_MACH of gfx1151; then that of gfx12-generic.
    (image[15], image[18], image[48]) = (0, 224, 0x4a);
    fails!(NO_BINARY_FOR_GPU, hipModuleLoadData(&mut module, image.as_ptr().cast()));
    assert_eq!(last_fault(), "the code object is for EF_AMDGPU_MACH 0x4a, not for gfx1201");
    image[48] = 0x59;
    hip!(hipModuleLoadData(&mut module, image.as_ptr().cast()));
    fails!(NOT_FOUND, hipModuleGetFunction(&mut function, kernels.module, c"nothing".as_ptr()));
    let mut value = 0;
    hip!(hipFuncGetAttribute(&mut value, 4, kernels.note));
    assert_eq!(value, 40);
    // 40 VGPRs allow 16 waves a SIMD: 32 a compute unit, 4 workgroups of 8 waves.
    hip!(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut value, kernels.note, 256, 0));
    assert_eq!(value, 4);
    hip!(hipModuleUnload(kernels.module));
    assert_eq!(launch(kernels.note, 0, 0, null_mut()), code::INVALID_HANDLE);
}

#[test]
fn without_a_device_the_calls_say_so() {
    let _alone = fresh();
    mode(c"device_count", 1);
    let mut count = 7;
    fails!(NO_DEVICE, hipGetDeviceCount(&mut count));
    fails!(NO_DEVICE, hipInit(0));
    fails!(NO_DEVICE, hipSetDevice(0));
    mode(c"device_count", 3);
    hip!(hipGetDeviceCount(&mut count));
    hip!(hipSetDevice(1));
    hip!(hipSetDevice(0));
    assert_eq!(count, 2);
}
