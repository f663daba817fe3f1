//! What the kernels in a pack are and need, for `hipfire inspect --kernels`.
//!
//! Owns: the listing. Always true: nothing is loaded onto a device. Not here: reading a pack (`backend::hip::pack`).

use std::path::Path;

use serde::Serialize;

use crate::backend::hip::manifest::Kernel;
use crate::backend::hip::pack::Pack;
use crate::error::Result;

/// A pack's kernels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelList {
    /// Where the pack came from: a path, or "embedded".
    pub pack: String,
    /// The compiler that built it; empty when there was none.
    pub compiler: String,
    /// How kernels with a proof were proven; empty where none has one.
    pub proven: String,
    /// One entry a kernel and architecture.
    pub kernels: Vec<KernelEntry>,
}

/// A kernel for one architecture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelEntry {
    /// Architecture.
    pub arch: String,
    /// Source under `hip/`.
    pub source: String,
    /// SHA-256 of the source with everything it includes.
    pub source_sha256: String,
    /// Waves that a SIMD can hold at once.
    pub waves_per_simd: u32,
    /// Registers, LDS and arguments.
    #[serde(flatten)]
    pub kernel: Kernel,
}

/// Lists the embedded pack's kernels, or a file's.
pub fn list_kernels(pack: Option<&Path>) -> Result<KernelList> {
    let name = pack.map_or("embedded".into(), |path| path.display().to_string());
    let pack = pack.map_or_else(Pack::embedded, Pack::open)?;
    let mut kernels = Vec::new();
    for object in &pack.manifest().objects {
        kernels.extend(object.kernels.iter().map(|kernel| KernelEntry {
            arch: object.arch.clone(),
            source: object.source.clone(),
            source_sha256: object.source_sha256.clone(),
            waves_per_simd: kernel.waves_per_simd(),
            kernel: kernel.clone(),
        }));
    }
    let manifest = pack.manifest();
    Ok(KernelList { pack: name, compiler: manifest.compiler.clone(), proven: manifest.proven.clone(), kernels })
}
