//! What a host sees: code objects loaded and launched through HIP's calls, and refusals in sentences.
#![cfg_attr(not(hip_fibers), allow(dead_code))]

use std::ffi::{CString, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use hip_facade::abi::{COPY_DEVICE_TO_HOST, COPY_HOST_TO_DEVICE};
use hip_facade::executor::Executor;
use hip_fibers::Fibers;
use hip_fibers::hip_symbols::*;

/// A code object for an AMD card from source text, or none if this clang has no such target or linker.
fn code_object(source: &str, arch: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("k.hip"), folder.path().join("k.co"));
    std::fs::write(&input, source).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../hip");
    let mut command = Command::new(option_env!("HIP_FIBERS_CLANG").unwrap_or_default());
    command.args([
        "-x",
        "hip",
        "--offload-device-only",
        "--no-gpu-bundle-output",
        "-nogpuinc",
        "-nogpulib",
        "-nostdinc",
    ]);
    command
        .args(["-std=c++20", "-O3", &format!("--offload-arch={arch}"), "-I"])
        .arg(&root)
        .arg("-I")
        .arg(root.join("dialect"));
    let made = command.arg(&input).arg("-o").arg(&output).output().unwrap();
    if !made.status.success() {
        eprintln!("not tested, this clang makes no code for {arch}: {}", String::from_utf8_lossy(&made.stderr));
    }
    std::fs::read(output).ok()
}

fn refusal(source: &str) -> Option<String> {
    let image = code_object(source, "gfx1201")?;
    Some(Fibers.load(&image, "gfx1201").err().expect("refused"))
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn a_code_object_is_loaded_with_the_facts_of_its_metadata() {
    for arch in ["gfx1151", "gfx1201"] {
        let Some(image) = code_object("#include \"norm.hip\"", arch) else { return };
        let module = Fibers.load(&image, arch).unwrap_or_else(|error| panic!("{error}"));
        let info = module.kernel("grouped_norm").unwrap();
        assert_eq!((info.kernarg_bytes, info.max_threads, info.lds_bytes, info.scratch_bytes), (40, 256, 32, 0));
        assert!(info.vgprs > 0 && info.sgprs > 0);
        assert_eq!(module.kernel("no_such_kernel"), None);
    }
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn what_does_not_fit_is_refused_in_a_sentence() {
    let unknown = "#include \"gpu.h\"\nstruct A { u64 x; };\nKERNEL(64, unheard_of, A) { if (a.x) barrier(); }\n";
    let Some(error) = refusal(unknown) else { return };
    assert!(error.contains("hip-fibers has no kernel unheard_of"), "{error}");
    let resized = "#include \"gpu.h\"\nstruct A { u64* x; };\nKERNEL(256, canary, A) { *a.x = tid(); }\n";
    let error = refusal(resized).unwrap();
    assert!(error.contains("canary takes 8 bytes of arguments in the code object and 32 in hip-fibers"), "{error}");
    for image in [&b""[..], b"\x7fELF", b"not a code object at all, but long enough to be taken for one"] {
        let error = Fibers.load(image, "gfx1201").err().unwrap();
        assert!(error.starts_with("the code object"), "{error}");
    }
    assert!(Fibers.load(b"", "gfx906").err().unwrap().contains("no lane layout for gfx906"));
}

/// Damaged metadata is a sentence, never a panic: each byte of a real code object's notes in turn is changed.
#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn damaged_code_objects_do_not_panic() {
    let Some(image) = code_object("#include \"canary.hip\"", "gfx1201") else { return };
    for at in 0..image.len().min(4096) {
        let mut damaged = image.clone();
        damaged[at] ^= 0xff;
        let _ = Fibers.load(&damaged, "gfx1201");
        let _ = Fibers.load(&image[..at], "gfx1201");
    }
}

/// One stand-in a process: tests that call HIP take turns.
static ALONE: Mutex<()> = Mutex::new(());

fn last_fault() -> String {
    let mut buffer = [0_u8; 1024];
    // SAFETY: the buffer has the length it is said to have.
    let length = unsafe { standin_last_fault(buffer.as_mut_ptr().cast(), buffer.len()) };
    String::from_utf8_lossy(&buffer[..length.min(buffer.len() - 1)]).into_owned()
}

#[track_caller]
fn ok(code: i32) {
    assert_eq!(code, 0, "{}", last_fault());
}

/// Launches one workgroup of a kernel that has an argument struct of these bytes; HIP's code after synchronising.
fn launch(image: &[u8], kernel: &str, threads: u32, arguments: &mut [u8]) -> i32 {
    let (mut module, mut function) = (null_mut(), null_mut());
    let name = CString::new(kernel).unwrap();
    let mut parameters = [arguments.as_mut_ptr().cast::<c_void>()];
    // SAFETY: HIP's calls with pointers to locals that outlive them.
    unsafe {
        ok(hipModuleLoadData(&mut module, image.as_ptr().cast()));
        ok(hipModuleGetFunction(&mut function, module, name.as_ptr()));
        let shape = (1, 1, 1);
        ok(hipModuleLaunchKernel(
            function,
            shape.0,
            shape.1,
            shape.2,
            threads,
            1,
            1,
            0,
            null_mut(),
            parameters.as_mut_ptr(),
            null_mut(),
        ));
        hipDeviceSynchronize()
    }
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn a_kernel_runs_through_hips_calls_and_a_fault_is_a_launch_failure() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    standin_reset();
    let Some(image) = code_object("#include \"canary.hip\"", "gfx1201") else { return };
    let mut words = [0_u64; 200];
    let mut memory = 0_u64;
    // SAFETY: HIP's calls with pointers to locals that outlive them.
    unsafe {
        ok(hipInit(0));
        ok(hipMalloc(&mut memory, 1600));
        ok(hipMemcpy(memory, words.as_ptr() as u64, 1600, COPY_HOST_TO_DEVICE));
    }
    let arguments = |count: u32| {
        let mut bytes = Vec::new();
        [memory, 7, memory].iter().for_each(|field| bytes.extend(field.to_le_bytes()));
        [count, 0].iter().for_each(|field| bytes.extend(field.to_le_bytes()));
        bytes
    };
    ok(launch(&image, "canary", 256, &mut arguments(200)));
    // SAFETY: as above.
    unsafe { ok(hipMemcpy(words.as_mut_ptr() as u64, memory, 1600, COPY_DEVICE_TO_HOST)) };
    assert!(words.iter().all(|&word| word != 0));

    // One word more than was allocated, in a launch that has work-items for it.
    let code = launch(&image, "canary", 256, &mut arguments(201));
    assert_eq!(code, hip_facade::HipError::LAUNCH_FAILURE.0);
    let fault = last_fault();
    assert!(fault.contains("kernel canary, workgroup (0,0,0) thread 200: store of 8 bytes at 0x"), "{fault}");
    assert!(fault.contains("outside device memory, at canary.hip:"), "{fault}");
    standin_reset();
}

/// The host finds it under this name beside the test executables.
#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn the_shared_library_exports_hips_calls() {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let name = CString::new(folder.join("libhip_fibers.so").to_str().unwrap()).unwrap();
    // SAFETY: the library is this crate's and runs nothing when loaded; the names are strings.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{name:?} cannot be loaded");
        for symbol in [c"hipInit", c"hipModuleLaunchKernel", c"standin_last_fault"] {
            assert!(!libc::dlsym(handle, symbol.as_ptr()).is_null(), "{symbol:?}");
        }
    }
}

#[test]
#[cfg(not(hip_fibers))]
fn without_a_compiler_loading_is_refused_in_a_sentence() {
    let error = Fibers.load(b"", "gfx1201").err().unwrap();
    assert!(error.starts_with("hip-fibers was built without kernels: "), "{error}");
}
