//! What the destination lacks of some versions: one walk over their metadata at the source.
//!
//! What was seen once is not walked again, so the cost follows the unique metadata, which is read in the order
//! in which it was put. Marks are positions in the source's index: half a byte for each chunk of the source.
//! What the destination has is counted on until the commit.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Kind, Result};
use crate::format::Version;
use crate::graph::{Part, Seen, Visit, Walk};
use crate::id::ChunkId;
use crate::index::{Index, Location, Marks};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::session::Relied;

/// Chunks that could not be had from the source, and why.
pub(super) type Unreadable = HashMap<ChunkId, (Kind, String)>;

static NOTHING_LEFT: LazyLock<HashSet<ChunkId>> = LazyLock::new(HashSet::new);

/// What one walk over the versions of a batch has met.
pub(super) struct Missing<'w> {
    reader: &'w Reader<'w>,
    there: &'w Relied,
    /// What is not to be counted although `there` does not offer it.
    left: &'w HashSet<ChunkId>,
    /// Versions that reach one of these fail.
    unreadable: &'w Unreadable,
    /// The source's index, of which positions are marked.
    index: Index,
    seen: Seen,
    missing: Marks,
    chunks: AtomicU64,
    raw_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    /// Whether a chunk that is missing ends the walk.
    ends_at_missing: bool,
}

/// Chunks that the destination lacks.
#[derive(Debug)]
pub(super) struct Wants {
    /// The source's index, of which `missing` are positions.
    pub(super) index: Index,
    pub(super) missing: Marks,
    pub(super) chunks: u64,
    pub(super) raw_bytes: u64,
    /// Their share of their frames.
    pub(super) stored_bytes: u64,
}

impl Wants {
    /// Whether a chunk goes over as it lies in a plain frame. Where it turns out that it cannot be read, versions that
    /// need it as a base are not published either.
    pub(super) fn brings_plain(&self, id: &ChunkId) -> Result<bool> {
        let at = self.index.position_plain(id)?;
        Ok(at.is_some_and(|at| self.missing.has(at)))
    }
}

impl<'w> Missing<'w> {
    /// Nothing walked so far; what `reader` reads must be of its own newest state.
    pub(super) fn new(
        reader: &'w Reader<'w>,
        there: &'w Relied,
        unreadable: &'w Unreadable,
    ) -> Self {
        let index = reader.view().index.clone();
        Self {
            reader,
            there,
            left: &NOTHING_LEFT,
            unreadable,
            seen: Seen::new(&index),
            missing: index.marks(),
            index,
            chunks: AtomicU64::new(0),
            raw_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
            ends_at_missing: false,
        }
    }

    /// The same, to which `left` is not missing.
    pub(super) fn beside(self, left: &'w HashSet<ChunkId>) -> Self {
        Self { left, ..self }
    }

    /// Chunks that are missing by now.
    pub(super) fn chunks(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed)
    }

    /// Stored bytes that are missing by now.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn finish(self) -> Wants {
        Wants {
            index: self.index,
            missing: self.missing,
            chunks: self.chunks.into_inner(),
            raw_bytes: self.raw_bytes.into_inner(),
            stored_bytes: self.stored_bytes.into_inner(),
        }
    }

    /// Walks a version. Every chunk of it is looked up, also where the destination has a version that is much the
    /// same: that one may have lost chunks to damage.
    ///
    /// # Errors
    /// Not found or corrupt, naming what cannot be read.
    pub(super) fn version(&self, version: &Version) -> Result<()> {
        Walk::in_order(self.reader, self).version(version)
    }

    /// Itself, when the destination has all of a version; else none, since it is of no more use.
    ///
    /// # Errors
    /// When a store does not answer.
    pub(super) fn complete(mut self, version: &Version) -> Result<Option<Self>> {
        self.ends_at_missing = true;
        match self.version(version) {
            Ok(()) => Ok(Some(self)),
            Err(_) if self.chunks.load(Ordering::Relaxed) > 0 => Ok(None),
            Err(error) if is_its_own(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn want(&self, id: &ChunkId, location: &Location) -> Result<()> {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.raw_bytes
            .fetch_add(location.len.into(), Ordering::Relaxed);
        self.stored_bytes
            .fetch_add(location.stored_share(), Ordering::Relaxed);
        match self.ends_at_missing {
            true => Err(Error::not_found(format!("chunk {id}: is not there yet"))),
            false => Ok(()),
        }
    }
}

impl Visit for Missing<'_> {
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>> {
        if let Some((kind, why)) = self.unreadable.get(id) {
            return Err(Error::new(*kind, why.clone()));
        }
        let Some(at) = self.index.position(id)? else {
            return Err(Error::not_found(format!(
                "chunk {id}: no live segment of the source offers it"
            ))
            .hint(Remedy::VerifySource));
        };
        if !self.seen.reach(at) {
            return Ok(None);
        }
        let (_, location) = self.index.at(at)?;
        for base in self.index.bases(at, &location)? {
            if let Some((kind, why)) = self.unreadable.get(&base) {
                return Err(Error::new(*kind, why.clone()));
            }
        }
        let is_there = self.left.contains(id) || self.there.is_offered(id)?;
        if !is_there && self.missing.set(at) {
            self.want(id, &location)?;
        }
        Ok(Some(location.len))
    }

    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool> {
        let at = self.index.position(id)?;
        Ok(at.is_some_and(|at| self.seen.enter(at, part)))
    }
}

/// Whether an error says something about one version, rather than about a store that does not answer.
pub(super) fn is_its_own(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::NotFound | Kind::Corrupt | Kind::Unsupported
    )
}
