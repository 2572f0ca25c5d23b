//! The graph of versions: version -> tree -> list -> chunk, walked in order or in parallel, who reaches what, and where
//! symlinks of a tree lead.

pub(crate) mod links;
pub(crate) mod reach;
pub(crate) mod shares;
mod walk;

pub use walk::{Part, Seen, Unread, Visit, Walk};
