//! Steps the CPU and a HIP device along one text and compares what each would say next.
//!
//! Random weights make many next tokens near ties, so that two devices that round differently soon write different texts,
//! however long. Here both read the same one: a prompt of random ids, then what the CPU chose. What counts is how often
//! the device's choice is the CPU's, and where it is not, how far apart the CPU's own candidates were.
//!
//! `cargo run --release --example agreement -- PROMPT ANSWER [PACK]` (`small:f32`, keys and values in F32); the device is
//! that of `HIPFIRE_HIP_LIBRARY`.

use std::error::Error;
use std::path::PathBuf;

use hipfire::config::{Device, KvMode};
use hipfire::engine::LoadOptions;
use hipfire::engine::bench::Bench;
use hipfire::engine::logits::largest;

/// Of so many neighbouring logits one is compared.
const STRIDE: usize = 16;

/// What a device saw behind a token.
struct Seen {
    choice: u32,
    /// The best logit's distance from the second.
    gap: f32,
    /// Standard deviation of all logits.
    spread: f32,
    logits: Vec<f32>,
}

impl Seen {
    fn of(logits: &[f32]) -> Seen {
        let best = largest(logits, 2);
        let mean = logits.iter().map(|&x| f64::from(x)).sum::<f64>() / logits.len() as f64;
        let square = logits.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / logits.len() as f64;
        Seen {
            choice: best[0].id,
            gap: logits[best[0].id as usize] - logits[best[1].id as usize],
            spread: square.sqrt() as f32,
            logits: logits.iter().step_by(STRIDE).copied().collect(),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: agreement PROMPT ANSWER [PACK]";
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<usize>().ok()).filter(|&n| n > 0).ok_or(usage);
    let (prompt, answer) = (number()?, number()?);
    let pack = arguments.next().map(PathBuf::from);
    let open = |device| {
        let options = LoadOptions {
            synthetic: Some("small:f32".into()),
            device,
            kernel_pack: pack.clone(),
            max_seq: Some((prompt + answer).next_multiple_of(1024)),
            kv_mode: Some(KvMode::F32),
            ..LoadOptions::default()
        };
        Bench::open(&options, &mut |_| {})
    };

    let mut cpu = Vec::with_capacity(answer);
    open(Device::Cpu)?.follow(prompt, 1, answer, &mut |logits| {
        cpu.push(Seen::of(logits));
        cpu[cpu.len() - 1].choice
    })?;
    let mut hip = Vec::with_capacity(answer);
    open(Device::Hip(0))?.follow(prompt, 1, answer, &mut |logits| {
        hip.push(Seen::of(logits));
        cpu[hip.len() - 1].choice
    })?;

    let (mut equal, mut worst, mut widest, mut sum) = (0, 0f32, 0f32, 0f64);
    for (cpu, hip) in cpu.iter().zip(&hip) {
        let error = cpu.logits.iter().zip(&hip.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / cpu.spread;
        worst = worst.max(error);
        sum += f64::from(error);
        match cpu.choice == hip.choice {
            true => equal += 1,
            false => widest = widest.max(cpu.gap / cpu.spread),
        }
    }
    println!("behind {prompt} tokens: {equal} of {answer} choices are the CPU's");
    println!(
        "the widest gap between the CPU's two best where they are not: {widest:.2e} standard deviations of the logits"
    );
    println!("a token's greatest difference of a logit: {:.2e} in the mean, {worst:.2e} at most", sum / answer as f64);
    Ok(())
}
