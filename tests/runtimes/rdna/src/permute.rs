//! Data-parallel primitives: which lane a DPP source operand reads.
//!
//! Always true: lanes move inside rows of 16 only (gfx10 and later have no wave-wide shifts).

use crate::inst::{Dpp, DppKind};
use crate::wave::{LANES, Lanes};

/// The permuted values, and the lanes that the instruction may write.
#[inline(never)]
pub fn permute(x: &Lanes, dpp: Dpp, exec: u32) -> (Lanes, u32) {
    let (mut out, mut on) = ([0; LANES], 0u32);
    for lane in 0..LANES {
        if dpp.row_mask >> (lane / 16) & 1 == 0 || dpp.bank_mask >> (lane / 4 % 4) & 1 == 0 {
            continue;
        }
        let readable = |from: &usize| dpp.fetch_inactive || exec >> from & 1 == 1;
        match source_lane(dpp.kind, lane).filter(readable) {
            Some(from) => {
                out[lane] = x[from];
                on |= 1 << lane;
            }
            // DPP8 has no bound control: an inactive source reads as zero.
            None if dpp.bound_zero || matches!(dpp.kind, DppKind::Eight(_)) => on |= 1 << lane,
            None => {}
        }
    }
    (out, on)
}

/// The lane that `lane` reads, if there is one.
fn source_lane(kind: DppKind, lane: usize) -> Option<usize> {
    let control = match kind {
        DppKind::Eight(selectors) => return Some(lane & !7 | (selectors >> (3 * (lane & 7)) & 7) as usize),
        DppKind::Control(control) => usize::from(control),
    };
    let (row, i, n) = (lane & !15, lane & 15, control & 15);
    Some(
        row + match control {
            0x000..=0x0ff => i & !3 | control >> (2 * (i & 3)) & 3,
            0x101..=0x10f => return (i + n < 16).then_some(lane + n),
            0x111..=0x11f => return (i >= n).then(|| lane - n),
            0x121..=0x12f => (i + 16 - n) & 15,
            0x140 => 15 - i,
            0x141 => i & 8 | 7 - (i & 7),
            0x150..=0x15f => n,
            0x160..=0x16f => i ^ n,
            _ => return None,
        },
    )
}

/// Whether `source_lane` knows this control word; the decoder refuses others.
pub fn known(control: u16) -> bool {
    matches!(control, 0..=0xff | 0x101..=0x10f | 0x111..=0x11f | 0x121..=0x12f | 0x140 | 0x141 | 0x150..=0x16f)
}
