//! Drafts: pool files that are being written. They are built under a private name, sealed, and renamed to their key.
//!
//! A file that trees may link gets its name when its bytes are on disk, so a power cut never leaves a name with wrong
//! bytes. A file that is only copied does not wait for that: each copy of it is verified.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;

use super::owner::Owner;
use super::{COPIED_TIME, POOL_TIME, Pool, PoolKey, disk};
use crate::error::{Error, Result};
use crate::host::walk::Stat;
use crate::remedy::Remedy;

/// Up to this many files are synced one by one; for more, the whole file system is synced once.
const SYNC_EACH_MAX: usize = 4;

/// A file that is being built; removed unless it is published.
#[derive(Debug)]
pub(crate) struct Draft<'p> {
    pool: &'p Pool,
    owner: Arc<Owner>,
    name: Option<String>,
    key: PoolKey,
    is_copied: bool,
}

impl Pool {
    /// Creates an empty file for `key`; `is_copied` means that no tree may link it.
    pub(crate) fn draft(&self, key: PoolKey, is_copied: bool) -> Result<(Draft<'_>, File)> {
        let mut owner = self.owner()?;
        let name = disk::random_name()?;
        let mut created = disk::create(&owner.temporaries, name.as_bytes(), key.mode());
        if created.as_ref().is_err_and(|errno| *errno == Errno::NOENT) {
            // Others took this process for dead while it was suspended, so it continues as a new owner.
            owner = self.owner_after(&owner)?;
            created = disk::create(&owner.temporaries, name.as_bytes(), key.mode());
        }
        let file = created.map_err(|errno| self.failed("create a file in", errno))?;
        let draft = Draft {
            pool: self,
            owner,
            name: Some(name),
            key,
            is_copied: is_copied && key.is_verified_when_copied(),
        };
        Ok((draft, file))
    }

    /// Gives sealed files their names, after the bytes of those that may be linked are on disk.
    pub(crate) fn publish(&self, drafts: Vec<Draft<'_>>) -> Result<()> {
        let (copied, linked): (Vec<_>, Vec<_>) =
            drafts.into_iter().partition(|draft| draft.is_copied);
        if linked.len() > SYNC_EACH_MAX {
            fs::syncfs(&self.fd).map_err(|errno| disk::failed("sync pool", &self.path, errno))?;
        } else {
            linked.iter().try_for_each(Draft::sync)?;
        }
        linked.into_iter().chain(copied).try_for_each(Draft::rename)
    }

    /// The error of a system call in the pool.
    pub(super) fn failed(&self, doing: &str, errno: Errno) -> Error {
        let error = disk::failed(&format!("{doing} pool"), &self.path, errno);
        match errno {
            Errno::NOSPC | Errno::DQUOT => error.hint(self.room_hint()),
            _ => error,
        }
    }

    pub(super) fn room_hint(&self) -> Remedy {
        let pool = self.path.display().to_string();
        Remedy::EvictPool { pool }
    }
}

impl Draft<'_> {
    /// Gives a file the mode and time of a pool file, after all of its bytes are written and verified.
    pub(crate) fn seal(&self, file: &File) -> Result<()> {
        let path = self.pool.path_of(&self.key);
        let failed = |errno| disk::failed("seal pool file", &path, errno);
        let stat = Stat::of_file(file, &path)?;
        if stat.size != self.key.content.size {
            return Err(Error::corrupt(format!(
                "pool file {}: has {} bytes, expected {}",
                path.display(),
                stat.size,
                self.key.content.size
            )));
        }
        if stat.mode & 0o7777 != self.key.mode() {
            // The umask has removed some bits.
            fs::fchmod(file, Mode::from_raw_mode(self.key.mode())).map_err(failed)?;
        }
        let time = if self.is_copied {
            COPIED_TIME
        } else {
            POOL_TIME
        };
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: fs::UTIME_NOW,
            },
            last_modification: Timespec {
                tv_sec: time.secs,
                tv_nsec: time.nanos.into(),
            },
        };
        fs::futimens(file, &times).map_err(failed)
    }

    fn sync(&self) -> Result<()> {
        let Some(name) = &self.name else {
            return Ok(());
        };
        disk::open_file(&self.owner.temporaries, name.as_bytes())
            .and_then(fs::fdatasync)
            .map_err(|errno| self.failed("sync pool file", errno))
    }

    fn failed(&self, doing: &str, errno: Errno) -> Error {
        let path = self.pool.path_of(&self.key);
        match errno {
            Errno::NOENT => Error::conflict(format!(
                "{doing} {}: what was built is gone: another process took this one for dead",
                path.display()
            ))
            .hint("run the command again"),
            errno => disk::failed(doing, &path, errno),
        }
    }

    fn rename(mut self) -> Result<()> {
        let shard = self.pool.shard_made(self.key.shard())?;
        if let Some(name) = self.name.take() {
            let renamed = fs::renameat(&self.owner.temporaries, name, &shard, self.key.name());
            renamed.map_err(|errno| self.failed("publish pool file", errno))?;
        }
        self.pool.count_file(&shard, &self.key);
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // What stays is removed with the owner's directory.
            disk::forgive(fs::unlinkat(
                &self.owner.temporaries,
                name,
                AtFlags::empty(),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PoolLimits, content_of};
    use super::*;
    use crate::chunk::Chunker;
    use crate::format::ChunkerParams;

    #[test]
    fn a_draft_that_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::open(&dir.path().join("pool"), PoolLimits::default()).unwrap();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, b"bytes").unwrap();
        let chunker = Chunker::new(&ChunkerParams::default()).unwrap();
        let key = PoolKey {
            content: content_of(File::open(&plain).unwrap(), &chunker).unwrap(),
            executable: false,
        };
        let left = || {
            let owner = pool.owner().unwrap();
            disk::names(&owner.temporaries, pool.path()).unwrap().len()
        };
        let before = left();
        let (draft, _) = pool.draft(key, false).unwrap();
        assert_eq!(left(), before + 1);
        drop(draft);
        assert_eq!(left(), before);
    }
}
