//! inspect: what a store contains, what differs, and how much space things take.
//!
//! Only reads. Results are passed to the caller one by one, in the order of paths, so memory depends on the depth of a
//! tree rather than on its size.

mod contents;
mod deltas;
mod diff;
mod disk;
mod growth;
mod kept;
mod listing;
mod side;
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

/// What a path refers to, without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File {
        /// Length in bytes.
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
