//! Marks: one bit for each chunk of each live segment, to record which chunks are reached.
//!
//! A chunk that is in several segments has one position: the one that readers use. So marking a position is the same as
//! marking a chunk. Marks belong to the index that they were made for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use roaring::RoaringTreemap;

/// The position of a chunk's entry in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Number of the segment, in the order of [`super::Index::segments`].
    pub segment: usize,
    /// Number of the entry in the segment.
    pub entry: u64,
}

/// One bit for each chunk of an index. Threads can share it.
#[derive(Debug, Default)]
pub struct Marks(Vec<Bits>);

/// Marks for few chunks out of very many, such as metadata. Takes memory only for marked chunks. Threads can share it.
#[derive(Debug, Default)]
pub(crate) struct SparseMarks(Mutex<RoaringTreemap>);

/// The low bits of a key in [`SparseMarks`], which hold the entry; the high bits hold the segment.
const ENTRY_BITS: u32 = 40;

/// One bit for each chunk of a segment. Memory is allocated in pages, when a bit in the page is first set, so that
/// opening a store of a billion chunks allocates none.
#[derive(Debug)]
pub(super) struct Bits(Vec<OnceLock<Box<Page>>>);

/// The bits that are allocated together.
type Page = [AtomicU64; PAGE_WORDS];
const PAGE_WORDS: usize = 512;
const PAGE_BITS: u64 = PAGE_WORDS as u64 * 64;

impl Marks {
    /// Creates marks for segments with these numbers of chunks, none of them set.
    pub(super) fn none(chunks: impl Iterator<Item = u64>) -> Self {
        Self(chunks.map(Bits::none).collect())
    }

    /// Marks a chunk, and returns whether it was unmarked before. Ignores positions that are out of range.
    pub fn set(&self, at: Position) -> bool {
        self.0
            .get(at.segment)
            .is_some_and(|bits| bits.set(at.entry))
    }

    /// Whether a chunk is marked.
    pub fn has(&self, at: Position) -> bool {
        self.0
            .get(at.segment)
            .is_some_and(|bits| bits.has(at.entry))
    }

    /// Iterates over all marked positions, in order.
    pub fn positions(&self) -> impl Iterator<Item = Position> {
        self.0.iter().enumerate().flat_map(|(segment, bits)| {
            bits.positions()
                .map(move |entry| Position { segment, entry })
        })
    }

    /// Iterates over the marked entries of one segment, in order.
    pub fn in_segment(&self, segment: usize) -> impl Iterator<Item = u64> {
        self.0.get(segment).into_iter().flat_map(Bits::positions)
    }

    /// Returns how many chunks are marked.
    pub fn count(&self) -> u64 {
        self.0.iter().map(Bits::count).sum()
    }
}

impl SparseMarks {
    /// Marks a chunk, and returns whether it was unmarked before.
    pub(crate) fn set(&self, at: Position) -> bool {
        let key = (at.segment as u64) << ENTRY_BITS | at.entry;
        let mut marked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marked.insert(key)
    }
}

impl Bits {
    pub(super) fn none(chunks: u64) -> Self {
        let pages = 0..chunks.div_ceil(PAGE_BITS);
        Self(pages.map(|_| OnceLock::new()).collect())
    }

    /// Sets a bit, and returns whether it was unset before.
    pub(super) fn set(&self, position: u64) -> bool {
        let bit = 1 << (position % 64);
        let Some(page) = self.page(position) else {
            return false;
        };
        let word = page.get_or_init(no_bits).get(word_of(position));
        word.is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    pub(super) fn set_all(&self) {
        for page in &self.0 {
            let words = page.get_or_init(no_bits).iter();
            words.for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        }
    }

    pub(super) fn count(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        let pages = self.0.iter().filter_map(OnceLock::get);
        pages.flat_map(|page| page.iter()).map(ones).sum()
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = u64> {
        let pages = (0_u64..).zip(&self.0);
        let pages = pages.filter_map(|(number, page)| Some((number * PAGE_BITS, page.get()?)));
        pages.flat_map(|(first, page)| {
            (0_u64..).zip(page.iter()).flat_map(move |(at, word)| {
                let word = word.load(Ordering::Relaxed);
                (0..64)
                    .filter(move |bit| word >> bit & 1 == 1)
                    .map(move |bit| first + at * 64 + bit)
            })
        })
    }

    fn has(&self, position: u64) -> bool {
        let page = self.page(position).and_then(OnceLock::get);
        page.and_then(|page| page.get(word_of(position)))
            .is_some_and(|word| word.load(Ordering::Relaxed) >> (position % 64) & 1 == 1)
    }

    fn page(&self, position: u64) -> Option<&OnceLock<Box<Page>>> {
        self.0.get(usize::try_from(position / PAGE_BITS).ok()?)
    }
}

fn no_bits() -> Box<Page> {
    Box::new([const { AtomicU64::new(0) }; PAGE_WORDS])
}

/// Returns the word of its page that holds the bit of `position`.
fn word_of(position: u64) -> usize {
    usize::try_from(position % PAGE_BITS / 64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_new_once_and_stays() {
        let marks = Marks::none([3, 0, 130].into_iter());
        let at = |segment, entry| Position { segment, entry };
        for position in [at(0, 2), at(2, 0), at(2, 64), at(2, 129)] {
            assert!(!marks.has(position));
            assert!(marks.set(position));
            assert!(!marks.set(position));
            assert!(marks.has(position));
        }
        assert!(!marks.set(at(3, 0)), "there is no such segment");
        assert_eq!(marks.count(), 4);
        let marked: Vec<_> = marks.positions().collect();
        assert_eq!(marked, [at(0, 2), at(2, 0), at(2, 64), at(2, 129)]);
    }

    #[test]
    fn sparse_marks_are_new_once_whatever_segment_they_are_of() {
        let marks = SparseMarks::default();
        let at = |segment, entry| Position { segment, entry };
        let all = [at(0, 0), at(0, 1 << 39), at(1, 0), at(7, 0), at(1 << 23, 5)];
        assert!(all.iter().all(|at| marks.set(*at)));
        assert!(!all.iter().any(|at| marks.set(*at)));
    }

    #[test]
    fn memory_comes_with_marks() {
        let bits = Bits::none(100 * PAGE_BITS);
        let set = [7 * PAGE_BITS - 1, 7 * PAGE_BITS, 99 * PAGE_BITS + 77];
        assert!(set.iter().all(|at| bits.set(*at)));
        let pages = bits.0.iter().filter(|page| page.get().is_some());
        assert_eq!(pages.count(), 3);
        assert_eq!(bits.positions().collect::<Vec<_>>(), set);
        assert!(bits.has(set[2]) && !bits.has(set[2] + 1) && !bits.has(50 * PAGE_BITS));
        assert!(!bits.set(100 * PAGE_BITS), "there is no such chunk");
        bits.set_all();
        assert_eq!(bits.count(), 100 * PAGE_BITS);
    }
}
