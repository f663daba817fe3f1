//! `hipfire inspect`: what a model is and what it would need.
//!
//! Owns: the tables.
//! Always true: nothing is loaded.
//! Not here: the numbers (`engine::inspect`, the memory plan).

use super::Failure;
use super::args::InspectArgs;
use super::ui::Output;
use crate::engine::{Kept, KernelList, Summary, describe, list_kernels, memory_plan};

/// Prints the summary or the plan.
pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let mut output = Output::new();
    if args.kernels {
        let list = list_kernels(args.model.kernel_pack.as_deref())?;
        match args.json {
            true => output.json(&list)?,
            false => output.text(&kernel_table(&list))?,
        }
        return Ok(());
    }
    let mut options = args.serving.apply(args.model.load_options(args.speculation.options()));
    if let Some(file) = &args.file {
        options.model = Some(file.clone()).filter(|file| file.as_os_str() != "embedded");
    }
    if args.plan {
        let plan = memory_plan(&options)?;
        match args.json {
            true => output.json(&plan)?,
            false => output.text(&plan.to_string())?,
        }
        return Ok(());
    }
    let summary = describe(&options)?;
    if args.json {
        output.json(&summary)?;
    } else {
        output.text(&table(&summary))?;
    }
    Ok(())
}

fn table(summary: &Summary) -> String {
    let mut text = format!("{}\n", summary.name);
    for fact in &summary.shape {
        text += &format!("  {:<30} {}\n", fact.name, fact.value);
    }
    text +=
        &format!("\n  {:<30} {:>8} {:>16} {:>14}  {:<23} types\n", "group", "tensors", "parameters", "bytes", "kept");
    for group in &summary.groups {
        let types = group.types.join(" ");
        let line = format!(
            "  {:<30} {:>8} {:>16} {:>14}  {:<23} {types}",
            group.name,
            group.tensors,
            grouped(group.parameters),
            grouped(group.bytes),
            match group.kept {
                Kept::Memory => "in memory",
                Kept::MemoryForDrafts => "in memory, for drafts",
                Kept::File => "in its file",
                Kept::Nowhere => "not read",
            }
        );
        text += &format!("{}\n", line.trim_end());
    }
    let tensors: usize = summary.groups.iter().map(|group| group.tensors).sum();
    text +=
        &format!("  {:<30} {tensors:>8} {:>16} {:>14}\n", "all", grouped(summary.parameters), grouped(summary.bytes));
    for (name, bytes) in [("in memory", summary.memory_bytes), ("in its file", summary.file_bytes)] {
        text += &format!("  {name:<30} {:>8} {:>16} {:>14}\n", "", "", grouped(bytes));
    }
    text
}

fn kernel_table(list: &KernelList) -> String {
    if list.kernels.is_empty() {
        return format!(
            "kernel pack: {}, without kernels: this program was built where no suitable clang was found. Install \
             clang-22 and lld-22 (or ROCm) and build again, or give a pack with --kernel-pack.\n",
            list.pack
        );
    }
    let mut text = format!("kernel pack: {}, built by {}\n", list.pack, list.compiler);
    if !list.proven.is_empty() {
        text += &format!(
            "proven: cases that these very bytes passed, and their worst error of its bound; {}\n",
            list.proven
        );
    }
    text += &format!(
        "  {:<14} {:<22} {:<26} {:>7} {:>5} {:>5} {:>6} {:>7} {:>6} {:>9} {:>10}  {}\n",
        "arch",
        "source",
        "kernel",
        "threads",
        "VGPR",
        "SGPR",
        "LDS",
        "scratch",
        "spills",
        "arguments",
        "waves/SIMD",
        "proven"
    );
    for entry in &list.kernels {
        let k = &entry.kernel;
        let proof = match &k.proof {
            None => "-".into(),
            Some(proof) if proof.worst_percent == 0 => format!("{} cases, exact", proof.cases),
            Some(proof) => format!("{} cases, {} %", proof.cases, proof.worst_percent),
        };
        text += &format!(
            "  {:<14} {:<22} {:<26} {:>7} {:>5} {:>5} {:>6} {:>7} {:>6} {:>9} {:>10}  {}\n",
            entry.arch,
            entry.source,
            k.name,
            k.threads,
            k.vgprs,
            k.sgprs,
            k.lds_bytes,
            k.scratch_bytes,
            k.vgpr_spills + k.sgpr_spills,
            k.kernarg_bytes,
            entry.waves_per_simd,
            proof
        );
    }
    text
}

/// Digits in groups of three.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn digits_stand_in_groups_of_three() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"],
            [0, 999, 1000, 1234567].map(grouped).each_ref().map(String::as_str)
        );
    }
}
