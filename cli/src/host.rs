//! What the command needs of its host: locks, files, memory, the directory of a new store, metrics.

pub(crate) mod apart;
pub(crate) mod files;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod planted;
pub(crate) mod priority;
pub(crate) mod room;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod stores;
