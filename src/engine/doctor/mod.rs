//! What stands between this machine and a GPU: `hipfire doctor`.
//!
//! Owns: the diagnosis and its JSON form (also the receipt of a self-test), and the sentences of what is broken.
//! Always true: it runs to its end on any machine; a finding says what to do; what stops the GPU from being used at all
//! is a problem, what only costs speed is a warning.
//! Not here: printing (`cli::doctor`), the kernels' checks (`backend::hip::check`), the probe (`arena::vmm`).

mod model;
mod system;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use self::system::{Finding, Status};
use crate::arena::vmm::decide::{self, Plan};
use crate::arena::vmm::{self, Step};
use crate::backend::hip::Gpu;
use crate::backend::hip::check;
pub use crate::backend::hip::check::{Outcome, Report};
use crate::backend::hip::pack::Pack;
use crate::device::library::Attempt;
use crate::device::{Context, Library, MemoryInfo, Properties, Versions};
use crate::error::Result;
use crate::weights::Source;

/// What to look at.
#[derive(Debug, Clone, Default)]
pub struct DoctorOptions {
    /// A kernel pack instead of the embedded one.
    pub kernel_pack: Option<PathBuf>,
    /// Run every kernel against its oracle.
    pub self_test: bool,
    /// Families of checks to run; empty is all of them.
    pub only: Vec<String>,
    /// The model of the family `model`; `None` is the embedded one.
    pub model: Option<PathBuf>,
}

/// Everything that was found.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// When, in UTC.
    pub date: String,
    /// Of this program.
    pub version: &'static str,
    /// `libamdhip64`.
    pub library: LibraryFacts,
    /// The kernels at hand.
    pub pack: PackFacts,
    /// What HIP sees.
    pub devices: Vec<DeviceFacts>,
    /// Driver, kernel parameters, rights, limits.
    pub system: Vec<Finding>,
    /// What is broken, a sentence each; empty if a GPU can be used.
    pub problems: Vec<String>,
}

/// The library.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LibraryFacts {
    /// The file that was loaded.
    pub path: Option<PathBuf>,
    /// `7.1.25424`
    pub runtime: Option<String>,
    /// The driver part under it.
    pub driver: Option<String>,
    /// What was tried before, or in vain.
    pub tried: Vec<Attempt>,
    /// Calls that it lacks.
    pub missing: Vec<&'static str>,
}

/// The kernel pack.
#[derive(Debug, Clone, Serialize)]
pub struct PackFacts {
    /// A path, or "embedded".
    pub source: String,
    /// What built it; empty if nothing did.
    pub compiler: String,
    /// Architectures it has kernels for.
    pub architectures: Vec<String>,
    /// How many of an architecture's kernels were proven before they were shipped, of how many, and how.
    pub proven: Vec<String>,
}

/// A device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceFacts {
    /// What it is.
    #[serde(flatten)]
    pub properties: Properties,
    /// Its memory now.
    pub memory: Option<MemoryInfo>,
    /// The pack's architecture that it runs.
    pub kernels: Option<String>,
    /// How the context's memory would be obtained with `--kv-backend auto`, and why.
    pub kv_backend: String,
    /// The probe of its virtual memory, step by step.
    pub probe: Vec<Step>,
    /// The kernels' checks, if they were asked for and could run.
    pub self_test: Option<Report>,
}

/// A line an architecture that has proven kernels.
fn proven(pack: &Pack) -> Vec<String> {
    let manifest = pack.manifest();
    let line = |arch: &str| match manifest.proven_of(arch) {
        (0, _) => None,
        (proven, all) => Some(format!("{proven} of {all} for {arch}, {}", manifest.proven)),
    };
    pack.architectures().into_iter().filter_map(line).collect()
}

/// Looks at everything. `progress` hears of each check of a self-test as it ends.
pub fn diagnose(options: &DoctorOptions, progress: &mut dyn FnMut(&Outcome)) -> Result<Diagnosis> {
    let pack = options.kernel_pack.as_deref().map_or_else(Pack::embedded, Pack::open)?;
    let mut diagnosis = Diagnosis {
        date: super::now(),
        version: env!("CARGO_PKG_VERSION"),
        library: LibraryFacts::default(),
        pack: PackFacts {
            source: pack.path().map_or("embedded".into(), |path| path.display().to_string()),
            compiler: pack.manifest().compiler.clone(),
            architectures: pack.architectures().into_iter().map(str::to_string).collect(),
            proven: proven(&pack),
        },
        devices: Vec::new(),
        system: system::findings(Path::new("/")),
        problems: Vec::new(),
    };
    if diagnosis.pack.architectures.is_empty() {
        diagnosis.problems.push(
            "this program was built without GPU kernels: build it where clang-22 and lld-22 (or ROCm) are installed, or \
             give a pack with --kernel-pack"
                .into(),
        );
    }
    match Library::open() {
        Err(missing) => {
            diagnosis.problems.push(missing.to_string());
            diagnosis.library.tried = missing.tried;
        }
        Ok(library) => {
            diagnosis.library = library_facts(&library);
            match library.device_count() {
                Ok(0) => diagnosis.problems.push(format!("{} sees no device", library.path().display())),
                Ok(count) => {
                    for device in 0..count {
                        look_at(&library, device, &pack, options, &mut diagnosis, progress);
                    }
                }
                Err(failure) => diagnosis.problems.push(library.no_device(&failure)),
            }
        }
    }
    Ok(diagnosis)
}

fn library_facts(library: &Library) -> LibraryFacts {
    let Versions { runtime, driver } = library.versions();
    LibraryFacts {
        path: Some(library.path().into()),
        runtime: runtime.map(Versions::text),
        driver: driver.map(Versions::text),
        tried: Vec::new(),
        missing: library.missing(),
    }
}

fn look_at(
    library: &Library,
    device: i32,
    pack: &Pack,
    options: &DoctorOptions,
    diagnosis: &mut Diagnosis,
    progress: &mut dyn FnMut(&Outcome),
) {
    let context = match Context::new(library, device) {
        Ok(context) => context,
        Err(error) => return diagnosis.problems.push(format!("device {device} cannot be used: {error}")),
    };
    let properties = context.properties().clone();
    let arch = properties.arch.clone();
    let mut facts = DeviceFacts {
        memory: context.memory_info().ok(),
        kernels: pack.match_architecture(&arch).map(str::to_string),
        properties,
        kv_backend: String::new(),
        probe: Vec::new(),
        self_test: None,
    };
    let mut problem = |text: String| diagnosis.problems.push(format!("device {device} ({arch}): {text}"));
    match facts.kernels {
        None if pack.architectures().is_empty() => {}
        None => problem(format!("the kernel pack has none for it, only for {}", pack.architectures().join(", "))),
        Some(_) => match Gpu::of(&context, pack) {
            Err(error) => problem(format!("its kernels cannot be loaded: {error}")),
            Ok(gpu) => {
                if let Err(error) = probe(&gpu, &mut facts) {
                    problem(format!("the probe of its virtual memory could not run: {error}"));
                }
                if options.self_test {
                    match self_test(gpu, options, progress) {
                        Ok(report) => {
                            let failed = report.outcomes.iter().filter(|outcome| !outcome.passed).count();
                            if failed > 0 {
                                problem(format!(
                                    "{failed} of {} checks of its kernels failed: do not trust its answers, and please \
                                     report this with the receipt",
                                    report.outcomes.len()
                                ));
                            }
                            facts.self_test = Some(report);
                        }
                        Err(error) => problem(format!("the self-test ended: {error}")),
                    }
                }
            }
        },
    }
    if facts.kv_backend.is_empty() {
        facts.kv_backend = "unknown: the probe did not run".into();
    }
    diagnosis.devices.push(facts);
}

/// Every kernel against its oracle, then the embedded model (or the one that was named) against the CPU.
fn self_test(gpu: Gpu, options: &DoctorOptions, progress: &mut dyn FnMut(&Outcome)) -> Result<Report> {
    let (models, kernels): (Vec<String>, Vec<String>) =
        options.only.iter().cloned().partition(|family| family == model::FAMILY);
    let mut report = Report::new(&gpu);
    if options.only.is_empty() || !kernels.is_empty() {
        report.outcomes = check::run(&gpu, &kernels, progress)?;
    }
    if options.only.is_empty() || !models.is_empty() {
        let source = options.model.as_deref().map(Source::open).transpose()?;
        match source.or_else(Source::embedded) {
            Some(source) => report.outcomes.extend(model::compare(gpu, &source, progress)?),
            None => tracing::info!("no model is inside this program: name one with -m to test it whole"),
        }
    }
    Ok(report)
}

/// What `auto` would choose, as `arena::vmm::open` does.
fn probe(gpu: &Gpu, facts: &mut DeviceFacts) -> Result<()> {
    let (context, canary) = (gpu.context(), gpu.canary()?);
    facts.kv_backend = match decide::plan(None, &decide::platform(context))? {
        Plan::Legacy(reason) => format!("legacy: {}", reason.unwrap_or_default()),
        Plan::Probe => {
            let probe = vmm::probe::run(context, &*canary);
            let verdict = match probe.verdict() {
                Ok(_) => "vmm".to_string(),
                Err(reason) => format!("legacy: {reason}"),
            };
            facts.probe = probe.steps;
            verdict
        }
    };
    Ok(())
}
