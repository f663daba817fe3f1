//! Builds the GPU kernels of `hip/` into a pack that the binary embeds.
//!
//! Owns: which architectures are built, and what happens without a compiler (the crate builds without GPU code and
//! says so once). Always true: the pack depends on the sources, the flags and the compiler alone, byte for byte.
//! Not here: finding the compiler (`compiler`), running it (`compile`), reading its output (`metadata`).

mod compile;
mod compiler;
#[path = "../src/backend/hip/manifest.rs"]
#[allow(dead_code)]
mod manifest;
mod metadata;
mod pack;

use std::error::Error;
use std::path::PathBuf;

/// The two targets: a kernel that does not compile for them fails the build.
const TARGETS: [&str; 2] = ["gfx1151", "gfx1201"];
/// What their relatives run (`Pack::match_architecture`); left out where the compiler does not know them.
const RELATIVES: [&str; 2] = ["gfx11-generic", "gfx12-generic"];
/// Environment variable with a comma-separated list of architectures to build instead of all.
const ARCHS_VARIABLE: &str = "HIPFIRE_KERNEL_ARCHS";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-check-cfg=cfg(hipfire_kernels, has_objdump)");
    if std::process::Command::new("llvm-objdump-22").arg("--version").output().is_ok_and(|o| o.status.success()) {
        println!("cargo::rustc-cfg=has_objdump");
    }
    for path in ["hip", "build", "src/backend/hip/manifest.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for variable in [compiler::VARIABLE, ARCHS_VARIABLE, "ROCM_PATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let pack = match compiler::find()? {
        Ok(compiler) => {
            println!("cargo::rustc-cfg=hipfire_kernels");
            let named = std::env::var(ARCHS_VARIABLE).ok();
            let required = named.as_deref().map_or(TARGETS.to_vec(), |list| list.split(',').collect());
            let relatives = if named.is_some() { &[][..] } else { &RELATIVES[..] };
            compile::all(&compiler, "hip".as_ref(), &out, &required, relatives)?
        }
        Err(reason) => {
            println!("cargo::warning=building without GPU kernels: {reason}");
            (manifest::Manifest::default(), Vec::new())
        }
    };
    std::fs::write(out.join("kernels.tar.gz"), pack::archive(&pack.0, &pack.1)?)?;
    Ok(())
}
