//! How fast kernels run here: `cargo run --release -p hip-rdna --example speed` (needs clang-22).
//!
//! Prints, for each kernel and target on one thread, wave-instructions a second of CPU time: the best of three runs. The
//! aim is 20 million.

#[path = "../tests/support/mod.rs"]
mod support;

use hip_facade::executor::{Executor, Launch};
use hip_rdna::Rdna;
use support::{Arguments, Buffers, TARGETS, compile, noise, probe};

/// CPU time of this process: other work on the machine does not count.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

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
            let mut seconds = f64::INFINITY;
            for _ in 0..3 {
                let start = cpu_seconds();
                module.launch(&launch, &memory).unwrap_or_else(|e| panic!("{e}"));
                seconds = seconds.min(cpu_seconds() - start);
            }
            let count = executor.instructions(kernel) / 3;
            println!(
                "{target} {kernel:14} {count:9} instructions, {:6.1} million a second",
                count as f64 / seconds / 1e6
            );
        }
    }
}
