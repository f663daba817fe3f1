//! What the stand-ins for `libamdhip64` share.
//!
//! Owns: the seam between HIP's calls and whoever executes a kernel. Always true: a device address is a host address,
//! and a kernel may touch live allocations only. Not here: executing (the crates beside this one).

pub mod executor;
