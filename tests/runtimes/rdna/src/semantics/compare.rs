//! Comparisons of all types, into a mask (`v_cmp_*`) or into EXEC (`v_cmpx_*`).
//!
//! Always true: one line a relation gives both forms for every type of its family; an ordered relation with a NaN is
//! false, its `n`-prefixed negation is true. Not here: "never" and "always", which no compiler emits.

use super::Table;
use crate::value::{Exec, Half};
use crate::wave::LANES;

macro_rules! one {
    ($name:expr, $out:ty, $A:ty, $B:ty, |$a:ident, $b:ident| $e:expr) => {{
        #[inline(always)]
        fn body(w: &mut crate::wave::Wave, i: &crate::inst::Inst, _: &mut crate::wave::Group<'_>) -> crate::inst::Flow {
            super::fetch!(w i; $a $A, $b $B);
            let mut mask = 0u32;
            for l in 0..LANES {
                let $a = <$A as crate::value::Value>::get(&$a, l);
                let $b = <$B as crate::value::Value>::get(&$b, l);
                mask |= u32::from($e) << l;
            }
            <$out as crate::value::Target>::store(w, i, mask);
            crate::inst::Flow::Next
        }
        super::compiled!(
            &[$name],
            super::form(
                <$out as crate::value::Target>::SLOT,
                &[<$A as crate::value::Value>::SLOT, <$B as crate::value::Value>::SLOT]
            ),
            body
        )
    }};
}

macro_rules! relations {
    ($suffix:literal, $A:ty, $B:ty; $($relation:literal => |$a:ident, $b:ident| $e:expr;)*) => {
        &[$(
            one!(concat!("v_cmp_", $relation, "_", $suffix), bool, $A, $B, |$a, $b| $e),
            one!(concat!("v_cmpx_", $relation, "_", $suffix), Exec, $A, $B, |$a, $b| $e)
        ),*]
    };
}

macro_rules! integers {
    ($suffix:literal, $T:ty) => {
        relations! { $suffix, $T, $T;
            "lt" => |a, b| a < b;
            "eq" => |a, b| a == b;
            "le" => |a, b| a <= b;
            "gt" => |a, b| a > b;
            "ne" => |a, b| a != b;
            "ge" => |a, b| a >= b;
        }
    };
}

/// A float's value for comparing.
trait Number: Copy {
    type Plain: PartialOrd + Copy;
    fn plain(self) -> Self::Plain;
}
impl Number for f32 {
    type Plain = f32;
    #[inline(always)]
    fn plain(self) -> f32 {
        self
    }
}
impl Number for f64 {
    type Plain = f64;
    #[inline(always)]
    fn plain(self) -> f64 {
        self
    }
}
impl Number for Half {
    type Plain = f32;
    #[inline(always)]
    fn plain(self) -> f32 {
        self.0
    }
}

#[inline(always)]
fn less<T: Number>(a: T, b: T) -> bool {
    a.plain() < b.plain()
}
#[inline(always)]
fn equal<T: Number>(a: T, b: T) -> bool {
    a.plain() == b.plain()
}
#[inline(always)]
fn at_most<T: Number>(a: T, b: T) -> bool {
    a.plain() <= b.plain()
}
#[inline(always)]
fn differ<T: Number>(a: T, b: T) -> bool {
    a.plain() < b.plain() || a.plain() > b.plain()
}
#[inline(always)]
fn ordered<T: Number>(a: T, b: T) -> bool {
    a.plain().partial_cmp(&b.plain()).is_some()
}

macro_rules! floats {
    ($suffix:literal, $T:ty) => {
        relations! { $suffix, $T, $T;
            "lt" => |a, b| less(a, b);
            "eq" => |a, b| equal(a, b);
            "le" => |a, b| at_most(a, b);
            "gt" => |a, b| less(b, a);
            "lg" => |a, b| differ(a, b);
            "ge" => |a, b| at_most(b, a);
            "o" => |a, b| ordered(a, b);
            "u" => |a, b| !ordered(a, b);
            "nge" => |a, b| !at_most(b, a);
            "nlg" => |a, b| !differ(a, b);
            "ngt" => |a, b| !less(b, a);
            "nle" => |a, b| !at_most(a, b);
            "neq" => |a, b| !equal(a, b);
            "nlt" => |a, b| !less(a, b);
        }
    };
}

/// The class bit of a float: 0 signalling NaN, 1 quiet NaN, then from -infinity (2) to +infinity (9).
fn class(bits: u64, exponent_bits: u32, mantissa_bits: u32) -> u32 {
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let all = (1 << exponent_bits) - 1;
    let exponent = bits >> mantissa_bits & all;
    let negative = bits >> (mantissa_bits + exponent_bits) & 1 != 0;
    let kind = match (exponent == all, exponent == 0, mantissa == 0) {
        (true, _, false) => return if mantissa >> (mantissa_bits - 1) != 0 { 2 } else { 1 },
        (true, _, true) => 0,
        (_, false, _) => 1,
        (_, true, false) => 2,
        (_, true, true) => 3,
    };
    if negative { 4 << kind } else { 0x200 >> kind }
}

/// All tables of this file.
pub const TABLES: [Table; 12] = [
    floats!("f32", f32),
    floats!("f16", Half),
    floats!("f64", f64),
    integers!("u32", u32),
    integers!("i32", i32),
    integers!("u16", u16),
    integers!("i16", i16),
    integers!("u64", u64),
    integers!("i64", i64),
    relations! { "f32", f32, u32; "class" => |a, b| class(u64::from(a.to_bits()), 8, 23) & b != 0; },
    relations! { "f16", Half, u16; "class" => |a, b| class(u64::from(crate::float::f32_to_f16(a.0)), 5, 10) & u32::from(b) != 0; },
    relations! { "f64", f64, u32; "class" => |a, b| class(a.to_bits(), 11, 52) & b != 0; },
];
