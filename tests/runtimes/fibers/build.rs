//! Compiles the kernels as host code, with the fiber runtime: one library a lane layout, and one program a layout and
//! sanitizer.
//!
//! Always true: an object is compiled again only if its command, its source or a header it read changed. Without a
//! suitable compiler the crate builds all the same, and `HIP_FIBERS_MISSING` says why there is nothing to run.
//! Not here: the code objects of the product (the `build.rs` of hipfire).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

/// Lane layouts: gfx11, gfx12, and `mma.sync`'s.
const LAYOUTS: [&str; 3] = ["11", "12", "80"];

/// What everything is compiled with. No product of a sum may be fused that the kernel did not fuse.
const COMMON: &[&str] =
    &["-std=c++20", "-gline-tables-only", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", "-pthread"];
const KERNEL: &[&str] = &["-x", "c++", "-fno-math-errno", "-fstack-clash-protection", "-Wno-unknown-pragmas"];
const RUNTIME: &[&str] = &["-O2", "-fwrapv", "-Wall", "-Wextra", "-Werror"];

/// One way to build: how kernels are instrumented, what the runtime is told, how it is linked. The sanitizers get code
/// that is not optimised: unrolled loops full of their checks took 17 s to compile instead of 0.5 (qsa_gather for
/// UBSan, clang 22), and replays are small.
struct Build {
    name: &'static str,
    kernel: &'static [&'static str],
    runtime: &'static [&'static str],
    link: &'static [&'static str],
}

const BUILDS: [Build; 3] = [
    // Clang's instrumentation with our own checks behind it (runtime/memory.cpp): a call for each load and store.
    Build {
        name: "checked",
        kernel: &[
            "-O1",
            "-fsanitize=kernel-address",
            "-mllvm=-asan-instrumentation-with-call-threshold=0",
            "-mllvm=-asan-opt-same-temp=0",
            "-mllvm=-asan-kernel-mem-intrinsic-prefix=1",
            "-mllvm=-asan-stack=0",
            "-mllvm=-asan-globals=0",
        ],
        runtime: &["-DCPU_CHECKED"],
        link: &["-shared", "-Wl,-z,defs"],
    },
    Build {
        name: "thread",
        kernel: &["-O0", "-fsanitize=thread"],
        runtime: &["-DCPU_TSAN"],
        link: &["-fsanitize=thread", "-rdynamic"],
    },
    Build {
        name: "undefined",
        kernel: &["-O0", "-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-fno-sanitize=vptr,function"],
        runtime: &["-DCPU_ASAN"],
        link: &["-fsanitize=undefined,address", "-rdynamic"],
    },
];

/// What a compiler must manage: f16, the standard library, linking.
const PROBE: &str = "#include <mutex>\n#include <string>\nint main(int n, char** v) { std::mutex m; std::string s(v[0]);\n\
                     m.lock(); volatile float f = n; return (int)(float)(_Float16)f + (int)s.size() < 0; }\n";

struct Tools {
    compiler: String,
    /// `-march=x86-64-v3` where this machine can run it: without F16C each f16 conversion is a library call.
    machine: Vec<String>,
    sanitizers: bool,
}

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?);
    let root = Path::new("../../..");
    println!("cargo:rerun-if-env-changed=HIPFIRE_CLANG");
    for path in ["build.rs", "runtime", "tests", "../../../hip"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rustc-check-cfg=cfg(hip_fibers)");
    println!("cargo:rustc-check-cfg=cfg(hip_fibers_sanitizers)");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so.7");
    println!("cargo:rustc-env=HIP_FIBERS_DIR={}", out.display());
    let tools = match find_tools(&out) {
        Ok(tools) => tools,
        Err(why) => {
            println!("cargo:warning=hip-fibers has no kernels: {why}");
            println!("cargo:rustc-env=HIP_FIBERS_MISSING={why}");
            // A file that never exists: looks again at the next build.
            println!("cargo:rerun-if-changed={}", out.join("none").display());
            println!("cargo:rustc-env=HIP_FIBERS_SANITIZERS_MISSING={why}");
            return Ok(());
        }
    };
    println!("cargo:rustc-cfg=hip_fibers");
    println!("cargo:rustc-env=HIP_FIBERS_MISSING=");
    println!("cargo:rustc-env=HIP_FIBERS_CLANG={}", tools.compiler);
    println!("cargo:rustc-env=HIP_FIBERS_SYMBOLIZER={}", symbolizer(&tools.compiler));
    println!("cargo:rustc-env=HIP_FIBERS_NEEDS_V3={}", u8::from(!tools.machine.is_empty()));
    let missing = "this clang has no sanitizer runtimes (Debian: libclang-rt-22-dev, of the compiler's own version)";
    if tools.sanitizers {
        println!("cargo:rustc-cfg=hip_fibers_sanitizers");
        println!("cargo:rustc-env=HIP_FIBERS_SANITIZERS_MISSING=");
    } else {
        println!("cargo:warning=hip-fibers has no replay programs: {missing}");
        println!("cargo:rustc-env=HIP_FIBERS_SANITIZERS_MISSING={missing}");
    }

    let mut kernels = sources(&root.join("hip"), "hip")?;
    kernels.extend(sources(Path::new("tests"), "hip")?);
    let runtime = sources(Path::new("runtime"), "cpp")?;
    let builds = || BUILDS.iter().filter(|build| tools.sanitizers || build.name == "checked");
    let mut compiles = Vec::new();
    let mut links = Vec::new();
    for build in builds() {
        let mut shared = Vec::new();
        for source in &runtime {
            if build.name == "checked" && source.ends_with("replay.cpp") {
                continue;
            }
            let object = out.join(format!("{}.{}.o", stem(source), build.name));
            compiles.push(tools.compile(source, &object, &[RUNTIME, build.runtime].concat(), root));
            shared.push(object);
        }
        // Races and overflows do not depend on NVIDIA's layout: a lent GPU runs that one.
        let layouts = if build.name == "checked" { &LAYOUTS[..] } else { &LAYOUTS[..2] };
        for layout in layouts {
            let mut objects = shared.clone();
            let define = format!("-DTILE_LAYOUT={layout}");
            for source in &kernels {
                let object = out.join(format!("{}.{}.{layout}.o", stem(source), build.name));
                compiles.push(tools.compile(source, &object, &[KERNEL, build.kernel, &[&define]].concat(), root));
                objects.push(object);
            }
            links.push(tools.link(&objects, &out.join(format!("{}.{layout}", build.name)), build.link));
        }
    }
    run_all(compiles)?;
    run_all(links)
}

/// A command, and what it makes from what.
struct Step {
    command: Command,
    output: PathBuf,
    inputs: Vec<PathBuf>,
}

impl Step {
    fn text(&self) -> String {
        format!("{:?}", self.command)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        PathBuf::from(format!("{}.{ending}", self.output.display()))
    }

    /// Whether the output was made by the same command from files that have not changed since.
    fn fresh(&self) -> bool {
        let Ok(made) = fs::metadata(&self.output).and_then(|output| output.modified()) else { return false };
        if fs::read_to_string(self.beside("command")).is_ok_and(|text| text == self.text()) {
            let mut inputs = self.inputs.clone();
            if let Ok(text) = fs::read_to_string(self.beside("d")) {
                inputs.extend(text.replace("\\\n", " ").split_whitespace().skip(1).map(PathBuf::from));
            }
            let older = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).is_ok_and(|at| at < made);
            return inputs.iter().all(older);
        }
        false
    }

    fn run(&mut self) -> Result<(), String> {
        if self.fresh() {
            return Ok(());
        }
        let text = self.text();
        let output = self.command.output().map_err(|error| format!("cannot run {text}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
        }
        fs::write(self.beside("command"), text).map_err(|error| format!("{}: {error}", self.output.display()))
    }
}

/// Runs steps that do not depend on each other, one a core at a time.
fn run_all(steps: Vec<Step>) -> Result<(), String> {
    let workers = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1_usize).clamp(1, 64);
    let steps: Vec<Mutex<Step>> = steps.into_iter().map(Mutex::new).collect();
    let (next, errors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Each step is taken once, so neither lock is ever poisoned or waited for long.
                    if let (Err(error), Ok(mut errors)) =
                        (step.lock().map_or(Ok(()), |mut step| step.run()), errors.lock())
                    {
                        errors.push(error);
                    }
                }
            });
        }
    });
    let errors = errors.into_inner().unwrap_or_default();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

impl Tools {
    fn compile(&self, source: &Path, object: &Path, options: &[&str], root: &Path) -> Step {
        let mut command = Command::new(&self.compiler);
        command.args(COMMON).args(&self.machine).args(options).arg("-I").arg(root.join("hip"));
        command.arg("-MMD").arg("-MF").arg(format!("{}.d", object.display()));
        command.arg("-c").arg(source).arg("-o").arg(object);
        Step { command, output: object.to_path_buf(), inputs: vec![source.to_path_buf()] }
    }

    fn link(&self, objects: &[PathBuf], output: &Path, options: &[&str]) -> Step {
        let mut command = Command::new(&self.compiler);
        command.arg("-pthread").args(options).args(objects).arg("-ldl").arg("-lm").arg("-o").arg(output);
        Step { command, output: output.to_path_buf(), inputs: objects.to_vec() }
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn sources(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    paths.sort();
    Ok(paths)
}

/// The first compiler that manages the probe, in the order of preference.
fn find_tools(out: &Path) -> Result<Tools, String> {
    let probe = out.join("probe.cpp");
    fs::write(&probe, PROBE).map_err(|error| format!("{}: {error}", probe.display()))?;
    let mut names = Vec::new();
    if let Ok(given) = env::var("HIPFIRE_CLANG") {
        // The name of the C compiler is given; its C++ driver stands beside it.
        names.push(match given.rfind("clang") {
            Some(at) if !given[at..].contains("++") => format!("{}clang++{}", &given[..at], &given[at + 5..]),
            _ => given,
        });
    }
    names.extend((19..=22).rev().map(|version| format!("clang++-{version}")));
    names.push("clang++".into());
    let manages = |name: &str, options: &[&str]| {
        let mut command = Command::new(name);
        command.args(COMMON).args(options).arg(&probe).arg("-o").arg(out.join("probe"));
        command.output().is_ok_and(|output| output.status.success())
    };
    let compiler = names.iter().find(|name| version(name).is_some_and(|version| version >= 19) && manages(name, &[]));
    let Some(compiler) = compiler else {
        return Err(format!("none of {} is clang 19 or newer that links C++ with _Float16", names.join(", ")));
    };
    #[cfg(target_arch = "x86_64")]
    let v3 = std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("f16c")
        && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let v3 = false;
    let sanitizers =
        ["-fsanitize=thread", "-fsanitize=undefined,address"].iter().all(|flag| manages(compiler, &[flag]));
    let machine = if v3 { vec!["-march=x86-64-v3".to_string()] } else { Vec::new() };
    Ok(Tools { compiler: compiler.clone(), machine, sanitizers })
}

fn version(compiler: &str) -> Option<u32> {
    let output = Command::new(compiler).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.split("clang version ").nth(1)?.split('.').next()?;
    number.trim().parse().ok()
}

/// Where sanitizers find names of source files; empty if nowhere.
fn symbolizer(compiler: &str) -> String {
    let output = Command::new(compiler).arg("-print-prog-name=llvm-symbolizer").output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default()
}
