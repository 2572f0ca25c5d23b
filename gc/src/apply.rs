//! Apply: carries out a plan, one log entry after another, and deletes what the log condemned.
//!
//! Every entry is added at exactly the state for which its changes are valid. Entries of others are read first; if they
//! contradict the plan, the plan is void, and nothing more is done. Objects are deleted only after the entry that
//! condemned them was read back from the log and their grace is over. If a run stops anywhere, the next run continues
//! from there.

use std::collections::HashSet;

use jiff::Timestamp;
use store::format::{Change, LogEntry, RefName, SegmentInfo, State, pack_key, segment_key};
use store::index::{Index, OpenSegment, merge};
use store::log::reserve;
use store::pack::SegmentBuilder;
use store::read::Reader;
use store::remote::Prune;
use store::{CommitId, PackId, Result, SegmentId, Store, View};

use crate::clock::Clock;
use crate::look::Planned;
use crate::mark::{Marker, may_be_moved};
use crate::plan::Plan;
use crate::repack::repack;
use crate::report::CollectReport;
use crate::request::{Deadline, Request};
use crate::usage::Sizes;

/// Bytes of sparse packs after which their copies are committed.
const BATCH_BYTES: u64 = 4 << 30;
/// Number of sparse packs after which their copies are committed, since their rows are kept in memory.
const BATCH_PACKS: usize = 1024;

/// How a run of a plan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The plan was carried out.
    Done,
    /// The time was over, or the host was asked to stop. What was done stands.
    Stopped,
    /// Others changed the state in a way that contradicts the plan.
    Void,
}

/// One plan that is being carried out.
pub(crate) struct Session<'s, 'p> {
    pub(crate) store: &'s Store,
    pub(crate) prune: &'p dyn Prune,
    pub(crate) request: &'p Request,
    deadline: Deadline,
    pub(crate) view: View,
    pub(crate) clock: Clock,
    marker: Marker<'s>,
    pub(crate) plan: Plan,
    pub(crate) sizes: Sizes,
    /// Keys of own objects that no entry names yet.
    pending: HashSet<String>,
    /// Most packs that are copied before the copies are committed.
    batch_packs: usize,
    /// Numbers of entries that were read back.
    pub(crate) confirmed: HashSet<u64>,
    pub(crate) deleted: HashSet<String>,
}

/// The result of a commit.
pub(crate) enum Commit {
    Made,
    Nothing,
    Void,
}

impl<'s, 'p> Session<'s, 'p> {
    pub(crate) fn new(
        store: &'s Store,
        prune: &'p dyn Prune,
        request: &'p Request,
        planned: Planned<'s>,
        deadline: Deadline,
    ) -> Self {
        Self {
            store,
            prune,
            request,
            deadline,
            view: planned.view,
            clock: planned.clock,
            marker: planned.marker,
            plan: planned.plan,
            sizes: planned.sizes,
            pending: HashSet::new(),
            batch_packs: BATCH_PACKS,
            confirmed: HashSet::new(),
            deleted: HashSet::new(),
        }
    }

    /// Keys of own objects that were uploaded and not committed.
    pub(crate) fn into_abandoned(self) -> HashSet<String> {
        self.pending
    }

    /// Deletes, condemns, copies, merges, deletes again, forgets: in the order that frees space first.
    pub(crate) fn run(&mut self, report: &mut CollectReport) -> Result<Applied> {
        self.delete_due(report)?;
        self.delete_nameless(report)?;
        for step in [Self::condemn, Self::repack, Self::merge, Self::forget] {
            if self.deadline.stops(self.store) {
                return Ok(Applied::Stopped);
            }
            match step(self, report)? {
                Applied::Done => self.delete_due(report)?,
                ended => return Ok(ended),
            }
        }
        reserve::fill(self.store.remote().as_ref())?;
        self.held(report);
        Ok(Applied::Done)
    }

    /// Commits the first entry: drops versions, condemns packs, and drops segments that name nothing else.
    fn condemn(&mut self, report: &mut CollectReport) -> Result<Applied> {
        let plan = &self.plan;
        let mut changes = Vec::new();
        // DESIGN, collector 2: orphans go through the log like everything else.
        changes.extend(plan.drop.iter().map(|drop| Change::DropRef {
            name: drop.name.clone(),
            version: drop.version,
        }));
        let packs: Vec<PackId> = plan.condemned().collect();
        if !packs.is_empty() {
            changes.push(Change::CondemnPacks { packs });
        }
        // An orphan segment is added and dropped at once. The log then knows it, so its writer notices that before
        // naming it again.
        for (segment, bytes) in &plan.orphan_segments {
            changes.push(Change::AddSegment {
                segment: *segment,
                info: SegmentInfo {
                    bytes: *bytes,
                    ..SegmentInfo::default()
                },
            });
            changes.push(Change::DropSegment {
                segment: *segment,
                into: None,
            });
        }
        changes.extend(
            plan.drop_segments
                .iter()
                .map(|segment| Change::DropSegment {
                    segment: *segment,
                    into: None,
                }),
        );
        let bytes: u64 = plan.condemn.iter().map(|planned| planned.bytes).sum();
        match self.commit(report, &changes)? {
            Commit::Void => return Ok(Applied::Void),
            Commit::Made => report.condemned_bytes += bytes,
            Commit::Nothing => {}
        }
        Ok(Applied::Done)
    }

    /// Copies and condemns sparse packs, with one entry per batch.
    fn repack(&mut self, report: &mut CollectReport) -> Result<Applied> {
        let mut left = self.plan.repack.clone();
        while !left.is_empty() {
            let mut bytes = 0;
            let count = left
                .iter()
                .take(self.batch_packs)
                .take_while(|planned| {
                    let fits = bytes < BATCH_BYTES;
                    bytes += planned.bytes;
                    fits
                })
                .count();
            let batch: HashSet<PackId> = left
                .iter()
                .take(count.max(1))
                .map(|planned| planned.pack)
                .collect();
            match self.repack_batch(report, &batch) {
                // The space that one pack frees may be enough for the next.
                Err(error) if error.is_full() && batch.len() > 1 => {
                    self.batch_packs = 1;
                    continue;
                }
                Err(error) if error.is_full() => {
                    report.disk_full = true;
                    return Ok(Applied::Stopped);
                }
                done => match done? {
                    Applied::Done => left.retain(|planned| !batch.contains(&planned.pack)),
                    ended => return Ok(ended),
                },
            }
            // On a full disk, the space of copied packs is needed for the next batch.
            self.delete_due(report)?;
        }
        Ok(Applied::Done)
    }

    fn repack_batch(
        &mut self,
        report: &mut CollectReport,
        batch: &HashSet<PackId>,
    ) -> Result<Applied> {
        let mut packs = SegmentBuilder::default();
        let copied = repack(
            self.store,
            &self.view,
            &self.marker,
            batch,
            self.deadline,
            &mut packs,
        );
        let own: Vec<String> = packs.packs().map(pack_key).collect();
        let copied = match copied {
            Err(error) if may_be_moved(&error) && self.has_moved()? => return Ok(Applied::Void),
            Err(error) if error.is_full() => return self.take_back(&own, error),
            copied => copied?,
        };
        let is_complete = copied.from.len() == batch.len();
        if !copied.from.is_empty() {
            let from: HashSet<PackId> = copied.from.iter().copied().collect();
            let (segment, added) =
                match packs.write(self.store.remote().as_ref(), self.store.provenance()) {
                    Err(error) if error.is_full() => return self.take_back(&own, error),
                    written => written?,
                };
            self.pending.extend(own.iter().cloned());
            self.pending.insert(segment_key(segment));
            let mut changes = self.learned(packs.has_deltas());
            changes.push(added);
            changes.push(Change::CondemnPacks {
                packs: copied.from.clone(),
            });
            changes.extend(self.emptied(&from)?);
            match self.commit(report, &changes)? {
                Commit::Made => {
                    own.iter().for_each(|key| {
                        self.pending.remove(key);
                    });
                    self.pending.remove(&segment_key(segment));
                    report.copied_bytes += copied.bytes;
                    report.condemned_bytes += self.bytes_of(&from);
                }
                Commit::Nothing | Commit::Void => return Ok(Applied::Void),
            }
        }
        Ok(match is_complete {
            true => Applied::Done,
            false => Applied::Stopped,
        })
    }

    /// Deletes packs that this process has just written and that are in no segment. Nobody else knows their names, so
    /// no entry is needed. Returns the error for which there was no space.
    fn take_back(&self, own: &[String], full: store::Error) -> Result<Applied> {
        self.prune.delete(own)?;
        Err(full)
    }

    /// Drops live segments that will name only condemned packs once `packs` are condemned.
    fn emptied(&self, packs: &HashSet<PackId>) -> Result<Vec<Change>> {
        let mut emptied = Vec::new();
        for segment in self.view.index.segments() {
            let mut all = true;
            for position in 0..segment.layout().packs() {
                let pack = segment.layout().pack(segment.bytes(), position)?.id;
                all &= packs.contains(&pack) || self.view.state.condemned.contains_key(&pack);
            }
            if all {
                emptied.push(Change::DropSegment {
                    segment: segment.id,
                    into: None,
                });
            }
        }
        Ok(emptied)
    }

    fn merge(&mut self, report: &mut CollectReport) -> Result<Applied> {
        let wanted: HashSet<SegmentId> = self.plan.merge.iter().copied().collect();
        let state = &self.view.state;
        let is_wanted = |id: &SegmentId| wanted.contains(id) && state.segments.contains_key(id);
        let from: Vec<(usize, &OpenSegment)> = (self.marker.index().segments().enumerate())
            .filter(|(_, segment)| is_wanted(&segment.id))
            .map(|(number, segment)| (number, segment.as_ref()))
            .collect();
        if from.is_empty() {
            return Ok(Applied::Done);
        }
        let segments: Vec<SegmentId> = from.iter().map(|(_, segment)| segment.id).collect();
        let (remote, made) = (self.store.remote().as_ref(), self.store.provenance());
        let is_marked = |at| self.marker.has(at);
        let added = match merge(remote, made, state, &from, &is_marked) {
            Err(error) if error.is_full() => {
                report.disk_full = true;
                return Ok(Applied::Stopped);
            }
            added => added?,
        };
        let Change::AddSegment { segment, .. } = added else {
            return Ok(Applied::Done);
        };
        self.pending.insert(segment_key(segment));
        let mut changes = self.learned(from.iter().any(|(_, segment)| segment.has_deltas()));
        changes.push(added);
        changes.extend(segments.into_iter().map(|old| Change::DropSegment {
            segment: old,
            into: Some(segment),
        }));
        match self.commit(report, &changes)? {
            Commit::Made => {
                self.pending.remove(&segment_key(segment));
                Ok(Applied::Done)
            }
            Commit::Nothing | Commit::Void => Ok(Applied::Void),
        }
    }

    /// The change that must precede a segment with deltas, if the log does not say yet that there are deltas.
    fn learned(&self, has_deltas: bool) -> Vec<Change> {
        let learned = self.view.state.features.learned(has_deltas);
        learned.into_iter().collect()
    }

    /// Commits `changes` if they are valid for the newest state.
    pub(crate) fn commit(
        &mut self,
        report: &mut CollectReport,
        changes: &[Change],
    ) -> Result<Commit> {
        let mut state = self.view.state.clone();
        let mut is_void = false;
        let committed = self.store.commit(&mut state, &mut |state, news| {
            // DESIGN, collector 3: valid at exactly this state, or nothing is added.
            is_void = is_void || !self.is_valid(state, news, changes)?;
            Ok(if is_void {
                Vec::new()
            } else {
                changes.to_vec()
            })
        })?;
        if is_void {
            return Ok(Commit::Void);
        }
        let index = match self.store.open_index(&state, &self.view.index) {
            Err(error) if may_be_moved(&error) && self.has_moved()? => return Ok(Commit::Void),
            index => index?,
        };
        self.view = View { state, index };
        Ok(match committed {
            Some(committed) => {
                report.entries.push(committed.entry.number);
                Commit::Made
            }
            None => Commit::Nothing,
        })
    }

    /// Whether `changes` may follow `news`, the entries up to `state`.
    fn is_valid(&self, state: &State, news: &[LogEntry], changes: &[Change]) -> Result<bool> {
        let news: Vec<&Change> = news.iter().flat_map(|entry| &entry.changes).collect();
        if news.iter().any(|new| self.contradicts(new, changes)) {
            return Ok(false);
        }
        let is_calm =
            |change: &&Change| !matches!(change, Change::AddSegment { .. } | Change::SetRef { .. });
        if news.iter().all(is_calm) {
            return Ok(true);
        }
        match self.serves(state, &news, changes) {
            Err(error) if may_be_moved(&error) => Ok(false),
            serves => serves,
        }
    }

    /// Whether another process's change makes the plan void without a closer look.
    fn contradicts(&self, new: &Change, changes: &[Change]) -> bool {
        let drops = |name: &RefName, number: u64| {
            self.plan
                .drop
                .iter()
                .any(|drop| drop.name == *name && drop.version == number)
        };
        match new {
            Change::CondemnPacks { .. } | Change::DropSegment { into: None, .. } => true,
            // A writer folded the segment into another that offers the same. Only a plan that drops it as well is void.
            Change::DropSegment {
                segment: folded, ..
            } => changes
                .iter()
                .any(|own| matches!(own, Change::DropSegment { segment, .. } if segment == folded)),
            // The newest version may have been dropped, so that the plan would empty the ref.
            Change::DropRef { name, .. } => self.plan.drop.iter().any(|drop| drop.name == *name),
            Change::Pin { name, version, .. } => drops(name, *version),
            Change::SetPolicy { .. } => !self.plan.drop.is_empty(),
            // The feature may mean that there is more to mark.
            Change::SetFeature { .. } => true,
            Change::AddSegment { segment, .. } => {
                let mut orphans = self.plan.orphan_segments.iter();
                orphans.any(|(orphan, _)| orphan == segment)
            }
            Change::SetRef { .. } | Change::Forget { .. } => false,
        }
    }

    /// Whether new versions have all their chunks, and new segments all their packs, after `changes`.
    fn serves(&self, state: &State, news: &[&Change], changes: &[Change]) -> Result<bool> {
        let mut after = state.clone();
        let who = self.store.host().who.clone();
        let now = Timestamp::UNIX_EPOCH;
        after.apply(&state.next(CommitId([0; 16]), now, who, changes.to_vec()))?;
        let index = self.store.open_index(&after, &self.view.index)?;
        let added = news.iter().filter_map(|change| match change {
            Change::AddSegment { segment, .. } => Some(*segment),
            _ => None,
        });
        let added = added.collect();
        // Checks the states before and after, since forgotten packs must not be named either.
        if self.names_condemned(&index, state, &added)?
            || self.names_condemned(&index, &after, &added)?
        {
            return Ok(false);
        }
        let now = self.store.open_index(state, &self.view.index)?;
        let reader = Reader::at(
            self.store,
            View {
                state: state.clone(),
                index: now,
            },
        );
        for change in news {
            let Change::SetRef { name, version, .. } = change else {
                continue;
            };
            if let Ok((number, version)) = state.version(name, Some(*version)) {
                let name = format!("{name}@{number}");
                self.marker.version_in(&reader, &name, &version, &index)?;
            }
        }
        Ok(true)
    }

    /// Whether one of the segments `added` names a pack that `state` has condemned. Packs that were named already when
    /// the plan was made do not count: a fold names the packs of the folded segments.
    fn names_condemned(
        &self,
        index: &Index,
        state: &State,
        added: &HashSet<SegmentId>,
    ) -> Result<bool> {
        let mut named = HashSet::new();
        for segment in (index.segments()).filter(|segment| added.contains(&segment.id)) {
            for position in 0..segment.layout().packs() {
                let pack = segment.layout().pack(segment.bytes(), position)?.id;
                if state.condemned.contains_key(&pack) {
                    named.insert(pack);
                }
            }
        }
        if !named.is_empty() {
            self.view.index.packs().for_each(|pack| {
                named.remove(&pack.id);
            });
        }
        Ok(!named.is_empty())
    }

    fn has_moved(&self) -> Result<bool> {
        Ok(self.store.state()?.number != self.view.state.number)
    }

    fn bytes_of(&self, packs: &HashSet<PackId>) -> u64 {
        self.plan
            .repack
            .iter()
            .filter(|planned| packs.contains(&planned.pack))
            .map(|planned| planned.bytes)
            .sum()
    }
}
