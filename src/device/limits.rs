//! Limits of the process that a GPU runs into: open files and locked memory.
//!
//! Owns: reading them, and raising the soft limit on open files.
//! Always true: no limit is lowered; a limit that cannot be read or raised is an answer, not an error.
//! Not here: what follows (`arena::vmm` sizes its segments by it, `engine::doctor` shows it).

use serde::Serialize;

/// A soft and a hard limit; `None` is none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// What holds now.
    pub soft: Option<u64>,
    /// What the process may raise it to.
    pub hard: Option<u64>,
}

fn read(resource: libc::__rlimit_resource_t) -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes the struct, which is ours.
    (unsafe { libc::getrlimit(resource, &mut limit) } == 0).then_some(limit)
}

fn limit(resource: libc::__rlimit_resource_t) -> Option<Limit> {
    let bounded = |value: libc::rlim_t| (value != libc::RLIM_INFINITY).then_some(value);
    read(resource).map(|limit| Limit { soft: bounded(limit.rlim_cur), hard: bounded(limit.rlim_max) })
}

/// Files a process may have open. Every mapped piece of device memory holds one (VMM.md row 8).
pub fn open_files() -> Option<Limit> {
    limit(libc::RLIMIT_NOFILE)
}

/// Bytes a process may lock. Pinned memory counts.
pub fn locked_memory() -> Option<Limit> {
    limit(libc::RLIMIT_MEMLOCK)
}

/// Files that this process has open now.
pub fn files_in_use() -> Option<u64> {
    match std::fs::read_dir("/proc/self/fd") {
        // One of them is the listing itself.
        Ok(entries) => Some((entries.count() as u64).saturating_sub(1)),
        // Not one is left to count with.
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => open_files()?.soft,
        Err(_) => None,
    }
}

/// Raises the soft limit on open files to the hard one and says what holds then.
pub fn raise_open_files() -> Option<Limit> {
    let mut raised = read(libc::RLIMIT_NOFILE)?;
    if raised.rlim_cur < raised.rlim_max {
        raised.rlim_cur = raised.rlim_max;
        // SAFETY: the call reads the struct. A refusal leaves the limit as it was, which is then what is reported.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) };
    }
    open_files()
}
