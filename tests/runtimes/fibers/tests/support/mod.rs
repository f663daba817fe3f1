//! Device memory for tests without HIP's calls: each allocation ends at a page that cannot be accessed.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::PathBuf;
use std::sync::Mutex;

use hip_facade::executor::{Launch, Memory};
use hip_fibers::{Layout, Library, Sanitizer};

const PAGE: usize = 4096;

/// Allocations, freed together.
#[derive(Default)]
pub struct Device {
    ranges: Mutex<Vec<(u64, u64)>>,
    mappings: Mutex<Vec<(usize, usize)>>,
}

impl Device {
    /// Allocates and fills; the end is aligned to 16 and lies against the guard page.
    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let bytes = std::mem::size_of_val(values);
        let pages = bytes.div_ceil(PAGE).max(1);
        let whole = (pages + 2) * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping; the pages between the guards are made writable and hold the values.
        let start = unsafe {
            let base = libc::mmap(std::ptr::null_mut(), whole, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let inner = base.cast::<u8>().add(PAGE);
            assert_eq!(libc::mprotect(inner.cast(), pages * PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
            let start = inner.add(pages * PAGE - bytes.next_multiple_of(16));
            std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), start, bytes);
            self.mappings.lock().unwrap().push((base as usize, whole));
            start as u64
        };
        let mut ranges = self.ranges.lock().unwrap();
        ranges.push((start, start + bytes as u64));
        ranges.sort_unstable();
        start
    }

    /// Reads back what `upload` or a kernel stored.
    pub fn download<T: Copy>(&self, address: u64, count: usize) -> Vec<T> {
        let (_, end) = self.find(address).expect("an address of this device");
        assert!(address + (count * size_of::<T>()) as u64 <= end);
        // SAFETY: the range holds `count` values of plain data, and no kernel runs.
        unsafe { std::slice::from_raw_parts(address as *const T, count).to_vec() }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for (base, bytes) in self.mappings.lock().unwrap().drain(..) {
            // SAFETY: the mapping is this device's and nothing refers to it any more.
            unsafe { libc::munmap(base as *mut libc::c_void, bytes) };
        }
    }
}

impl Memory for Device {
    fn find(&self, address: u64) -> Option<(u64, u64)> {
        self.ranges().into_iter().find(|(start, end)| (*start..*end).contains(&address))
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        self.ranges.lock().unwrap().clone()
    }
}

/// An argument segment from its fields.
#[derive(Default)]
pub struct Arguments(pub Vec<u8>);

impl Arguments {
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn f32(mut self, value: f32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
}

/// A launch in the natural order.
pub fn launch<'a>(kernel: &'a str, groups: u32, threads: u32, arguments: &'a Arguments) -> Launch<'a> {
    Launch {
        kernel,
        grid: [groups, 1, 1],
        block: [threads, 1, 1],
        dynamic_lds: 0,
        arguments: &arguments.0,
        schedule: 0,
    }
}

/// Runs a launch in one layout.
pub fn run(layout: Layout, launch: &Launch<'_>, device: &Device) -> Result<(), String> {
    Library::open(layout)?.launch(launch, device)
}

/// Records a launch and replays it.
pub fn sanitize(layout: Layout, launch: &Launch<'_>, device: &Device, sanitizer: Sanitizer) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("record");
    hip_fibers::write_record(&path, launch, &device.ranges())?;
    hip_fibers::replay(&path, layout, sanitizer)
}
