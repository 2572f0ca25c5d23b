//! Whether the segments that somebody relies on are what was written, down to the last byte, and whether the store still
//! has those of which this host has a copy. A small JSON file in the cache of this host says which were read recently.
//!
//! Reading 200 MB takes longer than a put of which nothing has changed. So a segment is not read again for a day while
//! its file is the same. Losing the JSON file only costs time.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::there::{self, Needed};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{SEGMENTS_PREFIX, segment_key};
use crate::fs::{read_regular, write_atomically};
use crate::id::SegmentId;
use crate::index::{OpenSegment, check_segments};
use crate::remedy::Remedy;
use crate::remote::{Read, is_passing};
use crate::session::Relied;
use crate::store::Store;

/// Segments of at most this many bytes together are always read: that takes a few milliseconds.
const ALWAYS_BYTES: u64 = 8 << 20;
/// Segments of more bytes together are never read by a put: that would take longer than a tenth of a second.
const BYTES_MAX: u64 = 256 << 20;
/// Bytes of an object that are fetched at once to compare them.
const COMPARED_BYTES: usize = 16 << 20;
/// A disk may damage a file without changing its times, so a file is read again after this time.
const AGE_SECS_MAX: i64 = 24 * 3600;
/// Most bytes of the JSON file. It takes 150 bytes per segment.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// How far what a store has is compared with the copies of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Lengths,
    Bytes,
}

/// Fails when a segment that `relied` relies on is not what was written. Such a segment may give wrong locations, so
/// that what is put or kept by it could not be read.
pub(crate) fn check(store: &Store, relied: &Relied, compared: Compared) -> Result<()> {
    let segments = relied.segments();
    check_offered(store, &segments, compared)?;
    check_within(store, segments, [ALWAYS_BYTES, BYTES_MAX])
}

/// Fails when this host has a copy of a segment that the store has lost: nobody else could read what relies on it. The
/// bytes of a bundle are compared in any case, since that takes no requests.
pub(crate) fn check_offered(
    store: &Store,
    segments: &[Arc<OpenSegment>],
    compared: Compared,
) -> Result<()> {
    let remote = store.remote().as_ref();
    let (mut copied, mut needed) = (Vec::new(), Vec::new());
    for segment in segments.iter().filter(|segment| segment.copy().is_some()) {
        needed.push(Needed {
            id: segment.id,
            key: segment_key(segment.id),
            bytes: bytes_of(segment),
        });
        copied.push(segment);
    }
    if needed.is_empty() {
        return Ok(());
    }
    let mut bad = there::broken(remote, SEGMENTS_PREFIX, &needed, segments.len())?;
    if compared == Compared::Bytes || is_passing(&remote.url()) {
        for segment in copied {
            let is_same = match is_copy_of(remote, segment) {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {
                    false
                }
                compared => compared?,
            };
            if !is_same {
                bad.push(segment.id);
            }
        }
    }
    if bad.is_empty() {
        return Ok(());
    }
    // Of what a collector has dropped meanwhile, the commit looks up every chunk again.
    let state = store.state()?;
    match bad.iter().find(|id| state.segments.contains_key(id)) {
        Some(id) => Err(Error::corrupt(format!(
            "{}: is missing or damaged, and only this host has a copy of it: nobody else could read what relies on it",
            segment_key(*id)
        ))
        .hint(Remedy::RepairSegments)),
        None => Ok(()),
    }
}

/// Whether the copy of a segment has the bytes of the object.
fn is_copy_of(remote: &dyn Read, segment: &OpenSegment) -> Result<bool> {
    let key = segment_key(segment.id);
    let mut start = 0;
    for bytes in segment.bytes().chunks(COMPARED_BYTES) {
        let end = start + bytes.len() as u64;
        let found = remote.get_ranges(&key, std::slice::from_ref(&(start..end)))?;
        if found.concat() != bytes {
            return Ok(false);
        }
        start = end;
    }
    Ok(true)
}

/// Segments of up to `always` bytes together are always read; of up to `most` bytes, unless they were read recently;
/// otherwise they are not read.
fn check_within(
    store: &Store,
    segments: Vec<Arc<OpenSegment>>,
    [always, most]: [u64; 2],
) -> Result<()> {
    let bytes: u64 = segments.iter().map(bytes_of).sum();
    if bytes <= always {
        return check_segments(&segments);
    }
    match bytes <= most {
        true => check_remembered(store, segments),
        false => Ok(()),
    }
}

fn check_remembered(store: &Store, segments: Vec<Arc<OpenSegment>>) -> Result<()> {
    let dir = store.host().cache_dir_of(store.format().id);
    let Some(path) = dir.map(|dir| dir.join("segments-read.json")) else {
        return check_segments(&segments);
    };
    let now = Timestamp::now().as_second();
    let mut record = Record::load(&path);
    // Looked at before the segments are read, so that a file which changes meanwhile is read again next time.
    let files: Vec<_> = segments
        .iter()
        .map(|segment| (segment.id, file_of(store, segment)))
        .collect();
    let is_new = |(segment, (id, file)): (Arc<OpenSegment>, &(SegmentId, Option<ReadFile>))| {
        let known = file
            .as_ref()
            .is_some_and(|file| record.knows(*id, file, now));
        (!known).then_some(segment)
    };
    let new: Vec<_> = segments
        .into_iter()
        .zip(&files)
        .filter_map(is_new)
        .collect();
    check_segments(&new)?;
    if !new.is_empty() {
        record.read(files, now);
        // If the record cannot be written, they are read again.
        let _forgotten = record.save(&path);
    }
    Ok(())
}

fn bytes_of(segment: &Arc<OpenSegment>) -> u64 {
    segment.bytes().len() as u64
}

/// The file from which the bytes of a segment are mapped, as it is now.
fn file_of(store: &Store, segment: &OpenSegment) -> Option<ReadFile> {
    let own: Option<PathBuf> = segment.copy().map(Path::to_owned);
    let path = own.or_else(|| store.remote().local_path(&segment_key(segment.id)))?;
    ReadFile::of(&path)
}

/// Tells a file from other files, and from its earlier content.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct ReadFile {
    device: u64,
    inode: u64,
    size: u64,
    /// Modification and change time: each in seconds since 1970, and nanoseconds.
    times: [i64; 4],
}

impl ReadFile {
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            times: [
                found.mtime(),
                found.mtime_nsec(),
                found.ctime(),
                found.ctime_nsec(),
            ],
        })
    }
}

/// Segments that were read and found whole: the file, and the time in seconds since 1970.
#[derive(Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
struct Record(BTreeMap<SegmentId, (ReadFile, i64)>);

impl Record {
    /// Loads the record; an unreadable one counts as empty.
    fn load(path: &Path) -> Self {
        let bytes = read_regular(path, RECORD_BYTES_MAX).ok();
        let known = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        known.unwrap_or_default()
    }

    fn knows(&self, id: SegmentId, file: &ReadFile, now: i64) -> bool {
        self.0.get(&id).is_some_and(|(read, at)| {
            read == file && (0..AGE_SECS_MAX).contains(&now.saturating_sub(*at))
        })
    }

    /// Records that all of `files` are whole. Those that were not read now keep their time; other segments are
    /// forgotten.
    fn read(&mut self, files: Vec<(SegmentId, Option<ReadFile>)>, now: i64) {
        let before = std::mem::take(self);
        let known = files.into_iter().filter_map(|(id, file)| {
            let file = file?;
            let at = match before.knows(id, &file, now) {
                true => before.0.get(&id).map_or(now, |(_, at)| *at),
                false => now,
            };
            Some((id, (file, at)))
        });
        self.0 = known.collect();
    }

    fn save(&self, path: &Path) -> Result<()> {
        match serde_json::to_vec(self) {
            Ok(bytes) => write_atomically(path, &bytes),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Who;
    use crate::progress::Unwatched;
    use crate::put::{PutRequest, put};
    use crate::remote::{Objects, Write};
    use crate::store::Host;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn a_file_is_known_for_a_day_as_long_as_it_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (path, record_path) = (dir.path().join("segment"), dir.path().join("record"));
        let id = SegmentId([1; 16]);
        std::fs::write(&path, "bytes").unwrap();
        let file = || ReadFile::of(&path).unwrap();
        let mut record = Record::load(&record_path);
        assert!(!record.knows(id, &file(), NOW));
        record.read(vec![(id, Some(file()))], NOW);
        record.save(&record_path).unwrap();
        let mut record = Record::load(&record_path);
        assert!(record.knows(id, &file(), NOW));
        assert!(record.knows(id, &file(), NOW + AGE_SECS_MAX - 1));
        assert!(!record.knows(id, &file(), NOW + AGE_SECS_MAX));
        assert!(!record.knows(id, &file(), NOW - 1));
        assert!(!record.knows(SegmentId([2; 16]), &file(), NOW));
        // A segment that is known already keeps its time.
        record.read(vec![(id, Some(file()))], NOW + 10);
        assert!(!record.knows(id, &file(), NOW + AGE_SECS_MAX));
        // The same bytes, written again.
        let old = file();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "bytes").unwrap();
        assert_ne!(file(), old);
        assert!(!record.knows(id, &file(), NOW));
        record.read(Vec::new(), NOW);
        assert_eq!(record, Record::default());
    }

    /// A store with one version, whose cache is in `dir`.
    fn store_at(remote: Arc<dyn Write>, dir: &Path) -> Store {
        let host = Host {
            cache_dir: Some(dir.join("cache")),
            who: Who::default(),
            memory_bytes: 32 << 20,
            threads: 2,
            stop: Arc::default(),
        };
        let store = Store::init(remote, host).unwrap();
        std::fs::write(dir.join("source"), "some bytes").unwrap();
        let request = PutRequest::new(dir.join("source"), "team/t/r".parse().unwrap());
        put(&store, &request, &Unwatched).unwrap();
        store
    }

    /// The only segment, as it is now.
    fn segment_of(store: &Store) -> Arc<OpenSegment> {
        let index = store.view().unwrap().index;
        let mut segments = index.segments();
        let first = segments.next().unwrap().clone();
        assert!(segments.next().is_none());
        first
    }

    fn record_path(store: &Store) -> PathBuf {
        let dir = store.host().cache_dir_of(store.format().id).unwrap();
        dir.join("segments-read.json")
    }

    #[test]
    fn a_segment_is_read_unless_it_was_lately_or_all_are_too_many_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Objects::directory(&dir.path().join("store")).unwrap();
        let store = store_at(Arc::new(remote), dir.path());
        let id = segment_of(&store).id;
        let path = dir.path().join("store").join(segment_key(id));
        let whole = std::fs::read(&path).unwrap();
        let bytes = whole.len() as u64;
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let check = |always, most| check_within(&store, vec![segment_of(&store)], [always, most]);
        for (always, most) in [(bytes, 0), (0, bytes), (0, u64::MAX)] {
            let error = check(always, most).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        }
        check(0, bytes - 1).unwrap();
        assert_eq!(Record::load(&record_path(&store)), Record::default());
        // What was read is remembered, and what is remembered is not read.
        std::fs::write(&path, &whole).unwrap();
        check(0, bytes).unwrap();
        let file = || ReadFile::of(&path).unwrap();
        let now = Timestamp::now().as_second();
        assert!(Record::load(&record_path(&store)).knows(id, &file(), now));
        std::fs::write(&path, &damaged).unwrap();
        check(0, bytes).unwrap_err();
        let record = Record(BTreeMap::from([(id, (file(), now))]));
        record.save(&record_path(&store)).unwrap();
        check(0, bytes).unwrap();
        check(bytes, bytes).unwrap_err();
    }

    #[test]
    fn of_a_segment_that_is_far_away_the_copy_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let store = store_at(Arc::new(Objects::memory()), dir.path());
        let segment = segment_of(&store);
        let cache = store.host().cache_dir_of(store.format().id).unwrap();
        let copy = cache.join("segments").join(segment.id.to_string());
        let file = ReadFile::of(&copy).unwrap();
        check_remembered(&store, vec![Arc::clone(&segment)]).unwrap();
        let now = Timestamp::now().as_second();
        assert!(Record::load(&record_path(&store)).knows(segment.id, &file, now));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        std::fs::write(&path, "{").unwrap();
        assert_eq!(Record::load(&path), Record::default());
    }
}
