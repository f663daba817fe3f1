//! The seam between HIP's calls and whoever executes a kernel.

/// Loads code objects.
pub trait Executor: Send + Sync {
    /// Takes the image that `hipModuleLoadData` was given: an AMDGPU ELF for `arch` (`gfx1151`, `gfx1201`). An error
    /// is a sentence; the host sees `hipErrorInvalidImage` or `hipErrorNoBinaryForGpu`.
    fn load(&self, image: &[u8], arch: &str) -> Result<Box<dyn Module>, String>;

    /// What was counted so far, as JSON: a list with an entry a kernel. An executor that counts nothing has none.
    fn profile(&self) -> String {
        "[]".to_owned()
    }
}

/// A loaded code object.
pub trait Module: Send + Sync {
    /// What the metadata says of a kernel.
    fn kernel(&self, name: &str) -> Option<KernelInfo>;
    /// Runs a whole grid. An error is a sentence that names kernel, workgroup, lane, program counter or source line;
    /// the host sees `hipErrorLaunchFailure` and the context is lost, as on a GPU.
    fn launch(&self, launch: &Launch<'_>, memory: &dyn Memory) -> Result<(), String>;
}

/// A kernel's facts from its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelInfo {
    /// Bytes of the argument segment.
    pub kernarg_bytes: usize,
    /// Work-items a workgroup may have.
    pub max_threads: u32,
    /// Static LDS in bytes.
    pub lds_bytes: u32,
    /// Vector registers.
    pub vgprs: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// Scratch bytes a lane.
    pub scratch_bytes: u32,
}

/// One launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Kernel name.
    pub kernel: &'a str,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Work-items a workgroup.
    pub block: [u32; 3],
    /// LDS asked for beside the static one, in bytes.
    pub dynamic_lds: u32,
    /// The argument segment, laid out as the metadata says.
    pub arguments: &'a [u8],
    /// Which order workgroups, waves and lanes are run in: any value is a legal schedule, 0 the natural one.
    pub schedule: u64,
}

/// The live allocations of the device.
pub trait Memory: Send + Sync {
    /// The accessible range that holds this address: `[start, end)`.
    fn find(&self, address: u64) -> Option<(u64, u64)>;
    /// Every accessible range, ascending.
    fn ranges(&self) -> Vec<(u64, u64)>;
}
