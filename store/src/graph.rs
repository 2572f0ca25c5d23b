//! The graph of versions: version -> tree -> list -> chunk, walked in order or in parallel, and who reaches what.

pub(crate) mod reach;
mod walk;

pub use walk::{Part, Seen, Unread, Visit, Walk};
