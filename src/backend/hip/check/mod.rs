//! Every kernel against its oracle on the present device: `hipfire doctor --self-test`, and the same on each stand-in.
//!
//! Owns: the cases, what counts as agreement, the report.
//! Always true: outputs are poisoned before a launch and bytes behind them must stay as they were; a bound is derived
//! from types and lengths of sums, per element; inputs come from a fixed generator, so a digest compares two runs.
//! Not here: finding the device and printing (`engine::doctor`, `cli::doctor`).

mod bench;
mod dense;
mod gather;
mod gdn;
mod gdn_scan;
mod gdn_step;
mod hidden;
mod matrix;
mod moe;
mod moe_gemm;
mod pack;
mod ple;
mod qsa_attend;
mod qsa_index;
mod residual;
mod rope;
mod rows;
mod sample;

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Gpu;
use crate::error::{Error, Result};
use bench::Bench;
pub use bench::{U16, U32};

/// What a kernel promises about its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The same bits as its oracle.
    Exact,
    /// The same bits on every run and for every batch; within a bound of its oracle.
    Ordered,
    /// Within a bound of its oracle.
    Rounding,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Class::Exact => "exact",
            Class::Ordered => "ordered",
            Class::Rounding => "rounding",
        })
    }
}

/// One case of one kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The kernel.
    pub kernel: String,
    /// Sizes, in words.
    pub case: String,
    /// What was promised.
    pub class: Class,
    /// The worst error as a share of its bound; of an exact kernel, the share of elements that differ.
    pub worst: f64,
    /// Whether the promise was kept.
    pub passed: bool,
    /// Hash of the output's bits: runs of an exact or ordered kernel with other schedules give the same one.
    pub digest: String,
    /// What went wrong.
    pub message: Option<String>,
}

/// A self-test's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Architecture of the kernels that ran.
    pub arch: String,
    /// The pack's compiler.
    pub compiler: String,
    /// Every case, in the order it ran.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Of these kernels, without an outcome.
    pub fn new(gpu: &Gpu) -> Report {
        let (arch, compiler) = (gpu.kernels.arch().to_string(), gpu.compiler.clone());
        Report { arch, compiler, outcomes: Vec::new() }
    }

    /// Whether every case passed.
    pub fn passed(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.passed)
    }
}

/// Cases that belong together.
type Family = fn(&mut Bench<'_>) -> Result<()>;

/// Every family by its name.
const FAMILIES: &[(&str, Family)] = &[
    ("canary", dense::canary),
    ("embed", matrix::embed),
    ("norm", dense::norm),
    ("gemv", matrix::gemv),
    ("gemm", matrix::gemm),
    ("hyper-write", residual::write),
    ("hyper-gate", residual::gate),
    ("hyper-read", residual::read_many),
    ("rope", rope::rope),
    ("qsa-prepare", qsa_index::prepare),
    ("qsa-score", qsa_index::score),
    ("qsa-select", qsa_index::select),
    ("qsa-attend", qsa_attend::attend),
    ("qsa-merge", qsa_attend::merge),
    ("qsa-gather", gather::gather),
    ("qsa-pack", pack::packs),
    ("ple-gate", ple::gate),
    ("ple-conv", ple::convolution),
    ("rows", rows::rows),
    ("hidden", hidden::ring),
    ("sample-argmax", sample::argmax),
    ("sample-draw", sample::draw),
    ("gdn-conv", gdn::conv),
    ("gdn-step", gdn_step::step),
    ("gdn-scan", gdn_scan::scan),
    ("gdn-output", gdn::output),
    ("moe-route", moe::route),
    ("moe-lists", moe::lists),
    ("moe-few", moe::few),
    ("moe-gemm", moe_gemm::gemm),
];

/// Names of the families.
pub fn families() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

/// Runs every case, or those of the families named in `only`. `progress` hears of each as it ends. An error is a device
/// that stopped working, with the case.
pub fn run(gpu: &Gpu, only: &[String], progress: &mut dyn FnMut(&Outcome)) -> Result<Vec<Outcome>> {
    if let Some(unknown) = only.iter().find(|name| !families().any(|known| known == *name)) {
        let known: Vec<_> = families().collect();
        return Err(Error::invalid(format!("there are no checks named {unknown}: choose from {}", known.join(", "))));
    }
    let mut bench = Bench::new(&gpu.context, &gpu.kernels, progress)?;
    for (name, family) in FAMILIES {
        if only.is_empty() || only.iter().any(|wanted| wanted == name) {
            family(&mut bench)?;
        }
    }
    Ok(bench.finish())
}

/// Hash of an output's bits, for [`Outcome::digest`].
pub fn digest(bits: &[u8]) -> String {
    format!("{:.16x}", Sha256::digest(bits))
}
