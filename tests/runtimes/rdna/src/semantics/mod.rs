//! What each mnemonic does: one line each.
//!
//! Owns: the four table macros and the look-up by name. Always true: a line is compiled twice, for any host and for
//! one with AVX2, FMA and F16C; operand types in the line are all that the decoder knows about a mnemonic; what has no
//! line here faults when it is executed, with its name. To add an instruction, add its line to the table it fits:
//! - `vector!`  `"name"(a: f32, b: u32) -> u32 = expression over one lane;`
//! - `compare!` one relation, for `v_cmp_*` and `v_cmpx_*` at once
//! - `scalar!`  the same as `vector!` for scalar registers and SCC
//! - `special!` a closure over wave, instruction and group, for everything else

mod compare;
mod control;
mod float32;
mod global;
mod integer;
mod lds;
mod matrix;
mod narrow;
mod scalar;
mod wide;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::inst::{Flow, Form, Inst, Semantics, Slot};
use crate::wave::{Group, Wave};

/// Lines of one file.
pub type Table = &'static [Semantics];

/// The table by mnemonic.
static BY_NAME: LazyLock<HashMap<&'static str, &'static Semantics>> = LazyLock::new(|| {
    let tables = [
        float32::TABLES.as_slice(),
        integer::TABLES.as_slice(),
        narrow::TABLES.as_slice(),
        wide::TABLES.as_slice(),
        compare::TABLES.as_slice(),
        scalar::TABLES.as_slice(),
        control::TABLES.as_slice(),
        global::TABLES.as_slice(),
        lds::TABLES.as_slice(),
        matrix::TABLES.as_slice(),
    ];
    let lines = tables.iter().flat_map(|t| t.iter()).flat_map(|t| t.iter());
    lines.flat_map(|line| line.names.iter().map(move |name| (*name, line))).collect()
});

/// The line of a mnemonic, if it has one.
pub fn find(name: &str) -> Option<&'static Semantics> {
    // A flat access that stays out of the LDS aperture is a global one; inside it, the bounds check reports it.
    match name.strip_prefix("flat_") {
        Some(rest) => BY_NAME.get(format!("global_{rest}").as_str()).copied(),
        None => BY_NAME.get(name).copied(),
    }
}

/// Mnemonics with semantics.
pub fn names() -> impl Iterator<Item = &'static str> {
    BY_NAME.keys().copied()
}

/// What stands in the program where a mnemonic has no line.
pub fn unknown(_: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    g.fail(format!("has no semantics in this stand-in; add a line for {} in tests/runtimes/rdna/src/semantics", i.name))
}

/// Sum of two packed F16 pairs (memory atomics).
pub(crate) fn add_halves(a: u32, b: u32) -> u32 {
    use crate::float::{f16_to_f32, f32_to_f16};
    let half =
        |shift: u32| u32::from(f32_to_f16(f16_to_f32((a >> shift) as u16) + f16_to_f32((b >> shift) as u16))) << shift;
    half(0) | half(16)
}

/// Sum of two packed BF16 pairs (memory atomics).
pub(crate) fn add_brains(a: u32, b: u32) -> u32 {
    use crate::float::{bf16_to_f32, f32_to_bf16};
    let half = |shift: u32| {
        u32::from(f32_to_bf16(bf16_to_f32((a >> shift) as u16) + bf16_to_f32((b >> shift) as u16))) << shift
    };
    half(0) | half(16)
}

const fn slots(given: &[Slot]) -> [Slot; 3] {
    let mut out = [Slot::None; 3];
    let mut k = 0;
    while k < given.len() {
        out[k] = given[k];
        k += 1;
    }
    out
}

/// A form for instructions whose operands the decoder reads without types (memory, control).
pub(crate) const fn form(dst: Slot, given: &[Slot]) -> Form {
    Form { dst, src: slots(given) }
}

/// Both compilations of a body, as fields of a `Semantics`.
macro_rules! compiled {
    ($names:expr, $form:expr, $body:ident) => {{
        unsafe fn base(
            w: &mut crate::wave::Wave,
            i: &crate::inst::Inst,
            g: &mut crate::wave::Group<'_>,
        ) -> crate::inst::Flow {
            $body(w, i, g)
        }
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
        unsafe fn fast(
            w: &mut crate::wave::Wave,
            i: &crate::inst::Inst,
            g: &mut crate::wave::Group<'_>,
        ) -> crate::inst::Flow {
            $body(w, i, g)
        }
        crate::inst::Semantics { names: $names, form: $form, base, fast }
    }};
}

/// Fetches each source of a line in turn.
macro_rules! fetch {
    ($w:ident $i:ident;) => {};
    ($w:ident $i:ident; $a:ident $A:ty) => {
        let $a = <$A as crate::value::Value>::load($w, $i, 0);
    };
    ($w:ident $i:ident; $a:ident $A:ty, $b:ident $B:ty) => {
        let $a = <$A as crate::value::Value>::load($w, $i, 0);
        let $b = <$B as crate::value::Value>::load($w, $i, 1);
    };
    ($w:ident $i:ident; $a:ident $A:ty, $b:ident $B:ty, $c:ident $C:ty) => {
        let $a = <$A as crate::value::Value>::load($w, $i, 0);
        let $b = <$B as crate::value::Value>::load($w, $i, 1);
        let $c = <$C as crate::value::Value>::load($w, $i, 2);
    };
}

macro_rules! vector {
    ($table:ident; $($($name:literal)|+ ($($a:ident: $A:ty),*) -> $R:ty = $e:expr;)*) => {
        pub const $table: crate::semantics::Table = &[$({
            #[inline(always)]
            fn body(w: &mut crate::wave::Wave, i: &crate::inst::Inst, _: &mut crate::wave::Group<'_>) -> crate::inst::Flow {
                crate::semantics::fetch!(w i; $($a $A),*);
                let mut out = <$R as crate::value::Target>::ZERO;
                for l in 0..crate::wave::LANES {
                    $(let $a: $A = <$A as crate::value::Value>::get(&$a, l);)*
                    let value: $R = $e;
                    <$R as crate::value::Target>::set(&mut out, l, value);
                }
                <$R as crate::value::Target>::store(w, i, out);
                crate::inst::Flow::Next
            }
            crate::semantics::compiled!(
                &[$($name),+],
                crate::semantics::form(<$R as crate::value::Target>::SLOT, &[$(<$A as crate::value::Value>::SLOT),*]),
                body
            )
        }),*];
    };
}

macro_rules! special {
    ($table:ident, $form:expr; $($($name:literal)|+ => |$w:pat_param, $i:pat_param, $g:pat_param| $e:expr;)*) => {
        pub const $table: crate::semantics::Table = &[$({
            #[inline(always)]
            fn body(w: &mut crate::wave::Wave, i: &crate::inst::Inst, g: &mut crate::wave::Group<'_>) -> crate::inst::Flow {
                let ($w, $i, $g) = (w, i, g);
                $e
            }
            crate::semantics::compiled!(&[$($name),+], $form, body)
        }),*];
    };
}

pub(crate) use {compiled, fetch, special, vector};
