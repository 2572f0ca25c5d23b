//! Workers: read files, cut them into chunks, hash, claim, and hand new chunks to frames.
//!
//! Small files are read and hashed by one worker. A large file is read and cut by one worker, block
//! by block, while all of them hash and encode the blocks. A file that changes while it is read is an error.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, select};

use super::PutRequest;
use super::dedup::Dedup;
use super::job::{FileJob, Task};
use super::messages::{FileChunk, FileRead, Ingested};
use super::reading::{Cursor, read_small, unchanged};
use crate::chunk::{Chunker, Cutter};
use crate::error::{Error, Kind, Result};
use crate::format::FrameKind;
use crate::host::stat_cache::WriteBack;
use crate::host::walk::Stat;
use crate::id::ChunkId;
use crate::pack::{Framer, KindFrame};
use crate::profile::Inspection;
use crate::progress::Progress;
use crate::store::Store;

/// Files up to this size are read whole by one worker.
pub(super) const SMALL_BYTES_MAX: u64 = 1 << 20;
/// Zero chunks that one message carries at most.
const ZERO_CHUNKS_MAX: u64 = 1 << 14;

/// Why a file did not make it: its own fault, or the store's.
enum Fault {
    Unreadable(Error),
    Broken(Error),
}

/// Consecutive bytes of a large file and where they are cut.
#[derive(Debug)]
pub(super) struct Block {
    number: u64,
    part: u64,
    bytes: Vec<u8>,
    cuts: Vec<Range<usize>>,
}

/// One worker.
pub(super) struct Ingest<'p> {
    store: &'p Store,
    chunker: Chunker,
    dedup: &'p Dedup,
    progress: &'p dyn Progress,
    framer: Framer<Sender<KindFrame>>,
    results: Sender<Ingested>,
    blocks: Sender<Block>,
    spare: Spare,
    failed: &'p AtomicBool,
    /// What is known of the pages of files; none when nothing is remembered of them.
    write_back: Option<&'p WriteBack>,
    /// The bytes of a small file.
    small: Vec<u8>,
}

/// Buffers of blocks, to be used again: they are filled by one worker and emptied by another.
#[derive(Clone)]
pub(super) struct Spare(Sender<Vec<u8>>, Receiver<Vec<u8>>);

/// Where the results of a worker go, and where its help is asked for.
#[derive(Clone)]
pub(super) struct Outlets<'o> {
    pub(super) frames: Sender<KindFrame>,
    pub(super) results: Sender<Ingested>,
    pub(super) blocks: Sender<Block>,
    pub(super) spare: Spare,
    /// Whether a stage has failed, and the put with it.
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
        dedup: &'p Dedup,
        progress: &'p dyn Progress,
        write_back: Option<&'p WriteBack>,
        outlets: Outlets<'p>,
    ) -> Result<Self> {
        let Outlets {
            frames,
            results,
            blocks,
            spare,
            failed,
        } = outlets;
        let framer = Framer::new(
            FrameKind::Data,
            request.level,
            request.verify_writes,
            frames,
        )?;
        let chunker = store.chunker().clone();
        Ok(Self {
            store,
            chunker,
            dedup,
            progress,
            framer,
            results,
            blocks,
            spare,
            failed,
            write_back,
            small: Vec::new(),
        })
    }

    /// Works until there are no tasks left, then helps with the last blocks.
    ///
    /// Errors travel with the results; what cannot be delivered any more has an explanation elsewhere.
    pub(super) fn run(mut self, tasks: &Receiver<Task>, blocks: &Receiver<Block>) {
        loop {
            // Blocks first: they hold memory, and a large file waits for them.
            match blocks.try_recv() {
                Ok(block) => self.hash(block),
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => select! {
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
        blocks.iter().for_each(|block| self.hash(block));
        if let Err(error) = self.framer.flush() {
            self.tell(Ingested::Broken(error));
        }
    }

    /// Fails when the put has been stopped, or has failed elsewhere.
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

    /// See [`WriteBack::ensure`]; to be called before anything is read.
    fn ensure_shown(&self, job: &FileJob, file: &File, is_small: bool) -> bool {
        let write_back = self.write_back;
        write_back.is_some_and(|pages| pages.ensure(file, &job.stat, is_small, job.read_began))
    }

    fn small(&mut self, job: &FileJob) -> Result<FileRead, Fault> {
        let mut bytes = std::mem::take(&mut self.small);
        let mut shows_changes = false;
        let opened = job.read_as_seen(&mut bytes, |bytes| {
            let file = job.dir.open_file(&job.name)?;
            shows_changes = self.ensure_shown(job, &file, true);
            read_small(job, &file, bytes, &mut || ())
        });
        let outcome = opened.map_err(Fault::Unreadable).and_then(|stat| {
            job.check_whole(&bytes)
                .map_err(|error| match error.kind() {
                    // It alone is to be left out.
                    Kind::Denied => Fault::Unreadable(error),
                    _ => Fault::Broken(error),
                })?;
            let cuts = match job.stores_nothing() {
                true => Vec::new(),
                false => {
                    let size = bytes.len() as u64;
                    let cutter = Cutter::new(&self.chunker, &bytes.as_slice(), size);
                    let mut cutter = cutter.map_err(|e| Fault::Unreadable(job.unreadable(e)))?;
                    cuts(&mut cutter, &bytes, true)
                }
            };
            let chunks = self.store_chunks(&bytes, &cuts).map_err(Fault::Broken)?;
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

    fn large(&mut self, job: &FileJob) -> Result<FileRead, Fault> {
        let file = job.dir.open_file(&job.name).map_err(Fault::Unreadable)?;
        let shows_changes = self.ensure_shown(job, &file, false);
        let before = Stat::of_file(&file, &job.path()).map_err(Fault::Unreadable)?;
        let mut cutter = Cutter::new(&self.chunker, &file, before.size)
            .map_err(|error| Fault::Unreadable(job.unreadable(error)))?;
        let mut cursor = Cursor {
            file: &file,
            job,
            // The chunks of a hole are known only where content alone says where to cut.
            is_sparse: before.is_sparse() && cutter.is_plain(),
            size: before.size,
            offset: 0,
        };
        let mut inspection = job.inspection(before.size);
        let mut parts = 0;
        let mut rest = Vec::new();
        loop {
            self.check_going().map_err(Fault::Broken)?;
            if job.stores_nothing() {
                return Ok(FileRead {
                    parts,
                    stat: before,
                    shows_changes: false,
                });
            }
            if rest.is_empty() {
                let hole = cursor.hole().map_err(Fault::Unreadable)?;
                let offset = cursor.offset;
                self.zeros(hole, &mut cursor, &mut parts)
                    .map_err(Fault::Broken)?;
                if let Some(inspection) = &mut inspection {
                    inspection.zeros(cursor.offset - offset);
                }
            }
            let mut bytes = self.spare.take();
            bytes.clear();
            bytes.append(&mut rest);
            let is_end = cursor.fill(&mut bytes).map_err(Fault::Unreadable)?;
            let cuts = cuts(&mut cutter, &bytes, is_end);
            let used = cuts.last().map_or(0, |cut| cut.end);
            rest.extend_from_slice(bytes.get(used..).unwrap_or_default());
            cursor.rewind(&mut rest);
            if let Some(inspection) = &mut inspection {
                inspection.update(bytes.get(..used).unwrap_or_default());
            }
            let block = Block {
                number: job.number,
                part: parts,
                bytes,
                cuts,
            };
            parts += 1;
            match self.blocks.try_send(block) {
                Ok(()) => {}
                Err(TrySendError::Full(block) | TrySendError::Disconnected(block)) => {
                    self.hash(block)
                }
            }
            if is_end && rest.is_empty() {
                break;
            }
        }
        let after =
            Stat::of_file(&file, &job.path()).and_then(|after| unchanged(job, &before, after));
        let after = after.map_err(Fault::Unreadable)?;
        inspection
            .map_or(Ok(()), Inspection::finish)
            .map_err(|error| Fault::Broken(job.failed_check(error)))?;
        Ok(FileRead {
            parts,
            stat: after,
            shows_changes,
        })
    }

    /// Hands on the chunks of a hole without reading it: they are the chunks that its zeros would be cut into.
    fn zeros(&mut self, hole: u64, cursor: &mut Cursor<'_>, parts: &mut u64) -> Result<()> {
        let (id, len) = self.chunker.zero_chunk();
        let mut left = hole / u64::from(len);
        if left > 0 && self.dedup.claim(&id)? {
            self.framer.push(id, &vec![0; len as usize])?;
        }
        while left > 0 {
            self.check_going()?;
            let count = left.min(ZERO_CHUNKS_MAX);
            let chunks = (0..count).map(|_| (id, len)).collect();
            self.tell(Ingested::Part {
                number: cursor.job.number,
                part: *parts,
                chunks,
            });
            *parts += 1;
            left -= count;
            cursor.offset += count * u64::from(len);
            self.progress.advance(0, count * u64::from(len));
        }
        Ok(())
    }

    fn hash(&mut self, block: Block) {
        match self.store_chunks(&block.bytes, &block.cuts) {
            Ok(chunks) => self.tell(Ingested::Part {
                number: block.number,
                part: block.part,
                chunks,
            }),
            Err(error) => self.tell(Ingested::Broken(error)),
        }
        self.spare.give(block.bytes);
    }

    fn store_chunks(&mut self, bytes: &[u8], cuts: &[Range<usize>]) -> Result<Vec<FileChunk>> {
        let mut chunks = Vec::with_capacity(cuts.len());
        for chunk in cuts.iter().filter_map(|cut| bytes.get(cut.clone())) {
            let id = ChunkId::of(chunk);
            if self.dedup.claim(&id)? {
                self.framer.push(id, chunk)?;
            }
            let len = u32::try_from(chunk.len())
                .map_err(|_| Error::invalid("a chunk would outgrow 32-bit lengths"))?;
            chunks.push((id, len));
        }
        self.progress.advance(0, bytes.len() as u64);
        Ok(chunks)
    }

    /// Sends a result; when nobody listens any more, the put has failed for a reason that is known there.
    fn tell(&self, ingested: Ingested) {
        drop(self.results.send(ingested));
    }
}

/// Where bytes are cut that begin where the last chunk ended.
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
