//! When one version stands for another.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::format::{Id, Version};

/// Whether a version stays at least as long as another one was to.
pub(super) fn stays_as_long(there: &Version, wanted: &Version) -> bool {
    let is_long = |end| wanted.expires.is_some_and(|wanted| wanted <= end);
    there.pinned || there.expires.is_none_or(is_long)
}

/// Whether two versions have the same tree, the same times and the same other side objects.
pub(super) fn is_same(one: &Version, other: &Version) -> bool {
    (one.root, &one.sides) == (other.root, &other.sides)
}

/// Numbers of versions that come again later in the source. Only the last of several equal versions counts, as at the
/// source. Copied in place of the first, it would not come after the versions in between.
pub(super) fn repeated(
    source: &BTreeMap<u64, Version>,
    is_asked: impl Fn(u64) -> bool,
) -> HashSet<u64> {
    let mut last: HashMap<Id, &Version> = HashMap::new();
    let mut repeated = HashSet::new();
    for (number, version) in source.iter().rev().filter(|(number, _)| is_asked(**number)) {
        match last.get(&version.id()) {
            Some(later) if is_same(later, version) => drop(repeated.insert(*number)),
            _ => drop(last.insert(version.id(), version)),
        }
    }
    repeated
}
