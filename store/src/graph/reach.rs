//! Reach: which chunks of an index versions need, and how many stored bytes these take.
//!
//! Anything that cannot be read is an error, because an incomplete number would be wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::walk::{Part, Seen, Unread, Visit, Walk};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Version;
use crate::id::ChunkId;
use crate::index::{Marks, Position};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::store::View;

/// The chunks that versions reach in the index of a reader's view.
pub(crate) struct Reach<'r> {
    reader: &'r Reader<'r>,
    /// Marks are positions in this view's index, even if the reader reloads its own.
    view: Arc<View>,
    seen: Seen,
    /// Stored bytes of the chunks that versions reached.
    walked_bytes: AtomicU64,
    /// Chunks that versions contain themselves, as opposed to bases of their deltas.
    own: Marks,
}

impl<'r> Reach<'r> {
    /// Starts with no chunks reached.
    pub(crate) fn new(reader: &'r Reader<'r>) -> Self {
        Self::among(reader, reader.view())
    }

    /// Starts with no chunks reached, in the index of `view`. Positions of several reaches are comparable if they share
    /// a view.
    pub(crate) fn among(reader: &'r Reader<'r>, view: Arc<View>) -> Self {
        Self {
            reader,
            seen: Seen::new(&view.index),
            own: view.index.marks(),
            view,
            walked_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the chunks reached so far.
    pub(crate) fn chunks(&self) -> &Marks {
        self.seen.reached()
    }

    /// Adds the chunks that `other` reached; it must have the same view.
    pub(crate) fn add(&self, other: &Self) {
        for at in other.chunks().positions() {
            self.seen.reach(at);
            if other.own.has(at) {
                self.own.set(at);
            }
        }
    }

    /// Whether a version that was walked contains the chunk itself.
    pub(crate) fn has_itself(&self, at: Position) -> bool {
        self.own.has(at)
    }

    /// Returns the stored bytes of the chunks reached so far: their shares of their frames, as a collector counts them.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn stored_bytes(&self) -> Result<u64> {
        self.chunks().positions().try_fold(0u64, |sum, at| {
            let (_, location) = self.view.index.at(at)?;
            Ok(sum.saturating_add(location.stored_share()))
        })
    }

    /// Returns the stored bytes of what [`Self::version`] reached, without another pass.
    pub(crate) fn walked_bytes(&self) -> u64 {
        self.walked_bytes.load(Ordering::Relaxed)
    }

    /// Reaches everything that `version` needs.
    ///
    /// # Errors
    /// Not found and corrupt as for [`Reader`]; interrupted on request.
    pub(crate) fn version(&self, version: &Version) -> Result<()> {
        Walk::in_order(self.reader, self).version(version)
    }

    /// Reaches a chunk if the index has it.
    pub(crate) fn also(&self, id: &ChunkId) -> Result<()> {
        if let Some(at) = self.view.index.position(id)? {
            self.seen.reach(at);
        }
        Ok(())
    }

    fn position(&self, id: &ChunkId) -> Result<Position> {
        self.view.index.position(id)?.ok_or_else(|| {
            let why = self.view.index.lack(id);
            Error::corrupt(format!("chunk {id}: a live version needs it and {why}"))
                .hint(Remedy::Verify)
        })
    }
}

impl Visit for Reach<'_> {
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>> {
        let at = self.position(id)?;
        self.own.set(at);
        if !self.seen.reach(at) {
            return Ok(None);
        }
        let (_, location) = self.view.index.at(at)?;
        let mut share = location.stored_share();
        for base in self.view.index.bases(at, &location)? {
            if let Some(base) = self.view.index.position_plain(&base)?
                && self.seen.reach(base)
            {
                share += self.view.index.at(base)?.1.stored_share();
            }
        }
        self.walked_bytes.fetch_add(share, Ordering::Relaxed);
        Ok(Some(location.len))
    }

    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool> {
        Ok(self.seen.enter(self.position(id)?, part))
    }

    fn unread(&self, what: Unread, error: Error) -> Result<()> {
        match (what, error.kind()) {
            // Lost times take no space and have no other effect here.
            (Unread::Times, ErrorKind::Corrupt) => Ok(()),
            _ => Err(error),
        }
    }
}
