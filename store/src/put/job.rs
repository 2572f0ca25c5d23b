//! What the walk gives to the workers: files, with what must hold for their bytes.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::host::walk::{Dir, Stat, open_max};
use crate::profile::{Check, Inspection};
use crate::remedy::Remedy;

/// How often a file is read again when its bytes are not those that were seen before. Each wait is longer than the
/// last, so that the reads do not keep step with a client that writes at a steady pace.
const LOOKS_MAX: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(3);

/// Files up to this size are read whole by one worker.
pub(super) const SMALL_BYTES_MAX: u64 = 1 << 20;

/// Most directories that the files of one batch keep open, however many the system allows.
const BATCH_DIRS_MAX: usize = 16;

/// Most directories that the files of one batch may keep open, so that all batches in flight to the workers use a
/// quarter of the files that this process may open.
pub(super) fn batch_dirs_max(workers: usize) -> usize {
    let batches = workers.saturating_mul(3).saturating_add(1);
    (open_max() / 4 / batches).clamp(1, BATCH_DIRS_MAX)
}

/// A file to read.
#[derive(Debug)]
pub(super) struct FileJob {
    /// The number of the file: files to read are counted in the order of the walk.
    pub(super) number: u64,
    pub(super) dir: Arc<Dir>,
    pub(super) name: Vec<u8>,
    /// Its path in the tree, if the file is large enough for deltas.
    pub(super) place: Option<Arc<[u8]>>,
    pub(super) stat: Stat,
    /// A moment before the file is opened.
    pub(super) read_began: SystemTime,
    /// What must hold for its bytes.
    pub(super) check: Option<Check>,
    /// Whether its mode tells if the file is executable.
    pub(super) may_execute: bool,
    /// Whether somebody may have written to it through a link that a pool shares.
    pub(super) is_suspect: bool,
}

impl FileJob {
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    /// Opens the file. The walk has seen it, so one that is not there was removed since.
    pub(super) fn open(&self) -> Result<File> {
        let opened = self.dir.open_file(&self.name);
        opened.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::conflict(format!(
                "{}: it was removed while the tree was read",
                self.path().display()
            ))
            .hint(Remedy::PutAtRest),
            _ => error,
        })
    }

    /// Checks a whole file before any of its bytes are passed on.
    pub(super) fn check_whole(&self, bytes: &[u8]) -> Result<()> {
        let checked = self
            .check
            .as_ref()
            .map_or(Ok(()), |check| check.whole(bytes));
        checked.map_err(|error| self.failed_check(error))
    }

    /// The error about bytes that fail their check.
    pub(super) fn failed_check(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Denied {
            return error;
        }
        let error = error.within(self.path().display());
        match self.is_suspect {
            false => error,
            true => error.hint(
                "it was written to through a link that a pool shares with other trees: materialize the tree \
                 again to get back what the pool made",
            ),
        }
    }

    /// Reads the file with `read`. If it must have bytes that were seen earlier, when the tree around it was judged, it
    /// is read again until it has them: some programs empty a file before they write it.
    pub(super) fn read_as_seen(
        &self,
        bytes: &mut Vec<u8>,
        mut read: impl FnMut(&mut Vec<u8>) -> Result<Stat>,
    ) -> Result<Stat> {
        let seen = self.check.as_ref().and_then(|check| check.exact.as_ref());
        let mut outcome = read(bytes);
        for look in 1..=LOOKS_MAX {
            if seen.is_none_or(|seen| outcome.is_ok() && seen == bytes) {
                break;
            }
            std::thread::sleep(LOOK_PAUSE * look);
            outcome = read(bytes);
        }
        outcome
    }

    /// Whether the put has found credentials, and now only searches for more.
    pub(super) fn stores_nothing(&self) -> bool {
        self.check.as_ref().is_some_and(Check::stores_nothing)
    }

    pub(super) fn inspection(&self, size: u64) -> Option<Inspection<'_>> {
        self.check.as_ref().map(|check| check.begin(size))
    }

    pub(super) fn changed(&self) -> Error {
        Error::conflict(format!(
            "{}: it changed while it was read",
            self.path().display()
        ))
        .hint(Remedy::PutAtRest)
    }

    pub(super) fn unreadable(&self, source: std::io::Error) -> Error {
        Error::io("read", self.path(), source)
    }
}

/// The work of one worker.
#[derive(Debug)]
pub(super) enum Task {
    Small(Vec<FileJob>),
    Large(Box<FileJob>),
}
