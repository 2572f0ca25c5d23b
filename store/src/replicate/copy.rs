//! Copying: reads runs, decodes their frames, checks every wanted chunk, and passes them to the uploader.
//!
//! A wanted frame is sent as it is encoded. If most of a frame is at the destination already, only its wanted chunks
//! are encoded again. A chunk that does not match its id is never sent. Memory: for each worker, one stored run and a
//! frame or two, within the budget of the host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::missing::{Unreadable, Wants, is_its_own};
use super::runs::{EachRun, FrameChunk, Run, WantedFrame, join};
use super::uploader::Uploader;
use crate::codec::{Decoder, LEVEL, delta_base};
use crate::error::{End, Error, ErrorKind, Result};
use crate::format::{FrameKind, PackChunk, pack_key};
use crate::id::{ChunkId, PackId};
use crate::index::Location;
use crate::pack::{Coalesce, EncodedFrame, Extent, Framer, KindFrame};
use crate::progress::Progress;
use crate::read::{Reader, read_frames};
use crate::remedy::Remedy;
use crate::session::Relied;
use crate::store::{Store, View};

/// Bytes of buffers that one worker needs: a run, a decoded frame, its encoding, frames in flight.
const WORKER_BYTES: u64 = 3 * Coalesce::COPY.read_bytes_max as u64;
/// Least number of concurrent reads, even with fewer threads: most of the time they wait for a network.
const WORKERS_MIN: usize = 8;

/// Why a copy ended early.
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether the destination failed.
    pub(super) is_there: bool,
}

/// A chunk whose pack is gone, with its old location: the pack and the offset of the frame.
type Gone = (ChunkId, (PackId, u32));

/// What the workers of one pass share.
struct Shared<'c> {
    from: &'c Store,
    /// Reads bases of deltas at the source.
    reader: &'c Reader<'c>,
    /// What the destination offers; bases of copied deltas are relied on.
    there: &'c Relied,
    wants: &'c Wants,
    kind: FrameKind,
    progress: &'c dyn Progress,
    is_over: AtomicBool,
    error: Mutex<Option<Error>>,
    gone: Mutex<Vec<Gone>>,
    unreadable: Mutex<&'c mut Unreadable>,
}

/// One worker.
struct Worker<'w, 'c> {
    shared: &'w Shared<'c>,
    decoder: Decoder,
    framer: Framer<Sender<KindFrame>>,
    raw: Vec<u8>,
}

/// Copies everything in `wants`. Adds what cannot be read to `unreadable`. Brings `source` up to date if packs have
/// moved.
pub(super) fn copy(
    (from, there): (&Store, &Relied),
    source: &mut View,
    wants: &Wants,
    uploader: &mut Uploader<'_>,
    unreadable: &mut Unreadable,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    const KINDS: [FrameKind; 2] = [FrameKind::Meta, FrameKind::Data];
    let reader = &Reader::at(from, source.clone());
    let mut gone = Vec::new();
    for kind in KINDS {
        let plan = &mut |each: &mut EachRun<'_>| wants.for_each_run(kind, each);
        gone.extend(pass(
            (reader, there, wants),
            kind,
            plan,
            uploader,
            unreadable,
            progress,
        )?);
    }
    while !gone.is_empty() {
        let found = find_again(from, source, gone, unreadable).map_err(Failure::of_source)?;
        gone = Vec::new();
        for kind in KINDS {
            let of_kind = found.iter().filter(|(_, location)| location.kind == kind);
            let plan = &mut |each: &mut EachRun<'_>| {
                join(of_kind.clone().copied())
                    .into_iter()
                    .try_for_each(&mut *each)
            };
            gone.extend(pass(
                (reader, there, wants),
                kind,
                plan,
                uploader,
                unreadable,
                progress,
            )?);
        }
    }
    Ok(())
}

/// Finds the current locations of chunks whose packs are gone, in the order of their locations.
fn find_again(
    from: &Store,
    source: &mut View,
    gone: Vec<Gone>,
    unreadable: &mut Unreadable,
) -> Result<Vec<(ChunkId, Location)>> {
    from.refresh(source)?;
    let mut found = Vec::new();
    for (id, before) in gone {
        let why = match source.index.find(&id)? {
            Some(now) if (now.pack, now.frame_offset) != before => {
                found.push((id, now));
                continue;
            }
            Some(_) => Error::corrupt(format!("chunk {id}: its pack {} is missing", before.0)),
            None => Error::not_found(format!(
                "chunk {id}: the source offers it no more; what it belonged to was deleted meanwhile"
            )),
        };
        unreadable.insert(id, (why.kind(), why.to_string()));
    }
    found.sort_unstable_by_key(|(_, at)| (at.pack, at.frame_offset, at.offset));
    Ok(found)
}

/// Reads and sends the runs of one kind that `plan` produces. Returns the chunks whose packs were gone.
fn pass(
    (reader, there, wants): (&Reader<'_>, &Relied, &Wants),
    kind: FrameKind,
    plan: &mut dyn FnMut(&mut EachRun<'_>) -> Result<()>,
    uploader: &mut Uploader<'_>,
    unreadable: &mut Unreadable,
    progress: &dyn Progress,
) -> Result<Vec<Gone>, Failure> {
    let from = reader.store();
    let shared = Shared {
        from,
        reader,
        there,
        wants,
        kind,
        progress,
        is_over: AtomicBool::new(false),
        error: Mutex::default(),
        gone: Mutex::default(),
        unreadable: Mutex::new(unreadable),
    };
    let to = uploader.to;
    let workers = workers(to);
    let sent = std::thread::scope(|scope| {
        let (runs, to_read) = bounded(workers);
        let (frames, to_send) = bounded(2 * workers);
        let sending = scope.spawn(move || uploader.run(&to_send));
        for _ in 0..workers {
            let (shared, to_read, frames) = (&shared, to_read.clone(), frames.clone());
            scope.spawn(move || shared.settle(work(shared, &to_read, frames)));
        }
        drop((to_read, frames));
        let planned = plan(&mut |run| {
            from.host().check_stop()?;
            to.host().check_stop()?;
            match shared.is_over.load(Ordering::Relaxed) {
                false if runs.send(run).is_ok() => Ok(()),
                _ => Err(Error::interrupted("the copy stopped")),
            }
        });
        shared.settle(planned);
        drop(runs);
        sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    sent.map_err(|error| Failure {
        is_there: error.kind() != ErrorKind::Interrupted,
        error,
    })?;
    let error = shared.error.into_inner();
    match error.unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(Failure::of_source(error)),
        None => Ok(shared
            .gone
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)),
    }
}

fn work(shared: &Shared<'_>, runs: &Receiver<Run>, frames: Sender<KindFrame>) -> Result<()> {
    let mut worker = Worker {
        shared,
        decoder: Decoder::new()?,
        framer: Framer::new(shared.kind, LEVEL, true, frames)?,
        raw: Vec::new(),
    };
    for run in runs {
        if shared.is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        worker.run(&run)?;
    }
    worker.framer.flush()
}

impl Worker<'_, '_> {
    fn run(&mut self, run: &Run) -> Result<()> {
        let Extent { pack, offset, len } = run.extent;
        match read_frames(self.shared.from, pack, offset, len) {
            Ok(stored) => run.frames.iter().try_for_each(|frame| {
                let start = (frame.offset - offset) as usize;
                let end = start + frame.stored_len as usize;
                self.frame(pack, frame, stored.get(start..end).unwrap_or_default())
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut gone = lock(&self.shared.gone);
                for frame in &run.frames {
                    let place = (pack, frame.offset);
                    gone.extend(frame.wanted().map(|chunk| (chunk.id, place)));
                }
                Ok(())
            }
            // The pack ends too early. What is before its end is good.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                run.frames.iter().try_for_each(|frame| {
                    match read_frames(self.shared.from, pack, frame.offset, frame.stored_len) {
                        Ok(stored) => self.frame(pack, frame, &stored),
                        Err(error) if error.kind() == ErrorKind::Corrupt => {
                            self.shared.damaged(frame.wanted(), &error);
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                })
            }
            Err(error) => Err(error),
        }
    }

    fn frame(&mut self, pack: PackId, frame: &WantedFrame, stored: &[u8]) -> Result<()> {
        let object = match frame.is_delta {
            true => format!("{}: frame at offset {}", pack_key(pack), frame.offset),
            false => pack_key(pack),
        };
        let (decoder, reader) = (&mut self.decoder, self.shared.reader);
        let decoded = match frame.is_delta {
            true => decoder.decode(&object, stored, frame.raw_len, reader, &mut self.raw),
            false => decoder.decode_plain(&object, stored, frame.raw_len, &mut self.raw),
        };
        let raw = match decoded {
            Err(error) if is_its_own(&error) => {
                self.shared.damaged(frame.wanted(), &error);
                return Ok(());
            }
            decoded => decoded?,
        };
        let mut good = Vec::with_capacity(frame.chunks.len());
        for chunk in &frame.chunks {
            match frame.chunk_of(pack, chunk).verified(raw) {
                Ok(bytes) => good.push((chunk, bytes)),
                Err(error) if chunk.is_wanted => {
                    let place = (pack, frame.offset, frame.stored_len);
                    let error = match frame.is_delta {
                        true => reader.blame_base_of(place, error),
                        false => error,
                    };
                    self.shared.damaged(std::iter::once(chunk), &error);
                }
                Err(_) => {}
            }
        }
        let wanted = frame.wanted().map(|chunk| u64::from(chunk.len)).sum();
        self.shared.progress.advance(0, wanted);
        let bases = match frame.is_delta {
            true => delta_base(&object, stored)?.map(|base| base.ids),
            false => None,
        };
        // A delta is sent as it is if the destination has its bases.
        let has_bases = self
            .shared
            .has_bases(bases.as_deref().unwrap_or_default())?;
        if good.len() < frame.chunks.len() || !frame.is_whole() || !has_bases {
            good.retain(|(chunk, _)| chunk.is_wanted);
            return good
                .into_iter()
                .try_for_each(|(chunk, bytes)| self.framer.push(chunk.id, bytes));
        }
        let chunks = frame.chunks.iter().map(|chunk| PackChunk {
            id: chunk.id,
            len: chunk.len,
        });
        let whole = EncodedFrame {
            stored: stored.to_vec(),
            raw_len: frame.raw_len,
            chunks: chunks.collect(),
            bases: bases.unwrap_or_default(),
        };
        self.framer.push_frame(whole)
    }
}

impl Shared<'_> {
    /// Whether the destination offers all of these in plain frames, or will get them so; relies on them.
    fn has_bases(&self, bases: &[ChunkId]) -> Result<bool> {
        for base in bases {
            if !self.wants.brings_plain(base)? && !self.there.is_base_offered(base)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps the error that is the cause of the others, and stops all workers.
    fn settle(&self, outcome: Result<()>) {
        let Err(error) = outcome else { return };
        self.is_over.store(true, Ordering::Relaxed);
        let mut first = lock(&self.error);
        if first
            .as_ref()
            .is_none_or(|first| first.kind() == ErrorKind::Interrupted)
        {
            *first = Some(error);
        }
    }

    fn damaged<'f>(&self, chunks: impl Iterator<Item = &'f FrameChunk>, error: &Error) {
        let why = (error.kind(), error.to_string());
        lock(&self.unreadable).extend(chunks.map(|chunk| (chunk.id, why.clone())));
    }
}

impl Failure {
    /// The error, which says which store it is about. Being stopped is about neither.
    pub(super) fn into_error(self) -> Error {
        match (self.error.kind(), self.is_there) {
            (ErrorKind::Interrupted, _) => self.error,
            (_, true) => at_destination(self.error),
            (_, false) => at_source(self.error),
        }
    }

    pub(super) fn of_source(error: Error) -> Self {
        Self {
            error,
            is_there: false,
        }
    }

    pub(super) fn of_destination(error: Error) -> Self {
        Self {
            error,
            is_there: true,
        }
    }
}

pub(super) fn at_source(error: Error) -> Error {
    error.at(End::Source)
}

/// The error about a version that cannot be read at the source. Where nothing is hinted, a look at the source is.
pub(super) fn unreadable(error: Error) -> Error {
    let error = at_source(error);
    match (error.kind(), error.remedy()) {
        (ErrorKind::Corrupt, None) => error.hint(Remedy::VerifySource),
        _ => error,
    }
}

pub(super) fn at_destination(error: Error) -> Error {
    error.at(End::Destination)
}

fn workers(to: &Store) -> usize {
    let host = to.host();
    let wanted = host.threads.max(WORKERS_MIN);
    wanted.min(host.affordable(WORKER_BYTES)).max(1)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
