//! When this host last read each pack, and which it found damaged: a small JSON file in its cache.
//!
//! Losing the file only costs time; an unreadable file counts as empty. If two verifications run at once, the record of
//! the last one to finish is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::fs::{read_regular, write_atomically};
use crate::id::PackId;
use crate::store::Store;

/// Most bytes of a record that are read. It takes 50 bytes per pack.
const RECORD_BYTES_MAX: u64 = 1 << 30;

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(skip)]
    path: Option<PathBuf>,
    /// When each pack was last read completely, in seconds since 1970.
    read: BTreeMap<PackId, i64>,
    /// Packs with chunks that did not match their ids.
    damaged: BTreeSet<PackId>,
}

impl Record {
    pub(crate) fn load(store: &Store) -> Self {
        let dir = store.host().cache_dir_of(store.format().id);
        let path = dir.map(|dir| dir.join("verified.json"));
        let bytes = path
            .as_ref()
            .and_then(|path| read_regular(path, RECORD_BYTES_MAX).ok());
        let known = bytes.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        Self {
            path,
            ..known.unwrap_or_default()
        }
    }

    /// When `pack` was last read.
    pub(crate) fn last_read(&self, pack: PackId) -> Option<i64> {
        self.read.get(&pack).copied()
    }

    /// Packs that were damaged when they were last checked.
    pub(crate) fn damaged(&self) -> &BTreeSet<PackId> {
        &self.damaged
    }

    /// Records that all of `pack` was read at `secs`.
    pub(crate) fn was_read(&mut self, pack: PackId, secs: i64, is_damaged: bool) {
        self.read.insert(pack, secs);
        match is_damaged {
            true => self.damaged.insert(pack),
            false => self.damaged.remove(&pack),
        };
    }

    /// Records that `pack` is damaged.
    pub(crate) fn is_damaged(&mut self, pack: PackId) {
        self.damaged.insert(pack);
    }

    /// Writes the record, without packs that are not live.
    pub(crate) fn save(&mut self, is_live: impl Fn(&PackId) -> bool) -> Result<()> {
        self.read.retain(|pack, _| is_live(pack));
        self.damaged.retain(|pack| is_live(pack));
        let (Some(path), Ok(bytes)) = (&self.path, serde_json::to_vec(self)) else {
            return Ok(());
        };
        write_atomically(path, &bytes)
    }
}
