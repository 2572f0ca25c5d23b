//! What people and machines read: tables, sizes, progress, names, and why something failed.

pub(crate) mod entry;
pub(crate) mod failure;
pub(crate) mod global;
pub(crate) mod human;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod paint;
pub(crate) mod progress;
pub(crate) mod remedy;
pub(crate) mod suggest;
pub(crate) mod table;
