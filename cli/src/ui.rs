//! Output for people and machines: tables, sizes, progress, names, and failures.

pub(crate) mod closed;
pub(crate) mod entry;
pub(crate) mod failure;
pub(crate) mod global;
pub(crate) mod home;
pub(crate) mod human;
pub(crate) mod names;
pub(crate) mod naming;
pub(crate) mod output;
pub(crate) mod paint;
pub(crate) mod progress;
pub(crate) mod remedy;
pub(crate) mod suggest;
pub(crate) mod table;
