//! check: is everything there, is it what was written, and what to do where it is not.
//!
//! `verify` collects all that is wrong instead of stopping at the first, and tells which refs and paths
//! are hit. `repair` makes segments anew from packs and condemns what is damaged; it never deletes.
//! What was damaged is not offered any more, so that a put of the original files stores it again.

mod objects;
mod repair;
mod rolled_back;
mod subset;
mod walk;

use std::collections::HashSet;

use jiff::Timestamp;

pub use self::repair::{RepairReport, RepairRequest, repair};
pub use self::subset::Subset;
use self::walk::RefWalk;
use crate::error::Result;
use crate::format::{Change, State, Target};
use crate::id::PackId;
use crate::index::Index;
use crate::log;
use crate::progress::Progress;
use crate::sound::packs::{Damage, PackTask, Reading, check_packs};
use crate::sound::record::Record;
pub use crate::sound::{Finding, Hit, Part, VerifyReport};
use crate::store::{Store, View};

/// What to verify.
#[derive(Clone, Debug)]
pub struct VerifyRequest {
    /// Only what this ref, version or namespace needs.
    pub target: Option<Target>,
    /// Which packs are read to the last byte.
    pub read: ReadData,
    /// The time by the caller's clock, to be remembered as that of reading.
    pub now: Timestamp,
}

/// Which packs are read to the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadData {
    /// None: only their tables.
    Nothing,
    /// Some.
    Some(Subset),
    /// All, compared as they are stored with the sums in their tables: at the speed of the disk.
    Stored,
    /// All, decoded, and compared with the ids of their chunks.
    Everything,
}

/// Verifies a store, or what a part of its refs needs. What is wrong stands in the report; an error means
/// that it could not be found out.
///
/// # Errors
/// Not found, when the target does not exist; when the store does not answer; when stopped.
pub fn verify(
    store: &Store,
    request: &VerifyRequest,
    progress: &dyn Progress,
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let remote = store.remote().as_ref();
    let state = objects::check_log(remote, store.format().id, &mut report)?;
    let mut readable = state.clone();
    objects::check_segments(remote, &mut readable, &mut report)?;
    let index = store.open_index(&readable, &Index::default())?;
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
    let damage = check_packs(store, &tasks, needed.is_none(), progress, &mut report)?;
    let mut walk = RefWalk::new(store, &view, &damage, &mut report);
    walk.versions(request.target.as_ref())?;
    if report.hits.is_empty() {
        // A chunk may lie twice in the packs of a segment, which lists one place. When a collector took that one,
        // nobody needed the chunk, and the other place is garbage like any other.
        report
            .findings
            .retain(|finding| !damage.unlisted.contains(finding));
    }

    if needed.is_none() {
        rolled_back::check(store, &view, &mut report)?;
    }
    remember(&mut record, &tasks, &view.index, &mut report, request.now);
    if !report.is_clean() {
        forget_what_moved(store, &state, &mut report)?;
    }
    Ok(report)
}

/// The packs that hold what `target` needs.
fn packs_needed(store: &Store, view: &View, target: &Target) -> Result<HashSet<PackId>> {
    let (damage, mut report) = (Damage::default(), VerifyReport::default());
    let mut walk = RefWalk::new(store, view, &damage, &mut report);
    walk.versions(Some(target))?;
    Ok(walk.packs)
}

/// Which packs are looked at, and which of them are read.
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

/// A collector may have worked meanwhile: what it took from the state is not missing.
fn forget_what_moved(store: &Store, before: &State, report: &mut VerifyReport) -> Result<()> {
    let Ok(now) = store.readable_state() else {
        return Ok(());
    };
    // The newest state may have forgotten what was condemned since, so each entry in between is asked.
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
        Part::Pack(id) => !taken.contains(&id),
        _ => true,
    };
    report.findings.retain(|finding| stands(finding.part));
    report
        .hits
        .retain(|hit| stands(hit.cause) && now.version(&hit.name, Some(hit.version)).is_ok());
    Ok(())
}
