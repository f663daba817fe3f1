//! Kernel packs: the code objects of every architecture in one archive, embedded in the binary or given as a file.
//!
//! Owns: reading and checking an archive, finding the objects for a device. Always true: an object that is handed out
//! has the checksum its manifest promised. Not here: building (`build/`), loading onto a device (`kernels`).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::manifest::{Manifest, Object};
use crate::error::{Error, Result};

/// What the build script made of `hip/`; without a compiler it lists nothing.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.tar.gz"));

/// The most an archive may unpack to: kernels are small, and a wrong file should not fill the memory.
const MAX_BYTES: u64 = 256 << 20;

/// An archive in memory.
#[derive(Debug, Clone)]
pub struct Pack {
    manifest: Manifest,
    objects: BTreeMap<String, Vec<u8>>,
    path: Option<PathBuf>,
}

impl Pack {
    /// The pack inside the binary.
    pub fn embedded() -> Result<Pack> {
        Pack::read(EMBEDDED, None)
    }

    /// A pack from a file (`--kernel-pack`).
    pub fn open(path: &Path) -> Result<Pack> {
        let bytes = std::fs::read(path).map_err(Error::io(format!("reading the kernel pack {}", path.display())))?;
        Pack::read(&bytes, Some(path.to_path_buf()))
    }

    fn read(bytes: &[u8], path: Option<PathBuf>) -> Result<Pack> {
        let name = path.as_ref().map_or("the embedded kernel pack".into(), |p| format!("kernel pack {}", p.display()));
        let broken = |reason: String| Error::invalid(format!("{name} is not usable: {reason}"));
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes).take(MAX_BYTES));
        let mut files = BTreeMap::new();
        for entry in archive.entries().map_err(|e| broken(e.to_string()))? {
            let mut entry = entry.map_err(|e| broken(e.to_string()))?;
            let path = entry.path().map_err(|e| broken(e.to_string()))?.to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(|e| broken(e.to_string()))?;
            files.insert(path, content);
        }
        let manifest = files.remove("manifest.json").ok_or_else(|| broken("it has no manifest.json".into()))?;
        let manifest: Manifest =
            serde_json::from_slice(&manifest).map_err(|e| broken(format!("manifest.json: {e}")))?;
        for object in &manifest.objects {
            let bytes = files.get(&object.path).ok_or_else(|| broken(format!("{} is missing", object.path)))?;
            let sum = format!("{:x}", Sha256::digest(bytes));
            if sum != object.sha256 {
                return Err(broken(format!("{} has another checksum than its manifest says", object.path)));
            }
        }
        Ok(Pack { manifest, objects: files, path })
    }

    /// What the pack says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The file it came from; `None` for the embedded one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Architectures with objects, sorted.
    pub fn architectures(&self) -> Vec<&str> {
        let mut archs: Vec<&str> = self.manifest.objects.iter().map(|object| object.arch.as_str()).collect();
        archs.sort_unstable();
        archs.dedup();
        archs
    }

    /// Which of the pack's architectures a device runs: its own, or the generic one of its family.
    pub fn match_architecture(&self, device: &str) -> Option<&str> {
        let generic = generic(device);
        let archs = self.architectures();
        [Some(device), generic].into_iter().flatten().find_map(|name| archs.iter().copied().find(|arch| *arch == name))
    }

    /// Objects for an architecture of the pack, with their bytes.
    pub fn objects(&self, arch: &str) -> impl Iterator<Item = (&Object, &[u8])> {
        self.manifest
            .objects
            .iter()
            .filter(move |object| object.arch == arch)
            .filter_map(|object| self.objects.get(&object.path).map(|bytes| (object, bytes.as_slice())))
    }
}

/// The generic target that runs on a device (LLVM's AMDGPU usage guide, generic processors).
fn generic(device: &str) -> Option<&'static str> {
    match device {
        "gfx1100" | "gfx1101" | "gfx1102" | "gfx1103" | "gfx1150" | "gfx1151" | "gfx1152" | "gfx1153" => {
            Some("gfx11-generic")
        }
        "gfx1200" | "gfx1201" => Some("gfx12-generic"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_pack_is_whole() {
        let pack = Pack::embedded().unwrap();
        let expected: &[&str] = if cfg!(hipfire_kernels) { &["gfx1151", "gfx1201"] } else { &[] };
        assert!(expected.iter().all(|arch| pack.architectures().contains(arch)), "{:?}", pack.architectures());
        for arch in pack.architectures() {
            assert!(pack.objects(arch).all(|(object, bytes)| !object.kernels.is_empty() && !bytes.is_empty()));
        }
    }

    #[test]
    fn a_damaged_pack_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broken.tar.gz");
        for bytes in [&b""[..], b"not gzip", &EMBEDDED[..EMBEDDED.len() / 2]] {
            std::fs::write(&path, bytes).unwrap();
            let message = Pack::open(&path).unwrap_err().to_string();
            assert!(message.contains("broken.tar.gz"), "{message}");
        }
    }

    #[test]
    fn a_device_without_objects_of_its_own_takes_its_family_s() {
        let mut pack = Pack::embedded().unwrap();
        let object = |arch: &str| Object {
            arch: arch.into(),
            source: "norm.hip".into(),
            source_sha256: String::new(),
            path: String::new(),
            sha256: String::new(),
            kernels: Vec::new(),
        };
        pack.manifest.objects = vec![object("gfx1151"), object("gfx11-generic")];
        assert_eq!(pack.match_architecture("gfx1151"), Some("gfx1151"));
        assert_eq!(pack.match_architecture("gfx1102"), Some("gfx11-generic"));
        assert_eq!(pack.match_architecture("gfx1201"), None);
        assert_eq!(pack.match_architecture("gfx90a"), None);
    }
}
