//! What several test files share: writers of synthetic models.
//!
//! Each file under tests/ is a crate of its own and uses a part of this, so what one of them leaves unused is no waste.
#![allow(dead_code)]

pub mod checkpoint;
pub mod golden;
pub mod safetensors;
pub mod standin;
pub mod tensors;
pub mod values;
