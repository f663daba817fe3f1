//! `hip-rdna`: executes the machine code of gfx1151 and gfx1201 on the host, instruction by instruction.
//!
//! Owns: an `Executor` for the facade's stand-in of libamdhip64. Always true: the code that runs is the code that ships;
//! every access is checked; registers and LDS start poisoned; a fault names kernel, workgroup, wave, lane, address of the
//! instruction and its mnemonic. Not here: HIP's calls and memory (hip-facade), time (nothing here predicts it).
//!
//! From the image to a result: `object` reads the ELF, `decode` turns words into `inst::Inst` by way of `isa` (opcode to
//! mnemonic), `semantics` gives each mnemonic its line, `run` takes waves through them, `profile` counts.

// Lanes are addressed by number in several arrays at once; iterators would hide which lane is which.
#![allow(clippy::needless_range_loop)]
// `a & b | c << d` is how the instruction set's own description writes bit fields.
#![allow(clippy::precedence)]

pub mod decode;
pub mod float;
pub mod inst;
pub mod isa;
pub mod memory;
pub mod object;
mod permute;
pub mod profile;
pub mod run;
pub mod semantics;
mod value;
pub mod wave;

use std::sync::{Arc, Mutex, PoisonError};

use hip_facade::executor::{Executor, KernelInfo, Launch, Memory, Module};
use profile::Profile;

// HIP's symbols and the tests' own (`standin_*`), over this executor.
hip_facade::export!(Rdna::default);

/// The executor.
pub struct Rdna {
    profile: Arc<Mutex<Profile>>,
    workers: usize,
    step_limit: u64,
}

impl Default for Rdna {
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Rdna {
    /// An executor whose launches use up to `workers` threads.
    pub fn new(workers: usize) -> Self {
        Self { profile: Arc::default(), workers, step_limit: run::STEP_LIMIT }
    }

    /// Stops a wave after this many instructions.
    #[must_use]
    pub fn with_step_limit(mut self, steps: u64) -> Self {
        self.step_limit = steps;
        self
    }

    /// Wave-instructions that a kernel has executed so far.
    pub fn instructions(&self, kernel: &str) -> u64 {
        self.profile.lock().unwrap_or_else(PoisonError::into_inner).instructions(kernel)
    }
}

impl Executor for Rdna {
    fn load(&self, image: &[u8], arch: &str) -> Result<Box<dyn Module>, String> {
        let code = object::load(image, arch)?;
        Ok(Box::new(Loaded {
            code,
            profile: Arc::clone(&self.profile),
            workers: self.workers,
            step_limit: self.step_limit,
        }))
    }

    fn profile(&self) -> String {
        self.profile.lock().unwrap_or_else(PoisonError::into_inner).json()
    }
}

struct Loaded {
    code: object::Code,
    profile: Arc<Mutex<Profile>>,
    workers: usize,
    step_limit: u64,
}

impl Module for Loaded {
    fn kernel(&self, name: &str) -> Option<KernelInfo> {
        self.code.kernels.get(name).map(|k| k.info.clone())
    }

    fn launch(&self, launch: &Launch<'_>, memory: &dyn Memory) -> Result<(), String> {
        let (counters, groups, waves) = run::grid(&self.code, launch, memory, self.workers, self.step_limit)?;
        let mut profile = self.profile.lock().unwrap_or_else(PoisonError::into_inner);
        profile.add(&self.code.arch, launch.kernel, &self.code.program.insts, groups, waves, &counters);
        Ok(())
    }
}
