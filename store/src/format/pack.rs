//! Packs: frames one after another, then the table of frames and chunks, then a fixed trailer.

use crate::error::Result;
use crate::id::{ChunkId, PackId};

/// Most bytes of a pack, so that offsets fit 32 bits.
pub const PACK_BYTES_MAX: u32 = 1 << 30;
/// Most bytes of a frame once decoded.
pub const FRAME_RAW_BYTES_MAX: u32 = 8 << 20;
/// Most bytes of a chunk.
pub const CHUNK_BYTES_MAX: u32 = 4 << 20;

/// What a pack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PackKind {
    /// Chunks of files.
    Data = 0,
    /// Trees, list nodes and times.
    Meta = 1,
}

/// The first bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Data or metadata.
    pub kind: PackKind,
    /// The pack's own name, so that a pack under a wrong key is noticed.
    pub id: PackId,
}

/// Where one frame lies and what it decodes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFrame {
    /// Bytes as stored, the codec byte included.
    pub stored_len: u32,
    /// Bytes once decoded: the sum of its chunks.
    pub raw_len: u32,
    /// How many chunks it holds, one after another.
    pub chunks: u32,
}

/// One chunk of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackChunk {
    /// Its id.
    pub id: ChunkId,
    /// Its bytes.
    pub len: u32,
}

/// The table at the end of a pack: enough to rebuild its part of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackTable {
    /// Frames in the order in which they lie, the first right behind the header.
    pub frames: Vec<PackFrame>,
    /// Chunks of all frames in order.
    pub chunks: Vec<PackChunk>,
}

/// The last bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackTrailer {
    /// Where the table begins.
    pub table_offset: u32,
    /// Frames in the table.
    pub frames: u32,
    /// Chunks in the table.
    pub chunks: u32,
    /// BLAKE3 of header, table and the trailer's fields before it.
    pub checksum: [u8; 32],
}

impl PackHeader {
    /// Bytes on disk.
    pub const LEN: u32 = 32;

    /// The header's bytes.
    pub fn encode(&self) -> [u8; 32] {
        todo!()
    }

    /// Parses; `object` names the pack in errors.
    pub fn decode(_object: &str, _bytes: &[u8]) -> Result<Self> {
        todo!()
    }
}

impl PackTrailer {
    /// Bytes on disk.
    pub const LEN: u32 = 64;

    /// Parses the last 64 bytes of a pack of `pack_len` bytes.
    pub fn decode(_object: &str, _pack_len: u64, _bytes: &[u8]) -> Result<Self> {
        todo!()
    }
}

impl PackTable {
    /// Table and trailer, as they follow the last frame.
    pub fn encode(&self, _header: &PackHeader) -> Result<Vec<u8>> {
        todo!()
    }

    /// Parses table and trailer (`bytes`: from `trailer.table_offset` to the end) and checks the checksum,
    /// all limits, and that frames fill exactly what lies between header and table.
    pub fn decode(
        _object: &str,
        _header: &PackHeader,
        _trailer: &PackTrailer,
        _bytes: &[u8],
    ) -> Result<Self> {
        todo!()
    }
}
