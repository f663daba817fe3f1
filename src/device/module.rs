//! Code objects and launches.
//!
//! Owns: loaded modules, their functions, the shape of a launch and the checks before it.
//! Always true: a function keeps its module loaded; a kernel gets exactly as many argument bytes as its metadata says;
//! a launch allocates nothing.
//! Not here: which code object fits a device, and the metadata (`backend::hip::pack`).

use std::ffi::CString;
use std::sync::Arc;

use super::context::Context;
use super::stream::Stream;
use super::sys;
use crate::error::{Error, Result};

/// Workgroups, work-items of one, and LDS beside what the kernel declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Workgroups.
    pub grid: [u32; 3],
    /// Work-items a workgroup.
    pub block: [u32; 3],
    /// Bytes of dynamic LDS.
    pub dynamic_lds: u32,
}

impl Shape {
    /// One dimension, no dynamic LDS.
    pub fn linear(grid: u32, block: u32) -> Shape {
        Shape { grid: [grid, 1, 1], block: [block, 1, 1], dynamic_lds: 0 }
    }

    /// Refuses what the hardware would misread. On gfx1201 a y or z above 65,535 wraps silently (HARDWARE.md), and HIP
    /// counts work-items of a dimension in 32 bits.
    fn check(&self) -> Result<(), &'static str> {
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        if self.grid.contains(&0) || self.block.contains(&0) {
            return Err("no dimension may be 0");
        }
        if gy > 65_535 || gz > 65_535 {
            return Err("y and z of a grid end at 65,535: put the large dimension on x");
        }
        let threads = [bx, by, bz].iter().try_fold(1u32, |product, &n| product.checked_mul(n));
        if threads.is_none_or(|threads| threads > 1024) {
            return Err("a workgroup has at most 1,024 work-items");
        }
        match gx.checked_mul(bx) {
            Some(_) => Ok(()),
            None => Err("x has more than 4,294,967,295 work-items"),
        }
    }
}

/// A loaded code object.
pub struct Module {
    loaded: Arc<Loaded>,
}

struct Loaded {
    context: Context,
    handle: sys::hipModule_t,
}

// SAFETY: HIP's calls may come from any thread; which one does is the context's check.
unsafe impl Send for Loaded {}
// SAFETY: as above; the handle is never changed.
unsafe impl Sync for Loaded {}

/// Bytes of an ELF header, the least that HIP reads to learn how long an image is.
const ELF_HEADER: usize = 64;

impl Module {
    /// Loads a code object. It must be the device's: HIP refuses another, with advice in the error.
    pub fn load(context: &Context, image: &[u8]) -> Result<Module> {
        if image.len() < ELF_HEADER {
            return Err(Error::Device(format!("a code object of {} bytes is none: rebuild the kernels", image.len())));
        }
        // SAFETY: the image is a pack's, whose hash was checked; HIP reads what its headers describe.
        let handle = unsafe { context.calls()?.load_module(image) }?;
        Ok(Module { loaded: Arc::new(Loaded { context: context.clone(), handle }) })
    }

    /// A kernel by name. `argument_bytes` is the size of its argument struct by the code object's metadata.
    pub fn function(&self, name: &str, argument_bytes: usize) -> Result<Function> {
        let Loaded { context, handle } = &*self.loaded;
        let symbol = CString::new(name).map_err(|_| Error::invalid(format!("{name:?} is no name of a kernel")))?;
        // SAFETY: the module lives as long as the value behind the Arc.
        let function = unsafe { context.calls()?.function(*handle, &symbol) }?;
        Ok(Function { module: self.loaded.clone(), handle: function, name: name.into(), argument_bytes })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the last function of it is gone; HIP waits for running kernels.
        self.context.record(unsafe { self.context.api().unload_module(self.handle) });
    }
}

/// A kernel. Cheap to clone.
#[derive(Clone)]
pub struct Function {
    module: Arc<Loaded>,
    handle: sys::hipFunction_t,
    name: Arc<str>,
    argument_bytes: usize,
}

// SAFETY: HIP's calls may come from any thread; which one does is the context's check.
unsafe impl Send for Function {}
// SAFETY: as above; the handle is never changed.
unsafe impl Sync for Function {}

impl Function {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Bytes of its argument struct.
    pub fn argument_bytes(&self) -> usize {
        self.argument_bytes
    }

    pub(super) fn handle(&self) -> sys::hipFunction_t {
        self.handle
    }

    pub(super) fn check(&self, shape: &Shape, bytes: usize) -> Result<()> {
        if bytes != self.argument_bytes {
            return Err(Error::invalid(format!(
                "kernel {} takes {} bytes of arguments and was given {bytes}: the kernels and this program are not from \
                 the same build",
                self.name, self.argument_bytes
            )));
        }
        shape.check().map_err(|reason| Error::invalid(format!("kernel {}: {shape:?}: {reason}", self.name)))
    }

    /// Submits the kernel with its argument struct, which is laid out as hip/abi.h says (`repr(C)`) and holds device
    /// addresses that stay valid until the stream has passed.
    pub fn launch<T: Copy + 'static>(&self, stream: &Stream, shape: Shape, arguments: &T) -> Result<()> {
        self.check(&shape, size_of::<T>())?;
        let api = self.module.context.calls()?;
        let argument = std::ptr::from_ref(arguments).cast();
        // SAFETY: the handles live as long as their values, the size is what the kernel reads, and HIP copies it.
        Ok(unsafe { api.launch(self.handle, &shape, argument, stream.handle(), &self.name) }?)
    }

    /// The same with the struct's bytes.
    pub fn launch_bytes(&self, stream: &Stream, shape: Shape, arguments: &[u8]) -> Result<()> {
        self.check(&shape, arguments.len())?;
        let api = self.module.context.calls()?;
        let argument = arguments.as_ptr().cast();
        // SAFETY: as above.
        Ok(unsafe { api.launch(self.handle, &shape, argument, stream.handle(), &self.name) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_the_hardware_would_misread_are_refused() {
        assert_eq!(Shape::linear(65_536, 256).check(), Ok(()));
        for (grid, block, word) in [
            ([0, 1, 1], [64, 1, 1], "0"),
            ([1, 65_536, 1], [64, 1, 1], "65,535"),
            ([1, 1, 70_000], [64, 1, 1], "65,535"),
            ([1, 1, 1], [1025, 1, 1], "1,024"),
            ([1, 1, 1], [1 << 16, 1 << 16, 2], "1,024"),
            ([1 << 30, 1, 1], [256, 1, 1], "4,294,967,295"),
        ] {
            let refused = Shape { grid, block, dynamic_lds: 0 }.check().unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
