//! The way from the root of a directory to what is below it, past symlinks that other users planted.
//!
//! Whoever may write to a shared store can put a symlink in the place of one of its directories. It is followed only if
//! it belongs to the caller or to root, or to the owner of the root and leads to what is the owner's, too: an owner must
//! not lead others into directories of their own. What is opened here holds: later renames do not lead its user
//! elsewhere. Usually that is one system call, in which the kernel follows no symlink at all.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::host::trust::is_trusted;

/// Opens for lookups only.
pub(super) const TO_LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Opens a directory for lookups, or for what is done to names in it.
pub(super) const DIRECTORY: OFlags = TO_LOOK.union(OFlags::DIRECTORY);
/// Opens a directory for reading its names, or for a sync.
pub(super) const TO_LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Opens a file for reading; never waits, whatever lies there.
pub(super) const TO_READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// The root, and whose symlinks count below it.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) root: PathBuf,
    /// The user to whom the root belongs.
    pub(super) owner: u32,
}

/// A symlink that another user put into a store, and that is not followed.
#[derive(Debug)]
pub(in crate::remote) struct Planted {
    link: PathBuf,
    user: u32,
}

impl fmt::Display for Planted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, user } = self;
        write!(out, "{} is a symlink of user {user}", link.display())
    }
}

impl std::error::Error for Planted {}

impl Planted {
    /// The planted symlink behind an error of a directory.
    pub(in crate::remote) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl Way {
    /// Opens what is at `below` the root.
    pub(super) fn open(&self, below: impl AsRef<Path>, flags: OFlags) -> io::Result<OwnedFd> {
        let below = below.as_ref();
        let path = self.root.join(below);
        match fs::openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(opened) => Ok(opened),
            Err(errno @ (Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::ISDIR)) => {
                Err(errno.into())
            }
            // There is a symlink, or the kernel lacks this call.
            Err(_) => self.walk(below, flags),
        }
    }

    /// Opens the directory in which `key` lies, and returns the key's name in it.
    pub(super) fn above<'k>(&self, key: &'k str, flags: OFlags) -> io::Result<(OwnedFd, &'k str)> {
        let (above, name) = key.rsplit_once('/').unwrap_or(("", key));
        Ok((self.open(above, flags)?, name))
    }

    /// Opens name by name, and judges each symlink.
    fn walk(&self, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let mut found = self.root.clone();
        let mut names = below.iter().peekable();
        let first = if names.peek().is_none() {
            flags
        } else {
            DIRECTORY
        };
        let mut at = fs::open(&self.root, first, Mode::empty())?;
        while let Some(name) = names.next() {
            found.push(name);
            let flags = if names.peek().is_none() {
                flags
            } else {
                DIRECTORY
            };
            at = self.step(&at, name, &found, flags)?;
        }
        Ok(at)
    }

    fn step(&self, at: &OwnedFd, name: &OsStr, found: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let there = fs::openat(at, name, TO_LOOK | OFlags::NOFOLLOW, Mode::empty())?;
        let stat = fs::fstat(&there)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            // If it became a symlink meanwhile, this fails.
            return Ok(fs::openat(
                at,
                name,
                flags | OFlags::NOFOLLOW,
                Mode::empty(),
            )?);
        }
        let user = stat.st_uid;
        let planted = || {
            let link = found.to_owned();
            io::Error::new(io::ErrorKind::PermissionDenied, Planted { link, user })
        };
        if !is_trusted(user) && user != self.owner {
            return Err(planted());
        }
        // The link that was judged counts, and not another one that may have its name by now.
        let target = fs::readlinkat(&there, "", Vec::new())?;
        let target = OsString::from_vec(target.into_bytes());
        let opened = fs::openat(at, target, flags, Mode::empty())?;
        match is_trusted(user) || fs::fstat(&opened)?.st_uid == user {
            true => Ok(opened),
            false => Err(planted()),
        }
    }
}
