//! Workers: read files, cut them into chunks, hash, claim, and pass new chunks to frames.
//!
//! One worker reads and hashes a small file; for large ones see [`large`]. If a file changes while it is read,
//! that is an error.

mod large;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, TryRecvError, select, select_biased};

use super::PutRequest;
use super::dedup::Dedup;
use super::job::{FileJob, Task};
use super::messages::{FileChunk, FileRead, Ingested};
use super::near::{FileNear, Finder, Source};
use super::reading::read_small;
use crate::chunk::{Chunker, Cutter};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FrameKind;
use crate::host::stat_cache::WriteBack;
use crate::id::ChunkId;
use crate::pack::{Framer, KindFrame};
use crate::progress::Progress;
use crate::store::Store;

pub(super) use large::Spans;

/// Bytes of buffers of one worker: two blocks, a frame, its plain encoding, its encoding as a delta, and a frame in
/// flight.
const WORKER_BYTES: u64 = 16 << 20;

/// Why a file failed: its own fault, or the store's.
enum Fault {
    Unreadable(Error),
    Broken(Error),
}

impl Fault {
    /// The fault of a file that failed its check.
    fn of_check(job: &FileJob, error: Error) -> Self {
        let is_optional = job.check.as_ref().is_some_and(|check| check.is_optional);
        match error.kind() {
            // Only this file is to be left out.
            ErrorKind::Denied => Self::Unreadable(error),
            ErrorKind::Corrupt if is_optional => Self::Unreadable(error),
            _ => Self::Broken(error),
        }
    }
}

/// Consecutive bytes of a large file, and where they are cut.
pub(super) struct Block {
    number: u64,
    part: u64,
    /// The offset of the bytes in the file.
    offset: u64,
    bytes: Vec<u8>,
    cuts: Vec<Range<usize>>,
    near: Option<Arc<FileNear>>,
}

/// One worker.
pub(super) struct Ingest<'p> {
    store: &'p Store,
    chunker: Chunker,
    dedup: &'p Dedup,
    progress: &'p dyn Progress,
    framer: Framer<Sender<KindFrame>, Source<'p>>,
    finder: Option<&'p Finder<'p>>,
    results: Sender<Ingested>,
    blocks: Sender<Block>,
    spans: Spans,
    spare: Spare,
    failed: &'p AtomicBool,
    /// Writes pages of files back; none, if files are not remembered.
    write_back: Option<&'p WriteBack>,
    /// A buffer for small files.
    small: Vec<u8>,
}

/// Buffers of blocks for reuse: one worker fills them and another one empties them.
#[derive(Clone)]
pub(super) struct Spare(Sender<Vec<u8>>, Receiver<Vec<u8>>);

/// Where a worker sends its results, and where others ask it for help.
#[derive(Clone)]
pub(super) struct Outlets<'o> {
    pub(super) frames: Sender<KindFrame>,
    pub(super) results: Sender<Ingested>,
    pub(super) blocks: Sender<Block>,
    pub(super) spans: Spans,
    pub(super) spare: Spare,
    /// Whether a stage of the put has failed.
    pub(super) failed: &'o AtomicBool,
}

impl Spare {
    pub(super) fn new(buffers: usize) -> Self {
        let (give, take) = crossbeam_channel::bounded(buffers);
        Self(give, take)
    }

    fn take(&self) -> Vec<u8> {
        self.1.try_recv().unwrap_or_default()
    }

    /// Keeps the buffer, unless there are enough.
    fn give(&self, bytes: Vec<u8>) {
        drop(self.0.try_send(bytes));
    }
}

impl<'p> Ingest<'p> {
    pub(super) fn new(
        store: &'p Store,
        request: &PutRequest,
        (dedup, finder): (&'p Dedup, Option<&'p Finder<'p>>),
        progress: &'p dyn Progress,
        write_back: Option<&'p WriteBack>,
        outlets: Outlets<'p>,
    ) -> Result<Self> {
        let Outlets {
            frames,
            results,
            blocks,
            spans,
            spare,
            failed,
        } = outlets;
        let framer = Framer::with_bases(
            FrameKind::Data,
            request.level,
            request.verify_writes,
            frames,
            Source(finder),
        )?;
        let chunker = store.chunker().clone();
        Ok(Self {
            store,
            chunker,
            dedup,
            progress,
            framer,
            finder,
            results,
            blocks,
            spans,
            spare,
            failed,
            write_back,
            small: Vec::new(),
        })
    }

    /// Works until there are no tasks left, then helps with the last blocks.
    ///
    /// Errors are sent as results. If they cannot be delivered, the put has failed for a reason that is reported
    /// elsewhere.
    pub(super) fn run(mut self, tasks: &Receiver<Task>, blocks: &Receiver<Block>) {
        let asked = self.spans.asked.clone();
        loop {
            // Blocks and spans come first: they occupy memory, and a large file waits for them.
            match blocks.try_recv() {
                Ok(block) => self.hash(block),
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => select_biased! {
                    recv(asked) -> span => if let Ok(span) = span { self.guess(span) },
                    recv(blocks) -> block => if let Ok(block) = block { self.hash(block) },
                    recv(tasks) -> task => match task {
                        Ok(task) => self.task(task),
                        Err(_) => break,
                    },
                },
            }
        }
        let (closed, _) = crossbeam_channel::bounded(0);
        self.blocks = closed;
        loop {
            select! {
                recv(asked) -> span => if let Ok(span) = span { self.guess(span) },
                recv(blocks) -> block => match block {
                    Ok(block) => self.hash(block),
                    Err(_) => break,
                },
            }
        }
        if let Err(error) = self.framer.flush() {
            self.tell(Ingested::Broken(error));
        }
    }

    /// Fails when the put was stopped, or has failed elsewhere.
    fn check_going(&self) -> Result<()> {
        self.store.host().check_stop()?;
        match self.failed.load(Ordering::Relaxed) {
            true => Err(Error::interrupted("another stage of the put failed")),
            false => Ok(()),
        }
    }

    fn task(&mut self, task: Task) {
        if let Err(error) = self.check_going() {
            return self.tell(Ingested::Broken(error));
        }
        match task {
            Task::Small(jobs) => jobs.into_iter().for_each(|job| {
                let outcome = self.small(&job);
                self.close(&job, outcome);
            }),
            Task::Large(job) => {
                let outcome = self.large(&job);
                self.close(&job, outcome);
            }
        }
    }

    fn close(&self, job: &FileJob, outcome: Result<FileRead, Fault>) {
        self.progress.advance(1, 0);
        let number = job.number;
        self.tell(match outcome {
            Ok(mut file) => {
                file.stat = file.stat.as_program(job.may_execute);
                Ingested::End { number, file }
            }
            Err(Fault::Unreadable(error)) => Ingested::Unreadable {
                number,
                path: job.path(),
                error,
            },
            Err(Fault::Broken(error)) => Ingested::Broken(error),
        });
    }

    /// Calls [`WriteBack::ensure`]; must precede any read.
    fn ensure_shown(&self, job: &FileJob, file: &File, is_small: bool) -> bool {
        let write_back = self.write_back;
        write_back.is_some_and(|pages| pages.ensure(file, &job.stat, is_small, job.read_began))
    }

    fn small(&mut self, job: &FileJob) -> Result<FileRead, Fault> {
        let mut bytes = std::mem::take(&mut self.small);
        let mut shows_changes = false;
        let opened = job.read_as_seen(&mut bytes, |bytes| {
            let file = job.open()?;
            shows_changes = self.ensure_shown(job, &file, true);
            read_small(job, &file, bytes, &mut || ())
        });
        let outcome = opened.map_err(Fault::Unreadable).and_then(|stat| {
            job.check_whole(&bytes)
                .map_err(|error| Fault::of_check(job, error))?;
            let (mut near, mut found) = (None, Vec::new());
            if !job.stores_nothing() {
                let size = bytes.len() as u64;
                let cutter = Cutter::new(&self.chunker, &bytes.as_slice(), size);
                let mut cutter = cutter.map_err(|e| Fault::Unreadable(job.unreadable(e)))?;
                near = self.near(job, size, &cutter);
                found = cuts(&mut cutter, &bytes, true);
            }
            let chunks = self
                .store_chunks((&bytes, 0), &found, near.as_deref())
                .map_err(Fault::Broken)?;
            self.tell(Ingested::Part {
                number: job.number,
                part: 0,
                chunks,
            });
            Ok(FileRead {
                parts: 1,
                stat,
                shows_changes,
            })
        });
        self.small = bytes;
        outcome
    }

    fn hash(&mut self, block: Block) {
        let bytes = (block.bytes.as_slice(), block.offset);
        match self.store_chunks(bytes, &block.cuts, block.near.as_deref()) {
            Ok(chunks) => self.tell(Ingested::Part {
                number: block.number,
                part: block.part,
                chunks,
            }),
            Err(error) => self.tell(Ingested::Broken(error)),
        }
        self.spare.give(block.bytes);
    }

    /// The neighbourhood of a file's bytes, in which bases of deltas are found, if deltas are made.
    fn near(&self, job: &FileJob, size: u64, cutter: &Cutter) -> Option<Arc<FileNear>> {
        let (finder, path) = self.finder.zip(job.place.clone())?;
        FileNear::new(finder, job.number, (path, size), cutter.tensors()).map(Arc::new)
    }

    /// Stores the new chunks among `bytes`, which begin at an offset of the file.
    fn store_chunks(
        &mut self,
        (bytes, offset): (&[u8], u64),
        cuts: &[Range<usize>],
        near: Option<&FileNear>,
    ) -> Result<Vec<FileChunk>> {
        let mut chunks = Vec::with_capacity(cuts.len());
        for cut in cuts {
            let chunk = bytes.get(cut.clone()).unwrap_or_default();
            let id = ChunkId::of(chunk);
            let len = u32::try_from(chunk.len())
                .map_err(|_| Error::invalid("a chunk would outgrow 32-bit lengths"))?;
            if self.dedup.claim(&id)? {
                let at = offset + cut.start as u64;
                let (both, dedup) = (self.finder.zip(near), self.dedup);
                (self.framer).push_near(id, chunk, &mut || match both {
                    Some((finder, near)) if !dedup.is_base(&id)? => near.near(finder, at, len),
                    _ => Ok(None),
                })?;
            }
            chunks.push((id, len));
        }
        let bytes: u64 = chunks.iter().map(|(_, len)| u64::from(*len)).sum();
        self.progress.advance(0, bytes);
        Ok(chunks)
    }

    /// Sends a result. If nobody receives it, the put has failed for a reason that is known there.
    fn tell(&self, ingested: Ingested) {
        drop(self.results.send(ingested));
    }
}

/// How many workers memory allows. On a bucket, half of the memory is for parts of uploads in flight.
pub(super) fn workers(store: &Store) -> usize {
    let host = store.host();
    let bytes_each = WORKER_BYTES * if store.is_far() { 2 } else { 1 };
    host.threads.clamp(1, host.affordable(bytes_each).max(1))
}

/// Cuts bytes that begin at the end of a chunk.
fn cuts(cutter: &mut Cutter, bytes: &[u8], is_end: bool) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let mut start = 0;
    while let Some(rest) = bytes.get(start..).filter(|rest| !rest.is_empty()) {
        let Some(len) = cutter.cut(rest, is_end) else {
            break;
        };
        cuts.push(start..start + len);
        start += len;
    }
    cuts
}
