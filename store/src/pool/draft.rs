//! Drafts: pool files on their way. Built under a private name, finished, and renamed to their key.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, Timespec, Timestamps};

use super::owner::Owner;
use super::{POOL_TIME, Pool, PoolKey, disk};
use crate::error::{Error, Result};
use crate::walk::Stat;

/// From this size on, bytes are on disk before their name is. A smaller file that a power cut takes
/// bytes from has lost its size too, which the comparison before linking sees.
const SYNC_BYTES_MIN: u64 = 1 << 20;

/// A file that is being built; removed unless it is published.
#[derive(Debug)]
pub(crate) struct Draft<'p> {
    pool: &'p Pool,
    owner: Arc<Owner>,
    name: Option<String>,
    key: PoolKey,
}

impl Pool {
    /// A new empty file for `key`, to be written.
    pub(crate) fn draft(&self, key: PoolKey) -> Result<(Draft<'_>, File)> {
        let owner = self.owner()?;
        let name = disk::random_name()?;
        let file = disk::create(&owner.temporaries, name.as_bytes(), 0o600).map_err(|errno| {
            disk::failed("create a file in pool", &self.path, errno).hint(self.room_hint())
        })?;
        let draft = Draft {
            pool: self,
            owner,
            name: Some(name),
            key,
        };
        Ok((draft, file))
    }

    pub(super) fn room_hint(&self) -> String {
        format!(
            "free some space with `store pool evict`, or name a pool elsewhere than {} with --pool or $STORE_POOL",
            self.path.display()
        )
    }
}

impl Draft<'_> {
    /// Gives the file, all of whose bytes are written and verified, its name in the pool.
    pub(crate) fn publish(mut self, file: &File) -> Result<()> {
        let path = self.pool.path_of(&self.key);
        let failed = |errno| disk::failed("publish pool file", &path, errno);
        let stat = Stat::of_file(file, &path)?;
        if stat.size != self.key.content.size {
            return Err(Error::corrupt(format!(
                "pool file {}: has {} bytes, expected {}",
                path.display(),
                stat.size,
                self.key.content.size
            )));
        }
        if stat.size >= SYNC_BYTES_MIN || stat.is_sparse() {
            fs::fdatasync(file).map_err(failed)?;
        }
        fs::fchmod(file, Mode::from_raw_mode(self.key.mode())).map_err(failed)?;
        let time = Timespec {
            tv_sec: POOL_TIME.secs,
            tv_nsec: POOL_TIME.nanos.into(),
        };
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: fs::UTIME_NOW,
            },
            last_modification: time,
        };
        fs::futimens(file, &times).map_err(failed)?;
        let shard = self.pool.shard_made(self.key.shard())?;
        if let Some(name) = self.name.take() {
            fs::renameat(&self.owner.temporaries, name, shard, self.key.name()).map_err(failed)?;
        }
        self.pool.count(self.key.content.size);
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // What stays goes with the owner's directory.
            disk::forgive(fs::unlinkat(
                &self.owner.temporaries,
                name,
                AtFlags::empty(),
            ));
        }
    }
}
