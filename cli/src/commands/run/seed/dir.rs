//! The directory for a script's result, known by device and inode, whatever others put at its path.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use store::{Error, Result};
use tempfile::TempDir;

/// Removed when it is dropped, if it is still at its path.
pub(super) struct SeedDir {
    dir: TempDir,
    is_kept: bool,
    identity: (u64, u64),
    /// While it is open, no other directory gets its inode.
    _open: File,
}

impl SeedDir {
    /// Makes an empty directory in `base`, closed to others.
    pub(super) fn new(base: &Path) -> Result<Self> {
        let failed = |source| Error::io("make a directory in", base, source);
        let dir = tempfile::Builder::new().prefix("seed-").tempdir_in(base);
        let dir = dir.map_err(failed)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits().cast_signed());
        let open = options.open(dir.path()).map_err(failed)?;
        let found = open.metadata().map_err(failed)?;
        let seed = Self {
            identity: (found.dev(), found.ino()),
            dir,
            is_kept: false,
            _open: open,
        };
        match found.uid() == rustix::process::geteuid().as_raw() {
            true => Ok(seed),
            false => Err(seed.exchanged()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Its device and inode.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Checks that it is still at its path.
    ///
    /// # Errors
    /// Conflict, if it was moved or something else is there.
    pub(super) fn check(&self) -> Result<()> {
        match self.is_there() {
            true => Ok(()),
            false => Err(self.exchanged()),
        }
    }

    /// Keeps it. Returns its path, if it is there.
    pub(super) fn keep(mut self) -> Option<PathBuf> {
        self.is_kept = true;
        self.is_there().then(|| self.path().to_owned())
    }

    fn is_there(&self) -> bool {
        let found = std::fs::symlink_metadata(self.path());
        found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }

    fn exchanged(&self) -> Error {
        Error::conflict(format!(
            "{}: is not the directory that was made for the script: it was moved, or another one was put in its place",
            self.path().display()
        ))
        .hint("name a directory with --base in which nobody else may rename, and let the script leave it there")
    }
}

impl Drop for SeedDir {
    fn drop(&mut self) {
        // What somebody else put there is not this program's to remove.
        let is_left = self.is_kept || !self.is_there();
        self.dir.disable_cleanup(is_left);
    }
}
