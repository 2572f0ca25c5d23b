//! A cache that avoids reading unchanged files again: one file for each store and root of a put.
//!
//! Entries are in the order of a walk, so a put reads the old cache along with the tree and writes the new one at the
//! same time, in constant memory. Losing the cache only costs time: a missing or damaged one, or one of another store,
//! counts as empty. Any number of processes may use it; each replaces it whole by rename, and the last one wins.
//!
//! A file counts as unchanged when size, mtime, ctime, inode and device are as recorded: programs can set back an
//! mtime, but not a ctime. An entry is recorded only if the file's last change was [`SETTLED_SECS`] before its reading
//! began. A later change could fall into the same tick of the file system's clock and leave the same times. Ticks of
//! ext4 and XFS are milliseconds, of others up to two seconds. Times in the future are never recorded. Also, the file's
//! pages must have been clean, which [`WriteBack`] ensures: stores through a mapping to a dirty page change no time.

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
#[cfg(test)]
pub(crate) use self::write_back::RELIABLE;
pub use self::write_back::WriteBack;
pub(crate) use self::write_back::ensure_alone;
pub use self::writer::StatCacheWriter;
use crate::error::{Error, Result};
use crate::format::{Content, RefName, Root, Time};
use crate::host::walk::Stat;
use crate::id::StoreId;

/// For how long a file must not have changed when its reading begins: the coarsest tick of any file system.
pub const SETTLED_SECS: u64 = 2;

/// The version as which the entries of a cache were committed. Their contents are certainly in the store only while
/// this version is live with the same root: a store that was restored from a backup uses numbers again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheBase {
    /// The ref.
    pub name: RefName,
    /// Its version.
    pub version: u64,
    /// The root of the version.
    pub root: Root,
}

/// Tells a state of a file from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatKey {
    /// Size in bytes.
    pub size: u64,
    /// The last change of its bytes.
    pub mtime: Time,
    /// The last change of anything about it.
    pub ctime: Time,
    /// Inode number.
    pub ino: u64,
    /// Device.
    pub dev: u64,
}

/// What is recorded of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// Its state.
    pub key: StatKey,
    /// Its content in that state.
    pub content: Content,
}

/// The old cache and the new one. Two threads may use the halves.
#[derive(Debug)]
pub struct StatCache {
    /// Entries of the last put of this root.
    pub reader: StatCacheReader,
    /// Entries of this put.
    pub writer: StatCacheWriter,
}

impl StatCache {
    /// Opens the cache of `store` for puts of `root`, an absolute path, in the directory `dir`. Never fails: a cache
    /// that is missing, damaged or of something else counts as empty; [`Self::damage`] reports damage.
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
    /// When the new cache could not be written; the old one is then unchanged.
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

/// The file name for each store and root. No two roots share a cache, even if one contains the other.
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

/// Whether nothing about the file changed in the time `age` before `read_began`, or later.
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
