//! Rooms: private directories beside destinations, in which trees are built.
//!
//! The pool has a note of each, so that a sweep finds what a killed process left. The note alone allows nothing: a room
//! is removed only if it belongs to the caller, and holds the nonce of its note or is empty. All of this happens
//! through open directories, since a path may lead elsewhere a moment later.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Pool, disk, proof, trust};
use crate::error::{Error, Result};
use crate::host::way::open_fixed;

/// The prefix of a room's name; a random part follows.
const ROOM_PREFIX: &str = ".store-materialize-";

/// A directory in which a tree is built. It is removed with everything left in it.
#[derive(Debug)]
pub(crate) struct Room<'p> {
    pool: &'p Pool,
    path: PathBuf,
    note: String,
    above: OwnedFd,
    dir: OwnedFd,
}

impl Room<'_> {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The room itself, open.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The directory that it was made in, open.
    pub(crate) fn above(&self) -> BorrowedFd<'_> {
        self.above.as_fd()
    }

    fn name(&self) -> &[u8] {
        self.path.file_name().unwrap_or_default().as_bytes()
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        // The note stays as long as the directory, so that a sweep finds it.
        if is_removed(self.above(), self.name(), &self.dir) {
            disk::forgive(fs::unlinkat(&self.pool.fd, &self.note, AtFlags::empty()));
        }
    }
}

impl Pool {
    /// Makes a private directory beside a destination, in `parent`.
    pub(crate) fn room(&self, parent: &Path) -> Result<Room<'_>> {
        let owner = self.owner()?;
        let (name, nonce) = (disk::random_name()?, disk::random_name()?);
        let path = parent.join(format!("{ROOM_PREFIX}{name}"));
        let above = disk::open_path(parent)?;
        let note = format!("rooms/{}.{name}.{nonce}", owner.id);
        // A symlink has its text as soon as it has its name, even after a power cut.
        fs::symlinkat(&path, &self.fd, &note)
            .map_err(|errno| self.failed("write down in", errno))?;
        let made = make(&above, path.file_name().unwrap_or_default(), &nonce);
        let dir = made.map_err(|errno| {
            // What is there may not belong to this process, so no sweep must touch it.
            disk::forgive(fs::unlinkat(&self.fd, &note, AtFlags::empty()));
            failed_to_make(parent, errno)
        })?;
        Ok(Room {
            pool: self,
            path,
            note,
            above,
            dir,
        })
    }

    /// Removes the rooms of a dead owner.
    pub(super) fn remove_rooms_of(&self, owner: &str) {
        let Ok(names) = self
            .directory("rooms")
            .and_then(|rooms| disk::names(rooms, &self.path))
        else {
            return;
        };
        for name in names {
            let mut parts = name.split(|byte| *byte == b'.');
            if parts.next() != Some(owner.as_bytes()) {
                continue;
            }
            let nonce = parts.nth(1).unwrap_or_default();
            if self.is_room_gone(&name, nonce) {
                let note = [b"rooms/", &*name].concat();
                disk::forgive(fs::unlinkat(&self.fd, note, AtFlags::empty()));
            }
        }
    }

    /// Removes rooms of owners without a file: an earlier removal failed. Returns the errors about those that still
    /// stay.
    pub(super) fn remove_rooms_of_nobody(&self) -> Vec<Error> {
        let notes = self.directory("rooms");
        let notes = notes.and_then(|rooms| disk::names(rooms, &self.path));
        let mut kept = Vec::new();
        for name in notes.unwrap_or_default() {
            let mut parts = name.split(|byte| *byte == b'.');
            let owner = [b"owners/", parts.next().unwrap_or_default()].concat();
            let found = fs::statat(&self.fd, owner, AtFlags::SYMLINK_NOFOLLOW);
            if found.err() != Some(Errno::NOENT) {
                continue;
            }
            let note = [b"rooms/", &*name].concat();
            if self.is_room_gone(&name, parts.nth(1).unwrap_or_default()) {
                disk::forgive(fs::unlinkat(&self.fd, note, AtFlags::empty()));
            } else if let Ok(path) = fs::readlinkat(&self.fd, note, Vec::new()) {
                let path = Path::new(OsStr::from_bytes(path.as_bytes())).display();
                let what = "was left by a process that is no more, and cannot be removed";
                let error = Error::conflict(format!("{path}: {what}"));
                kept.push(error.hint(
                    "take out what is in the way, like a mount: then the next run with this pool removes the rest",
                ));
            }
        }
        kept
    }

    /// Removes the room that a note leads to, if its nonce proves it. Returns whether it is gone.
    fn is_room_gone(&self, note: &[u8], nonce: &[u8]) -> bool {
        let note = [b"rooms/", note].concat();
        let is_own = fs::statat(&self.fd, &*note, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_uid == trust::user());
        let Ok(path) = fs::readlinkat(&self.fd, &*note, Vec::new()) else {
            return false;
        };
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return false;
        };
        let is_room = name.as_bytes().starts_with(ROOM_PREFIX.as_bytes());
        is_own
            && is_room
            && std::str::from_utf8(nonce)
                .is_ok_and(|nonce| is_left_removed(above, name.as_bytes(), nonce))
    }
}

/// Makes a directory that holds `nonce`. If others may write to the directory above, somebody may replace the new one
/// before it is opened. That gives `NOTEMPTY`, unless the replacement is empty and the caller's own, which is harmless.
fn make(above: &OwnedFd, name: &OsStr, nonce: &str) -> rustix::io::Result<OwnedFd> {
    fs::mkdirat(above, name, Mode::from_raw_mode(0o700))?;
    let dir = disk::open_dir(above, name.as_bytes())?;
    let is_empty = disk::names(&dir, Path::new(name)).is_ok_and(|names| names.is_empty());
    if !is_empty {
        return Err(Errno::NOTEMPTY);
    }
    let planted = proof::plant_link(&dir, nonce);
    if planted.is_ok() && is_of_its_maker(&dir)? {
        return Ok(dir);
    }
    disk::forgive(fs::unlinkat(&dir, proof::LINK, AtFlags::empty()));
    disk::forgive(fs::unlinkat(above, name, AtFlags::REMOVEDIR));
    planted.and(Err(Errno::NOTEMPTY))
}

fn failed_to_make(parent: &Path, errno: Errno) -> Error {
    if matches!(errno, Errno::NOTEMPTY | Errno::LOOP) {
        return Error::denied(format!(
            "{}: somebody put something else where a directory was just made",
            parent.display()
        ))
        .hint("choose a destination in a directory that nobody else may write to");
    }
    disk::failed("make a directory in", parent, errno)
}

/// Whether an open directory of this name is a room, of whatever pool.
pub(crate) fn is_room(name: &[u8], dir: impl AsFd) -> bool {
    if !name.starts_with(ROOM_PREFIX.as_bytes()) {
        return false;
    }
    match fs::statat(&dir, proof::LINK, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Symlink,
        Err(Errno::NOENT) => disk::is_empty(dir),
        Err(_) => false,
    }
}

/// Whether an open directory belongs to the owner of what this process makes in it. That is the caller, except on a
/// file system that gives everything to one user.
fn is_of_its_maker(dir: &OwnedFd) -> rustix::io::Result<bool> {
    let made = fs::statat(dir, proof::LINK, AtFlags::SYMLINK_NOFOLLOW)?;
    let dir = fs::fstat(dir)?;
    Ok(dir.st_uid == made.st_uid && dir.st_mode & 0o022 == 0)
}

/// Removes what a dead process left as `name` in `above`, if it is proven or empty. Returns whether it is gone.
fn is_left_removed(above: &Path, name: &[u8], nonce: &str) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let above = match open_fixed(above, flags) {
        Ok(above) => above,
        Err(errno) => return is_gone(errno),
    };
    let dir = match disk::open_dir(&above, name) {
        Ok(dir) => dir,
        Err(errno) => return errno == Errno::NOENT,
    };
    let is_own = fs::fstat(&dir).is_ok_and(|stat| stat.st_uid == trust::user());
    if is_own && proof::says_by_link(&dir, nonce) {
        return is_removed(above.as_fd(), name, &dir);
    }
    // The process was killed before it stored the nonce. An empty directory holds nothing that could be lost.
    is_own && fs::unlinkat(&above, name, AtFlags::REMOVEDIR).is_ok()
}

/// Removes an open room with everything in it, its nonce last. Returns whether it is gone.
fn is_removed(above: BorrowedFd<'_>, name: &[u8], dir: &OwnedFd) -> bool {
    let empty = || -> Result<()> {
        for inside in disk::names(dir, Path::new(OsStr::from_bytes(name)))? {
            if inside != proof::LINK.as_bytes() {
                disk::remove_tree(dir, &inside)
                    .map_err(|errno| disk::failed("remove", Path::new("room"), errno))?;
            }
        }
        Ok(())
    };
    if empty().is_err() {
        return false;
    }
    disk::forgive(fs::unlinkat(dir, proof::LINK, AtFlags::empty()));
    match fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
        Ok(()) => true,
        Err(errno) => is_gone(errno),
    }
}

/// Whether the error proves that nothing is there.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR)
}
