//! hipfire: runs Qwen3.8 Flash-Next (`qwen4_exp`) on AMD hardware people have at home.
//!
//! Folders import downwards only: `cli → server → engine → {model, text} → {backend, state, weights} → arena →
//! device`.
//! `error`, `config` and `e4m3` hold plain values that everyone may use.

pub mod arena;
pub mod backend;
pub mod cli;
pub mod config;
pub mod device;
pub mod e4m3;
pub mod engine;
pub mod error;
pub mod model;
pub mod server;
pub mod state;
pub mod text;
pub mod weights;
