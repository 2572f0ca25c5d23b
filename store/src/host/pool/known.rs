//! What this host knows of the version that a directory is of.

use rustix::fs;
use serde::{Deserialize, Serialize};

use super::trees::mark_name;
use super::{Mark, Pool, disk};
use crate::error::{Error, Result};
use crate::format::{Content, RefSpec};
use crate::fs::read_regular;

/// Most bytes that are read of what says that a tree was saved.
const SAVED_BYTES_MAX: u64 = 64 << 10;

/// The version that a directory is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) version: u64,
    /// Its tree, if that was recorded.
    pub(crate) tree: Option<Content>,
}

impl Mark {
    /// The version that the tree was made from; its tree is none, if only a part of it was made.
    pub(crate) fn known(&self) -> Known {
        let spec = self.source.parse::<RefSpec>();
        let is_whole = spec.is_ok_and(|spec| spec.path.is_empty());
        Known {
            version: self.version,
            tree: self.tree.filter(|_| is_whole),
        }
    }
}

/// That a tree was saved since it was made. What exactly was saved is in the cache directory of the host; if that is
/// lost, this says that the version of the mark is no base any more.
#[derive(Serialize, Deserialize)]
struct SavedSince {
    /// The record and the version of the mark.
    record: Option<String>,
    made: u64,
    /// The version that the save made or found.
    saved: u64,
}

impl Pool {
    /// Writes down that the tree of `mark` was saved as a version of its ref.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub(crate) fn write_saved(&self, mark: &Mark, saved: u64) -> Result<()> {
        let (owner, temporary) = (self.owner()?, disk::random_name()?);
        let said = SavedSince {
            record: mark.record.clone(),
            made: mark.version,
            saved,
        };
        let text = serde_json::to_vec(&said)
            .map_err(|source| Error::invalid("note of a saved tree").because(source))?;
        let name = saved_name(&mark_name(&mark.path()));
        disk::write_new(&owner.temporaries, temporary.as_bytes(), &text)
            .and_then(|()| fs::renameat(&owner.temporaries, &temporary, self.fd(), name))
            .map_err(|errno| disk::failed("write down in pool", self.path(), errno))
    }

    /// The version as which the tree of `mark` was last saved to its ref, if it was saved since it was made.
    pub(crate) fn saved_since(&self, mark: &Mark) -> Option<u64> {
        let name = saved_name(&mark_name(&mark.path()));
        let bytes = read_regular(&self.path().join(name), SAVED_BYTES_MAX).ok()?;
        let said: SavedSince = serde_json::from_slice(&bytes).ok()?;
        (said.record == mark.record && said.made == mark.version).then_some(said.saved)
    }

    /// Forgets what was saved of the tree whose mark has this name.
    pub(super) fn forget_saved(&self, mark: &str) {
        let name = saved_name(mark);
        disk::forgive(fs::unlinkat(self.fd(), name, fs::AtFlags::empty()));
    }
}

fn saved_name(mark: &str) -> String {
    format!("trees/{mark}.saved")
}
