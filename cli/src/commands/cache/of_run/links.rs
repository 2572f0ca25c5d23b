//! Symlinks in a cache on the way to a compile cache in it. They may have come with a version of the cache, and lead to what
//! only this user can read or write: nothing is pulled or pushed through them.

use std::path::{Path, PathBuf};

use store::{Error, Result};

use crate::config::layouts::Places;
use crate::host::planted;

/// The directory of the cache of the run that `dir` is in.
pub(super) fn cache_of(dir: &Path, places: &Places) -> Option<PathBuf> {
    let mut caches = [Some(&places.project), places.team.as_ref()]
        .into_iter()
        .flatten();
    caches.find(|cache| dir.starts_with(cache)).cloned()
}

/// Checks that there is no symlink between `cache` and `dir`, which is below it.
///
/// # Errors
/// Conflict, naming the symlink.
pub(super) fn check(cache: Option<&Path>, dir: &Path) -> Result<()> {
    let below = cache.and_then(|cache| Some((cache, dir.strip_prefix(cache).ok()?)));
    let found = below.and_then(|(cache, below)| planted::link_below(cache, below, |_| true));
    match found {
        None => Ok(()),
        Some((at, _)) => Err(Error::conflict(format!(
            "{}: is a symlink, which may have come with the cache: nothing is pulled or pushed through it",
            at.display()
        ))
        .hint("remove it, and take it out of the ref with `store rm REF:PATH` if it came with that")),
    }
}
