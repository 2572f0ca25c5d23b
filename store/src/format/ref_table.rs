//! The rows of a checkpoint: sorted, compressed in blocks, and read block by block when they are needed.
//!
//! Opening reads the index and the trailer; a block is read when one of its rows is needed. Each part is compared with
//! its checksum before it is used. Order, lengths and counts are never trusted.

use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::cursor::Hex;
use super::ref_block::{Block, Key};
use super::ref_index::{
    BlockAt, CHECKPOINT_BLOCK_BYTES_MAX, CHECKPOINT_HEADER_LEN, CHECKPOINT_SECTION_BYTES_MAX,
    CHECKPOINT_TRAILER_LEN, Trailer, back_from, check_header, checkpoint_raw_max, decode_index,
    sum,
};
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::remedy::Remedy;

/// How many bytes at the end of an object are read first.
const TAIL_BYTES: u64 = 256 << 10;
/// How many decoded blocks are cached.
const BLOCKS_HELD: usize = 8;

/// Gives access to the bytes of one checkpoint.
pub trait Source: std::fmt::Debug + Send + Sync {
    /// Reads a range. If the source has an older copy of these bytes, `is_right` tells whether the copy can be used.
    ///
    /// # Errors
    /// When the bytes cannot be read; corrupt, when the object is too short.
    fn read(&self, range: Range<u64>, is_right: &dyn Fn(&[u8]) -> bool) -> Result<Bytes>;

    /// Rebuilds the bytes of a range from elsewhere, after a read returned wrong bytes. The caller checks the result.
    fn made_again(&self, _range: Range<u64>) -> Option<Bytes> {
        None
    }
}

impl Source for Bytes {
    fn read(&self, range: Range<u64>, _is_right: &dyn Fn(&[u8]) -> bool) -> Result<Bytes> {
        let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
        match (start, end) {
            (Ok(start), Ok(end)) if start <= end && end <= self.len() => Ok(self.slice(start..end)),
            _ => Err(Error::corrupt(format!(
                "expected bytes {} to {}, found {}",
                range.start,
                range.end,
                self.len()
            ))),
        }
    }
}

/// The rows of a checkpoint, and its head as uninterpreted text.
#[derive(Debug)]
pub struct RefTable {
    object: String,
    source: Arc<dyn Source>,
    len: u64,
    id: CheckpointId,
    rows: u64,
    head: Bytes,
    blocks: Vec<BlockAt>,
    /// The most recently used blocks, the latest at the end.
    held: Mutex<Vec<(usize, Arc<Block>)>>,
}

/// The position of a row: its block, and the row in that block.
pub(super) type Place = (usize, usize);

impl RefTable {
    /// Reads the end of a checkpoint of `len` bytes; if `id` is given, the checkpoint must have that id.
    ///
    /// # Errors
    /// Corrupt, when the bytes are not what was written; unsupported, when a newer program wrote them.
    pub fn open(
        object: &str,
        source: Arc<dyn Source>,
        len: u64,
        id: Option<CheckpointId>,
    ) -> Result<Self> {
        let least = CHECKPOINT_HEADER_LEN + CHECKPOINT_TRAILER_LEN;
        if len < least {
            let detail = format_args!("expected at least {least} bytes, found {len}");
            return Err(corrupt(object, detail));
        }
        let is_right = |end: &[u8]| {
            let trailer = Trailer::decode(object, end, len).ok();
            let trailer = trailer.filter(|trailer| id == Some(CheckpointId(trailer.checksum)));
            trailer.is_some_and(|trailer| {
                trailer.sections() > end.len() as u64 || trailer.check(object, end).is_ok()
            })
        };
        let read = |start: u64| read_all(object, source.as_ref(), start..len, &is_right);
        let start = len.saturating_sub(TAIL_BYTES);
        let mut tail = read(start)?;
        if start == 0 {
            check_header(object, &tail)?;
        }
        let trailer = Trailer::decode(object, &tail, len)?;
        if trailer.sections() > tail.len() as u64 {
            tail = read(len - trailer.sections())?;
        }
        trailer.check(object, &tail)?;
        if id.is_some_and(|id| id.0 != trailer.checksum) {
            return Err(corrupt(
                object,
                "is another checkpoint than the one that is named",
            ));
        }
        let at = |back: u64| back_from(&tail, back);
        let index_at = at(CHECKPOINT_TRAILER_LEN + trailer.index);
        let head = tail.slice(at(trailer.sections())..index_at);
        let index = tail.slice(index_at..at(CHECKPOINT_TRAILER_LEN));
        let head = unpacked(
            object,
            &head,
            trailer.head_raw,
            CHECKPOINT_SECTION_BYTES_MAX,
        )?;
        let index = unpacked(
            object,
            &index,
            trailer.index_raw,
            CHECKPOINT_SECTION_BYTES_MAX,
        )?;
        let blocks = decode_index(object, Bytes::from(index), len - trailer.sections())?;
        let rows: u64 = blocks.iter().map(|block| u64::from(block.rows)).sum();
        if rows != trailer.rows {
            let detail = format_args!("expected {} rows, found {rows}", trailer.rows);
            return Err(corrupt(object, detail));
        }
        Ok(Self {
            object: object.to_owned(),
            source,
            len,
            id: CheckpointId(trailer.checksum),
            rows,
            head: Bytes::from(head),
            blocks,
            held: Mutex::default(),
        })
    }

    /// Reads and checks everything that opening did not read.
    ///
    /// # Errors
    /// Corrupt, when the bytes are not what was written.
    pub fn verify(&self) -> Result<()> {
        let header = self.source.read(0..CHECKPOINT_HEADER_LEN, &|_| false)?;
        check_header(&self.object, &header)?;
        (0..self.blocks.len()).try_for_each(|at| self.read_block(at).map(drop))
    }

    /// The fields of the checkpoint apart from its rows, as text.
    pub fn head(&self) -> &Bytes {
        &self.head
    }

    /// Bytes of the object.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// The id by which a checkpoint on top of this one refers to it.
    pub fn id(&self) -> CheckpointId {
        self.id
    }

    /// The number of rows, including those that mark removals.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The name of the object in errors.
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Returns the byte range of the object that holds the rows of refs.
    pub fn refs_range(&self) -> Range<u64> {
        let refs = self.blocks.iter().take_while(|block| block.first.1 == 0);
        let end = refs
            .last()
            .map_or(0, |last| last.offset + u64::from(last.stored));
        CHECKPOINT_HEADER_LEN..end.max(CHECKPOINT_HEADER_LEN)
    }

    pub(super) fn seek(&self, key: &Key<'_>) -> Result<Place> {
        let behind = self
            .blocks
            .partition_point(|block| block.first_key() <= *key);
        let Some(at) = behind.checked_sub(1) else {
            return Ok((0, 0));
        };
        let block = self.block(at)?;
        match block.seek(key) {
            row if row == block.len() => Ok((at + 1, 0)),
            row => Ok((at, row)),
        }
    }

    /// Returns the value under `key`; it is empty if the row marks a removal.
    pub(super) fn get(&self, key: &Key<'_>) -> Result<Option<Bytes>> {
        let (at, row) = self.seek(key)?;
        if at >= self.blocks.len() {
            return Ok(None);
        }
        let block = self.block(at)?;
        Ok((block.key(row) == Some(*key)).then(|| block.value(row)))
    }

    /// Returns the highest version number below `number` for which `name` has a row; the row of the ref itself does not
    /// count.
    pub(super) fn before(&self, name: &[u8], number: u64) -> Result<Option<u64>> {
        let (at, row) = self.seek(&Key { name, number })?;
        let (at, row) = match row.checked_sub(1) {
            Some(row) => (at, row),
            None => match at.checked_sub(1) {
                Some(at) => (at, self.block(at)?.len().saturating_sub(1)),
                None => return Ok(None),
            },
        };
        let block = self.block(at)?;
        let found = block
            .key(row)
            .filter(|key| key.name == name && key.number > 0);
        Ok(found.map(|key| key.number))
    }

    /// Returns block `at`, if it exists.
    pub(super) fn block_at(&self, at: usize) -> Result<Option<Arc<Block>>> {
        match at < self.blocks.len() {
            true => self.block(at).map(Some),
            false => Ok(None),
        }
    }

    fn block(&self, at: usize) -> Result<Arc<Block>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = held.iter().position(|(number, _)| *number == at) {
            let found = held.remove(place);
            let block = Arc::clone(&found.1);
            held.push(found);
            return Ok(block);
        }
        drop(held);
        let block = Arc::new(self.read_block(at)?);
        held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= BLOCKS_HELD {
            held.remove(0);
        }
        held.push((at, Arc::clone(&block)));
        Ok(block)
    }

    fn read_block(&self, at: usize) -> Result<Block> {
        let Some(found) = self.blocks.get(at) else {
            return Err(corrupt(&self.object, format_args!("has no block {at}")));
        };
        let object = format!("{}: block at offset {}", self.object, found.offset);
        let range = found.offset..found.offset + u64::from(found.stored);
        let is_right = |bytes: &[u8]| sum(bytes) == found.sum;
        let read = self.source.read(range.clone(), &is_right);
        let bytes = match read.map_err(|error| error.within(&object)) {
            Ok(bytes) if is_right(&bytes) => bytes,
            Err(error) if !error.is_damage() => return Err(error),
            wrong => match self.source.made_again(range) {
                Some(bytes) if is_right(&bytes) => bytes,
                _ => return Err(wrong_block(&object, wrong, &found.sum)),
            },
        };
        let raw = unpacked(
            &object,
            &bytes,
            found.raw.into(),
            CHECKPOINT_BLOCK_BYTES_MAX,
        )?;
        let block = Block::decode(&object, raw, found.rows)?;
        let last = block.key(block.len().saturating_sub(1));
        let next = self.blocks.get(at + 1).map(BlockAt::first_key);
        if block.key(0) != Some(found.first_key()) || next.is_some_and(|next| last >= Some(next)) {
            return Err(corrupt(
                &object,
                "expected the rows that the index says, found others",
            ));
        }
        Ok(block)
    }
}

/// Returns the error for a block that does not match the index.
fn wrong_block(object: &str, read: Result<Bytes>, says: &[u8; 8]) -> Error {
    match read {
        Ok(bytes) => {
            let detail = format_args!(
                "its sum is {}, the index says {}",
                Hex(&sum(&bytes)),
                Hex(says)
            );
            corrupt(object, detail)
        }
        Err(error) => error,
    }
}

/// Like the general `corrupt`, with another hint: a checkpoint can be rebuilt from the log.
fn corrupt(object: &str, detail: impl std::fmt::Display) -> Error {
    super::cursor::corrupt(object, detail).hint(Remedy::VerifyThenRepair)
}

/// Reads exactly the bytes of a range.
fn read_all(
    object: &str,
    source: &dyn Source,
    range: Range<u64>,
    is_right: &dyn Fn(&[u8]) -> bool,
) -> Result<Bytes> {
    let expected = range.end.saturating_sub(range.start);
    let bytes = source
        .read(range, is_right)
        .map_err(|error| error.within(object))?;
    match bytes.len() as u64 == expected {
        true => Ok(bytes),
        false => {
            let found = bytes.len();
            Err(corrupt(
                object,
                format_args!("expected {expected} bytes, found {found}"),
            ))
        }
    }
}

/// Decompresses one zstd frame of exactly `len` bytes. Refuses more than `max` bytes, or more than its compressed size
/// allows.
fn unpacked(object: &str, bytes: &[u8], len: u64, max: u64) -> Result<Vec<u8>> {
    let max = max.min(checkpoint_raw_max(bytes.len()));
    if len > max {
        return Err(corrupt(
            object,
            format_args!("expected at most {max} bytes, found {len}"),
        ));
    }
    let fail = |source| corrupt(object, "expected one frame of zstd").because(source);
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(fail)?;
    let mut decoder = decoder.single_frame();
    let mut raw = Vec::new();
    decoder
        .by_ref()
        .take(len + 1)
        .read_to_end(&mut raw)
        .map_err(fail)?;
    if raw.len() as u64 != len {
        let found = raw.len();
        return Err(corrupt(
            object,
            format_args!("expected {len} bytes, found {found} or more"),
        ));
    }
    match decoder.finish() {
        [] => Ok(raw),
        rest => {
            let rest = rest.len();
            Err(corrupt(
                object,
                format_args!("expected one frame of zstd, found {rest} more bytes"),
            ))
        }
    }
}
