//! Puts entries into a cache atomically: they are built in a temporary directory of the cache, then renamed.
//!
//! An existing entry is replaced only if it is failed or incomplete, and no process works on it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use rustix::process::{FlockType, fcntl_getlk};
use store::{Error, Result};

use super::entries::{Entry, Look, State};
use super::of_dir;
use super::profile::Profile;
use crate::host::planted;

/// The prefix of the temporary directories.
pub(super) const STAGE: &str = ".store-cache-";
/// A temporary directory of this age that is not locked belongs to a dead process.
const STAGE_AGE: Duration = Duration::from_secs(60 * 60);

/// A temporary directory, locked while it exists.
pub(super) struct Stage {
    dir: tempfile::TempDir,
    _held: File,
}

impl Stage {
    pub(super) fn new(root: &Path) -> Result<Self> {
        for dead in left(root) {
            // A directory that cannot be removed takes space; `store cache clean` names it.
            drop(std::fs::remove_dir_all(dead));
        }
        let failed = |source| Error::io("make a directory in", root, source);
        let dir = tempfile::Builder::new().prefix(STAGE).tempdir_in(root);
        let dir = dir.map_err(failed)?;
        let held = File::open(dir.path()).map_err(failed)?;
        // On a file system without locks, only the directory's age shows whether it is in use.
        let _unlocked = flock(&held, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { dir, _held: held })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// The temporary directories of dead processes.
pub(super) fn left(root: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(root).into_iter().flatten().flatten();
    let stages = listed.filter(|file| file.file_name().as_bytes().starts_with(STAGE.as_bytes()));
    let paths = stages.map(|file| file.path());
    paths
        .filter(|path| is_old(path, STAGE_AGE) && is_free(path))
        .collect()
}

fn is_old(path: &Path, age: Duration) -> bool {
    let found = std::fs::symlink_metadata(path).and_then(|found| found.modified());
    found.is_ok_and(|time| {
        let passed = SystemTime::now().duration_since(time);
        passed.is_ok_and(|passed| passed >= age)
    })
}

/// Whether nobody holds a lock on the file: neither one of the open file (`flock`), nor one of a process (`fcntl`, as
/// Python's `lockf` takes). Some file systems cannot tell, so nothing relies on the answer.
fn is_free(path: &Path) -> bool {
    // A directory is locked by pulls. A FIFO would wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = File::options();
    let opened = options.read(true).custom_flags(nonblocking).open(path);
    opened.is_ok_and(|file| {
        let is_held = !matches!(fcntl_getlk(&file, &FlockType::WriteLock.into()), Ok(None));
        !is_held && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// Whether a process works on an entry: one of its locks is young, or held. Where a compiler makes no locks, an
/// incomplete directory that was changed just now may still be written.
pub(super) fn is_in_work(root: &Path, path: &[u8], entry: &Entry, profile: &Profile) -> bool {
    let Some(shape) = profile.entry.get(entry.shape) else {
        return true;
    };
    let dir = root.join(OsStr::from_bytes(path));
    if shape.locks.is_empty() && !shape.file && entry.state(profile) == State::Incomplete {
        return is_young(&dir, profile);
    }
    let mut locks = entry.parts.keys().filter(|part| shape.is_lock(part));
    locks.any(|lock| {
        let lock = dir.join(OsStr::from_bytes(lock));
        let is_there = std::fs::symlink_metadata(&lock).is_ok();
        is_there && !(is_old(&lock, profile.stale()) && is_free(&lock))
    })
}

/// Whether a file or directory was changed just now.
pub(super) fn is_young(path: &Path, profile: &Profile) -> bool {
    !is_old(path, profile.stale())
}

/// The result of placing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    New,
    /// It replaced a failed or incomplete entry.
    Instead,
    /// Another process was faster.
    There,
    /// A process works on the entry.
    InWork,
}

/// Moves the complete entry at `built` to its place.
pub(super) fn place(root: &Path, path: &[u8], built: &Path, profile: &Profile) -> Result<Placed> {
    let to = root.join(OsStr::from_bytes(path));
    let failed = |source| Error::io("move an entry to", &to, source);
    if let Some(above) = to.parent() {
        planted::check(above)?;
        std::fs::create_dir_all(above).map_err(failed)?;
    }
    match moved(built, &to) {
        Ok(()) => return Ok(Placed::New),
        Err(error) if is_taken(&error) => {}
        Err(error) => return Err(failed(error)),
    }
    let there = of_dir::one(root, path, profile, Look::Whole)?;
    let is_complete = there
        .as_ref()
        .is_some_and(|entry| entry.state(profile) == State::Complete);
    if is_complete {
        return Ok(Placed::There);
    }
    if there.is_some_and(|entry| is_in_work(root, path, &entry, profile)) {
        return Ok(Placed::InWork);
    }
    exchanged(built, &to).map_err(failed)?;
    Ok(Placed::Instead)
}

fn is_taken(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty
    )
}

/// Renames without overwriting.
fn moved(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Without support for NOREPLACE: renaming a directory replaces only an empty one, and a link replaces nothing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match std::fs::symlink_metadata(from)?.is_dir() {
                true => std::fs::rename(from, to),
                false => std::fs::hard_link(from, to),
            }
        }
        done => Ok(done?),
    }
}

/// Exchanges both paths. The old entry is then in the temporary directory and is removed with it.
fn exchanged(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            let mut aside = from.as_os_str().to_owned();
            aside.push(".old");
            std::fs::rename(to, aside)?;
            moved(from, to)
        }
        done => Ok(done?),
    }
}
