//! The commit: segments, then one log entry, under the rules that make it safe beside collectors.
//!
//! Everything deduplicated against must still be offered at the entry that is being added, and no
//! pack of our own may have been condemned; else the pass over the source is done again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::assemble::Built;
use super::dedup::Dedup;
use super::{PutReport, PutRequest};
use crate::error::{Error, Kind, Result};
use crate::format::{Change, Content, LogEntry, Node, PackKind, Root, State, Version};
use crate::id::{PackId, SegmentId};
use crate::index::Index;
use crate::log::{self, Committed};
use crate::pack::{SegmentBuilder, WrittenPack};
use crate::read::Reader;
use crate::stat_cache::CacheBase;
use crate::store::{Store, View};

/// Bytes of packs after which their segment is committed, so that a put that is killed resumes there.
const COMMIT_BYTES: u64 = 4 << 30;
/// Chunks after which their segment is committed, so that memory stays bounded. Few in tests, so that a
/// put commits as it goes.
const COMMIT_CHUNKS: usize = if cfg!(test) { 20 } else { 1 << 18 };

/// The version that cached contents belong to.
#[derive(Clone, Debug)]
pub(super) struct Base(pub(super) Version);

/// What one pass writes and has written.
pub(super) struct Publication<'p> {
    store: &'p Store,
    request: &'p PutRequest,
    dedup: &'p Dedup,
    /// The chunks of this version are counted on without a mark at each.
    base: Option<Base>,
    new_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    written: Mutex<Written>,
}

/// A ref version in the log.
struct CommittedRef {
    version: u64,
    note: Option<String>,
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

impl<'p> Publication<'p> {
    pub(super) fn new(
        store: &'p Store,
        request: &'p PutRequest,
        dedup: &'p Dedup,
        view: View,
        base: Option<Base>,
    ) -> Self {
        let written = Written {
            view,
            packs: SegmentBuilder::default(),
            must_check: false,
            is_stale: false,
        };
        let (new_bytes, stored_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            store,
            request,
            dedup,
            base,
            new_bytes,
            stored_bytes,
            written: Mutex::new(written),
        }
    }

    /// Counts a frame on its way to a pack.
    pub(super) fn count(&self, kind: PackKind, raw_bytes: u32, stored_bytes: usize) {
        if kind == PackKind::Data {
            self.new_bytes
                .fetch_add(raw_bytes.into(), Ordering::Relaxed);
        }
        self.stored_bytes
            .fetch_add(stored_bytes as u64, Ordering::Relaxed);
    }

    /// Takes a durable pack; commits a segment when there is enough for one.
    pub(super) fn add(&self, pack: &WrittenPack) -> Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.packs.add(pack)?;
        if written.packs.pack_bytes() < COMMIT_BYTES && written.packs.chunks() < COMMIT_CHUNKS {
            return Ok(());
        }
        self.commit_packs(&mut written)
    }

    /// Whether the pass failed because a collector took what it needs, so that another may succeed.
    pub(super) fn is_stale(&self) -> bool {
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_stale
    }

    /// Adds the ref version; `None` when a collector took what this pass had counted on.
    pub(super) fn commit(self, built: Built) -> Result<Option<PutReport>> {
        let mut report = built.report;
        report.new_bytes = self.new_bytes.load(Ordering::Relaxed);
        report.stored_bytes = self.stored_bytes.load(Ordering::Relaxed);
        if self.request.dry_run {
            return Ok(Some(report));
        }
        let Some(committed) = self.commit_ref(built.root, built.times)? else {
            return Ok(None);
        };
        let base = CacheBase {
            name: self.request.target.clone(),
            version: committed.version,
            root: built.root,
        };
        report.version = Some(committed.version);
        report.notes.extend(committed.note);
        if let Some(Err(error)) = built.cache.map(|cache| cache.commit(base)) {
            report
                .notes
                .push(format!("{error}: the next put from here reads every file"));
        }
        Ok(Some(report))
    }

    fn commit_ref(&self, root: Root, times: Content) -> Result<Option<CommittedRef>> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut version = 0;
        let committed = self.log(state, &mut |state, entries| {
            *must_check |= entries.iter().any(moves_chunks);
            *is_stale = entries.iter().any(|entry| condemns(entry, &own, segment))
                || (*must_check && !self.is_sound(state, index)?);
            if *is_stale {
                return Ok(Vec::new());
            }
            version = state
                .refs
                .get(&self.request.target)
                .map_or(0, |known| known.last)
                + 1;
            Ok(added
                .iter()
                .map(|(_, change)| change.clone())
                .chain([self.set_ref(version, root, times)])
                .collect())
        })?;
        Ok(committed.map(|committed| CommittedRef {
            version,
            note: committed
                .checkpoint
                .map(|error| format!("{error}: the store opens more slowly")),
        }))
    }

    fn set_ref(&self, version: u64, root: Root, times: Content) -> Change {
        Change::SetRef {
            name: self.request.target.clone(),
            version,
            root,
            times,
            message: self.request.message.clone(),
            expires: self.request.expires,
        }
    }

    fn commit_packs(&self, written: &mut Written) -> Result<()> {
        let Written {
            view: View { state, index },
            packs,
            must_check,
            is_stale,
        } = written;
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
        self.dedup.committed(index.clone(), segment);
        Ok(())
    }

    /// Whether `state` still offers everything that this pass has deduplicated against.
    fn is_sound(&self, state: &State, before: &Index) -> Result<bool> {
        let index = match self.store.open_index(state, before) {
            // A collector was quicker: this state is outdated already.
            Err(error) if error.kind() == Kind::NotFound => return Ok(false),
            index => index?,
        };
        Ok(self.dedup.still_offered(&index)? && self.base_is_sound(state, &index)?)
    }

    fn base_is_sound(&self, state: &State, index: &Index) -> Result<bool> {
        let Some(base) = &self.base else {
            return Ok(true);
        };
        // Also a live version may lack chunks by now: a repair gives up what is damaged.
        let view = View {
            state: state.clone(),
            index: index.clone(),
        };
        let reader = Reader::at(self.store, view);
        match all_offered(&reader, index, &base.0.root.into()) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt) => Ok(false),
            outcome => outcome,
        }
    }

    fn log(&self, state: &mut State, prepare: &mut log::Prepare<'_>) -> Result<Option<Committed>> {
        let host = self.store.host();
        log::commit(self.store.remote().as_ref(), state, &host.who, prepare)
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
pub(super) fn moves_chunks(entry: &LogEntry) -> bool {
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
