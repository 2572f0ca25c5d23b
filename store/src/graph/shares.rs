//! Shares: which chunks only one of several owners reaches. Uses only sizes and positions in an index; reads no packs.

use crate::error::Result;
use crate::index::{Index, Location, Marks, Position};

/// A part of the chunks of a store, data and metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Share {
    /// The number of chunks.
    pub chunks: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// Their share of the stored bytes of their frames.
    pub stored_bytes: u64,
}

/// Adds up chunks with the fractional bytes that they take of their frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    chunks: u64,
    bytes: u64,
    /// In units of 1/65536 byte, so that fractions of different frames can be added.
    stored_units: u128,
}

impl Sum {
    /// Adds a chunk.
    pub(crate) fn add(&mut self, chunk: &Location) {
        let raw_len = u128::from(chunk.raw_len.max(1));
        self.chunks += 1;
        self.bytes += u64::from(chunk.len);
        self.stored_units +=
            ((u128::from(chunk.stored_len) * u128::from(chunk.len)) << 16) / raw_len;
    }

    /// Subtracts the chunks of `part`, which must be among these.
    pub(crate) fn without(self, part: &Self) -> Self {
        Self {
            chunks: self.chunks.saturating_sub(part.chunks),
            bytes: self.bytes.saturating_sub(part.bytes),
            stored_units: self.stored_units.saturating_sub(part.stored_units),
        }
    }

    /// Rounds down to whole bytes.
    pub(crate) fn share(&self) -> Share {
        Share {
            chunks: self.chunks,
            bytes: self.bytes,
            stored_bytes: u64::try_from(self.stored_units >> 16).unwrap_or(u64::MAX),
        }
    }
}

/// Who reaches each chunk of an index: nobody, one owner, or several. Owners are numbered from 0.
///
/// Takes four bytes per chunk, however many owners there are.
#[derive(Debug, Default)]
pub(crate) struct Owners(Vec<Vec<u32>>);

const NOBODY: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

impl Owners {
    /// Records that `owner` reaches the chunk at `at`.
    pub(crate) fn add(&mut self, at: Position, owner: u32) {
        let Ok(entry) = usize::try_from(at.entry) else {
            return;
        };
        if self.0.len() <= at.segment {
            self.0.resize_with(at.segment + 1, Vec::new);
        }
        let Some(segment) = self.0.get_mut(at.segment) else {
            return;
        };
        if segment.len() <= entry {
            segment.resize(entry + 1, NOBODY);
        }
        if let Some(known) = segment.get_mut(entry) {
            *known = match *known {
                NOBODY => owner,
                same if same == owner => owner,
                _ => SEVERAL,
            };
        }
    }

    /// Iterates over the chunks that only one owner reaches, with that owner.
    pub(crate) fn alone(&self) -> impl Iterator<Item = (Position, u32)> {
        self.0.iter().enumerate().flat_map(|(segment, owners)| {
            let owned = (0u64..).zip(owners);
            let alone = owned.filter(|(_, owner)| ![NOBODY, SEVERAL].contains(owner));
            alone.map(move |(entry, owner)| (Position { segment, entry }, *owner))
        })
    }
}

/// For each of several owners, what only this owner has, and what others have as well.
pub(crate) struct Tally<'i> {
    index: &'i Index,
    owners: Owners,
    all: Vec<Sum>,
}

impl<'i> Tally<'i> {
    /// Starts without owners.
    pub(crate) fn new(index: &'i Index) -> Self {
        Self {
            index,
            owners: Owners::default(),
            all: Vec::new(),
        }
    }

    /// Adds an owner that reaches these chunks.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn add(&mut self, chunks: &Marks) -> Result<()> {
        let owner = u32::try_from(self.all.len()).unwrap_or(SEVERAL);
        let mut all = Sum::default();
        for at in chunks.positions() {
            all.add(&self.index.at(at)?.1);
            self.owners.add(at, owner);
        }
        self.all.push(all);
        Ok(())
    }

    /// Returns for each owner what only this owner has and what others have as well, in the order in which they were
    /// added.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn shares(self) -> Result<Vec<(Share, Share)>> {
        let mut alone = vec![Sum::default(); self.all.len()];
        for (at, owner) in self.owners.alone() {
            let own = usize::try_from(owner).ok();
            if let Some(own) = own.and_then(|owner| alone.get_mut(owner)) {
                own.add(&self.index.at(at)?.1);
            }
        }
        let each = self.all.into_iter().zip(alone);
        Ok(each
            .map(|(all, own)| (own.share(), all.without(&own).share()))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FrameKind;
    use crate::id::PackId;

    fn chunk(len: u32) -> Location {
        Location {
            pack: PackId([1; 16]),
            kind: FrameKind::Data,
            pack_len: 1000,
            frame_offset: 32,
            stored_len: 333,
            raw_len: 1000,
            offset: 0,
            len,
            is_delta: false,
        }
    }

    #[test]
    fn parts_of_a_frame_add_up_to_it() {
        let mut sum = Sum::default();
        (0..1000).for_each(|_| sum.add(&chunk(1)));
        let stored = sum.share().stored_bytes;
        assert!((332..=333).contains(&stored), "{stored}");
        let mut half = Sum::default();
        (0..500).for_each(|_| half.add(&chunk(1)));
        assert_eq!(sum.without(&half).share(), half.share());
    }

    #[test]
    fn a_chunk_is_nobodys_ones_or_several_owners() {
        let at = |segment, entry| Position { segment, entry };
        let mut owners = Owners::default();
        for (position, owner) in [
            (at(1, 3), 0),
            (at(1, 3), 0),
            (at(1, 4), 0),
            (at(1, 4), 1),
            (at(1, 4), 0),
            (at(0, 7), 1),
            (at(3, 0), 2),
        ] {
            owners.add(position, owner);
        }
        let alone: Vec<_> = owners.alone().collect();
        assert_eq!(alone, [(at(0, 7), 1), (at(1, 3), 0), (at(3, 0), 2)]);
    }
}
