//! The graph of versions: version -> tree -> list -> chunk. Walks it in order or in parallel, finds which versions
//! share chunks, and resolves the symlinks of a tree.

pub(crate) mod links;
pub(crate) mod reach;
pub(crate) mod shares;
mod walk;

pub use walk::{Part, Seen, Unread, Visit, Walk};
