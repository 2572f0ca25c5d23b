//! Contents and nodes: what a name in a tree stands for.

use serde::{Deserialize, Serialize};

use crate::id::ChunkId;

/// One file's bytes (or a tree's, or a list of times): size and the root of its chunk list.
///
/// Depth 0: the root is the one chunk with all bytes. Depth d > 0: the root is a list node of
/// level d - 1 whose children are list nodes of level d - 2, …, level 0 lists data chunks.
/// Size 0: no chunk at all; depth 0 and the root is the id of the empty string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// Bytes.
    pub size: u64,
    /// Levels of list nodes above the data chunks.
    pub depth: u8,
    /// The chunk at the top.
    pub root: ChunkId,
}

/// What hangs below a tree, itself not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Totals {
    /// Entries of all kinds at all depths.
    pub entries: u64,
    /// Bytes of all files at all depths.
    pub bytes: u64,
}

/// What a name in a tree stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A regular file.
    File {
        /// Its bytes.
        content: Content,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A symbolic link, its target verbatim.
    Symlink {
        /// 1 to 4095 bytes without NUL.
        target: Vec<u8>,
    },
    /// A directory.
    Tree {
        /// The canonical bytes of the tree.
        content: Content,
        /// What hangs below.
        totals: Totals,
    },
}

/// What a ref version stands for: a directory or one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Root {
    /// One file.
    File {
        /// Its bytes.
        content: Content,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A directory.
    Tree {
        /// The canonical bytes of the tree.
        content: Content,
        /// What hangs below.
        totals: Totals,
    },
}

impl Content {
    /// The content of the empty file.
    pub fn empty() -> Self {
        Self {
            size: 0,
            depth: 0,
            root: ChunkId::of(b""),
        }
    }
}

impl From<Root> for Node {
    fn from(root: Root) -> Self {
        match root {
            Root::File {
                content,
                executable,
            } => Self::File {
                content,
                executable,
            },
            Root::Tree { content, totals } => Self::Tree { content, totals },
        }
    }
}
