//! Mark: which chunks of a state the live versions reach, as one bit for each chunk.
//!
//! It fails closed: anything that cannot be read is an error that names it, never an empty tree. What was seen once is
//! not walked again, so the cost depends on the unique metadata.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use store::format::Version;
use store::graph::{Part, Seen, Unread, Visit, Walk};
use store::index::{Index, Location, Marks, Position};
use store::read::Reader;
use store::{ChunkId, Error, Kind, Remedy, Result, Store, View};

/// The marks of one state, and what it takes to add to them.
#[derive(Debug)]
pub struct Marker<'s> {
    store: &'s Store,
    /// The index that the marks are positions of.
    index: Index,
    seen: Seen,
    stored_bytes: AtomicU64,
    /// Chunks that a version reached which was dropped: those reached all the same are shared.
    watched: Option<Marks>,
    watched_bytes: AtomicU64,
}

/// Marks what a walk meets, and checks it against a newer index.
struct After<'w, 's> {
    marker: &'w Marker<'s>,
    /// The index after a commit that is about to be made.
    index: &'w Index,
    /// Chunks that only segments newer than the marks hold.
    newer: Mutex<HashSet<(ChunkId, Part)>>,
}

/// Marks what can be read, and goes on where something cannot.
struct AsFarAsPossible<'w, 's>(&'w Marker<'s>);

impl<'s> Marker<'s> {
    /// Nothing marked, in the index of `view`.
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

    /// Counts from now on what is newly reached of `watched`, marks of the same index.
    #[must_use]
    pub fn watching(mut self, watched: Marks) -> Self {
        self.watched = Some(watched);
        self
    }

    /// Marks all that `version` reaches; `name` stands in errors.
    ///
    /// # Errors
    /// Corrupt or not found, naming what cannot be read; interrupted on request.
    pub fn version(&self, reader: &Reader<'_>, name: &str, version: &Version) -> Result<()> {
        let walked = Walk::parallel(reader, self).version(version);
        walked.map_err(|error| error.within(name))
    }

    /// Marks all that `version` reaches beyond what is marked, and makes sure that `after` offers all
    /// of that: for versions that appeared while a plan was carried out.
    ///
    /// # Errors
    /// Conflict, when `after` lacks a chunk; else as [`Self::version`].
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

    /// The chunks reached.
    pub fn reached(&self) -> &Marks {
        self.seen.reached()
    }

    /// The index that positions belong to.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Stored bytes of the chunks reached so far: their share of their frames.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// The same, of the watched ones only.
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

    /// Marks a chunk of its own index as reached; where it lies, when it was not marked before.
    fn reach(&self, at: Position) -> Result<Option<Location>> {
        if !self.seen.reach(at) {
            return Ok(None);
        }
        let (_, location) = self.index.at(at)?;
        self.count(at, &location);
        // Whatever needs a delta needs its bases, if they are plain.
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

    /// The list of times is no part of what a version is, so one that is lost holds up nothing: what is left of it
    /// helps nobody. Anything else ends the mark.
    fn unread(&self, what: Unread, error: Error) -> Result<()> {
        if what != Unread::Times || error.kind() != Kind::Corrupt {
            return Err(error);
        }
        let lost = format!("times of a version are lost: {error}");
        self.store.warn(Error::corrupt(lost));
        Ok(())
    }
}

impl After<'_, '_> {
    /// Where a chunk is after the commit. If that is in a delta, what is done next must leave its bases, too.
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

    /// What is gone already is not held by anybody: the error says no more than that.
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
        // No more than that can be had, and it is for people.
        drop(Walk::in_order(reader, &AsFarAsPossible(&marker)).version(version));
    }
    marker.seen.into_reached()
}

/// Whether an error may be the work of another collector rather than damage. What is missing below a live version
/// counts as corrupt, and so does what a quicker collector has moved: only a state that stood still tells them apart.
pub(crate) fn may_be_moved(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::NotFound | Kind::Conflict | Kind::Corrupt
    )
}
