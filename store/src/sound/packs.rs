//! Checks packs: each exists, has the right size and agrees with its segment. On request it is read to the last byte.
//!
//! Packs are checked concurrently, with a few megabytes of memory per thread.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::{Finding, Part, VerifyReport};
use crate::codec::Bases;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{SegmentPack, pack_key, segment_key};
use crate::id::{ChunkId, PackId, SegmentId};
use crate::index::{Location, OpenSegment};
use crate::pack::frames::{for_each_frame, for_each_stored};
use crate::pack::reader::{FrameRows, OpenPack, compare, rows_in};
use crate::progress::Progress;
use crate::read::{Reader, VerifiedBases};
use crate::remote::Read;
use crate::store::Store;

/// A pack to check.
pub(crate) struct PackTask {
    /// The live segment that names it.
    pub(crate) segment: Arc<OpenSegment>,
    /// The position of the pack in the segment.
    pub(crate) position: u32,
    pub(crate) pack: SegmentPack,
    /// How much of the pack to read.
    pub(crate) reading: Reading,
}

/// How much of a pack is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Its table.
    Table,
    /// Every byte, compared with the checksums in its table.
    Stored,
    /// Every byte, decoded, and compared with the ids of its chunks.
    Decoded,
}

/// What cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Packs that are too short, with their actual length; 0 for missing packs.
    ends: HashMap<PackId, u64>,
    chunks: HashSet<(PackId, ChunkId)>,
    /// Findings that a pack and its segment disagree about the pack's chunks.
    pub(crate) unlisted: Vec<Finding>,
}

/// The result of checking one pack.
#[derive(Default)]
struct Outcome {
    /// Rows of the segment that agree with the pack.
    matched: u64,
    end: Option<u64>,
    chunks: Vec<ChunkId>,
    defects: Vec<Error>,
    /// The pack and its segment disagree. The pack is believed, since its table has a checksum of its own.
    lie: Option<Error>,
}

impl Damage {
    /// Whether the chunk at this location cannot be read.
    pub(crate) fn hits(&self, id: &ChunkId, at: &Location) -> bool {
        let frame_end = u64::from(at.frame_offset) + u64::from(at.stored_len);
        self.ends.get(&at.pack).is_some_and(|end| frame_end > *end)
            || self.chunks.contains(&(at.pack, *id))
    }
}

/// Checks every pack of `tasks`; bases of deltas are read through `reader`. `is_all` says that these are all packs of
/// their segments.
pub(crate) fn check_packs(
    reader: &Reader<'_>,
    tasks: &[PackTask],
    is_all: bool,
    progress: &dyn Progress,
    report: &mut VerifyReport,
) -> Result<Damage> {
    let store = reader.store();
    let read = tasks.iter().filter(|task| task.reading != Reading::Table);
    let bytes: u64 = read.clone().map(|task| u64::from(task.pack.len)).sum();
    progress.total(tasks.len() as u64, bytes);
    let bytes_read = AtomicU64::new(0);
    let outcomes = tasks
        .par_iter()
        .map(|task| {
            store.host().check_stop()?;
            let outcome = look_at(reader, task, &|bytes| {
                bytes_read.fetch_add(bytes, Ordering::Relaxed);
                progress.advance(0, bytes);
                store.host().check_stop()
            })?;
            progress.advance(1, 0);
            Ok(outcome)
        })
        .collect::<Result<Vec<Outcome>>>()?;
    report.packs += tasks.len() as u64;
    report.packs_read += read.count() as u64;
    report.bytes_read += bytes_read.into_inner();
    let mut damage = Damage::default();
    for (task, outcome) in tasks.iter().zip(&outcomes) {
        let id = task.pack.id;
        if let Some(end) = outcome.end {
            damage.ends.insert(id, end);
        }
        damage
            .chunks
            .extend(outcome.chunks.iter().map(|chunk| (id, *chunk)));
        for defect in &outcome.defects {
            report.find(Part::Pack(id), pack_key(id), defect);
        }
        if let Some(lie) = &outcome.lie {
            let segment = task.segment.id;
            let found = Finding::of(Part::Segment(segment), segment_key(segment), lie);
            report.findings.push(found.clone());
            damage.unlisted.push(found);
        }
    }
    if is_all {
        check_entries(tasks, &outcomes, report)?;
    }
    Ok(damage)
}

/// Checks that every row of a segment agrees with a pack. Damaged packs are left out, since they have findings of their
/// own.
fn check_entries(
    tasks: &[PackTask],
    outcomes: &[Outcome],
    report: &mut VerifyReport,
) -> Result<()> {
    let mut sums: HashMap<SegmentId, (&OpenSegment, HashSet<u32>, u64)> = HashMap::new();
    for (task, outcome) in tasks.iter().zip(outcomes) {
        let sum = sums
            .entry(task.segment.id)
            .or_insert_with(|| (&task.segment, HashSet::new(), 0));
        if outcome.defects.is_empty() && outcome.lie.is_none() {
            sum.1.insert(task.position);
            sum.2 += outcome.matched;
        }
    }
    for (id, (segment, packs, matched)) in sums {
        let mut expected = 0;
        let is_whole = packs.len() as u64 == u64::from(segment.layout().packs());
        if is_whole {
            expected = segment.layout().chunks();
        } else {
            for at in 0..segment.layout().chunks() {
                let entry = segment.entry(at)?;
                let frame = segment.layout().frame(segment.bytes(), entry.frame)?;
                expected += u64::from(packs.contains(&frame.pack));
            }
        }
        if expected != matched {
            let what = format!(
                "{expected} chunks lie in its packs, the packs have {matched} of them there"
            );
            report
                .findings
                .push(Finding::new(Part::Segment(id), segment_key(id), what));
        }
    }
    Ok(())
}

/// Checks one pack. An error says nothing about the pack.
fn look_at(
    reader: &Reader<'_>,
    task: &PackTask,
    told: &(dyn Fn(u64) -> Result<()> + Sync),
) -> Result<Outcome> {
    let (store, bases) = (reader.store(), &VerifiedBases(reader));
    let remote = store.remote().as_ref();
    let key = pack_key(task.pack.id);
    let mut outcome = Outcome::default();
    let size = match remote.size(&key) {
        Ok(size) => size,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            outcome.end = Some(0);
            outcome
                .defects
                .push(Error::corrupt(format!("{key}: is missing")));
            return Ok(outcome);
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            outcome.end = Some(0);
            outcome.defects.push(error);
            return Ok(outcome);
        }
        Err(error) => return Err(error),
    };
    let expected = u64::from(task.pack.len);
    if size != expected {
        outcome.end = (size < expected).then_some(size);
        let segment = task.segment.id;
        outcome.defects.push(Error::corrupt(format!(
            "{key}: has {size} bytes, its segment {segment} says {expected}"
        )));
    }
    let rows = match opened(store, task, size) {
        Ok(rows) => {
            match compare(&task.segment, &task.pack, &rows) {
                Ok(matched) => outcome.matched = matched,
                Err(error) => outcome.lie = Some(error),
            }
            rows
        }
        Err(error) if error.is_damage() => {
            // A wrong length explains that the table is not at its place.
            if outcome.defects.is_empty() {
                outcome.defects.push(error);
            }
            match task.reading {
                Reading::Table => return Ok(outcome),
                // A segment has no checksums of frames, so these are decoded.
                Reading::Stored | Reading::Decoded => rows_in(&task.segment, task.position)?,
            }
        }
        Err(error) => return Err(error),
    };
    let has_sums = rows.iter().all(|frame| frame.sum.is_some());
    match task.reading {
        Reading::Table => {}
        Reading::Stored if has_sums => {
            let pack = (task.pack.id, rows.as_slice(), size);
            read_all(remote, None, pack, told, &mut outcome)?;
        }
        Reading::Stored | Reading::Decoded => {
            let pack = (task.pack.id, rows.as_slice(), size);
            read_all(remote, Some(bases), pack, told, &mut outcome)?;
        }
    }
    Ok(outcome)
}

/// Reads the table of the pack.
fn opened(store: &Store, task: &PackTask, size: u64) -> Result<Vec<FrameRows>> {
    let open = OpenPack::read(
        store.remote().as_ref(),
        store.format().id,
        task.pack.id,
        size,
    )?;
    if open.kind() == task.pack.kind {
        return Ok(open.rows());
    }
    let (found, expected) = (open.kind(), task.pack.kind);
    Err(Error::corrupt(format!(
        "{}: says it holds {found:?}, its segment says {expected:?}",
        pack_key(task.pack.id)
    )))
}

/// Reads every frame. With `bases`, decodes it and hashes every chunk; otherwise hashes the stored bytes.
fn read_all(
    remote: &dyn Read,
    bases: Option<&dyn Bases>,
    (pack, rows, size): (PackId, &[FrameRows], u64),
    told: &(dyn Fn(u64) -> Result<()> + Sync),
    outcome: &mut Outcome,
) -> Result<()> {
    let mut first = None;
    let mut count = 0;
    let mut damaged = |chunks: &mut dyn Iterator<Item = ChunkId>, error: Error| {
        outcome.chunks.extend(chunks.inspect(|_| count += 1));
        first.get_or_insert(error);
    };
    let mut each = |frame: &FrameRows, bytes: Result<&[u8]>| {
        let bytes = match bases {
            Some(_) => bytes,
            None => bytes.and_then(|stored| frame.check_stored(pack, stored).map(|()| stored)),
        };
        match bytes {
            Ok(raw) if bases.is_some() => {
                for chunk in frame.chunks_of(pack) {
                    if let Err(error) = chunk.verified(raw) {
                        damaged(&mut std::iter::once(chunk.id), error);
                    }
                }
            }
            Ok(_) => {}
            // The frame is as it was stored. The walk of versions reports which paths the missing base hits.
            Err(error) if error.kind() == ErrorKind::NotFound && !frame.bases.is_empty() => {}
            Err(error) if error.is_damage() => {
                damaged(&mut frame.chunks.iter().map(|(id, _, _)| *id), error);
            }
            // It says nothing about the pack.
            Err(error) => return Err(error),
        }
        Ok(())
    };
    match bases {
        Some(bases) => for_each_frame(remote, bases, pack, rows, size, told, &mut each)?,
        None => for_each_stored(remote, pack, rows, size, told, &mut each)?,
    }
    if let Some(error) = first {
        let all: usize = rows.iter().map(|frame| frame.chunks.len()).sum();
        let key = pack_key(pack);
        let message = error.to_string();
        let message = message
            .strip_prefix(&format!("{key}: "))
            .unwrap_or(&message);
        outcome.defects.push(Error::corrupt(format!(
            "{key}: {count} of {all} chunks are damaged, first: {message}"
        )));
    }
    Ok(())
}
