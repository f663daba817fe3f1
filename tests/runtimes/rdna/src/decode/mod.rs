//! Machine code to instructions that are ready to run.
//!
//! Owns: recognising the encoding of a word, its size, and the scalar, memory and flow encodings; `vector` has the
//! vector ones, `operand` the operand fields. Always true: decoding never fails; what cannot be decoded or has no
//! semantics becomes an instruction that faults with a sentence when it is reached.

mod operand;
mod vector;

use crate::inst::{Class, Inst, Semantics, Slot, Source};
use crate::isa::Isa;
use crate::semantics;
use operand::{literal_needed, scalar_destination, source};

/// What stands for a word that no encoding claims.
const UNKNOWN: &str = "unknown encoding";

/// A decoded text section.
pub struct Program {
    /// In address order; the parts of a dual issue follow each other.
    pub insts: Vec<Inst>,
    /// Address of the first word.
    pub start: u32,
    /// Index of the instruction at each word, for branches and entries.
    index: Vec<u32>,
}

impl Program {
    /// Decodes a section that stands at `start`. `flush` says that some kernel starts with F32 denormals off.
    pub fn new(isa: &Isa, text: &[u8], start: u32, flush: bool) -> Self {
        let words: Vec<u32> = text.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let (mut insts, mut index, mut at) = (Vec::new(), vec![u32::MAX; words.len()], 0);
        while at < words.len() {
            let reader = Reader { isa, words: &words[at..], pc: start + 4 * at as u32, flush };
            index[at] = insts.len() as u32;
            let first = insts.len();
            reader.decode(&mut insts);
            at += insts.get(first).map_or(1, |i| usize::from(i.size) / 4).max(1);
        }
        let mut program = Self { insts, start, index };
        program.resolve_branches();
        program
    }

    /// The instruction at an address.
    pub fn at(&self, pc: u32) -> Option<usize> {
        let word = pc.checked_sub(self.start)? as usize / 4;
        self.index.get(word).copied().filter(|&i| i != u32::MAX).map(|i| i as usize)
    }

    fn resolve_branches(&mut self) {
        for k in 0..self.insts.len() {
            let inst = self.insts[k];
            if inst.class == Class::Branch && inst.name.contains("branch") {
                let away = i64::from(inst.immediate as u16 as i16) * 4;
                let to = i64::from(inst.pc) + 4 + away;
                // A branch out of the section runs into `run`'s check of the program counter.
                let target = u32::try_from(to).ok().and_then(|pc| self.at(pc)).unwrap_or(self.insts.len());
                self.insts[k].target = target as u32;
            }
        }
    }
}

/// One instruction's words and what surrounds them.
struct Reader<'a> {
    isa: &'a Isa,
    words: &'a [u32],
    pc: u32,
    flush: bool,
}

/// `count` bits of `word` from bit `at`.
fn bits(word: u32, at: u32, count: u32) -> u32 {
    word >> at & ((1u64 << count) - 1) as u32
}

impl Reader<'_> {
    fn word(&self, n: usize) -> u32 {
        self.words.get(n).copied().unwrap_or(0)
    }

    /// An instruction without operands yet.
    fn blank(&self, name: &'static str, class: Class, words: usize) -> Inst {
        Inst {
            run: semantics::unknown,
            name,
            pc: self.pc,
            size: 4 * words as u8,
            class,
            part: 0,
            omod: 0,
            clamp: false,
            finish: false,
            dst_half: 0,
            op_sel: 0,
            op_sel_hi: 7,
            neg: 0,
            neg_hi: 0,
            dst: 0,
            sdst: 0,
            src: [Source::constant(0); 3],
            dpp: None,
            offset: 0,
            immediate: 0,
            target: 0,
        }
    }

    /// The mnemonic of an opcode, or what to print instead.
    fn name(&self, encoding: &'static str, opcode: u32) -> &'static str {
        self.isa.name(encoding, opcode).unwrap_or(UNKNOWN)
    }

    fn decode(&self, out: &mut Vec<Inst>) {
        let w = self.word(0);
        let inst = match w >> 26 {
            0..=0x1f => self.vector_short(),
            0x20..=0x2f => self.scalar(),
            0x32 => return self.dual(out),
            0x33 if w >> 24 == 0xcc => self.packed(),
            0x35 => self.vector_long(),
            0x36 => self.local(),
            0x37 if !self.isa.gfx12 => self.global_gfx11(),
            0x3a | 0x3b if self.isa.gfx12 && matches!(w >> 24, 0xec..=0xee) => self.global_gfx12(),
            0x3d => self.scalar_memory(),
            0x38 if !self.isa.gfx12 => self.blank(self.name("BUFFER", bits(w, 18, 8)), Class::Vmem, 2),
            0x31 if self.isa.gfx12 => self.blank(self.name("BUFFER", bits(w, 14, 8)), Class::Vmem, 3),
            // Textures, exports and interpolation: only their size matters, as no compute kernel executes them.
            0x33 | 0x3e => self.blank(UNKNOWN, Class::Other, 2),
            0x34 | 0x39 if self.isa.gfx12 => self.blank(UNKNOWN, Class::Other, 3),
            0x3a if !self.isa.gfx12 => self.blank(UNKNOWN, Class::Other, 2),
            0x3c if !self.isa.gfx12 => self.blank(UNKNOWN, Class::Other, 2 + bits(w, 0, 1) as usize),
            _ => self.blank(UNKNOWN, Class::Other, 1),
        };
        out.push(self.with_semantics_of_memory(inst));
    }

    /// Buffer instructions have semantics only where they need no operand (cache control).
    fn with_semantics_of_memory(&self, mut inst: Inst) -> Inst {
        if inst.run as usize == semantics::unknown as crate::inst::Handler as usize
            && inst.name.starts_with("buffer_gl")
            && let Some(line) = semantics::find(inst.name)
        {
            inst.run = handler(line);
        }
        inst
    }

    /// Looks the mnemonic up and sets the handler. `None` leaves the instruction as one that faults.
    fn line(&self, inst: &mut Inst) -> Option<&'static Semantics> {
        let line = semantics::find(inst.name)?;
        inst.run = handler(line);
        Some(line)
    }

    fn scalar(&self) -> Inst {
        let w = self.word(0);
        let (encoding, opcode) = match w >> 23 {
            0x17d => ("SOP1", bits(w, 8, 8)),
            0x17e => ("SOPC", bits(w, 16, 7)),
            0x17f => ("SOPP", bits(w, 16, 7)),
            _ if w >> 28 == 0xb => ("SOPK", bits(w, 23, 5)),
            _ => ("SOP2", bits(w, 23, 7)),
        };
        let name = self.name(encoding, opcode);
        let mut inst = self.blank(name, scalar_class(encoding, name), 1);
        inst.dst = scalar_destination(bits(w, 16, 7)) as u16;
        inst.immediate = w & 0xffff;
        let fields = match encoding {
            "SOP2" | "SOPC" => vec![bits(w, 0, 8), bits(w, 8, 8)],
            "SOP1" => vec![bits(w, 0, 8)],
            _ => vec![],
        };
        let mandatory = matches!(name, "s_fmaak_f32" | "s_fmamk_f32" | "s_setreg_imm32_b32");
        let literal = mandatory || literal_needed(&fields);
        inst.size = if literal { 8 } else { 4 };
        let literal = self.word(1);
        let Some(line) = self.line(&mut inst) else { return inst };
        let read = |k: usize| source(fields[k], line.form.src[k], literal);
        match encoding {
            "SOPK" if name == "s_setreg_imm32_b32" => inst.src[0] = Source::constant(u64::from(literal)),
            "SOPK" => {
                // An unsigned comparison takes its constant unsigned.
                let unsigned = name.starts_with("s_cmpk") && name.ends_with("_u32");
                let value = if unsigned { inst.immediate } else { inst.immediate as u16 as i16 as u32 };
                let constant = Source::constant(u64::from(value));
                let two = line.form.src[1] != Slot::None && line.form.src[1] != Slot::DestB32;
                inst.src[0] = if two { Source::scalar(usize::from(inst.dst)) } else { constant };
                inst.src[1] = constant;
            }
            "SOP2" if name == "s_fmaak_f32" => {
                inst.src = [read(0), read(1), Source::constant(u64::from(literal))];
            }
            "SOP2" if name == "s_fmamk_f32" => {
                inst.src = [read(0), Source::constant(u64::from(literal)), read(1)];
            }
            _ => (0..fields.len()).for_each(|k| inst.src[k] = read(k)),
        }
        inst
    }

    fn scalar_memory(&self) -> Inst {
        let (w, high) = (self.word(0), self.word(1));
        let opcode = if self.isa.gfx12 { bits(w, 13, 6) } else { bits(w, 18, 8) };
        let mut inst = self.blank(self.name("SMEM", opcode), Class::Smem, 2);
        let offset_bits = if self.isa.gfx12 { 24 } else { 21 };
        inst.offset = sign_extend(bits(high, 0, offset_bits), offset_bits);
        inst.dst = scalar_destination(bits(w, 6, 7)) as u16;
        inst.src[0] = Source::scalar(2 * bits(w, 0, 6) as usize);
        inst.src[1] = source(bits(high, 25, 7), Slot::B32, 0);
        self.line(&mut inst);
        inst
    }

    fn local(&self) -> Inst {
        let (w, high) = (self.word(0), self.word(1));
        let mut inst = self.blank(self.name("DS", bits(w, 18, 8)), Class::Lds, 2);
        let two = inst.name.contains("_2addr");
        inst.offset = if two { bits(w, 0, 8) } else { bits(w, 0, 16) } as i32;
        inst.immediate = bits(w, 8, 8);
        inst.dst = bits(high, 24, 8) as u16;
        inst.src = [0, 8, 16].map(|at| Source::vector(bits(high, at, 8) as usize));
        self.line(&mut inst);
        inst
    }

    fn global_gfx11(&self) -> Inst {
        let (w, high) = (self.word(0), self.word(1));
        let encoding = ["FLAT", "SCRATCH", "GLOBAL", UNKNOWN][bits(w, 16, 2) as usize];
        let mut inst = self.blank(self.name(encoding, bits(w, 18, 7)), Class::Vmem, 2);
        inst.offset = sign_extend(bits(w, 0, 13), 13);
        inst.immediate = bits(w, 14, 1);
        inst.dst = bits(high, 24, 8) as u16;
        inst.src = [
            Source::vector(bits(high, 0, 8) as usize),
            Source::vector(bits(high, 8, 8) as usize),
            base(encoding, bits(high, 16, 7)),
        ];
        self.global_line(&mut inst);
        inst
    }

    fn global_gfx12(&self) -> Inst {
        let (w, middle, high) = (self.word(0), self.word(1), self.word(2));
        let encoding = ["FLAT", "SCRATCH", "GLOBAL"][(bits(w, 24, 8) - 0xec).min(2) as usize];
        let mut inst = self.blank(self.name(encoding, bits(w, 14, 8)), Class::Vmem, 3);
        inst.offset = sign_extend(bits(high, 8, 24), 24);
        // The temporal hint's first bit asks an atomic for the old value.
        inst.immediate = bits(middle, 20, 1);
        inst.dst = bits(middle, 0, 8) as u16;
        inst.src = [
            Source::vector(bits(high, 0, 8) as usize),
            Source::vector(bits(middle, 23, 8) as usize),
            base(encoding, bits(w, 0, 7)),
        ];
        self.global_line(&mut inst);
        inst
    }

    fn global_line(&self, inst: &mut Inst) {
        if matches!(inst.name, "global_inv" | "global_wb" | "global_wbinv") {
            inst.class = Class::Wait;
        }
        self.line(inst);
    }
}

/// The scalar base of a global access; `off` (null) and flat accesses have none.
fn base(encoding: &str, field: u32) -> Source {
    if encoding == "GLOBAL" && field != 124 && field != 127 {
        Source::scalar(field as usize)
    } else {
        Source::constant(0)
    }
}

fn sign_extend(value: u32, bits: u32) -> i32 {
    (value << (32 - bits)) as i32 >> (32 - bits)
}

fn scalar_class(encoding: &str, name: &str) -> Class {
    match encoding {
        _ if name.starts_with("s_barrier") => Class::Wait,
        "SOPK" if name.starts_with("s_waitcnt") => Class::Wait,
        "SOPP" if name.contains("branch") || name == "s_endpgm" => Class::Branch,
        "SOPP" => Class::Wait,
        _ => Class::Salu,
    }
}

/// The compilation of a line that this host can run.
fn handler(line: &Semantics) -> crate::inst::Handler {
    if crate::run::fast_handlers() { line.fast } else { line.base }
}
