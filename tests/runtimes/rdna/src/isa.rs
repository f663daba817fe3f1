//! Which mnemonic an opcode is, on each generation.
//!
//! Owns: the tables that `isa/make_tables.py` wrote, by encoding and opcode. Always true: the tables are data from LLVM's
//! disassembler; nothing here knows operands (`decode`) or meaning (`semantics`).

use std::collections::HashMap;
use std::sync::LazyLock;

/// A generation's instruction set.
pub struct Isa {
    /// Whether it is gfx12's.
    pub gfx12: bool,
    opcodes: HashMap<(&'static str, u32), &'static str>,
}

/// gfx1151's.
pub static GFX11: LazyLock<Isa> = LazyLock::new(|| Isa::parse(false, include_str!("../isa/gfx11.txt")));
/// gfx1201's.
pub static GFX12: LazyLock<Isa> = LazyLock::new(|| Isa::parse(true, include_str!("../isa/gfx12.txt")));

impl Isa {
    /// The instruction set of an architecture by its name in a code object.
    pub fn of(arch: &str) -> Option<&'static Self> {
        match arch {
            "gfx1151" => Some(&GFX11),
            "gfx1201" => Some(&GFX12),
            _ => None,
        }
    }

    fn parse(gfx12: bool, text: &'static str) -> Self {
        let rows = text.lines().filter(|l| !l.starts_with('#')).filter_map(|line| {
            let mut fields = line.split(' ');
            let (encoding, opcode, name) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
            Some(((encoding, opcode), name))
        });
        Self { gfx12, opcodes: rows.collect() }
    }

    /// The mnemonic, without suffixes that name an encoding.
    pub fn name(&self, encoding: &'static str, opcode: u32) -> Option<&'static str> {
        self.opcodes.get(&(encoding, opcode)).copied()
    }

    /// Every mnemonic of the set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.opcodes.values().copied()
    }
}
