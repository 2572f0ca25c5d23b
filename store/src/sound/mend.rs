//! mend: if packs that somebody relies on are missing, cut off or damaged, they are condemned, as by a repair, so that their
//! chunks are stored again.
//!
//! It looks only at what is relied on, and reads only what a verification on this host found damaged. What is good in a
//! damaged pack is copied first; nothing is deleted.

use std::collections::{BTreeSet, HashMap};

use super::packs::{PackTask, Reading, check_packs};
use super::record::Record;
use super::saver::{Saver, condemning};
use super::segments::{self, Compared};
use super::there::{self, LISTED_AT_ONCE, Needed};
use super::{Part, VerifyReport};
use crate::error::{Error, Result};
use crate::format::{Change, PACKS_PREFIX, SegmentPack, State, pack_key};
use crate::id::PackId;
use crate::progress::{Progress, Unwatched};
use crate::read::Reader;
use crate::remote::Read;
use crate::retry::{VAIN_MAX, retry};
use crate::session::{Relied, moves_chunks};
use crate::store::{Store, View};

/// If a bucket has more packs than this, packs of versions that are relied on whole are not checked.
const LISTED_MAX: usize = 4 * LISTED_AT_ONCE;

/// Condemns the packs that `relied` relies on and that are missing, or that a verification of this host found damaged
/// and that still are. None if all is well; otherwise the packs that this call condemned, without those that others
/// condemned before. `state` is the one that the work began with.
///
/// # Errors
/// When the store does not answer; conflict, when others keep changing it.
pub(crate) fn mend(
    store: &Store,
    state: &State,
    relied: &Relied,
) -> Result<Option<BTreeSet<PackId>>> {
    let bad = unsound(store, state, relied)?;
    match bad.is_empty() {
        true => Ok(None),
        false => condemn(store, &bad).map(Some),
    }
}

/// The packs that `relied` relies on and that are missing, cut off, or known to be damaged.
pub(crate) fn unsound(store: &Store, state: &State, relied: &Relied) -> Result<BTreeSet<PackId>> {
    segments::check(store, relied, Compared::Lengths)?;
    let index = relied.index();
    let marked = relied.packs()?;
    let named: HashMap<PackId, SegmentPack> = index.packs().map(|pack| (pack.id, pack)).collect();
    let is_live = |pack: &SegmentPack| !state.condemned.contains_key(&pack.id);
    // If a version is relied on whole, it is not known which packs it needs, so all are checked.
    let looks_at_all = relied.has_bases() && (!store.is_far() || named.len() <= LISTED_MAX);
    let needed: Vec<SegmentPack> = match looks_at_all {
        true => named.values().copied().filter(is_live).collect(),
        false => (marked.iter().filter_map(|pack| named.get(pack).copied()))
            .filter(is_live)
            .collect(),
    };
    let mut bad = broken(store.remote().as_ref(), &needed, named.len())?;
    let view = View {
        index: index.as_ref().clone(),
        state: state.clone(),
    };
    let record = Record::load(store);
    let needed: BTreeSet<PackId> = needed.into_iter().map(|pack| pack.id).collect();
    let known: BTreeSet<PackId> = record.damaged().intersection(&needed).copied().collect();
    let found = damaged(store, &view, &known, &Unwatched)?;
    // The next check need not read packs that are sound again.
    forget(store, &(&known - &found));
    bad.extend(found);
    if bad.is_empty() || !bad.is_disjoint(&marked.into_iter().collect()) {
        return Ok(bad);
    }
    // If only versions that are relied on whole can be hit, check whether they need these packs.
    match relied.is_offered_by(store, &without(&view, &bad)?)? {
        true => Ok(BTreeSet::new()),
        false => Ok(bad),
    }
}

/// The view as it will be after these packs are condemned.
pub(crate) fn without(view: &View, bad: &BTreeSet<PackId>) -> Result<View> {
    let state = condemning(&view.state, bad);
    Ok(View {
        index: view.index.clone().at_state(&state)?,
        state,
    })
}

/// The packs that are missing or have another length than their segment says; `all` is the number of packs in the store.
pub(crate) fn broken(
    remote: &dyn Read,
    packs: &[SegmentPack],
    all: usize,
) -> Result<BTreeSet<PackId>> {
    let needed: Vec<_> = (packs.iter())
        .map(|pack| Needed {
            id: pack.id,
            key: pack_key(pack.id),
            bytes: pack.len.into(),
        })
        .collect();
    let found = there::broken(remote, PACKS_PREFIX, &needed, all)?;
    Ok(found.into_iter().collect())
}

/// Reads these packs to the last byte, and returns the damaged ones. This host remembers the result.
pub(crate) fn damaged(
    store: &Store,
    view: &View,
    packs: &BTreeSet<PackId>,
    progress: &dyn Progress,
) -> Result<BTreeSet<PackId>> {
    if packs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut seen = VerifyReport::default();
    let reader = Reader::at(store, view.clone());
    check_packs(&reader, &tasks(view, packs), false, progress, &mut seen)?;
    let parts = seen.findings.iter().map(|finding| finding.part);
    let found = parts.filter_map(|part| match part {
        Part::Pack(pack) => Some(pack),
        _ => None,
    });
    Ok(found.collect())
}

/// The live packs among these, each to be read.
fn tasks(view: &View, packs: &BTreeSet<PackId>) -> Vec<PackTask> {
    let mut tasks = Vec::new();
    for segment in view.index.segments() {
        for (position, pack) in (0..).zip(segment.packs()) {
            if packs.contains(&pack.id) && !view.state.condemned.contains_key(&pack.id) {
                tasks.push(PackTask {
                    segment: segment.clone(),
                    position,
                    pack,
                    reading: Reading::Decoded,
                });
            }
        }
    }
    tasks
}

/// Copies what is good in `bad` packs and condemns them in one entry. Returns those that were not condemned before.
///
/// # Errors
/// Conflict, when others keep changing the store; when it does not answer.
pub(crate) fn condemn(store: &Store, bad: &BTreeSet<PackId>) -> Result<BTreeSet<PackId>> {
    let condemned = retry(|| condemn_now(store, bad))?.ok_or_else(|| {
        Error::conflict(format!(
            "{}: the store changed {VAIN_MAX} times in a row while damaged packs were taken out",
            store.remote().url()
        ))
        .hint("run it again when the store is less busy")
    })?;
    forget(store, bad);
    Ok(condemned)
}

/// Does one pass of [`condemn`]; `None` when chunks moved meanwhile.
fn condemn_now(store: &Store, bad: &BTreeSet<PackId>) -> Result<Option<BTreeSet<PackId>>> {
    let View { mut state, index } = store.view()?;
    let view = View {
        state: state.clone(),
        index,
    };
    let tasks = tasks(&view, bad);
    let packs: BTreeSet<PackId> = tasks.iter().map(|task| task.pack.id).collect();
    if packs.is_empty() {
        return Ok(Some(packs));
    }
    let mut saver = Saver::new(store, &view, bad, false)?;
    tasks.iter().try_for_each(|task| saver.save(task))?;
    let mut changes = Vec::new();
    let mut saved = saver.finish()?;
    if !saved.is_empty() {
        changes.push(saved.write(store.remote().as_ref(), store.provenance())?.1);
    }
    changes.push(Change::CondemnPacks {
        packs: packs.iter().copied().collect(),
    });
    let mut is_stale = false;
    store.commit(&mut state, &mut |_, entries| {
        is_stale = entries.iter().any(moves_chunks);
        Ok(if is_stale {
            Vec::new()
        } else {
            changes.clone()
        })
    })?;
    Ok((!is_stale).then_some(packs))
}

/// Removes packs that are condemned or sound from the record. If that fails, they are checked once more.
fn forget(store: &Store, packs: &BTreeSet<PackId>) {
    if !packs.is_empty() {
        drop(Record::load(store).save(|pack| !packs.contains(pack)));
    }
}
