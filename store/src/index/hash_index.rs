//! The hash index: tells which of many segments to search for a chunk.
//!
//! Every put adds a segment, so a busy store has dozens of segments between two collections, and thousands if none are
//! folded; each would have to be searched for a new chunk. A [`Table`] is built once lookups have cost as much as
//! building it would, so a process with few lookups never pays for it. Small tables are in memory (4 bytes per slot, at
//! most [`SLOTS_MAX`] slots), large ones in files of the host's cache, which later processes reuse as long as half of
//! their segments are live.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::table::{SEGMENTS_MOST, Table, TableFile, homes_for};
use crate::id::{ChunkId, SegmentId};

/// Fewer segments than this are searched one by one.
const SEGMENTS_LEAST: usize = 8;
/// Slots of the largest table in memory: 64 MiB.
const SLOTS_MAX: u64 = 16 << 20;
/// How many chunks can be added to a table in the time of one lookup in one segment.
const CHUNKS_A_LOOKUP: u64 = 8;
/// At most this many of the largest segments are left out of a file. A segment is left out only if it is as large as
/// all smaller ones together, which halves the file.
const LARGE_MOST: usize = 2;

/// Selects the segments to search in an index.
#[derive(Debug, Default)]
pub(super) struct HashIndex {
    /// Tables in files, and the number of each of their segments that is live.
    files: Vec<(TableFile, Vec<Option<usize>>)>,
    /// Segments that must be searched one by one.
    alone: Vec<usize>,
    /// Segments of the table that is not built yet.
    own: Vec<usize>,
    /// The number of chunks in those segments.
    chunks: u64,
    /// The directory for the table, if it is too large for memory.
    dir: Option<PathBuf>,
    /// Lookups so far in single segments of `own`.
    asked: AtomicU64,
    table: OnceLock<Option<Table>>,
}

impl HashIndex {
    /// Takes segments with their numbers of chunks, in descending order. Segments without a number are left out.
    pub(super) fn new(segments: &[(SegmentId, Option<u64>)], cache_dir: Option<&Path>) -> Self {
        let files = cache_dir.map_or_else(Vec::new, |dir| known(dir, segments));
        let mut rest: Vec<bool> = segments
            .iter()
            .map(|(_, chunks)| chunks.is_some())
            .collect();
        for number in files.iter().flat_map(|(_, numbers)| numbers).flatten() {
            rest.get_mut(*number).into_iter().for_each(|is| *is = false);
        }
        let rest: Vec<(usize, u64)> = (0..)
            .zip(segments)
            .zip(&rest)
            .filter(|(_, is_rest)| **is_rest)
            .map(|((number, (_, chunks)), _)| (number, chunks.unwrap_or_default()))
            .collect();
        let (first, dir) = first_of(&rest, cache_dir);
        let (alone, own) = rest.split_at_checked(first).unwrap_or_default();
        Self {
            files,
            alone: alone.iter().map(|(number, _)| *number).collect(),
            own: own.iter().map(|(number, _)| *number).collect(),
            chunks: own.iter().map(|(_, chunks)| chunks).sum(),
            dir: dir.map(Path::to_owned),
            ..Self::default()
        }
    }

    /// Calls `ask` with the segments that may hold a chunk, except those of [`Self::unguided`].
    pub(super) fn ask<E>(
        &self,
        id: &ChunkId,
        ask: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        for (file, numbers) in &self.files {
            for position in file.table.segments(id) {
                if let Some(Some(number)) = numbers.get(position) {
                    ask(*number)?;
                }
            }
        }
        if let Some(table) = self.table() {
            for number in (table.segments(id)).filter_map(|position| self.own.get(position)) {
                ask(*number)?;
            }
        }
        self.alone.iter().try_for_each(|number| ask(*number))
    }

    /// Returns the segments that [`Self::ask`] names for every chunk.
    pub(super) fn alone(&self) -> &[usize] {
        &self.alone
    }

    /// Returns the segments of the table that is not built yet.
    pub(super) fn unguided(&self) -> &[usize] {
        match self.table() {
            Some(_) => &[],
            None => &self.own,
        }
    }

    /// Whether results depend on files whose contents were not verified.
    pub(super) fn is_by_file(&self) -> bool {
        !self.files.is_empty()
    }

    fn table(&self) -> Option<&Table> {
        self.table.get()?.as_ref()
    }

    /// Notes that a chunk was searched in each of the segments of [`Self::unguided`]. After enough searches, builds the
    /// table from `ids`, which returns the id of each segment and its chunks in ascending order.
    pub(super) fn asked_each<'i, I>(&self, ids: impl FnOnce(&[usize]) -> Vec<(SegmentId, I)>)
    where
        I: Iterator<Item = &'i [u8; ChunkId::LEN]>,
    {
        let asked = self.own.len() as u64;
        let before = self.asked.fetch_add(asked, Ordering::Relaxed);
        let enough = self.chunks / CHUNKS_A_LOOKUP;
        // One thread builds the table; meanwhile the others go on without it.
        if before <= enough && before + asked > enough {
            let (names, ids): (Vec<SegmentId>, Vec<I>) = ids(&self.own).into_iter().unzip();
            self.table.get_or_init(|| match &self.dir {
                None => Table::held(self.chunks, ids.into_iter()),
                // If there is no space for the file, segments are still searched one by one.
                Some(dir) => TableFile::write(dir, names, self.chunks, ids.into_iter())
                    .ok()?
                    .map(|file| file.table),
            });
        }
    }

    /// Removes the files, because one of them is wrong. A file that cannot be removed will be used again.
    pub(super) fn forget(&self) {
        for (file, _) in &self.files {
            drop(std::fs::remove_file(&file.path));
        }
    }
}

/// Returns from which of these segments on, sorted by descending chunks, a table is worth building, and its directory
/// if it is too large for memory.
fn first_of<'d>(rest: &[(usize, u64)], cache_dir: Option<&'d Path>) -> (usize, Option<&'d Path>) {
    let (mut in_memory, mut sum) = (0, 0_u64);
    for (_, chunks) in rest.iter().rev().take(SEGMENTS_MOST) {
        sum = sum.saturating_add(*chunks);
        if homes_for(sum) > SLOTS_MAX {
            break;
        }
        in_memory += 1;
    }
    let mut first = rest.len() - in_memory;
    let mut dir = None;
    if let Some(cache_dir) = cache_dir.filter(|_| in_memory < rest.len().min(SEGMENTS_MOST)) {
        first = rest.len().saturating_sub(SEGMENTS_MOST);
        dir = Some(cache_dir);
        for (at, (_, chunks)) in rest.iter().enumerate().take(LARGE_MOST) {
            let behind = rest.iter().skip(at + 1).map(|(_, chunks)| chunks);
            if at < first || *chunks < behind.fold(0, |sum: u64, more| sum.saturating_add(*more)) {
                break;
            }
            first = at + 1;
        }
    }
    match rest.len() - first < SEGMENTS_LEAST {
        true => (rest.len(), None),
        false => (first, dir),
    }
}

/// Returns the tables below `dir` of which at least half the segments are live; no segment is in two of them.
fn known(
    dir: &Path,
    segments: &[(SegmentId, Option<u64>)],
) -> Vec<(TableFile, Vec<Option<usize>>)> {
    // With few segments, no table is needed.
    if segments.len() < SEGMENTS_LEAST {
        return Vec::new();
    }
    let places: HashMap<SegmentId, usize> = (segments.iter().zip(0..))
        .filter(|((_, chunks), _)| chunks.is_some())
        .map(|((id, _), at)| (*id, at))
        .collect();
    let mut files = TableFile::all_in(dir);
    // The table with the most segments comes first: smaller ones were built earlier, or for later segments.
    files.sort_by_key(|file| std::cmp::Reverse((file.segments.len(), file.path.clone())));
    let mut taken = vec![false; segments.len()];
    let mut known = Vec::new();
    for file in files {
        let numbers: Vec<Option<usize>> = (file.segments.iter())
            .map(|id| places.get(id).copied())
            .collect();
        let own = || numbers.iter().flatten();
        let is_new = own().all(|number| taken.get(*number) == Some(&false));
        if is_new && own().count() * 2 >= numbers.len() {
            for number in own() {
                taken.get_mut(*number).into_iter().for_each(|is| *is = true);
            }
            known.push((file, numbers));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    type Id = [u8; ChunkId::LEN];

    /// The numbered chunks, sorted as in a segment.
    fn segment(numbers: impl Iterator<Item = u32>) -> Vec<Id> {
        let mut ids: Vec<Id> = numbers.map(id).collect();
        ids.sort_unstable();
        ids
    }

    fn id(number: u32) -> Id {
        ChunkId::of(&number.to_le_bytes()).0
    }

    fn name(number: usize) -> SegmentId {
        SegmentId((number as u128).to_be_bytes())
    }

    fn hash_index(segments: &[Vec<Id>]) -> HashIndex {
        let sizes: Vec<u64> = segments.iter().map(|ids| ids.len() as u64).collect();
        of_sizes(&sizes, None)
    }

    fn of_sizes(sizes: &[u64], dir: Option<&Path>) -> HashIndex {
        let segments: Vec<_> = (0..)
            .map(name)
            .zip(sizes.iter().copied().map(Some))
            .collect();
        HashIndex::new(&segments, dir)
    }

    fn ask(hash_index: &HashIndex, segments: &[Vec<Id>], times: u64) {
        for _ in 0..times {
            hash_index.asked_each(|own| {
                let of = |number: &usize| (name(*number), segments[*number].iter());
                own.iter().map(of).collect()
            });
        }
    }

    /// The segments that are searched for a chunk.
    fn led(hash_index: &HashIndex, id: Id) -> Vec<usize> {
        let mut led = hash_index.unguided().to_vec();
        let asked: Result<(), ()> = hash_index.ask(&ChunkId(id), &mut |number| {
            led.push(number);
            Ok(())
        });
        asked.unwrap();
        led
    }

    #[test]
    fn the_table_leads_to_every_segment_that_holds_a_chunk_and_to_few_others() {
        // Chunk 7 is in all segments; every fifth chunk is in two.
        let segments: Vec<Vec<Id>> = (0..40_u32)
            .map(|at| {
                let own = at * 1000 + 10..at * 1000 + 1010 - at;
                let twice = (at * 1000 + 1010..at * 1000 + 2010).filter(|number| number % 5 == 0);
                segment(own.chain(twice).chain([7]))
            })
            .collect();
        let hash_index = hash_index(&segments);
        assert_eq!((hash_index.alone.len(), hash_index.own.len()), (0, 40));
        let enough = hash_index.chunks / CHUNKS_A_LOOKUP / 40;
        ask(&hash_index, &segments, enough);
        assert!(hash_index.table().is_none(), "not worth it yet");
        ask(&hash_index, &segments, 1);
        assert!(hash_index.table().is_some() && hash_index.unguided().is_empty());
        let mut wrong = 0;
        for number in 0..45_000 {
            let id = id(number);
            let led = led(&hash_index, id);
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
        let first = |sizes: &[u64]| of_sizes(sizes, None).alone.len();
        assert_eq!(first(&sizes), 1);
        assert_eq!(of_sizes(&sizes, None).own.len(), 10);
        let large = vec![fits * 12; 9];
        assert_eq!(first(&large), 9, "too few fit");
        assert_eq!(first(&[1; SEGMENTS_LEAST - 1]), SEGMENTS_LEAST - 1);
        assert_eq!(first(&[1; SEGMENTS_LEAST]), 0);
        assert_eq!(first(&[0; SEGMENTS_MOST + 3]), 3);
        assert_eq!(first(&[u64::MAX; 20]), 20);
    }

    #[test]
    fn with_a_cache_it_takes_all_but_what_is_larger_than_all_others() {
        let dir = tempfile::tempdir().unwrap();
        let fits = SLOTS_MAX * 2 / 3 / 20;
        let first = |sizes: &[u64]| {
            let index = of_sizes(sizes, Some(dir.path()));
            (index.alone.len(), index.dir.is_some())
        };
        assert_eq!(first(&[fits; 15]), (0, false), "memory will do");
        assert_eq!(first(&[fits * 12; 9]), (0, true));
        let sizes = |large: &[u64]| [large, &[fits * 3; 8]].concat();
        assert_eq!(first(&sizes(&[fits * 25])), (1, true));
        assert_eq!(first(&sizes(&[fits * 99, fits * 25])), (2, true));
        assert_eq!(first(&sizes(&[fits * 99, fits * 20])), (1, true));
        assert_eq!(first(&[fits; SEGMENTS_MOST + 3]), (3, true));
        assert_eq!(first(&[fits * 12; 7]), (7, false), "too few");
    }

    #[test]
    fn a_table_in_a_file_is_used_while_half_of_its_segments_live_and_leads_as_one_in_memory_does() {
        let dir = tempfile::tempdir().unwrap();
        let segments: Vec<Vec<Id>> = (0..20_u32)
            .map(|at| segment((at * 900 + 10..at * 900 + 1010).chain([7])))
            .collect();
        let ids = || segments.iter().map(|ids| ids.iter());
        let chunks: u64 = segments.iter().map(|ids| ids.len() as u64).sum();
        let held = Table::held(chunks, ids()).unwrap();
        let names: Vec<SegmentId> = (0..20).map(name).collect();
        let written = TableFile::write(dir.path(), names.clone(), chunks, ids());
        let written = written.unwrap().unwrap();
        let of = |table: &Table, number| table.segments(&ChunkId(id(number))).collect::<Vec<_>>();
        for number in 0..30_000 {
            assert_eq!(of(&held, number), of(&written.table, number));
        }
        assert_eq!(of(&held, 7).len(), 20);
        // Ten of the twenty segments are live, with other numbers than when the table was built, and there are new
        // ones.
        let now = |alive: usize| -> Vec<(SegmentId, Option<u64>)> {
            let new = (100..112).map(|number| (name(number), Some(5)));
            new.chain((20 - alive..20).map(|number| (name(number), Some(1000))))
                .collect()
        };
        let half = HashIndex::new(&now(10), Some(dir.path()));
        assert!(half.is_by_file());
        assert_eq!(half.own, (0..12).collect::<Vec<_>>());
        assert_eq!(half.files[0].1[9..12], [None, Some(12), Some(13)]);
        let led = led(&half, id(15 * 900 + 500));
        assert!(led.contains(&17), "{led:?}");
        assert!(!HashIndex::new(&now(9), Some(dir.path())).is_by_file());
        // A file that is cut or of another kind is not a table.
        let bytes = std::fs::read(&written.path).unwrap();
        for cut in [0, 10, HEAD_LEN_OF_20, bytes.len() - 1] {
            std::fs::write(&written.path, &bytes[..cut]).unwrap();
            assert!(TableFile::all_in(dir.path()).is_empty(), "{cut}");
        }
        half.forget();
        assert!(!written.path.exists());
    }

    const HEAD_LEN_OF_20: usize = 24 + 16 * 20 + 32;

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
        let dir = tempfile::tempdir().unwrap();
        let ids = segments.iter().map(|ids| ids.iter());
        let written = TableFile::write(dir.path(), vec![name(1)], 10_000, ids);
        assert!(written.unwrap().is_none());
        assert!(TableFile::all_in(dir.path()).is_empty());
    }
}
