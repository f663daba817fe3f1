//! How fast kernels run here: `cargo run --release -p hip-rdna --example speed` (needs clang-22).
//!
//! Prints, for each kernel and target on one thread, wave-instructions a second. The aim is 20 million.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use hip_facade::executor::{Executor, Launch};
use hip_rdna::Rdna;
use support::{Arguments, Buffers, TARGETS, compile, noise, probe};

fn main() {
    for target in TARGETS {
        let executor = Rdna::new(1);
        let module = executor.load(&compile(&probe("speed.hip"), target), target).unwrap_or_else(|e| panic!("{e}"));
        for kernel in ["arithmetic", "halves", "exponential", "matrix", "local_memory", "global_memory", "scalars"] {
            let (mut y, mut x) = (vec![0f32; 1 << 16], noise(1 << 16, 1));
            let memory = Buffers::default();
            let arguments =
                Arguments::default().long(memory.add(&mut y)).long(memory.add(&mut x)).word(400).float(0.5).bytes();
            let launch = Launch {
                kernel,
                grid: [64, 1, 1],
                block: [256, 1, 1],
                dynamic_lds: 0,
                arguments: &arguments,
                schedule: 0,
            };
            let start = Instant::now();
            module.launch(&launch, &memory).unwrap_or_else(|e| panic!("{e}"));
            let (seconds, count) = (start.elapsed().as_secs_f64(), executor.instructions(kernel));
            println!(
                "{target} {kernel:14} {count:9} instructions, {:6.1} million a second",
                count as f64 / seconds / 1e6
            );
        }
    }
}
