//! Which file or directory something is noted of, whatever comes to its path.
//!
//! Numbers of inodes are used again, so the time of birth tells two apart. A directory also gets a random number in an
//! attribute when something is first noted of it. Where a file system has no times of birth (ext3, ext4 with inodes of 128
//! bytes), the number and the owner stand for that. Everywhere, the number tells a directory from one in an older copy of
//! its whole file system. Without attributes, only the number of the inode and the owner are left, and an empty directory
//! may be a new one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, StatxFlags, XattrFlags};
use serde::{Deserialize, Serialize};

use crate::host::disk;

/// The attribute with the random number.
const ATTRIBUTE: &str = "user.store.born";
/// Its length, in hexadecimal digits.
const DIGITS: usize = 15;

/// An inode by its number and its time of birth, or what stands for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inode {
    number: u64,
    born_secs: i64,
    born_nanos: u32,
}

impl Inode {
    pub(crate) fn of(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Self> {
        let dir = dir.as_fd();
        let wanted = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::UID;
        let found = fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let (born_secs, born_nanos) = match is_known {
            true => (found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
            false => {
                // Another user can copy the number.
                let number = open(dir, name).and_then(|dir| read(dir.as_fd()));
                (number.unwrap_or_default(), found.stx_uid)
            }
        };
        Ok(Self {
            number: found.stx_ino,
            born_secs,
            born_nanos,
        })
    }

    /// The same of what something is going to be noted of.
    pub(crate) fn of_noted(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Self> {
        // What cannot get a number is known by its time of birth alone.
        let opened = open(dir.as_fd(), name);
        opened.and_then(|dir| read(dir.as_fd()).or_else(|| make(dir.as_fd())));
        Self::of(dir, name)
    }

    /// Whether the directory at `path`, which has this inode, may have been made since, as far as can be seen: neither a time
    /// of birth nor a random number tells, and nothing is in it.
    pub(crate) fn may_be_new(&self, path: &Path) -> bool {
        self.born_secs == 0
            && open(fs::CWD, path.as_os_str().as_bytes()).is_some_and(disk::is_empty)
    }

    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// Whether it may be the one with this device and number, if one is given.
    pub(crate) fn may_be(&self, identity: Option<(u64, u64)>) -> bool {
        identity.is_none_or(|(_, number)| self.number == number)
    }
}

/// Reads the random number of the directory at `path`.
pub(crate) fn number_of(path: &Path) -> Option<i64> {
    open(fs::CWD, path.as_os_str().as_bytes()).and_then(|dir| read(dir.as_fd()))
}

fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags | OFlags::RDONLY, Mode::empty()).ok()
}

fn read(dir: BorrowedFd<'_>) -> Option<i64> {
    let mut text = [0; DIGITS];
    let len = fs::fgetxattr(dir, ATTRIBUTE, &mut text[..]).ok()?;
    let text = std::str::from_utf8(text.get(..len)?).ok()?;
    i64::from_str_radix(text, 16).ok()
}

fn make(dir: BorrowedFd<'_>) -> Option<i64> {
    let name = disk::random_name().ok()?;
    let text = name.get(..DIGITS)?;
    // Of two processes, one is first.
    disk::forgive(fs::fsetxattr(
        dir,
        ATTRIBUTE,
        text.as_bytes(),
        XattrFlags::CREATE,
    ));
    read(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_the_number_that_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(dir.path()).unwrap();
        assert_eq!(read(open.as_fd()), None);
        let Some(made) = make(open.as_fd()) else {
            // This file system has no attributes.
            return;
        };
        assert!(made > 0);
        assert_eq!(make(open.as_fd()), Some(made));
        assert_eq!(read(open.as_fd()), Some(made));
    }
}
