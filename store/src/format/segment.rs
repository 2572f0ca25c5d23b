//! Segments: sorted, immutable, searched in place: chunk id -> pack, frame, offset in the frame.
//!
//! Opening loads nothing: the header gives the offsets of the sections, the fan-out leads to a few entries, and their
//! ids are compared. Every read checks bounds, so a hostile segment causes errors and never a panic.

use std::hint::black_box;
use std::io::Write;
use std::ops::Range;

use super::bases::{FRAME_BASE_LEN, FrameBase, check_bases};
use super::cursor::{Cursor, Hex, corrupt};
use super::segment_rows::{
    ENTRY_LEN, SEGMENT_CHUNKS_MAX, SEGMENT_ENTRY_LEN, SEGMENT_FRAME_LEN, SEGMENT_HEADER_LEN,
    SEGMENT_PACK_LEN, SegmentEntry, SegmentFrame, SegmentHeader, SegmentPack, check_packs,
    place_of, share_of, too_many,
};
use super::segment_sink::{SEGMENT_TRAILER_LEN, SEGMENT_TRAILER_MAGIC, Sink};
use crate::error::{Error, Result};
use crate::format::{Provenance, SegmentInfo};
use crate::id::{ChunkId, SegmentId};

/// Most leading bits of an id that index the fan-out.
pub const SEGMENT_FANOUT_BITS_MAX: u8 = 24;

/// Most entries per bucket of the fan-out, on average.
const BUCKET_ENTRIES: u64 = 8;
/// In a segment of at most so many chunks, half of all hashes lie within a page of where they lie on average.
const NEAR_CHUNKS_MAX: u64 = 16 << 10;

/// Returns the length of a segment with these counts, or `None` if they exceed a limit.
pub fn segment_len(
    chunks: u64,
    frames: u32,
    bases: u32,
    packs: u32,
    fanout_bits: u8,
) -> Option<u64> {
    if chunks > SEGMENT_CHUNKS_MAX || fanout_bits > SEGMENT_FANOUT_BITS_MAX {
        return None;
    }
    let sections = [
        SEGMENT_HEADER_LEN,
        fanout_len(fanout_bits),
        chunks * SEGMENT_ENTRY_LEN,
        u64::from(frames) * SEGMENT_FRAME_LEN,
        u64::from(bases) * u64::from(FRAME_BASE_LEN),
        u64::from(packs) * SEGMENT_PACK_LEN,
        SEGMENT_TRAILER_LEN,
    ];
    Some(sections.iter().sum())
}

/// Returns the fan-out bits that [`write_segment`] uses: the fewest with at most 8 entries per bucket on average.
pub fn segment_fanout_bits(chunks: u64) -> u8 {
    let enough = |bits: &u8| chunks >> bits <= BUCKET_ENTRIES;
    (0..SEGMENT_FANOUT_BITS_MAX)
        .find(enough)
        .unwrap_or(SEGMENT_FANOUT_BITS_MAX)
}

fn fanout_len(bits: u8) -> u64 {
    ((1 << bits) + 1) * 4
}

/// Writes a segment, and returns its totals for the log. Calls `entries` once for the fan-out and once to write, and
/// once before that to count unless its `size_hint` is exact. Each call must yield the same ids, strictly ascending.
/// Holds the fan-out in memory: at most about a byte per chunk.
///
/// # Errors
/// Invalid input, when an entry is out of order or a row refers to something that does not exist; `out` may then hold
/// half a segment. Io, when writing to `out` fails.
pub fn write_segment<I: Iterator<Item = SegmentEntry>>(
    out: &mut impl Write,
    id: SegmentId,
    made: Provenance,
    packs: &[SegmentPack],
    frames: &[SegmentFrame],
    bases: &[FrameBase],
    entries: impl Fn() -> I,
) -> Result<SegmentInfo> {
    let refuse = |detail: String| Error::invalid(format!("segment {id}: {detail}"));
    let pack_bytes = check_packs(packs).map_err(refuse)?;
    for (position, frame) in (0..).zip(frames) {
        let pack = usize::try_from(frame.pack)
            .ok()
            .and_then(|at| packs.get(at));
        frame.check(position, pack).map_err(refuse)?;
    }
    let mut header = SegmentHeader {
        fanout_bits: 0,
        id,
        made,
        chunks: count(entries()),
        frames: u32::try_from(frames.len()).map_err(|_| refuse(too_many("frames")))?,
        packs: u32::try_from(packs.len()).map_err(|_| refuse(too_many("packs")))?,
        bases: u32::try_from(bases.len()).map_err(|_| refuse(too_many("bases")))?,
    };
    check_bases(bases, header.frames).map_err(refuse)?;
    if header.chunks > SEGMENT_CHUNKS_MAX {
        return Err(refuse(too_many("chunks")));
    }
    header.fanout_bits = segment_fanout_bits(header.chunks);
    let (fanout, raw_bytes) = plan_entries(&header, frames, entries()).map_err(refuse)?;
    let mut sink = Sink::new(out, id);
    sink.put(&header.encode())?;
    for start in fanout {
        sink.put(&start.to_le_bytes())?;
    }
    let mut written = 0;
    for entry in entries() {
        sink.put(&entry.encode())?;
        written += 1;
    }
    if written != header.chunks {
        return Err(refuse(changed(header.chunks)));
    }
    for frame in frames {
        sink.put(&frame.encode())?;
    }
    for base in bases {
        sink.put(&base.encode())?;
    }
    for pack in packs {
        sink.put(&pack.encode())?;
    }
    Ok(SegmentInfo {
        chunks: header.chunks,
        packs: header.packs,
        pack_bytes,
        raw_bytes,
        bytes: sink.finish()?,
        ..SegmentInfo::default()
    })
}

/// Computes the fan-out (the first entry of each bucket, and the end) and the sum of all lengths.
fn plan_entries(
    header: &SegmentHeader,
    frames: &[SegmentFrame],
    entries: impl Iterator<Item = SegmentEntry>,
) -> Result<(Vec<u32>, u64), String> {
    let mut fanout = Vec::with_capacity((1 << header.fanout_bits) + 1);
    let (mut last, mut raw_bytes, mut position) = (None, 0, 0_u32);
    for entry in entries {
        entry.check_order(last)?;
        let frame = usize::try_from(entry.frame).ok();
        entry.check(frame.and_then(|at| frames.get(at)))?;
        let place = place_of(&entry.id, header.fanout_bits);
        while fanout.len() <= place {
            fanout.push(position);
        }
        last = Some(entry.id);
        raw_bytes += u64::from(entry.len);
        position = position.checked_add(1).ok_or_else(|| too_many("chunks"))?;
    }
    if u64::from(position) != header.chunks {
        return Err(changed(header.chunks));
    }
    fanout.resize((1 << header.fanout_bits) + 1, position);
    Ok((fanout, raw_bytes))
}

fn count(entries: impl Iterator<Item = SegmentEntry>) -> u64 {
    let count = match entries.size_hint() {
        (least, Some(most)) if least == most => least,
        _ => entries.count(),
    };
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The offsets of the sections of a segment, from its header. Holds no bytes; every method takes them.
#[derive(Clone, Debug)]
pub struct SegmentLayout {
    pub(super) object: String,
    pub(super) header: SegmentHeader,
    pub(super) entries_at: usize,
    pub(super) frames_at: usize,
    pub(super) bases_at: usize,
    pub(super) packs_at: usize,
    trailer_at: usize,
}

impl SegmentLayout {
    /// Parses the header and checks it against `bytes.len()`; `object` names the segment in errors.
    ///
    /// # Errors
    /// Corrupt, when this is not a whole segment; unsupported, when the version is unknown.
    pub fn parse(object: &str, bytes: &[u8]) -> Result<Self> {
        let header = SegmentHeader::decode(object, bytes)?;
        let SegmentHeader {
            fanout_bits,
            chunks,
            frames,
            packs,
            bases,
            ..
        } = header;
        let len = segment_len(chunks, frames, bases, packs, fanout_bits);
        if len.is_none() || len != u64::try_from(bytes.len()).ok() {
            let found = bytes.len();
            let bases = match bases {
                0 => String::new(),
                bases => format!(" {bases} bases,"),
            };
            let detail = format_args!(
                "length: {found} bytes, its header says {chunks} chunks, {frames} frames,{bases} {packs} packs and a fan-out of {fanout_bits} bits"
            );
            return Err(corrupt(object, detail));
        }
        let layout = Self::of(object, header);
        let trailer = bytes.get(layout.trailer_at..).unwrap_or_default();
        Cursor::new(&format!("{object}: trailer"), trailer).magic(&SEGMENT_TRAILER_MAGIC)?;
        Ok(layout)
    }

    /// Computes the offsets of the sections; the caller has compared the length with the header.
    pub(super) fn of(object: &str, header: SegmentHeader) -> Self {
        let entries_at = SEGMENT_HEADER_LEN + fanout_len(header.fanout_bits);
        let frames_at = entries_at + header.chunks * SEGMENT_ENTRY_LEN;
        let bases_at = frames_at + u64::from(header.frames) * SEGMENT_FRAME_LEN;
        let packs_at = bases_at + u64::from(header.bases) * u64::from(FRAME_BASE_LEN);
        // All offsets are at most the length of the segment.
        let offset = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Self {
            object: object.to_owned(),
            entries_at: offset(entries_at),
            frames_at: offset(frames_at),
            bases_at: offset(bases_at),
            packs_at: offset(packs_at),
            trailer_at: offset(packs_at + u64::from(header.packs) * SEGMENT_PACK_LEN),
            header,
        }
    }

    /// Verifies the checksum, the order and all bounds: for a segment that has just been copied, and for `verify`.
    ///
    /// # Errors
    /// Corrupt, naming the first defect.
    pub fn verify(&self, bytes: &[u8]) -> Result<()> {
        self.verify_checksum(bytes)?;
        let packs: Vec<SegmentPack> = (0..self.packs())
            .map(|at| self.pack(bytes, at))
            .collect::<Result<_>>()?;
        check_packs(&packs).map_err(|detail| corrupt(&self.object, detail))?;
        for at in 0..self.frames() {
            self.frame(bytes, at)?;
        }
        let bases: Vec<FrameBase> = (0..self.bases())
            .map(|at| self.base(bytes, at))
            .collect::<Result<_>>()?;
        check_bases(&bases, self.frames()).map_err(|detail| corrupt(&self.object, detail))?;
        self.verify_entries(bytes)
    }

    /// The segment's own name.
    pub fn id(&self) -> SegmentId {
        self.header.id
    }

    /// Its provenance.
    pub fn made(&self) -> Provenance {
        self.header.made
    }

    /// Returns the provenance of the segment that begins with `bytes`.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn made_of(object: &str, bytes: &[u8]) -> Result<Provenance> {
        Ok(SegmentHeader::decode(object, bytes)?.made)
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.header.chunks
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.header.frames
    }

    /// Number of packs.
    pub fn packs(&self) -> u32 {
        self.header.packs
    }

    /// Number of bases of all its frames.
    pub fn bases(&self) -> u32 {
        self.header.bases
    }

    /// Finds the position of a chunk by fan-out, and from there by a search that begins where an id that is a hash
    /// probably lies. Other ids are found in at most twice the steps of a binary search.
    pub fn find(&self, bytes: &[u8], id: &ChunkId) -> Option<u64> {
        let section = bytes.get(self.entries_at..self.frames_at)?;
        if self.chunks() <= NEAR_CHUNKS_MAX {
            // The page of the entry comes while the fan-out is waited for.
            let count = usize::try_from(self.chunks()).unwrap_or_default();
            black_box(id_at(section, share_of(id, 0, count)).map(|[first, ..]| *first));
        }
        let (Range { start, end }, mut probe) = self.guess(bytes, id)?;
        let (mut low, mut high) = (start, end);
        // Hashes lie about half the root of their number away from there.
        let mut stride = (end - start).isqrt() / 2 + 1;
        while low < high {
            let found = id_at(section, probe)?;
            let is_behind = match found.cmp(&id.0) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                std::cmp::Ordering::Equal => return u64::try_from(probe).ok(),
            };
            (low, high) = if is_behind {
                (probe + 1, high)
            } else {
                (low, probe)
            };
            let middle = low + (high - low) / 2;
            probe = match is_behind {
                true => middle.min(low + stride - 1),
                false => middle.max(high.saturating_sub(stride)),
            };
            stride = stride.saturating_mul(2);
        }
        None
    }

    /// Reads a byte of the first entry that [`Self::find`] will read. A search waits for memory twice or more, and
    /// searches in several segments wait one after another; if all of these are touched first, the waits overlap.
    pub fn touch(&self, bytes: &[u8], id: &ChunkId) {
        let probed = self.guess(bytes, id).and_then(|(_, probe)| {
            let section = bytes.get(self.entries_at..self.frames_at)?;
            id_at(section, probe)
        });
        black_box(probed.map(|[first, ..]| *first));
    }

    /// Returns the bucket of `id`, as a range of positions, and the position in it where an id that is a hash probably
    /// lies.
    fn guess(&self, bytes: &[u8], id: &ChunkId) -> Option<(Range<usize>, usize)> {
        let bits = self.header.fanout_bits;
        let place = place_of(id, bits);
        let low = self.fanout(bytes, place)?;
        let high = self.fanout(bytes, place + 1)?;
        let count = high.checked_sub(low)?;
        Some((low..high, low + share_of(id, bits, count)))
    }

    /// Iterates over the ids of its chunks, in the order of the entries.
    pub fn ids<'b>(
        &self,
        bytes: &'b [u8],
    ) -> impl Iterator<Item = &'b [u8; ChunkId::LEN]> + use<'b> {
        let section = bytes.get(self.entries_at..self.frames_at);
        let (rows, _) = section.unwrap_or_default().as_chunks::<ENTRY_LEN>();
        rows.iter().filter_map(|row| row.first_chunk())
    }

    /// Returns the entry at `position` (below [`Self::chunks`]), checked against its frame.
    ///
    /// # Errors
    /// Corrupt, when the entry exceeds its frame; invalid input, when there is no such position.
    pub fn entry(&self, bytes: &[u8], position: u64) -> Result<SegmentEntry> {
        let row = row(bytes, self.entries_at, position, self.chunks());
        let entry = SegmentEntry::decode(row.ok_or_else(|| self.no_row("entry", position))?);
        let frame = self.raw_frame(bytes, entry.frame).ok();
        let checked = entry.check(frame.as_ref());
        checked.map_err(|detail| corrupt(&self.object, detail))?;
        Ok(entry)
    }

    /// Returns the frame at `position` (below [`Self::frames`]), checked against its pack.
    ///
    /// # Errors
    /// Corrupt, when the frame exceeds its pack; invalid input, when there is no such position.
    pub fn frame(&self, bytes: &[u8], position: u32) -> Result<SegmentFrame> {
        let frame = self.raw_frame(bytes, position)?;
        let pack = match frame.pack < self.packs() {
            true => Some(self.pack(bytes, frame.pack)?),
            false => None,
        };
        let checked = frame.check(position, pack.as_ref());
        checked.map_err(|detail| corrupt(&self.object, detail))?;
        Ok(frame)
    }

    /// Returns the frame at `position`, unchecked.
    ///
    /// # Errors
    /// Invalid input, when there is no such frame.
    pub fn raw_frame(&self, bytes: &[u8], position: u32) -> Result<SegmentFrame> {
        let row = row(bytes, self.frames_at, position.into(), self.frames().into());
        let row = row.ok_or_else(|| self.no_row("frame", position.into()))?;
        Ok(SegmentFrame::decode(row))
    }

    /// Returns the pack at `position` (below [`Self::packs`]).
    ///
    /// # Errors
    /// Corrupt, when the row is impossible; invalid input, when there is no such position.
    pub fn pack(&self, bytes: &[u8], position: u32) -> Result<SegmentPack> {
        let row = row(bytes, self.packs_at, position.into(), self.packs().into());
        let row = row.ok_or_else(|| self.no_row("pack", position.into()))?;
        let pack = SegmentPack::decode(row, position);
        let checked = pack.and_then(|pack| pack.check(position).map(|()| pack));
        checked.map_err(|detail| corrupt(&self.object, detail))
    }

    /// Returns the first entry of bucket `place`.
    fn fanout(&self, bytes: &[u8], place: usize) -> Option<usize> {
        let at = usize::try_from(SEGMENT_HEADER_LEN).ok()? + place * 4;
        let start = bytes.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*start)).ok()
    }

    pub(super) fn no_row(&self, what: &str, position: u64) -> Error {
        Error::invalid(format!("{}: has no {what} {position}", self.object))
    }

    fn verify_checksum(&self, bytes: &[u8]) -> Result<()> {
        let (covered, trailer) = bytes
            .split_at_checked(self.trailer_at)
            .ok_or_else(|| corrupt(&self.object, "is cut short"))?;
        let mut cursor = Cursor::new(&self.object, trailer);
        cursor.magic(&SEGMENT_TRAILER_MAGIC)?;
        let expected: [u8; 32] = cursor.array("checksum")?;
        let found = blake3::hash(covered);
        if *found.as_bytes() == expected {
            return Ok(());
        }
        let (found, expected) = (Hex(found.as_bytes()), Hex(&expected));
        let detail = format_args!("checksum is {found}, its trailer says {expected}");
        Err(corrupt(&self.object, detail))
    }

    /// Checks order and bounds, and that the fan-out is the one that [`write_segment`] would compute.
    fn verify_entries(&self, bytes: &[u8]) -> Result<()> {
        let fail = |detail: String| corrupt(&self.object, detail);
        let (mut last, mut places) = (None, 0);
        for position in 0..self.chunks() {
            let entry = self.entry(bytes, position)?;
            entry.check_order(last).map_err(fail)?;
            last = Some(entry.id);
            let place = place_of(&entry.id, self.header.fanout_bits);
            while places <= place {
                self.verify_fanout(bytes, places, position)?;
                places += 1;
            }
        }
        for place in places..=(1 << self.header.fanout_bits) {
            self.verify_fanout(bytes, place, self.chunks())?;
        }
        Ok(())
    }

    fn verify_fanout(&self, bytes: &[u8], place: usize, expected: u64) -> Result<()> {
        let found = self.fanout(bytes, place);
        if found.and_then(|found| u64::try_from(found).ok()) == Some(expected) {
            return Ok(());
        }
        let found = found.unwrap_or_default();
        let detail = format_args!("fan-out {place}: expected {expected}, found {found}");
        Err(corrupt(&self.object, detail))
    }
}

/// Returns row `position` of `count` in the section that begins at `section_at`.
pub(super) fn row<const N: usize>(
    bytes: &[u8],
    section_at: usize,
    position: u64,
    count: u64,
) -> Option<&[u8; N]> {
    let position = usize::try_from(position)
        .ok()
        .filter(|_| position < count)?;
    bytes.get(section_at + position * N..)?.first_chunk()
}

/// Returns the id of the entry at `position` of a section of entries.
fn id_at(entries: &[u8], position: usize) -> Option<&[u8; ChunkId::LEN]> {
    let at = position.checked_mul(ENTRY_LEN)?;
    entries.get(at..)?.first_chunk()
}

fn changed(chunks: u64) -> String {
    format!("chunks: expected the same {chunks} each time they are asked for, found others")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{FrameKind, PackKind};
    use crate::id::{PackId, StoreId};

    const ID: SegmentId = SegmentId([9; 16]);
    const MADE: Provenance = Provenance {
        store: StoreId([6; 16]),
        began: 5,
    };

    fn pack(byte: u8, len: u32) -> SegmentPack {
        SegmentPack {
            id: PackId([byte; 16]),
            kind: PackKind::Data,
            len,
        }
    }

    fn frame(pack: u32, offset: u32) -> SegmentFrame {
        SegmentFrame {
            pack,
            offset,
            stored_len: 100,
            raw_len: 1000,
            kind: FrameKind::Data,
        }
    }

    fn entry(seed: u32, frame: u32) -> SegmentEntry {
        SegmentEntry {
            id: ChunkId::of(&seed.to_le_bytes()),
            frame,
            offset: 10,
            len: 990,
        }
    }

    fn entries(count: u32) -> Vec<SegmentEntry> {
        let mut entries: Vec<_> = (0..count).map(|seed| entry(seed, seed % 2)).collect();
        entries.sort_by_key(|entry| entry.id);
        entries
    }

    fn write(entries: &[SegmentEntry]) -> Result<(Vec<u8>, SegmentInfo)> {
        let mut out = Vec::new();
        let packs = [pack(1, 244), pack(2, 1000)];
        let frames = [frame(0, 80), frame(1, 836)];
        let info = write_segment(&mut out, ID, MADE, &packs, &frames, &[], || {
            entries.iter().copied()
        })?;
        Ok((out, info))
    }

    fn refused(packs: &[SegmentPack], frames: &[SegmentFrame], entries: &[SegmentEntry]) -> String {
        let mut out = Vec::new();
        let entries = || entries.iter().copied();
        let error = write_segment(&mut out, ID, MADE, packs, frames, &[], entries).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        text.strip_prefix(&format!("segment {ID}: "))
            .unwrap()
            .to_owned()
    }

    #[test]
    fn every_chunk_is_found_and_no_other() {
        for count in [0, 1, 2, 8, 9, 3000] {
            let entries = entries(count);
            let (bytes, info) = write(&entries).unwrap();
            assert_eq!(info.bytes, u64::try_from(bytes.len()).unwrap());
            assert_eq!((info.chunks, info.packs), (count.into(), 2));
            assert_eq!(
                (info.pack_bytes, info.raw_bytes),
                (1244, u64::from(count) * 990)
            );
            let layout = SegmentLayout::parse("x", &bytes).unwrap();
            layout.verify(&bytes).unwrap();
            assert_eq!((layout.id(), layout.chunks()), (ID, count.into()));
            assert_eq!(layout.made(), MADE);
            assert_eq!(SegmentLayout::made_of("x", &bytes[..96]).unwrap(), MADE);
            for (position, entry) in (0..).zip(&entries) {
                assert_eq!(layout.find(&bytes, &entry.id), Some(position));
                assert_eq!(layout.entry(&bytes, position).unwrap(), *entry);
            }
            for seed in count..count + 100 {
                assert_eq!(layout.find(&bytes, &ChunkId::of(&seed.to_le_bytes())), None);
            }
            assert_eq!(layout.find(&bytes, &ChunkId([0; 32])), None);
            assert_eq!(layout.find(&bytes, &ChunkId([255; 32])), None);
            assert_eq!(layout.frame(&bytes, 1).unwrap(), frame(1, 836));
            assert_eq!(layout.pack(&bytes, 0).unwrap(), pack(1, 244));
            let error = layout.entry(&bytes, count.into()).unwrap_err();
            assert_eq!(error.to_string(), format!("x: has no entry {count}"));
        }
    }

    #[test]
    fn an_iterator_that_cannot_say_its_length_is_counted() {
        let entries = entries(500);
        let (expected, _) = write(&entries).unwrap();
        let mut out = Vec::new();
        let packs = [pack(1, 244), pack(2, 1000)];
        let frames = [frame(0, 80), frame(1, 836)];
        let some = || entries.iter().copied().filter(|entry| entry.len > 0);
        write_segment(&mut out, ID, MADE, &packs, &frames, &[], some).unwrap();
        assert_eq!(out, expected);
    }

    #[test]
    fn the_fan_out_leaves_few_entries_to_a_place() {
        assert_eq!(segment_fanout_bits(0), 0);
        assert_eq!(segment_fanout_bits(8), 0);
        assert_eq!(segment_fanout_bits(9), 1);
        assert_eq!(segment_fanout_bits(5_000_000), 20);
        assert_eq!(segment_fanout_bits(SEGMENT_CHUNKS_MAX), 24);
        assert_eq!(segment_len(0, 0, 0, 0, 0), Some(96 + 8 + 40));
        assert_eq!(
            segment_len(2, 3, 5, 4, 1),
            Some(96 + 12 + 88 + 48 + 180 + 128 + 40)
        );
        assert_eq!(segment_len(SEGMENT_CHUNKS_MAX + 1, 0, 0, 0, 0), None);
        assert_eq!(segment_len(0, 0, 0, 0, 25), None);
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let (bytes, _) = write(&entries(20)).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            let layout = SegmentLayout::parse("x", &flipped);
            layout
                .and_then(|layout| layout.verify(&flipped))
                .unwrap_err();
            SegmentLayout::parse("x", &bytes[..at]).unwrap_err();
        }
    }

    #[test]
    fn what_points_outside_is_not_written() {
        let packs = [pack(1, 244)];
        let id = entry(1, 0).id;
        let long = SegmentEntry {
            len: 991,
            ..entry(1, 0)
        };
        let none = SegmentEntry {
            len: 0,
            ..entry(1, 0)
        };
        let cases = [
            (
                refused(&[pack(1, 143)], &[], &[]),
                "pack 0: expected 144 to 1073741824 bytes, found 143".to_owned(),
            ),
            (
                refused(&[pack(1, 144), pack(1, 145)], &[], &[]),
                format!("pack {}: expected it once, found it again", PackId([1; 16])),
            ),
            (
                refused(&packs, &[frame(1, 80)], &[]),
                "frame 0: there is no pack 1".to_owned(),
            ),
            (
                refused(&packs, &[frame(0, 79)], &[]),
                "frame 0: expected to lie in bytes 80 to 180 of pack 0, found 100 bytes at 79"
                    .to_owned(),
            ),
            (
                refused(&packs, &[frame(0, 81)], &[]),
                "frame 0: expected to lie in bytes 80 to 180 of pack 0, found 100 bytes at 81"
                    .to_owned(),
            ),
            (
                refused(&packs, &[frame(0, 80)], &[entry(1, 1)]),
                format!("chunk {id}: there is no frame 1"),
            ),
            (
                refused(&packs, &[frame(0, 80)], &[long]),
                format!(
                    "chunk {id}: expected to lie in the 1000 bytes of frame 0, found 991 bytes at 10"
                ),
            ),
            (
                refused(&packs, &[frame(0, 80)], &[none]),
                format!("chunk {id}: expected 1 to 4194304 bytes, found 0"),
            ),
            (
                refused(&packs, &[frame(0, 80)], &[entry(1, 0), entry(1, 0)]),
                format!("chunk {id}: expected an id that sorts behind {id}"),
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn entries_that_change_between_the_passes_are_refused() {
        let passes = std::cell::Cell::new(0);
        let entries = || {
            passes.set(passes.get() + 1);
            let count = if passes.get() > 1 { 2 } else { 3 };
            entries(count).into_iter()
        };
        let packs = [pack(1, 244), pack(2, 1000)];
        let frames = [frame(0, 80), frame(1, 836)];
        let error =
            write_segment(&mut Vec::new(), ID, MADE, &packs, &frames, &[], entries).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("the same 3 each time they are asked for, found others")
        );
    }

    /// Applies `change`, and then recomputes the checksums.
    fn sealed_again(mut bytes: Vec<u8>, change: impl Fn(&mut [u8])) -> Vec<u8> {
        change(&mut bytes);
        let header: [u8; 8] = blake3::hash(&bytes[..88]).as_bytes()[..8]
            .try_into()
            .unwrap();
        bytes[88..96].copy_from_slice(&header);
        let at = bytes.len() - 32;
        let checksum = blake3::hash(&bytes[..at - 8]);
        bytes[at..].copy_from_slice(checksum.as_bytes());
        bytes
    }

    #[test]
    fn a_hostile_segment_gives_errors() {
        let (bytes, _) = write(&entries(20)).unwrap();
        let message = |change: &dyn Fn(&mut [u8])| {
            let bytes = sealed_again(bytes.clone(), change);
            let layout = SegmentLayout::parse("x", &bytes);
            let error = layout.and_then(|layout| layout.verify(&bytes)).unwrap_err();
            error.to_string()
        };
        let fanout = 96;
        let entries_at = fanout + 5 * 4;
        let frames_at = entries_at + 20 * 44;
        let packs_at = frames_at + 2 * 16;
        let length = "x: length: 1132 bytes, its header says";
        assert!(message(&|b| b[10] = 25).starts_with(length));
        assert!(message(&|b| b[56..64].fill(0xff)).starts_with(length));
        assert!(message(&|b| b[64..68].fill(0xff)).starts_with(length));
        assert_eq!(
            message(&|b| b[8] = 9),
            "x: version is 9, this program reads 2"
        );
        assert_eq!(
            message(&|b| b[fanout] = 1),
            "x: fan-out 0: expected 0, found 1"
        );
        assert!(message(&|b| b[fanout + 16] = 19).starts_with("x: fan-out 4: expected 20"));
        assert!(message(&|b| b[entries_at + 32] = 2).ends_with("there is no frame 2"));
        assert!(
            message(&|b| b[entries_at + 36..entries_at + 40].fill(0xff))
                .contains("bytes at 4294967295")
        );
        assert!(
            message(&|b| b.copy_within(entries_at + 44..entries_at + 76, entries_at))
                .contains("expected an id that sorts behind ")
        );
        assert_eq!(
            message(&|b| b[frames_at] = 2),
            "x: frame 0: there is no pack 2"
        );
        assert_eq!(
            message(&|b| b[packs_at + 20] = 3),
            "x: pack 0: kind: expected 0 to 2, found 3"
        );
        assert!(
            message(&|b| b[packs_at + 31] = 1).starts_with("x: pack 0: padding: expected zeros")
        );
    }

    #[test]
    fn ids_that_are_no_hashes_are_found_as_well() {
        let id = |at: u64| {
            let mut id = [0; ChunkId::LEN];
            id[..8].copy_from_slice(&(at * at * at).to_be_bytes());
            ChunkId(id)
        };
        let all: Vec<SegmentEntry> = (0..300)
            .map(|at| SegmentEntry {
                id: id(2 * at),
                ..entry(0, 0)
            })
            .collect();
        let (bytes, _) = write(&all).unwrap();
        let layout = SegmentLayout::parse("x", &bytes).unwrap();
        for at in 0..300 {
            assert_eq!(layout.find(&bytes, &id(2 * at)), Some(at));
            assert_eq!(layout.find(&bytes, &id(2 * at + 1)), None);
        }
    }

    #[test]
    fn lookups_in_garbage_find_nothing_or_a_position_within() {
        let (bytes, _) = write(&entries(20)).unwrap();
        let layout = SegmentLayout::parse("x", &bytes).unwrap();
        for fill in [0, 1, 0x7f, 0xff] {
            let mut garbage = bytes.clone();
            garbage[96..116].fill(fill);
            for seed in 0..40_u32 {
                let id = ChunkId::of(&seed.to_le_bytes());
                layout.touch(&garbage, &id);
                let found = layout.find(&garbage, &id);
                assert!(found.is_none_or(|position| position < 20));
            }
        }
        assert_eq!(layout.find(&bytes[..102], &entries(1)[0].id), None);
        assert!(layout.entry(&bytes[..102], 0).is_err());
    }
}
