//! Mark: which chunks of a state its live versions reach, as one bit per chunk.
//!
//! It fails closed: anything that cannot be read is an error that names it, never an empty tree. Nothing is walked
//! twice, so the cost depends on the unique metadata.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use store::format::Version;
use store::graph::{Part, Seen, Unread, Visit, Walk};
use store::index::{Index, Location, Marks, Position};
use store::read::Reader;
use store::{ChunkId, Error, ErrorKind, Remedy, Result, Store, View};

/// The marks of one state, and what is needed to add marks.
#[derive(Debug)]
pub struct Marker<'s> {
    store: &'s Store,
    /// The index; marks are positions in it.
    index: Index,
    seen: Seen,
    stored_bytes: AtomicU64,
    /// Chunks that dropped versions reach. If a live version reaches them as well, they are shared.
    watched: Option<Marks>,
    watched_bytes: AtomicU64,
}

/// Marks what a walk meets, and checks it against a newer index.
struct After<'w, 's> {
    marker: &'w Marker<'s>,
    /// The index after a commit that is about to be made.
    index: &'w Index,
    /// Chunks that only segments newer than the marks have.
    newer: Mutex<HashSet<(ChunkId, Part)>>,
}

/// Marks what can be read, and ignores what cannot.
struct AsFarAsPossible<'w, 's>(&'w Marker<'s>);

impl<'s> Marker<'s> {
    /// Starts without marks, for the index of `view`.
    pub fn new(store: &'s Store, view: &View) -> Self {
        let index = view.index.clone();
        Self {
            store,
            seen: Seen::new(&index),
            index,
            stored_bytes: AtomicU64::new(0),
            watched: None,
            watched_bytes: AtomicU64::new(0),
        }
    }

    /// Makes the marker count the bytes of chunks in `watched` that it reaches from now on. `watched` must be of its
    /// index.
    #[must_use]
    pub fn watching(mut self, watched: Marks) -> Self {
        self.watched = Some(watched);
        self
    }

    /// Marks everything that `version` reaches; errors mention `name`.
    ///
    /// # Errors
    /// Corrupt or not found, naming what cannot be read; interrupted on request.
    pub fn version(&self, reader: &Reader<'_>, name: &str, version: &Version) -> Result<()> {
        let walked = Walk::parallel(reader, self).version(version);
        walked.map_err(|error| error.within(name))
    }

    /// Marks everything that `version` reaches beyond the existing marks, and checks that `after` offers it: for
    /// versions that appeared while a plan was carried out.
    ///
    /// # Errors
    /// Conflict, when `after` lacks a chunk; otherwise as [`Self::version`].
    pub fn version_in(
        &self,
        reader: &Reader<'_>,
        name: &str,
        version: &Version,
        after: &Index,
    ) -> Result<()> {
        let after = After {
            marker: self,
            index: after,
            newer: Mutex::default(),
        };
        let walked = Walk::parallel(reader, &after).version(version);
        walked.map_err(|error| error.within(name))
    }

    /// Whether any live version reaches the chunk at `position`.
    pub fn has(&self, position: Position) -> bool {
        self.seen.reached().has(position)
    }

    /// The marked chunks.
    pub fn reached(&self) -> &Marks {
        self.seen.reached()
    }

    /// The index that positions belong to.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Stored bytes of the marked chunks: their share of their frames.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// The same for watched chunks only.
    pub fn watched_bytes(&self) -> u64 {
        self.watched_bytes.load(Ordering::Relaxed)
    }

    fn count(&self, position: Position, location: &Location) {
        let share = location.stored_share();
        self.stored_bytes.fetch_add(share, Ordering::Relaxed);
        if self
            .watched
            .as_ref()
            .is_some_and(|watched| watched.has(position))
        {
            self.watched_bytes.fetch_add(share, Ordering::Relaxed);
        }
    }

    /// Marks a chunk of the index. Returns its location, if it was not marked before.
    fn reach(&self, at: Position) -> Result<Option<Location>> {
        if !self.seen.reach(at) {
            return Ok(None);
        }
        let (_, location) = self.index.at(at)?;
        self.count(at, &location);
        // Whatever needs a delta needs its bases, too, if they are plain.
        for base in self.index.bases(at, &location)? {
            self.reach_base(&base)?;
        }
        Ok(Some(location))
    }

    fn reach_base(&self, base: &ChunkId) -> Result<()> {
        let Some(at) = self.index.position_plain(base)? else {
            return Ok(());
        };
        if self.seen.reach(at) {
            let (_, location) = self.index.at(at)?;
            self.count(at, &location);
        }
        Ok(())
    }
}

impl Visit for Marker<'_> {
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>> {
        let at = self.index.position(id)?.ok_or_else(|| {
            let why = self.index.lack(id);
            Error::corrupt(format!("chunk {id}: a live version needs it and {why}"))
                .hint(Remedy::VerifyThenRepair)
        })?;
        Ok(self.reach(at)?.map(|location| location.len))
    }

    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool> {
        let at = self.index.position(id)?;
        Ok(at.is_none_or(|at| self.seen.enter(at, part)))
    }

    /// Warns of a lost list of times, which is no part of a version's identity: what is left of the list helps nobody.
    /// Any other error ends the mark.
    fn unread(&self, what: Unread, error: Error) -> Result<()> {
        if what != Unread::Times || error.kind() != ErrorKind::Corrupt {
            return Err(error);
        }
        let lost = format!("times of a version are lost: {error}");
        self.store.warn(Error::corrupt(lost));
        Ok(())
    }
}

impl After<'_, '_> {
    /// The location of a chunk after the commit. If it is in a delta, later steps must keep its bases, too.
    fn newer(&self, id: &ChunkId) -> Result<Location> {
        let taken = || {
            Error::conflict(format!(
                "chunk {id}: a newer version needs it, and the plan takes it"
            ))
        };
        let at = self.index.position(id)?.ok_or_else(taken)?;
        let (_, location) = self.index.at(at)?;
        for base in self.index.bases(at, &location)? {
            self.marker.reach_base(&base)?;
        }
        Ok(location)
    }
}

impl Visit for After<'_, '_> {
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>> {
        let Some(at) = self.marker.index.position(id)? else {
            return Ok(Some(self.newer(id)?.len));
        };
        let Some(location) = self.marker.reach(at)? else {
            return Ok(None);
        };
        self.newer(id)?;
        Ok(Some(location.len))
    }

    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool> {
        if self.marker.index.position(id)?.is_some() {
            return self.marker.enter(id, part);
        }
        let mut newer = self.newer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(newer.insert((*id, part)))
    }

    fn unread(&self, what: Unread, error: Error) -> Result<()> {
        self.marker.unread(what, error)
    }
}

impl Visit for AsFarAsPossible<'_, '_> {
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>> {
        Ok(match self.0.index.position(id)? {
            Some(at) => self.0.reach(at)?.map(|location| location.len),
            None => None,
        })
    }

    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool> {
        self.0.enter(id, part)
    }

    /// Ignores what cannot be read: nothing can be shared with it.
    fn unread(&self, _what: Unread, _error: Error) -> Result<()> {
        Ok(())
    }
}

/// What `versions` still reach, as far as it can be read: for reports, never for plans.
pub(crate) fn reached_by<'v>(
    store: &Store,
    reader: &Reader<'_>,
    view: &View,
    versions: impl Iterator<Item = &'v Version>,
) -> Marks {
    let marker = Marker::new(store, view);
    for version in versions {
        // Errors are ignored, since the result is for people only.
        drop(Walk::in_order(reader, &AsFarAsPossible(&marker)).version(version));
    }
    marker.seen.into_reached()
}

/// Whether an error may be caused by another collector rather than by damage. A chunk that a live version lacks counts
/// as corrupt, even if a faster collector has moved it: only a state that has not changed tells the two apart.
pub(crate) fn may_be_moved(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Corrupt
    )
}
