//! What this host knows of the version that a directory is of.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, Mode};
use rustix::io::Errno;

use super::trees::mark_name;
use super::{Mark, Pool, disk, proof, trust};
use crate::error::Result;
use crate::format::{Content, RefSpec};
use crate::id::StoreId;

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
    pub(crate) fn saved_since(&self, mark: &Mark) -> Option<u64> {
        let record = mark.record.as_ref()?;
        proof::saved_since(&mark.path(), record)
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
            .map_err(|errno| disk::failed("write down in pool", self.path(), errno))
    }

    /// Forgets what was saved of the tree whose mark has this name.
    pub(super) fn forget_saved(&self, mark: &str) {
        disk::forgive(disk::remove_tree(
            self.fd(),
            format!("saved/{mark}").as_bytes(),
        ));
    }
}
