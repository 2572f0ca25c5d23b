//! A file that is arriving: an unnamed file on disk, which clients read while it grows.
//!
//! The bytes wait on disk, so that a slow client delays no other client and holds no memory. The last byte of the file is
//! released only after the whole file is verified: until then, every client's answer is incomplete. So is that to a client
//! who wants a part of the file: its last bytes wait, too, and come one by one, so that the client does not give up.

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use store::{Error, Result};
use tokio::sync::watch;

use crate::serve::memory::Own;
use crate::serve::source::{Source, block};

/// Most bytes to read at once.
pub(crate) const PART_BYTES: u64 = 256 << 10;
/// How many bytes at the end of a part of an unverified file are held back, and when the next of them is released. The last
/// one is not. Clients give up after ten seconds without a byte.
const HELD_BYTES: u64 = 1 << 10;
const HELD_TIME: Duration = Duration::from_secs(4);
/// How long a client waits who wants to know the size of a file.
const SIZE_TIME: Duration = Duration::from_secs(1);

type Reading = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

/// An arriving file.
pub(crate) struct Spool {
    file: File,
    /// The directory on whose file system it is.
    dir: PathBuf,
    size: u64,
    /// Where the file system reserves no room.
    room: Option<Room>,
    seen: watch::Sender<Seen>,
}

/// The state that readers of a spool see.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The number of readable bytes.
    bytes: u64,
    /// Why no more bytes will come.
    failed: Option<Arc<str>>,
}

impl Spool {
    /// A file of `size` bytes, in `dir` or in the system's temporary directory. Its room on disk is reserved, so that no
    /// client is promised what will not fit. A file system that reserves none is asked what is free; `rooms` has what other
    /// arriving files will take of it.
    ///
    /// # Errors
    /// If it cannot be created, or there is no room for it.
    pub(crate) fn new(dir: Option<&Path>, size: u64, rooms: &Rooms) -> Result<Self> {
        let dir = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let made = std::fs::create_dir_all(&dir).and_then(|()| tempfile::tempfile_in(&dir));
        let file = made.map_err(|source| Error::io("create a file in", &dir, source))?;
        let full = |errno: Errno| {
            let doing = format!("reserve {size} bytes for a file that arrives in");
            Error::io(&doing, &dir, errno.into())
        };
        let reserved = match size {
            0 => Ok(()),
            _ => fallocate(&file, FallocateFlags::empty(), 0, size),
        };
        let room = match reserved {
            Ok(()) => None,
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => return Err(full(errno)),
            Err(_) => {
                let free = store::free_bytes(&dir)?.unwrap_or(u64::MAX);
                Some(rooms.take(size, free).ok_or_else(|| full(Errno::NOSPC))?)
            }
        };
        let seen = watch::channel(Seen::default()).0;
        Ok(Self {
            file,
            dir,
            size,
            room,
            seen,
        })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Writes bytes at their offset, without making them readable. Blocks.
    ///
    /// # Errors
    /// If the disk is full.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, at);
        if let Some(room) = &self.room {
            room.written(bytes.len() as u64);
        }
        written.map_err(|source| Error::io("write a file that arrives in", &self.dir, source))
    }

    /// Makes bytes of an unverified file readable, except the last byte.
    pub(crate) fn came(&self, bytes: u64) {
        let bytes = bytes.min(self.size.saturating_sub(1));
        self.seen.send_modify(|seen| seen.bytes = bytes);
    }

    /// Marks the whole file as verified and readable.
    pub(crate) fn is_right(&self) {
        self.seen.send_modify(|seen| seen.bytes = self.size);
    }

    /// Marks the file as failed.
    pub(crate) fn fail(&self, why: &str) {
        let why = Some(why.into());
        self.seen.send_modify(|seen| seen.failed = why);
    }

    /// Reads the bytes in `at..end`. Blocks.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn read(&self, at: u64, end: u64) -> Result<Vec<u8>> {
        let len = usize::try_from(end - at).unwrap_or_default();
        let mut bytes = vec![0; len];
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(|source| Error::io("read a file that arrives in", &self.dir, source))?;
        Ok(bytes)
    }

    /// Waits until the whole file is verified.
    async fn whole(&self) -> Result<u64> {
        self.behind(self.size.saturating_sub(1)).await
    }

    /// Waits until bytes after `at` may be handed to a client who wants those up to `end`. Returns the end of what may be.
    async fn free(&self, at: u64, end: u64) -> Result<u64> {
        let come = self.behind(at).await?;
        if end == self.size || come == self.size {
            return Ok(come.min(end));
        }
        let held = end.saturating_sub(HELD_BYTES);
        if at < held {
            return Ok(come.min(held));
        }
        match tokio::time::timeout(HELD_TIME, self.whole()).await {
            Ok(whole) => Ok(whole?.min(end)),
            Err(_) if at + 1 < end => Ok(at + 1),
            Err(_) => Ok(self.whole().await?.min(end)),
        }
    }

    /// Waits until bytes after `at` are readable. Returns the end of the readable part.
    async fn behind(&self, at: u64) -> Result<u64> {
        let mut seen = self.seen.subscribe();
        let is_enough = |seen: &Seen| seen.bytes > at || seen.failed.is_some();
        let seen = seen.wait_for(is_enough).await;
        let seen = seen.map_err(|_| Error::interrupted("the server stops"))?;
        match &seen.failed {
            Some(why) if seen.bytes <= at => Err(Error::unavailable(why.to_string())),
            _ => Ok(seen.bytes),
        }
    }
}

/// What arriving files will still take of file systems that reserve no room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms(Arc<AtomicU64>);

/// What one file will still take.
struct Room {
    rooms: Rooms,
    left: AtomicU64,
}

impl Rooms {
    /// Room for `bytes`, if that many are free beside what is promised to others.
    fn take(&self, bytes: u64, free: u64) -> Option<Room> {
        let fits = |promised: u64| promised.checked_add(bytes).filter(|all| *all <= free);
        let order = Ordering::Relaxed;
        self.0.fetch_update(order, order, fits).ok()?;
        Some(Room {
            rooms: self.clone(),
            left: AtomicU64::new(bytes),
        })
    }
}

impl Room {
    fn written(&self, bytes: u64) {
        let order = Ordering::Relaxed;
        let left = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.left.fetch_update(order, order, left);
        let before = before.unwrap_or_default();
        self.rooms.0.fetch_sub(bytes.min(before), order);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let left = *self.left.get_mut();
        self.rooms.0.fetch_sub(left, Ordering::Relaxed);
    }
}

/// Part of an arriving file, for one client.
pub(crate) struct Following {
    source: Arc<Source>,
    spool: Arc<Spool>,
    own: Own,
    at: u64,
    end: u64,
    reading: Option<Reading>,
}

impl Following {
    /// The bytes in `range`, once the first of them is readable; all of them, if they are so few that they could not come
    /// one by one for long, so that an error is told before the head of the answer. For the first byte alone of a file that
    /// takes only a moment: who asks for it wants the size, and reads no body.
    ///
    /// # Errors
    /// If it will not come.
    pub(crate) async fn open(
        source: Arc<Source>,
        spool: Arc<Spool>,
        range: std::ops::Range<u64>,
    ) -> Result<Self> {
        let len = range.end.saturating_sub(range.start);
        let is_for_size = range == (0..1) && spool.size > 1;
        if is_for_size {
            match tokio::time::timeout(SIZE_TIME, spool.whole()).await {
                Ok(whole) => whole?,
                Err(_) => spool.behind(0).await?,
            };
        } else if (1..=HELD_BYTES).contains(&len) {
            spool.whole().await?;
        } else if len > 0 {
            spool.behind(range.start).await?;
        }
        Ok(Self {
            source,
            spool,
            own: Own::new(),
            at: range.start,
            end: range.end,
            reading: None,
        })
    }

    /// The number of bytes that are not handed over yet.
    pub(crate) fn len(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    pub(super) fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if self.len() == 0 {
            return Poll::Ready(None);
        }
        let (source, spool) = (&self.source, &self.spool);
        let (at, end) = (self.at, self.end);
        let reading = self.reading.get_or_insert_with(|| {
            let (source, spool, own) = (Arc::clone(source), Arc::clone(spool), self.own.clone());
            Box::pin(async move { part(&source, spool, &own, at, end).await })
        });
        let polled = reading.as_mut().poll(context);
        if polled.is_ready() {
            self.reading = None;
        }
        polled.map(|part| {
            if let Ok(bytes) = &part {
                self.at += bytes.len() as u64;
            }
            Some(part)
        })
    }
}

async fn part(source: &Source, spool: Arc<Spool>, own: &Own, at: u64, end: u64) -> Result<Bytes> {
    let end = spool.free(at, end).await?;
    let wanted = source.memory().portion().wanted.min(PART_BYTES);
    let last = end.min(at.saturating_add(wanted));
    let (share, end) = source.memory().share(own, at, last).await?;
    block(move || Ok(share.with(spool.read(at, end)?))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(spool: &Spool, at: u64) -> Result<u64> {
        let runtime = crate::serve::runtime().unwrap();
        runtime.block_on(spool.behind(at))
    }

    #[test]
    fn the_last_byte_is_read_when_all_are_right() {
        let spool = Spool::new(None, 4, &Rooms::default()).unwrap();
        spool.write(0, b"abcd").unwrap();
        spool.came(4);
        assert_eq!(behind(&spool, 0).unwrap(), 3);
        assert_eq!(spool.read(1, 3).unwrap(), b"bc");
        spool.is_right();
        assert_eq!(behind(&spool, 3).unwrap(), 4);
    }

    #[test]
    fn a_part_is_not_complete_before_all_are_right() {
        let spool = Spool::new(None, 9000, &Rooms::default()).unwrap();
        let runtime = crate::serve::runtime().unwrap();
        let free = |at: u64, end: u64| runtime.block_on(spool.free(at, end));
        spool.came(5000);
        assert_eq!(free(0, 4000).unwrap(), 4000 - HELD_BYTES);
        assert_eq!(free(4000 - HELD_BYTES, 4000).unwrap(), 4001 - HELD_BYTES);
        let last = runtime.block_on(async {
            let soon = Duration::from_secs(2 * HELD_TIME.as_secs());
            tokio::time::timeout(soon, spool.free(3999, 4000)).await
        });
        assert!(last.is_err());
        spool.came(9000);
        assert_eq!(free(0, 9000).unwrap(), 8999);
        spool.is_right();
        assert_eq!(free(0, 4000).unwrap(), 4000);
        assert_eq!(free(3999, 4000).unwrap(), 4000);
    }

    #[test]
    fn a_part_of_what_turns_out_wrong_is_cut() {
        let spool = Spool::new(None, 900, &Rooms::default()).unwrap();
        spool.came(500);
        spool.fail("wrong bytes");
        let runtime = crate::serve::runtime().unwrap();
        let error = runtime.block_on(spool.free(399, 400)).unwrap_err();
        assert_eq!(error.to_string(), "wrong bytes");
    }

    #[test]
    fn room_is_promised_once() {
        let rooms = Rooms::default();
        let first = rooms.take(6, 10).unwrap();
        assert!(rooms.take(5, 10).is_none());
        // What is written is not free any more.
        first.written(4);
        assert!(rooms.take(5, 6).is_none());
        let second = rooms.take(4, 6).unwrap();
        assert!(rooms.take(1, 6).is_none());
        first.written(9);
        drop((first, second));
        assert!(rooms.take(1, 0).is_none() && rooms.take(2, 2).is_some());
    }

    #[test]
    fn what_failed_ends_behind_what_came() {
        let spool = Spool::new(None, 9, &Rooms::default()).unwrap();
        spool.came(5);
        spool.fail("broken off");
        assert_eq!(behind(&spool, 4).unwrap(), 5);
        let error = behind(&spool, 5).unwrap_err();
        assert_eq!(error.to_string(), "broken off");
    }
}
