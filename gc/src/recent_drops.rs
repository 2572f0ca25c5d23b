//! Lately: versions that were dropped a short while ago, by whomever: the state has forgotten them, and
//! people still ask what became of their bytes.
//!
//! Looks back as far as the second newest checkpoint, so it reads a hundred entries or so and no more.

use store::format::{CHECKPOINTS_PREFIX, Change, State, Version, parse_checkpoint_key};
use store::log::{self, CHECKPOINT_EVERY};
use store::{Result, Store};

/// The versions that the last entries of the log dropped.
///
/// # Errors
/// When an entry cannot be read.
pub(crate) fn dropped(store: &Store, now: &State) -> Result<Vec<Version>> {
    let remote = store.remote().as_ref();
    let mut state = match now.number < 2 * CHECKPOINT_EVERY {
        true => State::default(),
        false => checkpoint(store, now)?,
    };
    let entries = log::read_after(remote, &mut state.clone())?;
    let mut dropped = Vec::new();
    for entry in &entries {
        for change in &entry.changes {
            if let Change::DropRef { name, version } = change
                && let Ok((_, version)) = state.version(name, Some(*version))
            {
                dropped.push(version.clone());
            }
        }
        state.apply(entry)?;
    }
    Ok(dropped)
}

/// The state of the second newest checkpoint; without one that can be read, the state as it is.
fn checkpoint(store: &Store, now: &State) -> Result<State> {
    let remote = store.remote().as_ref();
    let listed = remote.list(CHECKPOINTS_PREFIX)?;
    let mut numbers: Vec<(u64, String)> = listed
        .into_iter()
        .filter_map(|info| Some((parse_checkpoint_key(&info.key)?, info.key)))
        .filter(|(number, _)| *number <= now.number)
        .collect();
    numbers.sort_unstable();
    let Some((_, key)) = numbers.iter().rev().nth(1).or(numbers.last()) else {
        return Ok(now.clone());
    };
    State::decode(key, &remote.get(key)?)
}
