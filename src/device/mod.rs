//! The GPU, through HIP: `libamdhip64` found at run time, its calls checked, and safe types over them.
//!
//! Owns: every call of HIP. Three levels: `sys` (generated), `api` (checked calls), and the types below.
//! Always true: without a library or a device the program runs on, and the error says what was tried; a failed call
//! names itself, its arguments and HIP's error; a `Drop` that fails tells its context, and the next call returns it.
//! Not here: kernels and their arguments (`backend::hip`), when memory is mapped (`arena`).

mod api;
pub mod canary;
mod context;
mod failure;
mod graph;
pub mod library;
pub mod limits;
mod memory;
mod module;
mod properties;
mod stream;
#[rustfmt::skip]
mod sys;
pub mod vm;

pub use context::Context;
pub use failure::Failure;
pub use graph::Graph;
pub use library::Library;
pub use memory::{DeviceMemory, DeviceSpan, PinnedMemory};
pub use module::{Function, Module, Shape};
pub use properties::{MemoryInfo, Properties, Versions};
pub use stream::{Event, Stream};
