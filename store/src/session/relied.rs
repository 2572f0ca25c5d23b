//! What one pass relies on: chunks that it deduplicated against, chunks that it committed itself, and whole versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Root, State};
use crate::graph::{Part, Seen, Visit, Walk};
use crate::id::{ChunkId, PackId, PassId, SegmentId};
use crate::index::{Index, OpenSegment};
use crate::read::Reader;
use crate::store::{Store, View};

/// Everything that one pass relies on.
#[derive(Debug)]
pub(crate) struct Relied {
    /// Every index that was used, the newest last. Marks in older ones count, too.
    indexes: RwLock<Vec<Arc<Index>>>,
    /// Everything below these roots is relied on without marks.
    bases: Mutex<Vec<Root>>,
    /// Segments that this pass wrote.
    own: Mutex<Vec<SegmentId>>,
}

impl Relied {
    /// Starts with nothing; chunks are looked up in `index`.
    pub(crate) fn new(index: Index) -> Self {
        Self {
            indexes: RwLock::new(vec![Arc::new(index)]),
            bases: Mutex::default(),
            own: Mutex::default(),
        }
    }

    /// Whether a live segment offers this chunk; marks it.
    pub(crate) fn is_offered(&self, id: &ChunkId) -> Result<bool> {
        Ok(self.index().rely(id)?.is_some())
    }

    /// The same for the base of a delta, which must be in a plain frame.
    pub(crate) fn is_base_offered(&self, id: &ChunkId) -> Result<bool> {
        self.index().rely_on_plain(id)
    }

    /// Relies on everything below `base`, the root of a live version.
    pub(crate) fn count_on(&self, base: Root) {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        bases.push(base);
    }

    /// The index in which chunks are looked up.
    pub(crate) fn index(&self) -> Arc<Index> {
        let indexes = self.indexes.read().unwrap_or_else(PoisonError::into_inner);
        indexes.last().map(Arc::clone).unwrap_or_default()
    }

    /// The packs of all marked chunks, except those that this pass wrote itself.
    pub(crate) fn packs(&self) -> Result<BTreeSet<PackId>> {
        let indexes = self.indexes.read().unwrap_or_else(PoisonError::into_inner);
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut packs = BTreeSet::new();
        for index in indexes.iter() {
            index.relied_packs(&own, &mut packs)?;
        }
        Ok(packs)
    }

    /// The segments that the pass relies on: all segments, if it relies on whole versions.
    pub(crate) fn segments(&self) -> Vec<Arc<OpenSegment>> {
        let all = self.has_bases();
        let indexes = self.indexes.read().unwrap_or_else(PoisonError::into_inner);
        let newest = indexes.len().saturating_sub(1);
        let mut segments = BTreeMap::new();
        for (at, index) in indexes.iter().enumerate() {
            let relied = index
                .segments()
                .filter(|segment| segment.relied_chunks() > 0 || (all && at == newest));
            segments.extend(relied.map(|segment| (segment.id, Arc::clone(segment))));
        }
        segments.into_values().collect()
    }

    /// Whether the pass relies on whole versions, without marks at their chunks.
    pub(crate) fn has_bases(&self) -> bool {
        let bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        !bases.is_empty()
    }

    /// Takes over the index after an own commit, and relies on all of `segment`, which this pass wrote.
    pub(super) fn committed(&self, index: Index, segment: Option<SegmentId>) {
        if let Some(segment) = segment {
            index.rely_on_all(segment);
            let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
            own.push(segment);
        }
        let mut indexes = self.indexes.write().unwrap_or_else(PoisonError::into_inner);
        indexes.push(Arc::new(index));
    }

    /// Passes that end together with this one: those of whose live segments it relies on at least half. A few common
    /// chunks mean nothing, since the other pass may still be under way.
    pub(super) fn ended(&self, state: &State) -> Vec<PassId> {
        let index = self.index();
        let mut known: BTreeMap<PassId, (u64, u64)> = BTreeMap::new();
        for segment in index.segments() {
            let info = state.segments.get(&segment.id);
            if let Some(pass) = info.and_then(|info| info.pass) {
                let (relied, chunks) = known.entry(pass).or_default();
                *relied += segment.relied_chunks();
                *chunks += segment.layout().chunks();
            }
        }
        let most = known
            .into_iter()
            .filter(|(_, (relied, chunks))| relied * 2 >= *chunks);
        most.map(|(pass, _)| pass).collect()
    }

    /// Whether `now` still offers the marked chunks.
    pub(super) fn marked_are_offered_by(&self, now: &Index) -> Result<bool> {
        let indexes = self.indexes.read().unwrap_or_else(PoisonError::into_inner);
        for index in indexes.iter() {
            if !index.still_offered(now)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether `now` still offers everything that the pass relies on.
    pub(crate) fn is_offered_by(&self, store: &Store, now: &View) -> Result<bool> {
        if !self.marked_are_offered_by(&now.index)? {
            return Ok(false);
        }
        let bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if bases.is_empty() {
            return Ok(true);
        }
        // Even a live version may lack chunks by now, since a repair gives up damaged ones.
        let reader = Reader::at(store, now.clone());
        for base in bases.iter() {
            let is_offered = match all_offered(&reader, &now.index, base) {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {
                    false
                }
                outcome => outcome?,
            };
            if !is_offered {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether `index` offers every chunk below `root`.
pub(crate) fn all_offered(reader: &Reader<'_>, index: &Index, root: &Root) -> Result<bool> {
    let offered = Offered {
        index,
        seen: Seen::new(index),
        lacks: AtomicBool::new(false),
    };
    match Walk::in_order(reader, &offered).root(root) {
        Err(_) if offered.lacks.into_inner() => Ok(false),
        walked => walked.map(|()| true),
    }
}

/// Looks for the first chunk that an index lacks.
struct Offered<'o> {
    index: &'o Index,
    seen: Seen,
    lacks: AtomicBool,
}

impl Visit for Offered<'_> {
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>> {
        let Some(at) = self.index.position(id)? else {
            self.lacks.store(true, Ordering::Relaxed);
            return Err(Error::not_found(format!("chunk {id}: is not offered")));
        };
        let is_new = self.seen.reach(at);
        is_new.then(|| Ok(self.index.at(at)?.1.len)).transpose()
    }

    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool> {
        Ok(match self.index.position(id)? {
            Some(at) => self.seen.enter(at, part),
            None => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{PACKS_PREFIX, Who};
    use crate::progress::Unwatched;
    use crate::put::{PutRequest, put};
    use crate::remote::testing::faulty::Faults;
    use crate::remote::{Faulty, Objects, Prune as _, Read as _, Write as _};
    use crate::store::Host;

    /// A chunk of a version may be named by a segment and still be damaged. A store that does not answer says nothing
    /// about it.
    #[test]
    fn a_version_whose_trees_cannot_be_read_is_not_offered() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("source")).unwrap();
        std::fs::write(dir.path().join("source/file"), "some bytes").unwrap();
        let memory = Arc::new(Objects::memory());
        let remote = Arc::new(Faulty::new(memory.clone(), Faults::default()));
        let host = Host {
            cache_dir: None,
            who: Who::default(),
            memory_bytes: 32 << 20,
            threads: 2,
            stop: Arc::default(),
        };
        let store = Store::init(remote.clone(), host).unwrap();
        let name = "team/t/r".parse().unwrap();
        let request = PutRequest::new(dir.path().join("source"), name);
        put(&store, &request, &Unwatched).unwrap();
        let view = store.view().unwrap();
        let (_, version) = view.state.version(&request.target, None).unwrap();
        let relied = Relied::new(view.index.clone());
        let is_offered = || relied.is_offered_by(&store, &view);
        assert!(is_offered().unwrap());
        relied.count_on(version.root);
        assert!(is_offered().unwrap());
        remote.set(Faults {
            before: 1000,
            ..Faults::default()
        });
        assert_eq!(is_offered().unwrap_err().kind(), ErrorKind::Unavailable);
        remote.set(Faults::default());
        for info in memory.list(PACKS_PREFIX).unwrap() {
            let bytes = memory.get(&info.key).unwrap();
            let flipped: Vec<u8> = bytes.iter().map(|byte| byte ^ 1).collect();
            memory.put(&info.key, flipped.into()).unwrap();
        }
        assert!(!is_offered().unwrap(), "damaged");
        for info in memory.list(PACKS_PREFIX).unwrap() {
            memory.delete(&[info.key]).unwrap();
        }
        assert!(!is_offered().unwrap(), "gone");
    }
}
