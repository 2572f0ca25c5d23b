//! When one version stands for another.

use crate::format::Version;

/// Whether a version stays at least as long as another one was to.
pub(super) fn stays_as_long(there: &Version, wanted: &Version) -> bool {
    let is_long = |end| wanted.expires.is_some_and(|wanted| wanted <= end);
    there.pinned || there.expires.is_none_or(is_long)
}

/// Whether two versions have the same tree, the same times and the same other side objects.
pub(super) fn is_same(one: &Version, other: &Version) -> bool {
    (one.root, &one.sides) == (other.root, &other.sides)
}
