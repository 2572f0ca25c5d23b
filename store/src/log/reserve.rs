//! The reserve: files without meaning in a directory's store, given up where a disk is full.
//!
//! What takes from a store is an entry in its log first, and an entry takes a few blocks and an inode, the
//! first of a new directory two. So that a disk that is full to the last byte, or the last inode, can still be
//! cleaned, an entry that takes may have those of pieces of the reserve; the next collector that finds room
//! fills it again. Never used by what only adds.

use bytes::Bytes;

use crate::error::{Error, Kind, Result};
use crate::format::reserve_key;
use crate::id::CommitId;
use crate::remote::Write;

/// Pieces of the reserve: others may fill the disk again between an entry and the next, and each may take two,
/// since on tmpfs a link takes an inode as well.
pub const RESERVE_PIECES: u64 = 8;
/// Bytes of a piece: an entry that drops and condemns thousands of things fits in two.
pub const RESERVE_PIECE_BYTES: usize = 128 << 10;

/// Makes sure that the reserve is there; whether there was room for it. A bucket needs none.
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

/// Whether what was written to a disk found room there.
fn has_room(written: Result<()>) -> Result<bool> {
    match written {
        Err(error) if error.is_full() => Ok(false),
        written => written.map(|()| true),
    }
}

/// Gives up a piece of the reserve for a caller that met `full`; that error again, when none is left.
pub(super) fn give_up(remote: &dyn Write, full: Error) -> Result<()> {
    for key in (0..RESERVE_PIECES).map(reserve_key) {
        if len(remote, &key)?.is_some() {
            return remote.give_up(&key);
        }
    }
    Err(full)
}

/// Nothing that a file system could store in less.
fn piece() -> Result<Bytes> {
    let mut bytes = vec![0; RESERVE_PIECE_BYTES];
    let seed = CommitId::random()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.0).finalize_xof().fill(&mut bytes);
    Ok(bytes.into())
}

fn len(remote: &dyn Write, key: &str) -> Result<Option<u64>> {
    match remote.size(key) {
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
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
