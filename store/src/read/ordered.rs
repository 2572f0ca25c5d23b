//! The bytes of one content in order, read and decoded ahead of the caller on all cores.
//!
//! The range is cut into stretches that end with a frame, so that no frame is decoded twice. One thread does all of a
//! stretch, from reading to verified bytes. The results are passed on in order. Memory: the stretches in flight, as
//! many as the budget of the host allows.
//!
//! A caller with a budget of its own reads numbered stretches one by one, on threads of its own: [`Reader::stretch`].

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};

use super::fetch::how;
use super::{Reader, read_frames};
use crate::codec::Decoder;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Content;
use crate::id::ChunkId;
use crate::index::Location;
use crate::pack::{Coalesce, Extent, coalesce};

/// Most bytes of content after which a stretch ends, with the current frame, and fewest where memory is short.
const STRETCH_BYTES_MAX: u64 = 4 << 20;
const STRETCH_BYTES_MIN: u64 = 1 << 20;
/// So many stretches are wanted in flight before they become longer.
const STRETCHES_WANTED: u64 = 8;

/// How the reads of a numbered stretch are joined: others read more of the same file meanwhile, so that a second request
/// costs less than a gap, which holds files that were put side by side.
const NUMBERED: Coalesce = Coalesce {
    gap_bytes_max: 128 << 10,
    ..Coalesce::FAR
};

/// Consecutive chunks of a content.
#[derive(Default)]
struct Stretch {
    pieces: Vec<Piece>,
    bytes: u64,
}

/// The wanted part of one chunk.
struct Piece {
    id: ChunkId,
    /// The location of the chunk; none for the chunk of zeros.
    location: Option<Location>,
    len: u64,
    /// The part of the chunk that is in the range.
    wanted: Range<usize>,
}

/// A stretch, where its bytes are sent, and whether somebody still waits for them.
struct Job {
    stretch: Stretch,
    done: Sender<Result<Vec<u8>>>,
    line: Weak<()>,
}

/// Bytes of a pack that were read.
struct Stored {
    extent: Extent,
    stored: Bytes,
}

impl Stored {
    /// The frame at `at`, if it is in these bytes.
    fn stored(&self, at: &Location) -> Option<&[u8]> {
        let start = at.frame_offset.checked_sub(self.extent.offset)? as usize;
        let frame = self.stored.get(start..start + at.stored_len as usize);
        frame.filter(|_| self.extent.pack == at.pack)
    }
}

impl Reader<'_> {
    /// Passes the verified bytes of `content` in `range` to `write`, first to last, with about `memory_bytes` of memory.
    /// Reads and decodes ahead on several threads. Returns the number of bytes.
    ///
    /// # Errors
    /// Not found and corrupt as for [`Reader`]; interrupted, when the host is asked to stop; those of `write`.
    pub fn read_in_order(
        &self,
        content: &Content,
        range: &Range<u64>,
        memory_bytes: u64,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let reader = self;
        let Bounds {
            coalesce,
            workers,
            ahead,
            stretch_bytes,
        } = Bounds::new(reader, memory_bytes);
        if range.end.min(content.size).saturating_sub(range.start) <= stretch_bytes {
            return reader.read_at_once(content, range, coalesce, write);
        }
        std::thread::scope(|scope| {
            let (jobs, queue) = bounded::<Job>(ahead);
            let mut line = Line {
                reader,
                jobs: Some(jobs),
                lives: Arc::default(),
                waiting: VecDeque::new(),
                ahead,
                written: 0,
                write,
            };
            let mut stretch = Stretch::default();
            let mut started = 0;
            let mut send = |line: &mut Line<'_, '_>, stretch: Stretch| {
                // Threads start one by one, since a short range needs only one.
                if started < workers {
                    started += 1;
                    let queue = queue.clone();
                    scope.spawn(move || work(reader, coalesce, &queue));
                }
                line.send(stretch)
            };
            let planned = reader.chunks_in(content, range, &mut |id, start, len| {
                let piece = Piece::of(reader, id, start, len, range)?;
                if stretch.bytes >= stretch_bytes && stretch.ends_before(&piece) {
                    send(&mut line, std::mem::take(&mut stretch))?;
                }
                stretch.push(piece);
                Ok(())
            });
            planned
                .and_then(|()| send(&mut line, stretch))
                .and_then(|()| line.end())
        })
        .map_err(|error| reader.blame(error))
    }

    /// The same for a range that is one stretch, on this thread.
    fn read_at_once(
        &self,
        content: &Content,
        range: &Range<u64>,
        coalesce: Coalesce,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        self.store().host().check_stop()?;
        let mut stretch = Stretch::default();
        let planned = self.chunks_in(content, range, &mut |id, start, len| {
            stretch.push(Piece::of(self, id, start, len, range)?);
            Ok(())
        });
        let bytes = planned.and_then(|()| bytes_of(self, coalesce, &stretch));
        let bytes = bytes.map_err(|error| self.blame(error))?;
        write(&bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Reads the stretch `number` of `content`, on this thread. Returns where it begins and its verified bytes.
    ///
    /// All readers find the same stretches, so that they can share them. Stretch `n` begins with the first frame that
    /// begins at or after byte `n * len`, and ends where the next one begins. It is empty if there is no such frame before
    /// byte `(n + 1) * len`; what is there belongs to an earlier stretch then.
    ///
    /// # Errors
    /// Not found and corrupt as for [`Reader`].
    pub fn stretch(&self, content: &Content, number: u64, len: u64) -> Result<(u64, Vec<u8>)> {
        let from = number.saturating_mul(len);
        let to = from.saturating_add(len);
        let whole = 0..content.size;
        let mut stretch = Stretch::default();
        let mut start = None;
        let mut before: Option<Piece> = None;
        let mut is_done = false;
        let planned = self.visit(content, &mut |id, depth, at, size| {
            // The chunk before the stretch tells whether a frame begins there.
            let is_near = !is_done && at.saturating_add(size) >= from;
            if depth > 0 || !is_near {
                return Ok(is_near);
            }
            let piece = Piece::of(self, id, at, size, &whole)?;
            let last = stretch.pieces.last().or(before.as_ref());
            let begins = last.is_none_or(|last| last.ends_before(&piece));
            if begins && at >= from {
                start.get_or_insert(at);
                is_done = at >= to;
            }
            match start {
                None => before = Some(piece),
                Some(_) if is_done => {}
                Some(_) => stretch.push(piece),
            }
            Ok(true)
        });
        let bytes = planned.and_then(|()| bytes_of(self, NUMBERED, &stretch));
        let bytes = bytes.map_err(|error| self.blame(error))?;
        Ok((start.unwrap_or(content.size), bytes))
    }
}

/// What a read in order may take.
struct Bounds {
    coalesce: Coalesce,
    workers: usize,
    /// Stretches that may be in flight.
    ahead: usize,
    stretch_bytes: u64,
}

impl Bounds {
    fn new(reader: &Reader<'_>, memory_bytes: u64) -> Self {
        let (coalesce, workers) = how(reader.store());
        // Decoded bytes, stored bytes, and the frame in between.
        let in_flight = memory_bytes / 3;
        let stretch_bytes = in_flight / STRETCHES_WANTED;
        let stretch_bytes = stretch_bytes.clamp(STRETCH_BYTES_MIN, STRETCH_BYTES_MAX);
        let affordable = usize::try_from(in_flight / stretch_bytes).unwrap_or(usize::MAX);
        let affordable = affordable.max(1);
        Self {
            coalesce,
            workers: workers.min(affordable),
            ahead: (2 * workers).min(affordable),
            stretch_bytes,
        }
    }
}

/// Stretches that were sent and are not written yet, oldest first.
struct Line<'l, 'w> {
    reader: &'l Reader<'l>,
    jobs: Option<Sender<Job>>,
    /// Dropped with the line; jobs notice it.
    lives: Arc<()>,
    waiting: VecDeque<Receiver<Result<Vec<u8>>>>,
    ahead: usize,
    written: u64,
    write: &'w mut dyn FnMut(&[u8]) -> Result<()>,
}

impl Line<'_, '_> {
    fn send(&mut self, stretch: Stretch) -> Result<()> {
        self.reader.store().host().check_stop()?;
        if self.waiting.len() >= self.ahead {
            self.write_oldest()?;
        }
        let (done, outcome) = bounded(1);
        let line = Arc::downgrade(&self.lives);
        let job = Job {
            stretch,
            done,
            line,
        };
        if self
            .jobs
            .as_ref()
            .is_none_or(|jobs| jobs.send(job).is_err())
        {
            return Err(Error::interrupted("the threads that read are gone"));
        }
        self.waiting.push_back(outcome);
        Ok(())
    }

    fn write_oldest(&mut self) -> Result<()> {
        let Some(outcome) = self.waiting.pop_front() else {
            return Ok(());
        };
        let bytes = outcome
            .recv()
            .map_err(|_| Error::interrupted("the thread that read is gone"))??;
        self.written += bytes.len() as u64;
        (self.write)(&bytes)
    }

    /// Writes the remaining stretches.
    fn end(mut self) -> Result<u64> {
        self.jobs = None;
        while !self.waiting.is_empty() {
            self.reader.store().host().check_stop()?;
            self.write_oldest()?;
        }
        Ok(self.written)
    }
}

impl Piece {
    fn of(
        reader: &Reader<'_>,
        id: ChunkId,
        start: u64,
        len: u64,
        range: &Range<u64>,
    ) -> Result<Self> {
        let zero = reader.store().chunker().zero_chunk();
        let location = match (id, len) == (zero.0, u64::from(zero.1)) {
            true => None,
            false => Some(reader.locate(&id)?),
        };
        if let Some(location) = location.filter(|location| u64::from(location.len) != len) {
            return Err(Error::corrupt(format!(
                "chunk {id}: {} bytes, its list says {len}",
                location.len
            )));
        }
        let clip = |at: u64| usize::try_from(at.saturating_sub(start).min(len)).unwrap_or_default();
        Ok(Self {
            id,
            location,
            len,
            wanted: clip(range.start)..clip(range.end),
        })
    }

    /// Whether both are in the same frame, or both in none.
    fn is_in_frame_of(&self, other: &Self) -> bool {
        let frame = |piece: &Self| piece.location.map(|at| Extent::of(&at));
        frame(self) == frame(other)
    }

    /// Whether `next`, which follows, is in another frame. Chunks of zeros are in none.
    fn ends_before(&self, next: &Self) -> bool {
        self.location.is_none() || !self.is_in_frame_of(next)
    }

    /// The wanted part of the chunk's bytes.
    fn cut<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(self.wanted.clone()).unwrap_or_default()
    }
}

impl Stretch {
    fn push(&mut self, piece: Piece) {
        self.bytes += piece.len;
        self.pieces.push(piece);
    }

    /// Whether `next`, which follows, is in another frame.
    fn ends_before(&self, next: &Piece) -> bool {
        self.pieces
            .last()
            .is_some_and(|last| last.ends_before(next))
    }

    /// Reads that cover all frames of the stretch.
    fn reads(&self, by: Coalesce) -> impl Iterator<Item = Extent> {
        let locations = self.pieces.iter().filter_map(|piece| piece.location);
        let reads = coalesce(locations.collect(), Extent::of, by);
        reads.into_iter().map(|(extent, _)| extent)
    }
}

fn work(reader: &Reader<'_>, coalesce: Coalesce, queue: &Receiver<Job>) {
    for job in queue {
        // Nobody waits any more after an earlier stretch failed.
        if job.line.strong_count() > 0 {
            drop(job.done.send(bytes_of(reader, coalesce, &job.stretch)));
        }
    }
}

/// Reads, decodes and verifies a stretch.
fn bytes_of(reader: &Reader<'_>, coalesce: Coalesce, stretch: &Stretch) -> Result<Vec<u8>> {
    let mut reads = Vec::new();
    for extent in stretch.reads(coalesce) {
        match read_frames(reader.store(), extent.pack, extent.offset, extent.len) {
            Ok(stored) => reads.push(Stored { extent, stored }),
            // The pack was deleted: each chunk is read from its location in the newest state.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let mut out = Vec::with_capacity(usize::try_from(stretch.bytes).unwrap_or_default());
    let spare = reader.spare().pop();
    let (mut decoder, mut raw) = (spare.map_or_else(Decoder::new, Ok)?, Vec::new());
    for pieces in stretch.pieces.chunk_by(Piece::is_in_frame_of) {
        let location = pieces.first().and_then(|piece| piece.location);
        let stored = location.and_then(|at| reads.iter().find_map(|read| read.stored(&at)));
        let Some((at, stored)) = location.zip(stored) else {
            for piece in pieces {
                match piece.location {
                    None => out.resize(out.len() + piece.wanted.len(), 0),
                    Some(_) => out.extend_from_slice(piece.cut(&reader.meta_chunk(&piece.id)?)),
                }
            }
            continue;
        };
        let frame = reader.decode(&mut decoder, &at, stored, &mut raw)?;
        for piece in pieces {
            let at = piece.location.unwrap_or(at);
            let verified = at.of(piece.id).verified(frame);
            let bytes = verified.map_err(|error| reader.blame_base(&at, error))?;
            out.extend_from_slice(piece.cut(bytes));
        }
    }
    reader.spare().push(decoder);
    Ok(out)
}
