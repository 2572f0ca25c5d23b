//! The changes in the entry of a batch, and the outcome of each version. Pure.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::select::{Bring, Found};
use super::{RefOutcome, RefStatus};
use crate::error::Result;
use crate::format::{Change, RefName, RefState, State};
use crate::policy::Refused;
use crate::refs;

/// The changes that publish the `good` versions at `state`, except those of refused namespaces, and the outcome of
/// each.
///
/// # Errors
/// When the state cannot be read.
pub(super) fn changes(
    good: &[&Bring],
    state: &State,
    refused: &Refused,
) -> Result<(Vec<Change>, Vec<RefOutcome>)> {
    let (mut changes, mut settled) = (Vec::new(), Vec::new());
    let mut refs: BTreeMap<&RefName, RefState> = BTreeMap::new();
    for bring in good {
        let there = match refs.entry(&bring.name) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => place.insert(state.refs.get(&bring.name)?.unwrap_or_default()),
        };
        let namespace = bring.name.namespace();
        // Another run may have copied the version meanwhile.
        let (number, status) = match (bring.found(there), refused.get(&namespace)) {
            (Found::There(number) | Found::GoneBack { there: number, .. }, _) => {
                let status = match bring.kept == Some(number) {
                    true => RefStatus::Healed,
                    false => RefStatus::Unchanged,
                };
                (Some(number), status)
            }
            (Found::Overtaken { there, newest }, _) => {
                let error = bring.overtaken(there, newest);
                (Some(there), RefStatus::Failed(error))
            }
            (Found::Nowhere, Some(over)) => {
                let error = bring.failure(over.error(&namespace));
                (None, RefStatus::Failed(error))
            }
            (Found::Nowhere, None) => {
                let number = bring.add_to(there);
                changes.push(bring.set_ref(number));
                (Some(number), RefStatus::Published)
            }
        };
        settled.push(bring.outcome(number, status));
    }
    if good.iter().any(|bring| bring.is_back) {
        let tops = refs
            .iter()
            .filter_map(|(name, there)| on_top(state, name, there));
        changes.extend(tops);
    }
    Ok((changes, settled))
}

/// The change that makes the version with the highest rank the newest again.
fn on_top(state: &State, name: &RefName, there: &RefState) -> Option<Change> {
    let first = state.by_rank(name, &there.versions).pop()?;
    let newest = there.versions.last_key_value().map(|(number, _)| *number);
    let version = there.versions.get(&first.number)?;
    if newest == Some(first.number) {
        return None;
    }
    let back = state.coming_back(name, first.number, version);
    Some(refs::set(name, there.last + 1, &back))
}
