//! Puts entries into a cache atomically: they are built in a temporary directory of the cache, then renamed.
//!
//! An existing entry is replaced only if it is failed or incomplete, and no process works on it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{self, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, renameat_with};
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
    held: File,
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
        Ok(Self { dir, held })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes back the file system of what was built here. Otherwise a power cut could leave an entry in its place without
    /// its bytes, and its marks would say that it is complete.
    pub(super) fn flush(&self) -> Result<()> {
        let failed = |errno: Errno| Error::io("write back", self.path(), errno.into());
        fs::syncfs(&self.held).map_err(failed)
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
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
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
    /// A symlink is on the way to it.
    BehindLink,
}

/// Opens a directory for what is done to names in it. A symlink in its place is none.
const DIRECTORY: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Whether a symlink below `root` is on the way to an entry. Nothing is put, replaced or deleted behind one: whoever may
/// write to the cache chooses where it leads.
pub(super) fn is_behind_link(root: &Path, path: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    let above = path.ancestors().skip(1);
    above.filter(|above| *above != Path::new("")).any(|above| {
        let found = std::fs::symlink_metadata(root.join(above));
        found.is_ok_and(|found| found.is_symlink())
    })
}

/// Opens the directory of an entry, and makes what is missing of it; none, if a symlink is on the way. Later renames do
/// not lead its user elsewhere.
fn above(root: &Path, path: &Path) -> std::io::Result<Option<OwnedFd>> {
    let mut at = fs::openat(CWD, root, DIRECTORY, Mode::empty())?;
    for name in path.parent().unwrap_or(Path::new("")) {
        match fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        at = match fs::openat(&at, name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) if fs::readlinkat(&at, name, Vec::new()).is_ok() => {
                return Ok(None);
            }
            opened => opened?,
        };
    }
    Ok(Some(at))
}

/// Moves the complete entry at `built` to its place.
pub(super) fn place(root: &Path, path: &[u8], built: &Path, profile: &Profile) -> Result<Placed> {
    let to = root.join(OsStr::from_bytes(path));
    let failed = |source| Error::io("move an entry to", &to, source);
    if let Some(above) = to.parent() {
        planted::check(above)?;
    }
    let Some(above) = above(root, Path::new(OsStr::from_bytes(path))).map_err(failed)? else {
        return Ok(Placed::BehindLink);
    };
    let name = to.file_name().unwrap_or_default();
    match moved(built, (&above, name)) {
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
    exchanged(built, (&above, name)).map_err(failed)?;
    Ok(Placed::Instead)
}

fn is_taken(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty
    )
}

/// Renames to a name in an open directory, without overwriting.
fn moved(from: &Path, (above, name): (impl AsFd, &OsStr)) -> std::io::Result<()> {
    match renameat_with(CWD, from, &above, name, RenameFlags::NOREPLACE) {
        // Without support for NOREPLACE: renaming a directory replaces only an empty one, and a link replaces nothing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            let moved = match std::fs::symlink_metadata(from)?.is_dir() {
                true => fs::renameat(CWD, from, &above, name),
                false => fs::linkat(CWD, from, &above, name, fs::AtFlags::empty()),
            };
            Ok(moved?)
        }
        done => Ok(done?),
    }
}

/// Exchanges both. The old entry is then in the temporary directory and is removed with it.
fn exchanged(from: &Path, (above, name): (impl AsFd, &OsStr)) -> std::io::Result<()> {
    match renameat_with(CWD, from, &above, name, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            let mut aside = from.as_os_str().to_owned();
            aside.push(".old");
            fs::renameat(&above, name, CWD, aside)?;
            moved(from, (above, name))
        }
        done => Ok(done?),
    }
}
