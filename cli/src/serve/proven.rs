//! Parts of pool files that were verified, so that they are not hashed again for each client.
//!
//! A part is remembered with the state of its file, since a job may write to a file that it shares with the pool. It is
//! sent without a hash only if the file is in this state before and after it is read; its bytes are in a buffer by
//! then, where no job can change them. (With `sendfile` a job could: the client receives what is in the file when it
//! reads, however long ago the server sent it.) Only what the system has in memory is read so. What comes from the disk
//! anew is hashed, which is faster than the disk.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{ReadWriteFlags, preadv2};
use store::{ChunkId, Content, Steady};

use crate::serve::buffer::Buffer;

/// The least size of a file that is remembered. Smaller ones are hashed in no time.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Maximum number of files; the one that was not asked for the longest is forgotten.
const FILES_MAX: usize = 2048;
/// Maximum number of files that are written back at once.
const SOUGHT_MAX: usize = 4;
/// Maximum number of separate parts of a file.
const PARTS_MAX: usize = 32;

/// How long a part counts as verified. The system may drop it from memory and read it from the disk again, for whoever
/// asks, and by then the disk may have other bytes.
const AGE_MAX: Duration = Duration::from_secs(10);

/// What is remembered.
pub(super) struct Proven {
    files: Mutex<Files>,
    age_max: Duration,
}

impl Default for Proven {
    fn default() -> Self {
        Self::until(AGE_MAX)
    }
}

#[derive(Default)]
struct Files {
    files: HashMap<Content, Proof>,
    /// The files whose states are being found.
    sought: HashSet<Content>,
    /// The number of calls so far.
    now: u64,
}

/// The verified parts of a file in one state.
struct Proof {
    state: Steady,
    parts: Parts,
    /// When the first of them was remembered, or before.
    began: Instant,
    used: u64,
}

/// Ranges that neither overlap nor touch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parts(Vec<Range<u64>>);

impl Parts {
    /// Adds a range, unless it would be one too many.
    fn add(&mut self, range: Range<u64>) {
        let first = self.0.partition_point(|part| part.end < range.start);
        let after = self.0.partition_point(|part| part.start <= range.end);
        let joined = self.0.get(first..after).unwrap_or_default();
        if joined.is_empty() && self.0.len() >= PARTS_MAX {
            return;
        }
        let start = joined.first().map_or(range.start, |part| part.start);
        let end = joined.last().map_or(range.end, |part| part.end);
        let whole = start.min(range.start)..end.max(range.end);
        self.0.splice(first..after, [whole]);
    }

    /// The end of the part that has the byte `at`.
    fn end(&self, at: u64) -> Option<u64> {
        let part = self.0.iter().find(|part| part.contains(&at))?;
        Some(part.end)
    }
}

impl Proven {
    /// Remembers parts for so long.
    fn until(age_max: Duration) -> Self {
        let files = Mutex::default();
        Self { files, age_max }
    }

    /// The state of a pool file with this content, if it is known. To be called before its bytes are read. If it is not
    /// known, a thread finds it for those who read later: a large file takes long to be written back, and no client
    /// waits for that.
    fn state(self: &Arc<Self>, content: &Content, file: &File) -> Option<Steady> {
        if content.size < FILE_BYTES_MIN {
            return None;
        }
        let known = self.files().files.get(content).map(|proof| proof.state);
        let known = known.filter(|state| state.is_of(file));
        if known.is_none() {
            self.find(content, file);
        }
        known
    }

    fn find(self: &Arc<Self>, content: &Content, file: &File) {
        let Ok(file) = file.try_clone() else { return };
        {
            let mut files = self.files();
            if files.sought.len() >= SOUGHT_MAX || !files.sought.insert(*content) {
                return;
            }
        }
        let (proven, content) = (Arc::clone(self), *content);
        tokio::task::spawn_blocking(move || {
            let state = Steady::of(&file);
            let mut files = proven.files();
            files.sought.remove(&content);
            if let Some(state) = state {
                files.proof(&content, state);
            }
        });
    }

    /// Remembers parts that were read and verified after the file was in this state.
    fn add(&self, content: &Content, file: &File, state: Steady, parts: Parts) {
        if parts.0.is_empty() || !state.is_of(file) {
            return;
        }
        let mut files = self.files();
        let proof = files.proof(content, state);
        if proof.began.elapsed() > self.age_max {
            (proof.parts, proof.began) = (Parts::default(), Instant::now());
        }
        for part in parts.0 {
            proof.parts.add(part);
        }
    }

    /// Forgets a file with a wrong byte: the next clients get what is hashed.
    fn forget(&self, content: &Content) {
        self.files().files.remove(content);
    }

    /// The end of the verified part that has the byte `at`.
    pub(super) fn end(&self, content: &Content, at: u64) -> Option<u64> {
        self.part(content, at).map(|(_, end)| end)
    }

    /// Fills the empty `buffer` with the bytes in `range`, or the first of them, if they were verified and are in
    /// memory. Returns whether there are any. Never waits for the disk.
    pub(super) fn read(
        &self,
        content: &Content,
        file: &File,
        range: &Range<u64>,
        buffer: &mut Buffer,
    ) -> bool {
        let Some((state, end)) = self.part(content, range.start) else {
            return false;
        };
        let Ok(len) = usize::try_from(end.min(range.end).saturating_sub(range.start)) else {
            return false;
        };
        if !state.is_of(file) {
            return false;
        }
        let mut into = [IoSliceMut::new(buffer.room(len))];
        let read = preadv2(file, &mut into, range.start, ReadWriteFlags::NOWAIT);
        match read {
            Ok(read) if read > 0 && state.is_of(file) => {
                buffer.fill(&(0..read.min(len)));
                true
            }
            _ => false,
        }
    }

    fn part(&self, content: &Content, at: u64) -> Option<(Steady, u64)> {
        let mut files = self.files();
        let now = files.tick();
        let proof = files.files.get_mut(content)?;
        proof.used = now;
        if proof.began.elapsed() > self.age_max {
            return None;
        }
        Some((proof.state, proof.parts.end(at)?))
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// What is known of a file in this state.
    fn proof(&mut self, content: &Content, state: Steady) -> &mut Proof {
        self.make_room(content);
        let used = self.tick();
        let new = || Proof {
            state,
            parts: Parts::default(),
            began: Instant::now(),
            used,
        };
        let proof = self.files.entry(*content).or_insert_with(new);
        if proof.state != state {
            *proof = new();
        }
        proof
    }

    /// Forgets a file, if there is no room for another one.
    fn make_room(&mut self, content: &Content) {
        if self.files.len() < FILES_MAX || self.files.contains_key(content) {
            return;
        }
        let oldest = self.files.iter().min_by_key(|(_, proof)| proof.used);
        if let Some(content) = oldest.map(|(content, _)| *content) {
            self.files.remove(&content);
        }
    }
}

/// A pool file that chunks are read from. Remembers at its end which of them were right.
pub(super) struct Near<'n> {
    proven: &'n Proven,
    content: &'n Content,
    file: &'n File,
    /// Its state before anything was read.
    state: Option<Steady>,
    right: Parts,
    /// Whether a chunk has other bytes, or cannot be read.
    is_wrong: bool,
}

impl<'n> Near<'n> {
    pub(super) fn new(proven: &'n Arc<Proven>, content: &'n Content, file: &'n File) -> Self {
        Self {
            proven,
            content,
            file,
            state: proven.state(content, file),
            right: Parts::default(),
            is_wrong: false,
        }
    }

    /// Reads a chunk into `into`. Returns whether it has the right bytes.
    pub(super) fn read(&mut self, id: &ChunkId, start: u64, into: &mut [u8]) -> bool {
        let is_right = self.file.read_exact_at(into, start).is_ok() && ChunkId::of(into) == *id;
        if is_right {
            self.right
                .add(start..start.saturating_add(into.len() as u64));
        }
        self.is_wrong |= !is_right;
        is_right
    }
}

impl Drop for Near<'_> {
    fn drop(&mut self) {
        if self.is_wrong {
            // The system may have read more of it from the disk meanwhile.
            self.proven.forget(self.content);
        } else if let Some(state) = self.state {
            let right = std::mem::take(&mut self.right);
            self.proven.add(self.content, self.file, state, right);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// The mtime of pool files.
    const POOL_SECS: u64 = 315_532_800;

    fn content(number: u64) -> Content {
        Content {
            root: ChunkId::of(&number.to_le_bytes()),
            depth: 1,
            size: FILE_BYTES_MIN,
        }
    }

    fn parts(ranges: &[(u64, u64)]) -> Parts {
        let mut parts = Parts::default();
        for (start, end) in ranges {
            parts.add(*start..*end);
        }
        parts
    }

    #[test]
    fn parts_join_and_are_bounded() {
        let found = parts(&[(10, 20), (40, 50), (0, 5), (20, 30)]);
        assert_eq!(found.0, [0..5, 10..30, 40..50]);
        assert_eq!(
            [0, 5, 10, 29, 30, 45].map(|at| found.end(at)),
            [Some(5), None, Some(30), Some(30), None, Some(50)]
        );
        assert_eq!(
            parts(&[(10, 20), (30, 40), (50, 60), (15, 55)]),
            parts(&[(10, 60)])
        );
        assert_eq!(parts(&[(10, 20), (12, 15)]), parts(&[(10, 20)]));
        let many: Vec<_> = (0..100)
            .map(|number| (number * 10, number * 10 + 5))
            .collect();
        let mut full = parts(&many);
        assert_eq!(full.0.len(), PARTS_MAX);
        full.add(0..1000);
        assert_eq!(full, parts(&[(0, 1000)]));
    }

    /// The file systems that hide no changes: ext4, XFS, btrfs.
    const STEADY: [i64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

    /// A file like one of a pool, and its state; none on a file system that may hide changes.
    fn steady() -> Option<(File, Steady)> {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all_at(&[1; 1000], 0).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(POOL_SECS))
            .unwrap();
        std::thread::sleep(Duration::from_millis(2100));
        let kind = rustix::fs::fstatfs(&file).unwrap().f_type;
        let state = Steady::of(&file);
        assert_eq!(state.is_some(), STEADY.contains(&kind), "{kind:x}");
        Some((file, state?))
    }

    #[test]
    fn only_what_was_verified_in_the_same_state_is_read() {
        let Some((file, state)) = steady() else {
            return;
        };
        let (proven, of) = (Proven::default(), content(0));
        let read = |range: Range<u64>| {
            let mut buffer = Buffer::default();
            let is_read = proven.read(&of, &file, &range, &mut buffer);
            is_read.then(|| buffer.filled().to_vec())
        };
        assert_eq!(read(0..10), None);
        proven.add(&of, &file, state, parts(&[(100, 200)]));
        assert_eq!(read(0..150), None);
        assert_eq!(read(150..160), Some(vec![1; 10]));
        assert_eq!(read(150..900), Some(vec![1; 50]));
        assert_eq!(proven.end(&content(1), 150), None);
        file.write_all_at(&[2], 990).unwrap();
        assert_eq!(read(150..160), None);
        proven.add(&of, &file, state, parts(&[(200, 300)]));
        assert_eq!(proven.end(&of, 250), None);
    }

    #[test]
    fn a_part_is_remembered_for_a_while_and_not_beside_a_wrong_one() {
        let Some((file, state)) = steady() else {
            return;
        };
        let of = content(0);
        let proven = Arc::new(Proven::until(Duration::from_millis(500)));
        let has = || proven.end(&of, 5).is_some();
        proven.add(&of, &file, state, parts(&[(0, 100)]));
        assert!(has());
        let mut near = Near::new(&proven, &of, &file);
        assert!(!near.read(&ChunkId::of(b"other"), 200, &mut [0; 10]));
        drop(near);
        assert!(!has());
        proven.add(&of, &file, state, parts(&[(0, 100)]));
        std::thread::sleep(Duration::from_millis(600));
        assert!(!has());
        proven.add(&of, &file, state, parts(&[(200, 300)]));
        assert!(!has() && proven.end(&of, 250).is_some());
    }

    #[test]
    fn the_file_that_nobody_asks_for_is_forgotten() {
        let Some((file, state)) = steady() else {
            return;
        };
        let proven = Proven::default();
        let has = |number| proven.end(&content(number), 5).is_some();
        for number in 0..FILES_MAX as u64 {
            proven.add(&content(number), &file, state, parts(&[(0, 10)]));
        }
        assert!(has(0));
        proven.add(&content(1_000_000), &file, state, parts(&[(0, 10)]));
        assert!(has(0) && has(1_000_000) && !has(1));
        assert_eq!(proven.files().files.len(), FILES_MAX);
    }
}
