//! Sequences on disk, so that a conversation goes on where it was after a restart.
//!
//! Owns: a folder of session files, one a conversation, and the thread that writes them.
//! Always true: a file appears whole or not at all (a temporary one, fsync, rename, fsync of the folder), and the one it
//! replaces leaves after that; a file that cannot be used is named, ignored and left alone; every name is made of a
//! hash, so no text of a user's becomes part of a path. One process at a time uses a folder.
//! Not here: the format (`state::file`), what is worth keeping (`worker`).

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::state::file::{self, ModelKey};
use crate::state::stored::Stored;

const EXTENSION: &str = "session";
const TEMPORARY: &str = "session-part";
/// Moments a file has: the end of the prompt, for another answer to it, and the end of the answer.
const MOMENTS: usize = 2;

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFolder {
    /// The folder; it is made, if there is none.
    pub path: PathBuf,
    /// Which model they belong to.
    pub model: ModelKey,
}

/// The writing side. Dropping it waits until everything is on the disk.
pub(super) struct Sessions {
    jobs: Option<Sender<Stored>>,
    thread: Option<JoinHandle<()>>,
    kept: Arc<AtomicUsize>,
}

impl Sessions {
    /// Opens a folder of which `budget` bytes may be used, and reads what is in it, the oldest first.
    ///
    /// # Errors
    /// `Io`, if the folder cannot be made or read.
    pub fn open(folder: SessionFolder, budget: usize) -> Result<(Sessions, Vec<Stored>)> {
        let path = &folder.path;
        fs::create_dir_all(path).map_err(Error::io(format!("cannot make the session folder {}", path.display())))?;
        let mut known = Vec::new();
        let mut stored = Vec::new();
        for (path, bytes) in files(path, budget)? {
            match fs::read(&path).map_err(Error::io("it cannot be read")).and_then(|b| file::read(&b, &folder.model)) {
                Ok(session) => {
                    known.push(Known { path, ids: session.ids().to_vec(), bytes });
                    stored.push(session);
                }
                Err(error) => tracing::warn!("the session file {} is ignored: {error}", path.display()),
            }
        }
        let kept = Arc::new(AtomicUsize::new(known.len()));
        let (jobs, queue) = channel();
        let mut writer = Writer { folder, budget, known, kept: kept.clone() };
        let thread = std::thread::Builder::new()
            .name("sessions".into())
            .spawn(move || queue.into_iter().for_each(|session| writer.keep(&session)))
            .map_err(Error::io("cannot start the thread that writes sessions"))?;
        Ok((Sessions { jobs: Some(jobs), thread: Some(thread), kept }, stored))
    }

    /// Writes a session soon.
    pub fn keep(&self, session: Stored) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only when this does.
            let _ = jobs.send(session);
        }
    }

    /// Files that are whole and on the disk.
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The newest session files of a folder that take `budget` bytes together, the oldest first. What a killed process left
/// half written is removed.
fn files(folder: &Path, budget: usize) -> Result<Vec<(PathBuf, usize)>> {
    let what = || format!("cannot read the session folder {}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(what()))? {
        let entry = entry.map_err(Error::io(what()))?;
        let path = entry.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(EXTENSION) => {
                let data = entry.metadata().map_err(Error::io(what()))?;
                found.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), path, data.len() as usize));
            }
            Some(TEMPORARY) => {
                let _ = fs::remove_file(&path);
            }
            _ => {}
        }
    }
    found.sort();
    let mut left = budget;
    let newest = found.into_iter().rev().map(|(_, path, bytes)| (path, bytes));
    let mut newest: Vec<_> = newest
        .take_while(|(_, bytes)| {
            let fits = *bytes <= left;
            left = left.saturating_sub(*bytes);
            fits
        })
        .collect();
    newest.reverse();
    Ok(newest)
}

struct Known {
    path: PathBuf,
    ids: Vec<u32>,
    bytes: usize,
}

/// The thread's side.
struct Writer {
    folder: SessionFolder,
    budget: usize,
    /// Oldest first.
    known: Vec<Known>,
    kept: Arc<AtomicUsize>,
}

impl Writer {
    fn keep(&mut self, session: &Stored) {
        let ids = session.ids().to_vec();
        let sum = Sha256::new().chain_update(self.folder.model).chain_update(bytemuck::cast_slice::<u32, u8>(&ids));
        let sum = sum.finalize();
        let name: String = sum[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.folder.path.join(name).with_extension(EXTENSION);
        let bytes = match self.write(session, &path) {
            Ok(bytes) => bytes,
            Err(error) => return tracing::warn!("a session was not kept: {error}"),
        };
        self.known.retain(|known| known.path != path);
        // What it goes on from is superseded only now.
        let (old, rest): (Vec<Known>, _) = self.known.drain(..).partition(|known| ids.starts_with(&known.ids));
        self.known = rest;
        old.iter().for_each(remove);
        self.known.push(Known { path, ids, bytes });
        while self.known.len() > 1 && self.known.iter().map(|known| known.bytes).sum::<usize>() > self.budget {
            remove(&self.known.remove(0));
        }
        self.kept.store(self.known.len(), Ordering::Relaxed);
    }

    /// Bytes of the file, which is on the disk when this returns.
    fn write(&self, session: &Stored, path: &Path) -> Result<usize> {
        let part = path.with_extension(TEMPORARY);
        let attempt = || -> std::io::Result<usize> {
            // A conversation is nobody else's business.
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
            let mut out = BufWriter::with_capacity(1 << 20, file);
            file::write(session, MOMENTS, &self.folder.model, &mut out)?;
            out.flush()?;
            let file = out.into_inner().map_err(|error| error.into_error())?;
            file.sync_all()?;
            fs::rename(&part, path)?;
            // The name is on the disk with its folder.
            File::open(&self.folder.path)?.sync_all()?;
            Ok(file.metadata()?.len() as usize)
        };
        attempt().map_err(Error::io(format!("cannot write {}", path.display())))
    }
}

fn remove(known: &Known) {
    if let Err(error) = fs::remove_file(&known.path) {
        tracing::warn!("cannot remove the session file {}: {error}", known.path.display());
    }
}
