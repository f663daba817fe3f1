//! How a vector operand of each type is fetched for 32 lanes and how a result is written.
//!
//! Owns: modifiers, halves, packed selection, lane permutation of sources; clamp, output scale, masks and halves of
//! results. Always true: a type's `SLOT` is all the decoder needs to know to prepare an operand for it.
//! Not here: scalar operands (`semantics::scalar`), memory.

use crate::float::{f16_to_f32, f32_to_bf16, f32_to_f16, flush};
use crate::inst::{Bank, Inst, Slot};
use crate::permute::permute;
use crate::wave::{LANES, Lanes, Wave};

/// A type that a source operand may have.
pub trait Value: Copy {
    /// Tells the decoder what the operand is.
    const SLOT: Slot;
    /// All lanes.
    type Raw: Copy;
    /// Fetches source `k`.
    fn load(w: &mut Wave, i: &Inst, k: usize) -> Self::Raw;
    /// One lane of what `load` gave.
    fn get(raw: &Self::Raw, lane: usize) -> Self;
}

/// A type that a result may have.
pub trait Target: Copy {
    /// Tells the decoder what the destination is.
    const SLOT: Slot;
    /// All lanes.
    type Raw: Copy;
    /// Before the first lane is set.
    const ZERO: Self::Raw;
    /// One lane.
    fn set(raw: &mut Self::Raw, lane: usize, value: Self);
    /// Writes the active lanes.
    fn store(w: &mut Wave, i: &Inst, raw: Self::Raw);
}

/// 32 bits of source `k`, with all of its modifiers.
#[inline(always)]
pub fn load32(w: &mut Wave, i: &Inst, k: usize) -> Lanes {
    let source = &i.src[k];
    if !source.plain {
        return load_modified(w, i, k);
    }
    match source.bank {
        Bank::Vector => w.v[usize::from(source.index) & 511],
        Bank::Scalar => [w.s[usize::from(source.index)]; LANES],
        Bank::Constant => [source.value as u32; LANES],
    }
}

#[inline(never)]
fn load_modified(w: &mut Wave, i: &Inst, k: usize) -> Lanes {
    let source = i.src[k];
    let mut x = match source.bank {
        Bank::Vector => w.v[usize::from(source.index) & 511],
        Bank::Scalar => [w.s[usize::from(source.index)]; LANES],
        Bank::Constant => [source.value as u32; LANES],
    };
    if k == 0
        && let Some(dpp) = i.dpp
    {
        (x, w.dpp_mask) = permute(&x, dpp, w.exec());
    }
    match source.half {
        1 => x.iter_mut().for_each(|e| *e &= 0xffff),
        2 => x.iter_mut().for_each(|e| *e >>= 16),
        _ => {}
    }
    if source.flush && w.mode.flush_in {
        x.iter_mut().for_each(|e| *e = flush(*e));
    }
    x.iter_mut().for_each(|e| *e = *e & source.and ^ source.xor);
    x
}

/// 64 bits of source `k`; modifiers act on the top word.
#[inline(always)]
pub fn load64(w: &mut Wave, i: &Inst, k: usize) -> [u64; LANES] {
    let source = &i.src[k];
    let index = usize::from(source.index);
    let mut x = match source.bank {
        Bank::Vector => {
            let (low, high) = (&w.v[index & 511], &w.v[(index + 1) & 511]);
            let mut x = [0; LANES];
            for l in 0..LANES {
                x[l] = u64::from(low[l]) | u64::from(high[l]) << 32;
            }
            x
        }
        Bank::Scalar => [w.pair(index); LANES],
        Bank::Constant => [source.value; LANES],
    };
    if !source.plain {
        let (and, xor) = (u64::from(source.and) << 32 | 0xffff_ffff, u64::from(source.xor) << 32);
        x.iter_mut().for_each(|e| *e = *e & and ^ xor);
    }
    x
}

/// Lanes that an instruction writes.
#[inline(always)]
fn written(w: &Wave, i: &Inst) -> u32 {
    if i.dpp.is_some() { w.exec() & w.dpp_mask } else { w.exec() }
}

/// Writes 32 bits to a vector register under a mask.
#[inline(always)]
pub fn write32(w: &mut Wave, index: usize, x: &Lanes, mask: u32) {
    let d = &mut w.v[index & 511];
    if mask == !0 {
        *d = *x;
        return;
    }
    for l in 0..LANES {
        d[l] = if mask >> l & 1 != 0 { x[l] } else { d[l] };
    }
}

#[inline(always)]
fn store32(w: &mut Wave, i: &Inst, x: &Lanes) {
    let mask = written(w, i);
    write32(w, usize::from(i.dst), x, mask);
}

#[inline(always)]
fn store16(w: &mut Wave, i: &Inst, x: &Lanes) {
    let mask = written(w, i);
    let d = &mut w.v[usize::from(i.dst) & 511];
    let (keep, shift) = if i.dst_half == 2 { (0xffff, 16) } else { (0xffff_0000, 0) };
    for l in 0..LANES {
        let merged = d[l] & keep | (x[l] & 0xffff) << shift;
        d[l] = if mask >> l & 1 != 0 { merged } else { d[l] };
    }
}

/// The output scale of `omod`.
fn scale(omod: u8) -> f32 {
    [1.0, 2.0, 4.0, 0.5][usize::from(omod & 3)]
}

/// Clamping sends NaN to zero (DX10_CLAMP, which compute kernels start with).
#[inline(always)]
fn clamped(x: f32) -> f32 {
    if x >= 1.0 {
        1.0
    } else if x > 0.0 {
        x
    } else {
        0.0
    }
}

#[inline(never)]
fn finish_f32(w: &Wave, i: &Inst, x: &mut Lanes) {
    for e in x {
        let mut value = f32::from_bits(*e);
        if i.omod != 0 {
            value *= scale(i.omod);
        }
        if i.clamp {
            value = clamped(value);
        }
        *e = if w.mode.flush_out { flush(value.to_bits()) } else { value.to_bits() };
    }
}

macro_rules! word {
    ($type:ty, $slot:expr, $from:expr, $to:expr) => {
        impl Value for $type {
            const SLOT: Slot = $slot;
            type Raw = Lanes;
            #[inline(always)]
            fn load(w: &mut Wave, i: &Inst, k: usize) -> Lanes {
                load32(w, i, k)
            }
            #[inline(always)]
            fn get(raw: &Lanes, lane: usize) -> Self {
                ($from)(raw[lane])
            }
        }
    };
    ($type:ty, $slot:expr, $from:expr, $to:expr, $store:expr) => {
        word!($type, $slot, $from, $to);
        impl Target for $type {
            const SLOT: Slot = $slot;
            type Raw = Lanes;
            const ZERO: Lanes = [0; LANES];
            #[inline(always)]
            fn set(raw: &mut Lanes, lane: usize, value: Self) {
                raw[lane] = ($to)(value);
            }
            #[inline(always)]
            fn store(w: &mut Wave, i: &Inst, raw: Lanes) {
                ($store)(w, i, raw)
            }
        }
    };
}

/// 32 bits that take float modifiers but no flushing.
#[derive(Debug, Clone, Copy)]
pub struct Signed32(pub u32);
/// An F16 operand, held as F32 (exact).
#[derive(Debug, Clone, Copy)]
pub struct Half(pub f32);
/// Two F16s.
#[derive(Debug, Clone, Copy)]
pub struct Halves(pub [f32; 2]);
/// Two BF16s.
#[derive(Debug, Clone, Copy)]
pub struct Brains(pub [f32; 2]);
/// Two 16-bit integers.
#[derive(Debug, Clone, Copy)]
pub struct Shorts(pub [u16; 2]);
/// F32 or F16, as the instruction says.
#[derive(Debug, Clone, Copy)]
pub struct Mix(pub f32);
/// One bit a lane, from a scalar register.
#[derive(Debug, Clone, Copy)]
pub struct Mask(pub bool);
/// A comparison's result that becomes EXEC.
#[derive(Debug, Clone, Copy)]
pub struct Exec(pub bool);
/// A sum with its carry.
#[derive(Debug, Clone, Copy)]
pub struct Carry(pub u32, pub bool);
/// A 64-bit sum with its carry.
#[derive(Debug, Clone, Copy)]
pub struct WideCarry(pub u64, pub bool);
/// The old destination.
#[derive(Debug, Clone, Copy)]
pub struct Dest<T>(pub T);
/// A BF16 result.
#[derive(Debug, Clone, Copy)]
pub struct Brain(pub f32);

word!(u32, Slot::B32, |x| x, |x| x, |w: &mut Wave, i: &Inst, x: Lanes| store32(w, i, &x));
word!(i32, Slot::B32, |x| x as i32, |x| x as u32, |w: &mut Wave, i: &Inst, x: Lanes| store32(w, i, &x));
word!(f32, Slot::F32, f32::from_bits, f32::to_bits, |w: &mut Wave, i: &Inst, mut x: Lanes| {
    if i.finish {
        finish_f32(w, i, &mut x);
    }
    store32(w, i, &x)
});
word!(u16, Slot::B16, |x| x as u16, u32::from, |w: &mut Wave, i: &Inst, x: Lanes| store16(w, i, &x));
word!(i16, Slot::B16, |x| x as i16, |x: i16| u32::from(x as u16), |w: &mut Wave, i: &Inst, x: Lanes| store16(w, i, &x));
word!(Signed32, Slot::N32, Signed32, |x: Signed32| x.0);
word!(Dest<u32>, Slot::DestB32, Dest, |x: Dest<u32>| x.0);
word!(Dest<f32>, Slot::DestF32, |x| Dest(f32::from_bits(x)), |x: Dest<f32>| x.0.to_bits());
word!(Dest<Half>, Slot::DestF16, |x| Dest(Half(f16_to_f32(x as u16))), |_| 0);
word!(
    Half,
    Slot::F16,
    |x| Half(f16_to_f32(x as u16)),
    |x: Half| x.0.to_bits(),
    |w: &mut Wave, i: &Inst, mut x: Lanes| {
        // Scaled and clamped before the only rounding.
        for e in &mut x {
            let mut value = f32::from_bits(*e);
            if i.finish {
                value = if i.omod != 0 { value * scale(i.omod) } else { value };
                value = if i.clamp { clamped(value) } else { value };
            }
            *e = u32::from(f32_to_f16(value));
        }
        store16(w, i, &x)
    }
);

impl Target for Brain {
    const SLOT: Slot = Slot::B16;
    type Raw = Lanes;
    const ZERO: Lanes = [0; LANES];
    #[inline(always)]
    fn set(raw: &mut Lanes, lane: usize, value: Self) {
        raw[lane] = u32::from(f32_to_bf16(value.0));
    }
    #[inline(always)]
    fn store(w: &mut Wave, i: &Inst, raw: Lanes) {
        store16(w, i, &raw);
    }
}

macro_rules! double {
    ($type:ty, $slot:expr, $from:expr, $to:expr) => {
        impl Value for $type {
            const SLOT: Slot = $slot;
            type Raw = [u64; LANES];
            #[inline(always)]
            fn load(w: &mut Wave, i: &Inst, k: usize) -> Self::Raw {
                load64(w, i, k)
            }
            #[inline(always)]
            fn get(raw: &Self::Raw, lane: usize) -> Self {
                ($from)(raw[lane])
            }
        }
        impl Target for $type {
            const SLOT: Slot = $slot;
            type Raw = [u64; LANES];
            const ZERO: Self::Raw = [0; LANES];
            #[inline(always)]
            fn set(raw: &mut Self::Raw, lane: usize, value: Self) {
                raw[lane] = ($to)(value);
            }
            #[inline(always)]
            fn store(w: &mut Wave, i: &Inst, mut raw: Self::Raw) {
                if i.finish && <$type as Target>::SLOT == Slot::F64 {
                    for e in &mut raw {
                        let value = f64::from_bits(*e) * f64::from(scale(i.omod));
                        *e = if i.clamp { value.clamp(0.0, 1.0) } else { value }.to_bits();
                    }
                }
                let mask = written(w, i);
                let (mut low, mut high) = ([0; LANES], [0; LANES]);
                for l in 0..LANES {
                    (low[l], high[l]) = (raw[l] as u32, (raw[l] >> 32) as u32);
                }
                write32(w, usize::from(i.dst), &low, mask);
                write32(w, usize::from(i.dst) + 1, &high, mask);
            }
        }
    };
}
double!(u64, Slot::B64, |x| x, |x| x);
double!(i64, Slot::B64, |x| x as i64, |x| x as u64);
double!(f64, Slot::F64, f64::from_bits, f64::to_bits);

/// Both halves of a packed source, chosen and negated; `sign` is 0x8000 where negation means the sign bit.
#[inline(always)]
fn load_packed(w: &mut Wave, i: &Inst, k: usize, sign: u32) -> Lanes {
    let mut x = load32(w, i, k);
    let bit = |word: u8| u32::from(word >> k & 1);
    if bit(i.op_sel) == 0 && bit(i.op_sel_hi) == 1 && bit(i.neg | i.neg_hi) == 0 {
        return x;
    }
    let (low, high) = (16 * bit(i.op_sel), 16 * bit(i.op_sel_hi));
    let flip = (bit(i.neg) | bit(i.neg_hi) << 16) * sign;
    for e in &mut x {
        *e = (*e >> low & 0xffff | (*e >> high & 0xffff) << 16) ^ flip;
    }
    x
}

macro_rules! packed {
    ($type:ty, $slot:expr, $sign:expr, $from:expr, $to:expr) => {
        impl Value for $type {
            const SLOT: Slot = $slot;
            type Raw = Lanes;
            #[inline(always)]
            fn load(w: &mut Wave, i: &Inst, k: usize) -> Lanes {
                load_packed(w, i, k, $sign)
            }
            #[inline(always)]
            fn get(raw: &Lanes, lane: usize) -> Self {
                ($from)([raw[lane] as u16, (raw[lane] >> 16) as u16])
            }
        }
        impl Target for $type {
            const SLOT: Slot = $slot;
            type Raw = Lanes;
            const ZERO: Lanes = [0; LANES];
            #[inline(always)]
            fn set(raw: &mut Lanes, lane: usize, value: Self) {
                let [low, high]: [u16; 2] = ($to)(value);
                raw[lane] = u32::from(low) | u32::from(high) << 16;
            }
            #[inline(always)]
            fn store(w: &mut Wave, i: &Inst, raw: Lanes) {
                store32(w, i, &raw);
            }
        }
    };
}
packed!(Shorts, Slot::PackedB16, 0, Shorts, |x: Shorts| x.0);
packed!(Brains, Slot::PackedBf16, 0x8000, |x: [u16; 2]| Brains(x.map(crate::float::bf16_to_f32)), |x: Brains| x
    .0
    .map(f32_to_bf16));
packed!(Halves, Slot::PackedF16, 0x8000, |x: [u16; 2]| Halves(x.map(f16_to_f32)), |x: Halves| x.0.map(f32_to_f16));

impl Value for Dest<Halves> {
    const SLOT: Slot = Slot::DestPackedF16;
    type Raw = Lanes;
    #[inline(always)]
    fn load(w: &mut Wave, i: &Inst, k: usize) -> Lanes {
        load32(w, i, k)
    }
    #[inline(always)]
    fn get(raw: &Lanes, lane: usize) -> Self {
        Dest(Halves([raw[lane] as u16, (raw[lane] >> 16) as u16].map(f16_to_f32)))
    }
}

impl Value for Mix {
    const SLOT: Slot = Slot::Mix;
    type Raw = Lanes;
    #[inline(always)]
    fn load(w: &mut Wave, i: &Inst, k: usize) -> Lanes {
        let mut x = load32(w, i, k);
        if i.op_sel_hi >> k & 1 == 1 {
            let shift = 16 * u32::from(i.op_sel >> k & 1);
            x.iter_mut().for_each(|e| *e = f16_to_f32((*e >> shift) as u16).to_bits());
        }
        let (and, xor) = (!(u32::from(i.neg_hi >> k & 1) << 31), u32::from(i.neg >> k & 1) << 31);
        x.iter_mut().for_each(|e| *e = *e & and ^ xor);
        x
    }
    #[inline(always)]
    fn get(raw: &Lanes, lane: usize) -> Self {
        Mix(f32::from_bits(raw[lane]))
    }
}

impl Value for Mask {
    const SLOT: Slot = Slot::Mask;
    type Raw = u32;
    #[inline(always)]
    fn load(w: &mut Wave, i: &Inst, k: usize) -> u32 {
        let source = &i.src[k];
        if source.bank == Bank::Scalar { w.s[usize::from(source.index)] } else { source.value as u32 }
    }
    #[inline(always)]
    fn get(raw: &u32, lane: usize) -> Self {
        Mask(raw >> lane & 1 != 0)
    }
}

impl Target for bool {
    const SLOT: Slot = Slot::Mask;
    type Raw = u32;
    const ZERO: u32 = 0;
    #[inline(always)]
    fn set(raw: &mut u32, lane: usize, value: Self) {
        *raw |= u32::from(value) << lane;
    }
    #[inline(always)]
    fn store(w: &mut Wave, i: &Inst, raw: u32) {
        w.s[usize::from(i.sdst)] = raw & written(w, i);
    }
}

impl Target for Exec {
    const SLOT: Slot = Slot::ExecMask;
    type Raw = u32;
    const ZERO: u32 = 0;
    #[inline(always)]
    fn set(raw: &mut u32, lane: usize, value: Self) {
        *raw |= u32::from(value.0) << lane;
    }
    #[inline(always)]
    fn store(w: &mut Wave, i: &Inst, raw: u32) {
        w.s[crate::inst::EXEC] = raw & written(w, i);
    }
}

macro_rules! carry {
    ($type:ident, $inner:ty) => {
        impl Target for $type {
            const SLOT: Slot = <$inner as Target>::SLOT;
            type Raw = (<$inner as Target>::Raw, u32);
            const ZERO: Self::Raw = (<$inner as Target>::ZERO, 0);
            #[inline(always)]
            fn set(raw: &mut Self::Raw, lane: usize, value: Self) {
                <$inner as Target>::set(&mut raw.0, lane, value.0);
                raw.1 |= u32::from(value.1) << lane;
            }
            #[inline(always)]
            fn store(w: &mut Wave, i: &Inst, raw: Self::Raw) {
                let mask = written(w, i);
                <$inner as Target>::store(w, i, raw.0);
                w.s[usize::from(i.sdst)] = raw.1 & mask;
            }
        }
    };
}
carry!(Carry, u32);
carry!(WideCarry, u64);
