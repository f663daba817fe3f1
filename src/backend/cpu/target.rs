//! One source, two instruction sets: compiles a loop nest for the baseline and for AVX2 + FMA, chosen at run time.
//!
//! Owns: the macro that makes both versions of a loop nest whose lanes the compiler finds by itself.
//! Always true: both versions give the same bits, since every rounding is written down (`mul_add`, fixed order) and the
//! compiler may only change how many lanes it works on at once.
//! Not here: kernels written lane by lane, and the run-time choice (`lanes`).

/// Defines a function that runs its body compiled for AVX2 + FMA where the processor has them.
macro_rules! multiversioned {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) {
            #[inline(always)]
            fn body($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn fast($($arg: $ty),*) {
                    body($($arg),*)
                }
                if $crate::backend::cpu::lanes::executor() == $crate::backend::cpu::lanes::Executor::Avx2 {
                    // SAFETY: `executor` found the features that `fast` is compiled for.
                    return unsafe { fast($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use multiversioned;
