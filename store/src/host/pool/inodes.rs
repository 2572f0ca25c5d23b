//! Which content the pool gave to an inode. A put asks this for files with several links.
//!
//! Inode numbers come from directory listings alone. Files that were set aside count, too, since trees may still share
//! them.

use std::os::fd::AsFd;

use rustix::fs::{Dir, fstat};

use super::{Pool, PoolKey, disk};
use crate::error::Result;
use crate::format::Content;
use crate::host::walk::Stat;

/// The content that the pool gave to one inode. Only the first bytes of the root are kept, since there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Made {
    ino: u64,
    root: [u8; 8],
}

/// The inodes of one pool, sorted; 16 bytes each.
#[derive(Debug)]
pub(crate) struct Inodes {
    device: u64,
    made: Vec<Made>,
    /// Inodes whose bytes are no longer what the pool wrote, sorted.
    aside: Vec<u64>,
}

impl Made {
    /// Whether `content` is what the pool gave to the inode.
    pub(crate) fn is(&self, content: &Content) -> bool {
        content.root.0.starts_with(&self.root)
    }
}

impl Inodes {
    /// The content that the pool gave to this inode, if it is one of its own.
    pub(crate) fn find(&self, stat: &Stat) -> Option<Made> {
        let by_ino = |made: &Made| made.ino.cmp(&stat.ino);
        let at = self.made.binary_search_by(by_ino).ok()?;
        self.made
            .get(at)
            .copied()
            .filter(|_| stat.dev == self.device)
    }
}

impl Inodes {
    /// The same, unless the inode is known to have other bytes now.
    pub(crate) fn find_intact(&self, stat: &Stat) -> Option<Made> {
        let found = self.find(stat);
        found.filter(|made| self.aside.binary_search(&made.ino).is_err())
    }
}

impl Pool {
    /// The inodes of all files of the pool.
    pub(crate) fn inodes(&self) -> Result<Inodes> {
        let failed = |errno| disk::failed("list pool", &self.path, errno);
        let device = Stat::from(fstat(&self.fd).map_err(failed)?).dev;
        let mut made = Vec::new();
        for number in 0..=u8::MAX {
            if let Some(shard) = self.shard(number)? {
                list(shard, &mut made).map_err(failed)?;
            }
        }
        let damaged = disk::open_dir(&self.fd, b"damaged").map_err(failed)?;
        let intact = made.len();
        list(damaged, &mut made).map_err(failed)?;
        let aside = made.get(intact..).unwrap_or_default();
        let mut aside: Vec<u64> = aside.iter().map(|made| made.ino).collect();
        aside.sort_unstable();
        made.sort_unstable();
        Ok(Inodes {
            device,
            made,
            aside,
        })
    }
}

/// Adds the files in a directory. A file that was set aside has a random suffix after its name.
fn list(dir: impl AsFd, made: &mut Vec<Made>) -> rustix::io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_str().unwrap_or_default();
        let name = name.split_once('.').map_or(name, |(name, _)| name);
        let Ok(key) = name.parse::<PoolKey>() else {
            continue;
        };
        let ino = entry.ino();
        let root = key.content.root.0.first_chunk().copied();
        made.extend(root.map(|root| Made { ino, root }));
    }
    Ok(())
}
