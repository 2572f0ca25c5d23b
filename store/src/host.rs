//! This host: its directories ([`walk`]), which of their files are unchanged (`stat_cache`), whole files by
//! content and the trees that were made of them ([`pool`]), what a directory held when it was last saved (`saved`),
//! directories that training jobs write (`steps`), where no tree may be made (`destination`), open directories (`disk`),
//! walks along a path (`way`) and whom to trust with one (`trust`). Knows nothing of a store's objects.

pub(crate) mod attributes;
pub(crate) mod beat;
pub(crate) mod destination;
pub(crate) mod disk;
pub mod pool;
pub(crate) mod rooms;
pub(crate) mod saved;
pub mod stat_cache;
pub mod steps;
pub(crate) mod trust;
pub mod walk;
pub(crate) mod way;
