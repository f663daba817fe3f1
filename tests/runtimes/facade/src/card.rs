//! The card a stand-in imitates.
//!
//! Owns: names, sizes and attributes of gfx1151 and gfx1201 as ROCm reports them. Always true: the name says that this
//! is a stand-in. Not here: how much memory is free (`host::memory`).

use crate::abi::DeviceProperties;
use crate::gate::gate;
use crate::modes::Mode;

/// One card's facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Card {
    /// `gcnArchName`
    pub arch: &'static str,
    /// `EF_AMDGPU_MACH` of code objects it can run: its own, and its family's generic one.
    pub machines: [u32; 2],
    /// `major` and `minor` as HIP reports them.
    pub version: (i32, i32),
    /// Whether memory is shared with the host.
    pub integrated: bool,
    /// Compute units. HIP's `multiProcessorCount` is half of it: it counts workgroup processors of two.
    pub compute_units: i32,
    /// L2 in bytes.
    pub l2_bytes: i32,
    /// Bus width in bits.
    pub bus_bits: i32,
    /// Memory clock in kHz.
    pub memory_khz: i32,
    /// Shader clock in kHz.
    pub clock_khz: i32,
}

const CARDS: [Card; 2] = [
    Card {
        arch: "gfx1201",
        machines: [0x4e, 0x59],
        version: (12, 0),
        integrated: false,
        compute_units: 64,
        l2_bytes: 8 << 20,
        bus_bits: 256,
        memory_khz: 1_258_000,
        clock_khz: 2_920_000,
    },
    Card {
        arch: "gfx1151",
        machines: [0x4a, 0x54],
        version: (11, 5),
        integrated: true,
        compute_units: 40,
        l2_bytes: 2 << 20,
        bus_bits: 256,
        memory_khz: 1_000_000,
        clock_khz: 2_900_000,
    },
];

/// LDS a workgroup may have.
pub const LDS_BYTES: u32 = 64 << 10;
/// Work-items a workgroup may have.
pub const MAX_THREADS: u32 = 1024;
/// Memory of the device unless the setting `device_memory_mib` says otherwise.
const DEFAULT_MEMORY: u64 = 32 << 30;

impl Card {
    /// The card that `HIPFIRE_STANDIN_ARCH` names: gfx1201 if it is not set, none if it names no known one.
    pub fn from_environment() -> Option<Card> {
        let arch = std::env::var("HIPFIRE_STANDIN_ARCH").unwrap_or_else(|_| CARDS[0].arch.to_owned());
        let card = CARDS.into_iter().find(|card| card.arch == arch);
        if card.is_none() {
            let problem = format!("HIPFIRE_STANDIN_ARCH={arch} is none of gfx1201, gfx1151");
            eprintln!("{problem}");
            gate().explain(problem);
        }
        card
    }

    /// Value of a `hipDeviceAttribute_t`, none if the stand-in does not know it.
    pub fn attribute(&self, attribute: i32, total_memory: u64) -> Option<i32> {
        let cap = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
        Some(match attribute {
            2 => 2,                                                  // AsyncEngineCount
            3 | 4 | 8 | 85 | 90 | 10 | 10014 | 10016 => 1,           // can map, concurrent kernels, unified …
            0 | 6 | 24 | 65 | 67 | 68 | 69 | 75 | 78 | 88 | 91 => 0, // ECC, managed, pageable, PCI, pools …
            5 => self.clock_khz,
            16 => i32::from(self.integrated),
            19 => self.l2_bytes,
            23 => self.version.0,
            61 => self.version.1,
            25 => 16, // MaxBlocksPerMultiProcessor
            26..=28 | 56 => MAX_THREADS as i32,
            29 => i32::MAX, // MaxGridDimX
            30 | 31 => 65_535,
            57 => 2048,          // MaxThreadsPerMultiProcessor
            58 | 83 => i32::MAX, // MaxPitch, TotalConstantMemory
            59 => self.bus_bits,
            60 => self.memory_khz,
            63 => self.compute_units / 2,
            71 | 72 => 196_608, // registers a workgroup, a multiprocessor
            74 | 76 | 10002 => LDS_BYTES as i32,
            84 => cap(total_memory),
            87 => 32,                                              // WarpSize
            89 => i32::from(!gate().is_on(Mode::VmmNotSupported)), // VirtualMemoryManagementSupported
            10000 | 10017 => 100_000,                              // clock and wall clock in kHz
            10011 => i32::from(!self.integrated),                  // IsLargeBar
            10012 => 0,
            10015 => self.compute_units,
            10018 => 1,
            10019 => 256,
            10020 => {
                if self.integrated {
                    0x1586
                } else {
                    0x7551
                }
            } // PciChipId
            _ => return None,
        })
    }
}

/// Members of `hipDeviceProp_t` that an attribute holds: offset, `hipDeviceAttribute_t`.
#[rustfmt::skip]
const INTEGERS: [(usize, i32); 32] = [
    (304, 71), (308, 87), (320, 56), (324, 26), (328, 27), (332, 28), (336, 29), (340, 30), (344, 31), (348, 5),
    (360, 23), (364, 61), (388, 63), (396, 16), (400, 3), (576, 8), (584, 67), (588, 68), (592, 69), (600, 2),
    (604, 85), (608, 60), (612, 59), (616, 19), (624, 57), (648, 72), (684, 4), (712, 25), (728, 90), (1424, 10000),
    (1464, 10011), (1468, 10012),
];
/// The same for members of eight bytes: sharedMemPerBlock, memPitch, totalConstMem, and LDS a multiprocessor twice.
const SIZES: [(usize, i32); 5] = [(296, 74), (312, 58), (352, 83), (640, 76), (1416, 10002)];

/// `hipDeviceProp_t` from a name, an architecture and attributes.
pub fn properties(
    name: &str,
    arch: &str,
    total_memory: u64,
    attribute: impl Fn(i32) -> Option<i32>,
) -> DeviceProperties {
    let mut properties = DeviceProperties::default();
    properties.text(0, name);
    properties.text(1160, arch);
    properties.size(288, total_memory as usize);
    for (offset, wanted) in SIZES {
        properties.size(offset, attribute(wanted).and_then(|value| usize::try_from(value).ok()).unwrap_or(0));
    }
    for (offset, wanted) in INTEGERS {
        properties.int(offset, attribute(wanted).unwrap_or(0));
    }
    properties
}

/// Memory of the device in bytes.
pub fn total_memory() -> u64 {
    match gate().mode(Mode::DeviceMemoryMib) {
        0 => DEFAULT_MEMORY,
        mib => mib << 20,
    }
}

/// Devices there are.
pub fn device_count() -> i32 {
    match gate().mode(Mode::DeviceCount) {
        0 => 1,
        count => i32::try_from(count - 1).unwrap_or(i32::MAX),
    }
}
