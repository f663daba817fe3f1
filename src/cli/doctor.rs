//! `hipfire doctor`: what stands between this machine and a GPU, for people.
//!
//! Owns: the text.
//! Always true: everything found is printed before the program says that something is broken (exit code 1).
//! Not here: looking (`engine::doctor`).

use super::Failure;
use super::args::DoctorArgs;
use super::ui::{Output, Ui};
use crate::engine::doctor::{DeviceFacts, Diagnosis, DoctorOptions, Outcome, Status, diagnose};
use crate::error::Error;

/// Looks, prints, and fails if something is broken.
pub fn doctor(args: &DoctorArgs, ui: &Ui) -> Result<(), Failure> {
    let options = DoctorOptions {
        kernel_pack: args.kernel_pack.clone(),
        self_test: args.self_test,
        only: args.only.clone(),
        model: args.model.clone(),
    };
    let mut checked = 0;
    let diagnosis = diagnose(&options, &mut |outcome| {
        checked += 1;
        if ui.err_terminal {
            ui.dim(&format!("\r\x1b[K{checked} checks, {} {}", outcome.kernel, outcome.case));
        }
    })?;
    if ui.err_terminal && checked > 0 {
        ui.dim("\r\x1b[K");
    }
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&diagnosis)
            .map_err(|error| Error::invalid(format!("cannot write the receipt: {error}")))?;
        std::fs::write(path, text + "\n").map_err(Error::io(format!("cannot write {}", path.display())))?;
    }
    let mut output = Output::new();
    match args.json {
        true => output.json(&diagnosis)?,
        false => output.text(&text(&diagnosis))?,
    }
    match diagnosis.problems.len() {
        0 => Ok(()),
        1 => Err(Error::Device(diagnosis.problems.into_iter().collect()).into()),
        count => {
            Err(Error::Device(format!("{count} things keep a GPU from being used: {}", diagnosis.problems.join("; ")))
                .into())
        }
    }
}

fn line(name: &str, value: &str) -> String {
    format!("  {name:<32} {value}\n")
}

fn text(diagnosis: &Diagnosis) -> String {
    let Diagnosis { library, pack, .. } = diagnosis;
    let mut text = format!("hipfire {} on {}\n\nHIP library\n", diagnosis.version, diagnosis.date);
    match &library.path {
        Some(path) => {
            text += &line("loaded", &path.display().to_string());
            text += &line("version", library.runtime.as_deref().unwrap_or("it does not say"));
            if !library.missing.is_empty() {
                text += &line("calls it lacks", &library.missing.join(", "));
            }
        }
        None => text += &line("loaded", "none"),
    }
    for attempt in &library.tried {
        text += &line("tried", &format!("{}: {}", attempt.name.display(), attempt.reason));
    }
    text += "\nKernels\n";
    text += &line("pack", &pack.source);
    text += &line("compiler", if pack.compiler.is_empty() { "none was found at build time" } else { &pack.compiler });
    text += &line("architectures", &pack.architectures.join(", "));
    for proven in &pack.proven {
        text += &line("proven", proven);
    }
    for device in &diagnosis.devices {
        text += &self::device(device);
    }
    text += "\nSystem\n";
    for finding in &diagnosis.system {
        let mark = match finding.status {
            Status::Fine => "  ",
            Status::Warning => "! ",
            Status::Broken => "x ",
        };
        text += &format!("{mark}{:<32} {}\n", finding.name, finding.value);
        if let Some(advice) = &finding.advice {
            text += &format!("    {advice}\n");
        }
    }
    text
}

fn device(device: &DeviceFacts) -> String {
    let facts = &device.properties;
    let mut text = format!("\nDevice {}: {} ({})\n", facts.device, facts.name, facts.arch);
    let known = |number: Option<i32>| number.map_or("unknown".into(), |number| number.to_string());
    text += &line("compute units", &known(facts.compute_units));
    text += &line("PCI", facts.pci.as_deref().unwrap_or("unknown"));
    let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
    let shared = if facts.integrated { ", shared with the host" } else { "" };
    if let Some(memory) = device.memory {
        text += &line("memory", &format!("{:.1} of {:.1} GiB free{shared}", gib(memory.free), gib(memory.total)));
    }
    text += &line("kernels", device.kernels.as_deref().unwrap_or("none in the pack"));
    text += &line("context memory (auto)", &device.kv_backend);
    for step in &device.probe {
        text += &format!("{} {:<32} {}\n", if step.passed { " " } else { "x" }, step.name, step.detail);
    }
    let Some(report) = &device.self_test else { return text };
    text += &format!("\n  {:<20} {:<34} {:<9} {:>9}\n", "kernel", "case", "promise", "of bound");
    for outcome in &report.outcomes {
        text += &check(outcome);
    }
    let failed = report.outcomes.iter().filter(|outcome| !outcome.passed).count();
    text + &format!("  {} checks, {failed} failed\n", report.outcomes.len())
}

fn check(outcome: &Outcome) -> String {
    let Outcome { kernel, case, class, worst, passed, message, .. } = outcome;
    let mark = if *passed { " " } else { "x" };
    let mut text = format!("{mark} {kernel:<20} {case:<34} {class:<9} {:>8.1}%\n", worst * 100.0);
    if let Some(message) = message {
        text += &format!("    {message}\n");
    }
    text
}
