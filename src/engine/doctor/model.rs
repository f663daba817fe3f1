//! A whole model on a device against the same model on the CPU: the last part of a self-test.
//!
//! Owns: the steps that are compared, and the bound of each value.
//! Always true: both run the same tape on the same ids; every activation that the tape shows is compared, layer by layer.
//! Not here: kernels one by one (`backend::hip::check`).
//!
//! The bound is the rounding that a value can have picked up by its depth. Up to eight rows a product is a sum of at most D
//! F32 terms, in another order than the CPU's: off by `2 U32 √D` of the sum's terms where roundings are independent (Higham,
//! section 2.8). With more rows its operands are F16, off by `U16` each. A layer has four products in a row (two reads, mixer,
//! experts), a value of layer l has passed 4 (l + 1) of them, and what a layer adds is as large as what it got. Errors are
//! compared with the largest value of their row, since a norm divides by the row.

use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::hip::Gpu;
use crate::backend::hip::check::{Class, Outcome, U16, U32, digest};
use crate::backend::{Observed, Observer};
use crate::config::{KvMode, Shape};
use crate::error::Result;
use crate::model::load::{self, LoadOptions};
use crate::model::{Feed, LanguageModel};
use crate::weights::Source;

/// Name of the family of checks.
pub const FAMILY: &str = "model";
/// Times the expected error that is still right: six deviations, where a step has some 10⁵ values.
const DEVIATIONS: f64 = 6.0;
/// Tokens of the steps of two sequences: one that only the kernels of few rows meet, and one that begins with many rows.
const SEQUENCES: [&[usize]; 2] = [&[1, 4, 7, 1, 1, 1], &[12, 1, 3]];
/// Tokens of a sequence.
const CONTEXT: usize = 64;

/// Runs a model on both and compares.
///
/// # Errors
/// `Device`, if the device stopped working; `Model`, if the model does not suit it.
pub fn compare(gpu: Gpu, source: &Source, progress: &mut dyn FnMut(&Outcome)) -> Result<Vec<Outcome>> {
    let options = LoadOptions {
        max_sequence: Some(CONTEXT),
        max_rows: CONTEXT / 2,
        kv_mode: Some(KvMode::F32),
        ..LoadOptions::default()
    };
    let mut cpu = load::cpu(load::open(source)?, &options, &mut |_| {})?;
    let (mut hip, _) = load::hip(load::open(source)?, gpu, &options, &mut |_| {})?;
    let (wanted, got) = (Seen::default(), Seen::default());
    cpu.set_observers(Some(wanted.observer()), None);
    hip.set_observers(Some(got.observer()), None);
    let mut outcomes = Vec::new();
    for steps in SEQUENCES {
        let (mut on_cpu, mut on_hip) = (cpu.new_sequence()?, hip.new_sequence()?);
        // Rows in F16 leave a state that carries their error on.
        let many = steps.iter().any(|&rows| rows > crate::backend::hip::matrix::GEMV_ROWS);
        let mut fed = 0;
        for &rows in steps {
            let ids: Vec<u32> = (fed..fed + rows).map(|i| ((i * 37 + 1) % cpu.shape().vocab) as u32).collect();
            fed += rows;
            cpu.forward(&mut [Feed { sequence: &mut on_cpu, ids: &ids }])?;
            hip.forward(&mut [Feed { sequence: &mut on_hip, ids: &ids }])?;
            let last = [rows - 1];
            let logits = [cpu.logits(&last)?.to_vec(), hip.logits(&last)?.to_vec()];
            let step = Step { shape: cpu.shape(), rows, from: fed - rows, many };
            let mut values = wanted.take();
            let mut seen = got.take();
            let [of_cpu, of_hip] = logits;
            values.push(("logits".into(), of_cpu));
            seen.push(("logits".into(), of_hip));
            for (name, want) in &values {
                let Some((_, value)) = seen.iter().find(|(other, _)| other == name) else { continue };
                let outcome = step.judge(name, value, want);
                progress(&outcome);
                outcomes.push(outcome);
            }
        }
    }
    Ok(outcomes)
}

/// Values in the order they were shown.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Values>>);

/// Values by their names.
type Values = Vec<(String, Vec<f32>)>;

impl Seen {
    fn observer(&self) -> Observer {
        let seen = self.clone();
        Box::new(move |name, value| {
            if let Observed::F32(values) = value {
                seen.lock().push((name.to_string(), values.to_vec()));
            }
        })
    }
    fn take(&self) -> Values {
        std::mem::take(&mut self.lock())
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step that both ran.
struct Step<'a> {
    shape: &'a Shape,
    rows: usize,
    from: usize,
    many: bool,
}

impl Step<'_> {
    /// Products that a value has passed, by the name of its layer.
    fn depth(&self, name: &str) -> usize {
        let layer = name.strip_prefix("layer").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        4 * (layer.map_or(self.shape.layers.len(), |layer| layer + 1))
    }

    fn judge(&self, name: &str, got: &[f32], want: &[f32]) -> Outcome {
        let width = (want.len() / self.rows).max(1);
        let unit = if self.many { 2.0 * U16 } else { 2.0 * U32 * (self.shape.wide() as f64).sqrt() };
        let relative = DEVIATIONS * unit * (self.depth(name) as f64).sqrt();
        let mut worst = 0.0f64;
        for (got, want) in got.chunks(width).zip(want.chunks(width)) {
            let largest = want.iter().fold(0.0f64, |largest, &x| largest.max(f64::from(x).abs()));
            for (g, w) in got.iter().zip(want) {
                let error = (f64::from(*g) - f64::from(*w)).abs();
                let share = if error == 0.0 { 0.0 } else { error / (relative * largest) };
                worst = if share.is_nan() { f64::INFINITY } else { worst.max(share) };
            }
        }
        Outcome {
            kernel: FAMILY.into(),
            case: format!("{name}, {} rows at {}", self.rows, self.from),
            class: Class::Rounding,
            worst,
            passed: worst <= 1.0 && got.len() == want.len(),
            digest: digest(bytemuck::cast_slice(got)),
            message: None,
        }
    }
}
