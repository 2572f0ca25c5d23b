//! The versions of a state: all of them, those that go, and those that stay, class after class.

use std::collections::{BTreeSet, HashSet};

use store::format::{RefName, State, Version};

use crate::policy::Drop;

/// A version of a ref, by its name and number.
pub(crate) type Named<'v> = (&'v RefName, u64, &'v Version);

/// The versions that stay: the newest of each ref, older ones, pinned ones.
pub(crate) fn classes<'v>(state: &'v State, drops: &BTreeSet<Drop>) -> [Vec<Named<'v>>; 3] {
    let dropped = names(drops);
    let mut classes = [const { Vec::new() }; 3];
    let [newest, older, pinned] = &mut classes;
    for (name, number, version) in versions(state) {
        if dropped.contains(&(name, number)) {
            continue;
        }
        let last = state
            .refs
            .get(name)
            .and_then(|known| known.versions.last_key_value());
        let is_newest = last.is_some_and(|(last, _)| *last == number);
        match (version.pinned, is_newest) {
            (true, _) => pinned.push((name, number, version)),
            (false, true) => newest.push((name, number, version)),
            (false, false) => older.push((name, number, version)),
        }
    }
    classes
}

pub(crate) fn names(drops: &BTreeSet<Drop>) -> HashSet<(&RefName, u64)> {
    let names = drops.iter().map(|drop| (&drop.name, drop.version));
    names.collect()
}

pub(crate) fn versions(state: &State) -> impl Iterator<Item = Named<'_>> {
    state.refs.iter().flat_map(|(name, known)| {
        known
            .versions
            .iter()
            .map(move |(number, version)| (name, *number, version))
    })
}
