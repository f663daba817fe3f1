//! `hipfire quantize` below the command line: a model rewritten as one GGUF file.
//!
//! Owns: the request as a user makes it, and the result in plain values.
//! Always true: names of types and patterns are checked before the source is opened.
//! Not here: the work (`model::quantize`), bars and tables (`cli`).

use std::path::Path;

use serde::Serialize;

use super::load::open_source;
use crate::error::Result;
use crate::model::quantize::{Options, Override, Progress, Summary, quantize};
use crate::weights::gguf::types;

/// What to write.
#[derive(Debug, Clone)]
pub struct QuantizeOptions {
    /// Type of every weight that the recipe does not protect: see [`quantize_types`].
    pub format: String,
    /// Exceptions, `PATTERN=TYPE`; the last that matches counts.
    pub overrides: Vec<String>,
    /// Whether to write the MTP head.
    pub mtp: bool,
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quantized {
    /// Bytes of the file.
    pub bytes: u64,
    /// Average over all weights.
    pub bits_per_weight: f64,
    /// By what tensors do.
    pub groups: Vec<QuantizedGroup>,
}

/// Tensors that do the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuantizedGroup {
    /// What they do.
    pub name: &'static str,
    /// How many.
    pub tensors: usize,
    /// Weights in them.
    pub parameters: u64,
    /// Bytes they take.
    pub bytes: u64,
    /// Average over the group.
    pub bits_per_weight: f64,
    /// Their types.
    pub types: Vec<&'static str>,
}

/// Names of the types that can be written.
pub fn quantize_types() -> Vec<String> {
    types::names()
}

/// Writes the model `from` (`None`: the embedded one) to `out`; `progress` gets bytes done and bytes in all.
///
/// # Errors
/// See [`quantize`].
pub fn quantize_model(
    from: Option<&Path>,
    out: &Path,
    options: &QuantizeOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Quantized> {
    let overrides = options.overrides.iter().map(|text| text.parse::<Override>()).collect::<Result<_>>()?;
    let format = types::parse(&options.format)?;
    let options = Options { format, overrides, mtp: options.mtp, overwrite: options.overwrite };
    let source = open_source(from)?;
    let summary = quantize(&source, out, &options, &mut |Progress { done, total, .. }| progress(done, total))?;
    Ok(plain(summary))
}

fn plain(summary: Summary) -> Quantized {
    let bits_per_weight = summary.bits_per_weight();
    let groups = summary.groups.into_iter().map(|group| QuantizedGroup {
        bits_per_weight: group.bits_per_weight(),
        name: group.name,
        tensors: group.tensors,
        parameters: group.parameters,
        bytes: group.bytes,
        types: group.types,
    });
    Quantized { bytes: summary.bytes, bits_per_weight, groups: groups.collect() }
}
