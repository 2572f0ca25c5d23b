//! insert: adds entries to the newest version under names that it does not have, each whole or not at all.

use super::{Onto, PutRequest};
use crate::format::Node;
use crate::merge::Both;

/// Decides about a path that both sides have and that differs.
///
/// An existing entry stays, unless it is exactly what the caller saw and wants to replace. Above the entries, both
/// sides must be directories, or ours has no place there.
pub(super) fn both(request: &PutRequest, path: &[u8], ours: &Node, theirs: &Node) -> Both {
    if request.onto != Onto::Insert {
        return Both::AsMerged;
    }
    match (request.entries.get(path), ours, theirs) {
        (Some(Some(unwanted)), _, Node::Tree { content, .. } | Node::File { content, .. })
            if content == unwanted =>
        {
            Both::OursInstead
        }
        (None, Node::Tree { .. }, Node::Tree { .. }) => Both::AsMerged,
        _ => Both::TheirsStays,
    }
}
