//! Mapping an immutable file into memory: the only unsafe code of the engine.

use std::fs::File;

use memmap2::Mmap;

use crate::error::{Error, Result};

/// Maps a whole file for reading.
///
/// Only for files that nobody changes in place: segments, which are written once under a name
/// of their own and then only ever unlinked, on file systems of this host.
#[expect(
    unsafe_code,
    reason = "a map is sound as long as nobody truncates the file, which the format forbids"
)]
pub(crate) fn map(file: &File, name: &str) -> Result<Mmap> {
    // SAFETY: see above; the mapping is private to this process and only read.
    unsafe { Mmap::map(file) }.map_err(|source| Error::io("map", name, source))
}
