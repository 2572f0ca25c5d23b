//! Publishing: finished packs become segments, then one log entry, safely beside collectors.
//!
//! What a pipeline counted on (chunks that it deduplicated against, versions that it took as a base)
//! must still be offered at the entry that is being added, and no pack of its own may have been
//! condemned. Where that does not hold the pass is stale: the pipeline begins anew, at a newer state.
//! Never looks at what the packs hold.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::error::{Error, Kind, Result};
use crate::format::{Change, LogEntry, Node, PackHeader, PackTable, Root, State};
use crate::id::{ChunkId, PackId, SegmentId};
use crate::index::Index;
use crate::log::{self, Committed};
use crate::pack::{SegmentBuilder, WrittenPack};
use crate::policy;
use crate::read::Reader;
use crate::store::{Store, View};

/// Bytes of packs after which their segment is committed, so that a pass that is killed resumes there.
const COMMIT_BYTES: u64 = 4 << 30;
/// Chunks after which their segment is committed, so that memory stays bounded. Few in tests, so that a
/// pass commits as it goes.
const COMMIT_CHUNKS: usize = if cfg!(test) { 20 } else { 1 << 18 };

/// What one pass counts on to stay.
#[derive(Debug)]
pub(crate) struct Relied {
    /// Every index that was used, the newest last: marks in older ones count too.
    indexes: RwLock<Vec<Arc<Index>>>,
    /// The chunks below these are counted on without a mark at each.
    bases: Mutex<Vec<Root>>,
}

/// What one pass has written.
pub(crate) struct Publication<'p> {
    store: &'p Store,
    relied: &'p Relied,
    written: Mutex<Written>,
}

/// What became of a commit.
pub(crate) enum Published {
    /// The entry is in the log.
    Entry(Committed),
    /// There was nothing to change.
    Nothing,
    /// A collector took what the pass had counted on.
    Stale,
}

struct Written {
    /// The state of the newest commit, or the one that the pass began with.
    view: View,
    /// Durable packs in no segment yet.
    packs: SegmentBuilder,
    /// Whether an entry since the pass began has condemned packs or dropped segments.
    must_check: bool,
    /// Whether a collector took something that this pass needs.
    is_stale: bool,
}

impl Relied {
    /// Nothing so far; chunks are looked up in `index`.
    pub(crate) fn new(index: Index) -> Self {
        Self {
            indexes: RwLock::new(vec![Arc::new(index)]),
            bases: Mutex::default(),
        }
    }

    /// Whether a live segment offers this chunk; marks it.
    pub(crate) fn is_offered(&self, id: &ChunkId) -> Result<bool> {
        Ok(self.index().rely(id)?.is_some())
    }

    /// Counts on everything below `base`, the root of a live version.
    pub(crate) fn count_on(&self, base: Root) {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        bases.push(base);
    }

    /// The index that chunks are looked up in.
    pub(crate) fn index(&self) -> Arc<Index> {
        let indexes = self.indexes.read().unwrap_or_else(PoisonError::into_inner);
        indexes.last().map(Arc::clone).unwrap_or_default()
    }

    /// Takes over the index after a commit of our own, and counts on all of its `segment`.
    fn committed(&self, index: Index, segment: SegmentId) {
        index.rely_on_all(segment);
        let mut indexes = self.indexes.write().unwrap_or_else(PoisonError::into_inner);
        indexes.push(Arc::new(index));
    }

    /// Whether all that is counted on is still offered by `now`.
    fn is_offered_by(&self, store: &Store, now: &View) -> Result<bool> {
        let indexes = self.indexes.read().unwrap_or_else(PoisonError::into_inner);
        for index in indexes.iter() {
            if !index.still_offered(&now.index)? {
                return Ok(false);
            }
        }
        let bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if bases.is_empty() {
            return Ok(true);
        }
        // Also a live version may lack chunks by now: a repair gives up what is damaged.
        let reader = Reader::at(store, now.clone());
        for base in bases.iter() {
            let is_offered = match all_offered(&reader, &now.index, &(*base).into()) {
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt) => false,
                outcome => outcome?,
            };
            if !is_offered {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<'p> Publication<'p> {
    /// Nothing written so far; `view` is the state that the pass begins with.
    pub(crate) fn new(store: &'p Store, relied: &'p Relied, view: View) -> Self {
        let written = Written {
            view,
            packs: SegmentBuilder::default(),
            must_check: false,
            is_stale: false,
        };
        Self {
            store,
            relied,
            written: Mutex::new(written),
        }
    }

    /// Takes a durable pack; commits a segment when there is enough for one, and returns its packs.
    pub(crate) fn add(&self, pack: &WrittenPack) -> Result<Vec<PackId>> {
        self.add_table(pack.header, pack.len, &pack.table)
    }

    /// Takes a durable pack of `len` bytes, of which `table` says what is in it; as [`Self::add`].
    pub(crate) fn add_table(
        &self,
        header: PackHeader,
        len: u32,
        table: &PackTable,
    ) -> Result<Vec<PackId>> {
        let mut written = self.written();
        written.packs.add_table(header, len, table)?;
        if written.packs.pack_bytes() < COMMIT_BYTES && written.packs.chunks() < COMMIT_CHUNKS {
            return Ok(Vec::new());
        }
        self.commit_written(&mut written)
    }

    /// Commits a segment over the packs that are in none, and returns these.
    pub(crate) fn commit_packs(&self) -> Result<Vec<PackId>> {
        self.commit_written(&mut self.written())
    }

    /// Whether the pass failed because a collector took what it needs, so that another may succeed.
    pub(crate) fn is_stale(&self) -> bool {
        self.written().is_stale
    }

    /// Adds one entry: a segment over the packs that are in none yet, and what `changes` makes of the state
    /// that it is added to.
    pub(crate) fn commit(
        &self,
        changes: &mut dyn FnMut(&State) -> Result<Vec<Change>>,
    ) -> Result<Published> {
        let mut written = self.written();
        let Written {
            view: View { state, index },
            packs,
            must_check,
            is_stale,
        } = &mut *written;
        let own: HashSet<PackId> = packs.packs().collect();
        let added = match std::mem::take(packs) {
            packs if packs.is_empty() => None,
            packs => Some(packs.write(self.store.remote().as_ref())?),
        };
        let segment = added.as_ref().map(|(segment, _)| *segment);
        let committed = self.log(state, &mut |state, entries| {
            *must_check |= entries.iter().any(moves_chunks);
            *is_stale = entries.iter().any(|entry| condemns(entry, &own, segment))
                || (*must_check && !self.is_sound(state, index)?);
            if *is_stale {
                return Ok(Vec::new());
            }
            let add = added.iter().map(|(_, change)| change.clone());
            let changes: Vec<Change> = add.chain(changes(state)?).collect();
            policy::check(self.store, state, index, &changes)?;
            Ok(changes)
        })?;
        Ok(match committed {
            Some(committed) => Published::Entry(committed),
            None if *is_stale => Published::Stale,
            None => Published::Nothing,
        })
    }

    /// The state of the newest commit, its index that of before.
    pub(crate) fn into_view(self) -> View {
        self.written
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .view
    }

    fn commit_written(&self, written: &mut Written) -> Result<Vec<PackId>> {
        let Written {
            view: View { state, index },
            packs,
            must_check,
            is_stale,
        } = written;
        if packs.is_empty() {
            return Ok(Vec::new());
        }
        let packs = std::mem::take(packs);
        let own: HashSet<PackId> = packs.packs().collect();
        let (segment, change) = packs.write(self.store.remote().as_ref())?;
        self.log(state, &mut |_, entries| {
            *must_check |= entries.iter().any(moves_chunks);
            *is_stale = entries
                .iter()
                .any(|entry| condemns(entry, &own, Some(segment)));
            Ok(if *is_stale {
                Vec::new()
            } else {
                vec![change.clone()]
            })
        })?;
        if *is_stale {
            return Err(Error::interrupted(
                "a collector condemned packs before they were committed",
            ));
        }
        *index = self.store.open_index(state, index)?;
        self.relied.committed(index.clone(), segment);
        Ok(own.into_iter().collect())
    }

    /// Whether `state` still offers everything that this pass counts on.
    fn is_sound(&self, state: &State, before: &Index) -> Result<bool> {
        let index = match self.store.open_index(state, before) {
            // A collector was quicker: this state is outdated already.
            Err(error) if error.kind() == Kind::NotFound => return Ok(false),
            index => index?,
        };
        let view = View {
            state: state.clone(),
            index,
        };
        self.relied.is_offered_by(self.store, &view)
    }

    fn log(&self, state: &mut State, prepare: &mut log::Prepare<'_>) -> Result<Option<Committed>> {
        let host = self.store.host();
        log::commit(self.store.remote().as_ref(), state, &host.who, prepare)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `index` offers every chunk below `node`.
fn all_offered(reader: &Reader<'_>, index: &Index, node: &Node) -> Result<bool> {
    let content = match node {
        Node::Symlink { .. } => return Ok(true),
        Node::File { content, .. } | Node::Tree { content, .. } => content,
    };
    let mut is_offered = true;
    reader.list(content, &mut |id, _, _| {
        is_offered = is_offered && index.find(&id)?.is_some();
        Ok(())
    })?;
    if !is_offered || matches!(node, Node::File { .. }) {
        return Ok(is_offered);
    }
    for entry in reader.tree(content)? {
        if !all_offered(reader, index, &entry.node)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether chunks may be elsewhere, or gone, after this entry.
pub(crate) fn moves_chunks(entry: &LogEntry) -> bool {
    let moves = |change: &Change| {
        matches!(
            change,
            Change::CondemnPacks { .. } | Change::DropSegment { .. }
        )
    };
    entry.changes.iter().any(moves)
}

/// Whether `entry` takes an own pack, or the own segment that is about to be added: a collector found
/// them uploaded and not committed.
fn condemns(entry: &LogEntry, own: &HashSet<PackId>, segment: Option<SegmentId>) -> bool {
    entry.changes.iter().any(|change| match change {
        Change::CondemnPacks { packs } => packs.iter().any(|pack| own.contains(pack)),
        Change::DropSegment { segment: dropped } => segment == Some(*dropped),
        _ => false,
    })
}
