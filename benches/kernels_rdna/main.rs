//! What the kernels do at the released geometry, instruction by instruction, and how long that takes at the two targets'
//! peaks. Prints benches/results/kernels-rdna.md.
//!
//! The stand-in `rdna` executes the real code objects and counts; it knows no time. A few workgroups of each launch run
//! and stand for all. `cargo bench --bench kernels_rdna > benches/results/kernels-rdna.md`; no GPU is needed.
//!
//! Owns: counting, the tables, the ceilings. Not here: the launches (`device` and its neighbours), peaks (`target`).

mod attention;
mod delta;
mod dense;
mod device;
mod experts;
#[path = "../../tests/support/standin.rs"]
#[allow(dead_code)] // shared with tests, which use the rest
mod standin;
mod target;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::Command;

use device::{Case, Device};
use hipfire::backend::hip::kernels::Kernels;
use hipfire::backend::hip::manifest::Kernel;
use hipfire::backend::hip::pack::Pack;
use hipfire::device::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use target::{TARGETS, Target, Work};

/// Which card the stand-in is, and that this process is the one that runs on it.
const CARD: &str = "HIPFIRE_STANDIN_ARCH";

/// A case with its counters.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Counted {
    case: Case,
    profile: Value,
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os(CARD).is_some() {
        println!("{}", serde_json::to_string(&count()?)?);
        return Ok(());
    }
    let mut counted = BTreeMap::new();
    for target in &TARGETS {
        let output = Command::new(std::env::current_exe()?).env(CARD, target.arch).output()?;
        if !output.status.success() {
            return Err(format!("{}: {}", target.arch, String::from_utf8_lossy(&output.stderr)).into());
        }
        counted.insert(target.arch, serde_json::from_slice::<Vec<Counted>>(&output.stdout)?);
    }
    report(&Pack::embedded()?, &counted);
    Ok(())
}

/// Runs every case on the stand-in.
fn count() -> Result<Vec<Counted>, Box<dyn Error>> {
    let standin = standin::Standin::take("rdna");
    let context = standin.context();
    let kernels = Kernels::load(&context, &Pack::embedded()?)?;
    let stream = Stream::new(&context)?;
    let mut device = Device::new(&context, &kernels, &stream);
    device.dense()?;
    device.attention()?;
    device.experts()?;
    device.delta()?;
    let profile: Vec<Value> = serde_json::from_str(&standin.profile())?;
    let of = |case: &Case| profile.iter().find(|entry| entry["kernel"] == case.kernel.as_str()).cloned();
    let counted = device.cases.iter().filter_map(|case| Some(Counted { case: case.clone(), profile: of(case)? }));
    Ok(counted.collect())
}

impl Counted {
    fn number(&self, path: &str) -> f64 {
        self.profile.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
    }
    /// A counter for the whole grid.
    fn whole(&self, path: &str) -> f64 {
        self.number(path) * self.case.grid as f64 / self.number("/workgroups")
    }
    fn slots(&self) -> f64 {
        self.whole("/instructions") - self.whole("/classes/wait")
    }
    fn loads(&self) -> f64 {
        self.whole("/global_load/bytes")
    }
    fn work(&self) -> Work {
        Work {
            waves: self.whole("/waves"),
            slots: self.slots(),
            tiles: self.whole("/classes/wmma"),
            bytes: self.case.floor,
            lds_bytes: self.whole("/lds_load/bytes") + self.whole("/lds_store/bytes"),
            lds_conflicts: self.whole("/lds_conflict_cycles"),
        }
    }
}

/// A number of three digits.
fn short(x: f64) -> String {
    let digits = (2 - x.abs().max(1e-9).log10().floor() as i32).max(0) as usize;
    format!("{x:.digits$}")
}

fn percent(x: f64) -> String {
    format!("{:.0} %", 100.0 * x)
}

fn report(pack: &Pack, counted: &BTreeMap<&str, Vec<Counted>>) {
    println!("# Kernels on gfx1151 and gfx1201, by their instructions\n");
    println!(
        "Made by `cargo bench --bench kernels_rdna`; kernels built by {}. No GPU took part: the",
        pack.manifest().compiler
    );
    println!("stand-in `rdna` executed a few workgroups of each launch and counted.\n");
    println!(
        "- *instructions* and *loads* are wave-instructions (waits left out) and bytes of vector loads a useful unit;"
    );
    println!("  *must move* is what has to come from or go to memory at least once. Loads beyond it come from caches.");
    println!(
        "- *tiles* is WMMA's share of issued instructions, and of issue cycles with a tile at its 32 (gfx1151) or 16"
    );
    println!(
        "  (gfx1201) cycles, in which its SIMD issues no other vector instruction: a slot is such a cycle. *conflicts* are LDS"
    );
    println!("  cycles lost to banks, of all issue cycles.");
    println!(
        "- A byte is loaded once if no two accesses of a launch load it; lanes of one access that share it are one access."
    );
    println!(
        "- *floor* is the greatest of three terms at published peaks, each as if the others took no time: bytes that must"
    );
    println!(
        "  move, issue cycles over the SIMDs that have waves, LDS cycles. It predicts no time: it says what binds."
    );
    for target in &TARGETS {
        let Some(cases) = counted.get(target.arch) else { continue };
        println!("\n## {} at the released geometry\n", target.arch);
        println!(
            "| kernel | launch | unit | VGPR | LDS | waves/SIMD | instructions | loads, bytes | in 16 bytes | must move | tiles | conflicts | floor, µs | binds |"
        );
        println!("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|");
        for counted in cases {
            row(pack, target, counted);
        }
    }
    ceilings(pack, counted);
    registers(pack);
}

fn facts<'a>(pack: &'a Pack, arch: &str, name: &str) -> Option<&'a Kernel> {
    let objects = pack.manifest().objects.iter().filter(|object| object.arch == arch);
    objects.flat_map(|object| &object.kernels).find(|kernel| kernel.name == name)
}

fn row(pack: &Pack, target: &Target, counted: &Counted) {
    let Counted { case, .. } = counted;
    let Some(kernel) = facts(pack, target.arch, &case.kernel) else { return };
    let work = counted.work();
    let (time, term) = target.terms(&work).binding();
    let tiles = if work.tiles == 0.0 {
        "-".into()
    } else {
        format!("{} / {}", percent(work.tiles / work.slots), percent(target.tile_share(&work)))
    };
    println!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        case.kernel,
        case.geometry,
        case.unit,
        kernel.vgprs,
        kernel.lds_bytes,
        kernel.waves_per_simd(),
        short(work.slots / case.units),
        short(counted.loads() / case.units),
        percent(counted.number("/global_load/in_16_byte_accesses")),
        short(case.floor / case.units),
        tiles,
        percent(work.lds_conflicts / target.issue_cycles(&work)),
        short(1e6 * time),
        term,
    );
}

/// A sentence and whether it holds.
fn judge(sentence: &str, kept: bool) {
    println!("| {sentence} | {} |", if kept { "met" } else { "not met" });
}

fn ceilings(pack: &Pack, counted: &BTreeMap<&str, Vec<Counted>>) {
    println!("\n## Ceilings\n\n| ceiling | |\n|---|---|");
    let targets = |arch: &str| TARGETS.iter().any(|target| target.arch == arch);
    let all: Vec<&Kernel> =
        pack.manifest().objects.iter().filter(|o| targets(&o.arch)).flat_map(|object| &object.kernels).collect();
    let spilled = all.iter().filter(|k| k.vgpr_spills + k.sgpr_spills + k.scratch_bytes > 0).count();
    judge(&format!("nothing spills: {spilled} of {} kernels do", all.len()), spilled == 0);
    for target in &TARGETS {
        let arch = target.arch;
        let Some(cases) = counted.get(arch) else { continue };
        if let Some(kernel) = facts(pack, arch, "qsa_score_bf16_r16") {
            let sentence = format!("{arch}: the 16-row score kernel takes at most 168 VGPRs: {}", kernel.vgprs);
            judge(&sentence, kernel.vgprs <= 168);
        }
        for counted in cases {
            let name = &counted.case.kernel;
            if name.starts_with("qsa_gather") {
                let least = if arch == "gfx1201" { 0.45 } else { 0.35 };
                let work = counted.work();
                let (slots, cycles) = (work.tiles / work.slots, target.tile_share(&work));
                let sentence = format!(
                    "{arch}: {name} spends {} of its issue slots on tiles: {} ({} of its instructions)",
                    percent(least),
                    percent(cycles),
                    percent(slots)
                );
                judge(&sentence, cycles >= least);
            }
            if name.starts_with("gemv") || name.starts_with("qsa_attend") {
                let wide = counted.number("/global_load/in_16_byte_accesses");
                let sentence = format!("{arch}: {name} loads 90 % of its bytes in 16-byte accesses: {}", percent(wide));
                judge(&sentence, wide >= 0.9);
            }
            if let Some(design) = counted.case.loads {
                let again = counted.whole("/global_load/distinct_bytes") / design;
                let sentence = format!(
                    "{arch}: {name} loads each byte once (activations and queries once a workgroup): {again:.3} times"
                );
                judge(&sentence, again <= 1.01);
            }
        }
    }
}

fn registers(pack: &Pack) {
    let [first, second] = TARGETS.map(|target| target.arch);
    println!(
        "\n## Every kernel\n\n| kernel | VGPR {first} | {second} | LDS | waves/SIMD {first} | {second} |\n|---|--:|--:|--:|--:|--:|"
    );
    let objects = pack.manifest().objects.iter().filter(|object| object.arch == first);
    for kernel in objects.flat_map(|object| &object.kernels) {
        let Some(other) = facts(pack, second, &kernel.name) else { continue };
        let (name, lds) = (&kernel.name, kernel.lds_bytes);
        let waves = [kernel, other].map(Kernel::waves_per_simd);
        println!("| {name} | {} | {} | {lds} | {} | {} |", kernel.vgprs, other.vgprs, waves[0], waves[1]);
    }
}
