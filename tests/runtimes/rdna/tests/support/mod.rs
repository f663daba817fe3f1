//! What the tests share: compiling kernels, memory with bounds, and a launch in one line.
//!
//! Always true: code objects are compiled once a test process and kept in memory.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod decoded;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

use hip_facade::executor::{Executor, Launch, Memory, Module};
use hip_rdna::Rdna;

/// Both targets.
pub const TARGETS: [&str; 2] = ["gfx1151", "gfx1201"];

/// The kernels that ship.
pub fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../hip")
}

/// The tests' own kernels.
pub fn probe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes").join(name)
}

/// A code object of a source file, compiled as the product compiles it.
pub fn compile(source: &Path, target: &str) -> Vec<u8> {
    type Done = HashMap<(PathBuf, String), Vec<u8>>;
    static DONE: LazyLock<Mutex<Done>> = LazyLock::new(Mutex::default);
    let key = (source.to_path_buf(), target.to_owned());
    if let Some(done) = DONE.lock().unwrap().get(&key) {
        return done.clone();
    }
    let out = tempfile::NamedTempFile::new().unwrap();
    let result = Command::new("clang-22")
        .args(["-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-nostdinc"])
        .args(["-std=c++20", "-O3", "-ffp-contract=off", &format!("--offload-arch={target}")])
        .arg(format!("-I{}", shipped().display()))
        .arg(source)
        .arg("-o")
        .arg(out.path())
        .output()
        .unwrap();
    assert!(result.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&result.stderr));
    let image = std::fs::read(out.path()).unwrap();
    DONE.lock().unwrap().insert(key, image.clone());
    image
}

/// Buffers that a kernel may touch, each alone in the address space.
#[derive(Default)]
pub struct Buffers(Mutex<Vec<(u64, u64)>>);

impl Buffers {
    /// Makes a slice's memory accessible; its address is what the kernel gets.
    pub fn add<T>(&self, slice: &mut [T]) -> u64 {
        let start = slice.as_mut_ptr() as u64;
        self.0.lock().unwrap().push((start, start + std::mem::size_of_val(slice) as u64));
        start
    }
}

impl Memory for Buffers {
    fn find(&self, address: u64) -> Option<(u64, u64)> {
        self.0.lock().unwrap().iter().find(|r| address >= r.0 && address < r.1).copied()
    }
    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges = self.0.lock().unwrap().clone();
        ranges.sort_unstable();
        ranges
    }
}

/// The argument segment, field by field in the order of the struct.
#[derive(Default)]
pub struct Arguments(pub Vec<u8>);

impl Arguments {
    /// A pointer or 64-bit number, aligned as C does.
    pub fn long(mut self, x: u64) -> Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.extend(x.to_le_bytes());
        self
    }
    /// A 32-bit number.
    pub fn word(mut self, x: u32) -> Self {
        self.0.extend(x.to_le_bytes());
        self
    }
    /// A float.
    pub fn float(self, x: f32) -> Self {
        self.word(x.to_bits())
    }
    /// Padded to the struct's own alignment of 8.
    pub fn bytes(mut self) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0
    }
}

/// A module on a new executor.
pub fn load(source: &Path, target: &str) -> Box<dyn Module> {
    Rdna::new(1).load(&compile(source, target), target).unwrap()
}

/// Launches a one-dimensional grid.
pub fn launch(
    module: &dyn Module,
    kernel: &str,
    grid: u32,
    block: u32,
    arguments: &[u8],
    memory: &Buffers,
    schedule: u64,
) -> Result<(), String> {
    let launch = Launch { kernel, grid: [grid, 1, 1], block: [block, 1, 1], dynamic_lds: 0, arguments, schedule };
    module.launch(&launch, memory)
}

/// Numbers in [-1, 1) that do not change between runs.
pub fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    (0..count)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}
