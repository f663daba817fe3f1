//! `hipfire inspect`: what a model is and what it would need.
//!
//! Owns: the tables.
//! Always true: nothing is loaded.
//! Not here: the numbers (`engine::inspect`, the memory plan).

use super::Failure;
use super::args::InspectArgs;
use super::ui::Output;
use crate::engine::{Summary, describe, memory_plan};

/// Prints the summary or the plan.
pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let options = args.model.load_options();
    let mut output = Output::new();
    if args.plan {
        output.text(&format!("{}\n", memory_plan(&options)?))?;
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
    text += &format!("\n  {:<30} {:>8} {:>16} {:>14}  types\n", "group", "tensors", "parameters", "bytes");
    for group in &summary.groups {
        let types = group.types.join(" ");
        let line = format!(
            "  {:<30} {:>8} {:>16} {:>14}  {types}",
            group.name,
            group.tensors,
            grouped(group.parameters),
            grouped(group.bytes)
        );
        text += &format!("{}\n", line.trim_end());
    }
    let tensors: usize = summary.groups.iter().map(|group| group.tensors).sum();
    text + &format!("  {:<30} {tensors:>8} {:>16} {:>14}\n", "all", grouped(summary.parameters), grouped(summary.bytes))
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
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
