//! What a kernel did, in numbers: the instruction-level profile.
//!
//! Owns: counters of a launch, their sums per kernel, and JSON. Always true: counting is per wave-instruction; the two
//! halves of a dual issue count once. Not here: time. Nothing here predicts cycles but the LDS conflicts' own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::inst::{Class, Inst};
use crate::wave::LANES;

/// Bytes that went one way through one address space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All bytes of active lanes.
    pub bytes: u64,
    /// Those moved by accesses of 16 bytes a lane.
    pub wide: u64,
    /// The same with what several lanes of one access read at one address counted once, where addresses are known.
    pub distinct: u64,
}

impl Traffic {
    /// Counts one access of `bytes` by each of the active lanes.
    #[inline(always)]
    pub fn add(&mut self, bytes: u64, active: u32) {
        self.count(bytes, active.count_ones(), active.count_ones());
    }

    /// The same for lanes whose addresses are known.
    #[inline(always)]
    pub fn add_at(&mut self, bytes: u64, active: u32, addresses: &[u64; LANES]) {
        let distinct = if active == !0 && addresses.is_sorted_by(|a, b| a < b) {
            LANES as u32
        } else {
            distinct(addresses, active)
        };
        self.count(bytes, active.count_ones(), distinct);
    }

    fn count(&mut self, bytes: u64, lanes: u32, distinct: u32) {
        let all = bytes * u64::from(lanes);
        self.bytes += all;
        self.wide += if bytes == 16 { all } else { 0 };
        self.distinct += bytes * u64::from(distinct);
    }

    fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.wide += other.wide;
        self.distinct += other.distinct;
    }

    fn json(&self) -> String {
        let wide = share(self.wide, self.bytes);
        format!(r#"{{"bytes":{},"in_16_byte_accesses":{wide:.4},"distinct_bytes":{}}}"#, self.bytes, self.distinct)
    }
}

/// Addresses that active lanes have between them.
fn distinct(addresses: &[u64; LANES], active: u32) -> u32 {
    let mut seen = [0; LANES];
    let mut count = 0;
    for lane in (0..LANES).filter(|lane| active >> lane & 1 != 0) {
        if !seen[..count].contains(&addresses[lane]) {
            seen[count] = addresses[lane];
            count += 1;
        }
    }
    count as u32
}

/// What handlers count while a kernel runs.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Executions of each instruction of the program.
    pub executed: Vec<u64>,
    /// Global loads, atomics' old values included.
    pub global_load: Traffic,
    /// Global stores and atomics.
    pub global_store: Traffic,
    /// LDS loads.
    pub lds_load: Traffic,
    /// LDS stores and atomics.
    pub lds_store: Traffic,
    /// Scalar loads.
    pub scalar_load: Traffic,
    /// Cycles that LDS accesses took beyond one a pass.
    pub lds_conflicts: u64,
}

impl Counters {
    /// Adds another thread's counters.
    pub fn merge(&mut self, other: &Self) {
        if self.executed.len() < other.executed.len() {
            self.executed.resize(other.executed.len(), 0);
        }
        self.executed.iter_mut().zip(&other.executed).for_each(|(a, b)| *a += b);
        self.global_load.merge(&other.global_load);
        self.global_store.merge(&other.global_store);
        self.lds_load.merge(&other.lds_load);
        self.lds_store.merge(&other.lds_store);
        self.scalar_load.merge(&other.scalar_load);
        self.lds_conflicts += other.lds_conflicts;
    }
}

/// Names of the classes, in the order of `Class`.
const CLASSES: [&str; 9] = ["valu", "salu", "smem", "vmem", "lds", "wmma", "branch", "wait", "other"];

/// One kernel's sums over its launches.
#[derive(Debug, Clone, Default)]
pub struct KernelProfile {
    launches: u64,
    workgroups: u64,
    waves: u64,
    class: [u64; CLASSES.len()],
    dual: u64,
    counters: Counters,
}

/// All kernels', by name and architecture.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    kernels: BTreeMap<(String, String), KernelProfile>,
}

impl Profile {
    /// Adds a launch.
    pub fn add(
        &mut self,
        arch: &str,
        kernel: &str,
        program: &[Inst],
        workgroups: u64,
        waves: u64,
        counters: &Counters,
    ) {
        let sums = self.kernels.entry((kernel.to_owned(), arch.to_owned())).or_default();
        sums.launches += 1;
        sums.workgroups += workgroups;
        sums.waves += waves;
        for (inst, &count) in program.iter().zip(&counters.executed) {
            match inst.part {
                0 => sums.class[inst.class as usize] += count,
                1 => sums.dual += count,
                _ => {}
            }
        }
        let mut light = counters.clone();
        light.executed.clear();
        sums.counters.merge(&light);
    }

    /// An array with one object a kernel.
    pub fn json(&self) -> String {
        let kernels: Vec<_> = self.kernels.iter().map(|((name, arch), k)| k.json(name, arch)).collect();
        format!("[{}]", kernels.join(","))
    }

    /// Wave-instructions executed so far by one kernel.
    pub fn instructions(&self, kernel: &str) -> u64 {
        self.kernels.iter().filter(|((name, _), _)| name == kernel).map(|(_, k)| k.class.iter().sum::<u64>()).sum()
    }
}

impl KernelProfile {
    fn json(&self, name: &str, arch: &str) -> String {
        let issued: u64 = self.class.iter().sum();
        let mut out = format!(
            r#"{{"kernel":"{name}","arch":"{arch}","launches":{},"workgroups":{},"waves":{},"instructions":{issued},"classes":{{"#,
            self.launches, self.workgroups, self.waves
        );
        for (k, (class, count)) in CLASSES.iter().zip(self.class).enumerate() {
            let comma = if k == 0 { "" } else { "," };
            let _ = write!(out, r#"{comma}"{class}":{count}"#);
        }
        // A wait or a delay takes no issue slot of an execution unit.
        let slots = issued - self.class[Class::Wait as usize];
        let c = &self.counters;
        let _ = write!(
            out,
            r#"}},"dual_issued":{},"wmma_share":{:.4},"global_load":{},"global_store":{},"lds_load":{},"lds_store":{},"scalar_load":{},"lds_conflict_cycles":{}}}"#,
            self.dual,
            share(self.class[Class::Wmma as usize], slots),
            c.global_load.json(),
            c.global_store.json(),
            c.lds_load.json(),
            c.lds_store.json(),
            c.scalar_load.json(),
            c.lds_conflicts
        );
        out
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
