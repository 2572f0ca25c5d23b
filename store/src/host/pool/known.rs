//! What this host knows of the version that a directory is of.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, Mode};
use rustix::io::Errno;

use super::trees::mark_name;
use super::{Mark, Pool, disk, proof, trust};
use crate::error::{Error, Result};
use crate::format::{Content, RefName, RefSpec};
use crate::id::StoreId;
use crate::remedy::Remedy;

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

impl Pool {
    /// The directory of the notes about saves of the tree at `path` to a store, if there is one.
    pub(crate) fn saved_dir(&self, path: &Path, store: StoreId) -> Option<OwnedFd> {
        let opened = |above: &OwnedFd, name: &str| {
            let dir = trust::open_own_in(above, name, self.path());
            dir.ok().flatten()
        };
        let saved = opened(self.fd(), "saved")?;
        let tree = opened(&saved, &mark_name(path))?;
        opened(&tree, &store.to_string())
    }

    /// The version of its ref as which the tree of `mark` was saved since it was made, if one was written down in the
    /// tree. If there is no note of that save, no earlier version is the base of the next one.
    fn saved_since(&self, mark: &Mark) -> Option<u64> {
        let record = mark.record.as_ref()?;
        proof::saved_since(&mark.path(), record)
    }

    /// Checks that the tree of `mark` was not saved after the version `known` of its ref that this host knows it to be of:
    /// from that one, what others changed or removed since the last save would come back. The version that was saved
    /// settles it, if it is `wanted`.
    ///
    /// # Errors
    /// Conflict, if it was.
    pub(crate) fn check_noted(
        &self,
        mark: &Mark,
        (name, dir): (&RefName, &Path),
        known: u64,
        wanted: Option<u64>,
    ) -> Result<()> {
        let saved = self.saved_since(mark);
        match saved.filter(|saved| *saved > known && Some(*saved) != wanted) {
            Some(version) => Err(Self::unknown_save((name, dir), version, known)),
            None => Ok(()),
        }
    }

    /// The conflict of a tree that was saved as a `version` whose files this host does not know.
    pub(crate) fn unknown_save((name, dir): (&RefName, &Path), version: u64, known: u64) -> Error {
        let dir = dir.display();
        Error::conflict(format!(
            "{dir}: was saved as {name}@{version}, and this host knows only what it was as @{known}"
        ))
        .hint(Remedy::MaterializeSaved {
            name: name.to_string(),
            version,
            dir: dir.to_string(),
        })
    }

    /// Writes that version down in the tree.
    pub(crate) fn note_saved(&self, mark: &Mark, version: u64) {
        if let Some(record) = &mark.record {
            proof::note_saved(&mark.path(), record, version);
        }
    }

    /// Makes that directory.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub(crate) fn make_saved_dir(&self, path: &Path, store: StoreId) -> Result<OwnedFd> {
        let made = |above: &OwnedFd, name: &str| match fs::mkdirat(above, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => disk::open_dir(above, name.as_bytes()),
            Err(errno) => Err(errno),
        };
        made(self.fd(), "saved")
            .and_then(|saved| made(&saved, &mark_name(path)))
            .and_then(|tree| made(&tree, &store.to_string()))
            .map_err(|errno| self.failed("write down in", errno))
    }

    /// Forgets what was saved of the tree whose mark has this name.
    pub(super) fn forget_saved(&self, mark: &str) {
        disk::forgive(disk::remove_tree(
            self.fd(),
            format!("saved/{mark}").as_bytes(),
        ));
    }
}
