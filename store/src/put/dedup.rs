//! Which chunks must be stored: those that no live segment offers and that no worker has claimed.
//!
//! Deduplicating against a live segment leaves a mark in it, so that the commit can make sure that the chunk is still
//! offered then.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::id::ChunkId;
use crate::index::Index;
use crate::session::Relied;

const SHARDS: usize = 64;

/// The claims of one put, which all of its workers share.
#[derive(Debug)]
pub(super) struct Dedup {
    relied: Relied,
    claimed: Vec<Mutex<HashSet<ChunkId>>>,
    /// Chunks that were claimed so far.
    count: AtomicU64,
}

impl Dedup {
    pub(super) fn new(index: Index) -> Self {
        Self {
            relied: Relied::new(index),
            claimed: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: AtomicU64::new(0),
        }
    }

    /// The index with its marks: what was deduplicated against.
    pub(super) fn relied(&self) -> &Relied {
        &self.relied
    }

    /// Whether the caller must store this chunk. Only the first call for a chunk returns true.
    pub(super) fn claim(&self, id: &ChunkId) -> Result<bool> {
        if self.is_offered(id)? {
            return Ok(false);
        }
        let [first, ..] = id.0;
        let Some(shard) = self.claimed.get(usize::from(first) % SHARDS) else {
            return Ok(true);
        };
        let is_new = shard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(*id);
        self.count.fetch_add(is_new.into(), Ordering::Relaxed);
        Ok(is_new)
    }

    /// Whether this put stores the chunk and has not committed it yet.
    pub(super) fn is_claimed(&self, id: &ChunkId) -> bool {
        let [first, ..] = id.0;
        let shard = self.claimed.get(usize::from(first) % SHARDS);
        shard.is_some_and(|shard| {
            let claimed = shard.lock().unwrap_or_else(PoisonError::into_inner);
            claimed.contains(id)
        })
    }

    /// How many chunks the store did not have.
    pub(super) fn claims(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a live segment offers this chunk, and marks it. A base must be offered in a plain frame: if a lost base
    /// was stored again as a delta, it has to be stored once more.
    pub(super) fn is_offered(&self, id: &ChunkId) -> Result<bool> {
        let index = self.relied.index();
        Ok(match index.rely(id)? {
            Some((_, is_delta)) => !(is_delta && index.is_base(id)?),
            None => false,
        })
    }

    /// Whether the chunk, which is to be stored, is the base of a delta and so needs a plain frame.
    pub(super) fn is_base(&self, id: &ChunkId) -> Result<bool> {
        self.relied.index().is_base(id)
    }

    /// What a commit of our own offers needs no claim any more.
    pub(super) fn committed(&self) {
        let index = self.relied.index();
        for shard in &self.claimed {
            let mut claimed = shard.lock().unwrap_or_else(PoisonError::into_inner);
            claimed.retain(|id| !matches!(index.find(id), Ok(Some(_))));
        }
    }
}
