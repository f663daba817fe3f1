//! Eight f32 lanes: the one vector type that every kernel of this backend is written in, and who executes it.
//!
//! Owns: [`Lanes`] with a portable implementation, the choice between it and AVX2 at run time, `vectorised!`.
//! Always true: an operation on lanes is eight IEEE 754 operations, each rounded once, so a kernel written over
//! `Lanes` has the same bits whoever executes it. A NaN stays a NaN, its sign and payload are not promised.
//! Not here: AVX2 itself (`avx2`), kernels (`simd`, `activation`, `tile`).

use std::sync::atomic::{AtomicU8, Ordering};

/// Lanes of a vector.
pub const WIDTH: usize = 8;

/// Eight lanes in memory: spilled accumulators, decoded weights.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C, align(32))]
pub struct Eight(pub [f32; WIDTH]);

/// A vector of eight f32. Methods are inlined into the function that picked the implementation.
pub trait Lanes: Copy {
    /// All lanes `value`.
    fn splat(value: f32) -> Self;
    /// Eight consecutive values.
    fn load(from: &[f32; WIDTH]) -> Self;
    /// Writes the lanes.
    fn store(self, to: &mut [f32; WIDTH]);
    /// Lane by lane `self + other`.
    fn add(self, other: Self) -> Self;
    /// Lane by lane `self - other`.
    fn sub(self, other: Self) -> Self;
    /// Lane by lane `self * other`.
    fn mul(self, other: Self) -> Self;
    /// Lane by lane `self / other`.
    fn div(self, other: Self) -> Self;
    /// Lane by lane `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// The greater of two lanes; `other` if either is NaN.
    fn max(self, other: Self) -> Self;
    /// The lesser of two lanes; `other` if either is NaN.
    fn min(self, other: Self) -> Self;
    /// The sign is flipped.
    fn neg(self) -> Self;
    /// Two powers of two whose product is 2^n; the lane holds `n + ROUND`, where -252 <= n <= 254.
    fn powers(self) -> (Self, Self);
    /// Asks for the cache line at `address` ahead of its use; any address is fine.
    #[inline(always)]
    fn prefetch(_address: *const u8) {}
    /// Eight little-endian BF16.
    fn bf16(from: &[u8; 16]) -> Self;
    /// Eight little-endian F16.
    fn f16(from: &[u8; 16]) -> Self;
    /// Eight E4M3 bytes, each value divided by 256: exactly what F16 hardware makes of their bits.
    fn e4m3_by_256(from: &[u8; 8]) -> Self;
    /// Sixteen of them at once, which saves instructions.
    #[inline(always)]
    fn e4m3_pair_by_256(from: &[[u8; 8]; 2]) -> [Self; 2] {
        [Self::e4m3_by_256(&from[0]), Self::e4m3_by_256(&from[1])]
    }

    /// The sum of the lanes: `((0+1) + (2+3)) + ((4+5) + (6+7))`.
    #[inline(always)]
    fn sum(self) -> f32 {
        let mut lanes = [0.0; WIDTH];
        self.store(&mut lanes);
        let [a, b, c, d, e, f, g, h] = lanes;
        ((a + b) + (c + d)) + ((e + f) + (g + h))
    }
    /// The sums of four vectors, each added up as [`Lanes::sum`] does.
    #[inline(always)]
    fn sums([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        [a.sum(), b.sum(), c.sum(), d.sum()]
    }
    /// The first values from memory, zeros behind them: the fixed way to end a row. At most eight values.
    #[inline(always)]
    fn load_tail(from: &[f32]) -> Self {
        let mut lanes = [0.0; WIDTH];
        lanes[..from.len()].copy_from_slice(from);
        Self::load(&lanes)
    }
    /// Writes the first lanes.
    #[inline(always)]
    fn store_tail(self, to: &mut [f32]) {
        let mut lanes = [0.0; WIDTH];
        self.store(&mut lanes);
        to.copy_from_slice(&lanes[..to.len()]);
    }
}

/// 1.5 * 2^23: adding it rounds a small f32 to an integer, which then stands in the low bits.
pub const ROUND: f32 = 12_582_912.0;

/// Lanes as an array; `mul_add` is a call into libm where the target has no fused multiply-add.
#[derive(Clone, Copy)]
pub struct Portable([f32; WIDTH]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Portable(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Lanes for Portable {
    #[inline(always)]
    fn splat(value: f32) -> Self {
        Portable([value; WIDTH])
    }
    #[inline(always)]
    fn load(from: &[f32; WIDTH]) -> Self {
        Portable(*from)
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; WIDTH]) {
        *to = self.0;
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        Portable(std::array::from_fn(|i| self.0[i].mul_add(factor.0[i], term.0[i])))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn neg(self) -> Self {
        Portable(self.0.map(|v| -v))
    }
    #[inline(always)]
    fn powers(self) -> (Self, Self) {
        let n = self.0.map(|v| (v.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32));
        let power = |e: i32| f32::from_bits((e.wrapping_add(127) << 23) as u32);
        (Portable(n.map(|n| power(n >> 1))), Portable(n.map(|n| power(n.wrapping_sub(n >> 1)))))
    }
    #[inline(always)]
    fn bf16(from: &[u8; 16]) -> Self {
        Portable(std::array::from_fn(|i| half::bf16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32()))
    }
    #[inline(always)]
    fn f16(from: &[u8; 16]) -> Self {
        Portable(std::array::from_fn(|i| half::f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32()))
    }
    #[inline(always)]
    fn e4m3_by_256(from: &[u8; 8]) -> Self {
        Portable(from.map(|byte| {
            let byte = u16::from(byte);
            // The one NaN of each sign would be 1.875 * 2^-7: its exponent is pushed up to F16's own NaNs.
            let nan = if byte & 0x7f == 0x7f { 0x4000 } else { 0 };
            half::f16::from_bits((byte & 0x80) << 8 | (byte & 0x7f) << 7 | nan).to_f32()
        }))
    }
}

/// Who executes the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// Rust's own arithmetic.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
}

const UNKNOWN: u8 = 0;
const PORTABLE: u8 = 1;
const AVX2: u8 = 2;
static EXECUTOR: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Who executes the kernels of this process: detected once.
#[inline]
pub fn executor() -> Executor {
    match EXECUTOR.load(Ordering::Relaxed) {
        PORTABLE => Executor::Portable,
        AVX2 => Executor::Avx2,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Executor {
    #[cfg(target_arch = "x86_64")]
    let found = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    #[cfg(not(target_arch = "x86_64"))]
    let found = false;
    EXECUTOR.store(if found { AVX2 } else { PORTABLE }, Ordering::Relaxed);
    if found { Executor::Avx2 } else { Executor::Portable }
}

/// For tests: `true` makes the portable implementation execute every kernel of the process from now on, `false`
/// returns to what the processor can do. Results have the same bits either way.
#[doc(hidden)]
pub fn force_portable(on: bool) {
    EXECUTOR.store(if on { PORTABLE } else { UNKNOWN }, Ordering::Relaxed);
}

/// Makes a function from a kernel that is generic over [`Lanes`]: compiled for each executor, chosen at run time.
///
/// `vectorised! { pub fn dot(a: &[f32], b: &[f32]) -> f32 = dot_lanes; }` calls `dot_lanes::<L>(a, b)`. Further
/// generic parameters stand in brackets, with their names repeated for the call.
macro_rules! vectorised {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident $([$($decl:tt)*] [$($generic:ident),*])?
        ($($arg:ident : $type:ty),* $(,)?) $(-> $out:ty)? = $kernel:ident;)*) => {$(
        $(#[$doc])*
        $vis fn $name $(<$($decl)*>)? ($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            if $crate::backend::cpu::lanes::executor() == $crate::backend::cpu::lanes::Executor::Avx2 {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2 $(<$($decl)*>)? ($($arg: $type),*) $(-> $out)? {
                    $kernel::<$crate::backend::cpu::avx2::Avx2 $($(, $generic)*)?>($($arg),*)
                }
                // SAFETY: `executor` found AVX2, FMA and F16C in this processor.
                return unsafe { avx2 $(::<$($generic),*>)? ($($arg),*) };
            }
            $kernel::<$crate::backend::cpu::lanes::Portable $($(, $generic)*)?>($($arg),*)
        }
    )*};
}
pub(crate) use vectorised;
