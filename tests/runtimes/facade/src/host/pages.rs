//! Memory for allocations, straight from the operating system.
//!
//! Owns: guard pages, poison, quarantine. Always true: an allocation ends as near to a guard page as 256-byte alignment
//! allows; it starts out poisoned; its addresses are not handed out again before 1,024 later frees. Not here: who may
//! touch what (`memory`), virtual memory (`vmm`).

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::{HipError, Outcome};

/// Page size on x86-64.
pub const PAGE: usize = 4096;
/// What HIP aligns allocations to.
const ALIGNMENT: usize = 256;
/// Freed ranges that stay unmapped but reserved.
const QUARANTINE: usize = 1024;
/// Poisoned memory that is shared until it is written: mapped over and over for large allocations, so that 30 GB of
/// them cost nothing until they are used.
const POISON_BYTES: usize = 16 << 20;
/// Little-endian 0xfffd: a NaN as F32, F16 and BF16, an index far out of range as an integer.
const POISON: [u8; 2] = [0xfd, 0xff];

/// An allocation between two guard pages.
#[derive(Debug)]
pub struct Pages {
    mapping: usize,
    mapped: usize,
    /// First byte.
    pub start: u64,
    /// Bytes asked for.
    pub bytes: usize,
}

impl Pages {
    /// Poisoned memory of `bytes` bytes, or none if the operating system has none.
    pub fn new(bytes: usize) -> Option<Pages> {
        let inner = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let mapped = inner.checked_add(2 * PAGE)?;
        let mapping = reserve(mapped)?;
        let pages =
            Pages { mapping, mapped, start: ((mapping + PAGE + inner - bytes) & !(ALIGNMENT - 1)) as u64, bytes };
        poison(mapping + PAGE, inner).then_some(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        static FREED: Mutex<VecDeque<(usize, usize)>> = Mutex::new(VecDeque::new());
        // SAFETY: this range is ours; a new mapping over it drops its contents and forbids every access.
        unsafe {
            libc::mmap(self.mapping as *mut _, self.mapped, libc::PROT_NONE, RESERVED | libc::MAP_FIXED, -1, 0);
        }
        let mut freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
        freed.push_back((self.mapping, self.mapped));
        if freed.len() > QUARANTINE
            && let Some((mapping, mapped)) = freed.pop_front()
        {
            // SAFETY: nothing but the quarantine knows this range.
            unsafe { libc::munmap(mapping as *mut _, mapped) };
        }
    }
}

/// Flags of a range that is only addresses.
pub const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Addresses that nobody may touch yet.
pub fn reserve(bytes: usize) -> Option<usize> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, RESERVED, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address as usize)
}

/// Makes a reserved range readable, writable and poisoned.
fn poison(address: usize, bytes: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    if bytes <= POISON_BYTES {
        // SAFETY: the range is reserved for this allocation alone, which nobody else knows yet.
        unsafe {
            if libc::mprotect(address as *mut _, bytes, access) != 0 {
                return false;
            }
            let words = core::slice::from_raw_parts_mut(address as *mut [u8; 2], bytes / 2);
            words.fill(POISON);
        }
        return true;
    }
    let Some(file) = poison_file() else { return false };
    (0..bytes).step_by(POISON_BYTES).all(|offset| {
        let length = POISON_BYTES.min(bytes - offset);
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: inside the range reserved for this allocation; private, so writes stay in it.
        let at = unsafe { libc::mmap((address + offset) as *mut _, length, access, flags, file.as_raw_fd(), 0) };
        at != libc::MAP_FAILED
    })
}

fn poison_file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = memory_file(POISON_BYTES).ok()?;
        file.write_all_at(&POISON.repeat(POISON_BYTES / 2), 0).ok()?;
        Some(file)
    })
    .as_ref()
}

/// An anonymous file in memory.
pub fn memory_file(bytes: usize) -> std::io::Result<File> {
    // SAFETY: the name ends with a zero byte; a descriptor that is not negative is new and ours.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"hip-physical".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        File::from_raw_fd(descriptor)
    };
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// Poisons the first page of every 64 KiB of a file: enough to show up a host that counts on zeros, without committing
/// gigabytes.
pub fn poison_samples(file: &File, bytes: usize) -> std::io::Result<()> {
    let page = POISON.repeat(PAGE / 2);
    (0..bytes)
        .step_by(64 << 10)
        .try_for_each(|offset| file.write_all_at(&page[..PAGE.min(bytes - offset)], offset as u64))
}

/// Gives addresses back to the operating system.
pub fn unreserve(address: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: the caller reserved this range and forgets it now.
        unsafe { libc::munmap(address as *mut _, bytes as usize) };
    }
}

/// Makes part of a reservation untouchable again and drops what was mapped there.
pub fn forbid(address: u64, bytes: u64) {
    // SAFETY: the caller reserved this range.
    unsafe { libc::mmap(address as *mut _, bytes as usize, libc::PROT_NONE, RESERVED | libc::MAP_FIXED, -1, 0) };
}

/// Maps part of a file over part of a reservation.
pub fn map_file(address: u64, bytes: u64, protection: i32, file: i32, offset: u64) -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the caller reserved this range.
    let at = unsafe { libc::mmap(address as *mut _, bytes as usize, protection, flags, file, offset as i64) };
    at != libc::MAP_FAILED
}

/// Puts fresh zeros over part of a reservation, in place of what is mapped there.
pub fn decoy(address: u64, bytes: u64) -> Outcome {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller reserved this range.
    let at = unsafe { libc::mmap(address as *mut _, bytes as usize, access, RESERVED | libc::MAP_FIXED, -1, 0) };
    if at == libc::MAP_FAILED { Err(HipError::MAP_FAILED) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_ends_within_256_bytes_of_its_guard_page_and_is_poisoned() {
        for bytes in [1, 255, 256, 4096, 4097, 100_000, POISON_BYTES + 4096 + 300] {
            let pages = Pages::new(bytes).unwrap();
            assert_eq!(pages.start % 256, 0);
            let end = pages.start as usize + bytes;
            assert!(pages.mapping + pages.mapped - PAGE - end < 256);
            // SAFETY: inside the allocation.
            let last = unsafe { *((end - 1) as *const u8) };
            assert_eq!(last, POISON[(end - 1) % 2]);
        }
    }

    #[test]
    fn freed_addresses_are_not_handed_out_again_soon() {
        let first = Pages::new(8192).unwrap().start;
        assert!((0..200).all(|_| Pages::new(8192).unwrap().start != first));
    }
}
