//! The rows of a segment: header, entry, frame and pack, each of a fixed size.
//!
//! Writers and readers share the checks of what a row may contain, and the messages.

use super::cursor::{Cursor, Hex, corrupt};
use super::pack::check_frame_lens;
use crate::error::Result;
use crate::format::{
    CHUNK_BYTES_MAX, FrameKind, PACK_BYTES_MAX, PackHeader, PackKind, PackTrailer, Provenance,
};
use crate::id::{ChunkId, PackId, SegmentId, StoreId};

/// Most chunks of a segment.
pub const SEGMENT_CHUNKS_MAX: u64 = 1 << 31;
/// The first bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"STORESEG";
/// Version of segments.
pub const SEGMENT_VERSION: u16 = 2;
/// Bytes of the header.
pub const SEGMENT_HEADER_LEN: u64 = 8 + 2 + 1 + 5 + 16 + 16 + 8 + 8 + 4 + 4 + 16 + 8;
/// Bytes of one entry: id, frame, offset, length.
pub const SEGMENT_ENTRY_LEN: u64 = 32 + 4 + 4 + 4;
/// Bytes of one frame: pack, offset, stored length, raw length.
pub const SEGMENT_FRAME_LEN: u64 = 4 + 4 + 4 + 4;
/// Bytes of one pack: id, length, kind, padding.
pub const SEGMENT_PACK_LEN: u64 = 16 + 4 + 1 + 11;

/// One pack that a segment names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPack {
    /// Its name.
    pub id: PackId,
    /// Data, metadata or both.
    pub kind: PackKind,
    /// Its length in bytes.
    pub len: u32,
}

/// One frame: its pack and the position of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFrame {
    /// Position in the table of packs.
    pub pack: u32,
    /// Offset in the pack.
    pub offset: u32,
    /// Length in bytes as stored.
    pub stored_len: u32,
    /// Length in bytes once decoded.
    pub raw_len: u32,
    /// Data or metadata.
    pub kind: FrameKind,
}

/// The share of a chunk of `len` bytes in the stored bytes of its frame.
pub(crate) fn share(len: u32, stored_len: u32, raw_len: u32) -> u64 {
    (u64::from(len) * u64::from(stored_len)).div_ceil(u64::from(raw_len).max(1))
}

/// One chunk: its frame and its position in the decoded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// The chunk.
    pub id: ChunkId,
    /// Position in the table of frames.
    pub frame: u32,
    /// Offset in the decoded frame.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// The first bytes of a segment: its name and the size of each section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) fanout_bits: u8,
    pub(super) id: SegmentId,
    pub(super) made: Provenance,
    pub(super) chunks: u64,
    pub(super) frames: u32,
    pub(super) packs: u32,
    pub(super) bases: u32,
}

pub(super) const HEADER_LEN: usize = 96;
pub(super) const ENTRY_LEN: usize = 44;
pub(super) const FRAME_LEN: usize = 16;
pub(super) const PACK_LEN: usize = 32;

const _: () = assert!(HEADER_LEN as u64 == SEGMENT_HEADER_LEN);
const _: () = assert!(ENTRY_LEN as u64 == SEGMENT_ENTRY_LEN);
const _: () = assert!(FRAME_LEN as u64 == SEGMENT_FRAME_LEN);
const _: () = assert!(PACK_LEN as u64 == SEGMENT_PACK_LEN);
/// Bytes of the checksum that ends the header.
const HEADER_CHECKSUM_LEN: usize = 8;

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out.push(self.fanout_bits);
        out.extend_from_slice(&[0; 5]);
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.made.store.0);
        out.extend_from_slice(&self.made.began.to_le_bytes());
        out.extend_from_slice(&self.chunks.to_le_bytes());
        out.extend_from_slice(&self.frames.to_le_bytes());
        out.extend_from_slice(&self.packs.to_le_bytes());
        out.extend_from_slice(&self.bases.to_le_bytes());
        out.extend_from_slice(&[0; 12]);
        let checksum = header_checksum(&out);
        out.extend_from_slice(&checksum);
        out
    }

    pub(super) fn decode(object: &str, bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        cursor.magic(&SEGMENT_MAGIC)?;
        let version = cursor.u16("version")?;
        if version != SEGMENT_VERSION && is_of_this_version(bytes) {
            let detail = format_args!("version is {version}, its checksum is of {SEGMENT_VERSION}");
            return Err(corrupt(object, detail));
        }
        cursor.version(version, SEGMENT_VERSION)?;
        let fanout_bits = cursor.u8("fan-out bits")?;
        cursor.zeros(5)?;
        let header = Self {
            fanout_bits,
            id: SegmentId(cursor.array("id")?),
            made: Provenance {
                store: StoreId(cursor.array("store")?),
                began: cursor.u64("entry")?,
            },
            chunks: cursor.u64("chunks")?,
            frames: cursor.u32("frames")?,
            packs: cursor.u32("packs")?,
            bases: cursor.u32("bases")?,
        };
        cursor.zeros(12)?;
        let covered = bytes.get(..cursor.at()).unwrap_or_default();
        let found = header_checksum(covered);
        let expected: [u8; HEADER_CHECKSUM_LEN] = cursor.array("checksum of the header")?;
        if found == expected {
            return Ok(header);
        }
        let (found, expected) = (Hex(&found), Hex(&expected));
        let detail = format_args!("checksum of its header is {found}, the header says {expected}");
        Err(corrupt(object, detail))
    }
}

/// Whether a header would be valid with the version of this program. If so, its version is damaged, rather than written
/// by a newer program.
fn is_of_this_version(bytes: &[u8]) -> bool {
    let at = HEADER_LEN - HEADER_CHECKSUM_LEN;
    let Some((covered, found)) = bytes
        .get(..HEADER_LEN)
        .and_then(|all| all.split_at_checked(at))
    else {
        return false;
    };
    let behind = covered.get(SEGMENT_MAGIC.len() + 2..).unwrap_or_default();
    let right = [&SEGMENT_MAGIC[..], &SEGMENT_VERSION.to_le_bytes(), behind].concat();
    header_checksum(&right) == found
}

fn header_checksum(covered: &[u8]) -> [u8; HEADER_CHECKSUM_LEN] {
    let mut checksum = [0; HEADER_CHECKSUM_LEN];
    let mut hasher = blake3::Hasher::new();
    hasher.update(covered).finalize_xof().fill(&mut checksum);
    checksum
}

impl SegmentEntry {
    pub(super) fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut out = [0; ENTRY_LEN];
        fill(
            &mut out,
            &[
                &self.id.0,
                &self.frame.to_le_bytes(),
                &self.offset.to_le_bytes(),
                &self.len.to_le_bytes(),
            ],
        );
        out
    }

    pub(super) fn decode(row: &[u8; ENTRY_LEN]) -> Self {
        let mut rest = row.as_slice();
        Self {
            id: ChunkId(take(&mut rest)),
            frame: u32::from_le_bytes(take(&mut rest)),
            offset: u32::from_le_bytes(take(&mut rest)),
            len: u32::from_le_bytes(take(&mut rest)),
        }
    }

    /// Checks that the entry lies within its frame.
    pub(super) fn check(&self, frame: Option<&SegmentFrame>) -> Result<(), String> {
        let Self {
            id,
            frame: at,
            offset,
            len,
        } = *self;
        let Some(frame) = frame else {
            return Err(format!("chunk {id}: there is no frame {at}"));
        };
        if !(1..=CHUNK_BYTES_MAX).contains(&len) {
            return Err(format!(
                "chunk {id}: expected 1 to {CHUNK_BYTES_MAX} bytes, found {len}"
            ));
        }
        let raw_len = frame.raw_len;
        if u64::from(offset) + u64::from(len) > u64::from(raw_len) {
            return Err(format!(
                "chunk {id}: expected to lie in the {raw_len} bytes of frame {at}, found {len} bytes at {offset}"
            ));
        }
        Ok(())
    }

    /// Checks that the entry sorts after `last`.
    pub(super) fn check_order(&self, last: Option<ChunkId>) -> Result<(), String> {
        match last {
            Some(last) if last >= self.id => Err(format!(
                "chunk {}: expected an id that sorts behind {last}",
                self.id
            )),
            _ => Ok(()),
        }
    }
}

impl SegmentFrame {
    /// The share of a chunk of `len` bytes in the stored bytes.
    pub fn share_of(&self, len: u32) -> u64 {
        share(len, self.stored_len, self.raw_len)
    }

    pub(super) fn encode(&self) -> [u8; FRAME_LEN] {
        let mut out = [0; FRAME_LEN];
        fill(
            &mut out,
            &[
                &self.pack.to_le_bytes(),
                &self.offset.to_le_bytes(),
                &self.stored_len.to_le_bytes(),
                &self.kind.with(self.raw_len).to_le_bytes(),
            ],
        );
        out
    }

    pub(super) fn decode(row: &[u8; FRAME_LEN]) -> Self {
        let mut rest = row.as_slice();
        let [pack, offset, stored_len, word] =
            std::array::from_fn(|_| u32::from_le_bytes(take(&mut rest)));
        let (kind, raw_len) = FrameKind::split(word);
        Self {
            pack,
            offset,
            stored_len,
            raw_len,
            kind,
        }
    }

    /// Checks that frame `position` lies between the header and the table of its pack.
    pub(super) fn check(&self, position: u32, pack: Option<&SegmentPack>) -> Result<(), String> {
        let Self {
            pack: at,
            offset,
            stored_len,
            raw_len,
            kind,
        } = *self;
        let Some(pack) = pack else {
            return Err(format!("frame {position}: there is no pack {at}"));
        };
        check_frame_lens(stored_len, raw_len)
            .map_err(|defect| format!("frame {position}: {defect}"))?;
        if !pack.kind.admits(kind) {
            let expected = pack.kind;
            return Err(format!(
                "frame {position}: kind: expected {expected}, as its pack, found {kind}"
            ));
        }
        let begin = PackHeader::LEN;
        let end = pack.len.saturating_sub(PackTrailer::LEN);
        if offset < begin || u64::from(offset) + u64::from(stored_len) > u64::from(end) {
            return Err(format!(
                "frame {position}: expected to lie in bytes {begin} to {end} of pack {at}, found {stored_len} bytes at {offset}"
            ));
        }
        Ok(())
    }
}

impl SegmentPack {
    pub(super) fn encode(&self) -> [u8; PACK_LEN] {
        let mut out = [0; PACK_LEN];
        fill(
            &mut out,
            &[&self.id.0, &self.len.to_le_bytes(), &[self.kind.byte()]],
        );
        out
    }

    /// Parses row `position`.
    pub(super) fn decode(row: &[u8; PACK_LEN], position: u32) -> Result<Self, String> {
        let mut rest = row.as_slice();
        let id = PackId(take(&mut rest));
        let len = u32::from_le_bytes(take(&mut rest));
        let [kind] = take(&mut rest);
        let Some(kind) = PackKind::from_byte(kind) else {
            return Err(format!(
                "pack {position}: kind: expected 0 to 2, found {kind}"
            ));
        };
        if rest.iter().any(|byte| *byte != 0) {
            let found = Hex(rest);
            return Err(format!(
                "pack {position}: padding: expected zeros, found {found}"
            ));
        }
        Ok(Self { id, kind, len })
    }

    /// Checks that a pack at `position` has a possible length.
    pub(super) fn check(&self, position: u32) -> Result<(), String> {
        let least = PackHeader::LEN + PackTrailer::LEN;
        if (least..=PACK_BYTES_MAX).contains(&self.len) {
            return Ok(());
        }
        let found = self.len;
        Err(format!(
            "pack {position}: expected {least} to {PACK_BYTES_MAX} bytes, found {found}"
        ))
    }
}

/// Checks all packs and that none is named twice; returns the sum of their bytes.
pub(super) fn check_packs(packs: &[SegmentPack]) -> Result<u64, String> {
    for (position, pack) in (0..).zip(packs) {
        pack.check(position)?;
    }
    let mut ids: Vec<PackId> = packs.iter().map(|pack| pack.id).collect();
    ids.sort_unstable();
    let twice = ids.array_windows().find(|[a, b]| a == b);
    if let Some([id, _]) = twice {
        return Err(format!("pack {id}: expected it once, found it again"));
    }
    Ok(packs.iter().map(|pack| u64::from(pack.len)).sum())
}

/// Returns the fan-out bucket of `id`: its first `bits` bits.
pub(super) fn place_of(id: &ChunkId, bits: u8) -> usize {
    let [a, b, c, d, ..] = id.0;
    let first = u32::from_be_bytes([a, b, c, d]);
    let place = first.checked_shr(32 - u32::from(bits)).unwrap_or(0);
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// Returns where among the `count` entries of its bucket an id lies that is a hash: by the bits behind the first `bits`.
pub(super) fn share_of(id: &ChunkId, bits: u8, count: usize) -> usize {
    let [a, b, c, d, e, f, g, h, ..] = id.0;
    let behind = u64::from_be_bytes([a, b, c, d, e, f, g, h]) << bits;
    let share = (u128::from(behind) * count as u128) >> u64::BITS;
    usize::try_from(share).unwrap_or_default()
}

pub(super) fn too_many(what: &str) -> String {
    format!("{what}: expected at most {SEGMENT_CHUNKS_MAX}, found more")
}

/// Copies `parts` to the beginning of `out`, one after another; the rest stays zero.
fn fill(out: &mut [u8], parts: &[&[u8]]) {
    let bytes = parts.iter().copied().flatten();
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
}

/// Takes the next `N` bytes of a row. A row is never too short, since its size is the sum of its fields.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    match rest.split_first_chunk() {
        Some((taken, behind)) => {
            *rest = behind;
            *taken
        }
        None => [0; N],
    }
}
