//! One side of a diff: a stream of the entries of a version, or of a directory of this host.

use std::sync::Arc;

use super::Entry;
use crate::error::Result;
use crate::format::{Content, Node};
use crate::host::walk::{Dir, Stat};

/// A tree as a stream of entries, each directory before its contents.
pub(super) trait Side {
    /// Returns the next entry. If the last one was a directory, its contents come first.
    fn next(&mut self) -> Result<Option<Step>>;

    /// Skips everything below the last entry.
    fn skip_below(&mut self);
}

/// One entry of a side.
pub(super) struct Step {
    pub(super) path: Vec<u8>,
    pub(super) thing: Thing,
}

/// The entry as its side has it.
pub(super) enum Thing {
    Stored(Node),
    File(DiskFile),
    Symlink {
        target: Vec<u8>,
        /// The target that a put would store instead.
        put_as: Option<Vec<u8>>,
        stat: Stat,
    },
    Directory {
        dir: Arc<Dir>,
        stat: Stat,
    },
}

/// A file on this host.
pub(super) struct DiskFile {
    pub(super) dir: Arc<Dir>,
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
}

impl Thing {
    pub(super) fn entry(&self) -> Entry {
        match self {
            Self::Stored(node) => node.into(),
            Self::File(file) => Entry::File {
                size: file.stat.size,
                executable: file.stat.is_executable(),
            },
            Self::Symlink { target, .. } => Entry::Symlink {
                target: target.clone(),
            },
            Self::Directory { .. } => Entry::Directory,
        }
    }

    pub(super) fn content(&self) -> Option<&Content> {
        match self {
            Self::Stored(Node::File { content, .. } | Node::Tree { content, .. }) => Some(content),
            _ => None,
        }
    }
}
