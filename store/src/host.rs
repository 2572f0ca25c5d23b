//! This host: its directories ([`walk`]), what was unchanged in them (`stat_cache`), what was made in them (`list`), its whole files by content
//! ([`pool`]), what training jobs wrote in them (`steps`), and where no tree may be made (`destination`). Knows nothing of a store's objects.

pub(crate) mod attributes;
pub(crate) mod beat;
pub(crate) mod destination;
pub(crate) mod list;
pub mod pool;
pub(crate) mod saved;
pub mod stat_cache;
pub mod steps;
pub mod walk;
