//! The bytes of the cache: a header, blocks of entries whose checksums form a chain, and a footer.
//!
//! Pure. A block's checksum covers the one before it, beginning with the header's. So a block proves that it belongs to
//! this file and to this position, and the last checksum stands for the whole file.

use serde::{Deserialize, Serialize};

use super::{CacheBase, Cached, StatKey};
use crate::format::{CONTENT_DEPTH_MAX, Content, TIME_NANOS_MAX, Time};
use crate::id::{ChunkId, StoreId};

/// The first bytes of a cache.
pub const STAT_CACHE_MAGIC: [u8; 8] = *b"STORESTC";
/// Version of the layout and of the rule for what is recorded. A cache of another version counts as empty. Version 1
/// has the same layout, but includes files whose pages were dirty when they were read.
pub const STAT_CACHE_VERSION: u16 = 2;
/// Most bytes of a block.
pub const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Most bytes of a path. Files with longer ones are read each time.
pub(super) const PATH_BYTES_MAX: usize = 32 << 10;
/// Most bytes of an entry.
pub(super) const ENTRY_BYTES_MAX: usize = 2 + 2 + PATH_BYTES_MAX + 1 + 8 + 12 + 12 + 8 + 8 + 1 + 32;
/// Most bytes of the footer.
pub(super) const FOOTER_BYTES_MAX: usize = 16 << 10;

/// The ctime equals the mtime and is left out.
const SAME_CTIME: u8 = 1;
/// The device is that of the entry before and is left out.
const SAME_DEV: u8 = 2;

/// A checksum of the chain.
pub(super) type Link = [u8; 32];

/// What follows the last block, as sealed text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Footer {
    /// The last checksum.
    pub(super) chain: ChunkId,
    pub(super) base: CacheBase,
}

/// The checksum of the block `payload` that follows `link`.
pub(super) fn next_link(link: &Link, payload: &[u8]) -> Link {
    *blake3::Hasher::new()
        .update(link)
        .update(payload)
        .finalize()
        .as_bytes()
}

/// The header and its checksum, the first of the chain.
pub(super) fn encode_header(store: StoreId, root: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(64 + root.len());
    header.extend_from_slice(&STAT_CACHE_MAGIC);
    header.extend_from_slice(&STAT_CACHE_VERSION.to_le_bytes());
    header.extend_from_slice(&store.0);
    header.extend_from_slice(&(root.len() as u64).to_le_bytes());
    header.extend_from_slice(root);
    let link = blake3::hash(&header);
    header.extend_from_slice(link.as_bytes());
    header
}

/// Encodes consecutive entries, each relative to the one before.
#[derive(Debug, Default)]
pub(super) struct EntryEncoder {
    path: Vec<u8>,
    dev: u64,
}

impl EntryEncoder {
    /// Appends an entry to `out`, at most [`ENTRY_BYTES_MAX`] bytes. Returns none when the path is too long.
    pub(super) fn push(&mut self, path: &[u8], cached: &Cached, out: &mut Vec<u8>) -> Option<()> {
        let shared = self
            .path
            .iter()
            .zip(path)
            .take_while(|(a, b)| a == b)
            .count();
        let suffix = path.get(shared..)?;
        let (shared_len, suffix_len) = (
            u16::try_from(shared).ok()?,
            u16::try_from(suffix.len()).ok()?,
        );
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        let Cached { key, content } = cached;
        let same_ctime = if key.ctime == key.mtime {
            SAME_CTIME
        } else {
            0
        };
        let same_dev = if key.dev == self.dev { SAME_DEV } else { 0 };
        out.extend_from_slice(&shared_len.to_le_bytes());
        out.extend_from_slice(&suffix_len.to_le_bytes());
        out.extend_from_slice(suffix);
        out.push(same_ctime | same_dev);
        out.extend_from_slice(&key.size.to_le_bytes());
        push_time(key.mtime, out);
        if same_ctime == 0 {
            push_time(key.ctime, out);
        }
        out.extend_from_slice(&key.ino.to_le_bytes());
        if same_dev == 0 {
            out.extend_from_slice(&key.dev.to_le_bytes());
        }
        out.push(content.depth);
        out.extend_from_slice(&content.root.0);
        self.path.truncate(shared);
        self.path.extend_from_slice(suffix);
        self.dev = key.dev;
        Some(())
    }
}

/// Decodes consecutive entries.
#[derive(Debug, Default)]
pub(super) struct EntryDecoder {
    /// The path of the last decoded entry.
    pub(super) path: Vec<u8>,
    dev: u64,
}

impl EntryDecoder {
    /// Returns the next entry of `input`, and advances `input` behind it. Returns none when the bytes are invalid.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Option<Cached> {
        let shared = usize::from(u16::from_le_bytes(take(input)?));
        let suffix_len = usize::from(u16::from_le_bytes(take(input)?));
        let (suffix, rest) = input.split_at_checked(suffix_len)?;
        *input = rest;
        if shared > self.path.len() || shared + suffix_len > PATH_BYTES_MAX {
            return None;
        }
        self.path.truncate(shared);
        self.path.extend_from_slice(suffix);
        let [flags] = take(input)?;
        let size = u64::from_le_bytes(take(input)?);
        let mtime = take_time(input)?;
        let ctime = if flags & SAME_CTIME == 0 {
            take_time(input)?
        } else {
            mtime
        };
        let ino = u64::from_le_bytes(take(input)?);
        if flags & SAME_DEV == 0 {
            self.dev = u64::from_le_bytes(take(input)?);
        }
        let [depth] = take(input)?;
        let root = ChunkId(take(input)?);
        let key = StatKey {
            size,
            mtime,
            ctime,
            ino,
            dev: self.dev,
        };
        let is_known = flags & !(SAME_CTIME | SAME_DEV) == 0 && depth <= CONTENT_DEPTH_MAX;
        is_known.then_some(Cached {
            key,
            content: Content { size, depth, root },
        })
    }
}

fn push_time(time: Time, out: &mut Vec<u8>) {
    out.extend_from_slice(&time.secs.to_le_bytes());
    out.extend_from_slice(&time.nanos.to_le_bytes());
}

fn take_time(input: &mut &[u8]) -> Option<Time> {
    let secs = i64::from_le_bytes(take(input)?);
    let nanos = u32::from_le_bytes(take(input)?);
    (nanos <= TIME_NANOS_MAX).then_some(Time { secs, nanos })
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*array)
}
