//! What the entry of a batch says, and what becomes of each version by it. Pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::select::{Bring, Found};
use super::{RefOutcome, RefStatus};
use crate::error::Result;
use crate::format::{Change, RefName, RefState, State};
use crate::policy::Refused;

/// The changes that publish `good` versions at `state`, but for those of namespaces that are refused; what becomes of
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
    let mut refs: HashMap<&RefName, RefState> = HashMap::new();
    for bring in good {
        let there = match refs.entry(&bring.name) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => place.insert(state.refs.get(&bring.name)?.unwrap_or_default()),
        };
        let namespace = bring.name.namespace();
        // Somebody else may have brought it meanwhile.
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
    Ok((changes, settled))
}
