//! Tables: find the segments that may hold a chunk with one lookup; in memory, or in a file in the host's cache.
//!
//! An open-addressed hash table with linear probing; ids already are hashes. It only suggests segments: a wrong
//! suggestion costs one lookup. A file is mapped, so it takes no memory of its own, serves all processes of the host
//! and is available immediately; losing it costs time. Its slots have no checksum: a reader that misses a chunk which
//! must exist searches all segments.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::fs::{build_atomically, map, open_regular};
use crate::id::{ChunkId, SegmentId};

/// The most slots that are searched for a chunk. Ids that are hashes never need as many; if a segment has other ids, no
/// table is built.
const PROBES_MOST: usize = 4096;
/// Slots that are filled together; they fit into the processor's cache.
const PART_SLOTS: usize = 256 << 10;
/// The most segments that a slot can distinguish.
pub(super) const SEGMENTS_MOST: usize = u16::MAX as usize;

/// The directory in the cache of a store.
pub(super) const DIR: &str = "lookups";
const MAGIC: [u8; 8] = *b"STORELOK";
const VERSION: u32 = 1;
/// Bytes of magic, version, number of segments and number of homes.
const HEAD_LEN: usize = 8 + 4 + 4 + 8;

/// Two bytes for the segment, counted from 1 (0 means free), and two bytes of the id that its home does not determine.
type Slot = [u8; 4];

/// Maps an id to the segments that may hold it.
#[derive(Debug)]
pub(super) struct Table {
    /// The number of home slots. More slots follow for entries that overflow the last homes.
    homes: u64,
    slots: Slots,
}

#[derive(Debug)]
enum Slots {
    Held(Vec<u8>),
    Mapped { map: Mmap, at: usize },
}

/// A table in a file, with its segments.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) path: PathBuf,
    pub(super) segments: Vec<SegmentId>,
    pub(super) table: Table,
}

impl Table {
    /// Builds a table in memory. `ids` yields for each segment its chunks in ascending order; `chunks` is their total
    /// number.
    pub(super) fn held<'i>(
        chunks: u64,
        ids: impl Iterator<Item: Iterator<Item = &'i [u8; ChunkId::LEN]>>,
    ) -> Option<Self> {
        let homes = homes_for(chunks);
        let mut bytes = Vec::with_capacity(usize::try_from(homes).ok()?.checked_mul(4)?);
        let mut put = |part: &[Slot]| {
            bytes.extend_from_slice(part.as_flattened());
            Ok(())
        };
        fill(homes, ids, &mut put).ok()??;
        let slots = Slots::Held(bytes);
        Some(Self { homes, slots })
    }

    /// Returns the indices of the segments that may hold a chunk, in no particular order.
    pub(super) fn segments(&self, id: &ChunkId) -> impl Iterator<Item = usize> {
        let (home, tag) = place(self.homes, &id.0);
        let probed = self.slots().get(home..).unwrap_or_default().iter();
        let slots = probed
            .take(PROBES_MOST)
            .map(|[a, b, c, d]| (u16::from_le_bytes([*a, *b]), [*c, *d]));
        slots
            .take_while(|(segment, _)| *segment != 0)
            .filter(move |(_, found)| *found == tag)
            .map(|(segment, _)| usize::from(segment) - 1)
    }

    fn slots(&self) -> &[Slot] {
        let bytes = match &self.slots {
            Slots::Held(bytes) => bytes.as_slice(),
            Slots::Mapped { map, at } => map.get(*at..).unwrap_or_default(),
        };
        bytes.as_chunks().0
    }
}

impl TableFile {
    /// Writes the table of `segments` below `cache_dir` and opens it. Returns `None` if their ids are not hashes.
    pub(super) fn write<'i>(
        cache_dir: &Path,
        segments: Vec<SegmentId>,
        chunks: u64,
        ids: impl Iterator<Item: Iterator<Item = &'i [u8; ChunkId::LEN]>>,
    ) -> Result<Option<Self>> {
        let homes = homes_for(chunks);
        let count = u32::try_from(segments.len()).unwrap_or(u32::MAX);
        let mut head = [&MAGIC[..], &VERSION.to_le_bytes(), &count.to_le_bytes()].concat();
        head.extend_from_slice(&homes.to_le_bytes());
        segments.iter().for_each(|id| head.extend_from_slice(&id.0));
        let sum = blake3::hash(&head);
        let path = cache_dir.join(DIR).join(&*sum.to_hex());
        let mut is_whole = true;
        let built = build_atomically(&path, |file| {
            let failed = |source| Error::io("write", &path, source);
            let mut out = std::io::BufWriter::new(file);
            out.write_all(&head).map_err(failed)?;
            out.write_all(sum.as_bytes()).map_err(failed)?;
            let mut put = |part: &[Slot]| out.write_all(part.as_flattened()).map_err(failed);
            is_whole = fill(homes, ids, &mut put)?.is_some();
            out.flush().map_err(failed)?;
            match is_whole {
                true => Ok(()),
                false => Err(Error::invalid("segments whose ids are no hashes")),
            }
        });
        match is_whole {
            true => built.map(|()| Self::open(&path)),
            false => Ok(None),
        }
    }

    /// Opens the table at `path`; `None` if it is not a valid one.
    fn open(path: &Path) -> Option<Self> {
        let map = map(&open_regular(path).ok()?, &path.display().to_string()).ok()?;
        let (head, _) = map.split_at_checked(HEAD_LEN)?;
        let (magic, rest) = head.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let homes = u64::from_le_bytes(*rest.first_chunk()?);
        if *magic != MAGIC || u32::from_le_bytes(*version) != VERSION {
            return None;
        }
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let sum_at = HEAD_LEN.checked_add(count.checked_mul(16)?)?;
        let (covered, rest) = map.split_at_checked(sum_at)?;
        let (sum, slots) = rest.split_first_chunk::<32>()?;
        let slots_len = usize::try_from(homes).ok()?.checked_add(PROBES_MOST)?;
        if *blake3::hash(covered).as_bytes() != *sum
            || Some(slots.len()) != slots_len.checked_mul(4)
        {
            return None;
        }
        let (ids, _) = covered.get(HEAD_LEN..)?.as_chunks();
        let segments = ids.iter().map(|id| SegmentId(*id)).collect();
        let at = sum_at + sum.len();
        Some(Self {
            path: path.to_owned(),
            segments,
            table: Table {
                homes,
                slots: Slots::Mapped { map, at },
            },
        })
    }

    /// Opens all tables below `cache_dir`.
    pub(super) fn all_in(cache_dir: &Path) -> Vec<Self> {
        let Ok(found) = std::fs::read_dir(cache_dir.join(DIR)) else {
            return Vec::new();
        };
        let open = |entry: std::fs::DirEntry| Self::open(&entry.path());
        found.flatten().filter_map(open).collect()
    }
}

/// Returns the segments of the table at `path`.
pub(super) fn segments_of(path: &Path) -> Option<Vec<SegmentId>> {
    TableFile::open(path).map(|file| file.segments)
}

/// Passes all slots to `put`, in order. Returns `None` if ids are not hashes.
fn fill<'i>(
    homes: u64,
    ids: impl Iterator<Item: Iterator<Item = &'i [u8; ChunkId::LEN]>>,
    put: &mut dyn FnMut(&[Slot]) -> Result<()>,
) -> Result<Option<()>> {
    let Ok(homes_len) = usize::try_from(homes) else {
        return Ok(None);
    };
    let mut ids: Vec<_> = ids.map(Iterator::peekable).collect();
    // One part, followed by the slots that overflow into the next part.
    let mut part = vec![Slot::default(); PART_SLOTS.min(homes_len) + PROBES_MOST];
    for first in (0..homes_len).step_by(PART_SLOTS) {
        let len = PART_SLOTS.min(homes_len - first);
        for (segment, ids) in (1..=u16::MAX).zip(&mut ids) {
            while let Some(id) = ids.next_if(|id| place(homes, id).0 < first + len) {
                let (home, [c, d]) = place(homes, id);
                let probed = part.get_mut(home.saturating_sub(first)..);
                let mut probed = probed.unwrap_or_default().iter_mut().take(PROBES_MOST);
                let Some(free) = probed.find(|[a, b, ..]| (*a, *b) == (0, 0)) else {
                    return Ok(None);
                };
                let [a, b] = segment.to_le_bytes();
                *free = [a, b, c, d];
            }
        }
        let is_last = first + len == homes_len;
        let done = if is_last { len + PROBES_MOST } else { len };
        put(part.get(..done).unwrap_or_default())?;
        if is_last {
            break;
        }
        part.copy_within(len.., 0);
        let kept = part.len() - len;
        part.get_mut(kept..)
            .unwrap_or_default()
            .fill(Slot::default());
    }
    Ok(Some(()))
}

/// Returns the home slot of a chunk, and its tag.
fn place(homes: u64, id: &[u8; ChunkId::LEN]) -> (usize, [u8; 2]) {
    let [a, b, c, d, e, f, g, h, tag_high, tag_low, ..] = *id;
    let high = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let home = (u128::from(high) * u128::from(homes)) >> u64::BITS;
    (
        usize::try_from(home).unwrap_or_default(),
        [tag_high, tag_low],
    )
}

/// Returns the number of homes, of which a third stays free.
pub(super) fn homes_for(chunks: u64) -> u64 {
    chunks.saturating_add(chunks / 2).saturating_add(1)
}
