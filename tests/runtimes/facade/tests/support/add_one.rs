//! An executor with three trivial kernels, so that HIP's calls can be tested without one that executes machine code.
//!
//! Owns: `add_one` (every word of a list plus one), `note` (appends a number to a list in pinned memory: the order
//! kernels ran in), `fault` (fails). Always true: a kernel touches accessible memory only. Not here: tests.

use hip_facade::executor::{Executor, KernelInfo, Launch, Memory, Module};

/// Loads any ELF file.
pub struct AddOne;

impl AddOne {
    /// A new executor.
    pub fn new() -> AddOne {
        AddOne
    }
}

impl Executor for AddOne {
    fn load(&self, image: &[u8], arch: &str) -> Result<Box<dyn Module>, String> {
        // The byte after the identification stands for the architecture, so that a test can ask for the wrong one.
        match image.get(15) {
            Some(0) => Ok(Box::new(Kernels)),
            _ => Err(format!("the code object is not for {arch}")),
        }
    }
}

struct Kernels;

impl Module for Kernels {
    fn kernel(&self, name: &str) -> Option<KernelInfo> {
        let known = ["add_one", "note", "fault"].contains(&name);
        let info =
            KernelInfo { kernarg_bytes: 16, max_threads: 256, lds_bytes: 1024, vgprs: 40, sgprs: 20, scratch_bytes: 0 };
        known.then_some(info)
    }

    fn launch(&self, launch: &Launch<'_>, memory: &dyn Memory) -> Result<(), String> {
        let argument = |at: usize| u64::from_le_bytes(launch.arguments[at..at + 8].try_into().unwrap());
        let (address, number) = (argument(0), argument(8));
        let words = |count: u64| {
            let end = address + 4 * count;
            match memory.find(address) {
                // SAFETY: the facade says that this range is accessible.
                Some(range) if end <= range.1 => unsafe {
                    Ok(core::slice::from_raw_parts_mut(address as *mut u32, count as usize))
                },
                _ => Err(format!("{}: store to {address:#x}, no such memory", launch.kernel)),
            }
        };
        match launch.kernel {
            "add_one" => words(number)?.iter_mut().for_each(|word| *word = word.wrapping_add(1)),
            "note" => {
                let list = words(64)?;
                let next = list[0] as usize + 1;
                list[next] = number as u32;
                list[0] = next as u32;
            }
            _ => return Err(format!("{} always fails", launch.kernel)),
        }
        Ok(())
    }
}
