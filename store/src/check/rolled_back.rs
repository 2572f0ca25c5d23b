//! A log that was rolled back, and objects of another store: what a verification reports, and how a repair continues.

use std::collections::HashSet;

use super::repair::RepairRequest;
use super::{Part, VerifyReport};
use crate::error::Result;
use crate::index::Index;
use crate::log::witness::{self, Witness};
use crate::log::{self, heal};
use crate::store::{SetBack, Store, View};

/// Whether what no entry names says that the log was longer, or that it is of another store.
pub(super) fn check(store: &Store, view: &View, report: &mut VerifyReport) -> Result<()> {
    let named = view.index.packs().map(|pack| pack.id).collect();
    let remote = store.remote().as_ref();
    let (object, damage) = match witness::of_all(remote, &view.state, &named)? {
        Some(Witness { object, damage, .. }) => (object, damage),
        None => match store.set_back(&view.state)? {
            Some(SetBack { object, damage, .. }) => (object, damage),
            None => return Ok(()),
        },
    };
    // Also where an object of another store says so: it stands in no state.
    let part = Part::Log(view.state.number + 1);
    if !report
        .findings
        .iter()
        .any(|finding| finding.object == object)
    {
        report.find(part, object, &damage);
    }
    Ok(())
}

/// Where the log was rolled back, goes on with what is left of it, if that is accepted. The first entry that is lost.
pub(super) fn settle(store: &Store, request: RepairRequest) -> Result<Option<u64>> {
    let remote = store.remote().as_ref();
    let state = log::load_known(remote, store.format().id)?.state;
    store.check_writable(&state)?;
    let named = match store.open_index(&state, &Index::default()) {
        Ok(index) => index.packs().map(|pack| pack.id).collect(),
        // Then more is asked.
        Err(_) => HashSet::new(),
    };
    // One that says nothing of entries is in nobody's way here: a verification names it.
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
        // What others added since stays. It is more than what was given up before, so that hosts that knew of that know this.
        let until = until.max(state.number).max(state.until + 1);
        heal::give_up_until(remote, &state, &store.host().who, until)?;
    }
    Ok(Some(state.number + 1))
}
