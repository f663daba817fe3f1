//! `hipfire bench`: measurements as a table.
//!
//! Owns: the formats.
//! Always true: every row of a machine-readable format carries what ran where; a row is printed as it is measured where
//! the format allows.
//! Not here: measuring (`engine::bench`).

use serde::Serialize;
use serde_json::{Map, Value};

use super::Failure;
use super::args::{BenchArgs, BenchFormat};
use super::ui::{Output, Ui};
use crate::engine::bench::{Bench, BenchOptions, BenchRow, BenchSetting, CellOptions, CellRow, KernelTime, ProfileRow};
use crate::engine::speculate::SpeculationOptions;
use crate::error::{Error, Result};

/// Measures and prints.
pub fn bench(args: &BenchArgs, ui: &Ui) -> Result<(), Failure> {
    // Drafts belong to the long-context protocol, and only where they are asked for: a step's own speed is measured first.
    let speculation = match args.cells.is_some() && args.speculation.mtp.is_some() {
        true => args.speculation.options(),
        false => SpeculationOptions::off(),
    };
    let load = args.model.load_options(speculation);
    let mut bench = ui.with_bar("loading the model", |progress| Bench::open(&load, progress))?;
    let setting = bench.setting.clone();
    let mut table = Table { output: Output::new(), format: args.output, setting: &setting, rows: Vec::new() };
    let tests = BenchOptions {
        prompts: args.n_prompt.0.clone(),
        answers: args.n_gen.0.clone(),
        depths: args.n_depth.0.clone(),
        repetitions: args.repetitions,
    };
    match &args.cells {
        Some(cells) => {
            let options = CellOptions {
                cells: cells.0.clone(),
                windows: args.windows,
                seeds: args.seeds.0.iter().map(|&seed| seed as u64).collect(),
                answer: args.cell_answer,
                speculation: bench.speculation,
            };
            let rows = table.print(CELLS, cell, |row| bench.cells(&options, row))?;
            table.summary(&rows)?;
        }
        None if args.profile => table.print(PROFILE, profile, |row| bench.profile(&tests, row))?,
        None => drop(table.print(TESTS, test, |row| bench.run(&tests, row))?),
    }
    Ok(table.finish()?)
}

const TESTS: &[&str] = &["test", "depth", "tokens/s", "±"];
const PROFILE: &[&str] = &["test", "depth", "kernel", "launches", "µs each", "ms", "share"];
const CELLS: &[&str] = &[
    "cell",
    "seed",
    "window",
    "status",
    "prefill/s",
    "decode/s",
    "first token s",
    "wall s",
    "tokens",
    "text",
    "tokens a round",
    "context MiB",
    "device MiB",
    "host peak MiB",
];

fn test(row: &BenchRow) -> Vec<String> {
    vec![row.test.clone(), row.depth.to_string(), format!("{:.2}", row.mean), format!("{:.2}", row.deviation)]
}

fn profile(row: &ProfileRow) -> Vec<String> {
    let KernelTime { kernel, launches, milliseconds } = &row.time;
    vec![
        row.test.clone(),
        row.depth.to_string(),
        kernel.clone(),
        launches.to_string(),
        format!("{:.1}", 1000.0 * milliseconds / *launches as f64),
        format!("{milliseconds:.2}"),
        format!("{:.1} %", row.share),
    ]
}

fn cell(row: &CellRow) -> Vec<String> {
    let mib = |bytes: u64| format!("{:.0}", bytes as f64 / (1u64 << 20) as f64);
    vec![
        row.cell.to_string(),
        row.seed.to_string(),
        row.window.to_string(),
        row.status.clone(),
        format!("{:.1}", row.prefill),
        format!("{:.2}", row.decode),
        format!("{:.2}", row.first_token),
        format!("{:.2}", row.wall),
        row.tokens.to_string(),
        row.text.clone(),
        format!("{:.2}", row.tokens_a_round),
        mib(row.committed),
        mib(row.device_bytes),
        mib(row.peak),
    ]
}

/// A table that grows.
struct Table<'a> {
    output: Output,
    format: BenchFormat,
    setting: &'a BenchSetting,
    rows: Vec<Value>,
}

impl Table<'_> {
    /// Prints what `measure` measures, row by row.
    fn print<T: Serialize, R>(
        &mut self,
        columns: &[&str],
        cells: fn(&T) -> Vec<String>,
        measure: impl FnOnce(&mut dyn FnMut(&T)) -> Result<R>,
    ) -> Result<R> {
        self.start(columns)?;
        let mut failed = Ok(());
        let result = measure(&mut |row| {
            if failed.is_ok() {
                failed = self.row(row, &cells(row));
            }
        })?;
        failed.map(|()| result)
    }

    fn start(&mut self, columns: &[&str]) -> Result<()> {
        let BenchSetting { model, model_hash, weights, placement, planned, prefill_chunk, context, version, date } =
            self.setting;
        match self.format {
            BenchFormat::Md => {
                let [gib, planned] = [*weights, *planned].map(|bytes| bytes as f64 / (1u64 << 30) as f64);
                let text = format!(
                    "{model} ({model_hash}), {gib:.2} GiB of weights on {} ({}){}; prefill chunks of {prefill_chunk}, context \
                     of {context}, {planned:.2} GiB planned; hipfire {version}, {date}\n\n| {} |\n|{}\n",
                    placement.device,
                    placement.arch,
                    if placement.driver.is_empty() { String::new() } else { format!(", driver {}", placement.driver) },
                    columns.join(" | "),
                    "---|".repeat(columns.len()),
                );
                self.output.text(&text)
            }
            BenchFormat::Json | BenchFormat::Jsonl | BenchFormat::Csv => Ok(()),
        }
    }

    fn row<T: Serialize>(&mut self, row: &T, cells: &[String]) -> Result<()> {
        match self.format {
            BenchFormat::Md => self.output.text(&format!("| {} |\n", cells.join(" | "))),
            BenchFormat::Json => {
                self.rows.push(self.object(row)?);
                Ok(())
            }
            BenchFormat::Jsonl => self.output.text(&format!("{}\n", self.object(row)?)),
            BenchFormat::Csv => {
                let object = self.object(row)?;
                let fields = object.as_object().into_iter().flatten();
                let line =
                    |part: &dyn Fn((&String, &Value)) -> String| fields.clone().map(part).collect::<Vec<_>>().join(",");
                if self.rows.is_empty() {
                    let header = line(&|(name, _)| name.clone());
                    self.output.text(&format!("{header}\n"))?;
                    self.rows.push(Value::Null);
                }
                let values = line(&|(_, value)| field(value));
                self.output.text(&format!("{values}\n"))
            }
        }
    }

    /// The setting's fields and the row's.
    fn object<T: Serialize>(&self, row: &T) -> Result<Value> {
        let mut object = Map::new();
        for part in [serde_json::to_value(self.setting), serde_json::to_value(row)] {
            let part = part.map_err(|error| Error::invalid(format!("a row cannot be written: {error}")))?;
            object.extend(part.as_object().cloned().unwrap_or_default());
        }
        Ok(Value::Object(object))
    }

    /// Fastest, slowest of each cell.
    fn summary(&mut self, rows: &[CellRow]) -> Result<()> {
        if self.format != BenchFormat::Md {
            return Ok(());
        }
        let mut cells: Vec<usize> = rows.iter().map(|row| row.cell).collect();
        cells.dedup();
        let mut text = String::from("\n");
        for cell in cells {
            let of_cell = || rows.iter().filter(|row| row.cell == cell && row.tokens > 0);
            let range = |value: &dyn Fn(&CellRow) -> f64| {
                let (low, high) = of_cell()
                    .map(value)
                    .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
                format!("{high:.1} ({low:.1}–{high:.1})")
            };
            if of_cell().next().is_some() {
                text += &format!(
                    "{cell} tokens: prefill {} tokens/s, decode {}\n",
                    range(&|row| row.prefill),
                    range(&|row| row.decode)
                );
            }
        }
        self.output.text(&text)
    }

    fn finish(mut self) -> Result<()> {
        match self.format {
            BenchFormat::Json => self.output.json(&self.rows),
            _ => Ok(()),
        }
    }
}

/// A value of a comma-separated line.
fn field(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains([',', '"', '\n']) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
