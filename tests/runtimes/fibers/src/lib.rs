//! A stand-in for `libamdhip64` that runs our own kernels as host code, a fiber per work-item.
//!
//! Owns: the executor behind HIP's calls ([`Fibers`]), the recording of launches, and their replay under a sanitizer
//! ([`replay`]). Always true: a launch that does what no GPU allows (divergent barriers and wave operations, LDS
//! overruns and reads of what nobody wrote, accesses outside device memory) is an error with kernel and line, never a
//! crash; races are found by [`replay`] with [`Sanitizer::Thread`], undefined behaviour with [`Sanitizer::Undefined`].
//! Not here: the C++ runtime (`runtime/`), HIP's calls (the crate `hip-facade`), machine code (`hip-rdna`).

mod library;
mod metadata;
mod record;
mod source;

use hip_facade::executor::{Executor, KernelInfo, Launch, Memory, Module};
pub use library::{Layout, Library};
pub use record::{RECORD_LIMIT, RECORD_VARIABLE, Sanitizer, replay, write_record};

hip_facade::export!(|| Fibers);

/// Why no kernel can run here, if so: what the build script found missing.
pub fn missing() -> Option<&'static str> {
    Some(env!("HIP_FIBERS_MISSING")).filter(|why| !why.is_empty())
}

/// Why nothing can be replayed here, if so.
pub fn sanitizers_missing() -> Option<&'static str> {
    Some(env!("HIP_FIBERS_SANITIZERS_MISSING")).filter(|why| !why.is_empty())
}

/// The executor: takes a code object for what it says of its kernels, and runs this crate's own build of them.
#[derive(Debug, Default, Clone, Copy)]
pub struct Fibers;

impl Executor for Fibers {
    fn load(&self, image: &[u8], arch: &str) -> Result<Box<dyn Module>, String> {
        let library = Library::open(Layout::of_arch(arch)?)?;
        let kernels = metadata::kernels(image)?;
        for kernel in &kernels {
            let host = library.kernel(&kernel.name)?;
            if host.kernarg_bytes != kernel.argument_bytes {
                return Err(format!(
                    "kernel {} takes {} bytes of arguments in the code object and {} in hip-fibers: build both from \
                     the same sources",
                    kernel.name, kernel.argument_bytes, host.kernarg_bytes
                ));
            }
        }
        Ok(Box::new(CodeObject { library, kernels }))
    }
}

/// A loaded code object: its metadata, and the library that has its kernels.
struct CodeObject {
    library: &'static Library,
    kernels: Vec<metadata::Kernel>,
}

impl Module for CodeObject {
    fn kernel(&self, name: &str) -> Option<KernelInfo> {
        self.kernels.iter().find(|kernel| kernel.name == name).map(|kernel| kernel.info.clone())
    }

    fn launch(&self, launch: &Launch<'_>, memory: &dyn Memory) -> Result<(), String> {
        if self.kernel(launch.kernel).is_none() {
            return Err(format!("the code object has no kernel {}", launch.kernel));
        }
        self.library.launch(launch, memory)
    }
}
