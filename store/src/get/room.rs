//! The private directory in which a copy is built.
//!
//! A room is beside its destination, or inside it if nothing can be renamed over that. It holds a note that names the
//! process that builds there; that process holds a lock on the note and touches it. Before entries of the copy are moved
//! out one by one, a list in the room names them, so that the next get can take them back after a kill (`moved.rs`, `left.rs`).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{self, AtFlags, FlockOperation, Mode, RenameFlags};
use rustix::io::Errno;

use super::left::{Remains, empty, entries, sweep};
use super::moved;
use super::note::{NOTE, Note, PREFIX, TREE};
use super::place::Ground;
use crate::error::{Error, Result};
use crate::fs::stamps;
use crate::host::beat::Beat;
use crate::host::destination::{Site, There};
use crate::host::disk;
use crate::host::trust;
use crate::host::walk::Stat;

/// How often a room is begun anew that another get took for one of a killed process.
const TRIES_MAX: u32 = 10;

/// A room and the process in it.
pub(super) struct Room {
    /// The directory that the room is in.
    above: OwnedFd,
    name: String,
    fd: OwnedFd,
    shown: PathBuf,
    /// Whether the room is inside the destination, so that entries are moved out of it one by one.
    is_inside: bool,
    beat: Option<Beat>,
}

impl Room {
    /// Makes a room for a destination that holds at most these remains. Removes the remains first, and then rooms
    /// beside the new one that dead processes left.
    pub(super) fn new(site: &Site, remains: Option<Remains>) -> Result<Self> {
        if let Some(remains) = remains {
            remains.remove(site)?;
        }
        trust::make_directories(&site.parent)?;
        let is_fixed = site.there == There::EmptyDirectory && site.is_fixed()?;
        if !is_fixed {
            match Self::make(site, false) {
                // A user who may not write beside an own empty directory builds inside of it.
                Err(error)
                    if error.kind() == crate::error::ErrorKind::Denied
                        && site.there == There::EmptyDirectory => {}
                made => return made,
            }
        }
        Self::make(site, true)
    }

    fn make(site: &Site, is_inside: bool) -> Result<Self> {
        let at = if is_inside { &site.path } else { &site.parent };
        let above = disk::open_path(at)?;
        let failed = |errno| disk::failed("create a directory in", at, errno);
        let mut tries = 0;
        let (name, fd, note) = loop {
            let name = format!("{PREFIX}{}", disk::random_name()?);
            match begun(&above, &name) {
                Err(Errno::NOENT) if tries < TRIES_MAX => tries += 1,
                made => {
                    let (fd, note) = made.map_err(failed)?;
                    break (name, fd, note);
                }
            }
        };
        // Where locks are not to be had, the touches tell.
        disk::forgive(fs::flock(&note, FlockOperation::NonBlockingLockExclusive));
        let now = Stat::of_file(&note, at)?.mtime;
        sweep(&above, &name, now);
        Ok(Self {
            above,
            name,
            fd,
            shown: site.given.clone(),
            is_inside,
            beat: Some(Beat::of(note)),
        })
    }

    /// The directory in which the copy is built.
    pub(super) fn ground(&self) -> Result<Ground> {
        let fd = self
            .fd
            .try_clone()
            .map_err(|source| Error::io("open", &self.shown, source))?;
        Ok(Ground::new(fd, TREE, self.shown.clone()))
    }

    /// Moves the copy into place. Returns whether others may look into a private copy: an existing directory is closed
    /// to them, unless that is not permitted.
    pub(super) fn move_in(self, site: &Site, is_private: bool) -> Result<bool> {
        let failed = |errno| disk::failed("rename into place", &site.given, errno);
        if self.is_inside {
            let is_open = is_private && !close(&self.above);
            return self.move_out().map(|()| is_open).map_err(failed);
        }
        let name = site.name.as_os_str();
        if site.there == There::EmptyDirectory {
            // An empty directory is replaced. If it got an entry meanwhile, the rename fails.
            fs::renameat(&self.fd, TREE, &self.above, name).map_err(failed)?;
            return Ok(false);
        }
        fs::renameat_with(&self.fd, TREE, &self.above, name, RenameFlags::NOREPLACE)
            .map_err(failed)?;
        Ok(false)
    }

    /// Moves all entries of the copy up into the destination, or none. A list names them from before the first move
    /// until all are there.
    fn move_out(&self) -> rustix::io::Result<()> {
        let tree = disk::open_dir(&self.fd, TREE)?;
        let time = Stat::from(fs::fstat(&tree)?).mtime;
        let names = entries(&tree)?;
        let name = self.name.as_bytes();
        moved::list(&self.fd, &Note::own(name), &tree, &names)?;
        for (at, name) in names.iter().enumerate() {
            let moved = fs::renameat_with(&tree, name, &self.above, name, RenameFlags::NOREPLACE);
            if let Err(errno) = moved {
                let back = names.iter().take(at);
                let back = back.map(|name| fs::renameat(&self.above, name, &tree, name));
                if back.filter(|back| back.is_err()).count() == 0 {
                    moved::unlist(&self.fd)?;
                }
                return Err(errno);
            }
        }
        // The copy is complete. The next get removes what is left of the room.
        disk::forgive(moved::finish(&self.above, name, &self.fd));
        // Another time on a directory that existed before is no error.
        disk::forgive(fs::futimens(&self.above, &stamps(time)));
        Ok(())
    }
}

impl Drop for Room {
    /// Removes the room, unless entries that it moved out could not be moved back; then the next get cleans up.
    fn drop(&mut self) {
        drop(self.beat.take());
        if moved::is_out(&self.above, self.name.as_bytes()) {
            return;
        }
        let time = fs::fstat(&self.above).map(|stat| Stat::from(stat).mtime);
        disk::forgive(empty(&self.fd));
        disk::forgive(fs::unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR));
        if let (true, Ok(time)) = (self.is_inside, time) {
            disk::forgive(fs::futimens(&self.above, &stamps(time)));
        }
    }
}

/// Makes a room with its note. Fails with `NOENT` if another get removed it while it was empty.
fn begun(above: &OwnedFd, name: &str) -> rustix::io::Result<(OwnedFd, File)> {
    fs::mkdirat(above, name, Mode::from_raw_mode(0o700))?;
    let noted = || {
        let fd = disk::open_dir(above, name.as_bytes())?;
        let text = serde_json::to_vec(&Note::own(name.as_bytes())).map_err(|_| Errno::IO)?;
        let note = disk::write_whole(&fd, NOTE, &text)?;
        Ok((fd, note))
    };
    let noted = noted();
    if noted.is_err() {
        disk::forgive(fs::unlinkat(above, name, AtFlags::REMOVEDIR));
    }
    noted
}

/// Denies others access to a directory. Returns whether they have none.
fn close(dir: &OwnedFd) -> bool {
    let Ok(stat) = fs::fstat(dir) else {
        return false;
    };
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7700);
    // The descriptor may have been opened with O_PATH.
    stat.st_mode & 0o077 == 0 || fs::chmodat(dir, ".", mode, AtFlags::empty()).is_ok()
}

/// Opens the finished copy for a last look.
pub(super) fn ground_of(site: &Site) -> Result<Ground> {
    use std::os::unix::ffi::OsStrExt;
    let fd = disk::open_path(&site.parent)?;
    Ok(Ground::new(fd, site.name.as_bytes(), site.given.clone()))
}
