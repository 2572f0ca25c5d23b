//! Contents and nodes: what a name in a tree refers to.
//!
//! Never reads bytes of files: a content is their size and the root of their chunk list.

use serde::{Deserialize, Serialize};

use super::CHUNK_BYTES_MAX;
use crate::id::ChunkId;

/// Most levels of list nodes above the data chunks; far more than 2^64 bytes need.
pub const CONTENT_DEPTH_MAX: u8 = 8;

/// The bytes of one file, tree or list of times: their size and the root of their chunk list.
///
/// Depth 0: the root is a single chunk with all bytes. Depth d > 0: the root is a list node of level d - 1, whose
/// children are list nodes of level d - 2, and so on; level 0 lists data chunks. Size 0: there is no chunk; the depth
/// is 0 and the root is the id of the empty string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// Length in bytes.
    pub size: u64,
    /// Levels of list nodes above the data chunks.
    pub depth: u8,
    /// The chunk at the root.
    pub root: ChunkId,
}

/// Sums over everything below a tree, without the tree itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Totals {
    /// Entries of all kinds at all depths.
    pub entries: u64,
    /// Bytes of all files at all depths.
    pub bytes: u64,
}

/// What a name in a tree refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A regular file.
    File {
        /// Its bytes.
        content: Content,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A symbolic link with its target unchanged.
    Symlink {
        /// 1 to 4095 bytes without NUL.
        target: Vec<u8>,
    },
    /// A directory.
    Tree {
        /// The canonical bytes of the tree.
        content: Content,
        /// Totals of everything below it.
        totals: Totals,
    },
}

/// What a version of a ref refers to: a directory or one file.
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
        /// Totals of everything below it.
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

    /// Returns why this content is impossible, if it is: `content depth: expected ..., found ...`.
    pub(super) fn defect(&self) -> Option<String> {
        let depth = self.depth;
        if self.size == 0 && *self != Self::empty() {
            let root = self.root;
            return Some(format!(
                "content of size 0: expected depth 0 and the id of no bytes, found depth {depth} and {root}"
            ));
        }
        if depth > CONTENT_DEPTH_MAX {
            return Some(format!(
                "content depth: expected at most {CONTENT_DEPTH_MAX}, found {depth}"
            ));
        }
        if depth == 0 && self.size > u64::from(CHUNK_BYTES_MAX) {
            let size = self.size;
            return Some(format!(
                "content of depth 0: expected at most {CHUNK_BYTES_MAX} bytes, found {size}"
            ));
        }
        None
    }
}

impl Root {
    /// Bytes of the file, or of all files below the directory.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { content, .. } => content.size,
            Self::Tree { totals, .. } => totals.bytes,
        }
    }

    /// Entries of all kinds below the directory; 0 for a file.
    pub fn entries(&self) -> u64 {
        match self {
            Self::File { .. } => 0,
            Self::Tree { totals, .. } => totals.entries,
        }
    }

    /// Returns the bytes of the file, or of the tree object.
    pub fn content(&self) -> &Content {
        match self {
            Self::File { content, .. } | Self::Tree { content, .. } => content,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_contents_are_told() {
        let root = ChunkId([1; 32]);
        let content = |size, depth| Content { size, depth, root };
        assert_eq!(Content::empty().defect(), None);
        assert_eq!(content(1, 0).defect(), None);
        assert_eq!(content(1 << 22, 0).defect(), None);
        assert_eq!(content(u64::MAX, 8).defect(), None);
        assert_eq!(
            content((1 << 22) + 1, 0).defect().unwrap(),
            "content of depth 0: expected at most 4194304 bytes, found 4194305"
        );
        assert_eq!(
            content(1, 9).defect().unwrap(),
            "content depth: expected at most 8, found 9"
        );
        assert!(
            content(0, 0)
                .defect()
                .unwrap()
                .starts_with("content of size 0: expected depth 0 and the id of no bytes")
        );
    }

    #[test]
    fn a_root_is_tagged_in_json() {
        let root = Root::File {
            content: Content::empty(),
            executable: true,
        };
        let json = serde_json::to_string(&root).unwrap();
        assert!(
            json.starts_with(r#"{"kind":"file","content":{"size":0,"depth":0,"root":"af1349b9"#)
        );
        assert_eq!(serde_json::from_str::<Root>(&json).unwrap(), root);
        assert_eq!(root.content().size, 0);
        assert_eq!(
            Node::from(root),
            Node::File {
                content: Content::empty(),
                executable: true
            }
        );
    }
}
