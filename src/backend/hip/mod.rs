//! The HIP backend: kernels built from `hip/`, and what launches them.

pub mod abi;
pub mod check;
pub mod kernels;
pub mod manifest;
pub mod matrix;
pub mod pack;
