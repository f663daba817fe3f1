//! Stand-ins for `libamdhip64`: where they lie, and steering one from a test.
//!
//! A stand-in's modes are the whole process's, so tests that steer one hold `Standin` and run one after another.

use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipfire::device::canary::{KernelCanary, Prove};
use hipfire::device::{Context, DeviceSpan, Library, Module, Stream};
use hipfire::error::Result;

/// The library of a stand-in (`fibers`): cargo puts it beside the test executables.
pub fn standin(name: &str) -> PathBuf {
    let mut folder = std::env::current_exe().unwrap();
    folder.pop();
    folder.join(format!("libhip_{name}.so"))
}

/// A stand-in in this process, reset, for one test at a time.
pub struct Standin {
    pub library: Library,
    symbols: libloading::Library,
    _turn: MutexGuard<'static, ()>,
}

impl Standin {
    pub fn take(name: &str) -> Standin {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let path = standin(name);
        let library = Library::load(&path).unwrap_or_else(|error| panic!("{error:?}"));
        // SAFETY: it is loaded already; this is one more handle on it.
        let symbols = unsafe { libloading::Library::new(&path) }.unwrap();
        let standin = Standin { library, symbols, _turn: turn };
        standin.reset();
        standin
    }

    fn reset(&self) {
        // SAFETY: the facade's signature.
        unsafe { self.symbols.get::<unsafe extern "C" fn()>(b"standin_reset").unwrap()() };
    }

    /// Switches a hostile mode.
    pub fn mode(&self, name: &str, value: u64) {
        let text = CString::new(name).unwrap();
        // SAFETY: the facade's signature; the name outlives the call.
        let answer = unsafe {
            let mode = self.symbols.get::<unsafe extern "C" fn(*const libc::c_char, u64) -> i32>(b"standin_mode");
            mode.unwrap()(text.as_ptr(), value)
        };
        assert_eq!(answer, 0, "there is no mode {name}");
    }

    /// Makes the `nth` next call of this name fail; 0 is every one.
    pub fn fail(&self, call: &str, nth: u32, code: i32) {
        let text = CString::new(call).unwrap();
        // SAFETY: as above.
        unsafe {
            let fail = self.symbols.get::<unsafe extern "C" fn(*const libc::c_char, u32, i32)>(b"standin_fail");
            fail.unwrap()(text.as_ptr(), nth, code);
        }
    }

    /// Calls of this name so far.
    pub fn calls(&self, call: &str) -> u64 {
        let text = CString::new(call).unwrap();
        // SAFETY: as above.
        unsafe {
            let calls = self.symbols.get::<unsafe extern "C" fn(*const libc::c_char) -> u64>(b"standin_calls");
            calls.unwrap()(text.as_ptr())
        }
    }

    /// What kernels did so far, as JSON (`rdna` counts instructions and bytes).
    pub fn profile(&self) -> String {
        // SAFETY: the facade's signature; the text is at most as long as the buffer that it is copied to.
        unsafe {
            let profile =
                self.symbols.get::<unsafe extern "C" fn(*mut libc::c_char, usize) -> usize>(b"standin_profile");
            let profile = profile.unwrap();
            let mut text = vec![0u8; profile(std::ptr::null_mut(), 0) + 1];
            profile(text.as_mut_ptr().cast(), text.len());
            text.pop();
            String::from_utf8(text).unwrap()
        }
    }

    pub fn context(&self) -> Context {
        Context::new(&self.library, 0).unwrap()
    }

    /// The canary kernel, executed by the stand-in; `None` where no compiler can build it.
    pub fn kernel_canary(&self, context: &Context) -> Option<Arc<dyn Prove>> {
        let image = code_object("canary", &context.properties().arch)?;
        let module = Module::load(context, &image).unwrap();
        let arguments = size_of::<hipfire::device::canary::CanaryArguments>();
        let function = module.function(KernelCanary::KERNEL, arguments).unwrap();
        Some(Arc::new(KernelCanary::new(function, Stream::new(context).unwrap()).unwrap()))
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        self.reset();
    }
}

/// A kernel file of hip/ as a code object, by clang 22; `None` without one.
pub fn code_object(source: &str, arch: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("kernel.co");
    let root = env!("CARGO_MANIFEST_DIR");
    let clang = std::env::var("HIPFIRE_CLANG").unwrap_or_else(|_| "clang-22".into());
    let flags = "-x hip --offload-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -nostdinc -std=c++20 -O3 \
                 -ffp-contract=off";
    let status = Command::new(clang)
        .args(flags.split_whitespace())
        .args([
            format!("--offload-arch={arch}"),
            format!("-I{root}/hip"),
            format!("{root}/hip/{source}.hip"),
            "-o".into(),
        ])
        .arg(&output)
        .status()
        .ok()?;
    assert!(status.success(), "hip/{source}.hip does not compile");
    Some(std::fs::read(output).unwrap())
}

/// Proves memory by a fill and a copy back. It needs no kernel, so it runs on
/// every stand-in; a mapping that loses stores loses those of copies too.
pub struct CopyCanary {
    stream: Stream,
    round: Mutex<u8>,
}

impl CopyCanary {
    pub fn new(context: &Context) -> Arc<CopyCanary> {
        Arc::new(CopyCanary { stream: Stream::new(context).unwrap(), round: Mutex::new(0) })
    }
}

impl Prove for CopyCanary {
    fn lost_words(&self, span: DeviceSpan<'_>) -> Result<u32> {
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        *round = round.wrapping_add(1).max(1);
        span.fill(&self.stream, *round)?;
        let mut back = vec![0; span.len()];
        span.download(&self.stream, &mut back)?;
        Ok(back.chunks(8).filter(|word| word.iter().any(|byte| byte != &*round)).count() as u32)
    }
}
