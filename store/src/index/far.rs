//! Far segments: searched by reading ranges over a network, and copied only when that is cheaper.
//!
//! The index of 100 TB takes 70 GB, but a file of a gigabyte is in only a few packs. So a large segment is not copied
//! for a few lookups: only the blocks of its fan-out, entries, frames and packs that are needed are fetched. The cost
//! is added up over all processes of this host; when it reaches the cost of a copy, a copy is made.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ::bytes::Bytes;

use super::Location;
use super::bytes::SegmentBytes;
use crate::error::{Error, Result};
use crate::format::{SEGMENT_HEADER_LEN, SegmentLayout, SegmentPack, segment_key};
use crate::fs::{read_regular, write_note};
use crate::id::{ChunkId, SegmentId};
use crate::remote::Read;

/// Segments up to this size are copied, since that takes one request.
pub(super) const COPIED_BYTES_MAX: u64 = 1 << 20;
/// The unit of reads.
const BLOCK_BYTES: u64 = 4 << 10;
/// How many bytes can be transferred in the time of one request.
const REQUEST_BYTES: u64 = 128 << 10;

/// A segment that is not on this host.
#[derive(Debug)]
pub(super) struct FarSegment {
    remote: Arc<dyn Read>,
    id: SegmentId,
    len: u64,
    /// The path for a copy.
    copy: PathBuf,
    blocks: Mutex<HashMap<u64, Bytes>>,
    /// The cost of all reads on this host so far, in bytes.
    asked: AtomicU64,
    before: u64,
    whole: OnceLock<Option<SegmentBytes>>,
}

/// The entry, pack and location of a chunk.
pub(super) struct FarPlace {
    pub(super) entry: u64,
    pub(super) pack: SegmentPack,
    pub(super) location: Location,
}

impl FarSegment {
    /// Opens segment `id` of `len` bytes for range reads, and reads its header. Returns `None` if a copy is cheaper.
    pub(super) fn open(
        remote: &Arc<dyn Read>,
        copy: &Path,
        id: SegmentId,
        len: u64,
    ) -> Result<Option<(Self, SegmentLayout)>> {
        let before = read_regular(&tally(copy), 32).ok();
        let before = before.and_then(|text| String::from_utf8(text).ok()?.parse::<u64>().ok());
        let before = before.unwrap_or(0);
        if len <= COPIED_BYTES_MAX || before >= len || copy.exists() {
            return Ok(None);
        }
        let far = Self {
            remote: Arc::clone(remote),
            id,
            len,
            copy: copy.to_owned(),
            blocks: Mutex::default(),
            asked: AtomicU64::new(before),
            before,
            whole: OnceLock::new(),
        };
        let header = far.read(0..SEGMENT_HEADER_LEN)?;
        let layout = SegmentLayout::of_header(&segment_key(id), &header, len)?;
        // Finding out whether a chunk is in a delta takes another search, so a segment with deltas is copied.
        Ok((layout.bases() == 0).then_some((far, layout)))
    }

    /// Returns all its bytes if there is a copy already.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.whole.get()?.as_ref().map(|whole| whole.as_slice())
    }

    /// Returns all its bytes; makes the copy if necessary.
    pub(super) fn copied(&self) -> Option<&[u8]> {
        let open = || SegmentBytes::open(self.remote.as_ref(), Some(&self.copy), self.id, self.len);
        let whole = self.whole.get_or_init(|| open().ok());
        whole.as_ref().map(|whole| whole.as_slice())
    }

    /// Returns the error with which copying fails, if it fails.
    pub(super) fn damage(&self) -> Option<Error> {
        let open = || SegmentBytes::open(self.remote.as_ref(), Some(&self.copy), self.id, self.len);
        open().err()
    }

    /// Finds a chunk by range reads.
    pub(super) fn find(&self, layout: &SegmentLayout, id: &ChunkId) -> Result<Option<FarPlace>> {
        let bounds = self.read(layout.fanout_range(id))?;
        let (first, range) = layout.entries_range(&bounds)?;
        if range.is_empty() {
            return Ok(None);
        }
        let rows = self.read(range)?;
        let Some((entry, found)) = layout.entry_in(&rows, first, id) else {
            return Ok(None);
        };
        let frame = self.read(layout.frame_range(found.frame)?)?;
        let frame = layout.frame_in(&frame, &found)?;
        let pack = self.read(layout.pack_range(frame.pack)?)?;
        let pack = layout.pack_in(&pack, found.frame, &frame)?;
        Ok(Some(FarPlace {
            entry,
            pack,
            location: Location::placed(&pack, &frame, &found, false),
        }))
    }

    /// Reads a range. Blocks that were not read before are fetched.
    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let numbers = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let missing: Vec<u64> = {
            let blocks = self.blocks();
            let is_missing = |number: &u64| !blocks.contains_key(number);
            numbers.clone().filter(is_missing).collect()
        };
        if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
            self.fetch(*first, *last)?;
        }
        let blocks = self.blocks();
        let mut bytes = Vec::new();
        for number in numbers.clone() {
            bytes.extend_from_slice(blocks.get(&number).map_or(&[], |block| block.as_ref()));
        }
        let skipped = usize::try_from(range.start - numbers.start * BLOCK_BYTES);
        drop(bytes.drain(..skipped.unwrap_or_default().min(bytes.len())));
        bytes.truncate(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
        Ok(bytes)
    }

    /// Fetches the blocks `first..=last`.
    fn fetch(&self, first: u64, last: u64) -> Result<()> {
        let range = first * BLOCK_BYTES..((last + 1) * BLOCK_BYTES).min(self.len);
        let cost = REQUEST_BYTES + (range.end - range.start);
        if self.asked.fetch_add(cost, Ordering::Relaxed) + cost >= self.len {
            // If the copy fails, range reads go on.
            let _whole = self.copied();
        }
        let key = segment_key(self.id);
        let answers = self.remote.get_ranges(&key, std::slice::from_ref(&range))?;
        let bytes = answers.into_iter().next().unwrap_or_default();
        let step = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
        let mut blocks = self.blocks();
        for (number, at) in (first..=last).zip((0..bytes.len()).step_by(step)) {
            blocks.insert(number, bytes.slice(at..bytes.len().min(at + step)));
        }
        Ok(())
    }

    fn blocks(&self) -> MutexGuard<'_, HashMap<u64, Bytes>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FarSegment {
    /// Stores the cost for the next process. If that fails, the next process only loses time.
    fn drop(&mut self) {
        let asked = self.asked.load(Ordering::Relaxed);
        let path = tally(&self.copy);
        if asked != self.before {
            drop(write_note(&path, asked.to_string().as_bytes()));
        }
    }
}

/// Path of the file that holds the cost of a segment's reads, beside its copy.
fn tally(copy: &Path) -> PathBuf {
    copy.with_extension("asked")
}
