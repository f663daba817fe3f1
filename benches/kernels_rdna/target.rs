//! The two targets' published peaks, and how long a launch would take at them.
//!
//! Owns: peaks, the three terms of a prediction. Always true: a term counts one resource as if nothing else took time,
//! so the greatest is a floor of the real time and no estimate of it.
//! Not here: counters (`main`), what a launch must move (`device`).

/// Peaks of HARDWARE.md.
pub struct Target {
    /// Architecture.
    pub arch: &'static str,
    /// SIMDs of 32 lanes; a compute unit has two and one LDS.
    simds: f64,
    /// Memory, bytes a second.
    bandwidth: f64,
    /// F16 matrix rate, operations a second.
    matrix: f64,
    /// Cycles of a 16 x 16 x 16 F16 tile product: 8,192 operations at 256 (RDNA 3.5) or 512 (RDNA 4) a SIMD and cycle.
    tile_cycles: f64,
}

/// Strix Halo and R9700.
pub const TARGETS: [Target; 2] = [
    Target { arch: "gfx1151", simds: 80.0, bandwidth: 256e9, matrix: 59e12, tile_cycles: 32.0 },
    Target { arch: "gfx1201", simds: 128.0, bandwidth: 640e9, matrix: 191e12, tile_cycles: 16.0 },
];

/// Operations of a 16 x 16 x 16 tile product.
const TILE_OPERATIONS: f64 = 8192.0;
/// Bytes that an LDS moves a cycle.
const LDS_BYTES: f64 = 128.0;

/// What a whole launch does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Waves.
    pub waves: f64,
    /// Wave-instructions but for waits.
    pub slots: f64,
    /// Of them, matrix tiles.
    pub tiles: f64,
    /// Bytes that must come from and go to memory.
    pub bytes: f64,
    /// Bytes through LDS.
    pub lds_bytes: f64,
    /// Cycles that LDS accesses wait for each other's banks.
    pub lds_conflicts: f64,
}

/// Seconds of each resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    pub memory: f64,
    pub issue: f64,
    pub lds: f64,
}

impl Target {
    /// Cycles a second: what the matrix peak says.
    fn clock(&self) -> f64 {
        self.matrix / (self.simds * TILE_OPERATIONS / self.tile_cycles)
    }

    /// Cycles that issuing takes, over all SIMDs.
    pub fn issue_cycles(&self, work: &Work) -> f64 {
        work.slots + work.tiles * (self.tile_cycles - 1.0)
    }

    /// Share of issue cycles in which matrix tiles run.
    pub fn tile_share(&self, work: &Work) -> f64 {
        work.tiles * self.tile_cycles / self.issue_cycles(work)
    }

    /// Seconds of each resource; a launch of fewer waves than SIMDs leaves the rest idle.
    pub fn terms(&self, work: &Work) -> Terms {
        let busy = self.simds.min(work.waves);
        Terms {
            memory: work.bytes / self.bandwidth,
            issue: self.issue_cycles(work) / busy / self.clock(),
            lds: (work.lds_bytes / LDS_BYTES + work.lds_conflicts) / (busy / 2.0).ceil() / self.clock(),
        }
    }
}

impl Terms {
    /// The greatest, with its name.
    pub fn binding(&self) -> (f64, &'static str) {
        let all = [(self.memory, "memory"), (self.issue, "issue"), (self.lds, "LDS")];
        all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, "nothing"))
    }
}
