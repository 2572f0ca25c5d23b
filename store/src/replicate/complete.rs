//! Which versions of an unfinished batch are complete at the destination, so that a run that is asked to stop can still
//! publish them. It reads the metadata of the source; if a version lacks something, only up to the first missing chunk.

use std::collections::HashSet;

use super::missing::{Missing, Unreadable};
use super::select::Bring;
use crate::error::Result;
use crate::read::Reader;
use crate::session::Relied;
use crate::store::{Store, View};

/// The `versions` whose chunks `there` offers, all of them. Nothing of a ref after its first incomplete version, since
/// versions keep their order.
///
/// # Errors
/// When the source cannot be read, or an index.
pub(super) fn complete<'q>(
    from: &Store,
    source: &View,
    versions: impl Iterator<Item = &'q Bring>,
    there: &Relied,
) -> Result<Vec<&'q Bring>> {
    // The run was asked to stop, and does this first.
    let from = from.unhurried();
    let (reader, none) = (Reader::at(&from, source.clone()), Unreadable::new());
    let (mut whole, mut begun) = (Vec::new(), HashSet::new());
    // One walk serves until it meets an incomplete version, which it has walked only in part.
    let mut walk = None;
    for bring in versions {
        if begun.contains(&bring.name) {
            continue;
        }
        let walked = walk
            .take()
            .unwrap_or_else(|| Missing::new(&reader, there, &none));
        walk = walked.complete(&bring.version)?;
        if walk.is_some() {
            whole.push(bring);
        } else {
            begun.insert(&bring.name);
        }
    }
    Ok(whole)
}
