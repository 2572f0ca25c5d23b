//! The pure room: bytes to structs and back, without I/O, async, clock or globals.
//!
//! Normative text: `store/FORMATS.md`. Decoding treats its input as hostile: check, then
//! allocate; every limit has a name; nothing panics.
#![doc = ""]
#![doc = include_str!("../../FORMATS.md")]

mod at;
mod config;
mod content;
mod cursor;
mod entry;
mod keys;
mod list;
mod name;
mod origin;
mod pack;
mod policy;
mod sealed;
mod segment;
mod segment_rows;
mod state;
mod times;
mod tree;

pub use at::*;
pub use config::*;
pub use content::*;
pub use entry::*;
pub use keys::*;
pub use list::*;
pub use name::*;
pub use origin::Origin;
pub use pack::*;
pub use policy::*;
pub use sealed::*;
pub use segment::*;
pub use segment_rows::{SegmentEntry, SegmentFrame, SegmentPack};
pub use state::*;
pub use times::*;
pub use tree::*;

#[cfg(test)]
mod properties;
