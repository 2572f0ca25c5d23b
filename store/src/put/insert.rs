//! insert: entries go into the newest version where that has nothing of their name, each whole or not at all.

use super::{Onto, PutRequest};
use crate::format::Node;
use crate::merge::Both;

/// What becomes of a path that both sides have, and that is not the same.
///
/// An entry that is there stays as it is, unless it is what the caller saw and wants gone. Above entries both are
/// directories, or ours has no place there.
pub(super) fn both(request: &PutRequest, path: &[u8], ours: &Node, theirs: &Node) -> Both {
    if request.onto != Onto::Insert {
        return Both::AsMerged;
    }
    match (request.entries.get(path), ours, theirs) {
        (Some(Some(unwanted)), _, Node::Tree { content, .. }) if content == unwanted => {
            Both::OursInstead
        }
        (None, Node::Tree { .. }, Node::Tree { .. }) => Both::AsMerged,
        _ => Both::TheirsStays,
    }
}
