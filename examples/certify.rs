//! Runs the ladder over the machine code of both targets and records what it proved in hip/proven.json.
//!
//! Each run is a process of its own, because the stand-in `rdna` is one card a process: every kernel's every case, under
//! three schedules. A build takes the record for the objects whose bytes are the proven ones (build/compile.rs).
//! `cargo build --release && cargo run --release --example certify [-- PACK]`, after a change of kernels or compiler. PACK is
//! kernels.tar.gz of a build with another compiler (HIPFIRE_CLANG): its exact and ordered kernels must give the same bits.
//!
//! Always true: nothing is written unless every case passed and every kernel's promised bits were the same under every
//! schedule. Not here: the cases (`hipfire doctor --self-test`), the record's form (`manifest`).

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::Command;

use hipfire::backend::hip::check::{Class, Outcome};
use hipfire::backend::hip::manifest::{Proof, Proven, ProvenObject};
use hipfire::backend::hip::pack::Pack;

const TARGETS: [&str; 2] = ["gfx1151", "gfx1201"];
/// The natural order and two others.
const SCHEDULES: [u64; 3] = [0, 1, 7];

fn main() -> Result<(), Box<dyn Error>> {
    let pack = Pack::embedded()?;
    let other = std::env::args().nth(1);
    let mut objects = Vec::new();
    for arch in TARGETS {
        let kernels = prove(arch, other.as_deref())?;
        for (object, _) in pack.objects(arch) {
            // A kernel that runs only on another's behalf is in that one's cases.
            let own = |name: &String| Some((name.clone(), kernels.get(name)?.clone()));
            objects.push(ProvenObject {
                arch: arch.into(),
                source: object.source.clone(),
                source_sha256: object.source_sha256.clone(),
                compiler: pack.manifest().compiler.clone(),
                sha256: object.sha256.clone(),
                kernels: object.kernels.iter().filter_map(|kernel| own(&kernel.name)).collect(),
            });
        }
    }
    let mut how =
        format!("executed by the stand-in rdna under schedules {}", SCHEDULES.map(|s| s.to_string()).join(", "));
    if let Some(other) = &other {
        let compiler = Pack::open(Path::new(other))?.manifest().compiler.clone();
        how += &format!("; exact and ordered kernels give the same bits when {compiler} builds them");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/hip/proven.json");
    std::fs::write(path, Proven { how, objects }.to_lines()?)?;
    Ok(())
}

/// Each kernel's proof, by its name; `other` is a pack of another compiler.
fn prove(arch: &str, other: Option<&str>) -> Result<BTreeMap<String, Proof>, Box<dyn Error>> {
    let runs = SCHEDULES.map(|schedule| (run(arch, schedule, None), "the schedule"));
    let [(first, _), others @ ..] = runs;
    let first = first?;
    let compiled = other.map(|pack| (run(arch, SCHEDULES[0], Some(pack)), "the compiler"));
    for (other, what) in others.into_iter().chain(compiled) {
        for (a, b) in first.iter().zip(&other?) {
            let same =
                (&a.kernel, &a.case) == (&b.kernel, &b.case) && (a.class == Class::Rounding || a.digest == b.digest);
            if !same {
                return Err(format!("{arch}: {}, {}: its bits depend on {what}", a.kernel, a.case).into());
            }
        }
    }
    let mut proofs: BTreeMap<String, Proof> = BTreeMap::new();
    for outcome in first {
        let proof = proofs.entry(outcome.kernel).or_default();
        proof.cases += 1;
        proof.worst_percent = proof.worst_percent.max((100.0 * outcome.worst).ceil() as u32);
    }
    Ok(proofs)
}

/// One run of all cases.
fn run(arch: &str, schedule: u64, pack: Option<&str>) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let folder = std::env::current_exe()?;
    let folder =
        folder.parent().and_then(|examples| examples.parent()).ok_or("the example lies in no target folder")?;
    let output = Command::new(folder.join("hipfire"))
        .args(["doctor", "--self-test", "--json"])
        .args(pack.iter().flat_map(|pack| ["--kernel-pack", pack]))
        .env("HIPFIRE_HIP_LIBRARY", folder.join("libhip_rdna.so"))
        .env("HIPFIRE_STANDIN_ARCH", arch)
        .env("HIPFIRE_STANDIN", format!("schedule={schedule}"))
        .output()?;
    let receipt: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let outcomes: Vec<Outcome> = serde_json::from_value(receipt["devices"][0]["self_test"]["outcomes"].clone())?;
    if let Some(outcome) = outcomes.iter().find(|outcome| !outcome.passed) {
        return Err(format!("{arch}, schedule {schedule}: {}, {} failed", outcome.kernel, outcome.case).into());
    }
    Ok(outcomes)
}
