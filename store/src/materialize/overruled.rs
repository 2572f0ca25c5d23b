//! Changes of jobs that a materialization replaces or removes, because the request says so.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::Serialize;

use crate::shown;

/// Most paths that are named; further ones are counted.
pub(super) const NAMED_MAX: usize = 100;

/// Paths that are replaced or removed although a job changed or added them, or their origin is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overruled {
    /// Files and symlinks.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// The first hundred of them.
    pub first: Vec<Gone>,
}

/// A path that is replaced or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gone {
    /// The path below the destination.
    #[serde(flatten, serialize_with = "shown::on_host")]
    pub path: PathBuf,
}

impl Overruled {
    /// Whether all changes of jobs stay.
    pub fn is_nothing(&self) -> bool {
        self.files == 0
    }

    /// Adds a path.
    pub(super) fn add(&mut self, path: Vec<u8>, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.first.len() < NAMED_MAX {
            let path = OsString::from_vec(path).into();
            self.first.push(Gone { path });
        }
    }
}
