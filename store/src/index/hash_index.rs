//! The hash index: which of many small segments may hold a chunk, by one look into memory.
//!
//! Every put leaves a segment, so that a busy store has hundreds of them between two collections, and a chunk that
//! is new would be looked for in each. The table is made once the looking has cost as much as making it would;
//! who looks up little never pays for it. It says where to look and never what is there: a wrong guess costs one
//! lookup. Memory: 4 bytes a slot, at most [`SLOTS_MAX`] slots.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::id::ChunkId;

/// Fewer segments than this are asked one by one.
const SEGMENTS_LEAST: usize = 8;
/// More of them than a slot can tell apart are asked one by one.
const SEGMENTS_MOST: usize = u16::MAX as usize;
/// Slots of the largest table: 64 MiB.
const SLOTS_MAX: u64 = 16 << 20;
/// Chunks that are put into a table in the time of one lookup in one segment.
const CHUNKS_A_LOOKUP: u64 = 8;
/// More slots than this are never looked at for one chunk. Ids that are hashes come nowhere near; where a segment
/// names others, there is no table.
const PROBES_MOST: usize = 4096;

/// Guides lookups in the last segments of an index, those with the fewest chunks.
#[derive(Debug, Default)]
pub(super) struct HashIndex {
    /// Segments before its own.
    first: usize,
    /// Its own segments.
    segments: usize,
    /// Their chunks.
    chunks: u64,
    /// Lookups so far in single segments of its own.
    asked: AtomicU64,
    table: OnceLock<Option<Table>>,
}

/// An open-addressed hash table with linear probing; ids are hashes already.
#[derive(Debug)]
pub(super) struct Table {
    first: usize,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Which of the table's segments, counted from 1; 0 is free.
    segment: u16,
    /// Bytes of the id that its place does not tell.
    tag: u16,
}

impl HashIndex {
    /// For an index whose segments have these numbers of chunks, falling.
    pub(super) fn new(chunks: &[u64]) -> Self {
        let mut own = Self {
            first: chunks.len(),
            ..Self::default()
        };
        for count in chunks.iter().rev().take(SEGMENTS_MOST) {
            let sum = own.chunks.saturating_add(*count);
            if slots_for(sum) > SLOTS_MAX {
                break;
            }
            own.chunks = sum;
            own.segments += 1;
            own.first -= 1;
        }
        match own.segments < SEGMENTS_LEAST {
            true => Self {
                first: chunks.len(),
                ..Self::default()
            },
            false => own,
        }
    }

    /// The first segment that it hash indexes to; those before are to be asked one by one.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// The table, if there is one by now.
    pub(super) fn table(&self) -> Option<&Table> {
        self.table.get()?.as_ref()
    }

    /// Says that a chunk was looked for in each of its segments, one by one. When that has happened often enough,
    /// makes the table of `ids`: for each segment from [`Self::first`] on, its chunks in rising order.
    pub(super) fn asked_each<'i, I>(&self, ids: impl FnOnce() -> I)
    where
        I: Iterator<Item: Iterator<Item = &'i [u8; ChunkId::LEN]>>,
    {
        let asked = self.segments as u64;
        let before = self.asked.fetch_add(asked, Ordering::Relaxed);
        let enough = self.chunks / CHUNKS_A_LOOKUP;
        // One thread makes it; the others go on as before meanwhile.
        if before <= enough && before + asked > enough {
            self.table
                .get_or_init(|| Table::new(self.first, self.chunks, ids()));
        }
    }
}

impl Table {
    fn new<'i>(
        first: usize,
        chunks: u64,
        ids: impl Iterator<Item: Iterator<Item = &'i [u8; ChunkId::LEN]>>,
    ) -> Option<Self> {
        let slots = usize::try_from(slots_for(chunks)).ok()?;
        let mut table = Self {
            first,
            slots: vec![Slot::default(); slots],
        };
        let mut ids: Vec<_> = ids.map(Iterator::peekable).collect();
        // All segments' share of a part of the table, then the next part: it stays in the processor's cache.
        for part in 0..=u8::MAX {
            for (segment, ids) in (1..).zip(&mut ids) {
                while let Some(id) = ids.next_if(|[byte, ..]| *byte <= part) {
                    table.insert(segment, id)?;
                }
            }
        }
        Some(table)
    }

    fn insert(&mut self, segment: u16, id: &[u8; ChunkId::LEN]) -> Option<()> {
        let (home, tag) = self.place(id);
        let (before, after) = self.slots.split_at_mut(home);
        let mut probed = after.iter_mut().chain(before).take(PROBES_MOST);
        *probed.find(|slot| slot.segment == 0)? = Slot { segment, tag };
        Some(())
    }

    /// The segments that may hold a chunk, in rising order, so that a chunk in two of them has the position that it
    /// has without a table.
    pub(super) fn segments(&self, id: &ChunkId) -> Vec<usize> {
        let (home, tag) = self.place(&id.0);
        let (before, after) = self.slots.split_at(home);
        let probed = after.iter().chain(before);
        let mut segments: Vec<usize> = probed
            .take_while(|slot| slot.segment != 0)
            .filter(|slot| slot.tag == tag)
            .map(|slot| self.first + usize::from(slot.segment) - 1)
            .collect();
        segments.sort_unstable();
        segments
    }

    /// The slot that a chunk would have if it were alone, and its tag.
    fn place(&self, id: &[u8; ChunkId::LEN]) -> (usize, u16) {
        let [a, b, c, d, e, f, g, h, tag_high, tag_low, ..] = *id;
        let high = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let home = (u128::from(high) * self.slots.len() as u128) >> u64::BITS;
        let tag = u16::from_be_bytes([tag_high, tag_low]);
        (usize::try_from(home).unwrap_or_default(), tag)
    }
}

/// A third of the slots stays free.
fn slots_for(chunks: u64) -> u64 {
    chunks.saturating_add(chunks / 2).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Id = [u8; ChunkId::LEN];

    /// The numbered chunks in the order of a segment.
    fn segment(numbers: impl Iterator<Item = u32>) -> Vec<Id> {
        let mut ids: Vec<Id> = numbers.map(id).collect();
        ids.sort_unstable();
        ids
    }

    fn id(number: u32) -> Id {
        ChunkId::of(&number.to_le_bytes()).0
    }

    fn hash_index(segments: &[Vec<Id>]) -> HashIndex {
        let sizes: Vec<u64> = segments.iter().map(|ids| ids.len() as u64).collect();
        HashIndex::new(&sizes)
    }

    fn ask(hash_index: &HashIndex, segments: &[Vec<Id>], times: u64) {
        for _ in 0..times {
            hash_index.asked_each(|| {
                segments
                    .iter()
                    .skip(hash_index.first())
                    .map(|ids| ids.iter())
            });
        }
    }

    #[test]
    fn the_table_leads_to_every_segment_that_holds_a_chunk_and_to_few_others() {
        // Chunk 7 is in all of them, chunks that 5 divides in two.
        let segments: Vec<Vec<Id>> = (0..40_u32)
            .map(|at| {
                let own = at * 1000 + 10..at * 1000 + 1010 - at;
                let twice = (at * 1000 + 1010..at * 1000 + 2010).filter(|number| number % 5 == 0);
                segment(own.chain(twice).chain([7]))
            })
            .collect();
        let hash_index = hash_index(&segments);
        assert_eq!(hash_index.first(), 0);
        ask(
            &hash_index,
            &segments,
            hash_index.chunks / CHUNKS_A_LOOKUP / 40,
        );
        assert!(hash_index.table().is_none(), "not worth it yet");
        ask(&hash_index, &segments, 1);
        let table = hash_index.table().unwrap();
        let mut wrong = 0;
        for number in 0..45_000 {
            let id = id(number);
            let led = table.segments(&ChunkId(id));
            assert!(led.is_sorted(), "{led:?}");
            let held = segments.iter().map(|ids| ids.binary_search(&id).is_ok());
            for (at, is_held) in held.enumerate() {
                assert!(
                    !is_held || led.contains(&at),
                    "chunk {number}, segment {at}"
                );
                wrong += usize::from(!is_held && led.contains(&at));
            }
        }
        assert!(wrong < 450, "{wrong} of 45,000 lookups for nothing");
    }

    #[test]
    fn it_takes_the_smallest_segments_as_far_as_memory_goes() {
        let fits = SLOTS_MAX * 2 / 3 / 20;
        let sizes: Vec<u64> = vec![fits * 19, fits * 10]
            .into_iter()
            .chain([fits; 9])
            .collect();
        assert_eq!(
            (
                HashIndex::new(&sizes).first(),
                HashIndex::new(&sizes).segments
            ),
            (1, 10)
        );
        let sizes = vec![fits * 12; 9];
        assert_eq!(HashIndex::new(&sizes).first(), 9, "too few fit");
        assert_eq!(
            HashIndex::new(&[1; SEGMENTS_LEAST - 1]).first(),
            SEGMENTS_LEAST - 1
        );
        assert_eq!(HashIndex::new(&[1; SEGMENTS_LEAST]).first(), 0);
        assert_eq!(HashIndex::new(&vec![0; SEGMENTS_MOST + 3]).first(), 3);
        assert_eq!(HashIndex::new(&[u64::MAX; 20]).first(), 20);
    }

    #[test]
    fn ids_that_are_no_hashes_get_no_table() {
        let of_one_place = |at: u8, number: u16| {
            let [high, low] = number.to_be_bytes();
            let mut id = [0; ChunkId::LEN];
            let [.., a, b, c] = &mut id;
            (*a, *b, *c) = (at, high, low);
            id
        };
        let segments: Vec<Vec<Id>> = (0..10)
            .map(|at| (0..1000).map(|number| of_one_place(at, number)).collect())
            .collect();
        let hash_index = hash_index(&segments);
        ask(&hash_index, &segments, 1 << 12);
        assert!(hash_index.table().is_none());
    }
}
