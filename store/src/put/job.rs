//! What the walk gives the workers to do: files, with what must hold for their bytes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::profile::{Check, Inspection};
use crate::walk::{Dir, Stat};

/// A file to be read.
#[derive(Debug)]
pub(super) struct FileJob {
    /// Counts the files that are read, in the walk's order.
    pub(super) number: u64,
    pub(super) dir: Arc<Dir>,
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
    /// A moment before it is opened.
    pub(super) read_began: SystemTime,
    /// What its bytes must be.
    pub(super) check: Option<Check>,
    /// Whether its mode tells if it is a program.
    pub(super) may_execute: bool,
    /// Whether somebody may have written to it through a link that a pool shares.
    pub(super) is_suspect: bool,
}

impl FileJob {
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    /// Nothing of a file that fails goes anywhere.
    pub(super) fn check_whole(&self, bytes: &[u8]) -> Result<()> {
        let checked = self
            .check
            .as_ref()
            .map_or(Ok(()), |check| check.whole(bytes));
        checked.map_err(|error| self.failed_check(error))
    }

    /// That its bytes are not what they must be.
    pub(super) fn failed_check(&self, error: Error) -> Error {
        let error = error.within(self.path().display());
        match self.is_suspect {
            false => error,
            true => error.hint(
                "it was written to through a link that a pool shares with other trees: materialize the tree \
                 again to get back what the pool made",
            ),
        }
    }

    pub(super) fn inspection(&self, size: u64) -> Option<Inspection<'_>> {
        self.check.as_ref().map(|check| check.begin(size))
    }

    pub(super) fn changed(&self) -> Error {
        Error::conflict(format!("{}: it changed while it was read", self.path().display()))
            .hint("put it when nobody writes to it, leave it out with --exclude, or list it with --skip-unreadable")
    }

    pub(super) fn unreadable(&self, source: std::io::Error) -> Error {
        Error::io("read", self.path(), source)
    }
}

/// What a worker is given to do.
#[derive(Debug)]
pub(super) enum Task {
    Small(Vec<FileJob>),
    Large(FileJob),
}
