//! The times of a version's entries, in depth-first order.
//!
//! Holds one chunk of the list at a time, and the ids of the rest.

use jiff::Timestamp;

use super::Reader;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Content, RefName, Time, TimesDecoder, Version};
use crate::id::ChunkId;

/// The times of a version one after another, beginning with the root's.
#[derive(Debug)]
pub struct TimesReader<'g> {
    reader: &'g Reader<'g>,
    chunks: std::vec::IntoIter<ChunkId>,
    bytes: Vec<u8>,
    used: usize,
    decoder: TimesDecoder,
    /// The list that is read.
    times: Content,
    /// Replaces every remaining time after the list turned out to be damaged.
    instead: Option<Time>,
}

impl<'g> TimesReader<'g> {
    /// Opens the list `times`. Times are no part of a version's identity: if they are lost, the time at which the
    /// version was put replaces each of them, and the store warns of it.
    ///
    /// # Errors
    /// When the chunk list cannot be read for another reason than damage.
    pub fn new(reader: &'g Reader<'g>, times: &Content) -> Result<Self> {
        let mut reader = Self::strict_over(reader, times);
        if *times == Content::empty() {
            // Nothing is lost: the version has no times.
            let of = reader.owner()?;
            let put = of.map(|(_, _, put)| put).unwrap_or_default();
            reader.instead = Some(time_of(put));
            return Ok(reader);
        }
        match reader.list() {
            Ok(()) => Ok(reader),
            Err(error) => reader.go_without(error).map(|_| reader),
        }
    }

    /// Opens the times of `version`. If it has none, the time of its put replaces each of them.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of(reader: &'g Reader<'g>, version: &Version) -> Result<Self> {
        let times = version.times();
        if times != Content::empty() {
            return Self::new(reader, &times);
        }
        let mut reader = Self::strict_over(reader, &times);
        reader.instead = Some(time_of(version.time));
        Ok(reader)
    }

    /// Opens the list for callers that need to know what is wrong with it.
    ///
    /// # Errors
    /// When the chunk list cannot be read.
    pub(crate) fn strict(reader: &'g Reader<'g>, times: &Content) -> Result<StrictTimes<'g>> {
        let mut reader = Self::strict_over(reader, times);
        reader.list()?;
        Ok(StrictTimes(reader))
    }

    fn strict_over(reader: &'g Reader<'g>, times: &Content) -> Self {
        Self {
            reader,
            chunks: Vec::new().into_iter(),
            bytes: Vec::new(),
            used: 0,
            decoder: TimesDecoder::new(),
            times: *times,
            instead: None,
        }
    }

    fn list(&mut self) -> Result<()> {
        let mut chunks = Vec::new();
        self.reader.chunks(&self.times, &mut |id, _| {
            chunks.push(id);
            Ok(())
        })?;
        self.chunks = chunks.into_iter();
        Ok(())
    }

    /// Continues with the time of the version. Returns `error` if that is about something else than damage.
    fn go_without(&mut self, error: Error) -> Result<Time> {
        if error.kind() != ErrorKind::Corrupt {
            return Err(error);
        }
        let of = self.owner()?;
        let put = of.as_ref().map(|(_, _, put)| *put).unwrap_or_default();
        let time = time_of(put);
        let whose = of.map_or_else(String::new, |(name, number, _)| {
            format!(" of {name}@{number}")
        });
        self.reader.store().warn_of_part(Error::corrupt(format!(
            "the times{whose} are lost, the time of its put stands for them: {error}"
        )));
        self.instead = Some(time);
        Ok(time)
    }

    /// A version that has these times, the last one of all, and the time of its put.
    fn owner(&self) -> Result<Option<(RefName, u64, Timestamp)>> {
        let mut owner = None;
        for found in self.reader.view().state.refs.iter() {
            let (name, known) = found?;
            let mut versions = known.versions.iter().rev();
            if let Some((number, version)) = versions.find(|(_, one)| one.times() == self.times) {
                owner = Some((name, *number, version.time));
            }
        }
        Ok(owner)
    }

    /// Skips the times of this many entries.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn skip(&mut self, entries: u64) -> Result<()> {
        (0..entries).try_for_each(|_| self.next().map(drop))
    }

    /// Returns the time of the next entry in depth-first order.
    ///
    /// # Errors
    /// As [`Self::new`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the end is an error here: there is one time for each entry"
    )]
    pub fn next(&mut self) -> Result<Time> {
        match self.instead {
            Some(time) => Ok(time),
            None => self.read().or_else(|error| self.go_without(error)),
        }
    }

    fn read(&mut self) -> Result<Time> {
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
}

fn time_of(put: Timestamp) -> Time {
    Time {
        secs: put.as_second(),
        nanos: 0,
    }
}

/// Times without replacements: a missing one is an error.
pub(crate) struct StrictTimes<'g>(TimesReader<'g>);

impl StrictTimes<'_> {
    /// Skips the times of this many entries.
    ///
    /// # Errors
    /// Corrupt, when there are not enough left; not found and corrupt as for [`Reader`].
    pub(crate) fn skip(&mut self, entries: u64) -> Result<()> {
        (0..entries).try_for_each(|_| self.0.read().map(drop))
    }

    /// Whether all times have been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.used == self.0.bytes.len() && self.0.chunks.len() == 0
    }
}
