//! Hostile modes and settings: what a stand-in can be told to get wrong.
//!
//! Owns: the one table of them. Always true: a mode's value is 0 (off) until `standin_mode` or `HIPFIRE_STANDIN` sets
//! it, and `standin_reset` puts it back to what the environment said. Not here: the imitation itself (`host::vmm`,
//! `host::device`, `card`).
//!
//! | mode | VMM.md row | value | what the host then sees |
//! |---|---|---|---|
//! | `remap_reads_first_backing` | 1 | 1 | mapping at an address that was mapped before answers success, but copies and kernels reach the physical memory that was mapped there first (pages of 2 MiB, remembered over unmap, release and address free) |
//! | `fresh_mapping_loses_stores` | 2 | µs, 1 = 1,500 | for so long after `hipMemSetAccess` a fresh mapping reads zeros and loses what is stored, in every kernel and copy; then it works. Waiting on the host is the only help |
//! | `set_access_refuses_subrange` | 3 | 1 | `hipMemSetAccess` answers `hipErrorInvalidValue` unless its range is the whole mapped prefix, from the reservation's base |
//! | `set_access_refuses_size` | 3 | bytes, 1 = 64 MiB | `hipMemSetAccess` answers `hipErrorInvalidValue` for a range of more than so many bytes |
//! | `access_only_first_mapping` | 4 | 1 | `hipMemSetAccess` answers success and does nothing unless its range begins at the reservation's base |
//! | | | 2 | it answers success and gives access to the first mapping only, however it is called |
//! | `unmap_spanning_handles_leaves_range` | 5 | 1 | `hipMemUnmap` over several mappings answers success, unmaps the first and leaves the others: the address cannot be freed |
//! | `release_while_mapped_leaks` | 6 | 1 | memory and file descriptor of a handle that is released while mapped are never returned |
//! | `map_deadlocks_on_busy_null_stream` | 7 | ms, 1 = 100 | `hipMemMap` and `hipMemUnmap` with work queued on the null stream or a blocking stream wait for so long (at most 1,000), then answer `hipErrorLaunchTimeOut` where ROCm would hang |
//! | (a low `RLIMIT_NOFILE`) | 8 | | no mode: every handle holds a file descriptor, and `hipMemCreate` answers `hipErrorOutOfMemory` when there is none left |
//! | `granularity_4k` | 9 | 1 | `hipMemGetAllocationGranularity` answers 4,096; sizes and addresses that are no multiples of 2 MiB are refused as ever |
//! | `physical_kept_until_address_free` | 10 | 1 | unmapped and released memory counts as used until the address it was mapped at is freed |
//! | `reserve_commits_everything` | 11 | 1 | `hipMemAddressReserve` takes its whole size from the device's memory |
//! | `vmm_not_supported` | 11 | 1 | the attribute says 0 and the calls answer `hipErrorNotSupported` |
//!
//! | setting | value |
//! |---|---|
//! | `device_memory_mib` | memory of the device, 0 = 32,768 |
//! | `device_count` | devices + 1 (1 = none: `hipErrorNoDevice`), 0 = one device |

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! modes {
    ($($variant:ident $name:literal)*) => {
        /// A hostile mode or setting; the table at the head of this file says what each does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mode { $(#[doc = $name] $variant),* }

        /// Every mode with its name.
        pub const ALL: &[(Mode, &str)] = &[$((Mode::$variant, $name)),*];
    };
}

modes! {
    RemapReadsFirstBacking "remap_reads_first_backing"
    FreshMappingLosesStores "fresh_mapping_loses_stores"
    SetAccessRefusesSubrange "set_access_refuses_subrange"
    SetAccessRefusesSize "set_access_refuses_size"
    AccessOnlyFirstMapping "access_only_first_mapping"
    UnmapSpanningHandlesLeavesRange "unmap_spanning_handles_leaves_range"
    ReleaseWhileMappedLeaks "release_while_mapped_leaks"
    MapDeadlocksOnBusyNullStream "map_deadlocks_on_busy_null_stream"
    Granularity4k "granularity_4k"
    PhysicalKeptUntilAddressFree "physical_kept_until_address_free"
    ReserveCommitsEverything "reserve_commits_everything"
    VmmNotSupported "vmm_not_supported"
    DeviceMemoryMib "device_memory_mib"
    DeviceCount "device_count"
}

/// The present value of every mode.
#[derive(Debug, Default)]
pub struct Modes([AtomicU64; ALL.len()]);

impl Modes {
    /// The value of a mode, 0 when it is off.
    pub fn value(&self, mode: Mode) -> u64 {
        self.0[mode as usize].load(Ordering::Relaxed)
    }

    /// Sets a mode by its name; false if there is none of that name.
    pub fn set(&self, name: &str, value: u64) -> bool {
        let Some((mode, _)) = ALL.iter().find(|(_, known)| *known == name) else { return false };
        self.0[*mode as usize].store(value, Ordering::Relaxed);
        true
    }

    /// Switches everything off.
    pub fn clear(&self) {
        self.0.iter().for_each(|value| value.store(0, Ordering::Relaxed));
    }
}
