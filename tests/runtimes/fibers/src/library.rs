//! The kernels as host code: one shared library a lane layout, made by the build script.
//!
//! Owns: finding kernels in it and spreading a launch over OS threads. Always true: the structure handed to the
//! runtime is `CpuLaunch` of `runtime/runtime.h`, field for field; the runtime keeps to the ranges it is given and
//! reports everything else, so a launch returns. Not here: what a work-item does (`runtime/`).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hip_facade::executor::{Launch, Memory};

use crate::{missing, record, source};

/// Which lane holds which element of a matrix (HARDWARE.md); the number is the kernels' `TILE_LAYOUT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// RDNA3 and 3.5.
    Gfx11 = 11,
    /// RDNA4.
    Gfx12 = 12,
    /// `mma.sync` of NVIDIA's sm_80 and later.
    Cuda = 80,
}

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 3] = [Layout::Gfx11, Layout::Gfx12, Layout::Cuda];
    /// Those that launches are replayed in under sanitizers: AMD's.
    pub const REPLAYED: [Layout; 2] = [Layout::Gfx11, Layout::Gfx12];

    /// The layout of a target such as `gfx1151`, `gfx12-generic` or `sm_90`.
    pub fn of_arch(arch: &str) -> Result<Layout, String> {
        let known = [("gfx11", Layout::Gfx11), ("gfx12", Layout::Gfx12), ("sm_", Layout::Cuda)];
        let found = known.iter().find(|(prefix, _)| arch.starts_with(prefix));
        found
            .map(|(_, layout)| *layout)
            .ok_or_else(|| format!("hip-fibers has no lane layout for {arch}: gfx11 and gfx12 only"))
    }

    pub(crate) fn number(self) -> u32 {
        self as u32
    }
}

/// A file of the build script's.
pub(crate) fn built(name: &str, layout: Layout) -> PathBuf {
    Path::new(env!("HIP_FIBERS_DIR")).join(format!("{name}.{}", layout.number()))
}

/// A kernel's host build.
#[derive(Debug, Clone, Copy)]
pub struct HostKernel {
    entry: unsafe extern "C" fn(*const c_void),
    /// Work-items of its workgroups: no other number may be launched.
    pub threads: u32,
    /// Bytes of its argument struct.
    pub kernarg_bytes: usize,
}

/// `CpuLaunch` of runtime.h.
#[repr(C)]
struct CpuLaunch {
    entry: unsafe extern "C" fn(*const c_void),
    arguments: *const c_void,
    argument_bytes: u64,
    grid: [u32; 3],
    threads: u32,
    dynamic_lds: u32,
    unused: u32,
    schedule: u64,
    ranges: *const (u64, u64),
    range_count: u64,
    taken: AtomicU64,
    failed: AtomicU64,
}

// SAFETY: the pointers lead to memory that outlives the launch and is only read; the rest are atomics and numbers.
unsafe impl Sync for CpuLaunch {}

type Work = unsafe extern "C" fn(*const CpuLaunch, *mut c_char, u64) -> c_int;

/// The kernels in one layout.
#[derive(Debug)]
pub struct Library {
    layout: Layout,
    handle: usize,
    work: Work,
}

/// Workers beside the launching threads, of all launches together: each has a group of fibers, whose guarded stacks are
/// two mappings a work-item, and Linux allows a process 65,530 mappings.
const MOST_HELPERS: usize = 16;
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// Takes up to so many helpers from those that are free.
fn take_helpers(wanted: usize) -> usize {
    let grant = |taken: usize| wanted.min(MOST_HELPERS.saturating_sub(taken));
    let taken = HELPERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| Some(taken + grant(taken)));
    taken.map_or(0, grant)
}

impl Library {
    /// Opens the kernels in a layout; they stay open. Fails with a sentence if none were built, or if they were
    /// built for a processor that can do more than this one.
    pub fn open(layout: Layout) -> Result<&'static Library, String> {
        static OPEN: [OnceLock<Result<Library, String>>; 3] = [const { OnceLock::new() }; 3];
        let slot = match layout {
            Layout::Gfx11 => &OPEN[0],
            Layout::Gfx12 => &OPEN[1],
            Layout::Cuda => &OPEN[2],
        };
        slot.get_or_init(|| Library::load(layout)).as_ref().map_err(Clone::clone)
    }

    fn load(layout: Layout) -> Result<Library, String> {
        if let Some(why) = missing() {
            return Err(format!("hip-fibers was built without kernels: {why}"));
        }
        check_processor()?;
        let path = built("checked", layout);
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|error| format!("{}: {error}", path.display()))?;
        // SAFETY: the name is a C string; the library is this crate's own build and runs nothing when loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: dlerror returns null or a C string that lives until this thread's next call of its kind.
            let error = unsafe { libc::dlerror().cast_const().as_ref().map(|text| CStr::from_ptr(text)) };
            let error = error.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
            return Err(format!("cannot load hip-fibers' kernels, build it again: {error}"));
        }
        let handle = handle as usize;
        let work = symbol(handle, "cpu_work").ok_or("hip-fibers' kernels have no runtime: build it again")?;
        // SAFETY: cpu_work has this signature (runtime.h).
        let work = unsafe { std::mem::transmute::<*mut c_void, Work>(work) };
        Ok(Library { layout, handle, work })
    }

    /// A kernel by name, or a sentence.
    pub fn kernel(&self, name: &str) -> Result<HostKernel, String> {
        let find = |ending: &str| {
            symbol(self.handle, &format!("{name}{ending}"))
                .ok_or_else(|| format!("hip-fibers has no kernel {name}: is its source in hip/?"))
        };
        let entry = find("__host")?;
        let (threads, kernarg_bytes) = (find("__threads")?.cast::<u32>(), find("__kernarg_bytes")?.cast::<u32>());
        // SAFETY: the macro KERNEL of hip/dialect/host.h exports these three with these types.
        unsafe {
            Ok(HostKernel {
                entry: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_void)>(entry),
                threads: *threads,
                kernarg_bytes: *kernarg_bytes as usize,
            })
        }
    }

    /// Runs a grid to its end, or to a sentence with kernel, workgroup, thread and line. Recorded first if
    /// `HIPFIRE_STANDIN_RECORD` names a folder.
    pub fn launch(&self, launch: &Launch<'_>, memory: &dyn Memory) -> Result<(), String> {
        let kernel = self.kernel(launch.kernel)?;
        check_shape(launch, &kernel)?;
        let ranges = memory.ranges();
        record::record_if_asked(launch, &ranges, self.layout)?;
        let mut arguments = vec![0_u64; kernel.kernarg_bytes.div_ceil(8).max(1)];
        for (word, bytes) in arguments.iter_mut().zip(launch.arguments[..kernel.kernarg_bytes].chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        let shared = CpuLaunch {
            entry: kernel.entry,
            arguments: arguments.as_ptr().cast(),
            argument_bytes: kernel.kernarg_bytes as u64,
            grid: launch.grid,
            threads: kernel.threads,
            dynamic_lds: launch.dynamic_lds,
            unused: 0,
            schedule: launch.schedule,
            ranges: ranges.as_ptr(),
            range_count: ranges.len() as u64,
            taken: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        self.work(&shared).map_err(|text| {
            format!("kernel {}, {}", launch.kernel, source::name_positions(&text, &built("checked", self.layout)))
        })
    }

    /// Works on a launch with as many OS threads as there are cores, but no more than workgroups.
    fn work(&self, shared: &CpuLaunch) -> Result<(), String> {
        let one = || {
            let mut error = vec![0_u8; 1024];
            // SAFETY: the launch lives until every worker returned; the buffer has the length it is said to have.
            let result = unsafe { (self.work)(shared, error.as_mut_ptr().cast(), error.len() as u64) };
            if result == 0 {
                return Ok(());
            }
            let text = CStr::from_bytes_until_nul(&error).unwrap_or_default();
            Err(text.to_string_lossy().into_owned())
        };
        let groups: u64 = shared.grid.iter().map(|&extent| u64::from(extent)).product();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = usize::try_from(groups).unwrap_or(usize::MAX).min(cores).saturating_sub(1);
        let helpers = take_helpers(wanted);
        let result = std::thread::scope(|scope| {
            let started: Vec<_> =
                (0..helpers).filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, one).ok()).collect();
            let mut result = one();
            for helper in started {
                let other = helper.join().unwrap_or_else(|_| Err("a worker of the launch panicked".into()));
                result = result.and(other);
            }
            result
        });
        HELPERS.fetch_sub(helpers, Ordering::Relaxed);
        result
    }
}

fn symbol(handle: usize, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the handle came from dlopen and is never closed; the name is a C string.
    let found = unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn check_shape(launch: &Launch<'_>, kernel: &HostKernel) -> Result<(), String> {
    let name = launch.kernel;
    if launch.block != [kernel.threads, 1, 1] {
        return Err(format!("kernel {name} has workgroups of {} work-items, not {:?}", kernel.threads, launch.block));
    }
    if launch.grid.contains(&0) || launch.grid[1] > 65_535 || launch.grid[2] > 65_535 {
        return Err(format!("kernel {name}: no card takes a grid of {:?}", launch.grid));
    }
    if launch.arguments.len() < kernel.kernarg_bytes {
        let given = launch.arguments.len();
        return Err(format!("kernel {name} takes {} bytes of arguments, not {given}", kernel.kernarg_bytes));
    }
    Ok(())
}

/// The kernels may have been built for AVX2 and F16C, on another machine than this.
fn check_processor() -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    {
        let able = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("f16c")
            && std::arch::is_x86_feature_detected!("fma");
        if option_env!("HIP_FIBERS_NEEDS_V3") == Some("1") && !able {
            return Err(
                "hip-fibers' kernels were built for a processor with AVX2, FMA and F16C: build them here".into()
            );
        }
    }
    Ok(())
}
