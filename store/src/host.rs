//! This host: its directories ([`walk`]), which files in them did not change (`stat_cache`) or were created (`list`),
//! its whole files by content ([`pool`]), what training jobs wrote (`steps`), and where no tree may be made
//! (`destination`). Knows nothing of a store's objects.

pub(crate) mod attributes;
pub(crate) mod beat;
pub(crate) mod destination;
pub(crate) mod list;
pub mod pool;
pub(crate) mod saved;
pub mod stat_cache;
pub mod steps;
pub mod walk;
