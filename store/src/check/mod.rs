//! check: verifies that everything exists and is what was written, and repairs what can be repaired.
//!
//! `verify` collects all defects instead of stopping at the first, and names the refs and paths that they affect.
//! `repair` rebuilds segments from packs and condemns what is damaged; it never deletes. Damaged chunks are no longer
//! offered, so a put of the original files stores them again.

mod features;
mod lost;
mod objects;
mod repair;
mod rolled_back;
mod subset;
mod walk;

use std::collections::HashSet;

use jiff::Timestamp;

pub use self::lost::lost;
pub use self::repair::{RepairReport, repair};
pub use self::subset::Subset;
use self::walk::RefWalk;
use crate::error::{Error, Result};
use crate::format::{Change, State, Target};
use crate::id::{PackId, SegmentId};
use crate::index::Index;
use crate::log;
use crate::progress::Progress;
use crate::read::Reader;
use crate::retry::{VAIN_MAX, retry};
use crate::sound::packs::{Damage, PackTask, Reading, check_packs};
use crate::sound::record::Record;
pub use crate::sound::{Finding, Hit, Part, VerifyReport};
use crate::store::{Store, View};

/// What to verify.
#[derive(Clone, Debug)]
pub struct VerifyRequest {
    /// If set, only what this ref, version or namespace needs.
    pub target: Option<Target>,
    /// Which packs are read completely.
    pub read: ReadData,
    /// The time by the caller's clock, recorded as the time of reading.
    pub now: Timestamp,
}

/// How to repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairRequest {
    /// Read all packs completely, rather than only those that a verification on this host found damaged.
    pub read_data: bool,
    /// Do everything except writing.
    pub dry_run: bool,
    /// Give up lost log entries that nothing can replace.
    pub accept_loss: bool,
}

/// Which packs are read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadData {
    /// No pack: only their tables are read.
    Nothing,
    /// Some packs; their frames are decoded.
    Some(Subset),
    /// All packs; their stored bytes are compared with the sums in their tables, at the speed of the disk.
    Stored,
    /// All packs; frames are decoded and compared with the ids of their chunks.
    Everything,
}

/// Verifies a store, or only what some refs need. Defects are in the report; an error means that the verification could
/// not be completed.
///
/// # Errors
/// Not found, when the target does not exist; also when the store does not answer or a stop is requested.
pub fn verify(
    store: &Store,
    request: &VerifyRequest,
    progress: &dyn Progress,
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let remote = store.remote().as_ref();
    let state = objects::check_log(remote, store.format().id, &mut report)?;
    let mut readable = state.clone();
    let index = open_sound(store, &mut readable, &mut report)?;
    let view = View {
        state: readable,
        index,
    };

    let needed = match &request.target {
        None => None,
        Some(target) => Some(packs_needed(store, &view, target)?),
    };
    let mut record = Record::load(store);
    let tasks = tasks(&view, needed.as_ref(), request.read, &record)?;
    let reader = Reader::at(store, view.clone());
    let damage = check_packs(&reader, &tasks, needed.is_none(), progress, &mut report)?;
    let mut walk = RefWalk::new(store, &view, &damage, &mut report);
    walk.versions(request.target.as_ref())?;
    forget_unlisted(&damage, &mut report);
    if needed.is_none() {
        rolled_back::check(store, (&state, &view.index), &mut report)?;
        objects::check_rest(store, &mut report)?;
        features::check(&view, &mut report);
    }
    remember(&mut record, &tasks, &view.index, &mut report, request.now);
    if !report.is_clean() {
        let now = forget_what_moved(store, &state, &mut report);
        walk_again(store, request, (&state, now), &damage, &mut report)?;
        forget_unlisted(&damage, &mut report);
    }
    Ok(report)
}

/// Opens the intact segments of `state`, and removes all others from it.
fn open_sound(store: &Store, state: &mut State, report: &mut VerifyReport) -> Result<Index> {
    objects::check_segments(store, state, report)?;
    open_checked(store, state, report)
}

/// Opens segments that were checked. If a collector removes one after its check, they are checked again.
fn open_checked(store: &Store, state: &mut State, report: &mut VerifyReport) -> Result<Index> {
    let looked_at = report.segments;
    let opened = retry(|| match store.open_index(state, &Index::default()) {
        Err(error) if error.is_damage() => {
            let before = state.segments.len();
            objects::check_segments(store, state, report)?;
            // If all segments are still intact, the error has another cause.
            match state.segments.len() < before {
                true => Ok(None),
                false => Err(error),
            }
        }
        opened => opened.map(Some),
    })?;
    report.segments = looked_at;
    opened.ok_or_else(|| {
        Error::conflict("segments: collectors took one after the other while they were opened")
            .hint("run it again")
    })
}

/// Drops findings about unlisted places. A chunk may be in two packs of a segment, which lists only one place. If a
/// collector removed that one, nobody needed the chunk, and the other place is ordinary garbage.
fn forget_unlisted(damage: &Damage, report: &mut VerifyReport) {
    if report.hits.is_empty() {
        let is_unlisted = |finding: &Finding| damage.unlisted.contains(finding);
        report.findings.retain(|finding| !is_unlisted(finding));
    }
}

/// Returns the packs that hold what `target` needs.
fn packs_needed(store: &Store, view: &View, target: &Target) -> Result<HashSet<PackId>> {
    let (damage, mut report) = (Damage::default(), VerifyReport::default());
    let mut walk = RefWalk::new(store, view, &damage, &mut report);
    walk.versions(Some(target))?;
    Ok(walk.packs)
}

/// Selects the packs to examine, and how each is read.
fn tasks(
    view: &View,
    needed: Option<&HashSet<PackId>>,
    read: ReadData,
    record: &Record,
) -> Result<Vec<PackTask>> {
    let mut tasks = Vec::new();
    for segment in view.index.segments() {
        for (position, pack) in (0..).zip(segment.packs()) {
            let is_needed = needed.is_none_or(|needed| needed.contains(&pack.id));
            if is_needed && !view.state.condemned.contains_key(&pack.id) {
                tasks.push(PackTask {
                    segment: segment.clone(),
                    position,
                    pack,
                    reading: match read {
                        ReadData::Nothing | ReadData::Some(_) => Reading::Table,
                        ReadData::Stored => Reading::Stored,
                        ReadData::Everything => Reading::Decoded,
                    },
                });
            }
        }
    }
    if let ReadData::Some(subset) = read {
        let packs: Vec<_> = tasks
            .iter()
            .map(|task| (task.pack.id, task.pack.len, record.last_read(task.pack.id)))
            .collect();
        let chosen: HashSet<PackId> = subset.choose(&packs).into_iter().collect();
        for task in &mut tasks {
            if chosen.contains(&task.pack.id) {
                task.reading = Reading::Decoded;
            }
        }
    }
    Ok(tasks)
}

fn remember(
    record: &mut Record,
    tasks: &[PackTask],
    index: &Index,
    report: &mut VerifyReport,
    now: Timestamp,
) {
    let found = |pack: PackId| {
        let findings = report.findings.iter();
        let mut parts = findings.map(|finding| finding.part);
        parts.any(|part| part == Part::Pack(pack))
    };
    for task in tasks {
        let is_damaged = found(task.pack.id);
        if task.reading != Reading::Table {
            record.was_read(task.pack.id, now.as_second(), is_damaged);
        } else if is_damaged {
            record.is_damaged(task.pack.id);
        }
    }
    let live: HashSet<PackId> = index.packs().map(|pack| pack.id).collect();
    if let Err(error) = record.save(|pack| live.contains(pack)) {
        report.notes.push(format!(
            "{error}: the next verification does not know what was read"
        ));
    }
}

/// Drops findings about objects that a collector removed in the meantime. Returns the newest state, if it can be read.
fn forget_what_moved(store: &Store, before: &State, report: &mut VerifyReport) -> Option<State> {
    let now = store.readable_state().ok()?;
    // The newest state may have forgotten recently condemned packs, so the entries since then are read.
    let mut taken = HashSet::new();
    for entry in log::read_after(store.remote().as_ref(), &mut before.clone()).unwrap_or_default() {
        for change in entry.changes {
            if let Change::CondemnPacks { packs } = change {
                taken.extend(packs);
            }
        }
    }
    let stands = |part: Part| match part {
        Part::Segment(id) => now.segments.contains_key(&id),
        Part::Unlearned(id) => now.segments.contains_key(&id) && !now.features.has_delta_frames(),
        Part::Pack(id) => !taken.contains(&id),
        _ => true,
    };
    report.findings.retain(|finding| stands(finding.part));
    report
        .hits
        .retain(|hit| stands(hit.cause) && now.version(&hit.name, Some(hit.version)).is_ok());
    Some(now)
}

/// Walks the versions again, with the newest state: the first walk may have missed segments that a collector had
/// removed by then.
fn walk_again(
    store: &Store,
    request: &VerifyRequest,
    (before, now): (&State, Option<State>),
    damage: &Damage,
    report: &mut VerifyReport,
) -> Result<()> {
    let Some(mut state) = now else {
        return Ok(());
    };
    for _ in 0..VAIN_MAX {
        let has_lost = before
            .segments
            .keys()
            .any(|id| !state.segments.contains_key(id));
        if report.hits.is_empty() || !has_lost {
            return Ok(());
        }
        let parts = report.findings.iter().map(|finding| finding.part);
        let damaged: HashSet<SegmentId> = parts.filter_map(Part::segment).collect();
        state.segments.retain(|id, _| !damaged.contains(id));
        match store.open_index(&state, &Index::default()) {
            Ok(index) => {
                let view = View { state, index };
                let mut again = VerifyReport {
                    findings: std::mem::take(&mut report.findings),
                    ..VerifyReport::default()
                };
                RefWalk::new(store, &view, damage, &mut again).versions(request.target.as_ref())?;
                (report.findings, report.hits) = (again.findings, again.hits);
                report.hits_left_out = again.hits_left_out;
                return Ok(());
            }
            // A collector removed another segment.
            Err(error) if error.is_damage() => state = store.readable_state()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
