//! Memory, copies, virtual memory.
//!
//! Owns: what counts against `device_memory_mib`. Always true: without that setting the GPU's own memory is the limit;
//! with it, allocations beyond it are refused as a smaller card would. Not here: the device (`device`).

use std::collections::BTreeMap;

use hip_facade::abi::{
    COPY_DEFAULT, COPY_DEVICE_TO_DEVICE_NO_CU, COPY_HOST_TO_HOST, MemoryAccess, MemoryLocation, Physical,
    PhysicalProperties, Stream,
};
use hip_facade::calls::{MemoryCalls, Pattern, VirtualMemoryCalls};
use hip_facade::gate::gate;
use hip_facade::modes::Mode;
use hip_facade::{HipError, Outcome};

use crate::{NvidiaRuntime, driver};

/// What was given out: allocations by address, physical memory by handle.
#[derive(Debug, Default)]
pub struct Budget {
    allocations: BTreeMap<u64, u64>,
    physicals: BTreeMap<u64, u64>,
}

impl Budget {
    /// Bytes given out.
    pub fn used(&self) -> u64 {
        self.allocations.values().chain(self.physicals.values()).sum()
    }
}

impl NvidiaRuntime {
    /// Refuses what a smaller card has no room for.
    fn check_budget(&self, bytes: usize) -> Outcome {
        if gate().mode(Mode::DeviceMemoryMib) == 0 {
            return Ok(());
        }
        let (used, total) = (self.budget().used(), self.opened()?.total_memory()?);
        if used.saturating_add(bytes as u64) > total {
            gate().explain(format!("{bytes} bytes do not fit: {used} of {total} bytes are used"));
            return Err(HipError::OUT_OF_MEMORY);
        }
        Ok(())
    }

    fn check_virtual(&self) -> Outcome<&driver::Cuda> {
        if gate().is_on(Mode::VmmNotSupported) {
            return Err(HipError::NOT_SUPPORTED);
        }
        self.cuda()
    }

    fn check_copy(kind: i32) -> Outcome {
        match kind {
            COPY_HOST_TO_HOST..=COPY_DEFAULT | COPY_DEVICE_TO_DEVICE_NO_CU => Ok(()),
            _ => Err(HipError::INVALID_MEMCPY_DIRECTION),
        }
    }
}

impl MemoryCalls for NvidiaRuntime {
    fn malloc(&self, bytes: usize) -> Outcome<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        self.check_budget(bytes)?;
        let mut address = 0;
        // SAFETY: a pointer to a local.
        unsafe { self.cuda()?.mem_alloc(&mut address, bytes) }?;
        self.budget().allocations.insert(address, bytes as u64);
        Ok(address)
    }

    fn free(&self, address: u64) -> Outcome {
        // SAFETY: CUDA checks the address.
        unsafe { self.cuda()?.mem_free(address) }?;
        self.budget().allocations.remove(&address);
        Ok(())
    }

    fn host_malloc(&self, bytes: usize, flags: u32) -> Outcome<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        // Portable, mapped and write-combined are CUDA's too; coherence flags are AMD's.
        const SHARED_FLAGS: u32 = 7;
        let mut pointer = 0;
        // SAFETY: a pointer to a local.
        unsafe { self.cuda()?.mem_host_alloc(&mut pointer, bytes, flags & SHARED_FLAGS) }?;
        Ok(pointer)
    }

    fn host_free(&self, address: u64) -> Outcome {
        if address == 0 {
            return Ok(());
        }
        // SAFETY: CUDA checks the address.
        unsafe { self.cuda()?.mem_free_host(address) }
    }

    fn host_device_pointer(&self, address: u64) -> Outcome<u64> {
        let mut device = 0;
        // SAFETY: a pointer to a local; CUDA checks the address.
        unsafe { self.cuda()?.mem_host_device_pointer(&mut device, address, 0) }?;
        Ok(device)
    }

    unsafe fn host_register(&self, address: u64, bytes: usize, flags: u32) -> Outcome {
        // SAFETY: the caller's.
        unsafe { self.cuda()?.mem_host_register(address, bytes, flags & 15) }
    }

    fn host_unregister(&self, address: u64) -> Outcome {
        // SAFETY: CUDA checks the address.
        unsafe { self.cuda()?.mem_host_unregister(address) }
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, kind: i32) -> Outcome {
        Self::check_copy(kind)?;
        // SAFETY: the caller's; unified addressing tells host from device.
        unsafe { self.cuda()?.memcpy(to, from, bytes) }
    }

    unsafe fn copy_async(&self, to: u64, from: u64, bytes: usize, kind: i32, stream: Stream) -> Outcome {
        Self::check_copy(kind)?;
        // SAFETY: as above.
        unsafe { self.cuda()?.memcpy_async(to, from, bytes, stream) }
    }

    fn fill(&self, to: u64, pattern: Pattern, count: usize, stream: Stream) -> Outcome {
        let cuda = self.cuda()?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: CUDA checks address and stream.
        unsafe {
            match pattern {
                Pattern::Byte(value) => cuda.memset_bytes(to, value, count, stream),
                Pattern::Word(value) => cuda.memset_words(to, value, count, stream),
            }
        }
    }
}

/// CUDA's properties from HIP's, whose last four bytes are padding that CUDA wants zero.
fn convert(properties: &PhysicalProperties) -> driver::PhysicalProperties {
    driver::PhysicalProperties {
        kind: properties.kind,
        handle_types: properties.handle_type,
        location: [properties.location.kind, properties.location.id],
        win32: core::ptr::null_mut(),
        flags: [0; 8],
    }
}

impl VirtualMemoryCalls for NvidiaRuntime {
    fn address_reserve(&self, bytes: usize, alignment: usize, hint: u64, flags: u64) -> Outcome<u64> {
        let mut address = 0;
        // SAFETY: a pointer to a local.
        unsafe { self.check_virtual()?.address_reserve(&mut address, bytes, alignment, hint, flags) }?;
        Ok(address)
    }

    fn address_free(&self, address: u64, bytes: usize) -> Outcome {
        // SAFETY: CUDA checks the range.
        unsafe { self.check_virtual()?.address_free(address, bytes) }
    }

    fn physical_create(&self, bytes: usize, properties: &PhysicalProperties, flags: u64) -> Outcome<Physical> {
        let cuda = self.check_virtual()?;
        self.check_budget(bytes)?;
        let mut handle = 0;
        // SAFETY: pointers to locals.
        unsafe { cuda.mem_create(&mut handle, bytes, &convert(properties), flags) }?;
        self.budget().physicals.insert(handle, bytes as u64);
        Ok(handle as Physical)
    }

    fn physical_release(&self, physical: Physical) -> Outcome {
        // SAFETY: CUDA checks the handle.
        unsafe { self.check_virtual()?.mem_release(physical as u64) }?;
        self.budget().physicals.remove(&(physical as u64));
        Ok(())
    }

    fn map(&self, address: u64, bytes: usize, offset: usize, physical: Physical, flags: u64) -> Outcome {
        // SAFETY: CUDA checks range and handle.
        unsafe { self.check_virtual()?.mem_map(address, bytes, offset, physical as u64, flags) }
    }

    fn unmap(&self, address: u64, bytes: usize) -> Outcome {
        // SAFETY: CUDA checks the range.
        unsafe { self.check_virtual()?.mem_unmap(address, bytes) }
    }

    fn set_access(&self, address: u64, bytes: usize, access: &[MemoryAccess]) -> Outcome {
        // SAFETY: HIP's entries have CUDA's layout and numbers.
        unsafe { self.check_virtual()?.mem_set_access(address, bytes, access.as_ptr().cast(), access.len()) }
    }

    fn access(&self, location: &MemoryLocation, address: u64) -> Outcome<u64> {
        let mut flags = 0;
        // SAFETY: HIP's location has CUDA's layout and numbers.
        unsafe { self.check_virtual()?.mem_access(&mut flags, core::ptr::from_ref(location).cast(), address) }?;
        Ok(flags)
    }

    fn granularity(&self, properties: &PhysicalProperties, option: i32) -> Outcome<usize> {
        let mut bytes = 0;
        // SAFETY: pointers to locals.
        unsafe { self.check_virtual()?.mem_granularity(&mut bytes, &convert(properties), option) }?;
        Ok(if gate().is_on(Mode::Granularity4k) { 4096 } else { bytes })
    }

    fn physical_of(&self, address: u64) -> Outcome<Physical> {
        let mut handle = 0;
        // SAFETY: a pointer to a local; CUDA checks the address.
        unsafe { self.check_virtual()?.mem_retain(&mut handle, address) }?;
        Ok(handle as Physical)
    }
}
