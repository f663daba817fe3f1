//! The kernels of a pack on a device.
//!
//! Owns: which objects a device gets, and a kernel by its name. Always true: a kernel's argument struct is as long as
//! the code object's metadata says, or the launch is refused; a workgroup has the size the kernel was built for.
//! Not here: what a kernel computes (`hip/`), in which order they run (the operations beside this file).

use std::collections::HashMap;

use super::pack::Pack;
use crate::device::{Context, Function, Module, Shape, Stream};
use crate::error::{Error, Result};

/// Loaded kernels.
pub struct Kernels {
    arch: String,
    functions: HashMap<String, (Function, u32)>,
}

impl Kernels {
    /// Loads all kernels of the pack for the context's device.
    pub fn load(context: &Context, pack: &Pack) -> Result<Kernels> {
        let device = &context.properties().arch;
        let Some(arch) = pack.match_architecture(device) else {
            let name = pack.path().map_or("embedded".into(), |path| path.display().to_string());
            return Err(Error::Device(match pack.architectures()[..] {
                [] => format!(
                    "this program was built without GPU kernels: build it where clang-22 and lld-22 (or ROCm) are \
                     installed, or give a pack with --kernel-pack (pack: {name})"
                ),
                ref archs => format!(
                    "the kernel pack ({name}) has kernels for {} and none for this device, {device}",
                    archs.join(", ")
                ),
            }));
        };
        let mut functions = HashMap::new();
        for (object, image) in pack.objects(arch) {
            let module = Module::load(context, image)?;
            for kernel in &object.kernels {
                let function = module.function(&kernel.name, kernel.kernarg_bytes as usize)?;
                functions.insert(kernel.name.clone(), (function, kernel.threads));
            }
        }
        Ok(Kernels { arch: arch.to_string(), functions })
    }

    /// The pack's architecture that was loaded.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// Whether there is a kernel of this name.
    pub fn has(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// A kernel, to keep.
    pub fn function(&self, name: &str) -> Result<&Function> {
        Ok(&self.find(name)?.0)
    }

    /// Submits `grid` workgroups of a kernel with its argument struct.
    pub fn launch<T: bytemuck::Pod>(&self, stream: &Stream, name: &str, grid: u32, arguments: &T) -> Result<()> {
        let (function, threads) = self.find(name)?;
        function.launch(stream, Shape::linear(grid, *threads), arguments)
    }

    fn find(&self, name: &str) -> Result<&(Function, u32)> {
        let missing = || Error::Device(format!("the kernel pack has no kernel {name} for {}: rebuild it", self.arch));
        self.functions.get(name).ok_or_else(missing)
    }
}
