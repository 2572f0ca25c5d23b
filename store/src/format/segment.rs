//! Segments: sorted, immutable, looked up in place: chunk id -> pack, frame, place in the frame.

use std::io::Write;

use crate::error::Result;
use crate::format::{PackKind, SegmentInfo};
use crate::id::{ChunkId, PackId, SegmentId};

/// Most chunks of a segment.
pub const SEGMENT_CHUNKS_MAX: u64 = 1 << 31;

/// One pack that a segment names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPack {
    /// Its name.
    pub id: PackId,
    /// Data or metadata.
    pub kind: PackKind,
    /// Its bytes.
    pub len: u32,
}

/// One frame: where its bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFrame {
    /// Position in the table of packs.
    pub pack: u32,
    /// First byte in the pack.
    pub offset: u32,
    /// Bytes as stored.
    pub stored_len: u32,
    /// Bytes once decoded.
    pub raw_len: u32,
}

/// One chunk: which frame, and where in the decoded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// The chunk.
    pub id: ChunkId,
    /// Position in the table of frames.
    pub frame: u32,
    /// First byte in the decoded frame.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// Writes a segment: `entries` is called twice (once to count, once to write) and must yield ids strictly
/// ascending. Returns the totals for the log.
pub fn write_segment<I: Iterator<Item = SegmentEntry>>(
    _out: &mut impl Write,
    _id: SegmentId,
    _packs: &[SegmentPack],
    _frames: &[SegmentFrame],
    _entries: impl Fn() -> I,
) -> Result<SegmentInfo> {
    todo!()
}

/// A parsed header: where the sections of a segment lie. Holds no bytes; every method takes them.
#[derive(Clone, Debug)]
pub struct SegmentLayout {
    _private: (),
}

impl SegmentLayout {
    /// Parses the header and checks it against `bytes.len()`; `object` names the segment in errors.
    pub fn parse(_object: &str, _bytes: &[u8]) -> Result<Self> {
        todo!()
    }

    /// The whole checksum, order and bounds: for a segment that just arrived, and for `verify`.
    pub fn verify(&self, _bytes: &[u8]) -> Result<()> {
        todo!()
    }

    /// The segment's own name.
    pub fn id(&self) -> SegmentId {
        todo!()
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        todo!()
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        todo!()
    }

    /// Number of packs.
    pub fn packs(&self) -> u32 {
        todo!()
    }

    /// Position of a chunk, by fan-out and binary search.
    pub fn find(&self, _bytes: &[u8], _id: &ChunkId) -> Option<u64> {
        todo!()
    }

    /// The entry at `position` (below [`Self::chunks`]), bounds checked against its frame.
    pub fn entry(&self, _bytes: &[u8], _position: u64) -> Result<SegmentEntry> {
        todo!()
    }

    /// The frame at `position` (below [`Self::frames`]).
    pub fn frame(&self, _bytes: &[u8], _position: u32) -> Result<SegmentFrame> {
        todo!()
    }

    /// The pack at `position` (below [`Self::packs`]).
    pub fn pack(&self, _bytes: &[u8], _position: u32) -> Result<SegmentPack> {
        todo!()
    }
}
