//! Partial reads of a segment: looks up one chunk without having the whole segment.
//!
//! Reads in order: the header, two values of the fan-out, the entries between them, a frame and a pack. Each part gets
//! the same checks as in a whole segment.

use std::ops::Range;

use super::cursor::corrupt;
use super::segment::{SegmentLayout, segment_len};
use super::segment_rows::{
    ENTRY_LEN, FRAME_LEN, PACK_LEN, SegmentEntry, SegmentFrame, SegmentHeader, SegmentPack,
    place_of,
};
use crate::error::Result;
use crate::format::SEGMENT_HEADER_LEN;
use crate::id::ChunkId;

/// A bucket with more entries than this cannot occur if ids are hashes.
const ENTRIES_MAX: u64 = 64 << 10;

impl SegmentLayout {
    /// Returns the layout of a segment of `len` bytes from its header.
    ///
    /// # Errors
    /// As for [`Self::parse`].
    pub(crate) fn of_header(object: &str, header: &[u8], len: u64) -> Result<Self> {
        let header = SegmentHeader::decode(object, header)?;
        let (frames, bases, packs) = (header.frames, header.bases, header.packs);
        let expected = segment_len(header.chunks, frames, bases, packs, header.fanout_bits);
        if expected != Some(len) {
            let detail = format_args!("length: {len} bytes, its header says {expected:?}");
            return Err(corrupt(object, detail));
        }
        Ok(Self::of(object, header))
    }

    /// Returns the range of the fan-out that tells which entries share a bucket with this chunk.
    pub(crate) fn fanout_range(&self, id: &ChunkId) -> Range<u64> {
        let place = place_of(id, self.header.fanout_bits) as u64;
        let start = SEGMENT_HEADER_LEN + place * 4;
        start..start + 8
    }

    /// Returns the number of the first of these entries and their byte range, from the bytes of the fan-out.
    ///
    /// # Errors
    /// Corrupt, when the entries would lie outside of the segment.
    pub(crate) fn entries_range(&self, bounds: &[u8]) -> Result<(u64, Range<u64>)> {
        let (bounds, _) = bounds.as_chunks::<4>();
        let bounds: Vec<u64> = bounds
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes).into())
            .collect();
        match bounds[..] {
            [first, end] if first <= end && end <= self.chunks() && end - first <= ENTRIES_MAX => {
                let at = |entry: u64| self.entries_at as u64 + entry * ENTRY_LEN as u64;
                Ok((first, at(first)..at(end)))
            }
            _ => {
                let detail =
                    format_args!("fan-out: expected two places in order, found {bounds:?}");
                Err(corrupt(&self.object, detail))
            }
        }
    }

    /// Finds the chunk in `rows`, the bytes of consecutive entries whose first has number `first`.
    pub(crate) fn entry_in(
        &self,
        rows: &[u8],
        first: u64,
        id: &ChunkId,
    ) -> Option<(u64, SegmentEntry)> {
        let (rows, _) = rows.as_chunks::<ENTRY_LEN>();
        let entries = (first..).zip(rows.iter().map(SegmentEntry::decode));
        entries.into_iter().find(|(_, entry)| entry.id == *id)
    }

    /// Returns the byte range of a frame's row.
    ///
    /// # Errors
    /// Invalid input, when there is no such frame.
    pub(crate) fn frame_range(&self, position: u32) -> Result<Range<u64>> {
        match position < self.frames() {
            true => Ok(range_of(self.frames_at, position, FRAME_LEN)),
            false => Err(self.no_row("frame", position.into())),
        }
    }

    /// Decodes the row of the frame that `entry` names.
    ///
    /// # Errors
    /// Corrupt, when the entry exceeds the frame.
    pub(crate) fn frame_in(&self, row: &[u8], entry: &SegmentEntry) -> Result<SegmentFrame> {
        let row = row.first_chunk();
        let frame =
            SegmentFrame::decode(row.ok_or_else(|| self.no_row("frame", entry.frame.into()))?);
        let checked = entry.check(Some(&frame));
        checked.map_err(|detail| corrupt(&self.object, detail))?;
        Ok(frame)
    }

    /// Returns the byte range of a pack's row.
    ///
    /// # Errors
    /// Invalid input, when there is no such pack.
    pub(crate) fn pack_range(&self, position: u32) -> Result<Range<u64>> {
        match position < self.packs() {
            true => Ok(range_of(self.packs_at, position, PACK_LEN)),
            false => Err(self.no_row("pack", position.into())),
        }
    }

    /// Decodes the row of the pack that `frame`, at `position`, names.
    ///
    /// # Errors
    /// Corrupt, when the row is impossible or the frame exceeds the pack.
    pub(crate) fn pack_in(
        &self,
        row: &[u8],
        position: u32,
        frame: &SegmentFrame,
    ) -> Result<SegmentPack> {
        let row = row.first_chunk();
        let row = row.ok_or_else(|| self.no_row("pack", frame.pack.into()))?;
        let checked = || {
            let pack = SegmentPack::decode(row, frame.pack)?;
            pack.check(frame.pack)?;
            frame.check(position, Some(&pack))?;
            Ok(pack)
        };
        checked().map_err(|detail: String| corrupt(&self.object, detail))
    }
}

fn range_of(section_at: usize, position: u32, len: usize) -> Range<u64> {
    let start = section_at as u64 + u64::from(position) * len as u64;
    start..start + len as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{FrameKind, PackHeader, PackKind, PackTrailer, Provenance, write_segment};
    use crate::id::{PackId, SegmentId};

    const CHUNKS: u32 = 3000;

    fn id(number: u32) -> ChunkId {
        ChunkId::of(&number.to_le_bytes())
    }

    fn segment() -> Vec<u8> {
        let packs = [1, 2].map(|number| SegmentPack {
            id: PackId([number; 16]),
            kind: PackKind::Data,
            len: PackHeader::LEN + CHUNKS + PackTrailer::LEN,
        });
        let frames: Vec<SegmentFrame> = (0..CHUNKS / 100)
            .map(|at| SegmentFrame {
                pack: at % 2,
                offset: PackHeader::LEN + at * 100,
                stored_len: 100,
                raw_len: 100,
                kind: FrameKind::Data,
            })
            .collect();
        let mut entries: Vec<SegmentEntry> = (0..CHUNKS)
            .map(|at| SegmentEntry {
                id: id(at),
                frame: at / 100,
                offset: at % 100,
                len: 1,
            })
            .collect();
        entries.sort_unstable_by_key(|entry| entry.id);
        let mut bytes = Vec::new();
        let made = Provenance::default();
        let entries = || entries.iter().copied();
        write_segment(
            &mut bytes,
            SegmentId([7; 16]),
            made,
            &packs,
            &frames,
            &[],
            entries,
        )
        .unwrap();
        bytes
    }

    fn slice(bytes: &[u8], range: Range<u64>) -> &[u8] {
        &bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
    }

    #[test]
    fn parts_lead_to_what_the_whole_leads_to() {
        let bytes = segment();
        let whole = SegmentLayout::parse("segment", &bytes).unwrap();
        let header = &bytes[..usize::try_from(SEGMENT_HEADER_LEN).unwrap()];
        let parts = SegmentLayout::of_header("segment", header, bytes.len() as u64).unwrap();
        for number in 0..CHUNKS + 500 {
            let id = id(number);
            let bounds = slice(&bytes, parts.fanout_range(&id));
            let (first, range) = parts.entries_range(bounds).unwrap();
            let found = parts.entry_in(slice(&bytes, range), first, &id);
            let at = whole.find(&bytes, &id);
            assert_eq!(found.map(|(at, _)| at), at, "{number}");
            let Some((at, entry)) = found else { continue };
            assert_eq!(entry, whole.entry(&bytes, at).unwrap());
            let row = slice(&bytes, parts.frame_range(entry.frame).unwrap());
            let frame = parts.frame_in(row, &entry).unwrap();
            assert_eq!(frame, whole.frame(&bytes, entry.frame).unwrap());
            let row = slice(&bytes, parts.pack_range(frame.pack).unwrap());
            let pack = parts.pack_in(row, entry.frame, &frame).unwrap();
            assert_eq!(pack, whole.pack(&bytes, frame.pack).unwrap());
        }
    }

    #[test]
    fn parts_that_lead_outside_are_damage() {
        let bytes = segment();
        let header = &bytes[..usize::try_from(SEGMENT_HEADER_LEN).unwrap()];
        let len = bytes.len() as u64;
        SegmentLayout::of_header("segment", header, len - 1).unwrap_err();
        SegmentLayout::of_header("segment", &header[..50], len).unwrap_err();
        let parts = SegmentLayout::of_header("segment", header, len).unwrap();
        let bounds = |first: u32, end: u32| {
            let bytes = [first.to_le_bytes(), end.to_le_bytes()].concat();
            parts.entries_range(&bytes).map_err(|error| error.kind())
        };
        assert!(bounds(0, CHUNKS).is_ok());
        for (first, end) in [(2, 1), (0, CHUNKS + 1), (u32::MAX, u32::MAX)] {
            assert_eq!(bounds(first, end), Err(ErrorKind::Corrupt));
        }
        parts.entries_range(&[0; 7]).unwrap_err();
        parts.frame_range(CHUNKS / 100).unwrap_err();
        parts.pack_range(2).unwrap_err();
        // Rows that contradict each other or are cut short.
        let entry = SegmentEntry {
            id: id(1),
            frame: 0,
            offset: 99,
            len: 1,
        };
        let row = slice(&bytes, parts.frame_range(0).unwrap());
        let frame = parts.frame_in(row, &entry).unwrap();
        let beyond = SegmentEntry { len: 2, ..entry };
        assert_eq!(
            parts.frame_in(row, &beyond).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        parts.frame_in(&row[1..], &entry).unwrap_err();
        let row = slice(&bytes, parts.pack_range(0).unwrap());
        parts.pack_in(row, 0, &frame).unwrap();
        parts.pack_in(&row[..31], 0, &frame).unwrap_err();
        let beyond = SegmentFrame {
            offset: CHUNKS + 1000,
            ..frame
        };
        assert_eq!(
            parts.pack_in(row, 0, &beyond).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }
}
