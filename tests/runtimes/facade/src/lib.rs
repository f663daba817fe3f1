//! What the stand-ins for `libamdhip64` share.
//!
//! Owns: HIP's C symbols ([`export!`]), the gate they pass ([`gate`]), HIP over host memory ([`host`]) and the seam to
//! whoever executes a kernel ([`executor`]). Always true: a device address is a host address, and a kernel may touch
//! live allocations only. Not here: executing (the crates beside this one).
//!
//! A stand-in is a `cdylib` crate with an executor and one line: `hip_facade::export!(RdnaExecutor::new);`

pub mod abi;
pub mod calls;
pub mod card;
pub mod error;
pub mod executor;
pub mod exports;
pub mod extras;
pub mod gate;
pub mod host;
pub mod modes;

pub use error::{HipError, Outcome};
