//! How much room a file system has.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::StatVfs;

use crate::error::{Error, Result};

/// The bytes that the caller may still write to the file system of `path`. `None` if the file system does not tell:
/// ramfs, and some that are mounted with FUSE, say that they have no blocks at all.
///
/// # Errors
/// When `path` cannot be reached.
pub fn free_bytes(path: &Path) -> Result<Option<u64>> {
    match rustix::fs::statvfs(path) {
        Ok(found) => Ok(told(&found)),
        Err(errno) => Err(Error::io("look at the file system of", path, errno.into())),
    }
}

/// The same for what is open.
pub(crate) fn free_bytes_at(open: impl AsFd) -> rustix::io::Result<Option<u64>> {
    rustix::fs::fstatvfs(open).map(|found| told(&found))
}

fn told(found: &StatVfs) -> Option<u64> {
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}
