//! The attributes of a file that this library needs.

use std::fs::File;
use std::path::Path;

use rustix::fs::{self, FileType};

use super::dir::failed;
use crate::error::Result;
use crate::format::Time;

/// The attributes of a file, directory or symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// The last change of its bytes; anybody can set this time.
    pub mtime: Time,
    /// The last change of anything about it; only the system sets this time.
    pub ctime: Time,
    /// Inode number.
    pub ino: u64,
    /// Device of its file system.
    pub dev: u64,
    /// Kind and permissions.
    pub mode: u32,
    /// The user that owns it.
    pub uid: u32,
    /// The group that owns it.
    pub gid: u32,
    /// The number of its hard links.
    pub nlink: u64,
    /// Blocks of 512 bytes that it takes on disk.
    pub blocks: u64,
}

impl Stat {
    /// The attributes of what `path` leads to; follows symlinks.
    pub(crate) fn of_path(path: &Path) -> Result<Self> {
        fs::stat(path)
            .map(Self::from)
            .map_err(|errno| failed("look at", path, errno))
    }

    /// The attributes of an open file; errors mention `path`.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn of_file(file: &File, path: &Path) -> Result<Self> {
        fs::fstat(file)
            .map(Self::from)
            .map_err(|errno| failed("look at", path, errno))
    }

    /// Whether it has holes: it takes less space than its size.
    pub fn is_sparse(&self) -> bool {
        self.blocks.saturating_mul(512) < self.size
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Directory
    }

    /// Whether its owner may execute it.
    pub fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }

    /// The same attributes, executable only if `may_execute` allows it.
    #[must_use]
    pub fn as_program(mut self, may_execute: bool) -> Self {
        if !may_execute {
            self.mode &= !0o111;
        }
        self
    }

    /// The kind: file, directory, symlink or something else.
    pub(super) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

impl From<fs::Stat> for Stat {
    fn from(stat: fs::Stat) -> Self {
        Self {
            size: number(stat.st_size),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
            ino: number(stat.st_ino),
            dev: number(stat.st_dev),
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: number(stat.st_nlink),
            blocks: number(stat.st_blocks),
        }
    }
}

/// Converts a number; the fields have other types on other systems, but are never negative.
fn number(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(0)
}

fn time(secs: impl TryInto<i64>, nanos: impl TryInto<u32>) -> Time {
    Time {
        secs: secs.try_into().unwrap_or(0),
        nanos: nanos.try_into().unwrap_or(0),
    }
}
