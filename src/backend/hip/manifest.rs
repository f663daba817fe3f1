//! What a kernel pack says of itself: `manifest.json`, the first file of the archive.
//!
//! Owns: the manifest's structures, the record of what was proven of an object's bytes (`hip/proven.json`), and the
//! occupancy that follows from a kernel's registers and LDS.
//! Always true: the build script writes with these very structures (it includes this file) what the run time reads.
//! Not here: the archive (`pack`), launching (`kernels`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The code objects of a pack, for every architecture it covers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The compiler's own version line; empty where none was found and the pack is empty.
    pub compiler: String,
    /// Flags that every source was compiled with.
    pub flags: String,
    /// How kernels with a proof were proven; empty where none has one.
    #[serde(default)]
    pub proven: String,
    /// One entry a source and architecture.
    pub objects: Vec<Object>,
}

impl Manifest {
    /// Kernels of an architecture that have a proof, and all of them.
    pub fn proven_of(&self, arch: &str) -> (usize, usize) {
        let kernels = || self.objects.iter().filter(|object| object.arch == arch).flat_map(|object| &object.kernels);
        (kernels().filter(|kernel| kernel.proof.is_some()).count(), kernels().count())
    }
}

/// What the ladder showed of a kernel: its machine code was executed and agreed with its oracle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Cases that it passed, under every schedule.
    pub cases: u32,
    /// The greatest error, in percent of its bound, rounded up; 0: bits as its oracle's.
    pub worst_percent: u32,
}

/// `hip/proven.json`: objects whose bytes were proven, kernel by kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proven {
    /// In what way.
    pub how: String,
    /// One entry an object.
    pub objects: Vec<ProvenObject>,
}

/// A proven object: the first four fields say how to make it again, the checksum that it is the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenObject {
    /// Architecture.
    pub arch: String,
    /// Source file under `hip/`.
    pub source: String,
    /// SHA-256 of the source with everything it includes.
    pub source_sha256: String,
    /// The compiler's own version line.
    pub compiler: String,
    /// SHA-256 of the object's bytes.
    pub sha256: String,
    /// By a kernel's name.
    pub kernels: BTreeMap<String, Proof>,
}

impl Proven {
    /// Gives an object's kernels the proofs that were recorded of the same bytes. Returns whether there were any.
    pub fn certify(&self, object: &mut Object) -> bool {
        let Some(record) = self.objects.iter().find(|record| record.sha256 == object.sha256) else { return false };
        for kernel in &mut object.kernels {
            kernel.proof = record.kernels.get(&kernel.name).cloned();
        }
        true
    }

    /// The record as JSON, a line an object.
    pub fn to_lines(&self) -> serde_json::Result<String> {
        let objects: Vec<String> = self.objects.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        Ok(format!("{{\"how\":{},\"objects\":[\n{}\n]}}\n", serde_json::to_string(&self.how)?, objects.join(",\n")))
    }
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
    /// What was proven of these very bytes; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
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
            proof: None,
        }
    }

    #[test]
    fn a_proof_belongs_to_the_very_bytes_and_to_a_kernel_by_its_name() {
        let object = |sha256: &str| Object {
            arch: "gfx1151".into(),
            source: "k.hip".into(),
            source_sha256: "s".into(),
            path: "gfx1151/k.co".into(),
            sha256: sha256.into(),
            kernels: vec![kernel(32, 0, 256), Kernel { name: "new".into(), ..kernel(32, 0, 256) }],
        };
        let proof = Proof { cases: 3, worst_percent: 42 };
        let record = ProvenObject {
            sha256: "a".into(),
            kernels: [("k".to_string(), proof.clone())].into(),
            ..ProvenObject::default()
        };
        let proven = Proven { how: "run".into(), objects: vec![record] };
        let (mut same, mut other) = (object("a"), object("b"));
        assert!(proven.certify(&mut same) && !proven.certify(&mut other));
        let manifest = Manifest { objects: vec![same, other], ..Manifest::default() };
        assert_eq!(manifest.objects[0].kernels[0].proof, Some(proof));
        assert_eq!(manifest.proven_of("gfx1151"), (1, 4));
        let text = proven.to_lines().unwrap();
        assert_eq!(serde_json::from_str::<Proven>(&text).unwrap(), proven);
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
