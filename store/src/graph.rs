//! The graph of versions: version -> tree -> list -> chunk, and who reaches what.

pub(crate) mod reach;
