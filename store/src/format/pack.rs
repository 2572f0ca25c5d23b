//! Packs: frames one after another, then the table of frames and chunks, then a fixed trailer.
//!
//! The checksum covers header, table and trailer. The table has a sum over each stored frame, so that a pack can be
//! verified without decoding; decoded frames are verified by the ids of their chunks. Frames fill the space between
//! header and table exactly, so every byte of a pack is accounted for.

use super::bases::{FRAME_BASE_LEN, FrameBase, check_bases};
use super::cursor::{Cursor, Hex, corrupt};
use crate::error::{Error, Result};
use crate::format::{FrameKind, PackKind, Provenance};
use crate::id::{ChunkId, KeyId, PackId, StoreId};

/// Most bytes of a pack; this limit lets offsets fit into 32 bits.
pub const PACK_BYTES_MAX: u32 = 1 << 30;
/// Most bytes of a frame once decoded.
pub const FRAME_RAW_BYTES_MAX: u32 = 8 << 20;
/// Most bytes of a chunk.
pub const CHUNK_BYTES_MAX: u32 = 4 << 20;
/// The first bytes of a pack.
pub const PACK_MAGIC: [u8; 8] = *b"STOREPAK";
/// The first bytes of a pack's trailer.
pub const PACK_TRAILER_MAGIC: [u8; 8] = *b"STOREPKE";
/// Version of packs.
pub const PACK_VERSION: u16 = 2;
/// Bytes of one frame in the table: stored length, raw length, chunks, sum of the stored bytes.
pub const PACK_FRAME_LEN: u32 = 4 + 4 + 4 + 8;
/// Bytes of one chunk in the table: id, length.
pub const PACK_CHUNK_LEN: u32 = 32 + 4;
/// First byte of a stored frame that holds the raw bytes.
pub const CODEC_RAW: u8 = 0;
/// First byte of a stored frame that holds one zstd frame.
pub const CODEC_ZSTD: u8 = 1;
/// First byte of a stored frame that holds planes of numbers.
pub const CODEC_PLANES: u8 = 2;
/// First byte of a stored frame that holds the difference to other chunks.
pub const CODEC_DELTA: u8 = 3;
/// Fewest bytes of a stored frame: its codec and one byte more.
pub const FRAME_STORED_BYTES_MIN: u32 = 2;

const _: () = assert!(PackHeader::LEN == 8 + 2 + 1 + 5 + 16 + 16 + 8 + 16 + 8);
const _: () = assert!(PackTrailer::LEN == 8 + 2 + 2 + 4 + 4 + 4 + 8 + 32);
const _: () = assert!(PACK_FRAME_LEN == 20 && PACK_CHUNK_LEN == 36);
/// The key id of a pack that is not encrypted.
const NO_KEY: KeyId = KeyId([0; KeyId::LEN]);
/// [`PackHeader::LEN`].
const HEADER_LEN: usize = 80;
/// Bytes of the trailer before its checksum.
const TRAILER_FIELDS_LEN: usize = 8 + 2 + 2 + 4 + 4 + 4 + 8;

/// The header of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Data or metadata.
    pub kind: PackKind,
    /// The pack's own id, so that a pack under a wrong key is detected.
    pub id: PackId,
    /// The store and the state of the log that it was written for.
    pub made: Provenance,
}

/// Checksum of a stored frame: the first 8 bytes of its BLAKE3. It detects damage, not forgery: decoded chunks are
/// compared with their ids before they are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameSum(pub [u8; 8]);

impl std::fmt::Display for FrameSum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Hex(&self.0).fmt(out)
    }
}

impl FrameSum {
    /// Returns the sum over `stored`.
    pub fn of(stored: &[u8]) -> Self {
        Self(first_bytes(stored))
    }
}

/// Returns the first 8 bytes of the BLAKE3 of `bytes`.
fn first_bytes(bytes: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes).finalize_xof().fill(&mut sum);
    sum
}

/// The size and contents of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFrame {
    /// Length in bytes as stored, including the codec byte.
    pub stored_len: u32,
    /// Length in bytes once decoded: the sum of its chunks.
    pub raw_len: u32,
    /// Data or metadata.
    pub kind: FrameKind,
    /// How many chunks it holds.
    pub chunks: u32,
    /// Sum over its bytes as stored.
    pub sum: FrameSum,
}

/// One chunk of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackChunk {
    /// Its id.
    pub id: ChunkId,
    /// Its length in bytes.
    pub len: u32,
}

/// The table at the end of a pack; segments can be rebuilt from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackTable {
    /// Frames in the order of their bytes; the first one follows the header directly.
    pub frames: Vec<PackFrame>,
    /// Chunks of all frames in order.
    pub chunks: Vec<PackChunk>,
    /// Bases of the frames that are deltas, in the order of the frames.
    pub bases: Vec<FrameBase>,
}

/// The last bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackTrailer {
    /// Offset of the table.
    pub table_offset: u32,
    /// Frames in the table.
    pub frames: u32,
    /// Chunks in the table.
    pub chunks: u32,
    /// Bases in the table.
    pub bases: u32,
    /// BLAKE3 of the header, the table and the preceding fields of the trailer.
    pub checksum: [u8; 32],
}

impl PackHeader {
    /// Bytes on disk.
    pub const LEN: u32 = 80;

    /// Returns the bytes of the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(&PACK_MAGIC);
        out.extend_from_slice(&PACK_VERSION.to_le_bytes());
        out.push(self.kind.byte());
        out.extend_from_slice(&[0; 5]);
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.made.store.0);
        out.extend_from_slice(&self.made.began.to_le_bytes());
        out.extend_from_slice(&NO_KEY.0);
        let sum = first_bytes(&out);
        out.extend_from_slice(&sum);
        out
    }

    /// Parses a header; `object` names the pack in errors. Bytes after the header are ignored.
    ///
    /// # Errors
    /// Corrupt, when these are not the first bytes of a pack; unsupported, when the version is unknown or the pack is
    /// encrypted.
    pub fn decode(object: &str, bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        cursor.magic(&PACK_MAGIC)?;
        let version = cursor.u16("version")?;
        cursor.version(version, PACK_VERSION)?;
        let at = cursor.at();
        let kind = cursor.u8("kind")?;
        let kind =
            PackKind::from_byte(kind).ok_or_else(|| cursor.error_at(at, "kind", "0 to 2", kind))?;
        cursor.zeros(5)?;
        let id = PackId(cursor.array("id")?);
        let made = Provenance {
            store: StoreId(cursor.array("store")?),
            began: cursor.u64("entry")?,
        };
        let key = KeyId(cursor.array("key")?);
        let covered = bytes.get(..cursor.at()).unwrap_or_default();
        let (found, expected) = (first_bytes(covered), cursor.array("sum of the header")?);
        if found != expected {
            let (found, expected) = (Hex(&found), Hex(&expected));
            let detail = format_args!("sum of its header is {found}, the header says {expected}");
            return Err(corrupt(object, detail));
        }
        if key != NO_KEY {
            let message =
                format!("{object}: is encrypted with key {key}, this program has no keys");
            return Err(Error::unsupported(message).hint("update this program"));
        }
        Ok(Self { kind, id, made })
    }
}

impl PackTrailer {
    /// Bytes on disk.
    pub const LEN: u32 = 64;

    /// Parses the last 64 bytes of a pack of `pack_len` bytes.
    ///
    /// # Errors
    /// Corrupt, when these are not the last bytes of a pack of that length; unsupported, when the version is unknown.
    pub fn decode(object: &str, pack_len: u64, bytes: &[u8]) -> Result<Self> {
        let least = u64::from(PackHeader::LEN + PackTrailer::LEN);
        if pack_len < least || pack_len > u64::from(PACK_BYTES_MAX) {
            let detail = format_args!(
                "length: expected {least} to {PACK_BYTES_MAX} bytes, found {pack_len}"
            );
            return Err(corrupt(object, detail));
        }
        let trailer = format!("{object}: trailer");
        let mut cursor = Cursor::new(&trailer, bytes);
        cursor.magic(&PACK_TRAILER_MAGIC)?;
        let version = cursor.u16("version")?;
        cursor.version(version, PACK_VERSION)?;
        cursor.zeros(2)?;
        let trailer = Self {
            table_offset: cursor.u32("table offset")?,
            frames: cursor.u32("frames")?,
            chunks: cursor.u32("chunks")?,
            bases: cursor.u32("bases")?,
            checksum: {
                cursor.zeros(4)?;
                cursor.array("checksum")?
            },
        };
        cursor.end()?;
        match trailer.pack_len() == pack_len && trailer.table_offset >= PackHeader::LEN {
            true => Ok(trailer),
            false => Err(corrupt(object, trailer.length_detail(pack_len))),
        }
    }

    /// Returns the length of a pack with this trailer.
    fn pack_len(&self) -> u64 {
        let frames = u64::from(self.frames) * u64::from(PACK_FRAME_LEN);
        let chunks = u64::from(self.chunks) * u64::from(PACK_CHUNK_LEN);
        let bases = u64::from(self.bases) * u64::from(FRAME_BASE_LEN);
        u64::from(self.table_offset) + frames + chunks + bases + u64::from(Self::LEN)
    }

    fn length_detail(&self, pack_len: u64) -> String {
        let Self {
            table_offset,
            frames,
            chunks,
            bases,
            ..
        } = self;
        let bases = match bases {
            0 => String::new(),
            bases => format!(", and {bases} bases"),
        };
        format!(
            "length: {pack_len} bytes, its trailer says a table at {table_offset} of {frames} frames and {chunks} chunks{bases}"
        )
    }

    /// Encodes the fields before the checksum.
    fn encode_fields(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TRAILER_FIELDS_LEN);
        out.extend_from_slice(&PACK_TRAILER_MAGIC);
        out.extend_from_slice(&PACK_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.table_offset.to_le_bytes());
        out.extend_from_slice(&self.frames.to_le_bytes());
        out.extend_from_slice(&self.chunks.to_le_bytes());
        out.extend_from_slice(&self.bases.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out
    }
}

impl PackTable {
    /// Encodes the table and the trailer, which follow the last frame.
    ///
    /// # Errors
    /// Invalid input, when a limit is exceeded, because [`Self::decode`] would refuse the bytes.
    pub fn encode(&self, header: &PackHeader) -> Result<Vec<u8>> {
        let refuse = |detail| Error::invalid(format!("pack {}: {detail}", header.id));
        let table_offset = self.check(header).map_err(refuse)?;
        let count = |len: usize| u32::try_from(len).map_err(|_| refuse(too_long(u64::MAX)));
        let mut trailer = PackTrailer {
            table_offset,
            frames: count(self.frames.len())?,
            chunks: count(self.chunks.len())?,
            bases: count(self.bases.len())?,
            checksum: [0; 32],
        };
        if trailer.pack_len() > PACK_BYTES_MAX.into() {
            return Err(refuse(too_long(trailer.pack_len())));
        }
        let mut out = self.encode_rows();
        out.extend_from_slice(&trailer.encode_fields());
        trailer.checksum = checksum(header, &out);
        out.extend_from_slice(&trailer.checksum);
        Ok(out)
    }

    /// Parses table and trailer (`bytes`: from `trailer.table_offset` to the end). Checks the checksum, all limits, and
    /// that the frames fill the space between header and table exactly.
    ///
    /// # Errors
    /// Corrupt, when any of these checks fails.
    pub fn decode(
        object: &str,
        header: &PackHeader,
        trailer: &PackTrailer,
        bytes: &[u8],
    ) -> Result<Self> {
        let len = trailer.pack_len() - u64::from(trailer.table_offset);
        let covered = bytes.len().checked_sub(trailer.checksum.len());
        let covered = covered.and_then(|at| bytes.get(..at));
        let (true, Some(covered)) = (u64::try_from(bytes.len()) == Ok(len), covered) else {
            let detail = format_args!("table: expected {len} bytes, found {}", bytes.len());
            return Err(corrupt(object, detail));
        };
        let found = checksum(header, covered);
        if found != trailer.checksum {
            let (found, expected) = (Hex(&found), Hex(&trailer.checksum));
            let detail =
                format_args!("checksum of its table is {found}, its trailer says {expected}");
            return Err(corrupt(object, detail));
        }
        let table = Self::decode_rows(&mut Cursor::new(object, bytes), trailer)?;
        let table_offset = (table.check(header)).map_err(|detail| corrupt(object, detail))?;
        if table_offset == trailer.table_offset {
            return Ok(table);
        }
        let expected = trailer.table_offset;
        let detail = format_args!("frames: expected to end at {expected}, found {table_offset}");
        Err(corrupt(object, detail))
    }

    fn encode_rows(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for frame in &self.frames {
            out.extend_from_slice(&frame.stored_len.to_le_bytes());
            out.extend_from_slice(&frame.kind.with(frame.raw_len).to_le_bytes());
            out.extend_from_slice(&frame.chunks.to_le_bytes());
            out.extend_from_slice(&frame.sum.0);
        }
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.id.0);
            out.extend_from_slice(&chunk.len.to_le_bytes());
        }
        for base in &self.bases {
            out.extend_from_slice(&base.encode());
        }
        out
    }

    /// Decodes the rows. The caller has checked that the counts match the length, so they are safe to allocate for.
    fn decode_rows(cursor: &mut Cursor<'_>, trailer: &PackTrailer) -> Result<Self> {
        let frames = (0..trailer.frames).map(|_| {
            let stored_len = cursor.u32("stored length")?;
            let (kind, raw_len) = FrameKind::split(cursor.u32("raw length")?);
            Ok(PackFrame {
                stored_len,
                raw_len,
                kind,
                chunks: cursor.u32("chunks")?,
                sum: FrameSum(cursor.array("sum")?),
            })
        });
        let frames = frames.collect::<Result<_>>()?;
        let chunks = (0..trailer.chunks).map(|_| {
            Ok(PackChunk {
                id: ChunkId(cursor.array("id")?),
                len: cursor.u32("length")?,
            })
        });
        let chunks = chunks.collect::<Result<_>>()?;
        let bases = (0..trailer.bases).map(|_| FrameBase::read(cursor));
        let bases = bases.collect::<Result<_>>()?;
        Ok(Self {
            frames,
            chunks,
            bases,
        })
    }

    /// Checks every limit, and returns the offset at which the last frame ends.
    fn check(&self, header: &PackHeader) -> Result<u32, String> {
        let mut end = u64::from(PackHeader::LEN);
        let mut rest = self.chunks.as_slice();
        if self.frames.is_empty() {
            return Err("frames: expected at least 1, found 0".to_owned());
        }
        for (at, frame) in self.frames.iter().enumerate() {
            let in_frame = |defect: String| format!("frame {at}: {defect}");
            let count = usize::try_from(frame.chunks).unwrap_or(usize::MAX);
            let (chunks, behind) = rest.split_at_checked(count).ok_or_else(|| {
                let found = rest.len();
                in_frame(format!("expected {count} chunks, found {found}"))
            })?;
            frame.check(chunks).map_err(in_frame)?;
            if !header.kind.admits(frame.kind) {
                let (found, kind) = (frame.kind, header.kind);
                return Err(in_frame(format!("kind: expected {kind}, found {found}")));
            }
            end += u64::from(frame.stored_len);
            rest = behind;
        }
        if !rest.is_empty() {
            let found = rest.len();
            return Err(format!(
                "chunks: expected all in frames, found {found} more"
            ));
        }
        self.check_bases()?;
        u32::try_from(end).map_err(|_| too_long(end))
    }

    /// Checks that each base belongs to an existing frame that holds file data.
    fn check_bases(&self) -> Result<(), String> {
        check_bases(
            &self.bases,
            u32::try_from(self.frames.len()).unwrap_or(u32::MAX),
        )?;
        let of_meta = self.bases.iter().find(|base| {
            let frame = self
                .frames
                .get(usize::try_from(base.frame).unwrap_or(usize::MAX));
            frame.is_some_and(|frame| frame.kind == FrameKind::Meta)
        });
        match of_meta {
            Some(base) => Err(format!(
                "frame {}: holds metadata, expected no base of it, found {}",
                base.frame, base.id
            )),
            None => Ok(()),
        }
    }
}

impl PackFrame {
    fn check(&self, chunks: &[PackChunk]) -> Result<(), String> {
        check_frame_lens(self.stored_len, self.raw_len)?;
        let bad = |chunk: &&PackChunk| !(1..=CHUNK_BYTES_MAX).contains(&chunk.len);
        if let Some(PackChunk { id, len }) = chunks.iter().find(bad) {
            return Err(format!(
                "chunk {id}: expected 1 to {CHUNK_BYTES_MAX} bytes, found {len}"
            ));
        }
        let sum: u64 = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
        if chunks.is_empty() || sum != u64::from(self.raw_len) {
            let (count, raw_len) = (chunks.len(), self.raw_len);
            return Err(format!(
                "expected chunks of {raw_len} bytes together, found {count} of {sum}"
            ));
        }
        Ok(())
    }
}

/// Checks the lengths of a frame, in a pack's table or in a segment.
pub(super) fn check_frame_lens(stored_len: u32, raw_len: u32) -> Result<(), String> {
    if !(1..=FRAME_RAW_BYTES_MAX).contains(&raw_len) {
        return Err(format!(
            "raw length: expected 1 to {FRAME_RAW_BYTES_MAX}, found {raw_len}"
        ));
    }
    // A codec never expands: a frame that it cannot shorten is stored raw, after the codec byte.
    if !(FRAME_STORED_BYTES_MIN..=raw_len + 1).contains(&stored_len) {
        let most = raw_len + 1;
        return Err(format!(
            "stored length: expected {FRAME_STORED_BYTES_MIN} to {most}, found {stored_len}"
        ));
    }
    Ok(())
}

fn checksum(header: &PackHeader, table_and_fields: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header.encode()).update(table_and_fields);
    *hasher.finalize().as_bytes()
}

fn too_long(found: u64) -> String {
    format!("length: expected at most {PACK_BYTES_MAX} bytes, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const HEADER: PackHeader = PackHeader {
        kind: PackKind::Meta,
        id: PackId([7; 16]),
        made: Provenance {
            store: StoreId([6; 16]),
            began: 5,
        },
    };

    fn frame(stored_len: u32, raw_len: u32, chunks: u32) -> PackFrame {
        PackFrame {
            stored_len,
            raw_len,
            kind: FrameKind::Meta,
            chunks,
            sum: FrameSum([3; 8]),
        }
    }

    fn chunk(len: u32) -> PackChunk {
        PackChunk {
            id: ChunkId([5; 32]),
            len,
        }
    }

    fn table(frames: &[PackFrame], chunks: &[PackChunk]) -> PackTable {
        PackTable {
            frames: frames.to_vec(),
            chunks: chunks.to_vec(),
            bases: Vec::new(),
        }
    }

    fn good() -> PackTable {
        table(
            &[frame(20, 100, 2), frame(2, 1, 1)],
            &[chunk(60), chunk(40), chunk(1)],
        )
    }

    fn pack_len(tail: &[u8], frames_len: u64) -> u64 {
        80 + frames_len + u64::try_from(tail.len()).unwrap()
    }

    fn decode(header: &PackHeader, frames_len: u64, tail: &[u8]) -> Result<PackTable> {
        let trailer = &tail[tail.len() - 64..];
        let trailer = PackTrailer::decode("x", pack_len(tail, frames_len), trailer)?;
        PackTable::decode("x", header, &trailer, tail)
    }

    #[test]
    fn header_and_table_survive() {
        let bytes = HEADER.encode();
        assert_eq!(bytes.len(), PackHeader::LEN as usize);
        assert_eq!(bytes[..16], *b"STOREPAK\x02\0\x01\0\0\0\0\0");
        assert_eq!(
            bytes[32..56],
            [&[6; 16][..], &[5, 0, 0, 0, 0, 0, 0, 0]].concat()
        );
        assert_eq!(PackHeader::decode("x", &bytes).unwrap(), HEADER);
        let tail = good().encode(&HEADER).unwrap();
        assert_eq!(tail.len(), 2 * 20 + 3 * 36 + 64);
        assert_eq!(decode(&HEADER, 22, &tail).unwrap(), good());
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let tail = good().encode(&HEADER).unwrap();
        for at in 0..tail.len() {
            let mut bytes = tail.clone();
            bytes[at] ^= 1;
            decode(&HEADER, 22, &bytes).unwrap_err();
        }
        let header = HEADER.encode();
        for at in 0..header.len() {
            let mut bytes = header.clone();
            bytes[at] ^= 1;
            let noticed =
                PackHeader::decode("x", &bytes).and_then(|header| decode(&header, 22, &tail));
            noticed.unwrap_err();
        }
    }

    #[test]
    fn broken_limits_are_refused_both_ways() {
        let cases = [
            (table(&[], &[]), "frames: expected at least 1, found 0"),
            (
                table(&[frame(2, 1, 0)], &[]),
                "frame 0: expected chunks of 1 bytes together, found 0 of 0",
            ),
            (
                table(&[frame(2, 1, 2)], &[chunk(1)]),
                "frame 0: expected 2 chunks, found 1",
            ),
            (
                table(&[frame(2, 1, 1)], &[chunk(1), chunk(1)]),
                "chunks: expected all in frames, found 1 more",
            ),
            (
                table(&[frame(2, 2, 1)], &[chunk(1)]),
                "frame 0: expected chunks of 2 bytes together, found 1 of 1",
            ),
            (
                table(&[frame(1, 1, 1)], &[chunk(1)]),
                "frame 0: stored length: expected 2 to 2, found 1",
            ),
            (
                table(&[frame(3, 1, 1)], &[chunk(1)]),
                "frame 0: stored length: expected 2 to 2, found 3",
            ),
            (
                table(&[frame(2, 0, 1)], &[chunk(0)]),
                "frame 0: raw length: expected 1 to 8388608, found 0",
            ),
            (
                table(
                    &[frame(2, (8 << 20) + 1, 3)],
                    &[chunk(4 << 20), chunk(4 << 20), chunk(1)],
                ),
                "frame 0: raw length: expected 1 to 8388608, found 8388609",
            ),
        ];
        for (table, message) in cases {
            let error = table.encode(&HEADER).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), format!("pack {}: {message}", HEADER.id));
            let stored: u32 = table.frames.iter().map(|frame| frame.stored_len).sum();
            let error =
                decode(&HEADER, stored.into(), &unchecked(&table, 80 + stored)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(error.to_string(), format!("x: {message}"));
        }
        let zero = table(&[frame(5, 4, 2)], &[chunk(0), chunk(4)]);
        let error = zero.encode(&HEADER).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("expected 1 to 4194304 bytes, found 0")
        );
    }

    /// Encodes the table and the trailer with a valid checksum, without any checks.
    fn unchecked(table: &PackTable, table_offset: u32) -> Vec<u8> {
        let mut out = table.encode_rows();
        let trailer = PackTrailer {
            table_offset,
            frames: u32::try_from(table.frames.len()).unwrap(),
            chunks: u32::try_from(table.chunks.len()).unwrap(),
            bases: 0,
            checksum: [0; 32],
        };
        out.extend_from_slice(&trailer.encode_fields());
        let checksum = checksum(&HEADER, &out);
        out.extend_from_slice(&checksum);
        out
    }

    #[test]
    fn frames_fill_what_lies_before_the_table() {
        let error = decode(&HEADER, 23, &unchecked(&good(), 80 + 23)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: frames: expected to end at 103, found 102"
        );
        let error = decode(&HEADER, 22, &unchecked(&good(), 79)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: length: 314 bytes, its trailer says a table at 79 of 2 frames and 3 chunks"
        );
    }

    #[test]
    fn lengths_are_limited_before_anything_is_allocated() {
        let mut tail = good().encode(&HEADER).unwrap();
        let at = tail.len() - 64 + 16;
        tail[at..at + 8].fill(0xff);
        let error = decode(&HEADER, 22, &tail).unwrap_err();
        assert!(
            error.to_string().starts_with("x: length: 314 bytes"),
            "{error}"
        );
        for len in [143, u64::from(PACK_BYTES_MAX) + 1] {
            let error = PackTrailer::decode("x", len, &[0; 64]).unwrap_err();
            let message = format!("x: length: expected 144 to 1073741824 bytes, found {len}");
            assert_eq!(error.to_string(), message);
        }
        let frames = vec![frame((8 << 20) + 1, 8 << 20, 2); 128];
        let long = table(&frames, &[chunk(4 << 20); 256]);
        let error = long.encode(&HEADER).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("length: expected at most 1073741824 bytes, found ")
        );
    }

    #[test]
    fn later_versions_and_kinds_are_told() {
        let mut bytes = HEADER.encode();
        bytes[8] = 3;
        let error = PackHeader::decode("x", &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.to_string(), "x: version is 3, this program reads 2");
        let mut bytes = HEADER.encode();
        bytes[10] = 3;
        let error = PackHeader::decode("x", &bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: kind at offset 10: expected 0 to 2, found 3"
        );
    }

    #[test]
    fn a_frame_says_its_kind_and_lies_in_a_pack_that_admits_it() {
        let both = PackHeader {
            kind: PackKind::Both,
            ..HEADER
        };
        let mut mixed = good();
        mixed.frames[0].kind = FrameKind::Data;
        let tail = mixed.encode(&both).unwrap();
        assert_eq!(tail[4..8], [100, 0, 0, 0]);
        assert_eq!(tail[24..28], [1, 0, 0, 128]);
        assert_eq!(decode(&both, 22, &tail).unwrap(), mixed);
        let error = mixed.encode(&HEADER).unwrap_err();
        let detail = "frame 0: kind: expected metadata, found data";
        assert!(error.to_string().ends_with(detail), "{error}");
        let error = decode(&HEADER, 22, &unchecked(&mixed, 80 + 22)).unwrap_err();
        assert_eq!(error.to_string(), format!("x: {detail}"));
    }

    #[test]
    fn a_pack_of_a_key_is_unsupported_by_its_name() {
        let mut bytes = HEADER.encode();
        bytes[56] = 9;
        let error = PackHeader::decode("x", &bytes).unwrap_err();
        assert!(
            error.to_string().starts_with("x: sum of its header is "),
            "{error}"
        );
        let sum = first_bytes(&bytes[..72]);
        bytes[72..].copy_from_slice(&sum);
        let error = PackHeader::decode("x", &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "x: is encrypted with key 09000000000000000000000000000000, this program has no keys"
        );
    }
}
