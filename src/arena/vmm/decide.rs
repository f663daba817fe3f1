//! The decisions about a device's virtual memory, apart from any device.
//!
//! Owns: whether it is tried, how large a segment is, how many there may be, and what a full process means.
//! Always true: pure functions of what they are given (but `platform`, which looks).
//! Not here: trying (`probe`), doing (`vmm`).

use crate::arena::KvBackend;
use crate::arena::ledger::size;
use crate::device::Context;
use crate::device::limits::Limit;
use crate::error::{Error, Result};

/// Alignment of whole allocations, more than any kernel asks for.
pub const ALLOCATION: usize = 4096;
/// The granularity that RDNA4 needs, whatever HIP says (VMM.md row 9).
const LARGE_PAGE: usize = 2 << 20;
/// More than any driver reports.
const ABSURD: usize = 64 << 20;
/// File descriptors left to sockets, files and the driver itself.
const OTHER_FILES: u64 = 128;
/// Architectures whose drivers were reported to work with these rules.
const TRIED: [&str; 2] = ["gfx1151", "gfx1201"];

/// What the choice depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// Bare name of the architecture.
    pub arch: String,
    /// The kernel is Linux's own.
    pub linux: bool,
    /// The kernel is WSL2's.
    pub wsl: bool,
    /// Calls of virtual memory that the library lacks.
    pub missing: Vec<&'static str>,
    /// What HIP says of the device, if it says.
    pub supported: Option<bool>,
}

/// Looks at the system.
pub fn platform(context: &Context) -> Platform {
    let properties = context.properties();
    let version = std::fs::read_to_string("/proc/version").unwrap_or_default();
    Platform {
        arch: properties.arch.clone(),
        linux: cfg!(target_os = "linux"),
        wsl: is_wsl(&version),
        missing: context.library().missing_virtual_memory(),
        supported: properties.virtual_memory,
    }
}

/// Whether /proc/version is WSL's.
pub fn is_wsl(version: &str) -> bool {
    version.to_ascii_lowercase().contains("microsoft")
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Try whether it works.
    Probe,
    /// Allocate whole; the reason, unless the user chose it.
    Legacy(Option<String>),
}

/// Whether virtual memory is worth a probe. An explicit `vmm` is probed on any architecture, and is an error where it
/// cannot work.
pub fn plan(choice: Option<KvBackend>, platform: &Platform) -> Result<Plan> {
    let impossible = if !platform.linux {
        Some("only Linux maps memory as it is needed".to_string())
    } else if platform.wsl {
        Some("WSL2 maps a whole reservation at once, or fails".into())
    } else if !platform.missing.is_empty() {
        Some(format!("the HIP library has no {}", platform.missing.join(", ")))
    } else if platform.supported == Some(false) {
        Some(format!("HIP says that this {} has no virtual memory", platform.arch))
    } else {
        None
    };
    match (choice, impossible) {
        (Some(KvBackend::Legacy), _) => Ok(Plan::Legacy(None)),
        (Some(KvBackend::Vmm), Some(reason)) => {
            Err(Error::Device(format!("--kv-backend vmm cannot be had: {reason}; use auto or legacy")))
        }
        (Some(KvBackend::Vmm), None) => Ok(Plan::Probe),
        (None, Some(reason)) => Ok(Plan::Legacy(Some(reason))),
        (None, None) if TRIED.contains(&platform.arch.as_str()) => Ok(Plan::Probe),
        (None, None) => Ok(Plan::Legacy(Some(format!(
            "virtual memory was tried on {} and not on {}; --kv-backend vmm tries it",
            TRIED.join(" and "),
            platform.arch
        )))),
    }
}

/// The granularity to use: what HIP reports, and 2 MiB at least on RDNA4.
pub fn granularity(reported: usize, arch: &str) -> Result<usize> {
    if !reported.is_power_of_two() || reported > ABSURD {
        return Err(Error::Device(format!("HIP reports a granularity of {reported} bytes, which no driver has")));
    }
    let least = if arch.starts_with("gfx12") { LARGE_PAGE } else { ALLOCATION };
    Ok(reported.max(least))
}

/// Handles that all ranges together may hold, by the limit on open files.
pub fn handle_budget(files: Option<u64>, used: u64) -> usize {
    // Without a limit: more handles than any reservation has segments.
    files.map_or(1 << 20, |limit| limit.saturating_sub(used).saturating_sub(OTHER_FILES) as usize)
}

/// Bytes of a segment of a range of `reserved` bytes: the `least`, doubled until the range takes at most an eighth of the
/// `free` handles, so that ranges that come later find some too.
pub fn segment(reserved: usize, least: usize, free: usize) -> usize {
    let share = (free / 8).max(1);
    let mut segment = least.max(1);
    while reserved.div_ceil(segment) > share {
        segment = segment.saturating_mul(2);
    }
    segment
}

/// HIP's "out of memory", with the cause if that is the number of open files (VMM.md row 8). The driver opens a file or
/// two of its own while it creates a piece, so it runs into the limit a little before the count reaches it.
pub fn explain_full(message: String, used: Option<u64>, files: Option<Limit>) -> String {
    let (Some(used), Some(soft)) = (used, files.and_then(|limit| limit.soft)) else { return message };
    if used.saturating_add(4) < soft {
        return message;
    }
    let hard = files.and_then(|limit| limit.hard).map_or("no limit".into(), |hard| format!("{hard} at most"));
    format!(
        "the process has {used} of {soft} files open, and every mapped piece of device memory holds one: this is the \
         limit on open files, not a lack of memory; raise it (`ulimit -n`, LimitNOFILE= of a service; {hard}). HIP said: \
         {message}"
    )
}

/// Bytes that were given back and are not free. Others allocate and free meanwhile: less than a large page is noise.
pub fn kept(free_before: usize, free_after: usize, given_back: usize) -> usize {
    let kept = given_back.saturating_sub(free_after.saturating_sub(free_before));
    if kept < LARGE_PAGE { 0 } else { kept }
}

/// A line of the probe about the granularity.
pub(super) fn granularity_text(reported: usize, used: usize) -> String {
    match reported == used {
        true => format!("HIP reports {}", size(reported)),
        false => format!("HIP reports {}, {} are used", size(reported), size(used)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halo() -> Platform {
        Platform { arch: "gfx1151".into(), linux: true, wsl: false, missing: vec![], supported: Some(true) }
    }

    fn legacy(platform: Platform) -> String {
        match plan(None, &platform).unwrap() {
            Plan::Legacy(Some(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn auto_tries_exactly_the_two_known_architectures_on_linux_with_every_symbol() {
        assert_eq!(plan(None, &halo()).unwrap(), Plan::Probe);
        assert_eq!(plan(None, &Platform { arch: "gfx1201".into(), ..halo() }).unwrap(), Plan::Probe);
        for arch in ["gfx1200", "gfx1150", "gfx1100", "gfx11511", ""] {
            assert!(legacy(Platform { arch: arch.into(), ..halo() }).contains("--kv-backend vmm"));
        }
        assert!(legacy(Platform { wsl: true, ..halo() }).contains("WSL2"));
        assert!(legacy(Platform { linux: false, ..halo() }).contains("Linux"));
        assert!(legacy(Platform { missing: vec!["hipMemMap"], ..halo() }).contains("hipMemMap"));
        assert!(legacy(Platform { supported: Some(false), ..halo() }).contains("no virtual memory"));
        assert_eq!(plan(None, &Platform { supported: None, ..halo() }).unwrap(), Plan::Probe);
    }

    #[test]
    fn an_explicit_choice_is_kept_or_is_an_error() {
        let foreign = Platform { arch: "gfx1100".into(), ..halo() };
        assert_eq!(plan(Some(KvBackend::Vmm), &foreign).unwrap(), Plan::Probe);
        assert_eq!(plan(Some(KvBackend::Legacy), &halo()).unwrap(), Plan::Legacy(None));
        let text = plan(Some(KvBackend::Vmm), &Platform { wsl: true, ..halo() }).unwrap_err().to_string();
        assert!(text.contains("vmm cannot be had") && text.contains("auto or legacy"), "{text}");
    }

    #[test]
    fn wsl_is_known_by_its_kernel() {
        assert!(is_wsl("Linux version 5.15.90.1-microsoft-standard-WSL2"));
        assert!(!is_wsl("Linux version 6.17.0-5-generic (buildd@lcy02)"));
    }

    #[test]
    fn granularity_is_what_hip_says_but_two_mebibytes_on_rdna4_and_never_nonsense() {
        assert_eq!(granularity(4096, "gfx1201").unwrap(), 2 << 20);
        assert_eq!(granularity(4096, "gfx1151").unwrap(), 4096);
        assert_eq!(granularity(2 << 20, "gfx1151").unwrap(), 2 << 20);
        assert_eq!(granularity(1, "gfx1151").unwrap(), ALLOCATION);
        for nonsense in [0, 3000, 1 << 40] {
            assert!(granularity(nonsense, "gfx1151").is_err());
        }
    }

    #[test]
    fn segments_grow_with_the_reservation_until_the_handles_suffice() {
        let mib = |bytes: usize| bytes >> 20;
        assert_eq!(mib(segment(14_208 << 20, 32 << 20, handle_budget(Some(524_288), 20))), 32);
        // `ulimit -n 1024`, as most shells have it.
        let budget = handle_budget(Some(1024), 20);
        assert_eq!(budget, 876);
        assert_eq!(mib(segment(14_208 << 20, 32 << 20, budget)), 256);
        // The released model's 48 planes at 262,144 tokens, one after another, all find handles.
        let (mut planned, planes) = (0, 48usize);
        for _ in 0..planes {
            let plane = (14_208usize << 20) / planes;
            planned += plane.div_ceil(segment(plane, 32 << 20, budget - planned));
        }
        assert!(planned < budget, "{planned} of {budget}");
        // However few are left, a range gets one.
        assert!(segment(1 << 40, 4096, 0) >= 1 << 40);
        assert_eq!(handle_budget(Some(64), 60), 0);
        assert_eq!(segment(usize::MAX, 4096, 0), usize::MAX);
    }

    #[test]
    fn a_full_process_is_named_as_the_cause_and_a_full_device_is_not() {
        let files = Some(Limit { soft: Some(1024), hard: Some(4096) });
        let named = explain_full("hipMemCreate failed".into(), Some(1022), files);
        for part in ["1022 of 1024 files", "not a lack of memory", "ulimit -n", "4096 at most", "hipMemCreate failed"] {
            assert!(named.contains(part), "{named}");
        }
        assert_eq!(explain_full("full".into(), Some(300), files), "full");
        assert_eq!(explain_full("full".into(), None, files), "full");
        assert_eq!(explain_full("full".into(), Some(9), Some(Limit { soft: None, hard: None })), "full");
    }

    #[test]
    fn what_the_driver_kept_is_what_did_not_become_free() {
        assert_eq!(kept(10 << 30, 12 << 30, 2 << 30), 0);
        assert_eq!(kept(10 << 30, 11 << 30, 2 << 30), 1 << 30);
        assert_eq!(kept(10 << 30, 9 << 30, 2 << 30), 2 << 30);
        assert_eq!(kept(10 << 30, (12 << 30) - 4096, 2 << 30), 0);
    }
}
