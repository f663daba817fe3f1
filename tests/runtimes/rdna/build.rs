//! Names the library as HIP's, and says whether this machine can compile kernels and disassemble them: tests that need
//! either are ignored with a reason where it is missing.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so.7");
    println!("cargo:rustc-check-cfg=cfg(has_clang, has_objdump)");
    let runs = |tool: &str| Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success());
    if runs("clang-22") {
        println!("cargo:rustc-cfg=has_clang");
    }
    if runs("llvm-objdump-22") {
        println!("cargo:rustc-cfg=has_objdump");
    }
}
