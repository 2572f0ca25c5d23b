//! What the destination lacks of some versions, found by one walk over their metadata at the source.
//!
//! Nothing is walked twice, so the cost depends on the unique metadata, which is read in the order in which it was put.
//! Marks are positions in the source's index: half a byte for each chunk of the source. What the destination has is
//! relied on until the commit.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::format::Version;
use crate::graph::{Part, Seen, Visit, Walk};
use crate::id::ChunkId;
use crate::index::{Index, Location, Marks, Position};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::session::Relied;

/// Chunks that could not be read at the source, and why.
pub(super) type Unreadable = HashMap<ChunkId, (ErrorKind, String)>;

static NOTHING_LEFT: LazyLock<HashSet<ChunkId>> = LazyLock::new(HashSet::new);

/// The state of one walk over the versions of a batch.
pub(super) struct Missing<'w> {
    reader: &'w Reader<'w>,
    there: &'w Relied,
    /// Chunks that do not count as missing although `there` does not offer them.
    left: &'w HashSet<ChunkId>,
    /// Versions that reach one of these chunks fail.
    unreadable: &'w Unreadable,
    /// The source's index, whose positions are marked.
    index: Index,
    seen: Seen,
    missing: Marks,
    chunks: AtomicU64,
    raw_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    /// Whether the walk ends at the first missing chunk.
    ends_at_missing: bool,
}

/// Chunks that the destination lacks.
#[derive(Debug)]
pub(super) struct Wants {
    /// The source's index; `missing` are positions in it.
    pub(super) index: Index,
    pub(super) missing: Marks,
    pub(super) chunks: u64,
    pub(super) raw_bytes: u64,
    /// The share of these chunks in their frames.
    pub(super) stored_bytes: u64,
}

/// A wanted delta, and the bases that the destination has in no plain frame.
struct Lone {
    /// How many more bytes it would take as a plain frame, roughly.
    more: u64,
    bases: Vec<Position>,
}

impl Wants {
    /// Adds missing bases where sending them takes fewer bytes than sending their deltas as plain frames. Counts the
    /// other deltas as plain frames. `there` and `left` know what the destination has.
    pub(super) fn add_bases(&mut self, there: &Relied, left: &HashSet<ChunkId>) -> Result<()> {
        let (lone, costs) = self.lone(there, left)?;
        let mut added: HashSet<Position> = costs.keys().copied().collect();
        loop {
            // The deltas that could be sent as they are share the cost of their bases.
            let mut gains: HashMap<Position, u64> = HashMap::new();
            let goes = |delta: &&Lone| delta.bases.iter().all(|base| added.contains(base));
            for delta in lone.iter().filter(goes) {
                let all: u64 = delta.bases.iter().filter_map(|base| costs.get(base)).sum();
                for base in &delta.bases {
                    let own = costs.get(base).copied().unwrap_or_default();
                    let gain = u128::from(delta.more) * u128::from(own) / u128::from(all.max(1));
                    *gains.entry(*base).or_default() += u64::try_from(gain).unwrap_or(u64::MAX);
                }
            }
            let before = added.len();
            added.retain(|base| gains.get(base) > costs.get(base));
            if added.len() == before {
                break;
            }
        }
        for base in &added {
            let (_, location) = self.index.at(*base)?;
            if self.missing.set(*base) {
                self.chunks += 1;
                self.raw_bytes += u64::from(location.len);
                self.stored_bytes += location.stored_share();
            }
        }
        let goes = |delta: &&Lone| delta.bases.iter().all(|base| added.contains(base));
        let plain = lone.iter().filter(|delta| !goes(delta));
        self.stored_bytes += plain.map(|delta| delta.more).sum::<u64>();
        Ok(())
    }

    /// The wanted deltas that lack bases, and the stored bytes of each of these bases.
    fn lone(
        &self,
        there: &Relied,
        left: &HashSet<ChunkId>,
    ) -> Result<(Vec<Lone>, HashMap<Position, u64>)> {
        let (mut lone, mut costs, mut known) = (Vec::new(), HashMap::new(), HashSet::new());
        for (segment, open) in self.index.segments().enumerate() {
            if !open.has_deltas() {
                continue;
            }
            for entry in self.missing.in_segment(segment) {
                let at = Position { segment, entry };
                let (_, location) = self.index.at(at)?;
                let (mut bases, mut raw, mut stored) = (Vec::new(), 0, 0);
                for id in self.index.bases(at, &location)? {
                    let Some(base) = self.index.position_plain(&id)? else {
                        continue;
                    };
                    let (_, place) = self.index.at(base)?;
                    raw += u64::from(place.len);
                    stored += place.stored_share();
                    let is_there = self.missing.has(base)
                        || known.contains(&id)
                        || left.contains(&id)
                        || (!costs.contains_key(&base) && there.is_base_offered(&id)?);
                    if is_there {
                        known.insert(id);
                    } else {
                        costs.insert(base, place.stored_share());
                        bases.push(base);
                    }
                }
                if !bases.is_empty() {
                    bases.dedup();
                    let plain =
                        u128::from(location.len) * u128::from(stored) / u128::from(raw.max(1));
                    let plain = u64::try_from(plain).unwrap_or(u64::MAX);
                    let more = plain.saturating_sub(location.stored_share());
                    lone.push(Lone { more, bases });
                }
            }
        }
        Ok((lone, costs))
    }

    /// Whether a chunk is sent in a plain frame. If it turns out to be unreadable, versions that need it as a base are
    /// not published either.
    pub(super) fn brings_plain(&self, id: &ChunkId) -> Result<bool> {
        let at = self.index.position_plain(id)?;
        Ok(at.is_some_and(|at| self.missing.has(at)))
    }
}

impl<'w> Missing<'w> {
    /// Starts a walk; `reader` must read its own newest state.
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

    /// The same walk; chunks in `left` do not count as missing.
    pub(super) fn beside(self, left: &'w HashSet<ChunkId>) -> Self {
        Self { left, ..self }
    }

    /// Missing chunks so far.
    pub(super) fn chunks(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed)
    }

    /// Stored bytes of missing chunks so far.
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

    /// Walks a version. Looks up every chunk, even if the destination has a similar version: that may have lost chunks
    /// to damage.
    ///
    /// # Errors
    /// Not found or corrupt, naming what cannot be read.
    pub(super) fn version(&self, version: &Version) -> Result<()> {
        Walk::in_order(self.reader, self).version(version)
    }

    /// Returns the walk if the destination has all of a version. Otherwise none: the walk is of no more use.
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

/// Whether an error is about one version, rather than about a store that does not answer.
pub(super) fn is_its_own(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Unsupported
    )
}
