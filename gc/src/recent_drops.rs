//! Recent drops: versions that anybody dropped recently. The state has forgotten them, but people still ask what became
//! of their bytes.
//!
//! The search goes back to a checkpoint some way before the newest, so it reads only about a hundred entries.

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
                dropped.push(version);
            }
        }
        state.apply(entry)?;
    }
    Ok(dropped)
}

/// The state of the newest checkpoint that is at least that far back, or of the oldest; without any, the current state.
fn checkpoint(store: &Store, now: &State) -> Result<State> {
    let listed = store.remote().list(CHECKPOINTS_PREFIX)?;
    let numbers = listed
        .iter()
        .filter_map(|info| parse_checkpoint_key(&info.key));
    let mut numbers: Vec<u64> = numbers.filter(|number| *number <= now.number).collect();
    numbers.sort_unstable();
    let is_old = |number: &&u64| **number + CHECKPOINT_EVERY <= now.number;
    match numbers.iter().rev().find(is_old).or(numbers.first()) {
        Some(number) => store.checkpoint(*number),
        None => Ok(now.clone()),
    }
}
