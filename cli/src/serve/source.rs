//! Access of the doors to the store: its newest state, and verified bytes of its files.
//!
//! The engine blocks, so it is called on threads that may block. `--memory` limits the bytes that wait for clients.
//! Simultaneous requests share one read of the log. If a pool of this host has a file, its chunks are read from there
//! and verified like all others, since a job may write to a file that it shares with the pool. What was verified once is
//! remembered (`proven`).

use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::{Content, Error, Pool, Reader, Result, Store};

use crate::serve::ahead::{Ahead, Refused, Room, STRETCH_BYTES, Stretch};
use crate::serve::buffer::{Buffer, Buffers};
use crate::serve::memory::{CHUNK_BYTES_MAX, Memory, PIECE_BYTES, Share};
use crate::serve::pass::{Pass, Warm};
use crate::serve::proven::{Near, Proven};

/// The path of mirrors of upstream repos that are not public. Only pull-through looks there.
pub(crate) const GATED: &str = ".gated/";
/// The path of uploads that wait for their commit, below a namespace.
pub(crate) const UPLOADS: &str = ".uploads/";

/// How much of a file is read at once if that takes no thread: as much as the caches of a core hold until it is sent.
const PART_BYTES: u64 = 256 << 10;

/// The largest file that is hashed without a thread for it: to switch to one takes about as long.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// How long a successful check of the store remains valid.
const SEEN_TIME: Duration = Duration::from_secs(2);

/// A stretch that is being read.
type Reading = Pin<Box<dyn Future<Output = Result<Stretch, Refused>> + Send>>;

/// A reader at one state of the store.
pub(crate) type Sight = Arc<Reader<'static>>;

/// The store for the doors.
pub(crate) struct Source {
    store: &'static Store,
    /// Pools that may have files whole.
    pools: Arc<[Pool]>,
    now: RwLock<Sight>,
    /// The number of log reads that have begun, and the number of the last one that ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Whoever reads the log: on threads that may block, and among requests, which wait without one.
    reading: Mutex<()>,
    asking: tokio::sync::Mutex<()>,
    /// When the store was last reachable.
    seen: Mutex<Option<Instant>>,
    memory: Memory,
    /// For pieces and for parts.
    buffers: [Buffers; 2],
    proven: Arc<Proven>,
    /// What is read ahead, if the store is far.
    ahead: Option<Ahead>,
}

impl Source {
    /// Opens the source. It keeps its store for as long as the process lives.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub(crate) fn new(store: Store, pools: Vec<Pool>) -> Result<Self> {
        // Warnings are printed at the end through clones of the store.
        let store: &'static Store = Box::leak(Box::new(store));
        let memory_bytes = store.host().memory_bytes;
        Ok(Self {
            store,
            pools: pools.into(),
            now: RwLock::new(Arc::new(Reader::new(store)?)),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            reading: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            seen: Mutex::new(None),
            memory: Memory::new(memory_bytes / 2),
            buffers: [PIECE_BYTES, PART_BYTES].map(|bytes| Buffers::of(usize_of(bytes))),
            proven: Arc::default(),
            ahead: store.is_far().then(|| Ahead::new(memory_bytes)),
        })
    }

    /// The store.
    pub(crate) fn store(&self) -> &'static Store {
        self.store
    }

    /// The directory of what this host caches of the store.
    pub(crate) fn cache_dir(&self) -> Option<PathBuf> {
        self.store.host().cache_dir_of(self.store.format().id)
    }

    /// A reader at a state that is no older than the call. Blocks.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) fn newest(&self) -> Result<Sight> {
        let asked = self.begun.load(Ordering::SeqCst);
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ended.load(Ordering::SeqCst) > asked {
            // A read that began after this call has already ended.
            return Ok(self.sight());
        }
        self.check_there(SEEN_TIME)?;
        let turn = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let mut view = store::View::clone(&self.sight().view());
        if self.store.refresh(&mut view)? {
            let sight = Arc::new(Reader::at(self.store, view));
            *self.now.write().unwrap_or_else(PoisonError::into_inner) = sight;
        }
        self.ended.store(turn, Ordering::SeqCst);
        Ok(self.sight())
    }

    /// As [`Self::newest`], without a thread for each request that waits for the same read.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) async fn newest_soon(self: &Arc<Self>) -> Result<Sight> {
        let asked = self.begun.load(Ordering::SeqCst);
        let _turn = self.asking.lock().await;
        if self.ended.load(Ordering::SeqCst) > asked {
            return Ok(self.sight());
        }
        let source = Arc::clone(self);
        block(move || source.newest()).await
    }

    /// Checks that the store was reachable recently: an unreachable store would look like one that never changes.
    /// Blocks.
    ///
    /// # Errors
    /// If the store is unreachable.
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

    /// The next verified bytes of a file from `at` on, at least one and none after `end`.
    ///
    /// # Errors
    /// Those of the engine; corrupt, if the file ends before `end`.
    pub(crate) async fn piece(
        &self,
        sight: Sight,
        content: Content,
        pass: Pass,
        at: u64,
        end: u64,
    ) -> Result<Bytes> {
        if let Some(bytes) = self.small_at_hand(&sight, &content, &pass, at..end) {
            return Ok(bytes);
        }
        if let Some((ahead, held)) = self.ahead.as_ref().zip(pass.held.as_ref())
            && !self.is_warm(&pass.warm, content).await?
        {
            let read = self.stretches(Arc::clone(&sight), content);
            let bytes = ahead.read(held, &content, (at, end), read).await?;
            if let Some(bytes) = bytes {
                return Ok(bytes);
            }
            held.let_go();
        }
        let portion = self.memory.portion();
        let last = end.min(at.saturating_add(portion.wanted + portion.more));
        let (share, last) = self.memory.share(&pass.own, at, last).await?;
        let [buffers, _] = self.buffers.clone();
        let (pools, proven) = (Arc::clone(&self.pools), Arc::clone(&self.proven));
        block(move || {
            let near = pass.warm.file(&pools, &content);
            let mut buffer = buffers.take(usize_of(last - at));
            let wanted = at..last.min(at.saturating_add(portion.wanted));
            let is_proven =
                near.is_some_and(|file| proven.read(&content, file, &wanted, &mut buffer));
            if !is_proven {
                let near = near.map(|file| Near::new(&proven, &content, file));
                read_into(&mut buffer, &sight, near, &content, wanted, last)?;
            }
            Ok(share.with_buffer(buffer, buffers))
        })
        .await
    }

    /// The next bytes of a file from `at` on and none after `end`, if they are in memory and need no hash. Does not
    /// block.
    pub(crate) fn at_hand(
        &self,
        content: &Content,
        pass: &Pass,
        at: u64,
        end: u64,
    ) -> Option<Bytes> {
        let file = pass.warm.0.get()?.as_ref()?;
        let wanted = self.memory.portion().wanted.min(PART_BYTES);
        let last = self.proven.end(content, at)?.min(end);
        let last = last.min(at.saturating_add(wanted));
        let (share, last) = self.memory.share_soon(&pass.own, at, last)?;
        let [_, buffers] = self.buffers.clone();
        let mut buffer = buffers.take(usize_of(last - at));
        if !self.proven.read(content, file, &(at..last), &mut buffer) {
            buffers.give_back(&mut buffer);
            return None;
        }
        Some(share.with_buffer(buffer, buffers))
    }

    /// Bytes of a small file, if the frame that has them is in memory: a pool need not be asked then, and no other thread.
    fn small_at_hand(
        &self,
        sight: &Sight,
        content: &Content,
        pass: &Pass,
        wanted: Range<u64>,
    ) -> Option<Bytes> {
        if content.size > SMALL_BYTES_MAX {
            return None;
        }
        let bytes = sight.at_hand(content)?;
        let (share, last) = self
            .memory
            .share_soon(&pass.own, wanted.start, wanted.end)?;
        let part = bytes.get(usize_of(wanted.start)..usize_of(last))?;
        Some(match part.len() == bytes.len() {
            true => share.with(bytes),
            false => share.with(part.to_vec()),
        })
    }

    /// Whether a pool of this host has the file.
    async fn is_warm(&self, warm: &Warm, content: Content) -> Result<bool> {
        if let Some(found) = warm.0.get() {
            return Ok(found.is_some());
        }
        let (warm, pools) = (warm.clone(), Arc::clone(&self.pools));
        block(move || Ok(warm.file(&pools, &content).is_some())).await
    }

    /// How to read the stretches of a file.
    fn stretches(&self, sight: Sight, content: Content) -> impl Fn(u64, Room) -> Reading {
        let memory = self.memory.clone();
        move |number, room| {
            let (sight, memory) = (Arc::clone(&sight), memory.clone());
            Box::pin(async move {
                let share = match room {
                    Room::Ahead(permit) => Share(permit),
                    Room::Waiting => memory.share_now(STRETCH_BYTES).ok_or(Refused::NoRoom)?,
                };
                let read = block(move || {
                    let (start, bytes) = sight.stretch(&content, number, STRETCH_BYTES)?;
                    let bytes = share.with(bytes);
                    Ok(Stretch { start, bytes })
                });
                read.await.map_err(Refused::Failed)
            })
        }
    }

    /// Begins a pass over a file.
    pub(crate) fn pass(&self) -> Pass {
        Pass::new(self.ahead.as_ref().map(Ahead::client))
    }

    /// The memory for bytes that wait for clients.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether there is memory to read ahead.
    pub(crate) fn has_room(&self) -> bool {
        self.memory.is_mostly_left()
    }
}

/// Runs blocking work on a thread that may block.
///
/// # Errors
/// Those of `work`; unavailable, if it panicked.
pub(crate) async fn block<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => Err(Error::unavailable("the work on a request").because(panic)),
    }
}

/// The bytes of `content` from `at` on: at least `wanted`, up to the end of a chunk, and none after `end`.
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

/// Fills the empty `buffer` with the bytes of `content` in `wanted` and up to the end of the last chunk, none after
/// `end`. Chunks are read from the pool file `near` if it has them.
fn read_into(
    buffer: &mut Buffer,
    reader: &Reader<'_>,
    mut near: Option<Near<'_>>,
    content: &Content,
    wanted: Range<u64>,
    end: u64,
) -> Result<()> {
    reader.chunks_in(content, &wanted, &mut |id, start, size| {
        let near = near.as_mut().filter(|_| size <= CHUNK_BYTES_MAX);
        let is_near = near.is_some_and(|near| {
            let into = buffer.room(usize_of(size));
            near.read(&id, start, into)
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
    use store::{Host, PutRequest, Unwatched, put, remote};

    use super::*;

    /// Each sees what was there when it came, however many come at once, and they share reads of the log.
    #[test]
    fn requests_share_reads_of_the_log_that_begin_after_they_came() {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().join("store").display().to_string();
        let options = remote::Options {
            create: true,
            ..remote::Options::default()
        };
        let remote = remote::open(&url, &options).unwrap();
        let store = Store::create(&remote, Host::default()).unwrap();
        let other = Store::open(remote, Host::default()).unwrap();
        let source = Arc::new(Source::new(store, Vec::new()).unwrap());
        let file = dir.path().join("file");
        crate::serve::runtime().unwrap().block_on(async {
            for round in 0_u64..10 {
                std::fs::write(&file, round.to_string()).unwrap();
                let request = PutRequest::new(&file, "project/a/b".parse().unwrap());
                put(&other, &request, &Unwatched).unwrap();
                let before = source.begun.load(Ordering::SeqCst);
                let asked: Vec<_> = (0..40)
                    .map(|_| {
                        let source = Arc::clone(&source);
                        tokio::spawn(async move { source.newest_soon().await })
                    })
                    .collect();
                for one in asked {
                    let seen = one.await.unwrap().unwrap().view().state.number;
                    assert!(seen > round, "round {round}: it sees entry {seen}");
                }
                let reads = source.begun.load(Ordering::SeqCst) - before;
                assert!((1..40).contains(&reads), "{reads} reads");
            }
        });
    }
}
