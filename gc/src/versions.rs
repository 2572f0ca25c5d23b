//! The versions of a state: all of them, and those that stay, by class.

use std::collections::{BTreeSet, HashSet};

use store::Result;
use store::format::{RefName, State, Version};

use crate::policy::Drop;

/// A version of a ref, by its name and number.
pub(crate) type Named = (RefName, u64, Version);

/// Why a version stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Newest,
    Older,
    Pinned,
}

impl Class {
    /// All classes, in the order in which bytes are attributed.
    pub(crate) const ALL: [Self; 3] = [Self::Newest, Self::Older, Self::Pinned];
}

/// Calls `each` with the versions of one class that stay.
pub(crate) fn each_of(
    state: &State,
    class: Class,
    drops: &BTreeSet<Drop>,
    each: &mut dyn FnMut(&RefName, u64, &Version) -> Result<()>,
) -> Result<()> {
    let dropped = names(drops);
    for found in state.refs.iter() {
        let (name, known) = found?;
        let last = known.versions.last_key_value().map(|(last, _)| *last);
        for (number, version) in &known.versions {
            let own = match (version.pinned, last == Some(*number)) {
                (true, _) => Class::Pinned,
                (false, true) => Class::Newest,
                (false, false) => Class::Older,
            };
            if own == class && !dropped.contains(&(&name, *number)) {
                each(&name, *number, version)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn names(drops: &BTreeSet<Drop>) -> HashSet<(&RefName, u64)> {
    let names = drops.iter().map(|drop| (&drop.name, drop.version));
    names.collect()
}

/// All versions.
pub(crate) fn versions(state: &State) -> impl Iterator<Item = Result<Named>> {
    state.refs.iter().flat_map(|found| {
        let (failed, found) = match found {
            Ok(found) => (None, Some(found)),
            Err(error) => (Some(Err(error)), None),
        };
        let versions = found.into_iter().flat_map(|(name, known)| {
            let versions = known.versions.into_iter();
            versions.map(move |(number, version)| Ok((name.clone(), number, version)))
        });
        failed.into_iter().chain(versions)
    })
}
