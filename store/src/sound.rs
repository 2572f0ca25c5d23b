//! Whether packs match their segments, and how damaged packs are mended.
//!
//! `packs` checks them; `record` remembers on this host what was read and what was damaged, `segments` which segments
//! were whole; `saver` copies what is good in a damaged pack; `there` which objects are gone or cut off; `mend` condemns packs that somebody relies on and that
//! cannot be read; `vouched` tells which versions need no look at their chunks, `carried` whether a new one has what it
//! took over from the one before; `report` describes the damage.
//! Verify and repair use this module, and passes before they rely on packs. It never deletes.

pub(crate) mod carried;
pub(crate) mod mend;
pub(crate) mod packs;
pub(crate) mod record;
mod report;
pub(crate) mod saver;
pub(crate) mod segments;
mod there;
pub(crate) mod vouched;

pub use report::{Finding, Hit, Part, VerifyReport};
