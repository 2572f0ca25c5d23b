//! What a store still has of versions that were dropped.
//!
//! A chunk of them may be live again in another pack, or in a pack that was condemned and is not deleted yet. What is
//! gone was deleted by a collector, or is lost: the log tells which, as far as it knows.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::missing::is_its_own;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Condemned, RefName, SegmentPack, State, pack_key, segment_key};
use crate::graph::{Part, Unread, Visit, Walk};
use crate::id::{ChunkId, PackId};
use crate::index::{Index, Position};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::remote::Read;
use crate::sound::mend;
use crate::store::{Store, View};

/// Dropped versions, and what may still hold their bytes.
pub(super) struct Remains<'s> {
    /// The store as it was, which does not follow its log.
    pub(super) before: &'s Store,
    /// Its state then.
    pub(super) was: &'s State,
    /// The state of today.
    pub(super) now: &'s State,
}

/// Notes the packs that a version needs and that are missing.
struct Missing<'m> {
    remote: &'m dyn Read,
    /// What is still there.
    index: &'m Index,
    /// The same segments, as if no pack was condemned.
    all: &'m Index,
    chunks: Mutex<HashSet<ChunkId>>,
    entered: Mutex<HashSet<(ChunkId, Part)>>,
    /// Whether a pack is there.
    packs: Mutex<HashMap<PackId, bool>>,
    /// Whether no segment names a chunk any more.
    has_nameless: AtomicBool,
}

impl Remains<'_> {
    /// The refs of then over all that is still there: live segments, those of then, and every pack that exists.
    ///
    /// # Errors
    /// When the store does not answer, or a segment cannot be read.
    pub(super) fn all(&self) -> Result<State> {
        let mut state = self.unforgotten()?;
        let is_as_now = state.segments.len() == self.now.segments.len();
        if is_as_now && self.now.condemned.is_empty() {
            return Ok(state);
        }
        let index = self.before.open_index(&state, &Index::default())?;
        let live = self.live_packs(&index);
        let packs: HashMap<PackId, SegmentPack> =
            index.packs().map(|pack| (pack.id, pack)).collect();
        let is_doubtful = |pack: &SegmentPack| !live.contains(&pack.id);
        let doubtful: Vec<SegmentPack> = packs.values().copied().filter(is_doubtful).collect();
        let gone = mend::broken(self.before.remote().as_ref(), &doubtful, packs.len())?;
        let unknown = Condemned {
            entry: self.now.number,
            time: Timestamp::UNIX_EPOCH,
        };
        let condemned = |pack| (pack, *self.now.condemned.get(&pack).unwrap_or(&unknown));
        state.condemned = gone.into_iter().map(condemned).collect();
        Ok(state)
    }

    /// The refs of then over what `now` offers, as any put finds it.
    pub(super) fn live(&self, now: &State) -> State {
        State {
            refs: self.was.refs.clone(),
            ..now.clone()
        }
    }

    /// The error about a version that cannot be read: whether its bytes were deleted, or are lost.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) fn why(&self, name: &RefName, number: u64, error: Error) -> Result<Error> {
        let (state, unforgotten) = (self.all()?, self.unforgotten()?);
        let (_, version) = self.was.version(name, Some(number))?;
        let all = self.before.open_index(&unforgotten, &Index::default())?;
        let view = View {
            index: all.clone().at_state(&state)?,
            state,
        };
        let reader = Reader::at(self.before, view.clone());
        let missing = Missing {
            remote: self.before.remote().as_ref(),
            index: &view.index,
            all: &all,
            chunks: Mutex::default(),
            entered: Mutex::default(),
            packs: Mutex::default(),
            has_nameless: AtomicBool::new(false),
        };
        Walk::in_order(&reader, &missing).version(&version)?;
        Ok(self.told(&missing, &self.live_packs(&all), error))
    }

    fn told(&self, missing: &Missing<'_>, live: &HashSet<PackId>, error: Error) -> Error {
        let packs = lock(&missing.packs);
        let gone: BTreeSet<PackId> = (packs.iter())
            .filter(|(_, is_there)| !**is_there)
            .map(|(pack, _)| *pack)
            .collect();
        let condemned = |pack: &&PackId| self.now.condemned.contains_key(pack);
        let is_forgotten = |pack: &PackId| !live.contains(pack) && !condemned(&pack);
        if missing.has_nameless.load(Ordering::Relaxed) || gone.iter().any(is_forgotten) {
            return collected(&error);
        }
        if let Some(pack) = gone.iter().find(condemned) {
            let entry = self.now.condemned.get(pack).map_or(0, |gone| gone.entry);
            return Error::not_found(format!(
                "its bytes are gone: {} is missing, which log entry {entry} condemned: a collector has deleted it, or it was lost",
                pack_key(*pack)
            ))
            .hint(Remedy::VerifyThenPut);
        }
        match gone.first() {
            Some(pack) => Error::corrupt(format!(
                "its bytes are lost: {} is missing, and no collector has deleted it",
                pack_key(*pack)
            ))
            .hint(Remedy::VerifyThenPut),
            None => error,
        }
    }

    /// The refs of then over the live segments, and those of then whose objects are still there; nothing is condemned.
    fn unforgotten(&self) -> Result<State> {
        let mut state = self.live(self.now);
        state.condemned = BTreeMap::new();
        let remote = self.before.remote().as_ref();
        let dropped = |id| self.now.dropped.contains_key(id);
        for (id, info) in self.was.segments.iter().filter(|(id, _)| dropped(*id)) {
            if is_there(remote, &segment_key(*id))? {
                state.segments.insert(*id, *info);
            }
        }
        Ok(state)
    }

    /// The packs that live segments name and that are not condemned.
    fn live_packs(&self, index: &Index) -> HashSet<PackId> {
        let now = self.now;
        let live = index.segments();
        let live = live.filter(|segment| now.segments.contains_key(&segment.id));
        let packs = live.flat_map(|segment| segment.packs()).map(|pack| pack.id);
        packs
            .filter(|pack| !now.condemned.contains_key(pack))
            .collect()
    }
}

/// The error about bytes that a collector has deleted.
pub(super) fn collected(error: &Error) -> Error {
    Error::not_found(format!(
        "its bytes are gone: a collector has given the space back ({error})"
    ))
}

impl Missing<'_> {
    fn look(&self, index: &Index, at: Position) -> Result<()> {
        let (_, location) = index.at(at)?;
        self.look_for(location.pack)?;
        for base in index.bases(at, &location)? {
            match index.position_plain(&base)? {
                Some(base) => self.look_for(index.at(base)?.1.pack)?,
                None => self.has_nameless.store(true, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    fn look_for(&self, pack: PackId) -> Result<()> {
        let mut packs = lock(&self.packs);
        if let Entry::Vacant(new) = packs.entry(pack) {
            new.insert(is_there(self.remote, &pack_key(pack))?);
        }
        Ok(())
    }
}

impl Visit for Missing<'_> {
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>> {
        if !lock(&self.chunks).insert(*id) {
            return Ok(None);
        }
        if let Some(at) = self.index.position(id)? {
            self.look(self.index, at)?;
            return Ok(Some(self.index.at(at)?.1.len));
        }
        match self.all.position(id)? {
            Some(at) => self.look(self.all, at)?,
            None => self.has_nameless.store(true, Ordering::Relaxed),
        }
        Ok(None)
    }

    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool> {
        Ok(lock(&self.entered).insert((*id, part)))
    }

    fn unread(&self, _what: Unread, error: Error) -> Result<()> {
        match is_its_own(&error) {
            true => Ok(()),
            false => Err(error),
        }
    }
}

fn is_there(remote: &dyn Read, key: &str) -> Result<bool> {
    match remote.size(key) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => Ok(false),
        Err(error) => Err(error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
