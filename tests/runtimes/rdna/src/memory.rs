//! Global memory as a kernel may touch it: live allocations, the code object's own data, the argument segment.
//!
//! Always true: an access reaches memory only after `check` or `check_lanes` has found all of its bytes inside one
//! range, and at the alignment of its words. Not here: allocations themselves (the facade), LDS (`semantics::lds`).

use hip_facade::executor::Memory;

use crate::wave::{LANES, Lanes};

/// A readable range that is no allocation.
#[derive(Debug, Clone, Copy)]
pub struct Extra {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// A kernel may store here too.
    pub writable: bool,
}

/// Ranges remembered between look-ups: kernels walk a handful of buffers.
const REMEMBERED: usize = 8;

/// Memory with its bounds.
pub struct Checked<'a> {
    memory: &'a dyn Memory,
    extra: &'a [Extra],
    remembered: [(u64, u64); REMEMBERED],
    next: usize,
}

impl<'a> Checked<'a> {
    /// `extra` are the ranges that the launch adds to the live allocations.
    pub fn new(memory: &'a dyn Memory, extra: &'a [Extra]) -> Self {
        Self { memory, extra, remembered: [(1, 0); REMEMBERED], next: 0 }
    }

    /// Whether all of `[start, end)` may be accessed.
    #[inline(always)]
    fn allowed(&mut self, start: u64, end: u64, write: bool) -> bool {
        self.remembered.iter().any(|r| start >= r.0 && end <= r.1) || self.look_up(start, end, write)
    }

    #[inline(never)]
    fn look_up(&mut self, start: u64, end: u64, write: bool) -> bool {
        if end < start {
            return false;
        }
        if self.extra.iter().any(|e| start >= e.start && end <= e.end && (e.writable || !write)) {
            return true;
        }
        match self.memory.find(start) {
            Some(range) if end <= range.1 => {
                self.remembered[self.next] = range;
                self.next = (self.next + 1) % REMEMBERED;
                true
            }
            _ => false,
        }
    }

    /// Checks one access of `bytes` at `address`. The driver allows any alignment (LLVM's AMDGPU usage guide, unaligned
    /// access mode); all that our formats need is 2, so an odd address is a mistake of the kernel.
    pub fn check(&mut self, address: u64, bytes: u64, write: bool) -> Result<(), String> {
        if address & (bytes.min(2) - 1) != 0 {
            return Err(format!("{} {bytes} bytes at {address:#x}, which is misaligned", verb(write)));
        }
        if self.allowed(address, address.wrapping_add(bytes), write) {
            return Ok(());
        }
        Err(format!(
            "{} {bytes} bytes at {address:#x}, outside every live allocation{}",
            verb(write),
            self.near(address)
        ))
    }

    /// Checks the same access for every active lane; the error names the first lane at fault.
    #[inline(always)]
    pub fn check_lanes(
        &mut self,
        addresses: &[u64; LANES],
        active: u32,
        bytes: u64,
        write: bool,
    ) -> Result<(), (usize, String)> {
        let (mut lowest, mut highest, mut bits) = (u64::MAX, 0u64, 0u64);
        for l in 0..LANES {
            let on = active >> l & 1 != 0;
            lowest = lowest.min(if on { addresses[l] } else { u64::MAX });
            highest = highest.max(if on { addresses[l] } else { 0 });
            bits |= if on { addresses[l] } else { 0 };
        }
        let end = highest.wrapping_add(bytes);
        if bits & (bytes.min(4) - 1) == 0 && end > lowest && self.allowed(lowest, end, write) {
            return Ok(());
        }
        self.check_each(addresses, active, bytes, write)
    }

    #[inline(never)]
    fn check_each(
        &mut self,
        addresses: &[u64; LANES],
        active: u32,
        bytes: u64,
        write: bool,
    ) -> Result<(), (usize, String)> {
        (0..LANES)
            .filter(|l| active >> l & 1 != 0)
            .try_for_each(|l| self.check(addresses[l], bytes, write).map_err(|text| (l, text)))
    }

    /// How far away the nearest allocation is, in words.
    fn near(&self, address: u64) -> String {
        let ranges = self.memory.ranges();
        let nearest =
            ranges.iter().min_by_key(|r| if address < r.0 { r.0 - address } else { address - r.1.min(address) });
        match nearest {
            Some(&(start, end)) if address >= end => {
                format!(" ({} bytes past the end of [{start:#x}, {end:#x}))", address - end)
            }
            Some(&(start, end)) if address < start => {
                format!(" ({} bytes before [{start:#x}, {end:#x}))", start - address)
            }
            Some(&(start, end)) => format!(" (it crosses the end of [{start:#x}, {end:#x}))"),
            None => " (there are none)".into(),
        }
    }
}

fn verb(write: bool) -> &'static str {
    if write { "stores" } else { "loads" }
}

/// LDS bank conflicts of one access: cycles beyond the first of each pass. 32 banks of 4 bytes; a pass serves 32 lanes
/// of up to 4 bytes, 16 of 8, or 8 of 12 and 16; lanes that read the same word share it.
pub fn bank_conflicts(addresses: &Lanes, active: u32, bytes: u32) -> u64 {
    let words = bytes.div_ceil(4).max(1) as usize;
    let step = bytes.max(4);
    if active == !0 && (1..LANES).all(|l| addresses[l] == addresses[l - 1].wrapping_add(step)) {
        return 0;
    }
    let lanes = match words {
        1 => 32,
        2 => 16,
        _ => 8,
    };
    (0..LANES).step_by(lanes).map(|first| pass_conflicts(addresses, active, first..first + lanes, words as u32)).sum()
}

/// Extra cycles of one pass.
fn pass_conflicts(addresses: &Lanes, active: u32, lanes: std::ops::Range<usize>, words: u32) -> u64 {
    // Most passes have no conflict: one word a bank is all that must be remembered to see that.
    let (mut first, mut taken) = ([0u32; LANES], 0u32);
    let clean = lanes.clone().filter(|l| active >> l & 1 != 0).all(|l| {
        (0..words).all(|k| {
            let word = (addresses[l] >> 2).wrapping_add(k);
            let bank = (word & 31) as usize;
            let free = taken >> bank & 1 == 0;
            taken |= 1 << bank;
            first[bank] = if free { word } else { first[bank] };
            first[bank] == word
        })
    });
    if clean {
        return 0;
    }
    let mut distinct = [0u32; LANES];
    let mut seen = [0u32; 2 * LANES];
    let mut count = 0;
    for l in lanes.filter(|l| active >> l & 1 != 0) {
        for k in 0..words {
            let word = (addresses[l] >> 2).wrapping_add(k);
            if !seen[..count].contains(&word) {
                seen[count] = word;
                count += 1;
                distinct[(word & 31) as usize] += 1;
            }
        }
    }
    u64::from(distinct.iter().copied().max().unwrap_or(1)) - 1
}
