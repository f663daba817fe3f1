//! Memory for everything that grows with context: reserve an address range for its largest size, commit pages as it
//! is written, never move it and never give the address back.
//!
//! Owns: address ranges and their accounting (reserved, committed, retired), the memory plan.
//! Always true: `Range::base` never changes; committed memory is a prefix of the range and reads as zero until
//! written; a dropped range is retired, its address is not used again in this process.
//! Not here: what the bytes mean (`state`).

pub mod host;
