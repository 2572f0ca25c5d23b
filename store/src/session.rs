//! Publishing: finished packs become segments, then one log entry, safely beside collectors.
//!
//! What a pipeline relied on (chunks that it skipped, versions that it took as a base) must still be offered at the
//! entry that is being added, and none of its own packs may have been condemned since the pass began. Otherwise the
//! pass is stale: what is left of it is still committed, and the pipeline makes another pass, which stores what is
//! missing by then. This module never looks at the content of packs.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{ErrorKind, Result};
use crate::format::{Change, LogEntry, PackHeader, PackTable, State};
use crate::id::{PackId, PassId, SegmentId};
use crate::index::Index;
use crate::log::{self, Committed};
use crate::pack::{Portions, SegmentBuilder, WrittenPack};
use crate::policy::{self, Refused};
use crate::store::{Store, View};

mod fold;
mod relied;

use fold::Uploaded;
pub(crate) use relied::{Relied, all_offered};

/// One pass and what it has written.
pub(crate) struct Session<'p> {
    store: &'p Store,
    relied: &'p Relied,
    /// The id of the pass. Its segments carry the id, which tells them from garbage until a version reaches them.
    pass: PassId,
    written: Mutex<Written>,
}

/// Returns the changes of a commit. It must not give a version to a namespace that is refused.
pub(crate) type Changes<'c> = dyn FnMut(&State, &Refused) -> Result<Vec<Change>> + 'c;

/// The result of a commit.
pub(crate) enum Published {
    /// The entry is in the log.
    Entry(Box<Committed>),
    /// There was nothing to change.
    Nothing,
    /// A collector took what the pass relied on or stored; what is left is committed.
    Stale,
}

struct Written {
    /// The state of the newest commit; at first, the one that the pass began with.
    view: View,
    /// Durable packs that are in no segment yet.
    packs: SegmentBuilder,
    /// Those of them that an earlier run wrote. Nothing relies on these before they are committed.
    adopted: HashSet<PackId>,
    moved: Moved,
    /// Whether chunks that the pass stored are gone, so that another pass has to store them again.
    has_lost: bool,
    /// Bytes of packs that are committed.
    kept_bytes: u64,
}

impl<'p> Session<'p> {
    /// Starts with nothing written; `view` is the state that the pass begins with.
    pub(crate) fn new(store: &'p Store, relied: &'p Relied, view: View, pass: PassId) -> Self {
        let written = Written {
            view,
            packs: SegmentBuilder::default(),
            adopted: HashSet::new(),
            moved: Moved::default(),
            has_lost: false,
            kept_bytes: 0,
        };
        Self {
            store,
            relied,
            pass,
            written: Mutex::new(written),
        }
    }

    /// Adds a durable pack. Commits a segment when there is enough for one, and returns the packs in it.
    pub(crate) fn add(&self, pack: &WrittenPack) -> Result<Vec<PackId>> {
        self.add_table(pack.header, pack.len, &pack.table)
    }

    /// Adds a pack of `len` bytes that an earlier run wrote and that `table` describes; otherwise as [`Self::add`].
    pub(crate) fn adopt(
        &self,
        header: PackHeader,
        len: u32,
        table: &PackTable,
    ) -> Result<Vec<PackId>> {
        // DESIGN, writer 8: nothing relies on adopted packs before they are committed and no entry has condemned them.
        self.written().adopted.insert(header.id);
        self.add_table(header, len, table)
    }

    fn add_table(&self, header: PackHeader, len: u32, table: &PackTable) -> Result<Vec<PackId>> {
        let mut written = self.written();
        written.packs.add_table(header, len, table)?;
        let Portions {
            commit_bytes,
            commit_chunks,
            ..
        } = self.store.portions();
        if written.packs.pack_bytes() < commit_bytes && written.packs.chunks() < commit_chunks {
            return Ok(Vec::new());
        }
        self.commit_written(&mut written)
    }

    /// Commits a segment over the packs that are in none yet. Returns all of these packs, including condemned ones.
    pub(crate) fn commit_packs(&self) -> Result<Vec<PackId>> {
        self.commit_written(&mut self.written())
    }

    /// Bytes of packs that the pass has committed.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.written().kept_bytes
    }

    /// Adds one entry: a segment over the packs that are in none yet, and the changes that `changes` returns for the
    /// state. If these leave namespaces without room, `changes` is called again with those refused.
    pub(crate) fn commit(&self, changes: &mut Changes<'_>) -> Result<Published> {
        let mut guard = self.written();
        let written = &mut *guard;
        let folded = self.due(written)?;
        written.leave_out_condemned();
        if written.has_lost {
            self.commit_written(written)?;
            return Ok(Published::Stale);
        }
        if let Some(added) = self.fold(written, &folded)?
            && let Some(published) = self.commit_added(written, Some(added), changes)?
        {
            return Ok(published);
        }
        let added = match written.packs.is_empty() {
            true => None,
            false => Some(Uploaded::plain(
                written
                    .packs
                    .write(self.store.remote().as_ref(), self.store.provenance())?,
                written.packs.has_deltas(),
            )),
        };
        let published = self.commit_added(written, added, changes)?;
        Ok(published.unwrap_or(Published::Stale))
    }

    /// Commits what was uploaded, and the changes that `changes` returns; `None` when a fold became invalid.
    fn commit_added(
        &self,
        written: &mut Written,
        added: Option<Uploaded>,
        changes: &mut Changes<'_>,
    ) -> Result<Option<Published>> {
        let own: HashSet<PackId> = written.packs.packs().collect();
        let has_deltas =
            (added.as_ref()).map_or_else(|| written.packs.has_deltas(), |added| added.has_deltas);
        let pack_bytes = written.packs.pack_bytes();
        let Written {
            view: View { state, index },
            moved,
            ..
        } = written;
        let segment = added.as_ref().map(|added| added.segment);
        let is_fold = added.as_ref().is_some_and(Uploaded::is_fold);
        let added: Vec<Change> = added.map(|added| added.changes).unwrap_or_default();
        let (mut is_stale, mut is_taken, mut is_void) = (false, false, false);
        // DESIGN, writer 3 and 4: look at each entry in between, since the newest state may have forgotten what was
        // condemned; then add the entry to exactly the state that was looked at.
        let committed = self.log(state, &mut |state, entries| {
            moved.note(entries);
            // DESIGN, writer 14: the folded segments must still be live, and offer what they did.
            is_void = is_void || (is_fold && entries.iter().any(takes_chunks));
            if is_void {
                return Ok(Vec::new());
            }
            is_taken = is_taken || drops(entries, segment) || !own.is_disjoint(&moved.condemned);
            is_stale = is_taken || !self.is_sound(moved, state, index)?;
            is_void = is_fold && is_stale;
            Ok(match (is_taken || is_void, is_stale) {
                (true, _) => Vec::new(),
                // The next pass uses what is left.
                (_, true) => (learned(state, has_deltas).into_iter())
                    .chain(added.iter().map(|change| self.of_pass(change)))
                    .collect(),
                _ => (learned(state, has_deltas).into_iter())
                    .chain(self.allowed(&added, changes, state, index)?)
                    .collect(),
            })
        })?;
        if is_void {
            return Ok(None);
        }
        if is_taken {
            self.commit_written(written)?;
            return Ok(Some(Published::Stale));
        }
        if committed.is_some() {
            written.kept_bytes += pack_bytes;
            written.packs = SegmentBuilder::default();
        }
        Ok(Some(match committed {
            _ if is_stale => Published::Stale,
            Some(committed) => Published::Entry(Box::new(committed)),
            None => Published::Nothing,
        }))
    }

    /// Joins what was added with the changes of `changes`, without versions that namespaces have no room for.
    fn allowed(
        &self,
        added: &[Change],
        changes: &mut Changes<'_>,
        state: &State,
        index: &Index,
    ) -> Result<Vec<Change>> {
        let mut refused = Refused::new();
        loop {
            let changes = self.ending(changes(state, &refused)?, state);
            let changes: Vec<Change> = added.iter().cloned().chain(changes).collect();
            let more = policy::refused(self.store, state, index, &changes)?;
            if more.is_empty() {
                return Ok(changes);
            }
            refused.extend(more);
        }
    }

    /// The state of the newest commit, with the index of the one before.
    pub(crate) fn into_view(self) -> View {
        self.written
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .view
    }

    /// Commits a segment over the packs that are in none yet and that no collector has taken.
    fn commit_written(&self, written: &mut Written) -> Result<Vec<PackId>> {
        let all: Vec<PackId> = written.packs.packs().collect();
        let segment = loop {
            written.leave_out_condemned();
            if written.packs.is_empty() {
                return Ok(all);
            }
            if let Some(segment) = self.commit_segment(written)? {
                break segment;
            }
        };
        let committed = written.packs.packs();
        // Adopted packs are relied on only when somebody asks for their chunks.
        let own: HashSet<PackId> = committed
            .filter(|pack| !written.adopted.contains(pack))
            .collect();
        written.kept_bytes += written.packs.pack_bytes();
        written.packs = SegmentBuilder::default();
        self.reopen(written)?;
        // DESIGN, writer 7: entries read while reopening may have taken them already.
        let is_there = written.view.state.segments.contains_key(&segment);
        let is_whole = is_there && own.is_disjoint(&written.moved.condemned);
        written.has_lost |= !own.is_empty() && !is_whole;
        let index = written.view.index.clone();
        self.relied
            .committed(index, (!own.is_empty()).then_some(segment));
        Ok(all)
    }

    /// Commits a segment over all packs that are in none; commits nothing if a collector took a pack or the segment.
    fn commit_segment(&self, written: &mut Written) -> Result<Option<SegmentId>> {
        let own: HashSet<PackId> = written.packs.packs().collect();
        let (segment, change) = written
            .packs
            .write(self.store.remote().as_ref(), self.store.provenance())?;
        // DESIGN, writer 7: no version reaches these packs yet; the pass id on the segment spares them.
        let change = self.of_pass(&change);
        let Written {
            view: View { state, .. },
            moved,
            ..
        } = written;
        let has_deltas = written.packs.has_deltas();
        let mut is_taken = false;
        let committed = self.log(state, &mut |state, entries| {
            moved.note(entries);
            is_taken =
                is_taken || drops(entries, Some(segment)) || !own.is_disjoint(&moved.condemned);
            Ok(match is_taken {
                true => Vec::new(),
                false => (learned(state, has_deltas).into_iter())
                    .chain([change.clone()])
                    .collect(),
            })
        })?;
        Ok(committed.map(|_| segment))
    }

    /// Opens the segments of the newest state. If a collector deletes some first, there is a newer state to open.
    fn reopen(&self, written: &mut Written) -> Result<()> {
        let Written {
            view: View { state, index },
            moved,
            ..
        } = written;
        loop {
            match self.store.open_index(state, index) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let entries = log::read_after(self.store.remote().as_ref(), state)?;
                    if entries.is_empty() {
                        return Err(error);
                    }
                    moved.note(&entries);
                }
                opened => {
                    *index = opened?;
                    return Ok(());
                }
            }
        }
    }

    /// Whether `state` still offers everything that this pass relies on.
    fn is_sound(&self, moved: &Moved, state: &State, before: &Index) -> Result<bool> {
        if !moved.chunks {
            return Ok(true);
        }
        let index = match self.store.open_index(state, before) {
            // A collector was faster: this state is outdated already.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            index => index?,
        };
        let view = View {
            state: state.clone(),
            index,
        };
        match moved.versions {
            true => self.relied.is_offered_by(self.store, &view),
            false => self.relied.marked_are_offered_by(&view.index),
        }
    }

    /// The same change; a segment in it carries this pass's id.
    fn of_pass(&self, change: &Change) -> Change {
        let mut change = change.clone();
        if let Change::AddSegment { info, .. } = &mut change {
            info.pass = Some(self.pass);
        }
        change
    }

    /// The same changes; the first version in them ends this pass and the passes that it relies on.
    fn ending(&self, mut changes: Vec<Change>, state: &State) -> Vec<Change> {
        let mut versions = changes.iter_mut();
        if let Some(Change::SetRef { ends, .. }) =
            versions.find(|change| matches!(change, Change::SetRef { .. }))
        {
            // DESIGN, writer 9.
            *ends = self.relied.ended(state);
        }
        changes
    }

    fn log(&self, state: &mut State, prepare: &mut log::Prepare<'_>) -> Result<Option<Committed>> {
        self.store.commit(state, prepare)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written {
    /// Removes packs that a collector condemned before they were committed.
    fn leave_out_condemned(&mut self) {
        let taken = self
            .packs
            .packs()
            .filter(|pack| self.moved.condemned.contains(pack));
        let taken: HashSet<PackId> = taken.collect();
        self.has_lost |= !taken.is_subset(&self.adopted);
        self.packs.take_out(&taken);
    }
}

/// What the entries since the pass began have moved or removed.
#[derive(Default)]
struct Moved {
    /// Every pack that was condemned. The newest state may have forgotten it.
    condemned: HashSet<PackId>,
    /// Whether chunks may have moved or be gone.
    chunks: bool,
    /// Whether chunks of live versions may be gone, too: a repair gives up damaged ones.
    versions: bool,
}

impl Moved {
    fn note(&mut self, entries: &[LogEntry]) {
        self.chunks |= entries.iter().any(takes_chunks);
        self.versions |= entries.iter().any(moves_chunks);
        for change in entries.iter().flat_map(|entry| &entry.changes) {
            if let Change::CondemnPacks { packs } = change {
                self.condemned.extend(packs);
            }
        }
    }
}

/// The change that records that frames may be deltas; needed before the first segment with deltas.
pub(crate) fn learned(state: &State, has_deltas: bool) -> Option<Change> {
    state.features.learned(has_deltas)
}

/// Whether chunks that a segment offered may be offered by other segments after this entry, or by none.
fn takes_chunks(entry: &LogEntry) -> bool {
    let takes = |change: &Change| {
        matches!(
            change,
            Change::CondemnPacks { .. } | Change::DropSegment { .. }
        )
    };
    entry.changes.iter().any(takes)
}

/// Whether chunks may have moved or be gone after this entry. A segment that was folded into another moves none.
pub(crate) fn moves_chunks(entry: &LogEntry) -> bool {
    let moves = |change: &Change| {
        matches!(
            change,
            Change::CondemnPacks { .. } | Change::DropSegment { into: None, .. }
        )
    };
    entry.changes.iter().any(moves)
}

/// Whether `entries` drop the segment that is about to be added: a collector found it uploaded and not committed.
fn drops(entries: &[LogEntry], own: Option<SegmentId>) -> bool {
    let mut changes = entries.iter().flat_map(|entry| &entry.changes);
    changes.any(
        |change| matches!(change, Change::DropSegment { segment, .. } if own == Some(*segment)),
    )
}
