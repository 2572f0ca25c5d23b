//! Which chunks must be stored: those that no live segment offers and nobody here has claimed.
//!
//! Deduplicating against a live segment leaves a mark in it, so that the commit can make sure
//! that the chunk is still offered then.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::error::Result;
use crate::id::{ChunkId, SegmentId};
use crate::index::Index;

const SHARDS: usize = 64;

/// Shared by all workers of one put.
#[derive(Debug)]
pub(super) struct Dedup {
    /// Every index that was used, the newest last: marks in older ones count too.
    indexes: RwLock<Vec<Arc<Index>>>,
    claimed: Vec<Mutex<HashSet<ChunkId>>>,
}

impl Dedup {
    pub(super) fn new(index: Index) -> Self {
        Self {
            indexes: RwLock::new(vec![Arc::new(index)]),
            claimed: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Whether the caller must store this chunk; asked twice, the answer is yes only once.
    pub(super) fn claim(&self, id: &ChunkId) -> Result<bool> {
        if self.is_offered(id)? {
            return Ok(false);
        }
        let [first, ..] = id.0;
        let Some(shard) = self.claimed.get(usize::from(first) % SHARDS) else {
            return Ok(true);
        };
        Ok(shard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(*id))
    }

    /// Whether a live segment offers this chunk; marks it.
    pub(super) fn is_offered(&self, id: &ChunkId) -> Result<bool> {
        let index = self.index();
        Ok(index.rely(id)?.is_some())
    }

    /// Takes over the index after a commit of our own: what `segment` offers needs no claim any more.
    pub(super) fn committed(&self, index: Index, segment: SegmentId) {
        index.rely_on_all(segment);
        let index = Arc::new(index);
        self.indexes
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&index));
        for shard in &self.claimed {
            let mut claimed = shard.lock().unwrap_or_else(PoisonError::into_inner);
            claimed.retain(|id| !matches!(index.find(id), Ok(Some(_))));
        }
    }

    /// Whether all marked chunks are still offered by `now`.
    pub(super) fn still_offered(&self, now: &Index) -> Result<bool> {
        for index in self
            .indexes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            if !index.still_offered(now)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn index(&self) -> Arc<Index> {
        let indexes = self.indexes.read().unwrap_or_else(PoisonError::into_inner);
        indexes.last().map(Arc::clone).unwrap_or_default()
    }
}
