//! Builds the segment over the packs that one commit adds.

use std::collections::HashSet;

use super::{WrittenPack, length, too_large};
use crate::error::Result;
use crate::format::{
    Change, FrameBase, PackHeader, PackTable, Provenance, SegmentEntry, SegmentFrame, SegmentInfo,
    SegmentPack, segment_key, segment_len, write_segment,
};
use crate::id::{PackId, SegmentId};
use crate::remote::Write;

/// Collects the frames of packs into the tables of one segment.
#[derive(Debug, Default)]
pub struct SegmentBuilder {
    packs: Vec<SegmentPack>,
    frames: Vec<SegmentFrame>,
    bases: Vec<FrameBase>,
    entries: Vec<SegmentEntry>,
    pack_bytes: u64,
}

impl SegmentBuilder {
    /// Adds everything in `pack`.
    ///
    /// # Errors
    /// When the segment would exceed the limits of its format.
    pub fn add(&mut self, pack: &WrittenPack) -> Result<()> {
        self.add_table(pack.header, pack.len, &pack.table)
    }

    /// Adds the table of a pack of `len` bytes.
    ///
    /// # Errors
    /// When the segment would exceed the limits of its format.
    pub fn add_table(&mut self, header: PackHeader, len: u32, table: &PackTable) -> Result<()> {
        let pack = length(self.packs.len())?;
        self.packs.push(SegmentPack {
            id: header.id,
            kind: header.kind,
            len,
        });
        self.pack_bytes += u64::from(len);
        let mut frame_offset = PackHeader::LEN;
        let mut chunks = table.chunks.iter();
        let first = length(self.frames.len())?;
        for FrameBase { frame, id } in &table.bases {
            let frame = first.checked_add(*frame).ok_or_else(too_large)?;
            self.bases.push(FrameBase { frame, id: *id });
        }
        for frame in &table.frames {
            let position = length(self.frames.len())?;
            self.frames.push(SegmentFrame {
                pack,
                offset: frame_offset,
                stored_len: frame.stored_len,
                raw_len: frame.raw_len,
                kind: frame.kind,
            });
            let mut offset = 0;
            for chunk in chunks.by_ref().take(frame.chunks as usize) {
                self.entries.push(SegmentEntry {
                    id: chunk.id,
                    frame: position,
                    offset,
                    len: chunk.len,
                });
                offset += chunk.len;
            }
            frame_offset += frame.stored_len;
        }
        Ok(())
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }

    /// Whether some of its frames are deltas.
    pub fn has_deltas(&self) -> bool {
        !self.bases.is_empty()
    }

    /// Returns the number of chunks so far.
    pub fn chunks(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of the packs so far.
    pub fn pack_bytes(&self) -> u64 {
        self.pack_bytes
    }

    /// Returns about how many bytes the segment will have, or slightly less.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let (chunks, frames) = (self.entries.len() as u64, self.frames.len());
        let count = |len| u32::try_from(len).unwrap_or(u32::MAX);
        let (bases, packs) = (self.bases.len(), self.packs.len());
        segment_len(chunks, count(frames), count(bases), count(packs), 0).unwrap_or(u64::MAX)
    }

    /// Iterates over the packs so far.
    pub fn packs(&self) -> impl Iterator<Item = PackId> {
        self.packs.iter().map(|pack| pack.id)
    }

    /// Removes these packs and everything in them; returns whether it had any of them.
    pub(crate) fn take_out(&mut self, packs: &HashSet<PackId>) -> bool {
        if !self.packs().any(|pack| packs.contains(&pack)) {
            return false;
        }
        let mut kept = Self::default();
        let numbers: Vec<Option<u32>> = (self.packs.iter())
            .map(|pack| {
                let number = u32::try_from(kept.packs.len()).ok()?;
                let stays = !packs.contains(&pack.id);
                stays.then(|| {
                    kept.pack_bytes += u64::from(pack.len);
                    kept.packs.push(*pack);
                    number
                })
            })
            .collect();
        let new = |numbers: &[Option<u32>], old: u32| numbers.get(old as usize).copied().flatten();
        let frames: Vec<Option<u32>> = (self.frames.iter())
            .map(|frame| {
                let pack = new(&numbers, frame.pack)?;
                let number = u32::try_from(kept.frames.len()).ok()?;
                kept.frames.push(SegmentFrame { pack, ..*frame });
                Some(number)
            })
            .collect();
        let bases = (self.bases.iter()).filter_map(|base| {
            let frame = new(&frames, base.frame)?;
            Some(FrameBase { frame, ..*base })
        });
        kept.bases = bases.collect();
        let entries = (self.entries.iter()).filter_map(|entry| {
            let frame = new(&frames, entry.frame)?;
            Some(SegmentEntry { frame, ..*entry })
        });
        kept.entries = entries.collect();
        *self = kept;
        true
    }

    /// Uploads the segment under a new name, and returns the change that makes it live.
    ///
    /// A chunk that was written twice keeps one place, preferably in a plain frame.
    ///
    /// # Errors
    /// When the store cannot be written to.
    pub fn write(&mut self, remote: &dyn Write, made: Provenance) -> Result<(SegmentId, Change)> {
        let (segment, info, bytes) = self.build(made)?;
        remote.put(&segment_key(segment), bytes.into())?;
        Ok((segment, Change::AddSegment { segment, info }))
    }

    /// Returns the segment's new name, totals and bytes.
    pub(crate) fn build(&mut self, made: Provenance) -> Result<(SegmentId, SegmentInfo, Vec<u8>)> {
        use rayon::slice::ParallelSliceMut;
        let deltas: HashSet<u32> = self.bases.iter().map(|base| base.frame).collect();
        let place = |entry: &SegmentEntry| (entry.id, deltas.contains(&entry.frame), entry.frame);
        self.entries
            .par_sort_unstable_by(|a, b| place(a).cmp(&place(b)));
        self.entries.dedup_by_key(|entry| entry.id);
        let segment = SegmentId::random()?;
        let mut bytes = Vec::new();
        let (packs, frames, bases) = (&self.packs, &self.frames, &self.bases);
        let entries = || self.entries.iter().copied();
        let info = write_segment(&mut bytes, segment, made, packs, frames, bases, entries)?;
        Ok((segment, info, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FrameKind, FrameSum, PackChunk, PackFrame, PackKind};
    use crate::id::ChunkId;

    /// The remaining entries and bases still refer to their own frames.
    #[test]
    fn what_is_left_when_a_pack_is_taken_out_is_as_it_was() {
        let chunk = |seed: u8| ChunkId([seed; 32]);
        // A plain frame, and a delta whose base is in another pack.
        let table = |seed: u8| {
            let frame = PackFrame {
                stored_len: 9,
                raw_len: 10,
                kind: FrameKind::Data,
                chunks: 1,
                sum: FrameSum::of(b""),
            };
            let chunk_of = |seed| PackChunk {
                id: chunk(seed),
                len: 10,
            };
            PackTable {
                frames: vec![frame; 2],
                chunks: vec![chunk_of(seed), chunk_of(seed + 1)],
                bases: vec![FrameBase {
                    frame: 1,
                    id: chunk(seed + 2),
                }],
            }
        };
        let header = |seed: u8| PackHeader {
            kind: PackKind::Data,
            id: PackId([seed; 16]),
            made: Provenance::default(),
        };
        let mut alone = SegmentBuilder::default();
        alone.add_table(header(10), 300, &table(10)).unwrap();
        let mut both = SegmentBuilder::default();
        both.add_table(header(1), 400, &table(1)).unwrap();
        both.add_table(header(10), 300, &table(10)).unwrap();
        assert!(both.take_out(&HashSet::from([header(1).id])));
        assert!(!both.take_out(&HashSet::from([header(1).id])));
        assert_eq!(both.pack_bytes, alone.pack_bytes);
        assert_eq!(both.packs, alone.packs);
        assert_eq!(both.frames, alone.frames);
        assert_eq!(both.bases, alone.bases);
        assert_eq!(both.entries, alone.entries);
        let said = usize::try_from(alone.segment_bytes()).unwrap();
        let (_, _, built) = alone.build(Provenance::default()).unwrap();
        let bytes = built.len();
        assert!((bytes / 2..=bytes).contains(&said), "{said} of {bytes}");
    }
}
