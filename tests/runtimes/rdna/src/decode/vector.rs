//! The vector encodings: VOP1, VOP2, VOPC, VOP3, VOP3P, VOPD, with DPP and literals.
//!
//! Always true: the short encodings name the high half of a 16-bit register with the number's top bit, the long one
//! with `op_sel`; a dual issue becomes two instructions, ordered so that neither sees the other's result.

use super::operand::{DPP8, DPP8_FI, DPP16, is_half, literal_needed, scalar_destination, sign_bit, source};
use super::{Reader, bits, handler};
use crate::inst::{Bank, Class, Dpp, DppKind, EXEC, Inst, SCRATCH_VGPR, Semantics, Slot, Source, VCC};
use crate::permute;
use crate::semantics;

/// The modifier fields of the long encodings; all zero in the short ones.
#[derive(Default, Clone, Copy)]
struct Modifiers {
    neg: u32,
    abs: u32,
    op_sel: u32,
}

impl Reader<'_> {
    /// VOP1, VOP2 and VOPC.
    pub(super) fn vector_short(&self) -> Inst {
        let w = self.word(0);
        let (encoding, opcode) = match w >> 25 {
            0x3f => ("VOP1", bits(w, 9, 8)),
            0x3e => ("VOPC", bits(w, 17, 8)),
            _ => ("VOP2", bits(w, 25, 6)),
        };
        let (field, second, dst) = (bits(w, 0, 9), bits(w, 9, 8) + 256, bits(w, 17, 8));
        let mut inst = self.blank(self.name(encoding, opcode), Class::Valu, 1);
        let fused = is_fused(inst.name);
        inst.size = if fused || literal_needed(&[field]) || is_dpp(field) { 8 } else { 4 };
        let Some(line) = self.line(&mut inst) else { return inst };
        let fields = if encoding == "VOP1" { vec![field] } else { vec![field, second] };
        self.operands(&mut inst, line, &fields, Modifiers::default(), true, self.word(1));
        if !self.lane_permutation(&mut inst, line, field, self.word(1)) {
            return inst;
        }
        match line.form.dst {
            Slot::ExecMask => inst.sdst = EXEC as u16,
            Slot::Mask => inst.sdst = VCC as u16,
            Slot::Scalar => inst.dst = scalar_destination(dst & 127) as u16,
            slot => {
                inst.sdst = VCC as u16;
                inst.dst = dst as u16;
                if is_half(slot) {
                    inst.dst = (dst & 127) as u16;
                    inst.dst_half = 1 + (dst >> 7) as u8;
                }
            }
        }
        self.destination_as_source(&mut inst, line);
        inst
    }

    /// VOP3, with or without a scalar destination.
    pub(super) fn vector_long(&self) -> Inst {
        let (w, high) = (self.word(0), self.word(1));
        let mut inst = self.blank(self.name("VOP3", bits(w, 16, 10)), Class::Valu, 2);
        let fields = [bits(high, 0, 9), bits(high, 9, 9), bits(high, 18, 9)];
        // Of the fields that an instruction does not use, none can announce a literal.
        inst.size = if literal_needed(&fields) || is_dpp(fields[0]) { 12 } else { 8 };
        inst.clamp = bits(w, 15, 1) != 0;
        inst.omod = bits(high, 27, 2) as u8;
        let Some(line) = self.saturating_line(&mut inst) else { return inst };
        let scalar = has_scalar_destination(inst.name);
        let mut m = Modifiers { neg: bits(high, 29, 3), abs: bits(w, 8, 3), op_sel: bits(w, 11, 4) };
        if scalar {
            // The second destination takes these fields' place.
            (m.abs, m.op_sel) = (0, 0);
            inst.sdst = scalar_destination(bits(w, 8, 7)) as u16;
        }
        self.operands(&mut inst, line, &fields, m, false, self.word(2));
        if !self.lane_permutation(&mut inst, line, fields[0], self.word(2)) {
            return inst;
        }
        inst.op_sel = m.op_sel as u8;
        let dst = bits(w, 0, 8);
        match line.form.dst {
            Slot::ExecMask => inst.sdst = EXEC as u16,
            Slot::Mask => inst.sdst = scalar_destination(dst & 127) as u16,
            Slot::Scalar => inst.dst = scalar_destination(dst & 127) as u16,
            slot => {
                inst.dst = dst as u16;
                if is_half(slot) {
                    inst.dst_half = 1 + (m.op_sel >> 3) as u8;
                }
            }
        }
        self.destination_as_source(&mut inst, line);
        // Packed operands have no selection here: halves in their order, one negation for both.
        if line.form.src.contains(&Slot::PackedF16) || line.form.src.contains(&Slot::PackedBf16) {
            (inst.op_sel, inst.neg, inst.neg_hi) = (0, m.neg as u8, m.neg as u8);
        }
        inst
    }

    /// VOP3P: packed arithmetic, dots, mixed precision and matrices.
    pub(super) fn packed(&self) -> Inst {
        let (w, high) = (self.word(0), self.word(1));
        let mut inst = self.blank(self.name("VOP3P", bits(w, 16, 7)), Class::Valu, 2);
        if inst.name.starts_with("v_wmma") || inst.name.starts_with("v_swmmac") {
            inst.class = Class::Wmma;
        }
        let fields = [bits(high, 0, 9), bits(high, 9, 9), bits(high, 18, 9)];
        inst.size = if literal_needed(&fields) || is_dpp(fields[0]) { 12 } else { 8 };
        inst.clamp = bits(w, 15, 1) != 0;
        let Some(line) = self.saturating_line(&mut inst) else { return inst };
        let m = Modifiers { neg: bits(high, 29, 3), abs: bits(w, 8, 3), op_sel: bits(w, 11, 3) };
        // A whole float among packed ones (the third of a dot) takes the ordinary modifiers.
        let own = Modifiers { op_sel: 0, ..m };
        self.operands(&mut inst, line, &fields, own, false, self.word(2));
        if !self.lane_permutation(&mut inst, line, fields[0], self.word(2)) {
            return inst;
        }
        inst.op_sel = m.op_sel as u8;
        inst.op_sel_hi = (bits(high, 27, 2) | bits(w, 14, 1) << 2) as u8;
        (inst.neg, inst.neg_hi) = (m.neg as u8, m.abs as u8);
        inst.dst = bits(w, 0, 8) as u16;
        inst.dst_half = match inst.name {
            "v_fma_mixlo_f16" => 1,
            "v_fma_mixhi_f16" => 2,
            _ => 0,
        };
        inst
    }

    /// VOPD: two operations of four registers each.
    pub(super) fn dual(&self, out: &mut Vec<Inst>) {
        let (w, high) = (self.word(0), self.word(1));
        let x_dst = bits(high, 24, 8);
        let y_dst = bits(high, 17, 7) << 1 | !x_dst & 1;
        let x = ("VOPDX", bits(w, 22, 4), bits(w, 0, 9), bits(w, 9, 8) + 256, x_dst);
        let y = ("VOPDY", bits(w, 17, 5), bits(high, 0, 9), bits(high, 9, 8) + 256, y_dst);
        let fused = is_fused(self.name(x.0, x.1)) || is_fused(self.name(y.0, y.1));
        let words = if fused || literal_needed(&[x.2, y.2]) { 3 } else { 2 };
        let half = |(encoding, opcode, first, second, dst): (&'static str, u32, u32, u32, u32)| {
            let mut inst = self.blank(self.name(encoding, opcode), Class::Valu, words);
            inst.dst = dst as u16;
            if let Some(line) = self.line(&mut inst) {
                self.operands(&mut inst, line, &[first, second], Modifiers::default(), true, self.word(2));
                inst.dst = dst as u16;
                self.destination_as_source(&mut inst, line);
            }
            inst
        };
        let (mut x, mut y) = (half(x), half(y));
        let reads = |a: &Inst, register: u16| a.src.iter().any(|s| s.bank == Bank::Vector && s.index == register);
        if !reads(&y, x.dst) {
            y.part = 1;
            out.extend([x, y]);
        } else if !reads(&x, y.dst) {
            x.part = 1;
            out.extend([y, x]);
        } else {
            let (to, mut copy) = (x.dst, self.blank("v_mov_b32", Class::Other, words));
            x.dst = SCRATCH_VGPR;
            (copy.dst, copy.src[0], copy.part, y.part) = (to, Source::vector(usize::from(SCRATCH_VGPR)), 2, 1);
            if let Some(line) = semantics::find(copy.name) {
                copy.run = handler(line);
            }
            out.extend([x, y, copy]);
        }
    }

    /// Clamp on an integer result is another line of the table; on a float it is part of writing the result.
    fn saturating_line(&self, inst: &mut Inst) -> Option<&'static Semantics> {
        let line = self.line(inst);
        if !inst.clamp {
            return line;
        }
        match semantics::find(&format!("{} clamp", inst.name)) {
            Some(saturating) => {
                inst.run = handler(saturating);
                Some(saturating)
            }
            None if line.is_some_and(|l| matches!(l.form.dst, Slot::F32 | Slot::F16 | Slot::F64 | Slot::N32)) => line,
            None => {
                inst.run = semantics::unknown;
                None
            }
        }
    }

    /// Fills the sources from their fields.
    fn operands(&self, inst: &mut Inst, line: &Semantics, fields: &[u32], m: Modifiers, short: bool, literal: u32) {
        let slots = line.form.src;
        for k in 0..3 {
            let Some(&field) = fields.get(k) else {
                // VOP2's third: the carry or condition, which has no field.
                if slots[k] == Slot::Mask {
                    inst.src[k] = Source::scalar(VCC);
                }
                continue;
            };
            let slot = slots[k];
            if matches!(slot, Slot::None | Slot::DestB32 | Slot::DestF16 | Slot::DestF32 | Slot::DestPackedF16) {
                continue;
            }
            // The register that DPP permutes stands in the following word.
            let permuted = k == 0 && is_dpp(field);
            let field = if permuted { 256 + (literal & 255) } else { field };
            let mut s = source(field, slot, literal);
            let selected = if short {
                let high = s.bank == Bank::Vector && is_half(slot) && s.index & 128 != 0;
                if high {
                    s.index &= 127;
                }
                high
            } else {
                m.op_sel >> k & 1 != 0 && is_half(slot)
            };
            s.half = u8::from(selected) * 2;
            s.flush = self.flush && matches!(slot, Slot::F32 | Slot::DestF32);
            let sign = sign_bit(slot);
            let (neg, abs) = (m.neg >> k & 1 != 0, m.abs >> k & 1 != 0);
            s.and = if abs { !sign } else { !0 };
            s.xor = if neg { sign } else { 0 };
            s.plain = !selected && !s.flush && s.and == !0 && s.xor == 0 && !permuted;
            inst.src[k] = s;
        }
        match inst.name {
            "v_fmamk_f32" | "v_fmamk_f16" => {
                inst.src[2] = inst.src[1];
                inst.src[1] = Source::constant(u64::from(literal));
            }
            "v_fmaak_f32" | "v_fmaak_f16" => inst.src[2] = Source::constant(u64::from(literal)),
            _ => {}
        }
        let float = matches!(line.form.dst, Slot::F32 | Slot::F16 | Slot::F64);
        inst.finish = float && (inst.omod != 0 || inst.clamp || self.flush && line.form.dst == Slot::F32);
    }

    /// Reads DPP's word where the first source announces one; false if it is a permutation that does not exist.
    fn lane_permutation(&self, inst: &mut Inst, line: &Semantics, field: u32, word: u32) -> bool {
        if field == DPP8 || field == DPP8_FI {
            inst.dpp = Some(Dpp {
                kind: DppKind::Eight(word >> 8),
                row_mask: 15,
                bank_mask: 15,
                bound_zero: true,
                fetch_inactive: field == DPP8_FI,
            });
            return true;
        }
        if field != DPP16 {
            return true;
        }
        let control = bits(word, 8, 9) as u16;
        inst.dpp = Some(Dpp {
            kind: DppKind::Control(control),
            row_mask: bits(word, 28, 4) as u8,
            bank_mask: bits(word, 24, 4) as u8,
            bound_zero: bits(word, 19, 1) != 0,
            fetch_inactive: bits(word, 18, 1) != 0,
        });
        // Signs of the two sources, in the short encodings (the long ones have their own fields).
        for (k, at) in [(0, 20), (1, 22)] {
            let sign = sign_bit(line.form.src[k]);
            if bits(word, at + 1, 1) != 0 {
                inst.src[k].and &= !sign;
            }
            if bits(word, at, 1) != 0 {
                inst.src[k].xor ^= sign;
            }
            inst.src[k].plain &= bits(word, at, 2) == 0;
        }
        if !permute::known(control) {
            inst.run = semantics::unknown;
        }
        permute::known(control)
    }

    /// Sources that are the destination: named where an order of execution must be found.
    fn destination_as_source(&self, inst: &mut Inst, line: &Semantics) {
        for k in 0..3 {
            let slot = line.form.src[k];
            if matches!(slot, Slot::DestB32 | Slot::DestF16 | Slot::DestF32 | Slot::DestPackedF16) {
                let mut s = Source::vector(usize::from(inst.dst));
                s.flush = self.flush && slot == Slot::DestF32;
                s.half = if slot == Slot::DestF16 { inst.dst_half } else { 0 };
                s.plain = !s.flush && s.half != 2;
                inst.src[k] = s;
            }
        }
    }
}

fn is_dpp(field: u32) -> bool {
    matches!(field, DPP16 | DPP8 | DPP8_FI)
}

fn is_fused(name: &str) -> bool {
    name.starts_with("v_fmamk") || name.starts_with("v_fmaak")
}

/// VOP3SD: a carry or flag beside the vector result.
fn has_scalar_destination(name: &str) -> bool {
    name.contains("_co_")
        || name.starts_with("v_div_scale")
        || name.starts_with("v_mad_u64")
        || name.starts_with("v_mad_i64")
}
