//! Trees that end with a process.
//!
//! A mark alone never allows a removal: the tree says the nonce of its mark itself.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, RenameFlags};
use serde::{Deserialize, Serialize};

use super::owner::Identity;
use super::trees::{Mark, parent};
use super::{Pool, disk, proof};
use crate::error::Result;

/// The process that a tree ends with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    #[serde(flatten)]
    pub(super) identity: Identity,
    /// Its name in `owners`, where it shows that it lives.
    #[serde(default)]
    pub(super) owner: String,
    /// What the tree says, too. A tree without one is removed by nobody but people.
    #[serde(default)]
    pub(super) nonce: String,
}

impl Pool {
    /// Makes the tree that was built as `name` in `dir` end with this process.
    pub(crate) fn hold(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Holder> {
        let owner = self.owner()?;
        let nonce = disk::random_name()?;
        // A file that cannot say anything stays until somebody removes it.
        disk::forgive(proof::plant(dir, name, &nonce));
        Ok(Holder {
            identity: Identity::own(),
            owner: owner.id.clone(),
            nonce,
        })
    }

    /// Removes a tree that ends with this process, as [`Self::remove_made`] does: not one that another process took
    /// over meanwhile, nor one that was made to stay.
    ///
    /// # Errors
    /// When it cannot be moved out of the way.
    pub fn remove_held(&self, path: &Path) -> Result<bool> {
        let owner = self.owner()?;
        let held_by = self.mark_of(path).and_then(|mark| mark.held_by);
        match held_by.is_some_and(|holder| holder.owner == owner.id) {
            true => self.remove_made(path),
            false => Ok(false),
        }
    }

    /// Removes a tree that ends with a process, whole: it disappears at once. Whether it was there, and proved to
    /// be what was made.
    ///
    /// # Errors
    /// When it cannot be moved out of the way.
    pub fn remove_made(&self, path: &Path) -> Result<bool> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let proven = |mark: &Mark| {
            disk::open_path(parent(path)).is_ok_and(|above| mark.is_proven(above.as_fd(), name))
        };
        let Some(mark) = self.mark_of(path).filter(proven) else {
            return Ok(false);
        };
        let room = self.room(parent(path))?;
        let failed = |errno| disk::failed("remove", path, errno);
        let flags = RenameFlags::NOREPLACE;
        fs::renameat_with(room.above(), name, room.dir(), "tree", flags).map_err(failed)?;
        if !mark.is_proven(room.dir(), b"tree") {
            // Something else took its place in that moment: back with it.
            fs::renameat_with(room.dir(), "tree", room.above(), name, flags).map_err(failed)?;
            return Ok(false);
        }
        self.forget(path);
        Ok(true)
    }

    /// The trees that end with a process, each with the name of its mark.
    pub(super) fn held(&self) -> Result<Vec<(String, Mark)>> {
        let names = self.mark_names()?;
        let names = names.iter().filter_map(|name| name.strip_suffix(".held"));
        Ok(names
            .filter_map(|name| Some((name.to_owned(), self.read_mark(name)?)))
            .filter(|(_, mark)| mark.held_by.is_some())
            .collect())
    }

    /// Removes the tree of a holder that is no more, if it proves to be that.
    pub(super) fn remove_abandoned(&self, mark: &Mark) -> Result<()> {
        if !self.remove_made(&mark.path())? && mark.is_gone() {
            self.forget(&mark.path());
        }
        Ok(())
    }
}
