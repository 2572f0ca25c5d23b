//! The way from one directory of a tree to the next, through open directories and never through a symlink.
//!
//! Going from a directory to a nearby one costs only the steps between them, however deep they are. On a deep path,
//! only some directories stay open: every 64th, and the last ones.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::shown;
use crate::error::{Error, Result};
use crate::host::disk;

/// How many of the last directories stay open. Of the others, every 64th does.
const OPEN: usize = 64;

/// The path from a root to the directory that was requested last.
pub(super) struct Trail {
    root: OwnedFd,
    names: Vec<Vec<u8>>,
    open: Vec<Option<OwnedFd>>,
}

impl Trail {
    /// Begins at the root.
    pub(super) fn new(root: OwnedFd) -> Self {
        Self {
            root,
            names: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Another trail from the same root.
    pub(super) fn again(&self) -> Result<Self> {
        let root = self.root.try_clone();
        root.map(Self::new)
            .map_err(|source| Error::io("open", "destination", source))
    }

    /// Goes to the directory with these names, relative to the root.
    pub(super) fn go(&mut self, names: &[Vec<u8>]) -> Result<BorrowedFd<'_>> {
        let same = self.names.iter().zip(names).take_while(|(a, b)| a == b);
        let same = same.count();
        self.names.truncate(same);
        self.open.truncate(same);
        for name in names.get(same..).unwrap_or_default() {
            self.enter(name)?;
        }
        self.here()
    }

    /// Enters a directory.
    pub(super) fn enter(&mut self, name: &[u8]) -> Result<()> {
        if self.names.len() >= disk::DEPTH_MAX {
            return Err(disk::too_deep(Path::new(
                &shown(&self.names.join(&b'/')).to_string(),
            )));
        }
        let opened = open(self.here()?, name)?;
        self.names.push(name.to_vec());
        self.open.push(Some(opened));
        if let Some(at) = self.open.len().checked_sub(OPEN + 1)
            && at % OPEN != 0
            && let Some(slot) = self.open.get_mut(at)
        {
            *slot = None;
        }
        Ok(())
    }

    /// Whether the current directory is the root.
    pub(super) fn is_at_root(&self) -> bool {
        self.names.is_empty()
    }

    /// Leaves a directory.
    pub(super) fn leave(&mut self) {
        self.names.pop();
        self.open.pop();
    }

    /// The current directory.
    pub(super) fn here(&mut self) -> Result<BorrowedFd<'_>> {
        let last = self.open.iter().rposition(Option::is_some);
        let first_closed = last.map_or(0, |at| at + 1);
        for at in first_closed..self.open.len() {
            let above = match at.checked_sub(1).and_then(|above| self.open.get(above)) {
                Some(Some(above)) => above.as_fd(),
                _ => self.root.as_fd(),
            };
            let opened = open(above, self.names.get(at).map_or(&b""[..], Vec::as_slice))?;
            if let Some(slot) = self.open.get_mut(at) {
                *slot = Some(opened);
            }
        }
        Ok(match self.open.last() {
            Some(Some(last)) => last.as_fd(),
            _ => self.root.as_fd(),
        })
    }
}

fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    disk::open_dir(dir, name)
        .map_err(|errno| disk::failed("open directory", Path::new(&shown(name).to_string()), errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_way_holds_few_directories_open() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<Vec<u8>> = (0..500).map(|n| vec![b'a' + (n % 26) as u8]).collect();
        let mut path = dir.path().to_path_buf();
        for name in &names {
            path.push(std::str::from_utf8(name).unwrap());
        }
        std::fs::create_dir_all(&path).unwrap();
        let mut trail = Trail::new(disk::open_path(dir.path()).unwrap());
        trail.go(&names).unwrap();
        let count = |trail: &Trail| trail.open.iter().flatten().count();
        assert!(count(&trail) <= OPEN + 500 / OPEN + 2, "{}", count(&trail));
        for len in (0..500).rev() {
            let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
            trail.leave();
            let found = inode(trail.here().unwrap());
            let mut other = trail.again().unwrap();
            if len % 50 == 0 {
                assert_eq!(found, inode(other.go(names.get(..len).unwrap()).unwrap()));
            }
        }
        assert!(trail.go(&[b"nothing".to_vec()]).is_err());
    }
}
