//! Trees: one directory, its entries sorted by name, as canonical bytes that can be streamed.

use crate::error::Result;
use crate::format::Node;

/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;
/// Most bytes of a symlink's target.
pub const TARGET_BYTES_MAX: usize = 4095;

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// 1 to 255 bytes; no `/`, no NUL, not `.` or `..`.
    pub name: Vec<u8>,
    /// What it stands for.
    pub node: Node,
}

/// Writes a tree entry by entry; refuses bad names and wrong order.
#[derive(Debug, Default)]
pub struct TreeEncoder {
    last: Vec<u8>,
}

impl TreeEncoder {
    /// A new tree: appends its header to `out`.
    pub fn new(_out: &mut Vec<u8>) -> Self {
        todo!()
    }

    /// Appends one entry to `out`.
    pub fn push(&mut self, _entry: &TreeEntry, _out: &mut Vec<u8>) -> Result<()> {
        todo!()
    }
}

/// Parses a whole tree: sorted, unique, valid names; `object` names it in errors.
pub fn decode_tree(_object: &str, _bytes: &[u8]) -> Result<Vec<TreeEntry>> {
    todo!()
}
