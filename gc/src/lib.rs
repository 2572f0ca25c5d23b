//! Garbage collection: the only crate that deletes from a store.
//!
//! The way of a collection, and of a newcomer through the files:
//!
//! - [`policy`] (pure): which versions retention gives up; `evict`: which ones limits of size do.
//! - [`mark`]: which chunks the others reach. Fails closed: what cannot be read aborts everything.
//! - [`census`]: how much of each pack that is. [`plan`] (pure): what to do about it.
//! - [`apply`]: one log entry after the other, each valid for exactly the state it is committed at;
//!   `repack` and `merge` write what is kept to a new place first, `delete` takes what is left.
//! - [`collect()`] runs them; [`report`] says what came of it.
//!
//! The rules are those of `store/FORMATS.md`: log entry, grace, objects, and never another order.

pub mod apply;
pub mod census;
mod collect;
mod delete;
mod evict;
mod lately;
pub mod mark;
mod merge;
pub mod plan;
pub mod policy;
mod repack;
pub mod report;
mod spared;

pub use collect::{Request, collect, steady};
pub use plan::Plan;
pub use report::Report;
