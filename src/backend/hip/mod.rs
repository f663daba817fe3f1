//! The HIP backend: kernels built from `hip/`, and what launches them.

pub mod manifest;
pub mod pack;
