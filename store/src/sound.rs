//! Whether packs are what their segments say, and how damaged ones are mended.
//!
//! `packs` looks at them; `record` remembers on this host what was read and what was damaged, `segments` which segments
//! were whole; `saver` copies what is good in a damaged pack; `mend` condemns what somebody counts on and cannot have;
//! `report` says what is wrong with what.
//! Used by verify and repair, and by passes before they count on packs. Never deletes.

pub(crate) mod mend;
pub(crate) mod packs;
pub(crate) mod record;
mod report;
pub(crate) mod saver;
pub(crate) mod segments;

pub use report::{Finding, Hit, Part, VerifyReport};
