//! The fuzz targets: each is a module here, and a binary in `targets/`.
//!
//! `run` panics if a decoder breaks an invariant, and returns whether it accepted anything. `tests/formats/dice.rs`
//! also compiles this file, and needs no fuzzer.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub,
    reason = "a broken word ends the run; a crate here, a module there"
)]

mod bundle;
mod checkpoint;
mod format;
mod frame;
mod kept;
mod list;
mod log;
mod name;
mod pack;
mod seal;
mod segment;
mod times;
mod tree;

pub use bundle::run as bundle;
pub use checkpoint::run as checkpoint;
pub use cli::fuzzing::{hub_body, hub_commit, hub_listing, hub_path, page_path, range, s3_request};
pub use format::run as format;
pub use frame::run as frame;
pub use kept::run as kept;
pub use list::run as list;
pub use log::run as log;
pub use name::run as name;
pub use pack::run as pack;
pub use segment::run as segment;
pub use times::run as times;
pub use tree::run as tree;
