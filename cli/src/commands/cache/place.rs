//! Entries are put into a cache whole: they are built in a directory of their own in the cache, and renamed.
//!
//! An existing entry is replaced only if it failed or is incomplete, and nobody works on it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use rustix::process::{FlockType, fcntl_getlk};
use store::{Error, Result};

use super::entries::{self, Entry, State};
use super::profile::Profile;

/// What directories begin with that entries are built in.
pub(super) const STAGE: &str = ".store-cache-";
/// One that is older and that nobody holds is left from a process that died.
const STAGE_AGE: Duration = Duration::from_secs(60 * 60);

/// Where entries are built: held while it is there.
pub(super) struct Stage {
    dir: tempfile::TempDir,
    _held: File,
}

impl Stage {
    pub(super) fn new(root: &Path) -> Result<Self> {
        for dead in left(root) {
            // One that stays takes room, and is named by a clean.
            drop(std::fs::remove_dir_all(dead));
        }
        let failed = |source| Error::io("make a directory in", root, source);
        let dir = tempfile::Builder::new().prefix(STAGE).tempdir_in(root);
        let dir = dir.map_err(failed)?;
        let held = File::open(dir.path()).map_err(failed)?;
        // Where nothing can be locked its age alone says whether it is in use.
        let _unlocked = flock(&held, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { dir, _held: held })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Directories that dead processes built entries in.
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

/// Whether nobody holds a lock on it, of either kind: of the open file (`flock`), or of a process (`fcntl`, as Python's
/// `lockf` takes). That this can be told is not relied on.
fn is_free(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| {
        let is_held = !matches!(fcntl_getlk(&file, &FlockType::WriteLock.into()), Ok(None));
        !is_held && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// Whether somebody works on an entry: one of its locks is young, or held.
pub(super) fn is_in_work(root: &Path, path: &[u8], entry: &Entry, profile: &Profile) -> bool {
    let Some(shape) = profile.entry.get(entry.shape) else {
        return true;
    };
    let dir = root.join(OsStr::from_bytes(path));
    let mut locks = entry.parts.keys().filter(|part| shape.is_lock(part));
    locks.any(|lock| {
        let lock = dir.join(OsStr::from_bytes(lock));
        let is_there = std::fs::symlink_metadata(&lock).is_ok();
        is_there && !(is_old(&lock, profile.stale()) && is_free(&lock))
    })
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    New,
    /// In the place of one that had failed or was incomplete.
    Instead,
    /// Somebody was quicker.
    There,
    /// Somebody works on it.
    InWork,
}

/// Moves the entry at `built` to its place, whole.
pub(super) fn place(root: &Path, path: &[u8], built: &Path, profile: &Profile) -> Result<Placed> {
    let to = root.join(OsStr::from_bytes(path));
    let failed = |source| Error::io("move an entry to", &to, source);
    if let Some(above) = to.parent() {
        std::fs::create_dir_all(above).map_err(failed)?;
    }
    match moved(built, &to) {
        Ok(()) => return Ok(Placed::New),
        Err(error) if is_taken(&error) => {}
        Err(error) => return Err(failed(error)),
    }
    let there = entries::one(root, path, profile)?;
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

/// Not over anything that is there.
fn moved(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system knows no such thing: a directory goes over nothing but an empty one, and a link over nothing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match std::fs::symlink_metadata(from)?.is_dir() {
                true => std::fs::rename(from, to),
                false => std::fs::hard_link(from, to),
            }
        }
        done => Ok(done?),
    }
}

/// What was there is where the entry was built then, and goes with that.
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
