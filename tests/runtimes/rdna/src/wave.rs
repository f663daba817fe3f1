//! The state of a wave and of the workgroup it belongs to.
//!
//! Owns: registers, mode, LDS and what a handler may touch. Always true: registers and LDS start poisoned with values
//! that are NaN as F32, F16, BF16 and FP8, so that an uninitialised read shows up in the result.
//! Not here: who runs when (`run`), bounds (`memory`).

use crate::inst::{SCALARS, VECTORS};
use crate::memory::Checked;
use crate::profile::Counters;

/// Lanes of a wave.
pub const LANES: usize = 32;
/// One vector register.
pub type Lanes = [u32; LANES];

/// What an unwritten vector register holds.
pub const POISON_VECTOR: u32 = 0x7ff7_7ff7;
/// What an unwritten scalar register holds.
pub const POISON_SCALAR: u32 = 0x7ff5_7ff5;
/// What unwritten LDS holds, in every byte pair.
pub const POISON_LDS: u16 = 0x7ff3;

/// The part of MODE that changes results here. Rounding is to nearest even; a kernel that asks for another faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mode {
    /// F32 denormals read as zero.
    pub flush_in: bool,
    /// F32 denormals are written as zero.
    pub flush_out: bool,
}

/// Where a wave stands at the workgroup's barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Not signalled.
    Away,
    /// Signalled in this phase; waits when it reaches the wait.
    Signalled(u64),
}

/// One wave.
pub struct Wave {
    /// Vector registers.
    pub v: Box<[Lanes; VECTORS]>,
    /// Scalar registers, with the extra ones of `inst`.
    pub s: [u32; SCALARS],
    /// Index of the next instruction.
    pub pc: usize,
    /// Lanes that the launch gave it.
    pub launched: u32,
    /// See `Mode`.
    pub mode: Mode,
    /// Lanes that the current instruction's permutation lets through.
    pub dpp_mask: u32,
    /// See `Arrival`.
    pub arrival: Arrival,
    /// Number inside its workgroup.
    pub index: u32,
}

impl Default for Wave {
    /// A wave with every register poisoned.
    fn default() -> Self {
        let v = vec![[POISON_VECTOR; LANES]; VECTORS].into_boxed_slice();
        let v = v.try_into().unwrap_or_else(|_| Box::new([[POISON_VECTOR; LANES]; VECTORS]));
        Self {
            v,
            s: [POISON_SCALAR; SCALARS],
            pc: 0,
            launched: 0,
            mode: Mode::default(),
            dpp_mask: !0,
            arrival: Arrival::Away,
            index: 0,
        }
    }
}

impl Wave {
    /// The mask of active lanes.
    #[inline(always)]
    pub fn exec(&self) -> u32 {
        self.s[crate::inst::EXEC]
    }

    /// A pair of scalar registers.
    #[inline(always)]
    pub fn pair(&self, index: usize) -> u64 {
        u64::from(self.s[index]) | u64::from(self.s[index + 1]) << 32
    }

    /// Writes a pair of scalar registers.
    #[inline(always)]
    pub fn set_pair(&mut self, index: usize, value: u64) {
        self.s[index] = value as u32;
        self.s[index + 1] = (value >> 32) as u32;
    }
}

/// Why a wave cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The lane, where one is to blame.
    pub lane: Option<u32>,
    /// A sentence without its subject: kernel, workgroup, wave and instruction are added by `run`.
    pub text: String,
}

/// What the waves of a workgroup share.
pub struct Group<'a> {
    /// Local data share: static and dynamic.
    pub lds: Vec<u8>,
    /// Global memory.
    pub memory: Checked<'a>,
    /// Counters of the profile.
    pub counters: Counters,
    /// Set by a handler that returns `Flow::Fault`.
    pub fault: Option<Fault>,
    /// Host address that the code object's address 0 stands at.
    pub image_base: u64,
    /// Operand layouts of gfx12 (matrices).
    pub gfx12: bool,
    /// Lanes of an atomic go last to first.
    pub reverse_lanes: bool,
    /// Waves that the workgroup started with.
    pub launched: u32,
    /// Barrier: waves that have signalled in this phase, waves that are alive, phases completed.
    pub arrived: u32,
    /// See `arrived`.
    pub alive: u32,
    /// See `arrived`.
    pub phase: u64,
}

impl Group<'_> {
    /// Records a fault of the whole wave.
    #[cold]
    pub fn fail(&mut self, text: impl Into<String>) -> Flow {
        self.fault = Some(Fault { lane: None, text: text.into() });
        Flow::Fault
    }

    /// Records a fault of one lane.
    #[cold]
    pub fn fail_lane(&mut self, lane: usize, text: impl Into<String>) -> Flow {
        self.fault = Some(Fault { lane: Some(lane as u32), text: text.into() });
        Flow::Fault
    }
}

use crate::inst::Flow;
