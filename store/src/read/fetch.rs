//! From chunks to files: writes many contents at once, each chunk verified and at its offset.
//!
//! One planner collects the wanted chunks in windows and groups them by frame, so that a frame is read and decoded once
//! for all files that want it. Workers read runs of adjacent frames, decode, verify and write. Memory: one window of
//! requests, and one read and one frame per worker.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::codec::Decoder;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Content;
use crate::id::{ChunkId, PackId};
use crate::index::Location;
use crate::pack::{Coalesce, Extent, coalesce};
use crate::read::{Reader, read_frames};
use crate::store::Store;

mod slot;

pub use slot::Sink;
use slot::{OpenFiles, Slot};

/// Bytes of content in one window of requests.
const WINDOW_BYTES: u64 = 64 << 20;
/// The same for a bucket, after the first window. Packs interleave files that were put side by side, so a read for one
/// file alone would cover little of it, or much that nobody wants yet.
const FAR_WINDOW_BYTES: u64 = 1 << 30;
/// Most chunks in one window of requests.
const WINDOW_CHUNKS_MAX: usize = 16 << 10;
/// Most concurrent reads of a bucket, if memory allows.
const FAR_READS_MAX: usize = 16;
/// Bytes that a worker needs besides what it reads: one decoded frame.
const FRAME_BYTES: u64 = 1 << 20;

/// Collects the contents that a fetch writes.
pub struct Requests<'f, S> {
    reader: &'f Reader<'f>,
    coalesce: Coalesce,
    jobs: Sender<ReadJob<S>>,
    failed: &'f Failed,
    open: Arc<OpenFiles>,
    zero: (ChunkId, u32),
    window: Window<S>,
    /// Bytes of content in this window, and in each later one.
    window_bytes: (u64, u64),
}

struct Window<S> {
    frames: Vec<FrameJob<S>>,
    by_frame: HashMap<(PackId, u32), usize>,
    by_chunk: HashMap<ChunkId, (usize, usize)>,
    bytes: u64,
    chunks: usize,
}

/// Adjacent frames of one pack that are read together.
struct ReadJob<S> {
    extent: Extent,
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

/// The first error of a fetch.
#[derive(Default)]
struct Failed {
    is_set: AtomicBool,
    error: Mutex<Option<Error>>,
}

/// Runs `plan`, which requests contents, and writes them on several threads: as many as suit the host and the distance
/// of the store. Returns when all are finished.
///
/// # Errors
/// The first error of the plan, a read, a verification or a write; files may then be unfinished.
pub fn fetch<'r, S: Sink, T>(
    reader: &'r Reader<'r>,
    plan: impl FnOnce(&mut Requests<'_, S>) -> Result<T>,
) -> Result<T> {
    let failed = Failed::default();
    let (coalesce, workers) = how(reader.store());
    let outcome = std::thread::scope(|scope| {
        let (jobs, queue) = bounded(2 * workers);
        for _ in 0..workers {
            let queue = queue.clone();
            scope.spawn(|| work(reader, queue, &failed));
        }
        drop(queue);
        let zero = reader.store().chunker().zero_chunk();
        let mut requests = Requests {
            reader,
            coalesce,
            jobs,
            failed: &failed,
            open: Arc::new(OpenFiles::new()),
            zero,
            window: Window::default(),
            window_bytes: match reader.store().is_far() {
                true => (WINDOW_BYTES, FAR_WINDOW_BYTES),
                false => (WINDOW_BYTES, WINDOW_BYTES),
            },
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
    .map_err(|error| reader.blame(error))
}

/// How reads of `store` are joined, and how many workers read it.
pub(super) fn how(store: &Store) -> (Coalesce, usize) {
    let host = store.host();
    if !store.is_far() {
        return (Coalesce::NEAR, host.threads.max(1));
    }
    let affordable = host.memory_bytes / (u64::from(Coalesce::FAR.read_bytes_max) + FRAME_BYTES);
    let affordable = usize::try_from(affordable).unwrap_or(usize::MAX);
    (Coalesce::FAR, affordable.clamp(1, FAR_READS_MAX))
}

impl<S: Sink> Requests<'_, S> {
    /// Requests that `content` be written to `sink`.
    ///
    /// # Errors
    /// When the chunk list cannot be read, or the fetch has failed already.
    pub fn push(&mut self, sink: S, content: &Content) -> Result<()> {
        let slot = Arc::new(Slot::new(sink, content.size, Arc::clone(&self.open)));
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
        if self.window.bytes >= self.window_bytes.0 || self.window.chunks >= WINDOW_CHUNKS_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends the window to the workers as runs of adjacent frames.
    fn flush(&mut self) -> Result<()> {
        let window = std::mem::take(&mut self.window);
        self.window_bytes.0 = self.window_bytes.1;
        for job in window.into_reads(self.coalesce) {
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

    fn into_reads(self, by: Coalesce) -> Vec<ReadJob<S>> {
        let reads = coalesce(self.frames, |frame| Extent::of(&frame.location), by);
        let reads = reads.into_iter();
        reads
            .map(|(extent, frames)| ReadJob { extent, frames })
            .collect()
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
        let Extent { pack, offset, len } = job.extent;
        match read_frames(self.reader.store(), pack, offset, len) {
            Ok(stored) => job.frames.iter().try_for_each(|frame| {
                let start = (frame.location.frame_offset - offset) as usize;
                let bytes = stored
                    .get(start..start + frame.location.stored_len as usize)
                    .unwrap_or_default();
                self.write_frame(frame, bytes)
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => job
                .frames
                .iter()
                .flat_map(|frame| &frame.wants)
                .try_for_each(|want| self.fetch_alone(want)),
            Err(error) => Err(error),
        }
    }

    fn write_frame<S: Sink>(&mut self, frame: &FrameJob<S>, stored: &[u8]) -> Result<()> {
        let (reader, at) = (self.reader, &frame.location);
        let raw = reader.decode(&mut self.decoder, at, stored, &mut self.raw)?;
        write(&frame.wants, raw).map_err(|error| reader.blame_base(at, error))
    }

    /// Fetches one chunk from its location in the newest state, after its pack was deleted.
    fn fetch_alone<S: Sink>(&self, want: &Want<S>) -> Result<()> {
        let (raw, location) = self.reader.read_at(&want.id, |location| {
            let stored = read_frames(
                self.reader.store(),
                location.pack,
                location.frame_offset,
                location.stored_len,
            )?;
            let (mut decoder, mut raw) = (Decoder::new()?, Vec::new());
            let raw = (self.reader).decode(&mut decoder, location, &stored, &mut raw)?;
            Ok((raw.to_vec(), *location))
        })?;
        let want = Want {
            id: want.id,
            location,
            places: want.places.clone(),
        };
        write(&[want], &raw).map_err(|error| self.reader.blame_base(&location, error))
    }
}

/// Verifies and writes the wanted chunks of a decoded frame. Adjacent chunks of one file are written together: each
/// write takes the lock of its file, and several workers may wait for that.
fn write<S: Sink>(wants: &[Want<S>], raw: &[u8]) -> Result<()> {
    let mut pieces = Vec::with_capacity(wants.len());
    for want in wants {
        let len = want.verified(raw)?.len();
        let start = want.location.offset as usize;
        let places = want.places.iter();
        pieces.extend(places.map(|(slot, offset)| Piece {
            slot,
            offset: *offset,
            bytes: start..start + len,
        }));
    }
    pieces.sort_unstable_by_key(|piece| (Arc::as_ptr(piece.slot), piece.offset));
    let runs = pieces.chunk_by(Piece::is_followed_by);
    runs.filter_map(|run| run.first().zip(run.last()))
        .try_for_each(|(first, last)| {
            let bytes = raw.get(first.bytes.start..last.bytes.end);
            first.slot.write(bytes.unwrap_or_default(), first.offset)
        })
}

/// Where bytes of a decoded frame are written.
struct Piece<'w, S> {
    slot: &'w Arc<Slot<S>>,
    offset: u64,
    bytes: Range<usize>,
}

impl<S> Piece<'_, S> {
    fn is_followed_by(&self, next: &Self) -> bool {
        Arc::ptr_eq(self.slot, next.slot)
            && self.offset + self.bytes.len() as u64 == next.offset
            && self.bytes.end == next.bytes.start
    }
}

impl<S: Sink> Want<S> {
    /// The verified bytes of the chunk in a decoded frame. Errors name the file that wants them.
    fn verified<'f>(&self, raw: &'f [u8]) -> Result<&'f [u8]> {
        let verified = self.location.of(self.id).verified(raw);
        verified.map_err(|error| match self.places.first() {
            Some((slot, offset)) => {
                error.within(format!("{} at offset {offset}", slot.sink.name()))
            }
            None => error,
        })
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::format::FrameKind;

    /// A file without a name, and how often it was written to.
    struct Counted(File, AtomicU64);

    impl Sink for Arc<Counted> {
        fn open(&self) -> Result<File> {
            Ok(self.0.try_clone().unwrap())
        }

        fn written(&self, _bytes: u64) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }

        fn finish(&self, _file: &File) -> Result<()> {
            Ok(())
        }

        fn name(&self) -> String {
            "counted".into()
        }
    }

    #[test]
    fn neighbours_of_a_frame_and_of_a_file_are_one_write() {
        let raw = b"onetwothree";
        let chunks = [(0, 3), (3, 3), (6, 5)];
        // Each file: its chunks with their offsets.
        let files = [
            (vec![(0, 0), (1, 3), (2, 6)], "onetwothree", 1),
            (vec![(2, 0), (0, 5), (1, 8)], "threeonetwo", 2),
            (vec![(0, 0), (0, 3), (2, 6)], "oneonethree", 3),
        ];
        let mut wants: Vec<Want<Arc<Counted>>> = chunks
            .iter()
            .map(|(offset, len)| {
                let bytes = &raw[*offset..offset + len];
                let location = Location {
                    pack: PackId([1; 16]),
                    frame_offset: 0,
                    stored_len: 0,
                    pack_len: 0,
                    raw_len: 11,
                    kind: FrameKind::Data,
                    offset: u32::try_from(*offset).unwrap(),
                    len: u32::try_from(*len).unwrap(),
                    is_delta: false,
                };
                Want {
                    id: ChunkId::of(bytes),
                    location,
                    places: Vec::new(),
                }
            })
            .collect();
        let sinks = files.clone().map(|(places, ..)| {
            let sink = Arc::new(Counted(tempfile::tempfile().unwrap(), AtomicU64::new(0)));
            let slot = Arc::new(Slot::new(Arc::clone(&sink), 11, Arc::new(OpenFiles::new())));
            for (chunk, offset) in places {
                wants[chunk].places.push((Arc::clone(&slot), offset));
            }
            sink
        });
        write(&wants, raw).unwrap();
        for (sink, (_, expected, writes)) in sinks.iter().zip(files) {
            let mut found = [0; 11];
            std::os::unix::fs::FileExt::read_exact_at(&sink.0, &mut found, 0).unwrap();
            assert_eq!(found, expected.as_bytes());
            assert_eq!(sink.1.load(Ordering::Relaxed), writes, "{expected}");
        }
        wants[1].id = ChunkId::of(b"other");
        let error = write(&wants, raw).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("counted at offset 3: packs/01/"),
            "{error}"
        );
    }
}
