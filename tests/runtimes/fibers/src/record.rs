//! Launches kept in files, and run again under a sanitizer.
//!
//! A record is the whole launch: kernel, shape, arguments and all live allocations with addresses and contents, as
//! they were before it ran. `runtime/replay.cpp` reads it: little-endian 64-bit numbers, texts after their lengths.
//! Always true: a recording that was asked for and cannot be made fails the launch, so that nothing passes unchecked.
//! Not here: what the sanitizers are told of fibers (`runtime/sanitizers.h`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use hip_facade::executor::Launch;

use crate::library::{Layout, built};
use crate::{sanitizers_missing, source};

/// Environment variable that names the folder for records; unset or empty: none are made.
pub const RECORD_VARIABLE: &str = "HIPFIRE_STANDIN_RECORD";

/// Allocations beyond this many bytes in total are not recorded: a test that wants a record needs small shapes.
pub const RECORD_LIMIT: u64 = 256 << 20;

const MAGIC: &[u8; 8] = b"FIBERS01";
/// Exit code of a replay program that finds an allocation's address taken.
const ADDRESS_TAKEN: i32 = 3;
/// Addresses are random: a free one is found soon.
const ATTEMPTS: usize = 8;

/// What a launch is replayed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sanitizer {
    /// TSan: races between work-items, and between workgroups.
    Thread,
    /// UBSan, and ASan for private arrays.
    Undefined,
}

impl Sanitizer {
    /// Both.
    pub const ALL: [Sanitizer; 2] = [Sanitizer::Thread, Sanitizer::Undefined];

    fn program(self) -> &'static str {
        match self {
            Sanitizer::Thread => "thread",
            Sanitizer::Undefined => "undefined",
        }
    }
}

/// Writes the launch to the folder that the environment names, if it names one. Of a kernel's launches the one with the
/// least memory is kept: a run of thousands of launches would fill a disk.
pub(crate) fn record_if_asked(launch: &Launch<'_>, ranges: &[(u64, u64)], layout: Layout) -> Result<(), String> {
    let Some(folder) = std::env::var_os(RECORD_VARIABLE).filter(|folder| !folder.is_empty()) else { return Ok(()) };
    static LEAST: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    let mut least = LEAST.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = bytes(ranges);
    if least.get(launch.kernel).is_some_and(|&kept| kept <= bytes) {
        return Ok(());
    }
    write_record(&PathBuf::from(folder).join(format!("{}.{}", launch.kernel, layout.number())), launch, ranges)?;
    least.insert(launch.kernel.to_string(), bytes);
    Ok(())
}

fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// Writes a launch to a file, with every range of device memory as it is now.
pub fn write_record(path: &Path, launch: &Launch<'_>, ranges: &[(u64, u64)]) -> Result<(), String> {
    let bytes = bytes(ranges);
    if bytes > RECORD_LIMIT {
        return Err(format!(
            "kernel {}: a record of {bytes} bytes of allocations was asked for, and {RECORD_LIMIT} is the limit: use \
             smaller shapes, or unset {RECORD_VARIABLE}",
            launch.kernel
        ));
    }
    write(path, launch, ranges)
        .map_err(|error| format!("kernel {}: cannot record to {}: {error}", launch.kernel, path.display()))
}

fn write(path: &Path, launch: &Launch<'_>, ranges: &[(u64, u64)]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(MAGIC)?;
    for text in [launch.kernel.as_bytes(), launch.arguments] {
        file.write_all(&(text.len() as u64).to_le_bytes())?;
        file.write_all(text)?;
    }
    let [x, y, z] = launch.grid.map(u64::from);
    let shape = [x, y, z, launch.block[0].into(), launch.dynamic_lds.into(), launch.schedule, ranges.len() as u64];
    for number in shape {
        file.write_all(&number.to_le_bytes())?;
    }
    for &(start, end) in ranges {
        file.write_all(&start.to_le_bytes())?;
        file.write_all(&end.to_le_bytes())?;
        // SAFETY: the facade says that this range is accessible, and holds its allocations during a launch.
        file.write_all(unsafe { std::slice::from_raw_parts(start as *const u8, (end - start) as usize) })?;
    }
    file.flush()
}

/// Runs a record again under a sanitizer, in a process of its own. Fails with the kernel's name and the sanitizer's
/// report, whose frames name source lines, or with a sentence if it cannot be run.
pub fn replay(record: &Path, layout: Layout, sanitizer: Sanitizer) -> Result<(), String> {
    if let Some(why) = sanitizers_missing() {
        return Err(format!("hip-fibers was built without replay programs: {why}"));
    }
    if !Layout::REPLAYED.contains(&layout) {
        return Err("launches are replayed in the layouts of gfx11 and gfx12 only".into());
    }
    let kernel = kernel_of(record)?;
    let program = built(sanitizer.program(), layout);
    let symbolizer = option_env!("HIP_FIBERS_SYMBOLIZER").unwrap_or_default();
    let options = format!("external_symbolizer_path={symbolizer}:halt_on_error=1:print_stacktrace=1:history_size=4");
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let mut command = Command::new(&program);
        command.arg(record).env("TSAN_OPTIONS", &options).env("UBSAN_OPTIONS", &options);
        command.env("ASAN_OPTIONS", format!("{options}:detect_leaks=0"));
        let output = command.output().map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        match output.status.code() {
            Some(0) => return Ok(()),
            Some(ADDRESS_TAKEN) => last = String::from_utf8_lossy(&output.stderr).trim().to_string(),
            _ => {
                let report = String::from_utf8_lossy(&output.stderr);
                return Err(format!("kernel {kernel}: {}", source::name_positions(&report, &program)));
            }
        }
    }
    Err(format!("kernel {kernel}: {} cannot be replayed: {last}, {ATTEMPTS} times", record.display()))
}

/// The kernel that a record is of.
fn kernel_of(record: &Path) -> Result<String, String> {
    let bytes = fs::read(record).map_err(|error| format!("{}: {error}", record.display()))?;
    let name = bytes.strip_prefix(MAGIC).and_then(|rest| {
        let (length, rest) = rest.split_first_chunk::<8>()?;
        rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)
    });
    let name = name.ok_or_else(|| format!("{} is not a record of a launch", record.display()))?;
    Ok(String::from_utf8_lossy(name).into_owned())
}
