//! Gathered segments: if there are very many segments, copies of all but the largest are kept in one file in the cache.
//!
//! A process can have at most 65,530 mappings, and creating even far fewer takes long. So if a state has more than
//! [`MAPS_MOST`] segments, copies of them are written one after another into a file, which later processes reuse.
//! Writers and collectors keep the number of segments small, so hardly any host ever needs such a file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use rayon::prelude::*;

use super::bytes::{HELD_BYTES_MAX, SegmentBytes};
use crate::error::{Error, Result};
use crate::format::{SegmentInfo, SegmentLayout, segment_key};
use crate::fs::{build_atomically, map, open_regular};
use crate::id::SegmentId;
use crate::remote::Read;

/// More segments than this are not mapped individually.
const MAPS_MOST: usize = 256;
/// How many of the largest segments stay mapped individually. More may be added before the next gathering.
const MAPS_KEPT: usize = 128;
/// Total size of the small segments that may be read into memory; beyond that, they are gathered too.
const HELD_BYTES_SUM: u64 = 64 << 20;

/// The directory in the cache of a store.
pub(super) const DIR: &str = "gathered";
const MAGIC: [u8; 8] = *b"STOREGAT";
const VERSION: u32 = 1;
/// Bytes of magic, version and number of segments.
const HEAD_LEN: usize = 8 + 4 + 4;
/// Bytes of id, offset and length.
const ROW_LEN: usize = 16 + 8 + 8;
/// Segments begin at multiples of this offset.
const ALIGNED: u64 = 64;

/// The segments that do not have a mapping of their own.
#[derive(Default)]
pub(super) struct Gather {
    files: Vec<GatheredFile>,
    /// Segments to read into memory, because there is no cache.
    held: BTreeSet<SegmentId>,
}

/// A file in the cache.
struct GatheredFile {
    path: PathBuf,
    map: Arc<Mmap>,
    segments: BTreeMap<SegmentId, Range<usize>>,
}

impl Gather {
    /// Gathers `segments`, which are about to be opened beside `mapped` segments with mappings. Writes a file if
    /// necessary.
    pub(super) fn of(
        remote: &dyn Read,
        cache_dir: Option<&Path>,
        segments: &[(SegmentId, &SegmentInfo)],
        mapped: usize,
    ) -> Self {
        let held: u64 = (segments.iter().map(|(_, info)| info.bytes))
            .filter(|bytes| *bytes <= HELD_BYTES_MAX)
            .sum();
        let is_small = |bytes: u64| bytes <= HELD_BYTES_MAX && held <= HELD_BYTES_SUM;
        let mut wanted: Vec<(u64, SegmentId)> = (segments.iter())
            .map(|(id, info)| (info.bytes, *id))
            .filter(|(bytes, _)| !is_small(*bytes))
            .collect();
        if mapped + wanted.len() <= MAPS_MOST {
            return Self::default();
        }
        let Some(cache_dir) = cache_dir else {
            let held = wanted.iter().map(|(_, id)| *id).collect();
            return Self {
                held,
                ..Self::default()
            };
        };
        let mut gather = Self {
            files: GatheredFile::all_in(cache_dir),
            ..Self::default()
        };
        (gather.files).retain(|file| wanted.iter().any(|(_, id)| file.segments.contains_key(id)));
        wanted.retain(|(_, id)| gather.place(*id).is_none());
        if mapped + wanted.len() > MAPS_MOST {
            wanted.sort_unstable();
            wanted.truncate(wanted.len() - MAPS_KEPT.saturating_sub(mapped));
            // If there is no space for the file, the segments are mapped while mappings last.
            let made = GatheredFile::write(remote, cache_dir, &wanted);
            gather.files.extend(made.ok().flatten());
        }
        gather
    }

    /// Returns the bytes of a segment and the path of its file, if it is gathered. Fails when the segment must be read
    /// into memory and cannot be read.
    pub(super) fn bytes_of(
        &self,
        remote: &dyn Read,
        id: SegmentId,
    ) -> Result<Option<(SegmentBytes, Option<PathBuf>)>> {
        if self.held.contains(&id) {
            return Ok(Some((
                SegmentBytes::Held(remote.get(&segment_key(id))?),
                None,
            )));
        }
        Ok(self.place(id).map(|(file, range)| {
            let bytes = SegmentBytes::Gathered(Arc::clone(&file.map), range);
            (bytes, Some(file.path.clone()))
        }))
    }

    fn place(&self, id: SegmentId) -> Option<(&GatheredFile, Range<usize>)> {
        let found = |file: &GatheredFile| file.segments.get(&id).cloned();
        self.files
            .iter()
            .find_map(|file| Some((file, found(file)?)))
    }
}

impl GatheredFile {
    /// Copies all intact segments of `wanted` into one file.
    fn write(
        remote: &dyn Read,
        cache_dir: &Path,
        wanted: &[(u64, SegmentId)],
    ) -> Result<Option<Self>> {
        let open = |(len, id): &(u64, SegmentId)| {
            let copy = SegmentBytes::copy_of(remote, Some(cache_dir), *id);
            SegmentBytes::open(remote, copy.as_deref(), *id, *len)
        };
        let is_whole = |(len, id): &&(u64, SegmentId)| {
            let check = || -> Result<()> {
                let bytes = open(&(*len, *id))?;
                let layout = SegmentLayout::parse(&segment_key(*id), bytes.as_slice())?;
                layout.verify(bytes.as_slice())
            };
            check().is_ok()
        };
        let whole: Vec<&(u64, SegmentId)> = wanted.par_iter().filter(is_whole).collect();
        let mut head = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        head.extend_from_slice(&u32::try_from(whole.len()).unwrap_or(u32::MAX).to_le_bytes());
        let body_at = head.len() + whole.len() * ROW_LEN + blake3::OUT_LEN;
        let mut at = (body_at as u64).next_multiple_of(ALIGNED);
        for (len, id) in &whole {
            head.extend_from_slice(&id.0);
            head.extend_from_slice(&at.to_le_bytes());
            head.extend_from_slice(&len.to_le_bytes());
            at = (at + len).next_multiple_of(ALIGNED);
        }
        let sum = blake3::hash(&head);
        let path = cache_dir.join(DIR).join(&*sum.to_hex());
        build_atomically(&path, |file| {
            let failed = |source| Error::io("write", &path, source);
            let mut out = std::io::BufWriter::new(file);
            let mut written = (head.len() + blake3::OUT_LEN) as u64;
            out.write_all(&head).map_err(failed)?;
            out.write_all(sum.as_bytes()).map_err(failed)?;
            for (len, id) in &whole {
                let bytes = open(&(*len, *id))?;
                pad(&mut out, &mut written).map_err(failed)?;
                out.write_all(bytes.as_slice()).map_err(failed)?;
                written += bytes.as_slice().len() as u64;
            }
            pad(&mut out, &mut written).map_err(failed)?;
            out.flush().map_err(failed)
        })?;
        // The individual copies are no longer needed. A copy that cannot be removed only takes space.
        for (_, id) in &whole {
            if let Some(copy) = SegmentBytes::copy_of(remote, Some(cache_dir), *id) {
                drop(std::fs::remove_file(copy));
            }
        }
        Ok(Self::open(&path))
    }

    /// Opens the file at `path`; `None` if it is not a valid one.
    fn open(path: &Path) -> Option<Self> {
        let map = map(&open_regular(path).ok()?, &path.display().to_string()).ok()?;
        let (magic, rest) = map.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_le_bytes(*rest.first_chunk()?)).ok()?;
        if *magic != MAGIC || u32::from_le_bytes(*version) != VERSION {
            return None;
        }
        let rows_end = HEAD_LEN.checked_add(count.checked_mul(ROW_LEN)?)?;
        let (covered, rest) = map.split_at_checked(rows_end)?;
        if *blake3::hash(covered).as_bytes() != *rest.first_chunk::<32>()? {
            return None;
        }
        let row = |row: &[u8; ROW_LEN]| {
            let (id, rest) = row.split_first_chunk::<16>()?;
            let (at, len) = rest.split_first_chunk::<8>()?;
            let at = usize::try_from(u64::from_le_bytes(*at)).ok()?;
            let len = usize::try_from(u64::from_le_bytes(*len.first_chunk()?)).ok()?;
            let end = at.checked_add(len).filter(|end| *end <= map.len())?;
            Some((SegmentId(*id), at..end))
        };
        let (rows, _) = covered.get(HEAD_LEN..)?.as_chunks();
        let segments = rows.iter().map(row).collect::<Option<_>>()?;
        Some(Self {
            path: path.to_owned(),
            map: Arc::new(map),
            segments,
        })
    }

    fn all_in(cache_dir: &Path) -> Vec<Self> {
        let Ok(found) = std::fs::read_dir(cache_dir.join(DIR)) else {
            return Vec::new();
        };
        let open = |entry: std::fs::DirEntry| Self::open(&entry.path());
        found.flatten().filter_map(open).collect()
    }
}

/// Returns the segments in the file at `path`.
pub(super) fn segments_of(path: &Path) -> Option<Vec<SegmentId>> {
    GatheredFile::open(path).map(|file| file.segments.into_keys().collect())
}

/// Writes zeros up to the offset at which the next segment may begin.
fn pad(out: &mut impl std::io::Write, written: &mut u64) -> std::io::Result<()> {
    let next = written.next_multiple_of(ALIGNED);
    let zeros = usize::try_from(next - *written).unwrap_or_default();
    *written = next;
    out.write_all([0; 64].get(..zeros).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::Index;
    use super::super::dropped::forget_dropped;
    use super::*;
    use crate::format::{
        FrameKind, PackHeader, PackKind, PackTrailer, Provenance, SegmentEntry, SegmentFrame,
        SegmentPack, State, write_segment,
    };
    use crate::id::{ChunkId, PackId};
    use crate::remote::Objects;

    /// Slightly too many chunks for a segment that is held in memory.
    const CHUNKS: u64 = HELD_BYTES_MAX / 44;

    fn chunk(segment: u64, at: u64) -> ChunkId {
        ChunkId::of(&[segment.to_le_bytes(), at.to_le_bytes()].concat())
    }

    /// A store of `count` segments in `dir`.
    fn made(dir: &Path, count: u64) -> State {
        let mut state = State {
            number: 1,
            ..State::default()
        };
        std::fs::create_dir(dir.join("segments")).unwrap();
        let frame_len = u32::try_from(CHUNKS).unwrap();
        for number in 0..count {
            let id = SegmentId(u128::from(number).to_be_bytes());
            let packs = [SegmentPack {
                id: PackId::random().unwrap(),
                kind: PackKind::Data,
                len: PackHeader::LEN + frame_len + PackTrailer::LEN,
            }];
            let frames = [SegmentFrame {
                pack: 0,
                offset: PackHeader::LEN,
                stored_len: frame_len,
                raw_len: frame_len,
                kind: FrameKind::Data,
            }];
            let mut ids: Vec<ChunkId> = (0..CHUNKS).map(|at| chunk(number, at)).collect();
            ids.sort_unstable();
            let entry = |(offset, id): (u32, &ChunkId)| SegmentEntry {
                id: *id,
                frame: 0,
                offset,
                len: 1,
            };
            let mut bytes = Vec::new();
            let entries = || (0..).zip(&ids).map(entry);
            let made = Provenance::default();
            let info = write_segment(&mut bytes, id, made, &packs, &frames, &[], entries).unwrap();
            assert!(info.bytes > HELD_BYTES_MAX);
            std::fs::write(dir.join(segment_key(id)), bytes).unwrap();
            state.segments.insert(id, info);
        }
        state
    }

    /// Counts the mappings of this process below `dir`.
    fn maps(dir: &Path) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let dir = dir.to_str().unwrap();
        maps.lines().filter(|line| line.contains(dir)).count()
    }

    #[test]
    fn very_many_segments_take_few_maps_and_are_gathered_once() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        let count = MAPS_MOST as u64 + 100;
        let mut state = made(dir, count);
        let remote = Objects::directory(dir).unwrap();
        let cache = dir.join("cache");
        let open = |state: &State| {
            let none = Index::default();
            Index::open(&remote, Some(&cache), state, &none).unwrap()
        };
        let all_there = |index: &Index, from: u64| {
            for number in from..count {
                let id = chunk(number, number % CHUNKS);
                let (at, _) = index.at(index.position(&id).unwrap().unwrap()).unwrap();
                assert_eq!(at, id, "of segment {number}");
                assert!(index.find(&chunk(number, CHUNKS)).unwrap().is_none());
            }
        };
        let gathered = || {
            let files = std::fs::read_dir(cache.join(DIR)).unwrap();
            let inode = |file: std::fs::DirEntry| {
                use std::os::unix::fs::MetadataExt;
                (file.path(), file.metadata().unwrap().ino())
            };
            files.flatten().map(inode).collect::<Vec<_>>()
        };
        let index = open(&state);
        assert_eq!(maps(dir), MAPS_KEPT + 1);
        all_there(&index, 0);
        let first = gathered();
        drop(index);
        all_there(&open(&state), 0);
        assert_eq!(gathered(), first, "it is made once");
        // Dropped segments are no longer searched.
        (0..10).for_each(|number: u128| {
            state.segments.remove(&SegmentId(number.to_be_bytes()));
        });
        let index = open(&state);
        all_there(&index, 10);
        assert!(index.find(&chunk(3, 3)).unwrap().is_none());
        assert_eq!(gathered(), first);
        // The file stays as long as half of its segments are live, however old it is.
        let forget = |state: &State| {
            let old = std::time::SystemTime::now() - std::time::Duration::from_hours(48);
            for (path, _) in gathered() {
                let file = std::fs::File::open(path).unwrap();
                file.set_modified(old).unwrap();
            }
            forget_dropped(&cache, state);
        };
        forget(&state);
        assert_eq!(gathered(), first);
        // Without a cache, the segments are in memory; a file of another kind is ignored.
        let none = Index::default();
        drop(index);
        let index = Index::open(&remote, None, &state, &none).unwrap();
        assert_eq!(maps(dir), 0);
        all_there(&index, 10);
        let (path, _) = &first[0];
        let bytes = std::fs::read(path).unwrap();
        for cut in [0, 11, HEAD_LEN + 50, bytes.len() - 1000] {
            std::fs::write(path, &bytes[..cut]).unwrap();
            assert!(GatheredFile::open(path).is_none(), "{cut}");
        }
        all_there(&open(&state), 10);
        state.segments.retain(|id, _| id.0[15] < 20);
        forget(&state);
        assert!(gathered().is_empty());
    }
}
