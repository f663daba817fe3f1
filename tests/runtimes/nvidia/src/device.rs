//! The calls about the device: the imitated card's nature, the GPU's own size and speed.
//!
//! Owns: which attribute comes from where. Always true: `gcnArchName`, version, wavefront and LDS are the card's, for
//! the host chooses kernels by them. Not here: memory that is given out (`memory`).

use core::ffi::{CStr, c_char};

use hip_facade::abi::DeviceProperties;
use hip_facade::calls::DeviceCalls;
use hip_facade::gate::gate;
use hip_facade::modes::Mode;
use hip_facade::{HipError, Outcome, card};

use crate::{Device, NvidiaRuntime};

/// What `hipRuntimeGetVersion` answers: HIP 7.1.25424, whose headers the signatures are from.
const HIP_VERSION: i32 = 70_125_424;

/// Attributes that are the GPU's own: HIP's number, CUDA's.
const OWN: [(i32, i32); 18] = [
    (2, 40),     // async engines
    (5, 13),     // clock
    (8, 31),     // concurrent kernels
    (19, 38),    // L2
    (29, 5),     // grid x
    (30, 6),     // grid y
    (31, 7),     // grid z
    (57, 39),    // threads a multiprocessor
    (59, 37),    // bus width
    (60, 36),    // memory clock
    (63, 16),    // multiprocessors
    (67, 33),    // PCI bus
    (68, 34),    // PCI device
    (69, 50),    // PCI domain
    (71, 12),    // registers a block
    (85, 41),    // unified addressing
    (89, 102),   // virtual memory
    (10015, 16), // physical multiprocessors
];

impl Device {
    fn name(&self) -> Outcome<String> {
        text(|buffer, length| {
            // SAFETY: a buffer of that length.
            unsafe { self.cuda.device_name(buffer, length, self.ordinal) }
        })
    }

    /// Total memory: the GPU's, or less if `device_memory_mib` says so.
    pub fn total_memory(&self) -> Outcome<u64> {
        let mut bytes = 0;
        // SAFETY: a pointer to a local.
        unsafe { self.cuda.device_total_mem(&mut bytes, self.ordinal) }?;
        Ok(match gate().mode(Mode::DeviceMemoryMib) {
            0 => bytes as u64,
            mib => (mib << 20).min(bytes as u64),
        })
    }

    fn attribute(&self, wanted: i32, card: &card::Card, total: u64) -> Option<i32> {
        let not_supported = wanted == 89 && gate().is_on(Mode::VmmNotSupported);
        let own = OWN.iter().find(|(hip, _)| *hip == wanted && !not_supported);
        own.map_or_else(
            || card.attribute(wanted, total),
            |(_, cuda)| {
                let mut value = 0;
                // SAFETY: a pointer to a local.
                unsafe { self.cuda.device_attribute(&mut value, *cuda, self.ordinal) }.ok().map(|()| value)
            },
        )
    }
}

fn text(write: impl FnOnce(*mut c_char, i32) -> Outcome) -> Outcome<String> {
    let mut buffer = [0u8; 256];
    write(buffer.as_mut_ptr().cast(), 255)?;
    let text = CStr::from_bytes_until_nul(&buffer).map_err(|_| HipError::UNKNOWN)?;
    Ok(text.to_string_lossy().into_owned())
}

impl NvidiaRuntime {
    /// The device if it has this ordinal: there is one.
    pub(crate) fn device_at(&self, ordinal: i32) -> Outcome<&Device> {
        let device = self.opened()?;
        if ordinal == 0 { Ok(device) } else { Err(HipError::INVALID_DEVICE) }
    }
}

impl DeviceCalls for NvidiaRuntime {
    fn init(&self, flags: u32) -> Outcome {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        self.opened().map(drop)
    }

    fn runtime_version(&self) -> Outcome<i32> {
        Ok(HIP_VERSION)
    }

    fn driver_version(&self) -> Outcome<i32> {
        let mut version = 0;
        // SAFETY: a pointer to a local.
        unsafe { self.cuda()?.driver_version(&mut version) }?;
        Ok(version)
    }

    fn device_count(&self) -> Outcome<i32> {
        self.opened().map(|_| 1)
    }

    fn set_device(&self, device: i32) -> Outcome {
        self.device_at(device).map(drop)
    }

    fn device(&self) -> Outcome<i32> {
        self.opened().map(|_| 0)
    }

    fn device_by_ordinal(&self, ordinal: i32) -> Outcome<i32> {
        self.device_at(ordinal).map(|_| ordinal)
    }

    fn device_name(&self, device: i32) -> Outcome<String> {
        Ok(format!("hipfire nvidia stand-in ({})", self.device_at(device)?.name()?))
    }

    fn device_memory(&self, device: i32) -> Outcome<usize> {
        Ok(self.device_at(device)?.total_memory()? as usize)
    }

    fn device_attribute(&self, attribute: i32, device: i32) -> Outcome<i32> {
        let (card, device) = (self.card()?, self.device_at(device)?);
        device.attribute(attribute, &card, device.total_memory()?).ok_or(HipError::INVALID_VALUE)
    }

    fn device_properties(&self, device: i32) -> Outcome<DeviceProperties> {
        let (name, card, device) = (self.device_name(device)?, self.card()?, self.device_at(device)?);
        let total = device.total_memory()?;
        Ok(card::properties(&name, card.arch, total, |attribute| device.attribute(attribute, &card, total)))
    }

    fn device_bus_id(&self, device: i32) -> Outcome<String> {
        let device = self.device_at(device)?;
        text(|buffer, length| {
            // SAFETY: a buffer of that length.
            unsafe { device.cuda.device_bus_id(buffer, length, device.ordinal) }
        })
    }

    fn memory_info(&self) -> Outcome<(usize, usize)> {
        let device = self.opened()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: pointers to locals.
        unsafe { device.cuda.mem_info(&mut free, &mut total) }?;
        let limit = device.total_memory()? as usize;
        if limit < total {
            free = free.min(limit.saturating_sub(self.budget().used() as usize));
        }
        Ok((free, limit))
    }

    fn device_synchronize(&self) -> Outcome {
        // SAFETY: no pointers.
        unsafe { self.cuda()?.ctx_synchronize() }
    }
}
