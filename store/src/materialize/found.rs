//! What is at a destination, according to the disk and the pool. Nothing is changed.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::diff::Lies;
use super::shown;
use super::trail::Trail;
use crate::chunk::Chunker;
use crate::error::Result;
use crate::format::{Content, Time};
use crate::host::disk;
use crate::host::pool::{Look, Pool, PoolKey, content_of, proof_in};
use crate::host::walk::Stat;

/// A destination.
pub(super) struct Found<'m> {
    pool: &'m Pool,
    trail: Trail,
    /// Whether each directory on the trail, or one above it, was touched since the tree was settled. Who renames a
    /// directory touches it, and nothing in it.
    touched: Vec<bool>,
    settled: Settled,
    /// Inodes of pool files that were set aside; loaded when needed.
    set_aside: Option<HashSet<(u64, u64)>>,
    chunkers: Vec<Chunker>,
    /// Whether files were read, because nothing else showed whether they had been touched.
    pub(super) has_read: bool,
}

/// When the tree was last settled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settled {
    /// The time by the clock of its file system, if known.
    pub(super) at: Option<Time>,
    /// Whether the system has not been restarted since.
    pub(super) is_of_this_boot: bool,
}

impl<'m> Found<'m> {
    pub(super) fn new(pool: &'m Pool, root: OwnedFd, settled: Settled) -> Result<Self> {
        Ok(Self {
            pool,
            trail: Trail::new(root),
            touched: Vec::new(),
            settled,
            set_aside: None,
            chunkers: pool.chunkers()?,
            has_read: false,
        })
    }
}

impl Found<'_> {
    /// The attributes of the current directory itself.
    fn own(&mut self) -> Result<Stat> {
        let stat = fs::fstat(self.trail.here()?);
        let stat = stat.map_err(|errno| failed("look at", b"destination", errno))?;
        Ok(stat.into())
    }

    /// Whether the current directory, or one above it, was touched since the tree was settled.
    fn is_moved(&self) -> bool {
        self.touched.last().copied().unwrap_or_default()
    }

    fn is_before_settled(&self, ctime: Time) -> bool {
        self.settled.at.is_some_and(|at| ctime <= at)
    }
}

impl Lies for Found<'_> {
    fn enter(&mut self, name: &[u8]) -> Result<()> {
        self.trail.enter(name)?;
        let ctime = self.own()?.ctime;
        let is_touched = self.is_moved() || !self.is_before_settled(ctime);
        self.touched.push(is_touched);
        Ok(())
    }

    fn leave(&mut self) {
        self.trail.leave();
        self.touched.pop();
    }

    fn names(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut names = disk::names(self.trail.here()?, Path::new("destination"))?;
        // Only the tree itself has a proof: in a directory below, it is another tree's, which a job made there.
        if self.trail.is_at_root()
            && let Some(proof) = proof_in(self.trail.here()?)
        {
            names.retain(|name| name != proof);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn stat(&mut self, name: &[u8]) -> Result<Option<Stat>> {
        match fs::statat(self.trail.here()?, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("look at", name, errno)),
        }
    }

    fn own_time(&mut self) -> Result<Time> {
        Ok(self.own()?.mtime)
    }

    fn target(&mut self, name: &[u8]) -> Result<Vec<u8>> {
        match fs::readlinkat(self.trail.here()?, name, Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            // The name is something else by now. No symlink has an empty target.
            Err(Errno::NOENT | Errno::INVAL) => Ok(Vec::new()),
            Err(errno) => Err(failed("read link", name, errno)),
        }
    }

    fn is_pooled(&mut self, key: &PoolKey, found: &Stat) -> Result<bool> {
        Ok(matches!(
            self.pool.look(key)?,
            Look::Intact(pooled) if (pooled.dev, pooled.ino) == (found.dev, found.ino)
        ))
    }

    fn is_written_through(&mut self, key: &PoolKey, found: &Stat) -> Result<bool> {
        let inode = (found.dev, found.ino);
        if let Look::Changed(pooled) = self.pool.look(key)?
            && (pooled.dev, pooled.ino) == inode
        {
            return Ok(true);
        }
        if self.set_aside.is_none() {
            self.set_aside = Some(self.pool.set_aside_inodes()?);
        }
        Ok(self
            .set_aside
            .as_ref()
            .is_some_and(|inodes| inodes.contains(&inode)))
    }

    fn may_be_torn(&mut self, found: &Stat, is_settled: bool) -> bool {
        let is_touched = is_settled
            && self.settled.at.is_some()
            && (self.is_moved() || !self.is_before_settled(found.ctime));
        !self.settled.is_of_this_boot && !is_touched
    }

    fn is_untouched(&mut self, found: &Stat) -> bool {
        self.settled.is_of_this_boot && !self.is_moved() && self.is_before_settled(found.ctime)
    }

    fn has_bytes(&mut self, name: &[u8], content: &Content) -> Result<bool> {
        self.has_read = true;
        if content.size == 0 {
            return Ok(true);
        }
        let path = || Path::new(&shown(name).to_string()).to_path_buf();
        for chunker in &self.chunkers {
            let file = disk::open_file(self.trail.here()?, name)
                .map_err(|errno| failed("open", name, errno))?;
            if Stat::of_file(&file, &path())?.size != content.size {
                return Ok(false);
            }
            let found =
                content_of(file, chunker).map_err(|error| error.within(path().display()))?;
            if found == *content {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn failed(doing: &str, name: &[u8], errno: Errno) -> crate::error::Error {
    disk::failed(doing, Path::new(&shown(name).to_string()), errno)
}
