//! The index: which live pack holds a chunk, by looking into the live segments in place.
//!
//! Segments are immutable, so an open one is never read again; refreshing to a newer state opens
//! what is new and forgets what was dropped. A chunk in a condemned pack is not offered.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::bytes::Bytes;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::format::{
    FrameKind, SegmentEntry, SegmentInfo, SegmentLayout, SegmentPack, State, segment_key,
};
use crate::id::{ChunkId, PackId, SegmentId};
use crate::remedy::Remedy;
use crate::remote::Read;

mod bytes;
mod gather;
mod hash_index;
mod marks;
mod merge;
mod open;
mod table;

use bytes::SegmentBytes;
use gather::Gather;
use hash_index::HashIndex;
use marks::Bits;
pub use marks::{Marks, Position};
pub use merge::{Preferred, merge};

/// Where a chunk's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The pack.
    pub pack: PackId,
    /// Data or metadata.
    pub kind: FrameKind,
    /// Bytes of the pack.
    pub pack_len: u32,
    /// First byte of the frame in the pack.
    pub frame_offset: u32,
    /// Bytes of the frame as stored.
    pub stored_len: u32,
    /// Bytes of the frame once decoded.
    pub raw_len: u32,
    /// First byte of the chunk in the decoded frame.
    pub offset: u32,
    /// Bytes of the chunk.
    pub len: u32,
}

impl Location {
    /// The chunk's share of the stored bytes of its frame.
    pub fn stored_share(&self) -> u64 {
        let (len, stored) = (u64::from(self.len), u64::from(self.stored_len));
        (len * stored).div_ceil(u64::from(self.raw_len).max(1))
    }
}

/// A live segment, open.
#[derive(Debug)]
pub struct OpenSegment {
    /// Its name.
    pub id: SegmentId,
    layout: SegmentLayout,
    bytes: SegmentBytes,
    /// Where this host has a copy of it.
    copy: Option<PathBuf>,
    /// Which chunks somebody deduplicated against.
    relied: Bits,
}

/// The live segments of one state.
#[derive(Clone, Debug, Default)]
pub struct Index {
    segments: Vec<LiveSegment>,
    hash_index: Arc<HashIndex>,
    /// Where this host keeps what serves it alone.
    cache_dir: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct LiveSegment {
    segment: Arc<OpenSegment>,
    /// Positions of packs in this segment that the state has condemned.
    condemned: HashSet<u32>,
}

impl Index {
    fn over(segments: Vec<LiveSegment>, cache_dir: Option<PathBuf>) -> Self {
        let chunks: Vec<(SegmentId, u64)> = segments
            .iter()
            .map(|live| (live.segment.id, live.segment.layout.chunks()))
            .collect();
        let hash_index = Arc::new(HashIndex::new(&chunks, cache_dir.as_deref()));
        Self {
            segments,
            hash_index,
            cache_dir,
        }
    }

    /// Where a chunk lies, or `None` when no live segment offers it.
    pub fn find(&self, id: &ChunkId) -> Result<Option<Location>> {
        Ok(self.locate_surely(id)?.map(|(location, _)| location))
    }

    /// The position of a chunk, or `None` when no live segment offers it. A chunk that is held twice
    /// has one position: the one that [`Self::find`] leads to.
    ///
    /// # Errors
    /// Corrupt, when a segment points outside of itself.
    pub fn position(&self, id: &ChunkId) -> Result<Option<Position>> {
        Ok(self.locate_surely(id)?.map(|(_, position)| position))
    }

    /// The chunk at `position` and where it lies, whether or not its pack is condemned.
    ///
    /// # Errors
    /// Corrupt, when a segment points outside of itself; invalid input, when there is no such position.
    pub fn at(&self, position: Position) -> Result<(ChunkId, Location)> {
        let live = self
            .segments
            .get(position.segment)
            .ok_or_else(|| Error::invalid(format!("index: has no segment {}", position.segment)))?;
        live.segment.located(position.entry)
    }

    /// Marks for the chunks of this index, none set.
    pub fn marks(&self) -> Marks {
        Marks::none(self.segments().map(|segment| segment.layout.chunks()))
    }

    /// Like [`Self::find`], and remembers that somebody counts on the chunk to stay.
    pub fn rely(&self, id: &ChunkId) -> Result<Option<Location>> {
        let found = self.locate(id)?;
        if let Some((_, at)) = &found
            && let Some(live) = self.segments.get(at.segment)
        {
            live.segment.relied.set(at.entry);
        }
        Ok(found.map(|(location, _)| location))
    }

    /// The chunks that somebody relied upon.
    pub fn relied(&self) -> impl Iterator<Item = Result<ChunkId>> {
        self.segments().flat_map(|segment| {
            let chunks = segment.layout.chunks();
            let positions = segment.relied.positions();
            positions
                .take_while(move |position| *position < chunks)
                .map(|position| segment.entry(position).map(|entry| entry.id))
        })
    }

    /// Adds the packs of chunks that somebody relied upon, but for those of segments that are `own`.
    pub(crate) fn relied_packs(
        &self,
        own: &[SegmentId],
        packs: &mut BTreeSet<PackId>,
    ) -> Result<()> {
        for segment in self.segments().filter(|segment| !own.contains(&segment.id)) {
            let chunks = segment.layout.chunks();
            let positions = segment.relied.positions();
            let mut frames: HashSet<u32> = HashSet::new();
            for position in positions.take_while(|position| *position < chunks) {
                frames.insert(segment.entry(position)?.frame);
            }
            for frame in frames {
                let pack = segment.layout.frame(segment.bytes(), frame)?.pack;
                packs.insert(segment.layout.pack(segment.bytes(), pack)?.id);
            }
        }
        Ok(())
    }

    /// Whether chunks relied upon in segments of this index are still offered by `now`.
    pub fn still_offered(&self, now: &Self) -> Result<bool> {
        for live in &self.segments {
            if now.has_whole(live) {
                continue;
            }
            let chunks = live.segment.layout.chunks();
            for position in live
                .segment
                .relied
                .positions()
                .take_while(|position| *position < chunks)
            {
                let entry = live.segment.entry(position)?;
                if now.find(&entry.id)?.is_none() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Counts on every chunk of `segment` to stay: what this process itself just committed.
    pub fn rely_on_all(&self, segment: SegmentId) {
        self.segments
            .iter()
            .filter(|live| live.segment.id == segment)
            .for_each(|live| live.segment.relied.set_all());
    }

    /// The open segments.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<OpenSegment>> {
        self.segments.iter().map(|live| &live.segment)
    }

    /// The same index with one segment more, behind all others, from bytes that are in no store yet.
    ///
    /// # Errors
    /// Corrupt, when the bytes are not a segment.
    pub(crate) fn with_segment(mut self, bytes: Bytes, state: &State) -> Result<Self> {
        let segment = OpenSegment::from_bytes(bytes)?;
        let condemned = segment.condemned_in(state)?;
        self.segments.push(LiveSegment {
            segment: Arc::new(segment),
            condemned,
        });
        Ok(Self::over(self.segments, self.cache_dir))
    }

    /// The same segments, offering what they offer at `state`.
    ///
    /// # Errors
    /// Corrupt, when a segment's packs cannot be read.
    pub(crate) fn at_state(mut self, state: &State) -> Result<Self> {
        for live in &mut self.segments {
            live.condemned = live.segment.condemned_in(state)?;
        }
        Ok(self)
    }

    /// The packs that its segments name, those that are condemned included.
    pub fn packs(&self) -> impl Iterator<Item = SegmentPack> {
        self.segments().flat_map(|segment| segment.packs())
    }

    /// Whether the packs of `other` are all live here.
    fn has_whole(&self, other: &LiveSegment) -> bool {
        self.segments
            .iter()
            .any(|live| live.segment.id == other.segment.id && live.condemned == other.condemned)
    }

    /// As [`Self::locate`], for who may have reason to think that the chunk is there: a file of the cache that leads
    /// nowhere is not believed.
    fn locate_surely(&self, id: &ChunkId) -> Result<Option<(Location, Position)>> {
        let found = self.locate(id)?;
        if found.is_some() || !self.hash_index.is_by_file() {
            return Ok(found);
        }
        let found = self.first_of(0..self.segments.len(), id, None)?;
        if found.is_some() {
            self.hash_index.forget();
        }
        Ok(found)
    }

    /// The place of a chunk in the first segment that offers it.
    fn locate(&self, id: &ChunkId) -> Result<Option<(Location, Position)>> {
        let mut best: Option<(Location, Position)> = None;
        self.hash_index.ask(id, &mut |number| {
            if let Some(found) = self.first_of([number].into_iter(), id, best.as_ref())? {
                best = Some(found);
            }
            Ok::<(), Error>(())
        })?;
        let unguided = self.hash_index.unguided();
        if unguided.is_empty() {
            return Ok(best);
        }
        let found = self.first_of(unguided.iter().copied(), id, best.as_ref())?;
        self.hash_index.asked_each(|own| {
            let own = own.iter().filter_map(|number| self.segments.get(*number));
            own.map(|LiveSegment { segment, .. }| (segment.id, segment.layout.ids(segment.bytes())))
                .collect()
        });
        Ok(found.or(best))
    }

    /// The chunk in the first of these segments that offers it, before that of `best`.
    fn first_of(
        &self,
        numbers: impl Iterator<Item = usize>,
        id: &ChunkId,
        best: Option<&(Location, Position)>,
    ) -> Result<Option<(Location, Position)>> {
        let limit = best.map_or(usize::MAX, |(_, at)| at.segment);
        for number in numbers.take_while(|number| *number < limit) {
            if let Some(live) = self.segments.get(number)
                && let Some((entry, location)) = live.locate(id)?
            {
                let position = Position {
                    segment: number,
                    entry,
                };
                return Ok(Some((location, position)));
            }
        }
        Ok(None)
    }
}

impl LiveSegment {
    /// The entry of a chunk and where it lies, unless its pack is condemned.
    fn locate(&self, id: &ChunkId) -> Result<Option<(u64, Location)>> {
        let segment = self.segment.as_ref();
        let Some(entry) = segment.layout.find(segment.bytes(), id) else {
            return Ok(None);
        };
        let frame = segment.entry(entry)?.frame;
        let pack = segment.layout.frame(segment.bytes(), frame)?.pack;
        if self.condemned.contains(&pack) {
            return Ok(None);
        }
        let (_, location) = segment.located(entry)?;
        Ok(Some((entry, location)))
    }
}

/// Fails when one of `segments` is not what was written, down to the last byte. All cores read.
///
/// # Errors
/// The damage of one of them.
pub fn check_segments<S: AsRef<OpenSegment> + Sync>(segments: &[S]) -> Result<()> {
    let damage = |segment: &S| segment.as_ref().damage().map_or(Ok(()), Err);
    segments.par_iter().try_for_each(damage)
}

impl OpenSegment {
    /// Opens segment `id`, whose object is what `info` says, as the log has it at `state`.
    fn open(
        remote: &dyn Read,
        (cache_dir, gather): (Option<&Path>, &Gather),
        id: SegmentId,
        info: &SegmentInfo,
        state: &State,
    ) -> Result<Self> {
        let key = segment_key(id);
        let (bytes, copy) = match gather.bytes_of(remote, id)? {
            Some(gathered) => gathered,
            None => {
                let copy = SegmentBytes::copy_of(remote, cache_dir, id);
                let bytes = SegmentBytes::open(remote, copy.as_deref(), id, info.bytes)?;
                (bytes, copy)
            }
        };
        let layout = SegmentLayout::parse(&key, bytes.as_slice())?;
        if layout.id() != id {
            return Err(
                Error::corrupt(format!("{key}: names itself segment {}", layout.id()))
                    .hint(Remedy::RepairSegments),
            );
        }
        (layout.made()).check(&key, state.store, info.named_behind(state.number))?;
        let relied = Bits::none(layout.chunks());
        Ok(Self {
            id,
            layout,
            bytes,
            copy,
            relied,
        })
    }

    /// A segment in memory.
    pub(crate) fn from_bytes(bytes: Bytes) -> Result<Self> {
        let layout = SegmentLayout::parse("segment in memory", &bytes)?;
        Ok(Self {
            id: layout.id(),
            relied: Bits::none(layout.chunks()),
            layout,
            bytes: SegmentBytes::Held(bytes),
            copy: None,
        })
    }

    /// What is wrong with it, when it is not what was written. A damaged copy on this host is removed.
    pub fn damage(&self) -> Option<Error> {
        let error = self.layout.verify(self.bytes()).err()?;
        let Some(copy) = &self.copy else {
            return Some(error.hint(Remedy::RepairSegments));
        };
        // What cannot be removed is found again.
        drop(std::fs::remove_file(copy));
        let message = format!(
            "{}: its copy on this host was damaged, and has been removed: {}",
            segment_key(self.id),
            copy.display()
        );
        Some(
            Error::unavailable(message)
                .hint("run it again: it is fetched anew")
                .because(error),
        )
    }

    /// Whether it has a map of its own.
    fn is_mapped(&self) -> bool {
        matches!(self.bytes, SegmentBytes::Mapped(_))
    }

    /// Where this host keeps its copy, if it has one.
    pub(crate) fn copy(&self) -> Option<&Path> {
        self.copy.as_deref()
    }

    /// The segment's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Where its sections lie.
    pub fn layout(&self) -> &SegmentLayout {
        &self.layout
    }

    /// The packs that it names, in order; those whose row is damaged are left out.
    pub fn packs(&self) -> impl Iterator<Item = SegmentPack> {
        let positions = 0..self.layout.packs();
        positions.filter_map(|position| self.layout.pack(self.bytes(), position).ok())
    }

    /// The entry at `position`.
    pub fn entry(&self, position: u64) -> Result<SegmentEntry> {
        self.layout.entry(self.bytes(), position)
    }

    /// The chunk at `position` and where it lies.
    ///
    /// # Errors
    /// Corrupt, when the segment points outside of itself; invalid input, when there is no such position.
    pub fn located(&self, position: u64) -> Result<(ChunkId, Location)> {
        let entry = self.entry(position)?;
        let frame = self.layout.frame(self.bytes(), entry.frame)?;
        let pack = self.layout.pack(self.bytes(), frame.pack)?;
        let location = Location {
            pack: pack.id,
            kind: frame.kind,
            pack_len: pack.len,
            frame_offset: frame.offset,
            stored_len: frame.stored_len,
            raw_len: frame.raw_len,
            offset: entry.offset,
            len: entry.len,
        };
        Ok((entry.id, location))
    }

    /// How many of its chunks somebody counts on.
    pub(crate) fn relied_chunks(&self) -> u64 {
        self.relied.count().min(self.layout.chunks())
    }

    fn condemned_in(&self, state: &State) -> Result<HashSet<u32>> {
        if state.condemned.is_empty() {
            return Ok(HashSet::new());
        }
        let mut condemned = HashSet::new();
        for position in 0..self.layout.packs() {
            let pack = self.layout.pack(self.bytes(), position)?;
            if state.condemned.contains_key(&pack.id) {
                condemned.insert(position);
            }
        }
        Ok(condemned)
    }
}
