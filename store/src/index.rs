//! The index: finds the live pack that holds a chunk, by searching the live segments without copying them.
//!
//! Segments are immutable, so an open segment is never read again. A refresh to a newer state opens the new segments
//! and closes the dropped ones. A chunk in a condemned pack is not offered.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use ::bytes::Bytes;

use crate::error::{Error, Result};
use crate::format::{FrameKind, SegmentPack, State, share};
use crate::id::{ChunkId, PackId, SegmentId};
use crate::remote::Read;

mod bytes;
mod dropped;
mod far;
mod gather;
mod hash_index;
mod lookup;
mod marks;
mod merge;
mod open;
mod segment;
mod table;
mod wanted;

pub(crate) use dropped::forget_copies;
use hash_index::HashIndex;
pub(crate) use marks::SparseMarks;
pub use marks::{Marks, Position};
pub use merge::{Preferred, merge};
pub use segment::{OpenSegment, check_segments};

/// Where a chunk's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The pack.
    pub pack: PackId,
    /// Data or metadata.
    pub kind: FrameKind,
    /// Length of the pack in bytes.
    pub pack_len: u32,
    /// Offset of the frame in the pack.
    pub frame_offset: u32,
    /// Length of the frame in bytes, as stored.
    pub stored_len: u32,
    /// Length of the frame in bytes, once decoded.
    pub raw_len: u32,
    /// Offset of the chunk in the decoded frame.
    pub offset: u32,
    /// Length of the chunk in bytes.
    pub len: u32,
    /// Whether the frame is a delta.
    pub is_delta: bool,
}

impl Location {
    /// Returns the chunk's share of the stored bytes of its frame.
    pub fn stored_share(&self) -> u64 {
        share(self.len, self.stored_len, self.raw_len)
    }
}

/// The live segments of one state.
#[derive(Clone, Debug, Default)]
pub struct Index {
    segments: Vec<LiveSegment>,
    hash_index: Arc<HashIndex>,
    /// Directory on this host for derived files, such as the hash index.
    cache_dir: Option<PathBuf>,
    /// The remote from which large segments that are not on this host are read in place.
    far: Option<Arc<dyn Read>>,
    /// The indices of those segments in `segments`.
    in_place: Vec<usize>,
}

#[derive(Clone, Debug)]
struct LiveSegment {
    segment: Arc<OpenSegment>,
    condemned: Taken,
}

/// Which packs of a segment are condemned.
#[derive(Clone, Debug, PartialEq)]
enum Taken {
    /// Their positions in the segment.
    Positions(HashSet<u32>),
    /// All condemned packs of the state: the segment was not searched for them.
    All(Arc<HashSet<PackId>>),
}

impl Index {
    fn over(
        segments: Vec<LiveSegment>,
        cache_dir: Option<PathBuf>,
        far: Option<Arc<dyn Read>>,
    ) -> Self {
        let chunks: Vec<(SegmentId, Option<u64>)> = segments
            .iter()
            .map(|LiveSegment { segment, .. }| {
                let chunks = segment.layout.chunks();
                (segment.id, (!segment.is_far()).then_some(chunks))
            })
            .collect();
        let hash_index = Arc::new(HashIndex::new(&chunks, cache_dir.as_deref()));
        let numbered = (0..).zip(&chunks);
        let in_place = numbered.filter(|(_, (_, chunks))| chunks.is_none());
        Self {
            in_place: in_place.map(|(number, _)| number).collect(),
            segments,
            hash_index,
            cache_dir,
            far,
        }
    }

    /// Returns an index without segments, to start [`Self::open`] with. Large segments that are not on this host stay
    /// remote as long as that is cheaper. Only for lookups: any other access to such a segment copies it to this host.
    pub fn in_place(remote: Arc<dyn Read>) -> Self {
        Self {
            far: Some(remote),
            ..Self::default()
        }
    }

    /// Whether a lookup may send requests.
    pub(crate) fn is_far(&self) -> bool {
        let mut far = (self.in_place.iter()).filter_map(|number| self.segments.get(*number));
        far.any(|live| live.segment.ranges().is_some())
    }

    /// Returns the id and location of the chunk at `position`, even if its pack is condemned.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself; invalid input, when there is no such position.
    pub fn at(&self, position: Position) -> Result<(ChunkId, Location)> {
        let live = self
            .segments
            .get(position.segment)
            .ok_or_else(|| Error::invalid(format!("index: has no segment {}", position.segment)))?;
        live.segment.located(position.entry)
    }

    /// Returns marks for the chunks of this index, none of them set.
    pub fn marks(&self) -> Marks {
        Marks::none(self.segments().map(|segment| segment.layout.chunks()))
    }

    /// Iterates over the chunks that somebody relied on.
    pub fn relied(&self) -> impl Iterator<Item = Result<ChunkId>> {
        self.segments().flat_map(|segment| {
            let chunks = segment.layout.chunks();
            let positions = segment.relied.positions();
            positions
                .take_while(move |position| *position < chunks)
                .map(|position| segment.entry(position).map(|entry| entry.id))
        })
    }

    /// Adds the packs of the chunks that somebody relied on, except in the segments `own`.
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

    /// Whether `now` still offers every chunk of this index that somebody relied on.
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
                // A chunk that was plain may have become the base of a delta, so it must still be plain.
                let found = match live.segment.is_delta(position)? {
                    true => now.find(&entry.id)?,
                    false => now.find_plain(&entry.id)?,
                };
                if found.is_none() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Marks every chunk of `segment` as relied on, for a segment that this process has just committed.
    pub fn rely_on_all(&self, segment: SegmentId) {
        self.segments
            .iter()
            .filter(|live| live.segment.id == segment)
            .for_each(|live| live.segment.relied.set_all());
    }

    /// Iterates over the open segments.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<OpenSegment>> {
        self.segments.iter().map(|live| &live.segment)
    }

    /// Whether any of its segments has deltas.
    pub fn has_deltas(&self) -> bool {
        self.segments().any(|segment| segment.has_deltas())
    }

    /// Adds one segment at the end, from bytes that are not in any store yet.
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
        Ok(Self::over(self.segments, self.cache_dir, self.far))
    }

    /// Returns the same segments with the packs that `state` condemns.
    ///
    /// # Errors
    /// Corrupt, when a segment's packs cannot be read.
    pub(crate) fn at_state(mut self, state: &State) -> Result<Self> {
        for live in &mut self.segments {
            live.condemned = live.segment.condemned_in(state)?;
        }
        Ok(self)
    }

    /// Iterates over the packs that the segments name, including condemned packs.
    pub fn packs(&self) -> impl Iterator<Item = SegmentPack> {
        self.segments().flat_map(|segment| segment.packs())
    }

    /// Whether this index has the segment of `other`, with the same packs condemned.
    fn has_whole(&self, other: &LiveSegment) -> bool {
        self.segments
            .iter()
            .any(|live| live.segment.id == other.segment.id && live.condemned == other.condemned)
    }
}

/// The position of a chunk, and its location if that is already known.
type Found = (Position, Option<Location>);

impl LiveSegment {
    /// Returns the entry of a chunk unless its pack is condemned, and its location if that is already known.
    fn locate(&self, id: &ChunkId) -> Result<Option<(u64, Option<Location>)>> {
        let segment = self.segment.as_ref();
        if let Some(far) = segment.ranges() {
            let found = far.find(&segment.layout, id)?;
            let found = found.filter(|found| match &self.condemned {
                Taken::All(packs) => !packs.contains(&found.pack.id),
                Taken::Positions(_) => true,
            });
            return Ok(found.map(|found| (found.entry, Some(found.location))));
        }
        let Some(entry) = segment.layout.find(segment.bytes(), id) else {
            return Ok(None);
        };
        if self.condemned.is_none() {
            return Ok(Some((entry, None)));
        }
        let frame = segment.entry(entry)?.frame;
        let frame = segment.layout.frame(segment.bytes(), frame)?;
        let is_taken = match &self.condemned {
            Taken::Positions(packs) => packs.contains(&frame.pack),
            Taken::All(packs) => {
                packs.contains(&segment.layout.pack(segment.bytes(), frame.pack)?.id)
            }
        };
        Ok((!is_taken).then_some((entry, None)))
    }
}

impl Taken {
    fn is_none(&self) -> bool {
        match self {
            Self::Positions(packs) => packs.is_empty(),
            Self::All(packs) => packs.is_empty(),
        }
    }
}
