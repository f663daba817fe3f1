//! Finds a clang that can build for AMD GPUs without ROCm's headers.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable that names the compiler.
pub const VARIABLE: &str = "HIPFIRE_CLANG";
/// The first release whose AMDGPU back end knows every target.
const OLDEST: u32 = 19;
/// Names that distributions give their versions, newest first; then whatever `clang` is.
const NAMES: [&str; 7] = ["clang-24", "clang-23", "clang-22", "clang-21", "clang-20", "clang-19", "clang"];

/// A compiler that was asked for its version.
pub struct Compiler {
    /// Its path or name.
    pub program: PathBuf,
    /// The first line of `--version`.
    pub version: String,
}

/// The first suitable compiler, or why there is none. An outer error is a compiler that the user named and that does
/// not do.
pub fn find() -> Result<Result<Compiler, String>, Box<dyn Error>> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        let compiler = ask(Path::new(&named)).map_err(|reason| format!("{VARIABLE}: {reason}"))?;
        return Ok(Ok(compiler));
    }
    let rocm = std::env::var_os("ROCM_PATH").map_or(PathBuf::from("/opt/rocm"), PathBuf::from);
    let candidates =
        [rocm.join("llvm/bin/clang"), rocm.join("lib/llvm/bin/clang")].into_iter().chain(NAMES.map(PathBuf::from));
    let mut reasons = Vec::new();
    for candidate in candidates {
        match ask(&candidate) {
            Ok(compiler) => return Ok(Ok(compiler)),
            Err(reason) => reasons.push(reason),
        }
    }
    let found: Vec<_> = reasons.into_iter().filter(|reason| !reason.ends_with("not found")).collect();
    let found = if found.is_empty() { String::new() } else { format!(" ({})", found.join("; ")) };
    Ok(Err(format!(
        "no clang {OLDEST} or newer with lld was found{found}; install ROCm, or clang-22 and lld-22, or set {VARIABLE}"
    )))
}

/// Asks for version and linker.
fn ask(program: &Path) -> Result<Compiler, String> {
    let name = program.display();
    let output = Command::new(program).arg("--version").output().map_err(|_| format!("{name}: not found"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default().trim().to_string();
    let major = line.split("clang version ").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    match major {
        Some(major) if major >= OLDEST => {}
        Some(major) => return Err(format!("{name} is version {major}, {OLDEST} is the oldest that does")),
        None => return Err(format!("{name} does not say a clang version")),
    }
    let linker = Command::new(program).args(["--target=amdgcn-amd-amdhsa", "-print-prog-name=ld.lld"]).output();
    let linker = linker.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default();
    if !Path::new(&linker).is_file() && Command::new(&linker).arg("--version").output().is_err() {
        return Err(format!("{name} has no ld.lld beside it"));
    }
    Ok(Compiler { program: program.to_path_buf(), version: line })
}
