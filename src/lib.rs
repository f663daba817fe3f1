//! hipfire: runs Qwen3.8 Flash-Next (`qwen4_exp`) on AMD hardware people have at home.
//!
//! Folders import downwards only: `cli → engine → {model, text} → {backend, state, weights} → arena`.
//! `error` and `config` hold plain values that everyone may use.

pub mod arena;
pub mod backend;
pub mod cli;
pub mod config;
pub mod engine;
pub mod error;
pub mod model;
pub mod state;
pub mod text;
pub mod weights;
