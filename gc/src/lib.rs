//! Garbage collection: the only crate that deletes from a store.
//!
//! The order of a collection, in which a newcomer should also read the files:
//!
//! - `request`: what to collect, and how far. [`policy`] (pure): which versions retention drops; `limits`: which ones
//!   size limits drop; `versions`: those that stay, by class.
//! - `clock`: what time it is. `claims`: abandoned claims. [`nameless`]: these and all else that no entry names. `look`:
//!   looks at one state. [`mark`]: which chunks its versions reach; fails closed. [`usage`]: how much of each pack that
//!   is; `spared`: what unfinished passes have committed; `recent_drops`: recently dropped versions, for the report.
//! - [`plan`] (pure): what to do; `held`: what waits. [`apply`]: one log entry after another, each valid for exactly the
//!   state at which it is committed. `repack` first copies what is kept, `delete` deletes the rest.
//! - [`collect()`] runs all of them. [`report`] says what was done. `idle` tells the next run that there was nothing to
//!   do.

pub mod apply;
pub mod claims;
mod clock;
mod collect;
mod delete;
mod held;
mod idle;
mod limits;
mod look;
pub mod mark;
pub mod nameless;
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
