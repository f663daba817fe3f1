//! A whole stand-in in five lines: what a stand-in crate looks like, and what tests/exports.rs loads.
#[path = "../tests/support/add_one.rs"]
mod add_one;

hip_facade::export!(add_one::AddOne::new);
