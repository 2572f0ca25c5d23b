//! This host: its directories ([`walk`]), which of their files are unchanged (`stat_cache`), lists of a tree's paths
//! (`list`), what a directory held when it was last saved (`saved`), whole files by content ([`pool`]), directories
//! that training jobs write (`steps`), and where no tree may be made (`destination`). Knows nothing of a store's
//! objects.

pub(crate) mod attributes;
pub(crate) mod beat;
pub(crate) mod destination;
pub(crate) mod list;
pub mod pool;
pub(crate) mod rooms;
pub(crate) mod saved;
pub mod stat_cache;
pub mod steps;
pub mod walk;
