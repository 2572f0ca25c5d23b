//! Garbage collection: the only crate that deletes from a store.
//!
//! The order of a collection, in which a newcomer should also read the files:
//!
//! - `request`: what to collect and how far. [`policy`] (pure): which versions retention gives up; `limits`: which ones
//!   size limits give up; `versions`: those that stay, class by class.
//! - `claims`: abandoned ones. `look`: one state that does not change. [`mark`]: which chunks its versions reach; fails
//!   closed. [`usage`]: how much of each pack that is; `spared`: what young passes hold; `recent_drops`: what people
//!   still ask about.
//! - [`plan`] (pure): what to do about it. [`apply`]: one log entry after the other, each valid for exactly the state it
//!   is committed at; `repack` writes what is kept to a new place first, `delete` takes what is left.
//! - [`collect()`] runs them; [`report`] says what was done; `idle` tells the next one that there was nothing to do.

pub mod apply;
pub mod claims;
mod collect;
mod delete;
mod idle;
mod limits;
mod look;
pub mod mark;
pub mod plan;
pub mod policy;
mod recent_drops;
mod repack;
pub mod report;
mod request;
mod small;
mod spared;
pub mod usage;
mod versions;

pub use collect::collect;
pub use plan::Plan;
pub use report::CollectReport;
pub use request::{Options, Request, steady};
