//! The private directory in which a copy is built, and what is done about those of processes that died.
//!
//! A room is beside its destination, or inside it if nothing can be renamed over that. It holds a note that names the
//! process that builds there; that process holds a lock on the note and touches it. Another get into the same directory
//! removes a room only if it belongs to the same user, its note names it, nobody holds the lock, and its process is
//! known to be dead, or has touched nothing for an hour by the clock of the file system.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::place::Ground;
use crate::error::{Error, Result};
use crate::format::Time;
use crate::fs::stamps;
use crate::host::beat::Beat;
use crate::host::destination::{Site, There};
use crate::host::pool::{Identity, disk};
use crate::host::walk::Stat;

/// What a room is called, before its random name.
const PREFIX: &str = ".store-get-";
/// The note in a room.
const NOTE: &str = "room";
/// Bytes of a note, at most.
const NOTE_BYTES_MAX: usize = 4096;
/// What is built in a room.
const TREE: &[u8] = b"tree";
/// So long a builder of whom nothing is known may show nothing.
const SILENCE_SECS_MAX: i64 = 3600;

/// A room and the process in it.
pub(super) struct Room {
    /// The directory that the room is in.
    above: OwnedFd,
    name: String,
    fd: OwnedFd,
    shown: PathBuf,
    /// It lies in the destination, whose entries come out of it one by one.
    is_inside: bool,
    beat: Option<Beat>,
}

/// Who builds in a room.
#[derive(Serialize, Deserialize)]
struct Note {
    /// The random part of the room's name: a note that was copied elsewhere says nothing.
    room: String,
    owner: Identity,
}

impl Room {
    /// A new room for a destination, after a look for those that dead processes left.
    pub(super) fn new(site: &Site) -> Result<Self> {
        std::fs::create_dir_all(&site.parent)
            .map_err(|source| Error::io("create", &site.parent, source))?;
        let is_fixed = site.there == There::EmptyDirectory && site.is_fixed()?;
        if !is_fixed {
            match Self::make(site, false) {
                // A user who may not write beside an empty directory of his own builds inside of it.
                Err(error)
                    if error.kind() == crate::error::Kind::Denied
                        && site.there == There::EmptyDirectory => {}
                made => return made,
            }
        }
        Self::make(site, true)
    }

    fn make(site: &Site, is_inside: bool) -> Result<Self> {
        let at = if is_inside { &site.path } else { &site.parent };
        let above = disk::open_path(at)?;
        let name = format!("{PREFIX}{}", disk::random_name()?);
        let failed = |errno| disk::failed("create a directory in", at, errno);
        fs::mkdirat(&above, &name, Mode::from_raw_mode(0o700)).map_err(failed)?;
        let fd = disk::open_dir(&above, name.as_bytes()).map_err(failed)?;
        let mut room = Self {
            above,
            name,
            fd,
            shown: site.given.clone(),
            is_inside,
            beat: None,
        };
        let note = Note {
            room: room.nonce().to_owned(),
            owner: Identity::own(),
        };
        let text = serde_json::to_vec(&note)
            .map_err(|source| Error::invalid("note of a room").because(source))?;
        let note = disk::write_whole(&room.fd, NOTE, &text).map_err(failed)?;
        // Where locks are not to be had, the touches tell.
        disk::forgive(fs::flock(&note, FlockOperation::NonBlockingLockExclusive));
        let now = Stat::of_file(&note, at)?.mtime;
        room.beat = Some(Beat::of(note));
        sweep(&room.above, &room.name, now);
        Ok(room)
    }

    fn nonce(&self) -> &str {
        self.name.strip_prefix(PREFIX).unwrap_or_default()
    }

    /// Where the copy is built.
    pub(super) fn ground(&self) -> Result<Ground> {
        let fd = self
            .fd
            .try_clone()
            .map_err(|source| Error::io("open", &self.shown, source))?;
        Ok(Ground::new(fd, TREE, self.shown.clone()))
    }

    /// Gives the copy its name. Whether others may look into it although it is private: a directory that was there
    /// is closed to them, unless that is not permitted.
    pub(super) fn move_in(self, site: &Site, is_private: bool) -> Result<bool> {
        let failed = |errno| disk::failed("rename into place", &site.given, errno);
        if self.is_inside {
            let is_open = is_private && !close(&self.above);
            return self.move_out().map(|()| is_open).map_err(failed);
        }
        let name = site.name.as_os_str();
        if site.there == There::EmptyDirectory {
            // An empty directory is replaced; one that has got an entry meanwhile makes the rename fail.
            fs::renameat(&self.fd, TREE, &self.above, name).map_err(failed)?;
            return Ok(false);
        }
        fs::renameat_with(&self.fd, TREE, &self.above, name, RenameFlags::NOREPLACE)
            .map_err(failed)?;
        Ok(false)
    }

    /// Moves the entries of the copy up into the destination; all of them, or none.
    fn move_out(&self) -> rustix::io::Result<()> {
        let tree = disk::open_dir(&self.fd, TREE)?;
        let time = Stat::from(fs::fstat(&tree)?).mtime;
        let names = entries(&tree)?;
        for (at, name) in names.iter().enumerate() {
            let moved = fs::renameat_with(&tree, name, &self.above, name, RenameFlags::NOREPLACE);
            if let Err(errno) = moved {
                for name in names.iter().take(at) {
                    disk::forgive(fs::renameat(&self.above, name, &tree, name));
                }
                return Err(errno);
            }
        }
        // The time of a directory that was there is not ours to insist on.
        disk::forgive(fs::futimens(&self.above, &stamps(time)));
        Ok(())
    }
}

impl Drop for Room {
    /// Leaves nothing behind; what a killed process left, the next one takes.
    fn drop(&mut self) {
        drop(self.beat.take());
        let time = fs::fstat(&self.above).map(|stat| Stat::from(stat).mtime);
        disk::forgive(empty(&self.fd));
        disk::forgive(fs::unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR));
        if let (true, Ok(time)) = (self.is_inside, time) {
            disk::forgive(fs::futimens(&self.above, &stamps(time)));
        }
    }
}

/// Keeps others out of a directory; whether they are.
fn close(dir: &OwnedFd) -> bool {
    let Ok(stat) = fs::fstat(dir) else {
        return false;
    };
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7700);
    // The descriptor may be for looking only.
    stat.st_mode & 0o077 == 0 || fs::chmodat(dir, ".", mode, AtFlags::empty()).is_ok()
}

/// The finished copy, for a last look.
pub(super) fn ground_of(site: &Site) -> Result<Ground> {
    use std::os::unix::ffi::OsStrExt;
    let fd = disk::open_path(&site.parent)?;
    Ok(Ground::new(fd, site.name.as_bytes(), site.given.clone()))
}

/// Removes the rooms of dead processes in `above`; what cannot be removed stays for the next time.
fn sweep(above: &OwnedFd, own: &str, now: Time) {
    let Ok(names) = entries(above) else {
        return;
    };
    for name in names {
        let nonce = name.strip_prefix(PREFIX.as_bytes());
        let (Some(nonce), false) = (nonce, name == own.as_bytes()) else {
            continue;
        };
        let Ok(room) = disk::open_dir(above, &name) else {
            continue;
        };
        if is_dead(&room, nonce, now) {
            disk::forgive(empty(&room));
            disk::forgive(fs::unlinkat(above, &name, AtFlags::REMOVEDIR));
        }
    }
}

/// Whether a room is ours and its process has died. What is not known counts as alive.
fn is_dead(room: &OwnedFd, nonce: &[u8], now: Time) -> bool {
    let is_own = |stat: &fs::Stat| {
        stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0
    };
    let Ok(note) = disk::open_file(room, NOTE.as_bytes()) else {
        return false;
    };
    let (Ok(dir), Ok(file)) = (fs::fstat(room), fs::fstat(&note)) else {
        return false;
    };
    let is_file = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
    if !(is_own(&dir) && is_own(&file) && is_file) {
        return false;
    }
    let mut text = [0; NOTE_BYTES_MAX];
    let read = rustix::io::pread(&note, &mut text[..], 0);
    let said = read
        .ok()
        .and_then(|len| serde_json::from_slice::<Note>(text.get(..len)?).ok());
    let Some(said) = said.filter(|said| said.room.as_bytes() == nonce) else {
        return false;
    };
    // Any other refusal says that this file system has no locks, which means nothing.
    if let Err(Errno::WOULDBLOCK) = fs::flock(&note, FlockOperation::NonBlockingLockExclusive) {
        return false;
    }
    let silent_secs = now.secs.saturating_sub(Stat::from(file).mtime.secs);
    said.owner.is_dead() || silent_secs > SILENCE_SECS_MAX
}

/// Removes everything in a directory, however deep: directories come up to the top one after another, so
/// that neither the stack nor the open directories follow the depth.
fn empty(top: &OwnedFd) -> rustix::io::Result<()> {
    let mut count: u64 = 0;
    loop {
        let mut is_empty = true;
        for name in entries(top)? {
            is_empty = false;
            if !remove(top, &name)? {
                let below = disk::open_dir(top, &name)?;
                for inner in entries(&below)? {
                    if !remove(&below, &inner)? {
                        count += 1;
                        let aside = format!("{NOTE}-{count}");
                        fs::renameat_with(&below, &inner, top, &aside, RenameFlags::NOREPLACE)?;
                    }
                }
                fs::unlinkat(top, &name, AtFlags::REMOVEDIR)?;
            }
        }
        if is_empty {
            return Ok(());
        }
    }
}

/// Removes a name, unless it is a directory with something in it.
fn remove(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<bool> {
    match fs::unlinkat(&dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match fs::unlinkat(&dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn entries(dir: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    // A directory that is read once is at its end: each look has its own position.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::openat(dir, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_emptied_however_deep_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let top = disk::open_path(dir.path()).unwrap();
        let mut at = top.try_clone().unwrap();
        for _ in 0..3_000 {
            fs::mkdirat(&at, "d", Mode::from_raw_mode(0o700)).unwrap();
            disk::write_new(&at, b"file", b"x").unwrap();
            at = disk::open_dir(&at, b"d").unwrap();
        }
        drop(at);
        empty(&top).unwrap();
        assert!(entries(&top).unwrap().is_empty());
    }

    #[test]
    fn only_what_proves_to_be_ours_and_dead_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let above = disk::open_path(dir.path()).unwrap();
        let now = Time {
            secs: 10_000,
            nanos: 0,
        };
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let dead = Identity::of(i32::try_from(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let alive = Identity::own();
        let room = |name: &str, says: &str, owner: &Identity, mode: u32, mtime: i64| {
            let path = dir.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("tree"), "bytes").unwrap();
            let note = Note {
                room: says.into(),
                owner: owner.clone(),
            };
            std::fs::write(path.join(NOTE), serde_json::to_vec(&note).unwrap()).unwrap();
            let file = std::fs::File::open(path.join(NOTE)).unwrap();
            fs::futimens(
                &file,
                &stamps(Time {
                    secs: mtime,
                    nanos: 0,
                }),
            )
            .unwrap();
            std::os::unix::fs::chown(&path, None, None).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))
                .unwrap();
            path
        };
        let gone = [
            room("1", "1", &dead, 0o700, 9_999),
            room("2", "2", &alive, 0o700, 1_000),
        ];
        let kept = [
            room("3", "3", &alive, 0o700, 9_000),
            room("4", "1", &dead, 0o700, 0),
            room("5", "5", &dead, 0o777, 0),
            dir.path().join(format!("{PREFIX}6")),
        ];
        std::fs::create_dir(dir.path().join(format!("{PREFIX}6"))).unwrap();
        std::fs::write(dir.path().join(format!("{PREFIX}6/data")), "mine").unwrap();
        // A lock that is held outweighs any silence.
        let held = room("7", "7", &alive, 0o700, 0);
        let note = std::fs::File::open(held.join(NOTE)).unwrap();
        fs::flock(&note, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(&above, "none", now);
        for path in gone {
            assert!(!path.exists(), "{}", path.display());
        }
        for path in kept.iter().chain([&held]) {
            assert!(path.exists(), "{}", path.display());
        }
    }
}
