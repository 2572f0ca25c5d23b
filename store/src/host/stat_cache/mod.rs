//! The cache that keeps unchanged files from being read again: one file for each store and root of a put.
//!
//! Entries are in the order of a walk, so a put reads the old cache along with the tree and writes the new one at the
//! same time, in constant memory. Losing the cache only costs time: if it is missing, damaged or of another store, it
//! counts as empty. Any number of processes may use it; each reads the file that it opened and replaces it whole by
//! rename, and the last one wins.
//!
//! A file counts as unchanged when size, mtime, ctime, inode and device are as recorded: programs can set
//! an mtime back, but not a ctime. An entry is recorded only when the file's last change lay [`SETTLED_SECS`]
//! before its reading began: a change while or after it was read would otherwise fall into the same
//! tick of the file system's clock and leave the same times. The ticks of ext4 and XFS are
//! milliseconds, those of others up to two seconds; times in the future say nothing and are never recorded.
//! And only when its pages were clean by then, as [`WriteBack`] sees to: stores through a mapping to a page that
//! is dirty already move no time.

#[cfg(test)]
mod damage_tests;
mod layout;
mod reader;
#[cfg(test)]
mod tests;
mod write_back;
mod writer;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use self::layout::{BLOCK_BYTES_MAX, STAT_CACHE_MAGIC, STAT_CACHE_VERSION};
pub use self::reader::StatCacheReader;
pub use self::write_back::WriteBack;
pub use self::writer::StatCacheWriter;
use crate::error::{Error, Result};
use crate::format::{Content, RefName, Root, Time};
use crate::host::walk::Stat;
use crate::id::StoreId;

/// How long a file must not have changed when its reading begins: the coarsest tick there is.
pub const SETTLED_SECS: u64 = 2;

/// What the entries of a cache were committed as. Their contents are in the store for sure only as long as
/// this version is live, and is what it was: a store that was restored from a backup uses numbers again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheBase {
    /// The ref.
    pub name: RefName,
    /// Its version.
    pub version: u64,
    /// What the version stands for.
    pub root: Root,
}

/// What tells a file from every other state of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatKey {
    /// Bytes.
    pub size: u64,
    /// When its bytes changed.
    pub mtime: Time,
    /// When anything about it changed.
    pub ctime: Time,
    /// Inode number.
    pub ino: u64,
    /// Device.
    pub dev: u64,
}

/// What is remembered of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// Its state.
    pub key: StatKey,
    /// Its bytes in that state.
    pub content: Content,
}

/// The old cache and the new one. The halves may be used by two threads.
#[derive(Debug)]
pub struct StatCache {
    /// Entries of the last put of this root.
    pub reader: StatCacheReader,
    /// Entries of this put.
    pub writer: StatCacheWriter,
}

impl StatCache {
    /// The cache of `store` for puts of `root`, an absolute path, in the directory `dir`. Never fails: what
    /// is missing, damaged or about something else is empty, and [`Self::damage`] says so.
    pub fn open(dir: &Path, store: StoreId, root: &Path) -> Self {
        let root = root.as_os_str().as_bytes();
        let name = file_name(store, root);
        let reader = StatCacheReader::open(&dir.join(&name), store, root);
        let writer = StatCacheWriter::new(dir, name, layout::encode_header(store, root));
        Self { reader, writer }
    }

    /// See [`StatCacheReader::base`].
    pub fn base(&self) -> Option<&CacheBase> {
        self.reader.base()
    }

    /// See [`StatCacheReader::damage`].
    pub fn damage(&self) -> Option<&Error> {
        self.reader.damage()
    }

    /// See [`StatCacheReader::discard`].
    pub fn discard(&mut self) {
        self.reader.discard();
    }

    /// See [`StatCacheReader::lookup`].
    pub fn lookup(&mut self, path: &[u8], stat: &Stat) -> Option<Content> {
        self.reader.lookup(path, stat)
    }

    /// See [`StatCacheWriter::record`].
    pub fn record(&mut self, path: &[u8], stat: &Stat, content: Content, read_began: SystemTime) {
        self.writer.record(path, stat, content, read_began);
    }

    /// See [`StatCacheWriter::commit`].
    ///
    /// # Errors
    /// When the new cache could not be written; the old one is then as it was.
    pub fn commit(self, base: CacheBase) -> Result<()> {
        self.writer.commit(base)
    }
}

impl From<&Stat> for StatKey {
    fn from(stat: &Stat) -> Self {
        Self {
            size: stat.size,
            mtime: stat.mtime,
            ctime: stat.ctime,
            ino: stat.ino,
            dev: stat.dev,
        }
    }
}

/// One name for each store and root: no two roots share a cache, also when they are one in the other.
fn file_name(store: StoreId, root: &[u8]) -> String {
    let hash = blake3::Hasher::new()
        .update(&store.0)
        .update(root)
        .finalize()
        .to_hex();
    let (name, _) = hash.split_at(32);
    format!("{name}.stat")
}

/// Whether nothing about the file changed in the [`SETTLED_SECS`] before `read_began`, or later.
fn is_settled(stat: &Stat, read_began: SystemTime) -> bool {
    is_settled_for(stat, read_began, Duration::from_secs(SETTLED_SECS))
}

/// Whether nothing about the file changed for so long before `read_began`, or later.
fn is_settled_for(stat: &Stat, read_began: SystemTime, age: Duration) -> bool {
    let Some(limit) = read_began.checked_sub(age) else {
        return false;
    };
    let Ok(since) = limit.duration_since(UNIX_EPOCH) else {
        return false;
    };
    let Ok(secs) = i64::try_from(since.as_secs()) else {
        return false;
    };
    stat.mtime.max(stat.ctime)
        < Time {
            secs,
            nanos: since.subsec_nanos(),
        }
}
