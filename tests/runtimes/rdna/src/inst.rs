//! A decoded instruction, and what a mnemonic's line of semantics says about its operands.
//!
//! Owns: the types that the decoder fills in and the handlers read. Always true: everything that can be resolved
//! before execution is: register numbers, constants, modifiers as bit masks, branch targets as indices.
//! Not here: reading encodings (`decode`), fetching operands (`value`), what a mnemonic does (`semantics`).

use crate::wave::{Group, Wave};

/// Scalar register numbers beyond the 106 general ones. `SCC` and `SINK` are ours: hardware keeps the condition
/// code elsewhere and gives writes to `null` no register at all.
pub const VCC: usize = 106;
/// First trap temporary; gfx12 passes the workgroup id in `ttmp9` and `ttmp7`.
pub const TTMP0: usize = 108;
/// `m0`.
pub const M0: usize = 125;
/// The mask of active lanes.
pub const EXEC: usize = 126;
/// The scalar condition code, 0 or 1.
pub const SCC: usize = 128;
/// Where writes to `null` go (two words: a null pair is a valid destination).
pub const SINK: usize = 129;
/// Scalar registers a wave holds, `SINK`'s pair and room for a 16-word load that starts at the last one included.
pub const SCALARS: usize = 160;
/// A vector register that no kernel can name: dual-issue halves that overlap pass a value through it.
pub const SCRATCH_VGPR: u16 = 300;
/// Vector registers a wave holds, rounded to a power of two so that an index needs a mask and not a check.
pub const VECTORS: usize = 512;

/// What a handler tells the loop that runs a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Next,
    /// The wave must wait for the others at its barrier.
    Barrier,
    /// The wave is done.
    End,
    /// `Group::fault` says why not.
    Fault,
}

/// Executes one instruction.
///
/// # Safety
/// A handler of the fast set needs AVX2, FMA and F16C; `run::fast_handlers` decides once.
pub type Handler = unsafe fn(&mut Wave, &Inst, &mut Group<'_>) -> Flow;

/// How an operand is read or written: decides literals, inline constants, halves and modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Not there.
    None,
    /// 32 bits without modifiers.
    B32,
    /// 32 bits with the float modifiers, never flushed (`v_cndmask_b32`).
    N32,
    /// A float.
    F32,
    /// 64 bits without modifiers.
    B64,
    /// A double.
    F64,
    /// Half a register, without modifiers.
    B16,
    /// A half-precision float.
    F16,
    /// Two 16-bit integers.
    PackedB16,
    /// Two half-precision floats.
    PackedF16,
    /// Two BF16 floats.
    PackedBf16,
    /// F32, or F16 from either half, as `op_sel_hi` says (`v_fma_mix_f32`).
    Mix,
    /// A lane mask in a scalar register: VCC where the encoding has no field for it.
    Mask,
    /// A lane mask that becomes EXEC.
    ExecMask,
    /// The destination again, as F32, F16, packed F16, or 32 bits.
    DestF32,
    /// See `DestF32`.
    DestF16,
    /// See `DestF32`.
    DestPackedF16,
    /// See `DestF32`.
    DestB32,
    /// The condition code.
    Scc,
    /// A scalar register, as the destination of a vector instruction (`v_readlane_b32`).
    Scalar,
}

/// Destination and sources of a mnemonic.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// What is written.
    pub dst: Slot,
    /// What is read, in the order of the assembler's operands.
    pub src: [Slot; 3],
}

/// One mnemonic's line.
#[derive(Debug, Clone, Copy)]
pub struct Semantics {
    /// All names it goes by, without `_e32`, `_e64`, `_dpp` and `v_dual_`. ` clamp` at the end: the saturating form.
    pub names: &'static [&'static str],
    /// Its operands.
    pub form: Form,
    /// Runs on any host.
    pub base: Handler,
    /// The same, compiled for AVX2, FMA and F16C.
    pub fast: Handler,
}

/// Where a source's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bank {
    /// A vector register.
    Vector,
    /// A scalar register.
    Scalar,
    /// `Source::value`.
    Constant,
}

/// One source operand.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Where it is.
    pub bank: Bank,
    /// No modifier, half or lane permutation: the value is the register as it is.
    pub plain: bool,
    /// 0 the whole register, 1 its low half, 2 its high half.
    pub half: u8,
    /// A float that MODE may flush.
    pub flush: bool,
    /// Register number.
    pub index: u16,
    /// Applied to the top word (or the half): clears the sign for `abs`.
    pub and: u32,
    /// Applied after `and`: flips the sign for `neg`.
    pub xor: u32,
    /// A constant, sign- or zero-extended as its slot asks.
    pub value: u64,
}

impl Source {
    /// A constant.
    pub const fn constant(value: u64) -> Self {
        Self { bank: Bank::Constant, plain: true, half: 0, flush: false, index: 0, and: !0, xor: 0, value }
    }
    /// A scalar register.
    pub const fn scalar(index: usize) -> Self {
        Self { bank: Bank::Scalar, index: index as u16, ..Self::constant(0) }
    }
    /// A vector register.
    pub const fn vector(index: usize) -> Self {
        Self { bank: Bank::Vector, index: index as u16, ..Self::constant(0) }
    }
}

/// A lane permutation of the first source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dpp {
    /// Which lane each lane reads, from the 9-bit control word or DPP8's selectors.
    pub kind: DppKind,
    /// Rows of 16 lanes that are written.
    pub row_mask: u8,
    /// Banks of 4 lanes that are written.
    pub bank_mask: u8,
    /// A lane without a source reads zero and is not skipped.
    pub bound_zero: bool,
    /// Inactive lanes can be read.
    pub fetch_inactive: bool,
}

/// See `Dpp::kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DppKind {
    /// 3 bits a lane of 8.
    Eight(u32),
    /// The control word of DPP16.
    Control(u16),
}

/// What an instruction counts as in the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Vector arithmetic.
    Valu,
    /// Scalar arithmetic.
    Salu,
    /// Scalar loads.
    Smem,
    /// Global memory.
    Vmem,
    /// Local data share.
    Lds,
    /// Matrix instructions.
    Wmma,
    /// Branches and the end of a program.
    Branch,
    /// Waits, delays and barriers.
    Wait,
    /// What has no other class; also the second half of a dual issue, which is not counted.
    Other,
}

/// A decoded instruction.
#[derive(Debug, Clone, Copy)]
pub struct Inst {
    /// Its handler.
    pub run: Handler,
    /// Mnemonic, for faults and the profile.
    pub name: &'static str,
    /// Address inside the code object.
    pub pc: u32,
    /// Bytes.
    pub size: u8,
    /// See `Class`.
    pub class: Class,
    /// 0 the first (or only) instruction at this address, above 0 a further half of a dual issue.
    pub part: u8,
    /// 0 none, 1 ×2, 2 ×4, 3 ÷2.
    pub omod: u8,
    /// Result clamped to [0, 1], or saturated.
    pub clamp: bool,
    /// `omod`, `clamp` or flushing may change a float result.
    pub finish: bool,
    /// 0 the whole destination, 1 its low half, 2 its high half.
    pub dst_half: u8,
    /// Packed selection: low results from the high halves of these sources.
    pub op_sel: u8,
    /// High results from the high halves of these sources.
    pub op_sel_hi: u8,
    /// Packed negation of what the low result reads (signedness in integer dots).
    pub neg: u8,
    /// Packed negation of what the high result reads (`abs` outside packed forms).
    pub neg_hi: u8,
    /// Destination register: vector or scalar, as the form says.
    pub dst: u16,
    /// Second, scalar destination: a carry or compare mask.
    pub sdst: u16,
    /// Sources.
    pub src: [Source; 3],
    /// Lane permutation of `src[0]`.
    pub dpp: Option<Dpp>,
    /// Memory offset, or the first of two.
    pub offset: i32,
    /// The second of two offsets; 16-bit immediate; the raw word of a cache policy.
    pub immediate: u32,
    /// A branch's destination as an index into the program.
    pub target: u32,
}
