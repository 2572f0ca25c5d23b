//! Delta frames: reading one also reads the frames of its bases, which are plain.

use std::sync::Arc;

use super::{Reader, read_frames};
use crate::codec::{Bases, Decoder, delta_base};
use crate::error::{Error, ErrorKind, Result};
use crate::format::pack_key;
use crate::id::{ChunkId, PackId};
use crate::index::Location;
use crate::remedy::Remedy;

impl Reader<'_> {
    /// Decodes the frame at `location`, whose stored bytes are `stored`. Reads bases if the frame needs them.
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

    /// Returns the decoded frame of a base, and the location of the base. The frame is plain: if a base could be a
    /// delta, reading one chunk could require any number of frames.
    fn base(&self, id: &ChunkId) -> Result<(Arc<Vec<u8>>, Location)> {
        self.read_at(id, |location| match location.is_delta {
            true => Err(
                Error::corrupt(format!("chunk {id}: is a base, but is in no plain frame"))
                    .hint(Remedy::VerifyThenPut),
            ),
            false => Ok((self.frame(location)?, *location)),
        })
    }

    /// Appends the bytes of a base, after comparing them with its id.
    ///
    /// # Errors
    /// Corrupt, when the base is in no plain frame, or its bytes differ; otherwise as [`Self::read_at`].
    pub(crate) fn verified_base(&self, id: &ChunkId, out: &mut Vec<u8>) -> Result<()> {
        let (frame, location) = self.base(id)?;
        let verified = location.of(*id).verified(&frame);
        out.extend_from_slice(verified.inspect_err(|_| self.kept().forget(&location))?);
        Ok(())
    }

    /// The error about a damaged base, if one can have caused `error` in the frame at `location`; otherwise `error`.
    pub fn blame_base(&self, location: &Location, error: Error) -> Error {
        if !location.is_delta {
            return error;
        }
        let frame = (location.pack, location.frame_offset, location.stored_len);
        self.blame_base_of(frame, error)
    }

    /// Does the same for a delta whose pack, offset and stored length are known.
    pub(crate) fn blame_base_of(
        &self,
        (pack, offset, len): (PackId, u32, u32),
        error: Error,
    ) -> Error {
        if error.kind() != ErrorKind::Corrupt {
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
        match damage.filter(|damage| damage.kind() == ErrorKind::Corrupt) {
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

/// Compares bases with their ids, so that damage of a base is told from damage of the delta.
#[derive(Debug)]
pub(crate) struct VerifiedBases<'r>(pub(crate) &'r Reader<'r>);

impl Bases for VerifiedBases<'_> {
    fn append(&self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<()> {
        ids.iter().try_for_each(|id| self.0.verified_base(id, out))
    }
}
