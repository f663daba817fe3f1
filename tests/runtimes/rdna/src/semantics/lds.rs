//! Local data share: loads, stores, atomics, and the permutations that use its crossbar.
//!
//! Always true: an access outside the workgroup's LDS (static and dynamic) or misaligned for its words faults with lane
//! and byte address; hardware would drop or wrap it silently.

use super::{Table, form, special};
use crate::inst::{Flow, Inst, Slot};
use crate::memory::bank_conflicts;
use crate::value::{load32, write32};
use crate::wave::{Group, LANES, Lanes, Wave};

#[inline(always)]
fn vgpr(w: &Wave, index: usize) -> &Lanes {
    &w.v[index & 511]
}
#[inline(always)]
fn active(exec: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |l| exec >> l & 1 != 0)
}

/// Byte addresses of all lanes, checked for `bytes` each.
#[inline(always)]
fn addresses(w: &Wave, i: &Inst, g: &mut Group<'_>, offset: u32, bytes: u32, write: bool) -> Result<Lanes, Flow> {
    let (base, exec) = (vgpr(w, usize::from(i.src[0].index)), w.exec());
    let (mut a, mut highest, mut bits) = ([0; LANES], 0u32, 0u32);
    for l in 0..LANES {
        a[l] = base[l].wrapping_add(offset);
        let on = exec >> l & 1 != 0;
        highest = highest.max(if on { a[l] } else { 0 });
        bits |= if on { a[l] } else { 0 };
    }
    if u64::from(highest) + u64::from(bytes) <= g.lds.len() as u64 && bits & (bytes.min(4) - 1) == 0 {
        return Ok(a);
    }
    Err(blame(&a, exec, g, bytes, write))
}

#[cold]
fn blame(a: &Lanes, exec: u32, g: &mut Group<'_>, bytes: u32, write: bool) -> Flow {
    let (verb, size) = (if write { "stores" } else { "loads" }, g.lds.len());
    for l in active(exec) {
        if u64::from(a[l]) + u64::from(bytes) > size as u64 {
            return g
                .fail_lane(l, format!("{verb} {bytes} bytes at LDS {:#x}, beyond the workgroup's {size} bytes", a[l]));
        }
        if a[l] & (bytes.min(4) - 1) != 0 {
            return g.fail_lane(l, format!("{verb} {bytes} bytes at LDS {:#x}, which is misaligned", a[l]));
        }
    }
    Flow::Next
}

#[inline(always)]
fn read32(lds: &[u8], at: u32) -> u32 {
    let at = at as usize;
    lds.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
#[inline(always)]
fn put(lds: &mut [u8], at: u32, bytes: &[u8]) {
    let at = at as usize;
    if let Some(cell) = lds.get_mut(at..at + bytes.len()) {
        cell.copy_from_slice(bytes);
    }
}

macro_rules! checked {
    ($w:ident, $i:ident, $g:ident, $offset:expr, $bytes:expr, $write:expr) => {
        match addresses($w, $i, $g, $offset, $bytes, $write) {
            Ok(a) => {
                $g.counters.lds_conflicts += bank_conflicts(&a, $w.exec(), $bytes);
                let traffic = if $write { &mut $g.counters.lds_store } else { &mut $g.counters.lds_load };
                traffic.add(u64::from($bytes as u32), $w.exec());
                a
            }
            Err(flow) => return flow,
        }
    };
}

#[inline(always)]
fn load_words<const N: usize>(w: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    let a = checked!(w, i, g, i.offset as u32, 4 * N as u32, false);
    load_at::<N>(w, g, &a, usize::from(i.dst));
    Flow::Next
}
#[inline(always)]
fn load_at<const N: usize>(w: &mut Wave, g: &Group<'_>, a: &Lanes, dst: usize) {
    let exec = w.exec();
    for l in active(exec) {
        for k in 0..N {
            w.v[(dst + k) & 511][l] = read32(&g.lds, a[l] + 4 * k as u32);
        }
    }
}
#[inline(always)]
fn store_words<const N: usize>(w: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    let a = checked!(w, i, g, i.offset as u32, 4 * N as u32, true);
    store_at::<N>(w, g, &a, usize::from(i.src[1].index));
    Flow::Next
}
#[inline(always)]
fn store_at<const N: usize>(w: &Wave, g: &mut Group<'_>, a: &Lanes, data: usize) {
    for l in active(w.exec()) {
        for k in 0..N {
            put(&mut g.lds, a[l] + 4 * k as u32, &vgpr(w, data + k)[l].to_le_bytes());
        }
    }
}
/// Two accesses of `N` words, their offsets in units of `unit` bytes.
#[inline(always)]
fn load_two<const N: usize>(w: &mut Wave, i: &Inst, g: &mut Group<'_>, unit: u32) -> Flow {
    let first = checked!(w, i, g, i.offset as u32 * unit, 4 * N as u32, false);
    let second = checked!(w, i, g, i.immediate * unit, 4 * N as u32, false);
    load_at::<N>(w, g, &first, usize::from(i.dst));
    load_at::<N>(w, g, &second, usize::from(i.dst) + N);
    Flow::Next
}
#[inline(always)]
fn store_two<const N: usize>(w: &mut Wave, i: &Inst, g: &mut Group<'_>, unit: u32) -> Flow {
    let first = checked!(w, i, g, i.offset as u32 * unit, 4 * N as u32, true);
    let second = checked!(w, i, g, i.immediate * unit, 4 * N as u32, true);
    store_at::<N>(w, g, &first, usize::from(i.src[1].index));
    store_at::<N>(w, g, &second, usize::from(i.src[2].index));
    Flow::Next
}
#[inline(always)]
fn load_narrow(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bytes: u32, merge: impl Fn(u32, u32) -> u32) -> Flow {
    let a = checked!(w, i, g, i.offset as u32, bytes, false);
    let exec = w.exec();
    let d = &mut w.v[usize::from(i.dst) & 511];
    for l in active(exec) {
        let byte = |k: usize| g.lds.get(a[l] as usize + k).map_or(0, |b| u32::from(*b));
        d[l] = merge(d[l], if bytes == 1 { byte(0) } else { byte(0) | byte(1) << 8 });
    }
    Flow::Next
}
#[inline(always)]
fn store_narrow(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bytes: u32, shift: u32) -> Flow {
    let a = checked!(w, i, g, i.offset as u32, bytes, true);
    let d = *vgpr(w, usize::from(i.src[1].index));
    for l in active(w.exec()) {
        put(&mut g.lds, a[l], &(d[l] >> shift).to_le_bytes()[..bytes as usize]);
    }
    Flow::Next
}
#[inline(always)]
fn atomic32(w: &mut Wave, i: &Inst, g: &mut Group<'_>, returns: bool, update: impl Fn(u32, u32, u32) -> u32) -> Flow {
    let a = checked!(w, i, g, i.offset as u32, 4, true);
    let (x, second) = (*vgpr(w, usize::from(i.src[1].index)), *vgpr(w, usize::from(i.src[2].index)));
    let exec = w.exec();
    for n in 0..LANES {
        let l = if g.reverse_lanes { LANES - 1 - n } else { n };
        if exec >> l & 1 == 0 {
            continue;
        }
        let old = read32(&g.lds, a[l]);
        put(&mut g.lds, a[l], &update(old, x[l], second[l]).to_le_bytes());
        if returns {
            w.v[usize::from(i.dst) & 511][l] = old;
        }
    }
    Flow::Next
}
#[inline(always)]
fn atomic64(w: &mut Wave, i: &Inst, g: &mut Group<'_>, returns: bool, update: impl Fn(u64, u64, u64) -> u64) -> Flow {
    let a = checked!(w, i, g, i.offset as u32, 8, true);
    let exec = w.exec();
    let pair = |w: &Wave, index: usize, l: usize| u64::from(vgpr(w, index)[l]) | u64::from(vgpr(w, index + 1)[l]) << 32;
    for l in active(exec) {
        let (x, second) = (pair(w, usize::from(i.src[1].index), l), pair(w, usize::from(i.src[2].index), l));
        let old = u64::from(read32(&g.lds, a[l])) | u64::from(read32(&g.lds, a[l] + 4)) << 32;
        put(&mut g.lds, a[l], &update(old, x, second).to_le_bytes());
        if returns {
            w.v[usize::from(i.dst) & 511][l] = old as u32;
            w.v[(usize::from(i.dst) + 1) & 511][l] = (old >> 32) as u32;
        }
    }
    Flow::Next
}

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

special! { MEMORY, form(Slot::None, &[]);
    "ds_load_b32" => |w, i, g| load_words::<1>(w, i, g);
    "ds_load_b64" => |w, i, g| load_words::<2>(w, i, g);
    "ds_load_b96" => |w, i, g| load_words::<3>(w, i, g);
    "ds_load_b128" => |w, i, g| load_words::<4>(w, i, g);
    "ds_store_b32" => |w, i, g| store_words::<1>(w, i, g);
    "ds_store_b64" => |w, i, g| store_words::<2>(w, i, g);
    "ds_store_b96" => |w, i, g| store_words::<3>(w, i, g);
    "ds_store_b128" => |w, i, g| store_words::<4>(w, i, g);
    "ds_load_2addr_b32" => |w, i, g| load_two::<1>(w, i, g, 4);
    "ds_load_2addr_b64" => |w, i, g| load_two::<2>(w, i, g, 8);
    "ds_load_2addr_stride64_b32" => |w, i, g| load_two::<1>(w, i, g, 256);
    "ds_load_2addr_stride64_b64" => |w, i, g| load_two::<2>(w, i, g, 512);
    "ds_store_2addr_b32" => |w, i, g| store_two::<1>(w, i, g, 4);
    "ds_store_2addr_b64" => |w, i, g| store_two::<2>(w, i, g, 8);
    "ds_store_2addr_stride64_b32" => |w, i, g| store_two::<1>(w, i, g, 256);
    "ds_store_2addr_stride64_b64" => |w, i, g| store_two::<2>(w, i, g, 512);
    "ds_load_u8" => |w, i, g| load_narrow(w, i, g, 1, |_, x| x);
    "ds_load_i8" => |w, i, g| load_narrow(w, i, g, 1, |_, x| x as u8 as i8 as u32);
    "ds_load_u16" => |w, i, g| load_narrow(w, i, g, 2, |_, x| x);
    "ds_load_i16" => |w, i, g| load_narrow(w, i, g, 2, |_, x| x as u16 as i16 as u32);
    "ds_load_u8_d16" => |w, i, g| load_narrow(w, i, g, 1, |old, x| old & 0xffff_0000 | x);
    "ds_load_u8_d16_hi" => |w, i, g| load_narrow(w, i, g, 1, |old, x| old & 0xffff | x << 16);
    "ds_load_i8_d16" => |w, i, g| load_narrow(w, i, g, 1, |old, x| old & 0xffff_0000 | u32::from(x as u8 as i8 as u16));
    "ds_load_i8_d16_hi" => |w, i, g| load_narrow(w, i, g, 1, |old, x| old & 0xffff | (x as u8 as i8 as u32) << 16);
    "ds_load_u16_d16" => |w, i, g| load_narrow(w, i, g, 2, |old, x| old & 0xffff_0000 | x);
    "ds_load_u16_d16_hi" => |w, i, g| load_narrow(w, i, g, 2, |old, x| old & 0xffff | x << 16);
    "ds_store_b8" => |w, i, g| store_narrow(w, i, g, 1, 0);
    "ds_store_b16" => |w, i, g| store_narrow(w, i, g, 2, 0);
    "ds_store_b8_d16_hi" => |w, i, g| store_narrow(w, i, g, 1, 16);
    "ds_store_b16_d16_hi" => |w, i, g| store_narrow(w, i, g, 2, 16);
}

/// One line gives the form without and with the old value returned.
macro_rules! atomics {
    ($table:ident; $($name:literal, $returning:literal => $kind:ident $update:expr;)*) => {
        special! { $table, form(Slot::None, &[]);
            $($name => |w, i, g| $kind(w, i, g, false, $update);
              $returning => |w, i, g| $kind(w, i, g, true, $update);)*
        }
    };
}
atomics! { ATOMICS;
    "ds_add_u32", "ds_add_rtn_u32" => atomic32 |old, x, _| old.wrapping_add(x);
    "ds_sub_u32", "ds_sub_rtn_u32" => atomic32 |old, x, _| old.wrapping_sub(x);
    "ds_inc_u32", "ds_inc_rtn_u32" => atomic32 |old, x, _| if old >= x { 0 } else { old + 1 };
    "ds_dec_u32", "ds_dec_rtn_u32" => atomic32 |old, x, _| if old == 0 || old > x { x } else { old - 1 };
    "ds_min_i32", "ds_min_rtn_i32" => atomic32 |old, x, _| (old as i32).min(x as i32) as u32;
    "ds_max_i32", "ds_max_rtn_i32" => atomic32 |old, x, _| (old as i32).max(x as i32) as u32;
    "ds_min_u32", "ds_min_rtn_u32" => atomic32 |old, x, _| old.min(x);
    "ds_max_u32", "ds_max_rtn_u32" => atomic32 |old, x, _| old.max(x);
    "ds_and_b32", "ds_and_rtn_b32" => atomic32 |old, x, _| old & x;
    "ds_or_b32", "ds_or_rtn_b32" => atomic32 |old, x, _| old | x;
    "ds_xor_b32", "ds_xor_rtn_b32" => atomic32 |old, x, _| old ^ x;
    "ds_cmpstore_b32", "ds_cmpstore_rtn_b32" => atomic32 |old, x, compare| if old == compare { x } else { old };
    "ds_add_f32", "ds_add_rtn_f32" => atomic32 |old, x, _| (f(old) + f(x)).to_bits();
    "ds_min_f32", "ds_min_rtn_f32" => atomic32 |old, x, _| f(old).min(f(x)).to_bits();
    "ds_max_f32", "ds_max_rtn_f32" => atomic32 |old, x, _| f(old).max(f(x)).to_bits();
    "ds_min_num_f32", "ds_min_num_rtn_f32" => atomic32 |old, x, _| f(old).min(f(x)).to_bits();
    "ds_max_num_f32", "ds_max_num_rtn_f32" => atomic32 |old, x, _| f(old).max(f(x)).to_bits();
    "ds_pk_add_f16", "ds_pk_add_rtn_f16" => atomic32 |old, x, _| super::add_halves(old, x);
    "ds_pk_add_bf16", "ds_pk_add_rtn_bf16" => atomic32 |old, x, _| super::add_brains(old, x);
    "ds_add_u64", "ds_add_rtn_u64" => atomic64 |old, x, _| old.wrapping_add(x);
    "ds_sub_u64", "ds_sub_rtn_u64" => atomic64 |old, x, _| old.wrapping_sub(x);
    "ds_min_u64", "ds_min_rtn_u64" => atomic64 |old, x, _| old.min(x);
    "ds_max_u64", "ds_max_rtn_u64" => atomic64 |old, x, _| old.max(x);
    "ds_min_i64", "ds_min_rtn_i64" => atomic64 |old, x, _| (old as i64).min(x as i64) as u64;
    "ds_max_i64", "ds_max_rtn_i64" => atomic64 |old, x, _| (old as i64).max(x as i64) as u64;
    "ds_and_b64", "ds_and_rtn_b64" => atomic64 |old, x, _| old & x;
    "ds_or_b64", "ds_or_rtn_b64" => atomic64 |old, x, _| old | x;
    "ds_xor_b64", "ds_xor_rtn_b64" => atomic64 |old, x, _| old ^ x;
    "ds_cmpstore_b64", "ds_cmpstore_rtn_b64" => atomic64 |old, x, compare| if old == compare { x } else { old };
}

// An exchange always returns.
special! { EXCHANGE, form(Slot::None, &[]);
    "ds_storexchg_rtn_b32" => |w, i, g| atomic32(w, i, g, true, |_, x, _| x);
    "ds_storexchg_rtn_b64" => |w, i, g| atomic64(w, i, g, true, |_, x, _| x);
}

/// The lane that `ds_swizzle_b32` reads, from its 16-bit pattern.
fn swizzled(pattern: u32, lane: usize) -> usize {
    let n = lane as u32;
    let from = if pattern & 0x8000 == 0 {
        (n & pattern & 31 | pattern >> 5 & 31) ^ pattern >> 10 & 31
    } else if pattern & 0x4000 == 0 {
        n & !3 | pattern >> (2 * (n & 3)) & 3
    } else {
        // Rotation inside 32 lanes; the low bits that stand in the mask keep their place.
        let (mask, by) = (pattern & 31, pattern >> 5 & 31);
        let by = if pattern & 0x400 != 0 { 32 - by } else { by };
        n & mask | n.wrapping_add(by) & !mask & 31
    };
    from as usize & 31
}

/// Lane `l` reads lane `from(l)`; an inactive source gives zero unless `inactive` ones may be read.
#[inline(always)]
fn pull(w: &mut Wave, i: &Inst, x: Lanes, inactive: bool, from: impl Fn(usize) -> usize) -> Flow {
    let exec = w.exec();
    let mut out = [0; LANES];
    for l in 0..LANES {
        let from = from(l) & 31;
        out[l] = if inactive || exec >> from & 1 != 0 { x[from] } else { 0 };
    }
    write32(w, usize::from(i.dst), &out, exec);
    Flow::Next
}

special! { CROSSBAR, form(Slot::None, &[]);
    "ds_swizzle_b32" => |w, i, _| {
        let x = load32(w, i, 0);
        pull(w, i, x, false, |l| swizzled(i.offset as u32, l))
    };
    "ds_bpermute_b32" => |w, i, _| {
        let (a, x) = (load32(w, i, 0), load32(w, i, 1));
        pull(w, i, x, false, |l| (a[l].wrapping_add(i.offset as u32) >> 2) as usize)
    };
    "ds_bpermute_fi_b32" => |w, i, _| {
        let (a, x) = (load32(w, i, 0), load32(w, i, 1));
        pull(w, i, x, true, |l| (a[l].wrapping_add(i.offset as u32) >> 2) as usize)
    };
    "ds_permute_b32" => |w, i, _| {
        let (a, x, exec) = (load32(w, i, 0), load32(w, i, 1), w.exec());
        let mut out = [0; LANES];
        // The highest lane wins where several push to one.
        for l in active(exec) {
            out[(a[l].wrapping_add(i.offset as u32) >> 2) as usize & 31] = x[l];
        }
        write32(w, usize::from(i.dst), &out, exec);
        Flow::Next
    };
}

/// All tables of this file.
pub const TABLES: [Table; 4] = [MEMORY, ATOMICS, EXCHANGE, CROSSBAR];
