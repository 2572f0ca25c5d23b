//! A file on its way: written chunk by chunk, in any order, by any thread, and finished by the last one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::id::ChunkId;

/// Zero runs from this length on become holes.
const HOLE_BYTES_MIN: usize = 16 << 10;

/// What a content is written to.
pub trait Sink: Send + Sync {
    /// Makes the file; called before the first byte is written.
    ///
    /// # Errors
    /// When it cannot be made.
    fn open(&self) -> Result<File>;

    /// Told how many bytes have been written since the last call.
    fn written(&self, bytes: u64);

    /// Whether [`Self::supply`] is worth asking.
    fn can_supply(&self) -> bool {
        false
    }

    /// Asked for a chunk before it is fetched: writes its bytes at `offset`, if it has them from elsewhere
    /// and has verified them, and says whether it did.
    ///
    /// # Errors
    /// When the bytes are there and cannot be written.
    fn supply(&self, _file: &File, _id: &ChunkId, _offset: u64, _len: u64) -> Result<bool> {
        Ok(false)
    }

    /// Called once, when all bytes are written.
    ///
    /// # Errors
    /// When the last touch fails.
    fn finish(&self, file: &File) -> Result<()>;

    /// Its name in errors.
    fn name(&self) -> String;
}

/// A file on its way.
pub(super) struct Slot<S> {
    pub(super) sink: S,
    size: u64,
    file: Mutex<Option<Arc<File>>>,
    missing_bytes: AtomicU64,
    has_holes: AtomicBool,
}

impl<S: Sink> Slot<S> {
    /// A file of `size` bytes, none of them written.
    pub(super) fn new(sink: S, size: u64) -> Self {
        Self {
            sink,
            size,
            file: Mutex::default(),
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
        self.count(bytes.len() as u64)
    }

    /// Whether the sink had the chunk from elsewhere.
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

    /// Leaves a hole of `len` bytes.
    pub(super) fn skip(&self, len: u64) -> Result<()> {
        drop(self.opened()?);
        self.has_holes.store(true, Ordering::Relaxed);
        self.count(len)
    }

    fn opened(&self) -> Result<Arc<File>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match file.as_ref() {
            Some(file) => Ok(Arc::clone(file)),
            None => Ok(Arc::clone(file.insert(Arc::new(self.sink.open()?)))),
        }
    }

    fn count(&self, written: u64) -> Result<()> {
        self.sink.written(written);
        if self.missing_bytes.fetch_sub(written, Ordering::AcqRel) == written {
            return self.finish();
        }
        Ok(())
    }

    /// All bytes are written, or there are none.
    pub(super) fn finish(&self) -> Result<()> {
        let file = self.opened()?;
        if self.has_holes.load(Ordering::Acquire) {
            file.set_len(self.size)
                .map_err(|source| Error::io("set the length of", self.sink.name(), source))?;
        }
        self.sink.finish(&file)?;
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        Ok(())
    }
}

/// The parts of `bytes` between aligned zero runs that become holes, each with its offset.
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
    // The first byte decides almost always; equal to itself shifted by one means all bytes are the first.
    run.len() == HOLE_BYTES_MIN
        && run.first() == Some(&0)
        && run.get(1..) == run.get(..run.len() - 1)
}
