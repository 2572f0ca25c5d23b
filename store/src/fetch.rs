//! From chunks to files: many contents at once, each chunk verified and written at its offset.
//!
//! One planner gathers the wanted chunks in windows and groups them by frame, so that a frame is
//! read and decoded once for all that want it; workers read runs of adjacent frames, decode,
//! verify and write. Memory: a window of requests, and one read and one frame a worker.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::codec::Decoder;
use crate::error::{Error, Kind, Result};
use crate::format::{Content, pack_key};
use crate::id::{ChunkId, PackId};
use crate::index::Location;
use crate::read::{Reader, chunk_in, read_frames};

/// Bytes of content that one window of requests covers.
const WINDOW_BYTES: u64 = 64 << 20;
/// Chunks that one window of requests holds at most.
const WINDOW_CHUNKS_MAX: usize = 16 << 10;
/// Stored bytes that one read covers at most, unless one frame alone is larger.
const READ_BYTES_MAX: u32 = 4 << 20;
/// Bytes between two frames that are read and thrown away rather than read around.
const READ_GAP_BYTES_MAX: u32 = 64 << 10;
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

/// Takes the contents that a fetch shall write.
pub struct Requests<'f, S> {
    reader: &'f Reader<'f>,
    jobs: Sender<ReadJob<S>>,
    failed: &'f Failed,
    zero: (ChunkId, u32),
    window: Window<S>,
}

struct Window<S> {
    frames: Vec<FrameJob<S>>,
    by_frame: HashMap<(PackId, u32), usize>,
    by_chunk: HashMap<ChunkId, (usize, usize)>,
    bytes: u64,
    chunks: usize,
}

/// Adjacent frames of one pack, read at once.
struct ReadJob<S> {
    pack: PackId,
    offset: u32,
    len: u32,
    frames: Vec<FrameJob<S>>,
}

struct FrameJob<S> {
    location: Location,
    wants: Vec<Want<S>>,
}

struct Want<S> {
    id: ChunkId,
    location: Location,
    places: Vec<(Arc<Slot<S>>, u64)>,
}

/// A file on its way.
struct Slot<S> {
    sink: S,
    size: u64,
    file: Mutex<Option<Arc<File>>>,
    missing_bytes: AtomicU64,
    has_holes: AtomicBool,
}

/// The first error of a fetch.
#[derive(Default)]
struct Failed {
    is_set: AtomicBool,
    error: Mutex<Option<Error>>,
}

/// Runs `plan`, which requests contents, and writes them on `threads` threads; returns when all are finished.
///
/// # Errors
/// The first error of the plan, a read, a verification or a write; files may then be unfinished.
pub fn fetch<'r, S: Sink, T>(
    reader: &'r Reader<'r>,
    threads: usize,
    plan: impl FnOnce(&mut Requests<'_, S>) -> Result<T>,
) -> Result<T> {
    let failed = Failed::default();
    let outcome = std::thread::scope(|scope| {
        let (jobs, queue) = bounded(2 * threads.max(1));
        for _ in 0..threads.max(1) {
            let queue = queue.clone();
            scope.spawn(|| work(reader, queue, &failed));
        }
        drop(queue);
        let zero = reader.store().chunker().zero_chunk();
        let mut requests = Requests {
            reader,
            jobs,
            failed: &failed,
            zero,
            window: Window::default(),
        };
        let planned = plan(&mut requests)?;
        requests.flush()?;
        Ok(planned)
    });
    match failed
        .error
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        Some(error) => Err(error),
        None => outcome,
    }
}

impl<S: Sink> Requests<'_, S> {
    /// Requests that `content` be written to `sink`.
    ///
    /// # Errors
    /// When the chunk list cannot be read, or the fetch has failed already.
    pub fn push(&mut self, sink: S, content: &Content) -> Result<()> {
        let slot = Arc::new(Slot {
            sink,
            size: content.size,
            file: Mutex::default(),
            missing_bytes: AtomicU64::new(content.size),
            has_holes: AtomicBool::new(false),
        });
        if content.size == 0 {
            return slot.finish();
        }
        let mut offset = 0;
        let reader = self.reader;
        reader.chunks(content, &mut |id, len| {
            if (id, len) == (self.zero.0, u64::from(self.zero.1)) {
                slot.skip(len)?;
            } else if !slot.supply(&id, offset, len)? {
                self.want(id, len, &slot, offset)?;
            }
            offset += len;
            Ok(())
        })
    }

    fn want(&mut self, id: ChunkId, len: u64, slot: &Arc<Slot<S>>, offset: u64) -> Result<()> {
        let place = (Arc::clone(slot), offset);
        self.window.bytes += len;
        self.window.chunks += 1;
        if let Some(want) = self.window.wanted(&id) {
            want.places.push(place);
        } else {
            let location = self.reader.locate(&id)?;
            if u64::from(location.len) != len {
                return Err(Error::corrupt(format!(
                    "{}: chunk {id} has {} bytes, its list says {len}",
                    slot.sink.name(),
                    location.len
                )));
            }
            self.window.add(Want {
                id,
                location,
                places: vec![place],
            });
        }
        if self.window.bytes >= WINDOW_BYTES || self.window.chunks >= WINDOW_CHUNKS_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends the window to the workers, as runs of adjacent frames.
    fn flush(&mut self) -> Result<()> {
        let window = std::mem::take(&mut self.window);
        for job in window.into_reads() {
            self.reader.store().host().check_stop()?;
            if self.failed.is_set.load(Ordering::Relaxed) || self.jobs.send(job).is_err() {
                return Err(Error::interrupted("another file failed first"));
            }
        }
        Ok(())
    }
}

impl<S> Default for Window<S> {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            by_frame: HashMap::new(),
            by_chunk: HashMap::new(),
            bytes: 0,
            chunks: 0,
        }
    }
}

impl<S> Window<S> {
    fn wanted(&mut self, id: &ChunkId) -> Option<&mut Want<S>> {
        let (frame, want) = self.by_chunk.get(id)?;
        self.frames.get_mut(*frame)?.wants.get_mut(*want)
    }

    fn add(&mut self, want: Want<S>) {
        let key = (want.location.pack, want.location.frame_offset);
        let at = *self.by_frame.entry(key).or_insert_with(|| {
            self.frames.push(FrameJob {
                location: want.location,
                wants: Vec::new(),
            });
            self.frames.len() - 1
        });
        if let Some(frame) = self.frames.get_mut(at) {
            self.by_chunk.insert(want.id, (at, frame.wants.len()));
            frame.wants.push(want);
        }
    }

    fn into_reads(mut self) -> Vec<ReadJob<S>> {
        self.frames
            .sort_by_key(|frame| (frame.location.pack, frame.location.frame_offset));
        let mut reads: Vec<ReadJob<S>> = Vec::new();
        for frame in self.frames {
            match reads.last_mut() {
                Some(read) if read.takes(&frame.location) => read.extend(frame),
                _ => reads.push(ReadJob::new(frame)),
            }
        }
        reads
    }
}

impl<S> ReadJob<S> {
    fn new(frame: FrameJob<S>) -> Self {
        let Location {
            pack,
            frame_offset,
            stored_len,
            ..
        } = frame.location;
        Self {
            pack,
            offset: frame_offset,
            len: stored_len,
            frames: vec![frame],
        }
    }

    fn takes(&self, next: &Location) -> bool {
        let end = self.offset + self.len;
        next.pack == self.pack
            && next
                .frame_offset
                .checked_sub(end)
                .is_some_and(|gap| gap <= READ_GAP_BYTES_MAX)
            && (next.frame_offset + next.stored_len) - self.offset <= READ_BYTES_MAX
    }

    fn extend(&mut self, frame: FrameJob<S>) {
        self.len = frame.location.frame_offset + frame.location.stored_len - self.offset;
        self.frames.push(frame);
    }
}

fn work<S: Sink>(reader: &Reader<'_>, queue: Receiver<ReadJob<S>>, failed: &Failed) {
    let outcome = Worker::new(reader).and_then(|mut worker| {
        for job in &queue {
            if failed.is_set.load(Ordering::Relaxed) {
                return Ok(());
            }
            worker.run(&job)?;
        }
        Ok(())
    });
    if let Err(error) = outcome {
        failed.set(error);
    }
}

struct Worker<'r> {
    reader: &'r Reader<'r>,
    decoder: Decoder,
    raw: Vec<u8>,
}

impl<'r> Worker<'r> {
    fn new(reader: &'r Reader<'r>) -> Result<Self> {
        Ok(Self {
            reader,
            decoder: Decoder::new()?,
            raw: Vec::new(),
        })
    }

    fn run<S: Sink>(&mut self, job: &ReadJob<S>) -> Result<()> {
        match read_frames(self.reader.store(), job.pack, job.offset, job.len) {
            Ok(stored) => job.frames.iter().try_for_each(|frame| {
                let start = (frame.location.frame_offset - job.offset) as usize;
                let bytes = stored
                    .get(start..start + frame.location.stored_len as usize)
                    .unwrap_or_default();
                self.write_frame(frame, bytes)
            }),
            Err(error) if error.kind() == Kind::NotFound => job
                .frames
                .iter()
                .flat_map(|frame| &frame.wants)
                .try_for_each(|want| self.fetch_alone(want)),
            Err(error) => Err(error),
        }
    }

    fn write_frame<S: Sink>(&mut self, frame: &FrameJob<S>, stored: &[u8]) -> Result<()> {
        let object = pack_key(frame.location.pack);
        let raw = self
            .decoder
            .decode(&object, stored, frame.location.raw_len, &mut self.raw)?;
        frame.wants.iter().try_for_each(|want| want.write(raw))
    }

    /// The pack is gone: the chunk alone, from where the newest state has it.
    fn fetch_alone<S: Sink>(&self, want: &Want<S>) -> Result<()> {
        let (raw, location) = self.reader.read_at(&want.id, |location| {
            let stored = read_frames(
                self.reader.store(),
                location.pack,
                location.frame_offset,
                location.stored_len,
            )?;
            let mut raw = Vec::new();
            let object = pack_key(location.pack);
            let raw = Decoder::new()?
                .decode(&object, &stored, location.raw_len, &mut raw)?
                .to_vec();
            Ok((raw, *location))
        })?;
        Want {
            id: want.id,
            location,
            places: want.places.clone(),
        }
        .write(&raw)
    }
}

impl<S: Sink> Want<S> {
    fn write(&self, raw: &[u8]) -> Result<()> {
        let bytes =
            chunk_in(raw, &self.location, &self.id).map_err(|error| match self.places.first() {
                Some((slot, offset)) => {
                    error.within(format!("{} at offset {offset}", slot.sink.name()))
                }
                None => error,
            })?;
        self.places
            .iter()
            .try_for_each(|(slot, offset)| slot.write(bytes, *offset))
    }
}

impl<S: Sink> Slot<S> {
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
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

    fn supply(&self, id: &ChunkId, offset: u64, len: u64) -> Result<bool> {
        if !self.sink.can_supply() {
            return Ok(false);
        }
        let is_supplied = self.sink.supply(&*self.opened()?, id, offset, len)?;
        if is_supplied {
            self.count(len)?;
        }
        Ok(is_supplied)
    }

    fn skip(&self, len: u64) -> Result<()> {
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

    fn finish(&self) -> Result<()> {
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

impl Failed {
    fn set(&self, error: Error) {
        self.is_set.store(true, Ordering::Relaxed);
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
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
