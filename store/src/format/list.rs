//! List nodes: the chunk list of a content that is larger than one chunk.

use crate::error::Result;
use crate::id::ChunkId;

/// Most children of a node.
pub const LIST_FANOUT_MAX: usize = 1024;

/// One child: a data chunk (level 0) or a list node of the level below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChild {
    /// Its id.
    pub id: ChunkId,
    /// Bytes of content below it.
    pub size: u64,
}

/// A list node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListNode {
    /// 0: the children are data chunks.
    pub level: u8,
    /// 1 to [`LIST_FANOUT_MAX`] children, none of size 0.
    pub children: Vec<ListChild>,
}

impl ListNode {
    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        todo!()
    }

    /// Parses; `object` names it in errors. Sizes must not overflow when added.
    pub fn decode(_object: &str, _bytes: &[u8]) -> Result<Self> {
        todo!()
    }

    /// Whether a node with `children` so far ends after the last of them: content-defined (the last id's
    /// first byte, at least 64 children; or 1024), so that an insertion moves few nodes.
    pub fn is_full(_children: &[ListChild]) -> bool {
        todo!()
    }
}
