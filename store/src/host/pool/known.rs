//! What this host knows of the version that a directory is of.

use super::Mark;
use crate::format::{Content, RefSpec};

/// The version that a directory is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) version: u64,
    /// Its tree, if that was recorded.
    pub(crate) tree: Option<Content>,
}

impl Mark {
    /// The version that the tree was made from; its tree is none, if only a part of it was made.
    pub(crate) fn known(&self) -> Known {
        let spec = self.source.parse::<RefSpec>();
        let is_whole = spec.is_ok_and(|spec| spec.path.is_empty());
        Known {
            version: self.version,
            tree: self.tree.filter(|_| is_whole),
        }
    }
}
