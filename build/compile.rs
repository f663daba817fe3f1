//! Compiles every `hip/*.hip` for every architecture, in parallel, and only what changed.
//!
//! Always true: an object's name in the cache is the hash of all that it was made from, so a changed header, flag or
//! compiler misses, and nothing stale is ever used.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use crate::compiler::Compiler;
use crate::manifest::{Manifest, Object, Proven};
use crate::metadata;

/// No headers or device libraries but our own; sums keep the order they are written in; every warning is an error; no
/// unit identifier, which would put paths into the object's bytes.
const FLAGS: [&str; 17] = [
    "-x",
    "hip",
    "--offload-device-only",
    "--no-gpu-bundle-output",
    "-nogpuinc",
    "-nogpulib",
    "-nostdinc",
    "-std=c++20",
    "-O3",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-function",
    "-Wno-unused-command-line-argument",
    "-Ihip",
    "-fuse-cuid=none",
];

/// One compilation: a source for an architecture.
struct Job<'a> {
    source: &'a Path,
    arch: &'a str,
    required: bool,
    /// Hash of the source and what it includes.
    hash: String,
}

/// A manifest, and each object's bytes in its order.
pub type Built = (Manifest, Vec<Vec<u8>>);

/// Builds all sources of `folder`; `required` architectures must work, `relatives` may be unknown to the compiler.
/// Objects that the folder's record of proofs knows by their bytes take theirs.
pub fn all(
    compiler: &Compiler,
    folder: &Path,
    out: &Path,
    required: &[&str],
    relatives: &[&str],
) -> Result<Built, Box<dyn Error>> {
    let mut sources: Vec<PathBuf> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "hip"))
        .collect();
    sources.sort();
    let mut jobs = Vec::new();
    for source in &sources {
        let hash = hash_with_includes(folder, source)?;
        for (archs, required) in [(required, true), (relatives, false)] {
            jobs.extend(archs.iter().map(|arch| Job { source, arch, required, hash: hash.clone() }));
        }
    }
    let proven = folder.join("proven.json");
    let proven: Proven = match std::fs::read(&proven) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", proven.display()))?,
        Err(_) => Proven::default(),
    };
    let cache = out.join("objects");
    std::fs::create_dir_all(&cache)?;
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = compile(compiler, job, &cache);
                    let key = (job.arch.to_string(), job.source.to_path_buf());
                    results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(key, (job, result));
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let failed: BTreeSet<String> =
        results.iter().filter(|(_, (_, result))| result.is_err()).map(|((arch, _), _)| arch.clone()).collect();
    let mut manifest =
        Manifest { compiler: compiler.version.clone(), flags: FLAGS[7..].join(" "), ..Manifest::default() };
    let mut objects = Vec::new();
    for ((arch, source), (job, result)) in results {
        match result {
            Err(text) if job.required => return Err(format!("{} for {arch}:\n{text}", source.display()).into()),
            _ if failed.contains(&arch) => continue,
            Ok(bytes) => {
                let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let kernels = metadata::kernels(&bytes).map_err(|e| format!("{name} for {arch}: {e}"))?;
                let mut object = Object {
                    path: format!("{arch}/{}", name.replace(".hip", ".co")),
                    source: name,
                    source_sha256: job.hash.clone(),
                    sha256: hex(&Sha256::digest(&bytes)),
                    arch,
                    kernels,
                };
                if proven.certify(&mut object) {
                    manifest.proven.clone_from(&proven.how);
                }
                manifest.objects.push(object);
                objects.push(bytes);
            }
            Err(_) => {}
        }
    }
    for arch in failed {
        println!("cargo::warning=kernels for {arch} are left out: {} cannot build them", compiler.version);
    }
    Ok((manifest, objects))
}

/// The object's bytes, from the cache where they are there; the compiler's messages as an error.
fn compile(compiler: &Compiler, job: &Job<'_>, cache: &Path) -> Result<Vec<u8>, String> {
    let mut key = Sha256::new();
    key.update(format!("{}\n{}\n{}\n{:?}", job.hash, job.arch, compiler.version, FLAGS));
    let object = cache.join(hex(&key.finalize()));
    if let Ok(bytes) = std::fs::read(&object) {
        return Ok(bytes);
    }
    let partial = object.with_extension("partial");
    let output = Command::new(&compiler.program)
        .args(FLAGS)
        .arg(format!("--offload-arch={}", job.arch))
        .arg(job.source)
        .arg("-o")
        .arg(&partial)
        .output()
        .map_err(|e| format!("{} could not be started: {e}", compiler.program.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let bytes = std::fs::read(&partial).map_err(|e| e.to_string())?;
    std::fs::rename(&partial, &object).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// SHA-256 over a source and every file that it includes, directly or not, each with its name.
fn hash_with_includes(folder: &Path, source: &Path) -> Result<String, Box<dyn Error>> {
    let mut hash = Sha256::new();
    let mut waiting = vec![source.to_path_buf()];
    let mut seen = BTreeMap::new();
    while let Some(path) = waiting.pop() {
        if seen.contains_key(&path) {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        for line in text.lines().map(str::trim_start).filter(|line| line.starts_with('#')) {
            let line = line.trim_start_matches('#').trim_start();
            let Some(name) = line.strip_prefix("include \"").and_then(|rest| rest.split('"').next()) else { continue };
            let beside = path.parent().unwrap_or(folder).join(name);
            waiting.push(if beside.is_file() { beside } else { folder.join(name) });
        }
        seen.insert(path, text);
    }
    for (path, text) in seen {
        hash.update(format!("{}\n{}\n", path.display(), text.len()));
        hash.update(text);
    }
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
