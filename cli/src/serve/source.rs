//! The way from the doors to the store: its newest state, and verified bytes of its files.
//!
//! The engine blocks, so it is called on threads that may; how many bytes wait for clients is bounded by `--memory`.
//! Requests that come at once share one look at the log. Of files that a pool of this host has the chunks are read from
//! there, and verified as all others are: a job may write to a file that it shares with the pool.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::{ChunkId, Content, Error, Pool, Reader, Result, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serve::buffer::{Buffer, Buffers};

/// Below it lie mirrors of repos that the upstream does not show to everybody; only pull-through looks there.
pub(crate) const GATED: &str = ".gated/";
/// Refs of uploads that wait for their commit, below a namespace.
pub(crate) const UPLOADS: &str = ".uploads/";
/// In what the memory for pieces is counted.
const UNIT_BYTES: u64 = 8 << 10;
/// What a piece may be longer where there is room: then it ends with a chunk, and none is read twice.
const CHUNK_BYTES_MAX: u64 = 256 << 10;

/// Bytes that wait for clients, however much memory there is: more of them make nothing quicker.
const WAITING_BYTES_MAX: u64 = 32 << 20;

/// How long a store that was there is taken to be there.
const SEEN_TIME: Duration = Duration::from_secs(2);

/// How much of a file is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Portion {
    wanted: u64,
    /// What it may be longer.
    more: u64,
}

/// A reader at one state of the store.
pub(crate) type Sight = Arc<Reader<'static>>;

/// The store as doors see it.
pub(crate) struct Source {
    store: &'static Store,
    /// Where files lie that this host has whole.
    pools: Arc<[Pool]>,
    now: RwLock<Sight>,
    /// How many looks at the log have begun; which of them ended last.
    begun: AtomicU64,
    ended: Mutex<u64>,
    /// When the store was there last.
    seen: Mutex<Option<Instant>>,
    memory: Arc<Semaphore>,
    units: u64,
    buffers: Buffers,
}

/// The pool file of a content, looked for once.
#[derive(Clone, Default)]
pub(crate) struct Warm(Arc<OnceLock<Option<File>>>);

impl Warm {
    fn file(&self, pools: &[Pool], content: &Content) -> Option<&File> {
        let found = self.0.get_or_init(|| {
            // A pool that cannot be read is none: the store has the bytes, too.
            let mut files = pools
                .iter()
                .filter_map(|pool| pool.open_content(content).ok()?);
            files.next()
        });
        found.as_ref()
    }
}

/// A share of the memory for what waits to be sent.
pub(crate) struct Share(OwnedSemaphorePermit);

impl Share {
    /// Bytes that hold it until they are sent.
    pub(crate) fn with(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held {
            bytes,
            _share: self.0,
        })
    }
}

/// Bytes that hold their share of the memory until they are sent.
struct Held<B> {
    bytes: B,
    _share: OwnedSemaphorePermit,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// A buffer that is used again once it is sent.
struct Lent {
    buffer: Buffer,
    buffers: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.filled()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.buffers.give_back(&mut self.buffer);
    }
}

impl Source {
    /// The doors of a process have one store, which lasts as long as the process.
    ///
    /// # Errors
    /// When its state cannot be read.
    pub(crate) fn new(store: Store, pools: Vec<Pool>) -> Result<Self> {
        // What is told about it at the end is told by its clones.
        let store: &'static Store = Box::leak(Box::new(store));
        let units = (store.host().memory_bytes / 2).min(WAITING_BYTES_MAX) / UNIT_BYTES;
        let units = units.max(16);
        Ok(Self {
            store,
            pools: pools.into(),
            now: RwLock::new(Arc::new(Reader::new(store)?)),
            begun: AtomicU64::new(0),
            ended: Mutex::new(0),
            seen: Mutex::new(None),
            memory: Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(16))),
            units,
            buffers: Buffers::default(),
        })
    }

    /// The store.
    pub(crate) fn store(&self) -> &'static Store {
        self.store
    }

    /// Where this host keeps what it knows of the store.
    pub(crate) fn cache_dir(&self) -> Option<PathBuf> {
        self.store.host().cache_dir_of(self.store.format().id)
    }

    /// A reader at the newest state, as of some moment after the call. Blocks.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn newest(&self) -> Result<Sight> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if *ended > asked {
            // A look that began after the call is over already.
            return Ok(self.sight());
        }
        self.check_there(SEEN_TIME)?;
        let turn = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let mut view = store::View::clone(&self.sight().view());
        if !self.store.refresh(&mut view)?.is_empty() {
            let sight = Arc::new(Reader::at(self.store, view));
            *self.now.write().unwrap_or_else(PoisonError::into_inner) = sight;
        }
        *ended = turn;
        Ok(self.sight())
    }

    /// That the store could be read not long ago: one that is away looks like one in which nothing changes. Blocks.
    ///
    /// # Errors
    /// When it is away.
    pub(crate) fn check_there(&self, not_before: Duration) -> Result<()> {
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen().is_some_and(|at| at.elapsed() < not_before) {
            return Ok(());
        }
        let looked = Instant::now();
        self.store.check_there()?;
        *seen() = Some(looked);
        Ok(())
    }

    fn sight(&self) -> Sight {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next bytes of a file from `at` on, verified, at least one and none behind `end`.
    ///
    /// # Errors
    /// What the engine says; corrupt, where the file ends before `end`.
    pub(crate) async fn piece(
        &self,
        sight: Sight,
        content: Content,
        warm: Warm,
        at: u64,
        end: u64,
    ) -> Result<Bytes> {
        let portion = Portion::of(self.units, self.memory.available_permits() as u64);
        let last = end.min(at.saturating_add(portion.wanted + portion.more));
        let share = self.share(last - at).await?;
        let (pools, buffers) = (Arc::clone(&self.pools), self.buffers.clone());
        block(move || {
            let near = warm.file(&pools, &content);
            let mut buffer = buffers.take(usize_of(last - at));
            let wanted = at..last.min(at.saturating_add(portion.wanted));
            read_into(&mut buffer, &sight, near, &content, wanted, last)?;
            if buffer.is_mostly_empty() {
                // A small part of a chunk is all that waits for a slow client.
                let part = buffer.filled().to_vec();
                buffers.give_back(&mut buffer);
                return Ok(share.with(part));
            }
            Ok(Bytes::from_owner(Held {
                bytes: Lent { buffer, buffers },
                _share: share.0,
            }))
        })
        .await
    }

    /// Memory for so many bytes, once there is some.
    ///
    /// # Errors
    /// Never while the server runs.
    pub(crate) async fn share(&self, bytes: u64) -> Result<Share> {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let share = Arc::clone(&self.memory).acquire_many_owned(units).await;
        let share = share.map_err(|_| Error::interrupted("the server stops"))?;
        Ok(Share(share))
    }

    /// Whether there is memory for what nobody waits for yet.
    pub(crate) fn has_room(&self) -> bool {
        self.memory.available_permits() as u64 * 2 > self.units
    }
}

impl Portion {
    /// Less, the less memory is left: clients that do not take what they asked for must not keep it from others.
    fn of(units: u64, left: u64) -> Self {
        let is_left = |part: u64| left * part > units;
        let (wanted, more) = match () {
            () if is_left(2) => (1 << 20, CHUNK_BYTES_MAX),
            () if is_left(4) => (CHUNK_BYTES_MAX, CHUNK_BYTES_MAX),
            () if is_left(8) => (8 * UNIT_BYTES, 0),
            () => (UNIT_BYTES, 0),
        };
        Self { wanted, more }
    }
}

/// Does what blocks on a thread that may.
///
/// # Errors
/// What `work` says; unavailable, when it panicked.
pub(crate) async fn block<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => Err(Error::unavailable("the work on a request").because(panic)),
    }
}

/// Whether the bytes of a pool file from `start` on are the chunk; then they are in `into`.
fn read_chunk(file: &File, id: &ChunkId, start: u64, into: &mut [u8]) -> bool {
    file.read_exact_at(into, start).is_ok() && ChunkId::of(into) == *id
}

/// The bytes of `content` from `at` to the end of the chunk in which `wanted` of them are reached, none behind `end`.
///
/// # Errors
/// As [`Source::piece`].
pub(crate) fn read(
    reader: &Reader<'_>,
    content: &Content,
    at: u64,
    end: u64,
    wanted: u64,
) -> Result<Vec<u8>> {
    let mut buffer = Buffer::default();
    let wanted = at..end.min(at.saturating_add(wanted));
    read_into(&mut buffer, reader, None, content, wanted, end)?;
    Ok(buffer.into_filled())
}

/// Fills `buffer`, which is empty, with the bytes of `content` in `wanted` and those up to the end of the chunk in which that
/// ends, none behind `end`. Chunks that are in the file that is `near` come from there.
fn read_into(
    buffer: &mut Buffer,
    reader: &Reader<'_>,
    near: Option<&File>,
    content: &Content,
    wanted: Range<u64>,
    end: u64,
) -> Result<()> {
    reader.chunks_in(content, &wanted, &mut |id, start, size| {
        let near = near.filter(|_| size <= CHUNK_BYTES_MAX);
        let is_near = near.is_some_and(|file| {
            let into = buffer.room(usize_of(size));
            read_chunk(file, &id, start, into)
        });
        if !is_near {
            let stored = reader.meta_chunk(&id)?;
            if stored.len() as u64 != size {
                let found = stored.len();
                let message = format!("chunk {id}: {found} bytes, its list says {size}");
                return Err(Error::corrupt(message));
            }
            buffer.room(stored.len()).copy_from_slice(&stored);
        }
        let clip = |place: u64| usize_of(place.saturating_sub(start).min(size));
        buffer.fill(&(clip(wanted.start)..clip(end)));
        Ok(())
    })?;
    match buffer.filled().is_empty() && !wanted.is_empty() {
        true => Err(Error::corrupt(format!(
            "content {}: ends before byte {}",
            content.root, wanted.start
        ))),
        false => Ok(()),
    }
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_follow_the_memory_that_is_left() {
        let wanted = |left| Portion::of(4096, left).wanted;
        let expected = [1 << 20, CHUNK_BYTES_MAX, 64 << 10, UNIT_BYTES, UNIT_BYTES];
        assert_eq!([4096, 2048, 1024, 512, 0].map(wanted), expected);
        assert_eq!(Portion::of(4096, 0).more, 0);
    }
}
