//! Header, trailer and block index of a checkpoint.

use bytes::Bytes;

use super::cursor::{Cursor, Hex, corrupt};
use super::ref_block::{Key, shown};
use crate::error::Result;

/// The first and the last bytes of a checkpoint.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"STORECKP";
/// Version of checkpoints.
pub const CHECKPOINT_VERSION: u16 = 3;
/// Bytes of the header: magic, version, zeros.
pub const CHECKPOINT_HEADER_LEN: u64 = 16;
/// Bytes of the trailer: lengths and counts, checksum, version, zeros, magic.
pub const CHECKPOINT_TRAILER_LEN: u64 = 5 * 8 + 32 + 16;
/// Most bytes of a decoded block.
pub const CHECKPOINT_BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of the decoded head, and of the decoded index.
pub const CHECKPOINT_SECTION_BYTES_MAX: u64 = 1 << 30;
/// Any part of a checkpoint may decode to this many bytes, however short its compressed form is.
const RAW_BYTES_FREE: u64 = 16 << 20;
/// Beyond that limit, each compressed byte may decode to this many bytes: ids and sums do not compress.
const RATIO_MAX: u64 = 256;
/// Bytes at the end of the trailer that its checksum does not cover.
const SEAL_LEN: u64 = 32 + 16;

/// The entry of a block in the index.
#[derive(Clone, Debug)]
pub(super) struct BlockAt {
    pub(super) first: (Bytes, u64),
    pub(super) offset: u64,
    pub(super) stored: u32,
    pub(super) raw: u32,
    pub(super) rows: u32,
    pub(super) sum: [u8; 8],
}

impl BlockAt {
    pub(super) fn first_key(&self) -> Key<'_> {
        Key {
            name: &self.first.0,
            number: self.first.1,
        }
    }
}

/// Returns the most bytes that `packed` compressed bytes may decode to, so that a small object cannot fill the memory.
pub(super) fn checkpoint_raw_max(packed: usize) -> u64 {
    (packed as u64)
        .saturating_mul(RATIO_MAX)
        .saturating_add(RAW_BYTES_FREE)
}

pub(super) fn check_header(object: &str, bytes: &[u8]) -> Result<()> {
    let mut cursor = Cursor::new(object, bytes);
    cursor.magic(&CHECKPOINT_MAGIC)?;
    let version = cursor.u16("version")?;
    cursor.version(version, CHECKPOINT_VERSION)?;
    cursor.zeros(6)
}

/// Returns the offset in `tail` at which its last `back` bytes begin.
pub(super) fn back_from(tail: &[u8], back: u64) -> usize {
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    tail.len().saturating_sub(back)
}

/// Returns the first 8 bytes of the BLAKE3 of `bytes`.
pub(super) fn sum(bytes: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    blake3::Hasher::new()
        .update(bytes)
        .finalize_xof()
        .fill(&mut sum);
    sum
}

/// The fields at the end of a checkpoint.
pub(super) struct Trailer {
    pub(super) head: u64,
    pub(super) head_raw: u64,
    pub(super) index: u64,
    pub(super) index_raw: u64,
    pub(super) rows: u64,
    pub(super) checksum: [u8; 32],
}

impl Trailer {
    /// Bytes from the head to the end of the object.
    pub(super) fn sections(&self) -> u64 {
        self.head + self.index + CHECKPOINT_TRAILER_LEN
    }

    /// Checks the checksum over head, index and trailer; `tail` must end where the object ends.
    pub(super) fn check(&self, object: &str, tail: &[u8]) -> Result<()> {
        let covered = back_from(tail, self.sections())..back_from(tail, SEAL_LEN);
        let found = *blake3::hash(tail.get(covered).unwrap_or_default()).as_bytes();
        if found == self.checksum {
            return Ok(());
        }
        let detail = format_args!(
            "checksum of its end is {}, its trailer says {}",
            Hex(&found),
            Hex(&self.checksum)
        );
        Err(corrupt(object, detail))
    }

    pub(super) fn fields(&self) -> Vec<u8> {
        let fields = [
            self.head,
            self.head_raw,
            self.index,
            self.index_raw,
            self.rows,
        ];
        fields
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect()
    }

    pub(super) fn decode(object: &str, tail: &[u8], len: u64) -> Result<Self> {
        let at = tail
            .len()
            .saturating_sub(usize::try_from(CHECKPOINT_TRAILER_LEN).unwrap_or(0));
        let mut cursor = Cursor::new(object, tail.get(at..).unwrap_or_default());
        let trailer = Self {
            head: cursor.u64("bytes of the head")?,
            head_raw: cursor.u64("decoded bytes of the head")?,
            index: cursor.u64("bytes of the index")?,
            index_raw: cursor.u64("decoded bytes of the index")?,
            rows: cursor.u64("rows")?,
            checksum: cursor.array("checksum")?,
        };
        let mut end = cursor.clone();
        end.take("version", 8)?;
        end.magic(&CHECKPOINT_MAGIC)?;
        let version = cursor.u16("version")?;
        cursor.version(version, CHECKPOINT_VERSION)?;
        cursor.zeros(6)?;
        let room = len - CHECKPOINT_HEADER_LEN - CHECKPOINT_TRAILER_LEN;
        let asked = trailer.head.checked_add(trailer.index);
        match asked {
            Some(asked) if asked <= room => Ok(trailer),
            _ => {
                let (head, index) = (trailer.head, trailer.index);
                Err(cursor.error(format_args!(
                    "head and index: expected at most {room} bytes, found {head} and {index}"
                )))
            }
        }
    }
}

pub(super) fn decode_index(object: &str, index: Bytes, end: u64) -> Result<Vec<BlockAt>> {
    let mut cursor = Cursor::new(object, &index);
    let mut blocks: Vec<BlockAt> = Vec::new();
    let mut offset = CHECKPOINT_HEADER_LEN;
    while cursor.left() > 0 {
        let at = cursor.at();
        let len = cursor.u16("length of a name")?;
        let start = cursor.at();
        let name = cursor.take("name", usize::from(len))?;
        let key = Key {
            name,
            number: cursor.u64("number")?,
        };
        if blocks.last().is_some_and(|last| last.first_key() >= key) {
            return Err(cursor.error_at(at, "block", "one behind the block before", shown(&key)));
        }
        let block = BlockAt {
            first: (index.slice(start..start + name.len()), key.number),
            offset,
            stored: cursor.u32("stored bytes")?,
            raw: cursor.u32("bytes")?,
            rows: cursor.u32("rows")?,
            sum: cursor.array("sum")?,
        };
        offset = offset.saturating_add(u64::from(block.stored));
        blocks.push(block);
    }
    if offset != end {
        return Err(cursor.error(format_args!(
            "blocks: expected them to end at offset {end}, found {offset}"
        )));
    }
    Ok(blocks)
}
