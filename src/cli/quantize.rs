//! `hipfire quantize`: a model rewritten as one GGUF file.
//!
//! Owns: the table of what was written.
//! Always true: the table goes to standard output only when the file is complete.
//! Not here: the work (`engine::quantize_model`).

use super::Failure;
use super::args::QuantizeArgs;
use super::inspect::grouped;
use super::ui::{Output, Ui};
use crate::engine::{QuantizeOptions, Quantized, quantize_model};

/// Writes the file, then prints bits per weight by group.
pub fn quantize(args: &QuantizeArgs, ui: &Ui) -> Result<(), Failure> {
    let from = args.source.as_deref().filter(|path| path.as_os_str() != "embedded");
    let options = QuantizeOptions {
        format: args.r#type.clone(),
        overrides: args.tensor_type.clone(),
        mtp: !args.no_mtp,
        overwrite: args.force,
    };
    let mut progress = ui.bytes("writing");
    let written = quantize_model(from, &args.output, &options, &mut |done, total| progress.at(done, total));
    progress.clear();
    let written = written?;
    let mut output = Output::new();
    if args.json {
        output.json(&written)?;
    } else {
        output.text(&table(&written))?;
    }
    Ok(())
}

fn table(written: &Quantized) -> String {
    let mut text =
        format!("  {:<30} {:>8} {:>16} {:>15} {:>8}  types\n", "group", "tensors", "parameters", "bytes", "bits/w");
    let (mut tensors, mut parameters, mut bytes) = (0, 0, 0);
    for group in &written.groups {
        text += &format!(
            "  {:<30} {:>8} {:>16} {:>15} {:>8.2}  {}\n",
            group.name,
            group.tensors,
            grouped(group.parameters),
            grouped(group.bytes),
            group.bits_per_weight,
            group.types.join(" ")
        );
        (tensors, parameters, bytes) = (tensors + group.tensors, parameters + group.parameters, bytes + group.bytes);
    }
    text + &format!(
        "  {:<30} {tensors:>8} {:>16} {:>15} {:>8.2}\n",
        "all",
        grouped(parameters),
        grouped(bytes),
        written.bits_per_weight
    )
}
