//! Delta frames: to read one, the frames of its bases are read, which are plain.

use std::sync::Arc;

use super::{Reader, read_frames};
use crate::codec::{Bases, Decoder, delta_base};
use crate::error::{Error, Kind, Result};
use crate::format::pack_key;
use crate::id::{ChunkId, PackId};
use crate::index::Location;
use crate::remedy::Remedy;

impl Reader<'_> {
    /// What the frame at `location` decodes to, of which `stored` is read already. Bases are read where it needs them.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode<'a>(
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
            true => Err(
                Error::corrupt(format!("chunk {id}: is a base, but is in no plain frame"))
                    .hint(Remedy::VerifyThenPut),
            ),
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

    /// The error about the base, where a chunk of the frame at `location` is not what its id says since a base of it is
    /// damaged; else `error`.
    pub fn blame_base(&self, location: &Location, error: Error) -> Error {
        if !location.is_delta {
            return error;
        }
        let frame = (location.pack, location.frame_offset, location.stored_len);
        self.blame_base_of(frame, error)
    }

    /// The same for a delta of which pack, offset and stored length are known.
    pub(crate) fn blame_base_of(
        &self,
        (pack, offset, len): (PackId, u32, u32),
        error: Error,
    ) -> Error {
        if error.kind() != Kind::Corrupt {
            return error;
        }
        let object = format!("{}: frame at offset {offset}", pack_key(pack));
        let stored = read_frames(self.store, pack, offset, len);
        let base = stored.and_then(|stored| delta_base(&object, &stored));
        let Ok(Some(base)) = base else {
            return error;
        };
        let mut ids = base.ids.iter();
        let damage = ids.find_map(|id| self.verified_base(id, &mut Vec::new()).err());
        match damage.filter(|damage| damage.kind() == Kind::Corrupt) {
            Some(damage) => damage
                .within(format!("{object}: base of a delta"))
                .because(error),
            None => error,
        }
    }
}

impl Bases for Reader<'_> {
    fn append(&self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<()> {
        for id in ids {
            let (frame, location) = self.base(id)?;
            let start = location.offset as usize;
            let bytes = frame.get(start..start + location.len as usize);
            out.extend_from_slice(bytes.unwrap_or_default());
        }
        Ok(())
    }
}

/// Bases whose bytes are compared with their ids, so that it is known which of the two is damaged.
#[derive(Debug)]
pub(crate) struct VerifiedBases<'r>(pub(crate) &'r Reader<'r>);

impl Bases for VerifiedBases<'_> {
    fn append(&self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<()> {
        ids.iter().try_for_each(|id| self.0.verified_base(id, out))
    }
}
