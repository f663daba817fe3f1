//! Global and scalar memory: loads, stores, atomics.
//!
//! Always true: every lane's access is checked before any lane's is made; words are read and written one by one with
//! relaxed atomics, as other threads may run other workgroups of the same grid.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Table, form, special};
use crate::inst::{Bank, Flow, Inst, Slot};
use crate::wave::{Group, LANES, Wave};

/// Addresses of all lanes: base register pair, or scalar base with a 32-bit offset, plus the immediate.
#[inline(always)]
fn addresses(w: &Wave, i: &Inst) -> [u64; LANES] {
    let index = usize::from(i.src[0].index);
    let low = &w.v[index & 511];
    let offset = i.offset as i64 as u64;
    let mut a = [0; LANES];
    if i.src[2].bank == Bank::Scalar {
        let base = w.pair(usize::from(i.src[2].index)).wrapping_add(offset);
        for l in 0..LANES {
            a[l] = base.wrapping_add(u64::from(low[l]));
        }
    } else {
        let high = &w.v[(index + 1) & 511];
        for l in 0..LANES {
            a[l] = (u64::from(low[l]) | u64::from(high[l]) << 32).wrapping_add(offset);
        }
    }
    a
}

#[inline(always)]
fn active(exec: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |l| exec >> l & 1 != 0)
}

macro_rules! checked {
    ($w:ident, $i:ident, $g:ident, $bytes:expr, $write:expr) => {{
        let exec = $w.exec();
        if exec == 0 {
            return Flow::Next;
        }
        let a = addresses($w, $i);
        if let Err((lane, text)) = $g.memory.check_lanes(&a, exec, $bytes, $write) {
            return $g.fail_lane(lane, text);
        }
        (exec, a)
    }};
}

#[inline(always)]
fn load_words<const N: usize>(w: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    let (exec, a) = checked!(w, i, g, 4 * N as u64, false);
    g.counters.global_load.add_at(4 * N as u64, exec, &a);
    let dst = usize::from(i.dst);
    for l in active(exec) {
        for k in 0..N {
            w.v[(dst + k) & 511][l] = read32(a[l] + 4 * k as u64);
        }
    }
    Flow::Next
}

#[inline(always)]
fn store_words<const N: usize>(w: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    let (exec, a) = checked!(w, i, g, 4 * N as u64, true);
    g.counters.global_store.add(4 * N as u64, exec);
    let data = usize::from(i.src[1].index);
    for l in active(exec) {
        for k in 0..N {
            write32(a[l] + 4 * k as u64, w.v[(data + k) & 511][l]);
        }
    }
    Flow::Next
}

/// Loads 1 or 2 bytes; `merge` puts them into the old register.
#[inline(always)]
fn load_narrow(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bytes: u64, merge: impl Fn(u32, u32) -> u32) -> Flow {
    let (exec, a) = checked!(w, i, g, bytes, false);
    g.counters.global_load.add_at(bytes, exec, &a);
    let d = &mut w.v[usize::from(i.dst) & 511];
    for l in active(exec) {
        d[l] = merge(d[l], if bytes == 1 { read8(a[l]) } else { read16(a[l]) });
    }
    Flow::Next
}

#[inline(always)]
fn store_narrow(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bytes: u64, shift: u32) -> Flow {
    let (exec, a) = checked!(w, i, g, bytes, true);
    g.counters.global_store.add(bytes, exec);
    let d = &w.v[usize::from(i.src[1].index) & 511];
    for l in active(exec) {
        if bytes == 1 { write8(a[l], (d[l] >> shift) as u8) } else { write16(a[l], (d[l] >> shift) as u16) }
    }
    Flow::Next
}

fn read8(a: u64) -> u32 {
    // SAFETY: the caller has checked that this byte lies in a live range.
    u32::from(unsafe { AtomicU8::from_ptr(a as *mut u8) }.load(Relaxed))
}
fn read16(a: u64) -> u32 {
    // SAFETY: the caller has checked range and alignment.
    u32::from(unsafe { AtomicU16::from_ptr(a as *mut u16) }.load(Relaxed))
}
#[inline(always)]
fn read32(a: u64) -> u32 {
    // SAFETY: the caller has checked range and alignment.
    unsafe { AtomicU32::from_ptr(a as *mut u32) }.load(Relaxed)
}
fn write8(a: u64, x: u8) {
    // SAFETY: the caller has checked that this byte lies in a live, writable range.
    unsafe { AtomicU8::from_ptr(a as *mut u8) }.store(x, Relaxed);
}
fn write16(a: u64, x: u16) {
    // SAFETY: the caller has checked range and alignment.
    unsafe { AtomicU16::from_ptr(a as *mut u16) }.store(x, Relaxed);
}
#[inline(always)]
fn write32(a: u64, x: u32) {
    // SAFETY: the caller has checked range and alignment.
    unsafe { AtomicU32::from_ptr(a as *mut u32) }.store(x, Relaxed);
}

/// One read-modify-write a lane; returns old values if the instruction asks for them. `schedule` reverses the lanes:
/// hardware promises no order among them.
#[inline(always)]
fn atomic32(w: &mut Wave, i: &Inst, g: &mut Group<'_>, update: impl Fn(u32, u32, u32) -> u32) -> Flow {
    let (exec, a) = checked!(w, i, g, 4, true);
    g.counters.global_store.add(4, exec);
    let data = usize::from(i.src[1].index);
    for n in 0..LANES {
        let l = if g.reverse_lanes { LANES - 1 - n } else { n };
        if exec >> l & 1 == 0 {
            continue;
        }
        let (x, second) = (w.v[data & 511][l], w.v[(data + 1) & 511][l]);
        // SAFETY: checked above: live, writable and aligned.
        let cell = unsafe { AtomicU32::from_ptr(a[l] as *mut u32) };
        let old = cell.fetch_update(Relaxed, Relaxed, |old| Some(update(old, x, second)));
        if i.immediate & 1 != 0 {
            w.v[usize::from(i.dst) & 511][l] = old.unwrap_or_else(|old| old);
        }
    }
    Flow::Next
}

/// The same for 8 bytes, which must be aligned to 8.
#[inline(always)]
fn atomic64(w: &mut Wave, i: &Inst, g: &mut Group<'_>, update: impl Fn(u64, u64, u64) -> u64) -> Flow {
    let (exec, a) = checked!(w, i, g, 8, true);
    g.counters.global_store.add(8, exec);
    let data = usize::from(i.src[1].index);
    for n in 0..LANES {
        let l = if g.reverse_lanes { LANES - 1 - n } else { n };
        if exec >> l & 1 == 0 {
            continue;
        }
        if a[l] & 7 != 0 {
            return g.fail_lane(l, format!("updates 8 bytes at {:#x}, which is misaligned", a[l]));
        }
        let word = |k: usize| u64::from(w.v[(data + k) & 511][l]);
        let (x, second) = (word(0) | word(1) << 32, word(2) | word(3) << 32);
        // SAFETY: checked above: live, writable and aligned.
        let cell = unsafe { AtomicU64::from_ptr(a[l] as *mut u64) };
        let old = cell.fetch_update(Relaxed, Relaxed, |old| Some(update(old, x, second))).unwrap_or_else(|old| old);
        if i.immediate & 1 != 0 {
            w.v[usize::from(i.dst) & 511][l] = old as u32;
            w.v[(usize::from(i.dst) + 1) & 511][l] = (old >> 32) as u32;
        }
    }
    Flow::Next
}

/// `src[0]` is the base pair, `src[1]` the offset register (or zero).
#[inline(always)]
fn scalar_load<const N: usize>(w: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    // Hardware ignores the two low bits of each part.
    let offset = if i.src[1].bank == Bank::Scalar { w.s[usize::from(i.src[1].index)] } else { 0 };
    let base = w.pair(usize::from(i.src[0].index));
    let a = base.wrapping_add(u64::from(offset)).wrapping_add(i.offset as i64 as u64);
    if let Err(text) = g.memory.check(a, 4 * N as u64, false) {
        return g.fail(text);
    }
    g.counters.scalar_load.add(4 * N as u64, 1);
    for k in 0..N {
        w.s[usize::from(i.dst) + k] = read32(a + 4 * k as u64);
    }
    Flow::Next
}

#[inline(always)]
fn scalar_load_narrow(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bytes: u64, extend: impl Fn(u32) -> u32) -> Flow {
    let offset = if i.src[1].bank == Bank::Scalar { w.s[usize::from(i.src[1].index)] } else { 0 };
    let base = w.pair(usize::from(i.src[0].index));
    let a = base.wrapping_add(u64::from(offset)).wrapping_add(i.offset as i64 as u64);
    if let Err(text) = g.memory.check(a, bytes, false) {
        return g.fail(text);
    }
    g.counters.scalar_load.add(bytes, 1);
    w.s[usize::from(i.dst)] = extend(if bytes == 1 { read8(a) } else { read16(a) });
    Flow::Next
}

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

special! { SCALAR, form(Slot::None, &[]);
    "s_load_b32" => |w, i, g| scalar_load::<1>(w, i, g);
    "s_load_b64" => |w, i, g| scalar_load::<2>(w, i, g);
    "s_load_b96" => |w, i, g| scalar_load::<3>(w, i, g);
    "s_load_b128" => |w, i, g| scalar_load::<4>(w, i, g);
    "s_load_b256" => |w, i, g| scalar_load::<8>(w, i, g);
    "s_load_b512" => |w, i, g| scalar_load::<16>(w, i, g);
    "s_load_u8" => |w, i, g| scalar_load_narrow(w, i, g, 1, |x| x);
    "s_load_i8" => |w, i, g| scalar_load_narrow(w, i, g, 1, |x| x as u8 as i8 as u32);
    "s_load_u16" => |w, i, g| scalar_load_narrow(w, i, g, 2, |x| x);
    "s_load_i16" => |w, i, g| scalar_load_narrow(w, i, g, 2, |x| x as u16 as i16 as u32);
}

special! { VECTOR, form(Slot::None, &[]);
    "global_load_b32" => |w, i, g| load_words::<1>(w, i, g);
    "global_load_b64" => |w, i, g| load_words::<2>(w, i, g);
    "global_load_b96" => |w, i, g| load_words::<3>(w, i, g);
    "global_load_b128" => |w, i, g| load_words::<4>(w, i, g);
    "global_load_u8" => |w, i, g| load_narrow(w, i, g, 1, |_, x| x);
    "global_load_i8" => |w, i, g| load_narrow(w, i, g, 1, |_, x| x as u8 as i8 as u32);
    "global_load_u16" => |w, i, g| load_narrow(w, i, g, 2, |_, x| x);
    "global_load_i16" => |w, i, g| load_narrow(w, i, g, 2, |_, x| x as u16 as i16 as u32);
    "global_load_d16_u8" => |w, i, g| load_narrow(w, i, g, 1, |old, x| old & 0xffff_0000 | x);
    "global_load_d16_i8" => |w, i, g| load_narrow(w, i, g, 1, |old, x| old & 0xffff_0000 | u32::from(x as u8 as i8 as u16));
    "global_load_d16_b16" => |w, i, g| load_narrow(w, i, g, 2, |old, x| old & 0xffff_0000 | x);
    "global_load_d16_hi_u8" => |w, i, g| load_narrow(w, i, g, 1, |old, x| old & 0xffff | x << 16);
    "global_load_d16_hi_i8" => |w, i, g| load_narrow(w, i, g, 1, |old, x| old & 0xffff | (x as u8 as i8 as u32) << 16);
    "global_load_d16_hi_b16" => |w, i, g| load_narrow(w, i, g, 2, |old, x| old & 0xffff | x << 16);
    "global_store_b32" => |w, i, g| store_words::<1>(w, i, g);
    "global_store_b64" => |w, i, g| store_words::<2>(w, i, g);
    "global_store_b96" => |w, i, g| store_words::<3>(w, i, g);
    "global_store_b128" => |w, i, g| store_words::<4>(w, i, g);
    "global_store_b8" => |w, i, g| store_narrow(w, i, g, 1, 0);
    "global_store_b16" => |w, i, g| store_narrow(w, i, g, 2, 0);
    "global_store_d16_hi_b8" => |w, i, g| store_narrow(w, i, g, 1, 16);
    "global_store_d16_hi_b16" => |w, i, g| store_narrow(w, i, g, 2, 16);
    "global_atomic_swap_b32" => |w, i, g| atomic32(w, i, g, |_, x, _| x);
    "global_atomic_cmpswap_b32" => |w, i, g| atomic32(w, i, g, |old, x, compare| if old == compare { x } else { old });
    "global_atomic_add_u32" => |w, i, g| atomic32(w, i, g, |old, x, _| old.wrapping_add(x));
    "global_atomic_sub_u32" => |w, i, g| atomic32(w, i, g, |old, x, _| old.wrapping_sub(x));
    "global_atomic_min_i32" => |w, i, g| atomic32(w, i, g, |old, x, _| (old as i32).min(x as i32) as u32);
    "global_atomic_min_u32" => |w, i, g| atomic32(w, i, g, |old, x, _| old.min(x));
    "global_atomic_max_i32" => |w, i, g| atomic32(w, i, g, |old, x, _| (old as i32).max(x as i32) as u32);
    "global_atomic_max_u32" => |w, i, g| atomic32(w, i, g, |old, x, _| old.max(x));
    "global_atomic_and_b32" => |w, i, g| atomic32(w, i, g, |old, x, _| old & x);
    "global_atomic_or_b32" => |w, i, g| atomic32(w, i, g, |old, x, _| old | x);
    "global_atomic_xor_b32" => |w, i, g| atomic32(w, i, g, |old, x, _| old ^ x);
    "global_atomic_inc_u32" => |w, i, g| atomic32(w, i, g, |old, x, _| if old >= x { 0 } else { old + 1 });
    "global_atomic_dec_u32" => |w, i, g| atomic32(w, i, g, |old, x, _| if old == 0 || old > x { x } else { old - 1 });
    "global_atomic_add_f32" => |w, i, g| atomic32(w, i, g, |old, x, _| (f(old) + f(x)).to_bits());
    "global_atomic_min_f32" | "global_atomic_min_num_f32" => |w, i, g| atomic32(w, i, g, |old, x, _| f(old).min(f(x)).to_bits());
    "global_atomic_max_f32" | "global_atomic_max_num_f32" => |w, i, g| atomic32(w, i, g, |old, x, _| f(old).max(f(x)).to_bits());
    "global_atomic_pk_add_f16" => |w, i, g| atomic32(w, i, g, |old, x, _| super::add_halves(old, x));
    "global_atomic_pk_add_bf16" => |w, i, g| atomic32(w, i, g, |old, x, _| super::add_brains(old, x));
    "global_atomic_swap_b64" => |w, i, g| atomic64(w, i, g, |_, x, _| x);
    "global_atomic_cmpswap_b64" => |w, i, g| atomic64(w, i, g, |old, x, compare| if old == compare { x } else { old });
    "global_atomic_add_u64" => |w, i, g| atomic64(w, i, g, |old, x, _| old.wrapping_add(x));
    "global_atomic_sub_u64" => |w, i, g| atomic64(w, i, g, |old, x, _| old.wrapping_sub(x));
    "global_atomic_min_i64" => |w, i, g| atomic64(w, i, g, |old, x, _| (old as i64).min(x as i64) as u64);
    "global_atomic_min_u64" => |w, i, g| atomic64(w, i, g, |old, x, _| old.min(x));
    "global_atomic_max_i64" => |w, i, g| atomic64(w, i, g, |old, x, _| (old as i64).max(x as i64) as u64);
    "global_atomic_max_u64" => |w, i, g| atomic64(w, i, g, |old, x, _| old.max(x));
    "global_atomic_and_b64" => |w, i, g| atomic64(w, i, g, |old, x, _| old & x);
    "global_atomic_or_b64" => |w, i, g| atomic64(w, i, g, |old, x, _| old | x);
    "global_atomic_xor_b64" => |w, i, g| atomic64(w, i, g, |old, x, _| old ^ x);
}

/// Both tables.
pub const TABLES: [Table; 2] = [SCALAR, VECTOR];
