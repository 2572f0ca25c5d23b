//! Files that share their inode with a pool, and so with trees of other jobs.
//!
//! A file that is as the pool made it gets its time from the version that its tree was made from, since the pool's time
//! means nothing. A file that looks different and has other bytes was written to through a link, and is not taken as
//! the tree's own. If somebody sets mode and time back, only `pool verify` finds that.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::origin::Origin;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Content, Time, Version};
use crate::host::pool::{Inodes, Made, POOL_TIME, Pool};
use crate::host::walk::Stat;
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::sound::vouched::Vouchers;

/// Most files written through a link that are named.
const NAMED_MAX: usize = 20;
/// Most names of other files that share the inode of one.
const SHARERS_MAX: usize = 10;

/// How a file is tied to a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tie {
    /// What the pool made its inode of, if the file looks as if somebody had written to it.
    made: Option<Made>,
    /// Its content and time in the version that its tree was made from, if it looks as the pool made it.
    origin: Option<(Content, Time)>,
    /// Whether it looks as the pool made it, in a tree that a pool knows.
    is_linked: bool,
    /// Whether it is the pool's own inode, and nobody is known to have changed its bytes.
    is_pooled: bool,
    /// Whether every tree here was made from a version that is still live and vouches for its chunks.
    is_vouched_for: bool,
    /// What it was made of, if a power cut took some of its bytes.
    torn: Option<Content>,
}

/// The ties of the files of one put.
pub(super) struct Ties<'p> {
    pools: &'p [Arc<Pool>],
    /// Loaded when the first file needs them.
    inodes: Option<Vec<Inodes>>,
    origins: Vec<Origin>,
    /// Versions that trees here were made from. There are fewer than trees if some versions are gone, or may lack
    /// chunks.
    versions: Vec<Version>,
    /// Trees of this host, anywhere, that are for one user alone.
    private: Vec<PathBuf>,
}

/// Files that were written through a link.
#[derive(Debug, Default)]
pub(super) struct WrittenThrough {
    count: u64,
    files: Vec<(PathBuf, Stat)>,
}

impl Tie {
    /// Whether somebody wrote to the file through a link, given its current content.
    pub(super) fn is_written_through(&self, content: &Content) -> bool {
        self.made.is_some_and(|made| !made.is(content))
    }

    /// Whether it may have been written through a link; only its bytes can tell.
    pub(super) fn is_suspect(&self) -> bool {
        self.made.is_some()
    }

    /// The content of a file that need not be read, because it is as the pool made it.
    pub(super) fn linked(&self) -> Option<Content> {
        let (content, _) = self.origin.filter(|_| self.is_pooled)?;
        Some(content)
    }

    /// Whether that content is in a live version, and all its chunks are offered.
    pub(super) fn is_vouched_for(&self) -> bool {
        self.is_vouched_for
    }

    /// Fails if a power cut took some of the bytes of the file at `path` below `root`: nobody knows then what else is a job's work.
    pub(super) fn check_whole(&self, (root, path): (&Path, &[u8]), stat: &Stat) -> Result<()> {
        let Some(made) = &self.torn else {
            return Ok(());
        };
        Err(Error::corrupt(format!(
            "{}: has {} of the {} bytes that were written before this host was started again",
            root.join(OsStr::from_bytes(path)).display(),
            stat.size,
            made.size
        ))
        .hint(Remedy::MaterializeFirst))
    }

    /// The time of a file with this content: its own, unless that is the pool's. None, if the time is lost.
    pub(super) fn time(&self, content: &Content, stat: &Stat) -> Option<Time> {
        match self.origin {
            Some((made_from, time)) if made_from == *content => Some(time),
            _ if self.is_linked => None,
            _ => Some(stat.mtime),
        }
    }
}

impl<'p> Ties<'p> {
    /// Finds the ties of what is below the canonical path `root`.
    pub(super) fn new(
        pools: &'p [Arc<Pool>],
        reader: &'p Reader<'p>,
        vouchers: &mut Vouchers<'_>,
        root: &Path,
    ) -> Self {
        let (view, store) = (reader.view(), reader.store().format().id);
        let (mut origins, mut versions) = (Vec::new(), Vec::new());
        let mut private = Vec::new();
        for pool in pools {
            let trees = pool.trees().unwrap_or_default();
            let marks = trees.iter().filter_map(|tree| pool.mark_of(&tree.path));
            for mark in marks {
                private.extend(mark.is_private().then(|| mark.path()));
                let Some(origin) = Origin::new(pool, &mark, store, root) else {
                    continue;
                };
                origins.push(origin);
                let likely = mark.source.parse().ok().map(|name| (name, mark.version));
                let made = mark.tree.map(|tree| view.state.with_root(&tree, likely));
                let made = made.and_then(Result::ok).flatten();
                let made = made.filter(|made| vouchers.vouch_for(&made.0, made.1));
                versions.extend(made.map(|(_, _, version)| version));
            }
        }
        Self {
            pools,
            inodes: None,
            origins,
            versions,
            private,
        }
    }

    /// The trees of this host that are for one user alone. A link that is followed may lead into one.
    pub(super) fn private_trees(&self) -> Vec<PathBuf> {
        self.private.clone()
    }

    /// Returns how the file at `path`, relative to the root, is tied. Must be called in the order of a walk.
    pub(super) fn of(&mut self, path: &[u8], stat: &Stat) -> Result<Tie> {
        if self.pools.is_empty() {
            return Ok(Tie::default());
        }
        if stat.mtime == POOL_TIME && matches!(stat.mode & 0o7777, 0o444 | 0o555) {
            let mut origins = self.origins.iter_mut();
            let origin = origins.find_map(|origin| origin.file(path));
            let (is_linked, origin) = (origin.is_some(), origin.flatten());
            let is_pooled = match origin {
                Some((content, _)) => {
                    content.size == stat.size && self.is_pooled(&content, stat)?
                }
                None => false,
            };
            return Ok(Tie {
                made: None,
                is_linked,
                origin,
                is_pooled,
                is_vouched_for: self.versions.len() == self.origins.len(),
                torn: None,
            });
        }
        let mut origins = self.origins.iter_mut();
        let torn = origins.find_map(|origin| origin.torn(path, stat));
        let made = match stat.nlink {
            0 | 1 => None,
            _ => self.inodes()?.iter().find_map(|inodes| inodes.find(stat)),
        };
        Ok(Tie {
            made,
            torn,
            ..Tie::default()
        })
    }

    /// Whether a file is the inode that the pool made of `content`.
    fn is_pooled(&mut self, content: &Content, stat: &Stat) -> Result<bool> {
        if stat.nlink < 2 {
            return Ok(false);
        }
        let mut found = self.inodes()?.iter();
        let made = found.find_map(|inodes| inodes.find_intact(stat));
        Ok(made.is_some_and(|made| made.is(content)))
    }

    /// The versions that trees here were made from.
    pub(super) fn bases(&self) -> impl Iterator<Item = &Version> {
        self.versions.iter()
    }

    /// Notes about trees that were made here and whose records cannot be read.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.origins.iter().filter_map(Origin::note)
    }

    fn inodes(&mut self) -> Result<&[Inodes]> {
        let loaded = match self.inodes.take() {
            Some(loaded) => loaded,
            None => self
                .pools
                .iter()
                .map(|pool| pool.inodes())
                .collect::<Result<_>>()?,
        };
        Ok(self.inodes.insert(loaded))
    }
}

impl WrittenThrough {
    pub(super) fn add(&mut self, path: &[u8], stat: &Stat) {
        self.count += 1;
        if self.files.len() < NAMED_MAX {
            let path = Path::new(OsStr::from_bytes(path));
            self.files.push((path.to_owned(), *stat));
        }
    }

    /// Names the files, each with the others that share its inode; none, if there are no files. Paths are relative to
    /// `root`.
    pub(super) fn told(&self, pools: &[Arc<Pool>], root: &Path) -> Option<String> {
        let root = root.canonicalize().unwrap_or_default();
        let inodes: HashSet<(u64, u64)> = self.files.iter().map(|(_, stat)| key(stat)).collect();
        let sharers = pools.iter().filter_map(|pool| pool.sharers(&inodes).ok());
        let sharers: Vec<_> = sharers.collect();
        let named = self.files.iter().map(|(path, stat)| {
            let shared = sharers.iter().filter_map(|known| known.get(&key(stat)));
            let shared = shared.flatten().filter(|other| **other != root.join(path));
            let (shared, path): (Vec<_>, _) = (shared.collect(), path.display());
            let few = shared.iter().take(SHARERS_MAX);
            let few: Vec<String> = few.map(|path| path.display().to_string()).collect();
            let few = few.join(", ");
            match shared.len().saturating_sub(SHARERS_MAX) {
                0 if few.is_empty() => path.to_string(),
                0 => format!("{path} (shared with {few})"),
                more => format!("{path} (shared with {few} and {more} more)"),
            }
        });
        let named: Vec<String> = named.collect();
        let more = match self.count - self.files.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (self.count > 0).then(|| format!("{}{more}", named.join(", ")))
    }
}

/// The error about files that were written through links.
pub(super) fn refused(told: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("written to through a link that a pool shares with other trees: {told}"),
    )
    .hint(Remedy::TakeWrittenThrough)
}

fn key(stat: &Stat) -> (u64, u64) {
    (stat.dev, stat.ino)
}
