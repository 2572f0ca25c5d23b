//! The kept modes, owners or extended attributes of a version's entries, in depth-first order.
//!
//! Holds one chunk of the list at a time, and the ids of the rest.

use super::Reader;
use crate::error::{Error, Result};
use crate::format::{Keep, Kept, KeptDecoder, Sides};
use crate::id::ChunkId;

/// One list of a version, beginning with the root's entry.
#[derive(Debug)]
pub(crate) struct KeptReader<'g> {
    reader: &'g Reader<'g>,
    keep: Keep,
    chunks: std::vec::IntoIter<ChunkId>,
    bytes: Vec<u8>,
    used: usize,
    decoder: KeptDecoder,
}

impl<'g> KeptReader<'g> {
    /// Opens the list of this kind, if the version has one.
    ///
    /// # Errors
    /// When its chunk list cannot be read.
    pub(crate) fn of(reader: &'g Reader<'g>, keep: Keep, sides: &Sides) -> Result<Option<Self>> {
        let Some(list) = sides.kept(keep) else {
            return Ok(None);
        };
        let mut chunks = Vec::new();
        reader.chunks(&list, &mut |id, _| {
            chunks.push(id);
            Ok(())
        })?;
        Ok(Some(Self {
            reader,
            keep,
            chunks: chunks.into_iter(),
            bytes: Vec::new(),
            used: 0,
            decoder: KeptDecoder::new(keep),
        }))
    }

    /// Skips this many entries.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) fn skip(&mut self, entries: u64) -> Result<()> {
        (0..entries).try_for_each(|_| self.next().map(drop))
    }

    /// Returns what was kept of the next entry. There is one record per entry, so the end of the list is an error.
    ///
    /// # Errors
    /// Corrupt, when there is no record left; not found and corrupt as for [`Reader`].
    pub(crate) fn next(&mut self) -> Result<Kept> {
        loop {
            let rest = self.bytes.get(self.used..).unwrap_or_default();
            if let Some((kept, used)) = self.decoder.next(rest)? {
                self.used += used;
                return Ok(kept);
            }
            let Some(id) = self.chunks.next() else {
                let keep = self.keep;
                let message = format!("list of {keep}: ends before the last entry of its tree");
                return Err(Error::corrupt(message));
            };
            self.bytes.drain(..self.used);
            self.used = 0;
            self.bytes.extend_from_slice(&self.reader.meta_chunk(&id)?);
        }
    }

    /// Whether all entries have been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.used == self.bytes.len() && self.chunks.len() == 0
    }
}
