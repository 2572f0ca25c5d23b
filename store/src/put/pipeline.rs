//! The pipeline of a put: its stages, the channels between them, and how they stop each other.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::bounded;

use super::PutRequest;
use super::assemble::Assembler;
use super::dedup::Dedup;
use super::ingest::{Ingest, Outlets, Spans, Spare, workers};
use super::messages::{Built, EVENTS_TOLD, OfHost, Walked};
use super::near::Finder;
use super::packer::Packer;
use super::publish::PutSession;
use super::scan::Scan;
use crate::error::{Error, ErrorKind, Result};
use crate::host::stat_cache::WriteBack;
use crate::progress::Progress;
use crate::remedy::Note;
use crate::store::Store;

/// Most entries of the walk that wait for earlier files to be read.
const EVENTS_WAITING_MAX: usize = 1 << 16;
/// Most results of one worker that wait for the assembler. A sparse file makes them faster than it takes them.
const RESULTS_WAITING_MAX: usize = 4;

/// Runs all stages concurrently until the trees are built and every pack is durable.
pub(super) fn pipeline(
    store: &Store,
    request: &PutRequest,
    progress: &dyn Progress,
    mut scan: Scan<'_>,
    (cache, known, listing): OfHost<'_>,
    (dedup, finder): (&Dedup, Option<&Finder<'_>>),
    session: &PutSession<'_>,
) -> Result<Built> {
    let workers = workers(store);
    let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let secrets = scan.secrets();
    let expected = scan.expected().filter(|_| progress.is_watched());
    let is_remembered = cache.is_some() && !request.dry_run;
    let write_back = is_remembered.then(WriteBack::of_system);
    std::thread::scope(|scope| {
        let (over, failed, write_back) = (&over, &failed, write_back.as_ref());
        // A stage that fails stops the workers: what they would read and store would be in vain.
        let watched = |outcome: Result<_>| {
            failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            outcome
        };
        if let Some(expected) = expected {
            scope.spawn(move || expected.run(progress, over));
        }
        let (frames, to_pack) = bounded(2 * workers);
        let (tasks, to_ingest) = bounded(2 * workers);
        let (blocks, to_hash) = bounded(2 * workers);
        let (events, to_assemble) = bounded(EVENTS_WAITING_MAX / EVENTS_TOLD);
        let (results, finished) = bounded(RESULTS_WAITING_MAX * workers);

        let spare = Spare::new(4 * workers);
        let outlets = Outlets {
            frames: frames.clone(),
            results,
            blocks,
            spans: Spans::new(workers),
            spare,
            failed,
        };

        let packer = Packer::new(store, request.dry_run, session);
        let packing = scope.spawn(move || packer.run(&to_pack));
        for _ in 0..workers {
            let ingest = Ingest::new(
                store,
                request,
                (dedup, finder),
                progress,
                write_back,
                outlets.clone(),
            )?;
            let (tasks, blocks) = (to_ingest.clone(), to_hash.clone());
            scope.spawn(move || ingest.run(&tasks, &blocks));
        }
        drop((to_ingest, to_hash, outlets));
        let scanning = scope.spawn(move || watched(scan.run(dedup, progress, &events, &tasks)));

        let assembler = Assembler::new(store, request, dedup, (cache, known, listing), frames)?;
        let built = assembler.run(&to_assemble, &finished);
        failed.fetch_or(built.is_err(), Ordering::Relaxed);
        drop((to_assemble, finished));
        // The stage that failed first has the cause; the others only lost their neighbours.
        let packed = join(packing);
        let scanned = join(scanning);
        over.store(true, Ordering::Relaxed);
        let Walked {
            notes,
            is_private,
            has_left_out,
            has_missed,
            is_all_left_out,
            excluded,
        } = match (packed, scanned) {
            (Ok(()), Ok(walked)) => walked,
            (packed, scanned) => {
                let errors = [packed.err(), scanned.err(), built.err()];
                return Err(reason(store, errors.into_iter().flatten()));
            }
        };
        let mut built = built?;
        built.report.notes.extend(notes);
        built.report.excluded = excluded;
        built.is_private = is_private;
        built.has_left_out = has_left_out;
        built.is_all_left_out = is_all_left_out;
        built.report.has_missed = has_missed || !built.report.skipped.is_empty();
        if let Some(secrets) = secrets {
            secrets.finish()?;
            let notes = secrets.notes().into_iter().map(Note::from);
            built.report.notes.extend(notes);
        }
        Ok(built)
    })
}

/// Selects the cause among the errors of all stages. A stage that only lost its neighbours was interrupted.
pub(super) fn reason(store: &Store, errors: impl Iterator<Item = Error>) -> Error {
    let mut errors: Vec<Error> = errors.collect();
    errors.sort_by_key(|error| error.kind() == ErrorKind::Interrupted);
    let first = errors.into_iter().next();
    match (first, store.host().check_stop()) {
        (Some(first), Ok(())) => first,
        (Some(first), Err(_)) if first.kind() != ErrorKind::Interrupted => first,
        (_, Err(stopped)) => stopped,
        (None, Ok(())) => Error::interrupted("the put stopped"),
    }
}

fn join<T>(stage: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    stage
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
