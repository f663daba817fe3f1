//! Builds a kernel pack for the NVIDIA stand-in: the sources of `hip/` as PTX, under the names that the embedded pack
//! gives to gfx1201.
//!
//! `cargo run --release --example ptx_pack OUT.tar.gz`, then on the machine with the GPU
//! `HIPFIRE_HIP_LIBRARY=libhip_nvidia.so hipfire doctor --self-test --kernel-pack OUT.tar.gz`.
//! Always true: the list of kernels and their argument sizes are those of the embedded pack. Not here: a product's
//! interface; nothing but the lent machines reads this pack.

#[path = "../build/pack.rs"]
mod archive;
use hipfire::backend::hip::manifest;

use std::error::Error;
use std::process::Command;

use hipfire::backend::hip::pack::Pack;
use manifest::Manifest;
use sha2::{Digest, Sha256};

/// The architecture that the stand-in imitates.
const ARCH: &str = "gfx1201";
const FLAGS: [&str; 14] = [
    "-x",
    "cuda",
    "--cuda-device-only",
    "--cuda-gpu-arch=sm_90",
    "-nocudainc",
    "-nocudalib",
    "-nostdinc",
    "-std=c++20",
    "-O3",
    "-ffp-contract=off",
    "--cuda-feature=+ptx80",
    "-Wno-unknown-cuda-version",
    "-Ihip",
    "-S",
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args().nth(1).ok_or("usage: ptx_pack OUT.tar.gz")?;
    let clang = std::env::var("HIPFIRE_CLANG").unwrap_or_else(|_| "clang-22".into());
    let embedded = Pack::embedded()?;
    let mut made = Manifest {
        compiler: embedded.manifest().compiler.clone(),
        flags: FLAGS.join(" "),
        objects: embedded.manifest().objects.iter().filter(|object| object.arch == ARCH).cloned().collect(),
        // What was proven of gfx1201's bytes says nothing about these.
        ..Manifest::default()
    };
    let mut images = Vec::new();
    for object in &mut made.objects {
        let output =
            Command::new(&clang).args(FLAGS).arg(format!("hip/{}", object.source)).args(["-o", "-"]).output()?;
        if !output.status.success() {
            return Err(format!("{}:\n{}", object.source, String::from_utf8_lossy(&output.stderr)).into());
        }
        // HIP passes no length: the text ends with a zero byte.
        let image = [output.stdout, vec![0]].concat();
        object.kernels.iter_mut().for_each(|kernel| kernel.proof = None);
        object.path = object.path.replace(".co", ".ptx");
        object.sha256 = Sha256::digest(&image).iter().map(|byte| format!("{byte:02x}")).collect();
        images.push(image);
    }
    std::fs::write(&out, archive::archive(&made, &images)?)?;
    println!("{out}: {} objects", images.len());
    Ok(())
}
