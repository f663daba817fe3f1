//! What a kernel pack says of itself: `manifest.json`, the first file of the archive.
//!
//! Owns: the manifest's structures and the occupancy that follows from a kernel's registers and LDS.
//! Always true: the build script writes with these very structures (it includes this file) what the run time reads.
//! Not here: the archive (`pack`), launching (`kernels`).

use serde::{Deserialize, Serialize};

/// The code objects of a pack, for every architecture it covers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The compiler's own version line; empty where none was found and the pack is empty.
    pub compiler: String,
    /// Flags that every source was compiled with.
    pub flags: String,
    /// One entry a source and architecture.
    pub objects: Vec<Object>,
}

/// One code object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// `gfx1151`, `gfx12-generic`, …
    pub arch: String,
    /// Source file under `hip/`.
    pub source: String,
    /// SHA-256 of the source with everything it includes.
    pub source_sha256: String,
    /// The object's path in the archive.
    pub path: String,
    /// SHA-256 of the object's bytes.
    pub sha256: String,
    /// Kernels inside, in the order of their names.
    pub kernels: Vec<Kernel>,
}

/// A kernel's facts, from the code object's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its symbol.
    pub name: String,
    /// Work-items of its workgroup.
    pub threads: u32,
    /// Bytes of its argument struct.
    pub kernarg_bytes: u32,
    /// Vector registers a lane.
    pub vgprs: u32,
    /// Scalar registers a wave.
    pub sgprs: u32,
    /// Static LDS a workgroup, in bytes.
    pub lds_bytes: u32,
    /// Scratch a lane, in bytes: memory that registers were spilled to or arrays were put in.
    pub scratch_bytes: u32,
    /// Vector registers spilled.
    pub vgpr_spills: u32,
    /// Scalar registers spilled.
    pub sgpr_spills: u32,
}

/// Vector registers of a SIMD lane, and the unit they are handed out in (gfx1151 and gfx1201, HARDWARE.md).
const VGPRS: u32 = 1536;
const VGPR_UNIT: u32 = 24;
/// Waves a SIMD holds at most.
const MAX_WAVES: u32 = 16;
/// A workgroup runs on a WGP: four SIMDs that share this much LDS.
const WGP_LDS: u32 = 128 << 10;
const WGP_SIMDS: u32 = 4;

impl Kernel {
    /// Waves that can be resident on a SIMD at once, limited by vector registers and by LDS.
    pub fn waves_per_simd(&self) -> u32 {
        let by_registers = (VGPRS / self.vgprs.max(1).next_multiple_of(VGPR_UNIT)).min(MAX_WAVES);
        let waves = self.threads.div_ceil(32);
        let workgroups = WGP_LDS.checked_div(self.lds_bytes).unwrap_or(u32::MAX).min(MAX_WAVES * WGP_SIMDS);
        by_registers.min((workgroups * waves / WGP_SIMDS).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(vgprs: u32, lds_bytes: u32, threads: u32) -> Kernel {
        Kernel {
            name: "k".into(),
            threads,
            kernarg_bytes: 8,
            vgprs,
            sgprs: 16,
            lds_bytes,
            scratch_bytes: 0,
            vgpr_spills: 0,
            sgpr_spills: 0,
        }
    }

    #[test]
    fn waves_follow_the_published_table_of_registers() {
        let table = [(96, 16), (120, 12), (144, 10), (168, 9), (192, 8), (216, 7), (240, 6), (256, 5)];
        for (vgprs, waves) in table {
            assert_eq!(kernel(vgprs, 0, 256).waves_per_simd(), waves, "{vgprs} registers");
        }
    }

    #[test]
    fn lds_limits_waves_too() {
        // Two workgroups of 8 waves on the four SIMDs of a WGP.
        assert_eq!(kernel(32, 64 << 10, 256).waves_per_simd(), 4);
        assert_eq!(kernel(32, 64 << 10, 32).waves_per_simd(), 1);
    }
}
