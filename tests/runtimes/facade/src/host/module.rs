//! Code objects and functions.
//!
//! Owns: loaded modules, their functions, checks of a launch against the metadata. Always true: a function of an
//! unloaded module is an invalid handle, and a queued launch of it faults. Not here: executing (`executor`).

use core::ffi::{CStr, c_void};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::HostRuntime;
use super::work::{KernelCall, Work};
use crate::abi::{FUNCTION_MAX_DYNAMIC_LDS, Function, ModuleHandle, Stream};
use crate::calls::{Arguments, LaunchShape, ModuleCalls};
use crate::card::{Card, LDS_BYTES, MAX_THREADS};
use crate::error::{HipError, Outcome};
use crate::executor::{KernelInfo, Module};
use crate::gate::gate;

/// A code object.
pub struct LoadedModule {
    /// What the executor made of it.
    pub code: Box<dyn Module>,
    unloaded: AtomicBool,
}

impl LoadedModule {
    /// Whether the host unloaded it.
    pub fn is_unloaded(&self) -> bool {
        self.unloaded.load(Ordering::Relaxed)
    }
}

/// A function of a module.
pub struct KernelFunction {
    /// Where it is from.
    pub module: Arc<LoadedModule>,
    /// Its name.
    pub name: String,
    /// Its metadata.
    pub info: KernelInfo,
}

impl std::fmt::Debug for KernelFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelFunction").field("name", &self.name).field("info", &self.info).finish_non_exhaustive()
    }
}

/// Modules and functions by handle.
#[derive(Default)]
pub struct Modules {
    modules: BTreeMap<u64, Arc<LoadedModule>>,
    functions: BTreeMap<u64, Arc<KernelFunction>>,
}

impl Modules {
    /// Keeps what the executor loaded.
    pub fn insert(&mut self, handle: u64, code: Box<dyn Module>) {
        self.modules.insert(handle, Arc::new(LoadedModule { code, unloaded: AtomicBool::new(false) }));
    }

    /// Unloads a module with its functions.
    pub fn remove(&mut self, module: u64) -> Outcome {
        let module = self.modules.remove(&module).ok_or(HipError::INVALID_HANDLE)?;
        module.unloaded.store(true, Ordering::Relaxed);
        self.functions.retain(|_, function| !Arc::ptr_eq(&function.module, &module));
        Ok(())
    }

    /// Whether there is such a module.
    pub fn check(&self, module: u64) -> Outcome {
        self.modules.contains_key(&module).then_some(()).ok_or(HipError::INVALID_HANDLE)
    }

    /// Looks a kernel up and keeps it under `handle`.
    pub fn find(&mut self, module: u64, name: &str, handle: u64) -> Outcome {
        let module = self.modules.get(&module).ok_or(HipError::INVALID_HANDLE)?;
        let Some(info) = module.code.kernel(name) else {
            gate().explain(format!("the code object has no kernel `{name}`"));
            return Err(HipError::NOT_FOUND);
        };
        let function = KernelFunction { module: module.clone(), name: name.to_owned(), info };
        self.functions.insert(handle, Arc::new(function));
        Ok(())
    }

    /// A function by its handle.
    pub fn function(&self, function: u64) -> Outcome<&Arc<KernelFunction>> {
        self.functions.get(&function).ok_or(HipError::INVALID_HANDLE)
    }

    /// The handle of a function.
    pub fn handle_of(&self, function: &Arc<KernelFunction>) -> u64 {
        let found = self.functions.iter().find(|(_, known)| Arc::ptr_eq(known, function));
        found.map_or(0, |(handle, _)| *handle)
    }

    /// Checks a launch and copies its arguments.
    ///
    /// # Safety
    /// `Arguments::Pointers` is null or points to one pointer to as many bytes as the kernel takes.
    pub unsafe fn prepare(&self, function: u64, shape: LaunchShape, arguments: Arguments<'_>) -> Outcome<KernelCall> {
        let function = self.function(function)?.clone();
        check_shape(&function, shape)?;
        let wanted = function.info.kernarg_bytes;
        let arguments: Box<[u8]> = match arguments {
            Arguments::Buffer(bytes) if bytes.len() == wanted => bytes.into(),
            Arguments::Buffer(bytes) => {
                let given = bytes.len();
                gate().explain(format!("kernel {} takes {wanted} bytes of arguments, not {given}", function.name));
                return Err(HipError::INVALID_VALUE);
            }
            Arguments::Pointers(_) if wanted == 0 => Box::default(),
            // SAFETY: the caller's; our kernels have exactly one argument, so its size is the whole segment's.
            Arguments::Pointers(list) => unsafe {
                let first = list.as_ref().copied().filter(|first| !first.is_null()).ok_or(HipError::INVALID_VALUE)?;
                core::slice::from_raw_parts(first.cast::<u8>(), wanted).into()
            },
        };
        let segment = Box::new(arguments.as_ptr() as usize);
        Ok(KernelCall { function, shape, arguments, segment })
    }
}

fn check_shape(function: &KernelFunction, shape: LaunchShape) -> Outcome {
    let refuse = |code, why: String| {
        gate().explain(format!("launch of {}: {why}", function.name));
        Err(code)
    };
    let LaunchShape { grid, block, dynamic_lds } = shape;
    let threads = block.iter().map(|size| u64::from(*size)).product::<u64>();
    let most = u64::from(function.info.max_threads.min(MAX_THREADS));
    if threads == 0 || threads > most {
        return refuse(HipError::INVALID_CONFIGURATION, format!("block {block:?} is not 1 to {most} work-items"));
    }
    if grid.contains(&0) || u64::from(grid[0]) * u64::from(block[0]) > u64::from(u32::MAX) {
        return refuse(HipError::INVALID_CONFIGURATION, format!("grid {grid:?} is empty or beyond 2^32 work-items"));
    }
    if grid[1] > 65_535 || grid[2] > 65_535 {
        // A gfx1201 wraps silently here.
        return refuse(HipError::INVALID_CONFIGURATION, format!("grid {grid:?} has more than 65,535 on y or z"));
    }
    let lds = u64::from(function.info.lds_bytes) + u64::from(dynamic_lds);
    if lds > u64::from(LDS_BYTES) {
        return refuse(HipError::LAUNCH_OUT_OF_RESOURCES, format!("{lds} bytes of LDS are more than {LDS_BYTES}"));
    }
    Ok(())
}

/// Value of a `hipFunction_attribute`.
pub fn attribute(info: &KernelInfo, attribute: i32) -> Outcome<i32> {
    let value = match attribute {
        0 => info.max_threads,
        1 => info.lds_bytes,
        2 | 5 | 6 | 7 | 9 => 0,
        3 => info.scratch_bytes,
        4 => info.vgprs,
        8 => LDS_BYTES.saturating_sub(info.lds_bytes),
        _ => return Err(HipError::INVALID_VALUE),
    };
    Ok(i32::try_from(value).unwrap_or(i32::MAX))
}

/// Workgroups that fit a compute unit at once: by registers (waves a SIMD as HARDWARE.md has them), by LDS.
pub fn occupancy(info: &KernelInfo, block: u32, dynamic_lds: u64) -> i32 {
    let waves_a_simd = (1536 / info.vgprs.max(1).next_multiple_of(24)).clamp(5, 16);
    let waves = block.div_ceil(32).max(1);
    let by_waves = 2 * waves_a_simd / waves;
    let lds = u64::from(info.lds_bytes) + dynamic_lds;
    let by_lds = u64::from(LDS_BYTES).checked_div(lds).unwrap_or(u64::MAX);
    i32::try_from(u64::from(by_waves).min(by_lds)).unwrap_or(i32::MAX)
}

/// Size of a code object from its ELF header: HIP is given a pointer without one.
///
/// # Safety
/// `image` points to a whole code object, or at least to 64 readable bytes if it is none.
pub unsafe fn image_bytes<'a>(image: *const u8) -> Option<&'a [u8]> {
    // SAFETY: the caller's.
    let byte = |offset: usize| unsafe { image.add(offset).read() };
    let number = |offset: usize, size: usize| (0..size).rev().fold(0, |sum, i| sum << 8 | byte(offset + i) as usize);
    let is_elf64 = [0x7f, b'E', b'L', b'F', 2].iter().enumerate().all(|(offset, wanted)| byte(offset) == *wanted);
    if !is_elf64 {
        return None;
    }
    let (programs, program_size, program_count) = (number(32, 8), number(54, 2), number(56, 2));
    let (sections, section_size, section_count) = (number(40, 8), number(58, 2), number(60, 2));
    let mut end = (programs + program_size * program_count).max(sections + section_size * section_count).max(64);
    for index in 0..section_count {
        let section = sections + index * section_size;
        const SECTION_WITHOUT_BYTES: usize = 8;
        if number(section + 4, 4) != SECTION_WITHOUT_BYTES {
            end = end.max(number(section + 24, 8) + number(section + 32, 8));
        }
    }
    // SAFETY: the caller's: the headers and sections of a whole code object lie inside it.
    Some(unsafe { core::slice::from_raw_parts(image, end) })
}

/// Refuses a code object that was compiled for another GPU.
fn check_machine(image: &[u8], card: &Card) -> Outcome {
    const AMDGPU: [u8; 2] = 224u16.to_le_bytes();
    // e_machine, and the low byte of e_flags, which is EF_AMDGPU_MACH.
    match (image.get(18..20), image.get(48)) {
        (Some(machine), Some(mach)) if machine == AMDGPU && !card.machines.contains(&u32::from(*mach)) => {
            gate().explain(format!("the code object is for EF_AMDGPU_MACH {mach:#x}, not for {}", card.arch));
            Err(HipError::NO_BINARY_FOR_GPU)
        }
        _ => Ok(()),
    }
}

impl ModuleCalls for HostRuntime {
    unsafe fn module_load(&self, image: *const c_void) -> Outcome<ModuleHandle> {
        self.state().forbid_in_capture("hipModuleLoadData")?;
        if image.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: the caller's.
        let Some(image) = (unsafe { image_bytes(image.cast()) }) else {
            gate().explain("the image is no 64-bit ELF file");
            return Err(HipError::INVALID_IMAGE);
        };
        let card = self.card()?;
        check_machine(image, &card)?;
        let code = self.executor.load(image, card.arch).map_err(|problem| {
            gate().explain(problem);
            HipError::INVALID_IMAGE
        })?;
        let mut state = self.state();
        let handle = state.new_handle();
        state.modules.insert(handle, code);
        Ok(handle as ModuleHandle)
    }

    fn module_unload(&self, module: ModuleHandle) -> Outcome {
        self.wait_for_all("hipModuleUnload")?.modules.remove(module as u64)
    }

    fn module_function(&self, module: ModuleHandle, name: &CStr) -> Outcome<Function> {
        let mut state = self.state();
        let handle = state.new_handle();
        state.modules.find(module as u64, name.to_str().map_err(|_| HipError::NOT_FOUND)?, handle)?;
        Ok(handle as Function)
    }

    fn module_global(&self, module: ModuleHandle, _name: &CStr) -> Outcome<(u64, usize)> {
        // Our code objects have no global variables.
        self.state().modules.check(module as u64)?;
        Err(HipError::NOT_FOUND)
    }

    fn function_attribute(&self, wanted: i32, function: Function) -> Outcome<i32> {
        attribute(&self.state().modules.function(function as u64)?.info, wanted)
    }

    fn set_function_attribute(&self, function: Function, attribute: i32, value: i32) -> Outcome {
        self.state().modules.function(function as u64)?;
        // AMD devices ignore both attributes there are; more LDS than there is is still refused.
        let fits = attribute != FUNCTION_MAX_DYNAMIC_LDS || (0..=LDS_BYTES as i32).contains(&value);
        if fits { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    }

    unsafe fn launch(
        &self,
        function: Function,
        shape: LaunchShape,
        stream: Stream,
        arguments: Arguments<'_>,
    ) -> Outcome {
        let mut state = self.state();
        state.queue.stream(stream as u64)?;
        // SAFETY: the caller's.
        let call = unsafe { state.modules.prepare(function as u64, shape, arguments) }?;
        state.submit(stream as u64, Work::Kernel(Arc::new(call))).map(drop)
    }

    fn occupancy(&self, function: Function, block: i32, dynamic_lds: usize) -> Outcome<i32> {
        let state = self.state();
        let function = state.modules.function(function as u64)?;
        match u32::try_from(block) {
            Ok(block @ 1..=MAX_THREADS) => Ok(occupancy(&function.info, block, dynamic_lds as u64)),
            _ => Err(HipError::INVALID_VALUE),
        }
    }
}
