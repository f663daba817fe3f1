//! Modules, functions, launches.
//!
//! Owns: the driver's compile log, shared memory beyond 48 KiB, launches that begin while the one before them ends.
//! Always true: a kernel whose module has a word `NAME__lds_bytes` gets that much dynamic shared memory at every launch,
//! because CUDA has no larger static one; only kernels of a module with a word `launches_overlap` begin early, because they
//! say themselves where they wait (hip/dialect/cuda.h). Not here: graphs (`graph`), which use the same table.

use core::ffi::{CStr, c_void};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use hip_facade::abi::{FUNCTION_MAX_DYNAMIC_LDS, Function, ModuleHandle, Stream};
use hip_facade::calls::{Arguments, LaunchShape, ModuleCalls};
use hip_facade::gate::gate;
use hip_facade::{HipError, Outcome};

use crate::NvidiaRuntime;
use crate::driver::{Cuda, LaunchAttribute, LaunchConfig};

/// `CU_JIT_ERROR_LOG_BUFFER`, `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`
const LOG_OPTIONS: [i32; 2] = [5, 6];
const LOG_BYTES: usize = 8192;

/// What a function's module says of its launches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Habits {
    /// Dynamic shared memory that stands for static LDS, 0 for most.
    pub lds_bytes: u32,
    /// Whether it waits itself for the launch before it.
    pub overlaps: bool,
}

/// Habits by function.
#[derive(Debug, Default)]
pub struct Functions(Mutex<BTreeMap<usize, Habits>>);

impl Functions {
    /// Those of a function.
    pub fn of(&self, function: Function) -> Habits {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(&(function as usize)).copied().unwrap_or_default()
    }

    fn set(&self, function: Function, habits: Habits) {
        // An address may come back for another function, after its module was unloaded.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(function as usize, habits);
    }
}

/// A launch buffer as CUDA takes it. CUDA ends the list with zero where HIP ends it with three.
pub struct LaunchBuffer {
    bytes: usize,
    list: [*mut c_void; 5],
}

/// Arguments as CUDA's two pointers.
pub enum CudaArguments {
    /// `kernelParams`
    Pointers(*mut *mut c_void),
    /// `extra`
    Buffer(Box<LaunchBuffer>),
}

impl CudaArguments {
    /// From HIP's.
    pub fn new(arguments: Arguments<'_>) -> CudaArguments {
        match arguments {
            Arguments::Pointers(list) => CudaArguments::Pointers(list),
            Arguments::Buffer(bytes) => {
                let mut buffer = Box::new(LaunchBuffer { bytes: bytes.len(), list: [core::ptr::null_mut(); 5] });
                let size = &raw mut buffer.bytes;
                buffer.list[..4].copy_from_slice(&[1 as _, bytes.as_ptr().cast_mut().cast(), 2 as _, size.cast()]);
                CudaArguments::Buffer(buffer)
            }
        }
    }

    /// `kernelParams` and `extra`, valid as long as this.
    pub fn pointers(&mut self) -> (*mut *mut c_void, *mut *mut c_void) {
        match self {
            CudaArguments::Pointers(list) => (*list, core::ptr::null_mut()),
            CudaArguments::Buffer(buffer) => (core::ptr::null_mut(), buffer.list.as_mut_ptr()),
        }
    }
}

/// A word of a module, 0 if there is none.
fn word(cuda: &Cuda, module: ModuleHandle, name: &[u8]) -> Outcome<u32> {
    let name = CString::new(name).map_err(|_| HipError::INVALID_VALUE)?;
    let (mut address, mut bytes, mut value) = (0, 0, 0u32);
    let explained = gate().last_fault();
    // SAFETY: pointers to locals.
    match unsafe { cuda.module_global(&mut address, &mut bytes, module, name.as_ptr()) } {
        Err(HipError::NOT_FOUND) => {
            // Most kernels have none: that is no fault to tell.
            gate().explain(explained);
            return Ok(0);
        }
        found => found?,
    }
    if bytes != 4 {
        gate().explain(format!("{} has {bytes} bytes, not 4", name.to_string_lossy()));
        return Err(HipError::INVALID_IMAGE);
    }
    // SAFETY: four bytes into a local of four.
    unsafe { cuda.memcpy_from_device((&raw mut value).cast(), address, 4) }?;
    Ok(value)
}

impl ModuleCalls for NvidiaRuntime {
    unsafe fn module_load(&self, image: *const c_void) -> Outcome<ModuleHandle> {
        if image.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let (mut module, mut log) = (core::ptr::null_mut(), vec![0u8; LOG_BYTES]);
        let mut options = LOG_OPTIONS;
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG_BYTES as *mut c_void];
        // SAFETY: the caller's image; two options with their values.
        let loaded =
            unsafe { self.cuda()?.module_load(&mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr()) };
        if let Err(error) = loaded {
            let text = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
            gate().explain(format!("{}: {}", gate().last_fault(), text.trim()));
            return Err(error);
        }
        Ok(module)
    }

    fn module_unload(&self, module: ModuleHandle) -> Outcome {
        // SAFETY: CUDA checks the handle.
        unsafe { self.cuda()?.module_unload(module) }
    }

    fn module_function(&self, module: ModuleHandle, name: &CStr) -> Outcome<Function> {
        let (cuda, mut function) = (self.cuda()?, core::ptr::null_mut());
        // SAFETY: a pointer to a local.
        unsafe { cuda.module_function(&mut function, module, name.as_ptr()) }?;
        let bytes = word(cuda, module, &[name.to_bytes(), b"__lds_bytes"].concat())?;
        let overlaps = word(cuda, module, b"launches_overlap")? != 0;
        if bytes > 0 {
            let value = i32::try_from(bytes).map_err(|_| HipError::INVALID_IMAGE)?;
            // SAFETY: no pointers; the function is the one just found.
            unsafe { cuda.func_set_attribute(function, FUNCTION_MAX_DYNAMIC_LDS, value) }?;
        }
        self.functions.set(function, Habits { lds_bytes: bytes, overlaps });
        Ok(function)
    }

    fn module_global(&self, module: ModuleHandle, name: &CStr) -> Outcome<(u64, usize)> {
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: pointers to locals.
        unsafe { self.cuda()?.module_global(&mut address, &mut bytes, module, name.as_ptr()) }?;
        Ok((address, bytes))
    }

    fn function_attribute(&self, attribute: i32, function: Function) -> Outcome<i32> {
        const STATIC_LDS: i32 = 1;
        let mut value = 0;
        // SAFETY: a pointer to a local; HIP's numbers are CUDA's.
        unsafe { self.cuda()?.func_attribute(&mut value, attribute, function) }?;
        let more = if attribute == STATIC_LDS { self.functions.of(function).lds_bytes } else { 0 };
        Ok(value.saturating_add_unsigned(more))
    }

    fn set_function_attribute(&self, function: Function, attribute: i32, value: i32) -> Outcome {
        let more = if attribute == FUNCTION_MAX_DYNAMIC_LDS { self.functions.of(function).lds_bytes } else { 0 };
        // SAFETY: no pointers; HIP's numbers are CUDA's.
        unsafe { self.cuda()?.func_set_attribute(function, attribute, value.saturating_add_unsigned(more)) }
    }

    unsafe fn launch(
        &self,
        function: Function,
        shape: LaunchShape,
        stream: Stream,
        arguments: Arguments<'_>,
    ) -> Outcome {
        /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`
        const OVERLAP: i32 = 6;
        let habits = self.functions.of(function);
        let mut overlap = LaunchAttribute { id: OVERLAP, padding: 0, value: [0; 16] };
        overlap.value[0] = 1;
        let configuration = LaunchConfig {
            grid: shape.grid,
            block: shape.block,
            shared: shape.dynamic_lds.saturating_add(habits.lds_bytes),
            stream,
            attributes: &raw const overlap,
            count: u32::from(habits.overlaps),
        };
        let mut arguments = CudaArguments::new(arguments);
        let (list, extra) = arguments.pointers();
        // SAFETY: the caller's arguments; CUDA checks the rest.
        unsafe { self.cuda()?.launch_kernel(&raw const configuration, function, list, extra) }
    }

    fn occupancy(&self, function: Function, block: i32, dynamic_lds: usize) -> Outcome<i32> {
        let (shared, mut blocks) = (dynamic_lds + self.functions.of(function).lds_bytes as usize, 0);
        // SAFETY: a pointer to a local.
        unsafe { self.cuda()?.occupancy(&mut blocks, function, block, shared) }?;
        Ok(blocks)
    }
}
