//! What a device is: numbers by attribute, names from HIP's property struct.
//!
//! Owns: reading them, and the architecture's bare name.
//! Always true: a number that the library does not know is absent, not zero.
//! Not here: what follows from them (`backend::hip`, `arena::vmm`, `engine::doctor`).

use serde::Serialize;

use super::Failure;
use super::api::{Api, text_of};
use super::sys::hipDeviceAttribute_t as Attribute;

/// Versions as HIP numbers them: major · 10,000,000 + minor · 100,000 + patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// Of the library.
    pub runtime: Option<i32>,
    /// Of the driver part under it.
    pub driver: Option<i32>,
}

impl Versions {
    /// `7.1.25424`
    pub fn text(version: i32) -> String {
        format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
    }
}

/// Bytes of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryInfo {
    /// Not in use by anybody.
    pub free: usize,
    /// All of it.
    pub total: usize,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Properties {
    /// HIP's number of it.
    pub device: i32,
    /// Marketing name.
    pub name: String,
    /// `gfx1151`, without the features that follow a colon.
    pub arch: String,
    /// Shares the host's memory.
    pub integrated: bool,
    /// Compute units. HIP counts pairs (work-group processors) on some RDNA releases.
    pub compute_units: Option<i32>,
    /// Lanes of a wave.
    pub warp_size: Option<i32>,
    /// LDS a workgroup may have, in bytes.
    pub lds_bytes: Option<i32>,
    /// L2 in bytes.
    pub l2_bytes: Option<i32>,
    /// Of the engine, in kHz.
    pub clock_khz: Option<i32>,
    /// Bits of the memory bus.
    pub memory_bus_bits: Option<i32>,
    /// HIP says that it can reserve and map.
    pub virtual_memory: Option<bool>,
    /// `0000:c5:00.0`
    pub pci: Option<String>,
    /// Bytes of device memory.
    pub memory_bytes: usize,
}

impl Properties {
    pub(super) fn read(api: &Api, device: i32) -> Result<Properties, Failure> {
        let facts = api.properties(device)?;
        let number = |attribute| api.attribute(attribute, device).ok();
        let properties = Properties {
            device,
            name: text_of(&facts.name),
            arch: bare_arch(&text_of(&facts.gcnArchName)).to_string(),
            integrated: number(Attribute::hipDeviceAttributeIntegrated).is_some_and(|value| value != 0),
            compute_units: number(Attribute::hipDeviceAttributeMultiprocessorCount),
            warp_size: number(Attribute::hipDeviceAttributeWarpSize),
            lds_bytes: number(Attribute::hipDeviceAttributeMaxSharedMemoryPerBlock),
            l2_bytes: number(Attribute::hipDeviceAttributeL2CacheSize),
            clock_khz: number(Attribute::hipDeviceAttributeClockRate),
            memory_bus_bits: number(Attribute::hipDeviceAttributeMemoryBusWidth),
            virtual_memory: number(Attribute::hipDeviceAttributeVirtualMemoryManagementSupported).map(|v| v != 0),
            pci: api.pci_bus_id(device).ok(),
            memory_bytes: facts.totalGlobalMem,
        };
        // An attribute that was refused must not be the error of a later call.
        api.forget_last_error();
        Ok(properties)
    }
}

/// `gfx90a:sramecc+:xnack-` is `gfx90a`.
pub fn bare_arch(full: &str) -> &str {
    full.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_loses_its_feature_suffixes() {
        assert_eq!(
            [bare_arch("gfx1201"), bare_arch("gfx90a:sramecc+:xnack-"), bare_arch("")],
            ["gfx1201", "gfx90a", ""]
        );
    }

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(Versions::text(70_125_424), "7.1.25424");
        assert_eq!(Versions::text(50_221_153), "5.2.21153");
    }
}
