//! The users that a pool trusts: only its own.
//!
//! A directory is trusted when it belongs to the caller and nobody else may write to it, as seen on the open
//! descriptor. The path to it is walked name by name from the root of the file system. A symlink in it is followed only
//! if nobody else could have put it there. A directory above may belong to others, who can move the pool away. They
//! cannot replace it by another, since that would not belong to the caller.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::disk;
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// Most symlinks in a path, as for the system.
const LINKS_MAX: u32 = 40;
/// Write permission for the group and for others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit, nobody can move what belongs to others.
const STICKY: u32 = 0o1000;

/// The user for whom this process works.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens the directory at `path` as one of the caller's own, and returns its path without symlinks. Makes the directory
/// and missing ones above it.
pub(super) fn open_own(path: &Path) -> Result<(OwnedFd, PathBuf)> {
    let absolute =
        std::path::absolute(path).map_err(|source| Error::io("look at", path, source))?;
    let mut way = Way::from_the_root(path)?;
    way.add(&absolute);
    while let Some(name) = way.rest.pop() {
        way.step(&name)?;
    }
    // Checked before it is opened for reading, which other users' directories may not allow.
    check_own(&way.at, &way.found)?;
    let dir =
        fs::openat(&way.at, ".", DIRECTORY, Mode::empty()).map_err(|errno| way.failed(errno))?;
    Ok((dir, way.found))
}

/// Opens the directory `name` in `dir`, which is in a pool, as one of the caller's own.
pub(super) fn open_own_in(dir: impl AsFd, name: &str, pool: &Path) -> Result<Option<OwnedFd>> {
    match disk::open_dir(dir, name.as_bytes()) {
        Ok(opened) => {
            check_own(&opened, &pool.join(name))?;
            Ok(Some(opened))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(disk::failed(
            "open a directory of pool",
            &pool.join(name),
            errno,
        )),
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Checks that an open directory belongs to the caller, and nobody else may write to it.
fn check_own(dir: impl AsFd, path: &Path) -> Result<()> {
    let stat = fs::fstat(dir).map_err(|errno| disk::failed("look at", path, errno))?;
    let user = user();
    if stat.st_uid != user {
        return Err(Error::denied(format!(
            "pool {}: belongs to user {}, expected user {user}, who runs this",
            path.display(),
            stat.st_uid
        ))
        .hint(Remedy::OwnPool));
    }
    if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Error::denied(format!(
            "pool {}: others may write to it: its mode is {:o}, expected at most 755",
            path.display(),
            stat.st_mode & 0o7777
        ))
        .hint(Remedy::ClosePool {
            pool: path.display().to_string(),
        }));
    }
    Ok(())
}

/// Checks that an open file in a pool belongs to the caller.
pub(super) fn check_own_file(file: impl AsFd, path: &Path) -> Result<()> {
    let stat = fs::fstat(file).map_err(|errno| disk::failed("look at", path, errno))?;
    if stat.st_uid == user() {
        return Ok(());
    }
    Err(Error::denied(format!(
        "pool file {}: belongs to user {}, expected user {}, who runs this",
        path.display(),
        stat.st_uid,
        user()
    ))
    .hint(Remedy::OwnPoolForFile))
}

/// A walk from the root of the file system to a pool.
struct Way<'p> {
    /// The requested path.
    wanted: &'p Path,
    /// The current directory, open, and its path without symlinks.
    at: OwnedFd,
    found: PathBuf,
    /// The remaining names, the next one last.
    rest: Vec<OsString>,
    links: u32,
}

impl<'p> Way<'p> {
    fn from_the_root(wanted: &'p Path) -> Result<Self> {
        let at = fs::open("/", ON_THE_WAY | OFlags::DIRECTORY, Mode::empty())
            .map_err(|errno| disk::failed("open", Path::new("/"), errno))?;
        Ok(Self {
            wanted,
            at,
            found: PathBuf::from("/"),
            rest: Vec::new(),
            links: 0,
        })
    }

    /// Adds names to walk next.
    fn add(&mut self, path: &Path) {
        let names = path.components().rev().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        self.rest.extend(names);
    }

    fn step(&mut self, name: &OsStr) -> Result<()> {
        let next = match fs::openat(&self.at, name, ON_THE_WAY, Mode::empty()) {
            Err(Errno::NOENT) => self.make(name),
            opened => opened,
        }
        .map_err(|errno| self.failed(errno))?;
        let stat = fs::fstat(&next).map_err(|errno| self.failed(errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if name == ".." => {
                self.found.pop();
                self.at = next;
            }
            FileType::Directory => {
                self.found.push(name);
                self.at = next;
            }
            FileType::Symlink => self.follow(&next, &stat, name)?,
            _ => return Err(self.failed(Errno::NOTDIR)),
        }
        Ok(())
    }

    fn make(&self, name: &OsStr) -> rustix::io::Result<OwnedFd> {
        // Others need no access to a pool: they read through their own trees.
        match fs::mkdirat(&self.at, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        fs::openat(&self.at, name, ON_THE_WAY, Mode::empty())
    }

    /// Continues at the target of a symlink, if only the caller or root can have put the link there.
    fn follow(&mut self, link: &OwnedFd, stat: &fs::Stat, name: &OsStr) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(self.failed(Errno::LOOP));
        }
        let dir = fs::fstat(&self.at).map_err(|errno| self.failed(errno))?;
        let is_fixed = dir.st_mode & WRITABLE_BY_OTHERS == 0 || dir.st_mode & STICKY != 0;
        if !is_trusted(stat.st_uid) || !is_trusted(dir.st_uid) || !is_fixed {
            return Err(Error::denied(format!(
                "pool {}: {} is a symlink that another user could have made (it belongs to user {})",
                self.wanted.display(),
                self.found.join(name).display(),
                stat.st_uid
            ))
            .hint(Remedy::PoolBehindLink));
        }
        let target = fs::readlinkat(link, "", Vec::new()).map_err(|errno| self.failed(errno))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            let root = Self::from_the_root(self.wanted)?;
            (self.at, self.found) = (root.at, root.found);
        }
        self.add(&target);
        Ok(())
    }

    fn failed(&self, errno: Errno) -> Error {
        Error::io("open pool", self.wanted, errno.into()).hint(Remedy::WritablePool)
    }
}

/// Opens for inspection and for lookups; a symlink is opened itself.
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether files of this user are no danger. Root can do anything in any case.
pub(crate) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == user()
}
