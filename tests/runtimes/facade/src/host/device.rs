//! The calls about the device itself.
//!
//! Owns: device ordinals, names and properties, waiting for everything. Always true: with no device every call says
//! so; several devices share one memory. Not here: a card's facts (`card`).

use std::cell::Cell;

use super::HostRuntime;
use crate::abi::DeviceProperties;
use crate::calls::DeviceCalls;
use crate::card::{self, Card};
use crate::error::{HipError, Outcome};

/// What `hipRuntimeGetVersion` answers: HIP 7.1.25424, whose headers the signatures are from.
const HIP_VERSION: i32 = 70_125_424;

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

impl HostRuntime {
    /// The card, or that there is none.
    pub(super) fn card(&self) -> Outcome<Card> {
        self.card.filter(|_| card::device_count() > 0).ok_or(HipError::NO_DEVICE)
    }

    /// Checks a device ordinal.
    pub(super) fn check_device(&self, device: i32) -> Outcome<Card> {
        let card = self.card()?;
        (0..card::device_count()).contains(&device).then_some(card).ok_or(HipError::INVALID_DEVICE)
    }
}

impl DeviceCalls for HostRuntime {
    fn init(&self, flags: u32) -> Outcome {
        if flags == 0 { self.card().map(drop) } else { Err(HipError::INVALID_VALUE) }
    }

    fn runtime_version(&self) -> Outcome<i32> {
        Ok(HIP_VERSION)
    }

    fn driver_version(&self) -> Outcome<i32> {
        Ok(HIP_VERSION)
    }

    fn device_count(&self) -> Outcome<i32> {
        self.card().map(|_| card::device_count())
    }

    fn set_device(&self, device: i32) -> Outcome {
        self.check_device(device)?;
        CURRENT.set(device);
        Ok(())
    }

    fn device(&self) -> Outcome<i32> {
        self.card().map(|_| CURRENT.get())
    }

    fn device_by_ordinal(&self, ordinal: i32) -> Outcome<i32> {
        self.check_device(ordinal).map(|_| ordinal)
    }

    fn device_name(&self, device: i32) -> Outcome<String> {
        self.check_device(device).map(|card| format!("hipfire {} stand-in ({})", self.kind, card.arch))
    }

    fn device_memory(&self, device: i32) -> Outcome<usize> {
        self.check_device(device).map(|_| card::total_memory() as usize)
    }

    fn device_attribute(&self, attribute: i32, device: i32) -> Outcome<i32> {
        self.check_device(device)?.attribute(attribute, card::total_memory()).ok_or(HipError::INVALID_VALUE)
    }

    fn device_properties(&self, device: i32) -> Outcome<DeviceProperties> {
        let card = self.check_device(device)?;
        let (name, total) = (self.device_name(device)?, card::total_memory());
        Ok(card::properties(&name, card.arch, total, |attribute| card.attribute(attribute, total)))
    }

    fn device_bus_id(&self, device: i32) -> Outcome<String> {
        self.check_device(device).map(|_| format!("0000:{device:02x}:00.0"))
    }

    fn memory_info(&self) -> Outcome<(usize, usize)> {
        self.card()?;
        let total = card::total_memory();
        let used = self.state().memory().0.used;
        Ok((total.saturating_sub(used) as usize, total as usize))
    }

    fn device_synchronize(&self) -> Outcome {
        self.wait_for_all("hipDeviceSynchronize").map(drop)
    }
}
