//! Which device runs the model.
//!
//! Owns: what `auto` means, and the sentence when nothing else than the CPU is there.
//! Always true: a device that the user named is taken or the load fails; `auto` takes the first GPU that has kernels.
//! Not here: what is wrong with a device in detail (`doctor`).

use super::load::LoadOptions;
use crate::backend::hip::Gpu;
use crate::config::Device;
use crate::error::{Error, Result};

/// What runs the model.
pub enum Chosen {
    /// The host, and why, where the choice was left to the program.
    Cpu(Option<String>),
    /// A GPU, in use by the calling thread.
    Gpu(Box<Gpu>),
}

/// Takes the device that the options ask for.
///
/// # Errors
/// `Device`, if a GPU was asked for that cannot be had.
pub fn choose(options: &LoadOptions) -> Result<Chosen> {
    let open = |number: usize| {
        let gpu = Gpu::open(i32::try_from(number).unwrap_or(i32::MAX), options.kernel_pack.as_deref())?;
        Ok(Box::new(gpu))
    };
    match options.device {
        Device::Cpu => Ok(Chosen::Cpu(None)),
        Device::Hip(number) => open(number).map(Chosen::Gpu).map_err(|error| match error {
            Error::Device(message) => Error::Device(format!("--device hip:{number} cannot be had: {message}")),
            other => other,
        }),
        Device::Auto => match open(0) {
            Ok(gpu) => {
                tracing::info!("running on {} ({})", gpu.context().properties().name, gpu.arch());
                Ok(Chosen::Gpu(gpu))
            }
            Err(error) => {
                tracing::debug!("running on the CPU: {error}");
                // The error names files of this machine, and everyone may read /health.
                Ok(Chosen::Cpu(Some("the CPU runs the model, no GPU can be had: `hipfire doctor` says why".into())))
            }
        },
    }
}
