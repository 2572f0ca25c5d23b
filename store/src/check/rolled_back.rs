//! Detects a log that was rolled back and objects of another store, and lets a repair continue after a rollback.

use std::collections::HashSet;

use super::{Part, RepairRequest, VerifyReport};
use crate::error::Result;
use crate::format::State;
use crate::index::Index;
use crate::log::witness::{self, Witness};
use crate::log::{self, heal};
use crate::store::{SetBack, Store};

/// Reports objects that no entry names, if they show that the log was longer or belong to another store. `state` is what
/// the log says, with segments that the index lacks: entries that were added meanwhile may drop them.
pub(super) fn check(
    store: &Store,
    (state, index): (&State, &Index),
    report: &mut VerifyReport,
) -> Result<()> {
    let named = index.packs().map(|pack| pack.id).collect();
    let remote = store.remote().as_ref();
    let (object, damage) = match witness::of_all(remote, state, &named)? {
        Some(Witness { object, damage, .. }) => (object, damage),
        None => match store.set_back(state)? {
            Some(SetBack { object, damage, .. }) => (object, damage),
            None => return Ok(()),
        },
    };
    // An object of another store is also reported under the next log entry, since no state names it.
    let part = Part::Log(state.number + 1);
    if !report
        .findings
        .iter()
        .any(|finding| finding.object == object)
    {
        report.find(part, object, &damage);
    }
    Ok(())
}

/// If the log was rolled back and the caller accepts that, continues the log. Returns the first entry that is lost.
pub(super) fn settle(store: &Store, request: RepairRequest) -> Result<Option<u64>> {
    let remote = store.remote().as_ref();
    let state = log::load_known(remote, store.format().id)?.state;
    store.check_writable(&state)?;
    let named = match store.open_index(&state, &Index::default()) {
        Ok(index) => index.packs().map(|pack| pack.id).collect(),
        // Without an index, all packs are examined.
        Err(_) => HashSet::new(),
    };
    // An object that proves nothing about entries does not matter here; a verification reports it.
    let witness = witness::of_all(remote, &state, &named)?;
    let witness = witness.and_then(|found| Some((found.damage, found.until?)));
    let seen = store
        .set_back(&state)?
        .map(|found| (found.damage, found.until));
    let until = witness.iter().chain(&seen).map(|(_, until)| *until).max();
    let (Some(until), Some((damage, _))) = (until, witness.or(seen)) else {
        return Ok(None);
    };
    if !request.accept_loss {
        return Err(damage.hint(store.accept_rollback()));
    }
    if !request.dry_run {
        // Entries that others have added since are kept. The number exceeds all that were given up before, so that
        // hosts that knew those also notice this.
        let until = until.max(state.number).max(state.until + 1);
        heal::give_up_until(remote, &state, &store.host().who, until)?;
    }
    Ok(Some(state.number + 1))
}
