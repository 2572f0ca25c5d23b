//! repair: what is derived is made anew, what is damaged is condemned, and nothing is deleted.
//!
//! ```text
//! survey -> packs of broken segments that live versions need -> new segment
//!        -> good chunks of damaged packs -> new packs, new segment -> one log entry
//! ```
//!
//! Condemned packs stay condemned, and packs that no live version needs are left alone: they may belong
//! to a put under way, and the collector takes them otherwise. The entry is committed at the state that
//! was surveyed; whatever moves chunks in between makes the repair begin anew. Chunks that are lost are
//! offered no more, so that a put of the original files stores them again.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::packs::{Damage, PackTask, check_packs};
use super::record::Record;
use super::walk::RefWalk;
use super::{Finding, Hit, Part, VerifyReport, objects};
use crate::codec::{Encoder, LEVEL};
use crate::error::{Error, Kind, Result};
use crate::format::{
    Change, Condemned, LogEntry, PACKS_PREFIX, PackChunk, PackKind, State, pack_key, parse_pack_key,
};
use crate::id::{ChunkId, PackId, SegmentId};
use crate::index::Index;
use crate::log::{self, heal};
use crate::pack::frames::for_each_frame;
use crate::pack::reader::{OpenPack, rows_in};
use crate::pack::{EncodedFrame, PackWriter, SegmentBuilder};
use crate::progress::Progress;
use crate::store::{Store, View};

/// How often a repair begins anew when others change the store meanwhile.
const ATTEMPTS_MAX: u32 = 8;

/// How to repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairRequest {
    /// Read every byte of every pack, not only of those that a verification of this host found damaged.
    pub read_data: bool,
    /// Do everything but write.
    pub dry_run: bool,
    /// Give up log entries that are lost and that nothing stands in for.
    pub accept_loss: bool,
}

/// What a repair found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What was wrong.
    pub findings: Vec<Finding>,
    /// Log entries that were put back.
    pub entries_restored: Vec<u64>,
    /// Log entries that were given up.
    pub entries_lost: Vec<u64>,
    /// Segments that are live no more: broken ones.
    pub segments_dropped: Vec<SegmentId>,
    /// Segments made anew.
    pub segments_added: Vec<SegmentId>,
    /// Packs that were taken into a new segment as they are.
    pub packs_kept: u64,
    /// Packs that are condemned: damaged or missing ones.
    pub packs_condemned: Vec<PackId>,
    /// Chunks of these that were copied.
    pub chunks_saved: u64,
    /// Chunks of these that could not be read any more.
    pub chunks_lost: u64,
    /// Checkpoints that were written again.
    pub checkpoints: Vec<u64>,
    /// Which versions and paths are hit after it.
    pub hits: Vec<Hit>,
    /// Hits that are not listed because there are too many.
    pub hits_left_out: u64,
    /// Number of the log entry; none when nothing had to change, and after a dry run.
    pub entry: Option<u64>,
}

/// What one pass found.
struct Survey {
    state: State,
    /// With what the broken segments named and live versions need.
    index: Index,
    report: VerifyReport,
    broken: Vec<SegmentId>,
    /// Packs of broken segments that live versions need.
    orphaned: Vec<OpenPack>,
    /// Damaged and missing packs.
    bad: BTreeSet<PackId>,
    tasks: Vec<PackTask>,
}

/// Repairs what can be repaired and tells what is hit.
///
/// # Errors
/// Corrupt, when log entries are lost for good and the caller does not accept that; conflict, when others change the
/// store all the time; when the store does not answer. Nothing is changed then.
pub fn repair(
    store: &Store,
    request: RepairRequest,
    progress: &dyn Progress,
) -> Result<RepairReport> {
    store.format().check_writable()?;
    // What was wrong with the log before it was healed.
    let mut before = VerifyReport::default();
    objects::check_log(store.remote().as_ref(), &mut before)?;
    let healed = match request.dry_run {
        true => heal::diagnose(store.remote().as_ref())?,
        false => heal::heal(
            store.remote().as_ref(),
            &store.host().who,
            request.accept_loss,
        )?,
    };
    for _ in 0..ATTEMPTS_MAX {
        if let Some(mut report) = attempt(store, request, progress)? {
            let is_said = |finding: &Finding| report.findings.contains(finding);
            let mut findings = before.findings;
            findings.retain(|finding| matches!(finding.part, Part::Log(_)) && !is_said(finding));
            report.findings.splice(..0, findings);
            report.entries_restored = healed.restored;
            report.entries_lost = healed.lost;
            return Ok(report);
        }
    }
    Err(Error::conflict(format!(
        "repair: the store changed {ATTEMPTS_MAX} times in a row while it was looked at"
    ))
    .hint("run it again when less goes on in the store"))
}

/// One pass; `None` when somebody else changed what it was based on.
fn attempt(
    store: &Store,
    request: RepairRequest,
    progress: &dyn Progress,
) -> Result<Option<RepairReport>> {
    let survey = survey(store, request, progress)?;
    let mut report = RepairReport {
        findings: survey.report.findings.clone(),
        segments_dropped: survey.broken.clone(),
        packs_condemned: survey.bad.iter().copied().collect(),
        packs_kept: survey.orphaned.len() as u64,
        ..RepairReport::default()
    };
    let changes = changes(store, &survey, request.dry_run, &mut report)?;
    let mut state = survey.state;
    if !changes.is_empty() && !request.dry_run {
        let rebuilds = !survey.broken.is_empty();
        let mut is_stale = false;
        let who = &store.host().who;
        let remote = store.remote().as_ref();
        let committed = log::commit(remote, &mut state, who, &mut |_, entries| {
            is_stale = entries.iter().any(|entry| disturbs(entry, rebuilds));
            Ok(if is_stale {
                Vec::new()
            } else {
                changes.clone()
            })
        })?;
        if is_stale {
            return Ok(None);
        }
        report.entry = committed.map(|committed| committed.entry.number);
    }
    if !request.dry_run {
        report.checkpoints =
            objects::rewrite_checkpoints(store.remote().as_ref(), &report.findings)?;
        Record::load(store).save(|pack| !survey.bad.contains(pack))?;
    }
    match report.entry {
        Some(_) => tell_hits(store, &survey.index, state, &mut report)?,
        // What would be hit: all that could not be copied.
        None => {
            report.hits = survey.report.hits;
            report.hits_left_out = survey.report.hits_left_out;
        }
    }
    Ok(Some(report))
}

/// Whether an entry takes away what a repair is based on; with segments to be rebuilt, also a new version,
/// which may need packs that none needed before.
fn disturbs(entry: &LogEntry, rebuilds: bool) -> bool {
    entry.changes.iter().any(|change| match change {
        Change::CondemnPacks { .. } | Change::DropSegment { .. } => true,
        Change::SetRef { .. } => rebuilds,
        _ => false,
    })
}

fn survey(store: &Store, request: RepairRequest, progress: &dyn Progress) -> Result<Survey> {
    let remote = store.remote().as_ref();
    let mut report = VerifyReport::default();
    let state = objects::check_log(remote, &mut report)?;
    let mut readable = state.clone();
    objects::check_segments(remote, &mut readable, &mut report)?;
    loop {
        let broken: Vec<SegmentId> = state
            .segments
            .keys()
            .filter(|id| !readable.segments.contains_key(id))
            .copied()
            .collect();
        let index = store.open_index(&readable, &Index::default())?;
        let orphaned = match broken.is_empty() {
            true => Vec::new(),
            false => orphaned(store, &state, &index)?,
        };
        let index = with_packs(index, &orphaned, &state)?;
        let view = View {
            state: state.clone(),
            index,
        };
        let tasks = tasks(store, &view, request.read_data);
        let mut seen = VerifyReport::default();
        let damage = check_packs(store, &tasks, true, progress, &mut seen)?;
        RefWalk::new(store, &view, &damage, &mut seen).versions(None)?;
        // A segment that disagrees with its packs is made anew from them, like one that cannot be read.
        let lying: Vec<SegmentId> = seen.findings.iter().filter_map(segment_of).collect();
        report.findings.append(&mut seen.findings);
        let before = readable.segments.len();
        readable.segments.retain(|id, _| !lying.contains(id));
        if readable.segments.len() < before {
            continue;
        }
        report.hits = seen.hits;
        report.hits_left_out = seen.hits_left_out;
        let bad = report.findings.iter().filter_map(pack_of).collect();
        return Ok(Survey {
            state,
            index: view.index,
            report,
            broken,
            orphaned,
            bad,
            tasks,
        });
    }
}

fn segment_of(finding: &Finding) -> Option<SegmentId> {
    match finding.part {
        Part::Segment(id) => Some(id),
        _ => None,
    }
}

fn pack_of(finding: &Finding) -> Option<PackId> {
    match finding.part {
        Part::Pack(id) => Some(id),
        _ => None,
    }
}

/// The packs that no readable segment names, that are not condemned, and that live versions need.
fn orphaned(store: &Store, state: &State, index: &Index) -> Result<Vec<OpenPack>> {
    let named: HashSet<PackId> = index.packs().map(|pack| pack.id).collect();
    let mut found = Vec::new();
    for info in store.remote().list(PACKS_PREFIX)? {
        let Some(id) = parse_pack_key(&info.key) else {
            continue;
        };
        if named.contains(&id) || state.condemned.contains_key(&id) {
            continue;
        }
        match OpenPack::read(store.remote().as_ref(), id, info.size) {
            Ok(pack) => found.push(pack),
            // What cannot say what it holds helps nobody.
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    let view = View {
        state: state.clone(),
        index: with_packs(index.clone(), &found, state)?,
    };
    let (damage, mut report) = (Damage::default(), VerifyReport::default());
    let mut walk = RefWalk::new(store, &view, &damage, &mut report);
    walk.versions(None)?;
    found.retain(|pack| walk.packs.contains(&pack.header.id));
    Ok(found)
}

fn with_packs(index: Index, packs: &[OpenPack], state: &State) -> Result<Index> {
    if packs.is_empty() {
        return Ok(index);
    }
    let (_, _, bytes) = segment_over(packs.iter())?.build()?;
    index.with_segment(bytes.into(), state)
}

fn segment_over<'p>(packs: impl Iterator<Item = &'p OpenPack>) -> Result<SegmentBuilder> {
    let mut builder = SegmentBuilder::default();
    for pack in packs {
        builder.add_table(pack.header, pack.len, &pack.table)?;
    }
    Ok(builder)
}

fn tasks(store: &Store, view: &View, read_data: bool) -> Vec<PackTask> {
    let record = Record::load(store);
    let mut tasks = Vec::new();
    for segment in view.index.segments() {
        for (position, pack) in (0..).zip(segment.packs()) {
            if !view.state.condemned.contains_key(&pack.id) {
                tasks.push(PackTask {
                    segment: Arc::clone(segment),
                    position,
                    pack,
                    is_read: read_data || record.damaged().contains(&pack.id),
                });
            }
        }
    }
    tasks
}

/// Writes new packs and segments, and says what the log entry changes.
fn changes(
    store: &Store,
    survey: &Survey,
    is_dry: bool,
    report: &mut RepairReport,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut add = |mut builder: SegmentBuilder| {
        if !is_dry && !builder.is_empty() {
            let (segment, change) = builder.write(store.remote().as_ref())?;
            report.segments_added.push(segment);
            changes.push(change);
        }
        Ok(())
    };
    let good = survey.orphaned.iter();
    add(segment_over(
        good.filter(|pack| !survey.bad.contains(&pack.header.id)),
    )?)?;
    let mut saver = Saver::new(store, survey, is_dry)?;
    for task in &survey.tasks {
        if survey.bad.contains(&task.pack.id) {
            saver.save(task)?;
        }
    }
    let (saved, lost) = (saver.saved, saver.lost);
    add(saver.finish()?)?;
    (report.chunks_saved, report.chunks_lost) = (saved, lost);
    let dropped = survey.broken.iter();
    changes.extend(dropped.map(|id| Change::DropSegment { segment: *id }));
    if !survey.bad.is_empty() {
        let packs = survey.bad.iter().copied().collect();
        changes.push(Change::CondemnPacks { packs });
    }
    Ok(changes)
}

/// Copies what is good in damaged packs to new ones.
struct Saver<'s> {
    store: &'s Store,
    /// Without the damaged packs.
    index: Index,
    is_dry: bool,
    encoder: Encoder,
    data: Option<PackWriter>,
    meta: Option<PackWriter>,
    written: SegmentBuilder,
    done: HashSet<ChunkId>,
    saved: u64,
    lost: u64,
}

impl<'s> Saver<'s> {
    fn new(store: &'s Store, survey: &Survey, is_dry: bool) -> Result<Self> {
        let state = condemning(&survey.state, &survey.bad);
        Ok(Self {
            store,
            index: survey.index.clone().at_state(&state)?,
            is_dry,
            encoder: Encoder::new(LEVEL)?,
            data: None,
            meta: None,
            written: SegmentBuilder::default(),
            done: HashSet::new(),
            saved: 0,
            lost: 0,
        })
    }

    fn save(&mut self, task: &PackTask) -> Result<()> {
        let remote = Arc::clone(self.store.remote());
        let size = match remote.size(&pack_key(task.pack.id)) {
            Ok(size) => size,
            Err(error) if error.kind() == Kind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let rows = rows_in(&task.segment, task.position)?;
        let store = self.store;
        let told = move |_| store.host().check_stop();
        for_each_frame(
            remote.as_ref(),
            task.pack.id,
            &rows,
            size,
            &told,
            &mut |frame, decoded| {
                let mut raw = Vec::new();
                let mut chunks = Vec::new();
                for chunk in frame.chunks_of(task.pack.id) {
                    let (id, len) = (chunk.id, chunk.len);
                    if self.index.find(&id)?.is_some() || self.done.contains(&id) {
                        continue;
                    }
                    let decoded = decoded.as_ref().ok();
                    let Some(bytes) = decoded.and_then(|raw| chunk.verified(raw).ok()) else {
                        self.lost += 1;
                        continue;
                    };
                    self.done.insert(id);
                    raw.extend_from_slice(bytes);
                    chunks.push(PackChunk { id, len });
                }
                self.saved += chunks.len() as u64;
                self.store_frame(task.pack.kind, &raw, chunks)
            },
        )
    }

    fn store_frame(&mut self, kind: PackKind, raw: &[u8], chunks: Vec<PackChunk>) -> Result<()> {
        if raw.is_empty() || self.is_dry {
            return Ok(());
        }
        let mut stored = Vec::new();
        self.encoder.encode(raw, &mut stored)?;
        let raw_len = u32::try_from(raw.len())
            .map_err(|_| Error::invalid("a frame would outgrow 32-bit lengths"))?;
        let slot = match kind {
            PackKind::Data => &mut self.data,
            PackKind::Meta => &mut self.meta,
        };
        let mut pack = match slot.take() {
            Some(pack) => pack,
            None => PackWriter::begin(self.store.remote(), kind)?,
        };
        pack.push(EncodedFrame {
            stored,
            raw_len,
            chunks,
        })?;
        if pack.is_full(self.store.portions()) {
            return self.written.add(&pack.finish()?);
        }
        *slot = Some(pack);
        Ok(())
    }

    fn finish(mut self) -> Result<SegmentBuilder> {
        for pack in self.data.into_iter().chain(self.meta) {
            self.written.add(&pack.finish()?)?;
        }
        Ok(self.written)
    }
}

/// `state` with these packs condemned.
fn condemning(state: &State, packs: &BTreeSet<PackId>) -> State {
    let mut state = state.clone();
    let now = Condemned {
        entry: state.number,
        time: jiff::Timestamp::UNIX_EPOCH,
    };
    for pack in packs {
        state.condemned.entry(*pack).or_insert(now);
    }
    state
}

/// Walks all versions once more, as the store is now.
fn tell_hits(store: &Store, before: &Index, state: State, report: &mut RepairReport) -> Result<()> {
    let index = store.open_index(&state, before)?;
    let view = View { state, index };
    let (damage, mut seen) = (Damage::default(), VerifyReport::default());
    RefWalk::new(store, &view, &damage, &mut seen).versions(None)?;
    report.hits = seen.hits;
    report.hits_left_out = seen.hits_left_out;
    Ok(())
}
