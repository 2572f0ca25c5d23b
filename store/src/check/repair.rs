//! repair: rebuilds what is derived, condemns what is damaged, and deletes nothing.
//!
//! ```text
//! survey -> packs in no readable segment that live versions need -> new segment
//!        -> good chunks of damaged packs -> new packs, new segment -> one log entry
//! ```
//!
//! Condemned packs stay condemned. Packs that no live version needs are left alone: they may belong to a running put,
//! and otherwise the collector deletes them. The log entry is valid only at the state that was surveyed; if others move
//! chunks in between, the repair starts again. Lost chunks are no longer offered, so a put of the original files stores
//! them again.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::walk::RefWalk;
use super::{Finding, Hit, Part, RepairRequest, VerifyReport, objects};
use super::{features, open_checked, rolled_back};
use crate::error::{Error, Result};
use crate::format::{Change, DELTA_FRAMES, LogEntry, PACKS_PREFIX, State, parse_pack_key};
use crate::id::{PackId, SegmentId};
use crate::index::Index;
use crate::log::heal;
use crate::pack::SegmentBuilder;
use crate::pack::reader::OpenPack;
use crate::progress::Progress;
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::retry::{VAIN_MAX, retry};
use crate::sound::packs::{Damage, PackTask, Reading, check_packs};
use crate::sound::record::Record;
use crate::sound::saver::{Saver, condemning};
use crate::store::{Store, View};

/// What a repair found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RepairReport {
    /// The defects that were found.
    pub findings: Vec<Finding>,
    /// Log entries that were restored.
    pub entries_restored: Vec<u64>,
    /// Log entries that were given up.
    pub entries_lost: Vec<u64>,
    /// Broken segments that were dropped.
    pub segments_dropped: Vec<SegmentId>,
    /// Segments that were rebuilt.
    pub segments_added: Vec<SegmentId>,
    /// Packs that a new segment names unchanged.
    pub packs_kept: u64,
    /// Damaged or missing packs that were condemned.
    pub packs_condemned: Vec<PackId>,
    /// Chunks of condemned packs that were copied.
    pub chunks_saved: u64,
    /// Chunks of condemned packs that could not be read.
    pub chunks_lost: u64,
    /// Features that were added because live segments need them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features_learned: Vec<String>,
    /// Checkpoints that were rewritten.
    pub checkpoints: Vec<u64>,
    /// Versions and paths that are damaged after the repair.
    pub hits: Vec<Hit>,
    /// The number of hits that are not listed because there are too many.
    pub hits_left_out: u64,
    /// The number of the log entry; `None` when nothing had to change, and after a dry run.
    #[serde(rename = "log_entry", skip_serializing_if = "Option::is_none")]
    pub entry: Option<u64>,
}

/// The result of a survey.
struct Survey {
    /// Includes packs in no readable segment that live versions need.
    view: View,
    report: VerifyReport,
    broken: Vec<SegmentId>,
    /// Packs in no readable segment that live versions need.
    orphaned: Vec<OpenPack>,
    /// Damaged and missing packs.
    bad: BTreeSet<PackId>,
    tasks: Vec<PackTask>,
}

/// Repairs what can be repaired, and reports which paths are damaged.
///
/// # Errors
/// Corrupt, when log entries are lost for good and the caller does not accept that; conflict, when others keep changing
/// the store; also when the store does not answer. Nothing is changed in these cases.
pub fn repair(
    store: &Store,
    request: RepairRequest,
    progress: &dyn Progress,
) -> Result<RepairReport> {
    store.format().check_writable()?;
    // The defects of the log before healing.
    let mut before = VerifyReport::default();
    objects::check_log(store.remote().as_ref(), store.format().id, &mut before)?;
    check_places(store, &before.findings)?;
    // DESIGN, repairer 1: nothing else can be trusted before the log is whole.
    let healed = match request.dry_run {
        true => heal::diagnose(store.remote().as_ref(), store.format().id)?,
        false => heal::heal(
            store.remote().as_ref(),
            store.format().id,
            &store.host().who,
            request.accept_loss,
        )?,
    };
    let cut = rolled_back::settle(store, request)?;
    let mut report = retry(|| attempt(store, request, progress))?.ok_or_else(|| {
        Error::conflict(format!(
            "repair: the store changed {VAIN_MAX} times in a row while it was looked at"
        ))
        .hint("run it again when the store is less busy")
    })?;
    let is_said = |finding: &Finding| report.findings.contains(finding);
    let mut findings = before.findings;
    findings.retain(|finding| matches!(finding.part, Part::Log(_)) && !is_said(finding));
    report.findings.splice(..0, findings);
    report.entries_restored = healed.restored;
    report.entries_lost = healed.lost;
    report.entries_lost.extend(cut);
    Ok(report)
}

/// Checks that no directory is in place of a log entry or checkpoint that must be rewritten. A repair deletes nothing,
/// and the contents are unknown, so it must refuse before it changes anything.
fn check_places(store: &Store, findings: &[Finding]) -> Result<()> {
    let written = |part| matches!(part, Part::Log(_) | Part::Checkpoint(_));
    let keys = findings.iter().filter(|finding| written(finding.part));
    let keys: BTreeSet<&str> = keys.map(|finding| finding.object.as_str()).collect();
    let path_of = |key: &str| store.remote().local_path(key);
    let is_misplaced = |key: &&str| path_of(key).is_some_and(|path| path.is_dir());
    let misplaced: Vec<&str> = keys.into_iter().filter(is_misplaced).collect();
    let Some((first, others)) = misplaced.split_first() else {
        return Ok(());
    };
    let more = match others.len() {
        0 => String::new(),
        more => format!(", and in that of {more} more"),
    };
    let path = path_of(first).unwrap_or_default().display().to_string();
    Err(Error::corrupt(format!(
        "{first}: a directory is in its place{more}; nothing was repaired"
    ))
    .list(others.iter().map(|key| (*key).to_owned()))
    .hint(Remedy::MoveAwayThenRepair { path }))
}

/// Attempts a repair once; returns `None` when somebody else changed what it was based on.
fn attempt(
    store: &Store,
    request: RepairRequest,
    progress: &dyn Progress,
) -> Result<Option<RepairReport>> {
    let survey = survey(store, request, progress)?;
    if !request.accept_loss {
        store.check_packs_there(&survey.view.state)?;
    }
    let mut report = RepairReport {
        findings: survey.report.findings.clone(),
        segments_dropped: survey.broken.clone(),
        packs_condemned: survey.bad.iter().copied().collect(),
        packs_kept: survey.orphaned.len() as u64,
        ..RepairReport::default()
    };
    let changes = changes(store, &survey, request.dry_run, &mut report)?;
    let mut state = survey.view.state;
    if !changes.is_empty() && !request.dry_run {
        let rebuilds = !survey.broken.is_empty() || !survey.orphaned.is_empty();
        let mut is_stale = false;
        let committed = store.commit(&mut state, &mut |_, entries| {
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
        Some(_) => tell_hits(store, &survey.view.index, state, &mut report)?,
        // Without an entry: everything that could not be copied.
        None => {
            report.hits = survey.report.hits;
            report.hits_left_out = survey.report.hits_left_out;
        }
    }
    Ok(Some(report))
}

/// Whether an entry removes what a repair is based on. If segments are rebuilt, this includes a new version, which may
/// need other packs.
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
    let state = objects::check_log(remote, store.format().id, &mut report)?;
    let mut readable = state.clone();
    objects::check_segments(store, &mut readable, &mut report)?;
    // Chunks that versions lack may be in packs that no segment names, because the entries that added them are lost.
    let (mut lacks, mut bad) = (false, BTreeSet::new());
    loop {
        let index = open_checked(store, &mut readable, &mut report)?;
        let broken: Vec<SegmentId> = state
            .segments
            .keys()
            .filter(|id| !readable.segments.contains_key(id))
            .copied()
            .collect();
        let orphaned = match broken.is_empty() && !lacks {
            true => Vec::new(),
            false => orphaned(store, &state, &bad, &index)?,
        };
        let index = with_packs(index, &orphaned, &state)?;
        let view = View {
            state: state.clone(),
            index,
        };
        let tasks = tasks(store, &view, request.read_data);
        let mut seen = VerifyReport::default();
        let reader = Reader::at(store, view.clone());
        let damage = check_packs(&reader, &tasks, true, progress, &mut seen)?;
        RefWalk::new(store, &view, &damage, &mut seen).versions(None)?;
        // A segment that disagrees with its packs is rebuilt from them, like an unreadable one.
        let lying: Vec<SegmentId> = seen.findings.iter().filter_map(segment_of).collect();
        let before = readable.segments.len();
        readable.segments.retain(|id, _| !lying.contains(id));
        bad.extend(seen.findings.iter().filter_map(pack_of));
        let looks_again = !lacks && !seen.hits.is_empty();
        lacks |= looks_again;
        seen.findings
            .retain(|finding| !report.findings.contains(finding));
        report.findings.append(&mut seen.findings);
        if readable.segments.len() < before || looks_again {
            continue;
        }
        features::check(&view, &mut report);
        report.hits = seen.hits;
        report.hits_left_out = seen.hits_left_out;
        bad.extend(report.findings.iter().filter_map(pack_of));
        return Ok(Survey {
            view,
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

/// Returns the packs that no readable segment names, that are not condemned, and that live versions need if the `bad`
/// packs cannot be used.
fn orphaned(
    store: &Store,
    state: &State,
    bad: &BTreeSet<PackId>,
    index: &Index,
) -> Result<Vec<OpenPack>> {
    let named: HashSet<PackId> = index.packs().map(|pack| pack.id).collect();
    let mut found = Vec::new();
    for info in store.remote().list(PACKS_PREFIX)? {
        let Some(id) = parse_pack_key(&info.key) else {
            continue;
        };
        if named.contains(&id) || state.condemned.contains_key(&id) {
            continue;
        }
        match OpenPack::read(store.remote().as_ref(), store.format().id, id, info.size) {
            Ok(pack) => found.push(pack),
            // A pack without a readable table is of no use.
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    let index = index.clone().at_state(&condemning(state, bad))?;
    let view = View {
        state: state.clone(),
        index: with_packs(index, &found, state)?,
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
    let (_, _, bytes) = segment_over(packs.iter())?.build(state.provenance())?;
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
                    reading: match read_data || record.damaged().contains(&pack.id) {
                        true => Reading::Decoded,
                        false => Reading::Table,
                    },
                });
            }
        }
    }
    tasks
}

/// Writes new packs and segments, and returns the changes for the log entry.
fn changes(
    store: &Store,
    survey: &Survey,
    is_dry: bool,
    report: &mut RepairReport,
) -> Result<Vec<Change>> {
    let (mut changes, mut has_deltas) = (Vec::new(), survey.view.index.has_deltas());
    let made = survey.view.state.provenance();
    let mut add = |mut builder: SegmentBuilder| {
        if !is_dry && !builder.is_empty() {
            let (segment, change) = builder.write(store.remote().as_ref(), made)?;
            report.segments_added.push(segment);
            has_deltas |= builder.has_deltas();
            changes.push(change);
        }
        Ok(())
    };
    let good = survey.orphaned.iter();
    add(segment_over(
        good.filter(|pack| !survey.bad.contains(&pack.header.id)),
    )?)?;
    let mut saver = Saver::new(store, &survey.view, &survey.bad, is_dry)?;
    for task in &survey.tasks {
        if survey.bad.contains(&task.pack.id) {
            saver.save(task)?;
        }
    }
    saver.save_bases()?;
    let (saved, lost) = (saver.saved, saver.lost);
    add(saver.finish()?)?;
    (report.chunks_saved, report.chunks_lost) = (saved, lost);
    let dropped = survey.broken.iter();
    changes.extend(dropped.map(|id| Change::DropSegment {
        segment: *id,
        into: None,
    }));
    if !survey.bad.is_empty() {
        let packs = survey.bad.iter().copied().collect();
        changes.push(Change::CondemnPacks { packs });
    }
    // The entry that added the feature may be lost.
    if let Some(learned) = survey.view.state.features.learned(has_deltas) {
        report.features_learned.push(DELTA_FRAMES.to_owned());
        changes.insert(0, learned);
    }
    Ok(changes)
}

/// Walks all versions again, in the repaired store.
fn tell_hits(store: &Store, before: &Index, state: State, report: &mut RepairReport) -> Result<()> {
    let index = store.open_index(&state, before)?;
    let view = View { state, index };
    let (damage, mut seen) = (Damage::default(), VerifyReport::default());
    RefWalk::new(store, &view, &damage, &mut seen).versions(None)?;
    report.hits = seen.hits;
    report.hits_left_out = seen.hits_left_out;
    Ok(())
}
