//! The reserve: meaningless files in a directory store, which are given up when a disk is full.
//!
//! Removing anything from a store begins with a log entry, and an entry takes a few blocks and an inode; the first
//! entry in a new directory takes two. So that a disk without free blocks or inodes can still be cleaned, such an entry
//! may use those of pieces of the reserve. The next collector that finds space refills it. Entries that only add never
//! use it.

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::format::reserve_key;
use crate::id::CommitId;
use crate::remote::Write;

/// Number of pieces: others may fill the disk again between two entries, and each entry may need two pieces, since on
/// tmpfs a link takes an inode as well.
pub const RESERVE_PIECES: u64 = 8;
/// Bytes of a piece: an entry that drops and condemns thousands of things fits into two pieces.
pub const RESERVE_PIECE_BYTES: usize = 128 << 10;

/// Fills the reserve, and returns whether there was enough space. A bucket needs no reserve.
///
/// # Errors
/// When the store cannot be written to for another reason.
pub fn fill(remote: &dyn Write) -> Result<bool> {
    for key in (0..RESERVE_PIECES).map(reserve_key) {
        let is_whole = |len: Option<u64>| len.is_some_and(|len| len >= RESERVE_PIECE_BYTES as u64);
        if remote.local_path(&key).is_none() || is_whole(len(remote, &key)?) {
            continue;
        }
        if !has_room(remote.put(&key, piece()?))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a write to a disk succeeded; false when the disk was full.
fn has_room(written: Result<()>) -> Result<bool> {
    match written {
        Err(error) if error.is_full() => Ok(false),
        written => written.map(|()| true),
    }
}

/// Gives up a piece of the reserve after the error `full`; returns that error if no piece is left.
pub(super) fn give_up(remote: &dyn Write, full: Error) -> Result<()> {
    for key in (0..RESERVE_PIECES).map(reserve_key) {
        if len(remote, &key)?.is_some() {
            return remote.give_up(&key);
        }
    }
    Err(full)
}

/// Random bytes, which no file system can compress.
fn piece() -> Result<Bytes> {
    let mut bytes = vec![0; RESERVE_PIECE_BYTES];
    let seed = CommitId::random()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.0).finalize_xof().fill(&mut bytes);
    Ok(bytes.into())
}

fn len(remote: &dyn Write, key: &str) -> Result<Option<u64>> {
    match remote.size(key) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        len => len.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_full_disk_is_no_failure_and_everything_else_is() {
        let failed = |kind: ErrorKind| Err(Error::io("write", "reserve/0", kind.into()));
        assert!(has_room(Ok(())).unwrap());
        assert!(!has_room(failed(ErrorKind::StorageFull)).unwrap());
        has_room(failed(ErrorKind::ReadOnlyFilesystem)).unwrap_err();
    }
}
