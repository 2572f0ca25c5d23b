//! Removes files that nobody will need again: their contents have left the store for good.
//!
//! A file that a tree shares stays, since removing it would free nothing. A later eviction removes it, when the tree is
//! gone. Removing too much only costs a fetch.

use std::collections::HashSet;

use rustix::fs::{self, AtFlags};

use super::{Pool, PoolKey};
use crate::error::Result;
use crate::format::Content;
use crate::host::walk::Stat;

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RemoveReport {
    /// Files that were removed, including those that had been set aside.
    pub files: u64,
    /// Bytes on disk that this freed.
    pub bytes: u64,
    /// Files that stay because trees share them.
    pub linked_files: u64,
}

impl Pool {
    /// The contents of all files, executable or not.
    ///
    /// # Errors
    /// When the pool cannot be listed.
    pub fn contents(&self) -> Result<HashSet<Content>> {
        let mut contents = HashSet::new();
        self.each_file(&mut |key, _, _| {
            contents.insert(key.content);
            Ok(())
        })?;
        self.each_beside("damaged", &mut |name, _| {
            contents.extend(set_aside_key(name).map(|key| key.content));
        })?;
        Ok(contents)
    }

    /// Removes the files of `unused` contents that no tree shares.
    ///
    /// # Errors
    /// When the pool cannot be listed or written.
    pub fn remove(&self, unused: &HashSet<Content>) -> Result<RemoveReport> {
        let mut report = RemoveReport::default();
        self.each_file(&mut |key, stat, _| {
            if !unused.contains(&key.content) {
                return Ok(());
            }
            if stat.st_nlink == 1 && self.evict_one(&key)? {
                report.files += 1;
                report.bytes += Stat::from(stat).blocks * 512;
            } else {
                report.linked_files += 1;
            }
            Ok(())
        })?;
        let damaged = self.directory("damaged")?;
        self.each_beside("damaged", &mut |name, stat| {
            let is_unused = set_aside_key(name).is_some_and(|key| unused.contains(&key.content));
            if is_unused
                && stat.nlink == 1
                && fs::unlinkat(&damaged, name, AtFlags::empty()).is_ok()
            {
                report.files += 1;
                report.bytes += stat.blocks * 512;
            }
        })?;
        Ok(report)
    }
}

/// The key of a file that was set aside.
fn set_aside_key(name: &[u8]) -> Option<PoolKey> {
    let (key, _) = std::str::from_utf8(name).ok()?.split_once('.')?;
    key.parse().ok()
}
