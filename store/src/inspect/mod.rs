//! inspect: what is in a store, what is different, and what takes how much.
//!
//! Only reads. Results are handed to the caller one by one in the order of paths, so that memory
//! follows the depth of a tree and not its size.

mod contents;
mod deltas;
mod diff;
mod disk;
mod growth;
mod kept;
mod listing;
mod summarize;
mod usage;

pub use crate::graph::shares::Share;
pub use contents::contents_only_of;
pub use deltas::Deltas;
pub use diff::{Aspect, Difference, Event, diff, diff_with_directory};
pub use growth::{Grown, Part, Step, growth};
pub use kept::KeptChange;
pub use listing::{Kept, ListOptions, Listed, NamespaceLine, RefLine, ls};
pub use summarize::{RefShares, Summary, summarize, summarize_refs};
pub use usage::{Usage, usage};

use crate::format::Node;

/// What a path stands for, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points, verbatim.
        target: Vec<u8>,
    },
    /// A directory.
    Directory,
}

impl From<&Node> for Entry {
    fn from(node: &Node) -> Self {
        match node {
            Node::File {
                content,
                executable,
            } => Self::File {
                size: content.size,
                executable: *executable,
            },
            Node::Symlink { target } => Self::Symlink {
                target: target.clone(),
            },
            Node::Tree { .. } => Self::Directory,
        }
    }
}
