//! A file that is being fetched. Any thread writes its chunks, in any order; the thread that writes the last one
//! finishes the file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::id::ChunkId;

/// Runs of zeros of at least this length become holes.
const HOLE_BYTES_MIN: usize = 16 << 10;

/// The destination of a content.
pub trait Sink: Send + Sync {
    /// Makes the file. Called before the first byte is written.
    ///
    /// # Errors
    /// When the file cannot be made.
    fn open(&self) -> Result<File>;

    /// Whether an unfinished file may be closed and opened again for its next bytes.
    fn can_open_again(&self) -> bool {
        false
    }

    /// Opens the file that [`Self::open`] made.
    ///
    /// # Errors
    /// When the file cannot be opened.
    fn open_again(&self) -> Result<File> {
        self.open()
    }

    /// Called with the number of bytes written since the last call.
    fn written(&self, bytes: u64);

    /// Whether [`Self::supply`] may have chunks.
    fn can_supply(&self) -> bool {
        false
    }

    /// Called for a chunk before it is fetched. If the sink has verified bytes of it from elsewhere, it writes them at
    /// `offset` and returns true.
    ///
    /// # Errors
    /// When the sink has the bytes and cannot write them.
    fn supply(&self, _file: &File, _id: &ChunkId, _offset: u64, _len: u64) -> Result<bool> {
        Ok(false)
    }

    /// Called once, when all bytes are written.
    ///
    /// # Errors
    /// When the file cannot be finished.
    fn finish(&self, file: &File) -> Result<()>;

    /// The name of the file in errors.
    fn name(&self) -> String;
}

/// A file that is being fetched.
pub(super) struct Slot<S> {
    pub(super) sink: S,
    size: u64,
    file: Mutex<Opened>,
    /// The number of files that all slots of a fetch have open, and its limit.
    open: Arc<OpenFiles>,
    missing_bytes: AtomicU64,
    has_holes: AtomicBool,
}

/// The file of a slot.
#[derive(Default)]
struct Opened {
    file: Option<Arc<File>>,
    is_made: bool,
}

/// The number of open files, and its limit.
pub(super) struct OpenFiles {
    count: AtomicUsize,
    most: usize,
}

impl OpenFiles {
    /// Allows a quarter of what the system allows; the rest is for the store, the pool and the caller.
    pub(super) fn new() -> Self {
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = allowed.and_then(|allowed| usize::try_from(allowed / 4).ok());
        Self {
            count: AtomicUsize::new(0),
            most: most.unwrap_or(usize::MAX).max(1),
        }
    }

    fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.most
    }
}

impl<S: Sink> Slot<S> {
    /// A file of `size` bytes; none of them is written yet.
    pub(super) fn new(sink: S, size: u64, open: Arc<OpenFiles>) -> Self {
        Self {
            sink,
            size,
            file: Mutex::default(),
            open,
            missing_bytes: AtomicU64::new(size),
            has_holes: AtomicBool::new(false),
        }
    }

    /// Writes the bytes of a chunk at `offset`.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let file = self.opened()?;
        let mut written = 0;
        for (start, run) in data_runs(bytes) {
            file.write_all_at(run, offset + start)
                .map_err(|source| Error::io("write", self.sink.name(), source))?;
            written += run.len();
        }
        if written < bytes.len() {
            self.has_holes.store(true, Ordering::Relaxed);
        }
        drop(file);
        self.count(bytes.len() as u64)?;
        if self.open.is_full() && self.sink.can_open_again() {
            // The next chunk opens the file again. While another thread writes to it, the file stays open for that
            // thread.
            self.close();
        }
        Ok(())
    }

    /// Returns whether the sink had the chunk from elsewhere.
    pub(super) fn supply(&self, id: &ChunkId, offset: u64, len: u64) -> Result<bool> {
        if !self.sink.can_supply() {
            return Ok(false);
        }
        let is_supplied = self.sink.supply(&*self.opened()?, id, offset, len)?;
        if is_supplied {
            self.count(len)?;
        }
        Ok(is_supplied)
    }

    /// Leaves a hole of `len` bytes. Does not open the file, since holes are known when the fetch is planned, long
    /// before there is anything to write.
    pub(super) fn skip(&self, len: u64) -> Result<()> {
        self.has_holes.store(true, Ordering::Relaxed);
        self.count(len)
    }

    fn opened(&self) -> Result<Arc<File>> {
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &slot.file {
            return Ok(Arc::clone(file));
        }
        let file = if slot.is_made {
            self.sink.open_again()?
        } else {
            self.sink.open()?
        };
        slot.is_made = true;
        self.open.count.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::clone(slot.file.insert(Arc::new(file))))
    }

    fn close(&self) {
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.file.take().is_some() {
            self.open.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn count(&self, written: u64) -> Result<()> {
        self.sink.written(written);
        if self.missing_bytes.fetch_sub(written, Ordering::AcqRel) == written {
            return self.finish();
        }
        Ok(())
    }

    /// Finishes the file: all bytes are written, or there are none.
    pub(super) fn finish(&self) -> Result<()> {
        let file = self.opened()?;
        if self.has_holes.load(Ordering::Acquire) {
            file.set_len(self.size)
                .map_err(|source| Error::io("set the length of", self.sink.name(), source))?;
        }
        self.sink.finish(&file)?;
        drop(file);
        self.close();
        Ok(())
    }
}

/// The parts of `bytes` between aligned runs of zeros that become holes, each with its offset.
fn data_runs(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = bytes.chunks(HOLE_BYTES_MIN).enumerate().peekable();
    std::iter::from_fn(move || {
        let (first, _) = rest.find(|(_, run)| !is_hole(run))?;
        let mut last = first;
        while let Some((at, _)) = rest.next_if(|(_, run)| !is_hole(run)) {
            last = at;
        }
        let start = first * HOLE_BYTES_MIN;
        let end = ((last + 1) * HOLE_BYTES_MIN).min(bytes.len());
        Some((start as u64, bytes.get(start..end)?))
    })
}

fn is_hole(run: &[u8]) -> bool {
    // The first byte decides almost always. If the run equals itself shifted by one, all bytes equal the first.
    run.len() == HOLE_BYTES_MIN
        && run.first() == Some(&0)
        && run.get(1..) == run.get(..run.len() - 1)
}
