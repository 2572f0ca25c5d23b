//! Frames that are the difference to others: reading one reads the frames of its bases, which are plain.

use std::sync::Arc;

use super::Reader;
use crate::codec::{BASE_BYTES_MAX, Bases, Decoder};
use crate::error::{Error, Result};
use crate::format::pack_key;
use crate::id::ChunkId;
use crate::index::Location;
use crate::remedy::Remedy;

impl Reader<'_> {
    /// What the frame at `location` decodes to, of which `stored` is read already. Bases are read where it needs them.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub(crate) fn decode<'a>(
        &self,
        decoder: &mut Decoder,
        location: &Location,
        stored: &'a [u8],
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let key = pack_key(location.pack);
        if !location.is_delta {
            return decoder.decode_plain(&key, stored, location.raw_len, out);
        }
        let object = format!("{key}: frame at offset {}", location.frame_offset);
        decoder.decode(&object, stored, location.raw_len, self, out)
    }

    /// The frame of a chunk that is a base, and where the chunk lies in it. It is plain: a base is never a delta, or
    /// reading one chunk could mean to read any number.
    fn base(&self, id: &ChunkId) -> Result<(Arc<Vec<u8>>, Location)> {
        self.read_at(id, |location| match location.is_delta {
            true => Err(Error::corrupt(format!(
                "chunk {id}: is a base and lies in no plain frame"
            ))
            .hint(Remedy::VerifyThenPut)),
            false => Ok((self.frame(location)?, *location)),
        })
    }

    /// Appends the bytes of a base, compared with its id.
    ///
    /// # Errors
    /// Corrupt, when it lies in no plain frame, or its bytes are others; else as [`Self::read_at`].
    pub(crate) fn verified_base(&self, id: &ChunkId, out: &mut Vec<u8>) -> Result<()> {
        let (frame, location) = self.base(id)?;
        out.extend_from_slice(location.of(*id).verified(&frame)?);
        Ok(())
    }
}

impl Bases for Reader<'_> {
    fn append(&self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<()> {
        for id in ids {
            let (frame, location) = self.base(id)?;
            let start = location.offset as usize;
            let bytes = frame.get(start..start + location.len as usize);
            out.extend_from_slice(bytes.unwrap_or_default());
            check_bases_len(out.len())?;
        }
        Ok(())
    }
}

/// Bases whose bytes are compared with their ids, so that it is known which of the two is damaged.
#[derive(Debug)]
pub(crate) struct VerifiedBases<'r>(pub(crate) &'r Reader<'r>);

impl Bases for VerifiedBases<'_> {
    fn append(&self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<()> {
        ids.iter().try_for_each(|id| {
            self.0.verified_base(id, out)?;
            check_bases_len(out.len())
        })
    }
}

fn check_bases_len(len: usize) -> Result<()> {
    match len <= BASE_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::corrupt(format!(
            "bases: expected at most {BASE_BYTES_MAX} bytes, found {len}"
        ))),
    }
}
