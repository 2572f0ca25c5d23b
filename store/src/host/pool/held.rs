//! Trees that end with a process.
//!
//! A mark alone never allows a removal: the tree itself must hold the nonce of its mark.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, RenameFlags};

use super::owner::{Holder, Identity};
use super::trees::{Mark, parent};
use super::{Pool, disk, proof};
use crate::error::{Error, ErrorKind, Result};
use crate::host::destination::precious_in;
use crate::host::pool::list::Thing;

impl Pool {
    /// Makes the tree that was built as `name` in `dir` end with this process.
    pub(crate) fn hold(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Holder> {
        let owner = self.owner()?;
        let nonce = disk::random_name()?;
        // A file that cannot hold a nonce stays until somebody removes it.
        disk::forgive(proof::plant(dir, name, &nonce));
        Ok(Holder {
            identity: Identity::own(),
            owner: owner.id.clone(),
            nonce,
        })
    }

    /// Removes a tree that ends with this process, as [`Self::remove_made`] does. Leaves a tree that another process
    /// took over meanwhile, or that was made to stay.
    ///
    /// # Errors
    /// As there.
    pub fn remove_held(&self, path: &Path) -> Result<bool> {
        let owner = self.owner()?;
        let held_by = self.mark_of(path).and_then(|mark| mark.held_by);
        match held_by.is_some_and(|holder| holder.owner == owner.id) {
            true => self.remove_made(path),
            false => Ok(false),
        }
    }

    /// Removes a whole tree that ends with a process; its path disappears at once. Returns whether it existed and
    /// proved to be that tree.
    ///
    /// # Errors
    /// When it cannot be moved away; conflict, when it holds a store, a pool or a mount: then all of it stays.
    pub fn remove_made(&self, path: &Path) -> Result<bool> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let proven = |mark: &Mark| {
            disk::open_path(parent(path)).is_ok_and(|above| mark.is_proven(above.as_fd(), name))
        };
        let Some(mark) = self.mark_of(path).filter(proven) else {
            return Ok(false);
        };
        self.check_holds_nothing(&mark, path)?;
        let room = self.room(parent(path))?;
        let failed = |errno| disk::failed("remove", path, errno);
        let flags = RenameFlags::NOREPLACE;
        fs::renameat_with(room.above(), name, room.dir(), "tree", flags).map_err(failed)?;
        let is_it = mark.is_proven(room.dir(), b"tree");
        let checked = match is_it {
            true => self.check_holds_nothing(&mark, &room.path().join("tree")),
            false => Ok(()),
        };
        if !is_it || checked.is_err() {
            // Something else took its place in that moment, or something was made in it, so it is moved back.
            fs::renameat_with(room.dir(), "tree", room.above(), name, flags).map_err(failed)?;
            return checked.map(|()| false);
        }
        self.forget(path);
        Ok(true)
    }

    /// Checks that the tree of `mark`, which is at `root` now, holds nothing precious besides what its version has.
    ///
    /// # Errors
    /// Conflict, naming what it holds.
    fn check_holds_nothing(&self, mark: &Mark, root: &Path) -> Result<()> {
        let is_made = |path: &Path| {
            let below = path.strip_prefix(root).unwrap_or(path);
            self.has_made_store(mark, below).unwrap_or(false)
        };
        let Some((what, at)) = precious_in(root, &is_made)? else {
            return Ok(());
        };
        let path = mark.path();
        let at = path.join(at.strip_prefix(root).unwrap_or(&at));
        Err(Error::conflict(format!(
            "{}: was to end with the process that it was made for, and is kept, since it holds {what}, at {}",
            path.display(),
            at.display()
        ))
        .hint("take that out of the tree: then the next run with this pool removes the rest"))
    }

    /// Whether the version of a tree itself has a store at `below`.
    fn has_made_store(&self, mark: &Mark, below: &Path) -> Result<bool> {
        let Some(mut list) = self.list_of(mark)? else {
            return Ok(false);
        };
        let mut path = PathBuf::new();
        while let Some((level, name, thing)) = list.next()? {
            while level > 0 && path.iter().count() >= level {
                path.pop();
            }
            let is_told = matches!(&*name, b"format" | b"log" | b"pool");
            if level > 0 && is_told && thing != Thing::Left && path == below {
                return Ok(true);
            }
            if level > 0 {
                path.push(OsStr::from_bytes(&name));
            }
        }
        Ok(false)
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

    /// Removes the tree of a dead holder, if it proves to be that. Returns why it was kept, if it was.
    pub(super) fn remove_abandoned(&self, mark: &Mark) -> Option<Error> {
        match self.remove_made(&mark.path()) {
            Err(error) => (error.kind() == ErrorKind::Conflict).then_some(error),
            Ok(is_removed) => {
                if !is_removed && mark.is_gone() {
                    self.forget(&mark.path());
                }
                None
            }
        }
    }
}
