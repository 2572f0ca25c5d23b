//! The times of a ref version as its entries come by, in depth-first order.
//!
//! Holds one chunk of the list at a time, and the ids of the rest.

use super::Reader;
use crate::error::{Error, Result};
use crate::format::{Content, Time, TimesDecoder};
use crate::id::ChunkId;

/// The times of a ref version, one after another, the root's first.
#[derive(Debug)]
pub struct TimesReader<'g> {
    reader: &'g Reader<'g>,
    chunks: std::vec::IntoIter<ChunkId>,
    bytes: Vec<u8>,
    used: usize,
    decoder: TimesDecoder,
}

impl<'g> TimesReader<'g> {
    /// The times in `times`, from the first on.
    ///
    /// # Errors
    /// When their chunk list cannot be read.
    pub fn new(reader: &'g Reader<'g>, times: &Content) -> Result<Self> {
        let mut chunks = Vec::new();
        reader.chunks(times, &mut |id, _| {
            chunks.push(id);
            Ok(())
        })?;
        Ok(Self {
            reader,
            chunks: chunks.into_iter(),
            bytes: Vec::new(),
            used: 0,
            decoder: TimesDecoder::new(),
        })
    }

    /// Passes over the times of so many entries.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn skip(&mut self, entries: u64) -> Result<()> {
        (0..entries).try_for_each(|_| self.next().map(drop))
    }

    /// The time of the next entry in depth-first order.
    ///
    /// # Errors
    /// Corrupt, when there are none left; not found and corrupt as [`Reader`] has them.
    #[expect(
        clippy::should_implement_trait,
        reason = "the end is an error here: there is one time for each entry"
    )]
    pub fn next(&mut self) -> Result<Time> {
        loop {
            let rest = self.bytes.get(self.used..).unwrap_or_default();
            if let Some((time, used)) = self.decoder.next(rest)? {
                self.used += used;
                return Ok(time);
            }
            let Some(id) = self.chunks.next() else {
                return Err(Error::corrupt(
                    "list of times: ends before the last entry of its tree",
                ));
            };
            self.bytes.drain(..self.used);
            self.used = 0;
            self.bytes.extend_from_slice(&self.reader.meta_chunk(&id)?);
        }
    }

    /// Whether every time has been taken.
    pub fn is_at_end(&self) -> bool {
        self.used == self.bytes.len() && self.chunks.len() == 0
    }
}
