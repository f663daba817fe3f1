//! Program flow, waits, barriers, mode, and vector instructions that move data between lanes or register files.

use super::{Table, form, special};
use crate::inst::{Bank, EXEC, Flow, Inst, SCC, Slot, VCC};
use crate::value::{load32, write32};
use crate::wave::{Arrival, Group, LANES, Lanes, Wave};

fn jump(w: &mut Wave, i: &Inst, taken: bool) -> Flow {
    if taken {
        w.pc = i.target as usize;
    }
    Flow::Next
}

special! { BRANCHES, form(Slot::None, &[]);
    "s_branch" => |w, i, _| jump(w, i, true);
    "s_cbranch_scc0" => |w, i, _| { let taken = w.s[SCC] == 0; jump(w, i, taken) };
    "s_cbranch_scc1" => |w, i, _| { let taken = w.s[SCC] != 0; jump(w, i, taken) };
    "s_cbranch_vccz" => |w, i, _| { let taken = w.s[VCC] == 0; jump(w, i, taken) };
    "s_cbranch_vccnz" => |w, i, _| { let taken = w.s[VCC] != 0; jump(w, i, taken) };
    "s_cbranch_execz" => |w, i, _| { let taken = w.s[EXEC] == 0; jump(w, i, taken) };
    "s_cbranch_execnz" => |w, i, _| { let taken = w.s[EXEC] != 0; jump(w, i, taken) };
    "s_endpgm" => |_, _, _| Flow::End;
    "s_trap" => |_, i, g| g.fail(format!("reached s_trap {}", i.immediate));
    "s_code_end" => |_, _, g| g.fail("ran past the end of its code");
}

// Loads complete at once here and caches do not exist, so waits and invalidations have nothing to do. Priority, sleep
// and messages that release resources change timing only.
special! { WAITS, form(Slot::None, &[]);
    "s_nop" | "s_sleep" | "s_clause" | "s_delay_alu" | "s_waitcnt" | "s_waitcnt_depctr" | "s_wait_alu" | "s_wait_idle"
    | "s_wait_event" | "s_waitcnt_vscnt" | "s_waitcnt_vmcnt" | "s_waitcnt_expcnt" | "s_waitcnt_lgkmcnt"
    | "s_wait_loadcnt" | "s_wait_storecnt" | "s_wait_samplecnt" | "s_wait_bvhcnt" | "s_wait_expcnt" | "s_wait_dscnt"
    | "s_wait_kmcnt" | "s_wait_loadcnt_dscnt" | "s_wait_storecnt_dscnt" | "s_set_inst_prefetch_distance" | "s_setprio"
    | "s_icache_inv" | "s_dcache_inv" | "s_gl1_inv" | "s_prefetch_data" | "s_prefetch_inst" | "s_prefetch_inst_pc_rel"
    | "s_prefetch_data_pc_rel" | "s_buffer_prefetch_data" | "buffer_gl0_inv" | "buffer_gl1_inv" | "global_inv"
    | "global_wb" | "global_wbinv" | "s_wakeup" | "s_sleep_var" => |_, _, _| Flow::Next;
    "s_sendmsg" => |_, i, g| match i.immediate & 255 {
        // Interrupts and halts are requests to the host; giving up vector registers at the end of a program is none.
        3 => Flow::Next,
        message => g.fail(format!("sends message {message}, which this stand-in has no receiver for")),
    };
}

/// The wave has arrived. The last one completes the phase for all.
fn signal(w: &mut Wave, g: &mut Group<'_>) -> Result<(), Flow> {
    if w.exec() != w.launched {
        let text = format!("reaches a barrier with lanes {:#010x} active of {:#010x}", w.exec(), w.launched);
        return Err(g.fail(text));
    }
    if g.alive < g.launched {
        let ended = g.launched - g.alive;
        return Err(
            g.fail(format!("reaches a barrier that {ended} waves of its workgroup never will: they have ended"))
        );
    }
    if matches!(w.arrival, Arrival::Signalled(_)) {
        return Err(g.fail("signals the barrier twice without a wait"));
    }
    w.arrival = Arrival::Signalled(g.phase);
    g.arrived += 1;
    if g.arrived == g.alive {
        g.arrived = 0;
        g.phase += 1;
    }
    Ok(())
}

/// Goes on if the phase that this wave signalled is complete; stays on the instruction otherwise.
fn wait(w: &mut Wave, g: &mut Group<'_>) -> Flow {
    match w.arrival {
        Arrival::Signalled(phase) if phase == g.phase => {
            w.pc -= 1;
            Flow::Barrier
        }
        Arrival::Signalled(_) => {
            w.arrival = Arrival::Away;
            Flow::Next
        }
        Arrival::Away => g.fail("waits at a barrier that it has not signalled"),
    }
}

special! { BARRIERS, form(Slot::None, &[Slot::B32]);
    "s_barrier" => |w, _, g| {
        if w.arrival == Arrival::Away && let Err(flow) = signal(w, g) {
            return flow;
        }
        wait(w, g)
    };
    "s_barrier_signal" => |w, i, g| match i.src[0].value as i32 {
        -1 => signal(w, g).err().unwrap_or(Flow::Next),
        other => g.fail(format!("signals barrier {other}; only the workgroup's (-1) exists")),
    };
    "s_barrier_signal_isfirst" => |w, i, g| {
        w.s[SCC] = u32::from(g.arrived == 0);
        match i.src[0].value as i32 {
            -1 => signal(w, g).err().unwrap_or(Flow::Next),
            other => g.fail(format!("signals barrier {other}; only the workgroup's (-1) exists")),
        }
    };
    "s_barrier_wait" => |w, _, g| wait(w, g);
}

/// MODE, as `s_getreg` would show it: denormals in bits 4 to 7.
fn mode_bits(w: &Wave) -> u32 {
    u32::from(!w.mode.flush_in) << 4 | u32::from(!w.mode.flush_out) << 5 | 0xc0
}
fn set_denormals(w: &mut Wave, bits: u32) {
    w.mode.flush_in = bits & 1 == 0;
    w.mode.flush_out = bits & 2 == 0;
}
/// A write of `size` bits at `offset` of hardware register `id`.
fn set_register(w: &mut Wave, g: &mut Group<'_>, word: u32, value: u32) -> Flow {
    let (id, offset, size) = (word & 63, word >> 6 & 31, (word >> 11 & 31) + 1);
    let mask = (((1u64 << size) - 1) as u32) << offset;
    let (value, touches_rounding) = (value << offset & mask, mask & 0xf != 0);
    match id {
        1 if touches_rounding && value & 0xf != 0 => g.fail("asks for a rounding mode other than to nearest even"),
        1 => {
            if mask & 0x30 == 0x30 {
                set_denormals(w, value >> 4);
            }
            Flow::Next
        }
        _ => g.fail(format!("writes hardware register {id}, which this stand-in does not model")),
    }
}

special! { MODE, form(Slot::B32, &[Slot::B32]);
    "s_round_mode" => |_, i, g| if i.immediate & 15 == 0 { Flow::Next } else { g.fail("asks for a rounding mode other than to nearest even") };
    "s_denorm_mode" => |w, i, _| { set_denormals(w, i.immediate); Flow::Next };
    "s_setreg_imm32_b32" => |w, i, g| set_register(w, g, i.immediate, i.src[0].value as u32);
    "s_setreg_b32" => |w, i, g| { let value = w.s[usize::from(i.dst)]; set_register(w, g, i.immediate, value) };
    "s_getreg_b32" => |w, i, g| {
        let (id, offset, size) = (i.immediate & 63, i.immediate >> 6 & 31, (i.immediate >> 11 & 31) + 1);
        if id != 1 {
            return g.fail(format!("reads hardware register {id}, which this stand-in does not model"));
        }
        w.s[usize::from(i.dst)] = mode_bits(w) >> offset & ((1u64 << size) - 1) as u32;
        Flow::Next
    };
    "s_getpc_b64" => |w, i, g| {
        let next = g.image_base + u64::from(i.pc) + u64::from(i.size);
        w.set_pair(usize::from(i.dst), next);
        Flow::Next
    };
}

fn scalar_source(w: &Wave, i: &Inst, k: usize) -> u32 {
    let s = &i.src[k];
    match s.bank {
        Bank::Vector => w.v[usize::from(s.index) & 511][0],
        Bank::Scalar => w.s[usize::from(s.index)],
        Bank::Constant => s.value as u32,
    }
}

special! { READ_FIRST, form(Slot::Scalar, &[Slot::B32]);
    "v_readfirstlane_b32" => |w, i, _| {
        // With no active lane hardware reads lane 0.
        let lane = if w.exec() == 0 { 0 } else { w.exec().trailing_zeros() as usize };
        let x = load32(w, i, 0);
        w.s[usize::from(i.dst)] = x[lane];
        Flow::Next
    };
}
special! { READ_LANE, form(Slot::Scalar, &[Slot::B32, Slot::B32]);
    "v_readlane_b32" => |w, i, _| {
        let lane = scalar_source(w, i, 1) as usize & 31;
        let x = load32(w, i, 0);
        w.s[usize::from(i.dst)] = x[lane];
        Flow::Next
    };
}
special! { WRITE_LANE, form(Slot::B32, &[Slot::B32, Slot::B32]);
    "v_writelane_b32" => |w, i, _| {
        let (value, lane) = (scalar_source(w, i, 0), scalar_source(w, i, 1) as usize & 31);
        w.v[usize::from(i.dst) & 511][lane] = value;
        Flow::Next
    };
}
special! { SWAP, form(Slot::B32, &[Slot::B32]);
    "v_swap_b32" => |w, i, _| {
        let (a, b) = (w.v[usize::from(i.dst) & 511], w.v[usize::from(i.src[0].index) & 511]);
        let mask = w.exec();
        write32(w, usize::from(i.dst), &b, mask);
        write32(w, usize::from(i.src[0].index), &a, mask);
        Flow::Next
    };
}

/// Each lane reads the lane of its row (or the other row, `across`) that four bits name. `op_sel` bit 0 lets inactive
/// lanes be read, bit 1 makes an inactive source zero instead of leaving the destination alone.
fn permute_row(w: &mut Wave, i: &Inst, across: bool, selector: impl Fn(usize) -> usize) -> Flow {
    let (x, exec) = (load32(w, i, 0), w.exec());
    let (mut out, mut mask): (Lanes, u32) = ([0; LANES], 0);
    for l in 0..LANES {
        let row = if across { 16 - (l & 16) } else { l & 16 };
        let from = row + (selector(l) & 15);
        if i.op_sel & 1 != 0 || exec >> from & 1 != 0 {
            out[l] = x[from];
            mask |= 1 << l;
        } else if i.op_sel & 2 != 0 {
            mask |= 1 << l;
        }
    }
    write32(w, usize::from(i.dst), &out, mask & exec);
    Flow::Next
}
fn permute_row_by_scalars(w: &mut Wave, i: &Inst, across: bool) -> Flow {
    let both = u64::from(scalar_source(w, i, 1)) | u64::from(scalar_source(w, i, 2)) << 32;
    permute_row(w, i, across, |l| (both >> (4 * (l & 15))) as usize)
}
special! { PERMUTE, form(Slot::B32, &[Slot::B32; 3]);
    "v_permlane16_b32" => |w, i, _| permute_row_by_scalars(w, i, false);
    "v_permlanex16_b32" => |w, i, _| permute_row_by_scalars(w, i, true);
}
special! { PERMUTE_BY_LANE, form(Slot::B32, &[Slot::B32; 2]);
    "v_permlane16_var_b32" => |w, i, _| { let by = load32(w, i, 1); permute_row(w, i, false, |l| by[l] as usize) };
    "v_permlanex16_var_b32" => |w, i, _| { let by = load32(w, i, 1); permute_row(w, i, true, |l| by[l] as usize) };
}

/// gfx12's transcendental operations on a scalar register.
fn uniform(w: &mut Wave, i: &Inst, f: impl Fn(f64) -> f64) -> Flow {
    let x = load32(w, i, 0)[0];
    w.s[usize::from(i.dst)] = (f(f64::from(f32::from_bits(x))) as f32).to_bits();
    Flow::Next
}
/// The same on a half.
fn uniform_half(w: &mut Wave, i: &Inst, f: impl Fn(f64) -> f64) -> Flow {
    let x = crate::float::f16_to_f32(load32(w, i, 0)[0] as u16);
    w.s[usize::from(i.dst)] = u32::from(crate::float::f32_to_f16(f(f64::from(x)) as f32));
    Flow::Next
}
special! { UNIFORM_HALF, form(Slot::Scalar, &[Slot::F16]);
    "v_s_exp_f16" => |w, i, _| uniform_half(w, i, f64::exp2);
    "v_s_log_f16" => |w, i, _| uniform_half(w, i, f64::log2);
    "v_s_rcp_f16" => |w, i, _| uniform_half(w, i, f64::recip);
    "v_s_rsq_f16" => |w, i, _| uniform_half(w, i, |x| 1.0 / x.sqrt());
    "v_s_sqrt_f16" => |w, i, _| uniform_half(w, i, f64::sqrt);
}
special! { UNIFORM, form(Slot::Scalar, &[Slot::F32]);
    "v_s_exp_f32" => |w, i, _| uniform(w, i, f64::exp2);
    "v_s_log_f32" => |w, i, _| uniform(w, i, f64::log2);
    "v_s_rcp_f32" => |w, i, _| uniform(w, i, f64::recip);
    "v_s_rsq_f32" => |w, i, _| uniform(w, i, |x| 1.0 / x.sqrt());
    "v_s_sqrt_f32" => |w, i, _| uniform(w, i, f64::sqrt);
}

/// All tables of this file.
pub const TABLES: [Table; 12] = [
    BRANCHES,
    WAITS,
    BARRIERS,
    MODE,
    READ_FIRST,
    READ_LANE,
    WRITE_LANE,
    SWAP,
    PERMUTE,
    PERMUTE_BY_LANE,
    UNIFORM,
    UNIFORM_HALF,
];
