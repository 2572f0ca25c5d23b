//! Merge: combines several segments into one that offers the same chunks, in one pass over each. Collectors use it to
//! reduce the number of segments, and writers to fold small segments into their own.
//!
//! Entries in condemned packs are left out. All other packs stay named, even those without entries, so that they never
//! look like orphans. If a chunk is in several places, a plain frame wins over a delta; otherwise the preferred place
//! wins. Holds the frames and the fan-out in memory, never the entries.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;

use ::bytes::Bytes;

use super::{OpenSegment, Position};
use crate::error::{Error, Result};
use crate::format::{
    Change, FrameBase, Provenance, SegmentEntry, SegmentFrame, SegmentPack, State, segment_key,
    write_segment,
};
use crate::id::{ChunkId, PackId, SegmentId};
use crate::remote::{Upload, Write};

/// Of several places of a chunk, one for which this returns true is kept.
pub type Preferred<'p> = dyn Fn(Position) -> bool + 'p;

/// Merges the segments `from`, which come with their numbers in positions, and uploads the result. Returns the change
/// that makes it live.
///
/// # Errors
/// Corrupt, when a segment is damaged; also when the store cannot be written to.
pub fn merge(
    remote: &dyn Write,
    made: Provenance,
    state: &State,
    from: &[(usize, &OpenSegment)],
    preferred: &Preferred<'_>,
) -> Result<Change> {
    let mut tables = Tables::default();
    for (number, segment) in from {
        segment.layout().verify(segment.bytes())?;
        tables.add(*number, segment, state)?;
    }
    let id = SegmentId::random()?;
    let mut upload = Uploading(Some(remote.upload(&segment_key(id))?));
    let failed = RefCell::new(None);
    let (packs, frames, bases) = (&tables.packs, &tables.frames, &tables.bases);
    let entries = || Entries::new(preferred, &tables, &failed);
    let written = write_segment(&mut upload, id, made, packs, frames, bases, entries);
    if let Some(error) = failed.take() {
        return Err(error);
    }
    let info = written?;
    if let Some(upload) = upload.0.take() {
        upload.finish()?;
    }
    Ok(Change::AddSegment { segment: id, info })
}

/// Packs and frames of the new segment.
#[derive(Default)]
struct Tables<'s> {
    packs: Vec<SegmentPack>,
    places: HashMap<PackId, u32>,
    frames: Vec<SegmentFrame>,
    bases: Vec<FrameBase>,
    /// Frames that are deltas.
    deltas: HashSet<u32>,
    sources: Vec<Source<'s>>,
}

/// One old segment.
struct Source<'s> {
    number: usize,
    segment: &'s OpenSegment,
    /// The position of each of its frames in the new segment; `None` when its pack is condemned.
    frames: Vec<Option<u32>>,
}

impl<'s> Tables<'s> {
    fn add(&mut self, number: usize, segment: &'s OpenSegment, state: &State) -> Result<()> {
        let (layout, bytes) = (segment.layout(), segment.bytes());
        let mut packs = Vec::new();
        for position in 0..layout.packs() {
            let pack = layout.pack(bytes, position)?;
            packs.push(match state.condemned.contains_key(&pack.id) {
                true => None,
                false => Some(self.pack(pack)?),
            });
        }
        let mut frames = Vec::with_capacity(layout.frames() as usize);
        for position in 0..layout.frames() {
            let frame = layout.frame(bytes, position)?;
            let pack = packs.get(frame.pack as usize).copied().flatten();
            frames.push(match pack {
                Some(pack) => {
                    let position = count(self.frames.len())?;
                    self.frames.push(SegmentFrame { pack, ..frame });
                    Some(position)
                }
                None => None,
            });
        }
        for position in 0..layout.bases() {
            let base = layout.base(bytes, position)?;
            if let Some(frame) = frames.get(base.frame as usize).copied().flatten() {
                self.bases.push(FrameBase { frame, ..base });
                self.deltas.insert(frame);
            }
        }
        self.sources.push(Source {
            number,
            segment,
            frames,
        });
        Ok(())
    }

    fn pack(&mut self, pack: SegmentPack) -> Result<u32> {
        if let Some(place) = self.places.get(&pack.id) {
            return Ok(*place);
        }
        let place = count(self.packs.len())?;
        self.packs.push(pack);
        self.places.insert(pack.id, place);
        Ok(place)
    }
}

/// Yields the entries of all sources in order of their ids, each id once.
struct Entries<'e, 's> {
    preferred: &'e Preferred<'e>,
    tables: &'e Tables<'s>,
    heads: BinaryHeap<Reverse<Head>>,
    failed: &'e RefCell<Option<Error>>,
}

/// The next entry of one source. Of entries with the same id, the preferred one sorts first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    id: ChunkId,
    /// Comes before the other criteria, because a base must be in a plain frame.
    is_delta: bool,
    is_last: bool,
    source: usize,
    position: u64,
    frame: u32,
    offset: u32,
    len: u32,
}

impl<'e, 's> Entries<'e, 's> {
    fn new(
        preferred: &'e Preferred<'e>,
        tables: &'e Tables<'s>,
        failed: &'e RefCell<Option<Error>>,
    ) -> Self {
        let mut entries = Self {
            preferred,
            tables,
            heads: BinaryHeap::new(),
            failed,
        };
        for source in 0..tables.sources.len() {
            entries.advance(source, 0);
        }
        entries
    }

    /// Adds the next entry of a source whose pack is not condemned to the heads.
    fn advance(&mut self, source: usize, from: u64) {
        match self.head(source, from) {
            Ok(head) => self.heads.extend(head.map(Reverse)),
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
                self.heads.clear();
            }
        }
    }

    fn head(&self, number: usize, from: u64) -> Result<Option<Head>> {
        let Some(source) = self.tables.sources.get(number) else {
            return Ok(None);
        };
        for position in from..source.segment.layout().chunks() {
            let entry = source.segment.entry(position)?;
            let frame = source.frames.get(entry.frame as usize).copied().flatten();
            if let Some(frame) = frame {
                let at = Position {
                    segment: source.number,
                    entry: position,
                };
                return Ok(Some(Head {
                    id: entry.id,
                    is_delta: self.tables.deltas.contains(&frame),
                    is_last: !(self.preferred)(at),
                    source: number,
                    position,
                    frame,
                    offset: entry.offset,
                    len: entry.len,
                }));
            }
        }
        Ok(None)
    }

    fn pop(&mut self) -> Option<Head> {
        let Reverse(head) = self.heads.pop()?;
        self.advance(head.source, head.position + 1);
        Some(head)
    }
}

impl Iterator for Entries<'_, '_> {
    type Item = SegmentEntry;

    fn next(&mut self) -> Option<SegmentEntry> {
        let head = self.pop()?;
        while self
            .heads
            .peek()
            .is_some_and(|Reverse(next)| next.id == head.id)
        {
            self.pop();
        }
        Some(SegmentEntry {
            id: head.id,
            frame: head.frame,
            offset: head.offset,
            len: head.len,
        })
    }
}

/// Adapts an upload to what `write_segment` needs.
struct Uploading(Option<Box<dyn Upload>>);

impl io::Write for Uploading {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(upload) = &mut self.0 {
            upload
                .write(Bytes::copy_from_slice(bytes))
                .map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn count(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::invalid("a segment would outgrow 32-bit positions"))
}
