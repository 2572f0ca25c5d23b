//! A chunk in its decoded frame. This is the only place where bytes are compared with the id that was asked for.

use crate::error::{Error, Result};
use crate::format::pack_key;
use crate::id::{ChunkId, PackId};
use crate::index::Location;
use crate::remedy::Remedy;

/// A chunk, and where its bytes should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkAt {
    /// The chunk.
    pub id: ChunkId,
    /// Its pack.
    pub pack: PackId,
    /// Offset of its frame in the pack.
    pub frame_offset: u32,
    /// Its offset in the decoded frame.
    pub offset: u32,
    /// Its length in bytes.
    pub len: u32,
}

impl ChunkAt {
    /// Returns its bytes in the decoded `frame`.
    ///
    /// # Errors
    /// Corrupt, when they do not hash to its id.
    pub fn verified<'f>(&self, frame: &'f [u8]) -> Result<&'f [u8]> {
        let start = self.offset as usize;
        let bytes = frame
            .get(start..start + self.len as usize)
            .unwrap_or_default();
        let found = ChunkId::of(bytes);
        if found == self.id {
            return Ok(bytes);
        }
        Err(Error::corrupt(format!(
            "{}: chunk at byte {start} of the frame at offset {}: its bytes hash to {found}, expected {}",
            pack_key(self.pack),
            self.frame_offset,
            self.id
        ))
        .hint(Remedy::VerifyThenPut))
    }
}

impl Location {
    /// Returns the chunk `id` at this location.
    pub fn of(&self, id: ChunkId) -> ChunkAt {
        ChunkAt {
            id,
            pack: self.pack,
            frame_offset: self.frame_offset,
            offset: self.offset,
            len: self.len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_another_chunk_or_beyond_the_frame_are_named() {
        let at = |offset, len| ChunkAt {
            id: ChunkId::of(b"cd"),
            pack: PackId([0xab; 16]),
            frame_offset: 32,
            offset,
            len,
        };
        assert_eq!(at(2, 2).verified(b"abcdef").unwrap(), b"cd");
        for (offset, len) in [(1, 2), (2, 1), (5, 2), (u32::MAX, u32::MAX)] {
            let error = at(offset, len).verified(b"abcdef").unwrap_err();
            let start = format!(
                "packs/ab/{}: chunk at byte {offset} of the frame at offset 32: its bytes hash to ",
                "ab".repeat(16)
            );
            assert!(error.to_string().starts_with(&start), "{error}");
        }
    }
}
