//! Large files: one worker reads and cuts them, and all workers hash and encode the chunks.
//!
//! The worker that owns the file decides where its chunks end. If that depends on content alone and the file is long,
//! all workers read and cut spans of it ahead ([`crate::chunk::Guess`]), and the owner only checks which of their cuts
//! hold. Otherwise it reads and cuts block by block.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select, unbounded};

use super::{Block, Fault, Ingest, cuts};
use crate::chunk::{Cutter, Guess};
use crate::error::Result;
use crate::host::walk::Stat;
use crate::profile::Inspection;
use crate::put::job::FileJob;
use crate::put::messages::{FileRead, Ingested};
use crate::put::near::FileNear;
use crate::put::reading::{Cursor, unchanged};

/// Bytes of a file that one worker cuts ahead.
const SPAN_BYTES: usize = 2 << 20;
/// Shorter files are read and cut by one worker.
const SPANS_MIN: u64 = 8;
/// Most zero chunks in one message.
const ZERO_CHUNKS_MAX: u64 = 1 << 14;

/// Spans of files that any worker may cut, and how many of them may be in flight.
#[derive(Clone)]
pub(in crate::put) struct Spans {
    ask: Sender<Span>,
    pub(super) asked: Receiver<Span>,
    on_their_way: Arc<AtomicUsize>,
    most: usize,
}

/// A part of a file that any worker cuts for the worker that owns the file.
pub(super) struct Span {
    file: Arc<File>,
    number: u64,
    offset: u64,
    /// The length, including the bytes behind the span that are needed to cut it.
    len: usize,
    is_end: bool,
    answer: Sender<Guessed>,
    permit: Option<Permit>,
}

/// A span that was read and cut.
struct Guessed {
    number: u64,
    bytes: io::Result<Vec<u8>>,
    guess: Guess,
    is_end: bool,
    _permit: Option<Permit>,
}

/// Counts the spans that occupy memory.
struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Spans {
    /// Prepares for this many workers.
    pub(in crate::put) fn new(workers: usize) -> Self {
        let (ask, asked) = bounded(workers);
        Self {
            ask,
            asked,
            on_their_way: Arc::default(),
            // A single worker gains nothing.
            most: if workers > 1 { workers } else { 0 },
        }
    }

    fn permit(&self) -> Option<Permit> {
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        let taken = self
            .on_their_way
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken
            .is_ok()
            .then(|| Permit(Arc::clone(&self.on_their_way)))
    }
}

impl Ingest<'_> {
    pub(super) fn large(&mut self, job: &FileJob) -> Result<FileRead, Fault> {
        let file = job.open().map_err(Fault::Unreadable)?;
        let file = Arc::new(file);
        let shows_changes = self.ensure_shown(job, &file, false);
        let before = Stat::of_file(&file, &job.path()).map_err(Fault::Unreadable)?;
        let cutter = Cutter::new(&self.chunker, &*file, before.size)
            .map_err(|error| Fault::Unreadable(job.unreadable(error)))?;
        // A hash over the whole file must be computed in order, and is no faster than one worker that cuts.
        let is_ordered = job.check.as_ref().is_some_and(|check| check.name.is_some());
        let near = self.near(job, before.size, &cutter);
        let is_plain = cutter.is_plain() && !before.is_sparse() && !is_ordered;
        let spans = before.size.div_ceil(SPAN_BYTES as u64);
        let parts = match is_plain && spans >= SPANS_MIN && self.spans.most > 0 {
            true => self.in_spans((job, near), &file, before.size)?,
            false => self.in_blocks((job, near), &file, cutter, &before)?,
        };
        if job.stores_nothing() {
            return Ok(FileRead {
                parts,
                stat: before,
                shows_changes: false,
            });
        }
        let after =
            Stat::of_file(&file, &job.path()).and_then(|after| unchanged(job, &before, after));
        Ok(FileRead {
            parts,
            stat: after.map_err(Fault::Unreadable)?,
            shows_changes,
        })
    }

    /// Passes on the chunks of a file of `size` bytes that all workers cut. Returns the number of parts.
    fn in_spans(
        &mut self,
        (job, near): (&FileJob, Option<Arc<FileNear>>),
        file: &Arc<File>,
        size: u64,
    ) -> Result<u64, Fault> {
        let (answer, answers) = unbounded();
        let count = size.div_ceil(SPAN_BYTES as u64);
        let (mut asked, mut next, mut parts, mut start) = (0, 0, 0, 0);
        let mut waiting: BTreeMap<u64, Guessed> = BTreeMap::new();
        while next < count {
            self.check_going().map_err(Fault::Broken)?;
            if job.stores_nothing() {
                break;
            }
            while asked < count {
                let permit = self.spans.permit();
                // Without a permit, this worker continues alone.
                if permit.is_none() && asked > next {
                    break;
                }
                let span = self.span(file, size, asked, &answer, permit);
                asked += 1;
                match self.spans.ask.try_send(span) {
                    Ok(()) => {}
                    Err(TrySendError::Full(span) | TrySendError::Disconnected(span)) => {
                        self.guess(span)
                    }
                }
            }
            waiting.extend(answers.try_iter().map(|guessed| (guessed.number, guessed)));
            let Some(guessed) = waiting.remove(&next) else {
                // The workers that were asked may wait for files of their own, so this one must help to cut.
                let asked = self.spans.asked.clone();
                select! {
                    recv(answers) -> guessed => waiting.extend(guessed.ok().map(|guessed| (guessed.number, guessed))),
                    recv(asked) -> span => if let Ok(span) = span { self.guess(span) },
                }
                continue;
            };
            let bytes = guessed.bytes.map_err(|source| {
                Fault::Unreadable(match source.kind() {
                    io::ErrorKind::UnexpectedEof => job.changed(),
                    _ => job.unreadable(source),
                })
            })?;
            let span = SPAN_BYTES.min(bytes.len());
            let chunks =
                guessed
                    .guess
                    .stitched(&self.chunker, &bytes, (start, span), guessed.is_end);
            start = chunks
                .last()
                .map_or(start, |last| last.end)
                .saturating_sub(SPAN_BYTES);
            if !chunks.is_empty() {
                let offset = next * SPAN_BYTES as u64;
                self.hand_on(job, parts, (offset, bytes, chunks), near.clone());
                parts += 1;
            }
            next += 1;
        }
        Ok(parts)
    }

    fn span(
        &self,
        file: &Arc<File>,
        size: u64,
        number: u64,
        answer: &Sender<Guessed>,
        permit: Option<Permit>,
    ) -> Span {
        let offset = number * SPAN_BYTES as u64;
        let len = SPAN_BYTES + self.chunker.max();
        let left = size - offset;
        Span {
            file: Arc::clone(file),
            number,
            offset,
            len: usize::try_from(left).unwrap_or(len).min(len),
            is_end: left <= len as u64,
            answer: answer.clone(),
            permit,
        }
    }

    /// Reads and cuts a span. If nobody receives the result, its file has failed.
    pub(super) fn guess(&self, span: Span) {
        let mut bytes = self.spare.take();
        bytes.resize(span.len, 0);
        let read = span.file.read_exact_at(&mut bytes, span.offset);
        let guess = match read {
            Ok(()) => Guess::of(&self.chunker, &bytes, SPAN_BYTES, span.is_end),
            Err(_) => Guess::default(),
        };
        drop(span.answer.send(Guessed {
            number: span.number,
            bytes: read.map(|()| bytes),
            guess,
            is_end: span.is_end,
            _permit: span.permit,
        }));
    }

    /// Passes on the chunks of a file that this worker reads and cuts alone. Returns the number of parts.
    fn in_blocks(
        &mut self,
        (job, near): (&FileJob, Option<Arc<FileNear>>),
        file: &File,
        mut cutter: Cutter,
        before: &Stat,
    ) -> Result<u64, Fault> {
        let mut cursor = Cursor {
            file,
            job,
            // The chunks of a hole are known only if cuts depend on content alone.
            is_sparse: before.is_sparse() && cutter.is_plain(),
            size: before.size,
            offset: 0,
        };
        let mut inspection = job.inspection(before.size);
        let (mut parts, mut at) = (0, 0);
        let mut rest = Vec::new();
        loop {
            self.check_going().map_err(Fault::Broken)?;
            if job.stores_nothing() {
                return Ok(parts);
            }
            if rest.is_empty() {
                let hole = cursor.hole().map_err(Fault::Unreadable)?;
                let offset = cursor.offset;
                self.zeros(hole, &mut cursor, &mut parts)
                    .map_err(Fault::Broken)?;
                at += cursor.offset - offset;
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
            self.hand_on(job, parts, (at, bytes, cuts), near.clone());
            parts += 1;
            at += used as u64;
            if is_end && rest.is_empty() {
                break;
            }
        }
        inspection
            .map_or(Ok(()), Inspection::finish)
            .map_err(|error| Fault::of_check(job, job.failed_check(error)))?;
        Ok(parts)
    }

    /// Passes bytes at an offset of the file to a free worker, or hashes them itself.
    fn hand_on(
        &mut self,
        job: &FileJob,
        part: u64,
        (offset, bytes, cuts): (u64, Vec<u8>, Vec<Range<usize>>),
        near: Option<Arc<FileNear>>,
    ) {
        let block = Block {
            number: job.number,
            part,
            offset,
            bytes,
            cuts,
            near,
        };
        match self.blocks.try_send(block) {
            Ok(()) => {}
            Err(TrySendError::Full(block) | TrySendError::Disconnected(block)) => self.hash(block),
        }
    }

    /// Passes on the chunks of a hole without reading it: the chunks into which its zeros would be cut.
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
}
