//! Wanted chunks in the order of their locations at the source: runs of adjacent frames, each read by one request.
//!
//! Packs are handled in windows, with 88 bytes of memory for each wanted chunk of a window. A window has at most
//! [`WINDOW_CHUNKS_MAX`] of them, unless one pack alone has more. Only segments are read, never a pack.

use std::collections::HashMap;
use std::ops::Range;

use super::missing::Wants;
use crate::error::Result;
use crate::format::FrameKind;
use crate::id::{ChunkId, PackId};
use crate::index::{Location, OpenSegment};
use crate::pack::{ChunkAt, Coalesce, Extent};

/// Most wanted chunks in one window.
const WINDOW_CHUNKS_MAX: u64 = 1 << 16;

/// Adjacent frames of one pack that are read together.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) extent: Extent,
    pub(super) frames: Vec<WantedFrame>,
}

/// A frame and what is known of it.
#[derive(Debug)]
pub(super) struct WantedFrame {
    pub(super) offset: u32,
    pub(super) stored_len: u32,
    pub(super) raw_len: u32,
    pub(super) is_delta: bool,
    /// Chunks in the order of their offsets: the wanted ones, and all others if the frame is sent as it is.
    pub(super) chunks: Vec<FrameChunk>,
}

/// A chunk of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FrameChunk {
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) id: ChunkId,
    pub(super) is_wanted: bool,
}

/// Receives runs in order.
pub(super) type EachRun<'e> = dyn FnMut(Run) -> Result<()> + 'e;

impl Wants {
    /// Passes every run of wanted chunks of `kind` to `each`.
    ///
    /// # Errors
    /// The errors of `each`; corrupt, when a segment points outside of itself.
    pub(super) fn for_each_run(&self, kind: FrameKind, each: &mut EachRun<'_>) -> Result<()> {
        for (number, segment) in self.index.segments().enumerate() {
            let counts = self.counts(number, segment, kind)?;
            let (mut start, mut sum) = (0, 0);
            for (at, count) in counts.iter().enumerate() {
                if sum > 0 && sum + count > WINDOW_CHUNKS_MAX {
                    self.window(number, segment, kind, start..at, each)?;
                    (start, sum) = (at, 0);
                }
                sum += count;
            }
            if sum > 0 {
                self.window(number, segment, kind, start..counts.len(), each)?;
            }
        }
        Ok(())
    }

    /// How many chunks of one kind are wanted from each pack of a segment.
    fn counts(&self, number: usize, segment: &OpenSegment, kind: FrameKind) -> Result<Vec<u64>> {
        let (layout, bytes) = (segment.layout(), segment.bytes());
        let mut counts = vec![0; layout.packs() as usize];
        for entry in self.missing.in_segment(number) {
            let frame = layout.frame(bytes, segment.entry(entry)?.frame)?;
            if frame.kind == kind
                && let Some(count) = counts.get_mut(frame.pack as usize)
            {
                *count += 1;
            }
        }
        Ok(counts)
    }

    fn window(
        &self,
        number: usize,
        segment: &OpenSegment,
        kind: FrameKind,
        packs: Range<usize>,
        each: &mut EachRun<'_>,
    ) -> Result<()> {
        let mut wanted = Vec::new();
        for entry in self.missing.in_segment(number) {
            let frame = segment.entry(entry)?.frame;
            let pack = segment.layout().frame(segment.bytes(), frame)?.pack;
            if !packs.contains(&(pack as usize)) {
                continue;
            }
            let (id, location) = segment.located(entry)?;
            if location.kind == kind {
                wanted.push((pack, location, id));
            }
        }
        wanted.sort_unstable_by_key(|(pack, at, _)| (*pack, at.frame_offset, at.offset));
        let mut runs = join(wanted.into_iter().map(|(_, location, id)| (id, location)));
        complete(segment, &mut runs)?;
        runs.into_iter().try_for_each(each)
    }
}

/// Joins chunks into runs. They must be sorted by pack and location.
pub(super) fn join(wanted: impl Iterator<Item = (ChunkId, Location)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (id, at) in wanted {
        let chunk = FrameChunk {
            offset: at.offset,
            len: at.len,
            id,
            is_wanted: true,
        };
        let last = runs.last_mut().filter(|run| run.extent.pack == at.pack);
        if !last.is_some_and(|run| run.take(&at, chunk)) {
            runs.push(Run {
                extent: Extent::of(&at),
                frames: vec![WantedFrame::new(&at, chunk)],
            });
        }
    }
    runs
}

/// Adds the unwanted chunks of frames that are mostly wanted, so that these are sent as they are.
fn complete(segment: &OpenSegment, runs: &mut [Run]) -> Result<()> {
    let mut partial: HashMap<u32, &mut WantedFrame> = HashMap::new();
    for frame in runs.iter_mut().flat_map(|run| &mut run.frames) {
        let wanted = frame.known_bytes();
        if wanted >= frame.raw_len || wanted < frame.raw_len / 2 {
            continue;
        }
        let first = frame.chunks.first().map(|chunk| chunk.id);
        if let Some(at) = first.and_then(|id| segment.layout().find(segment.bytes(), &id)) {
            partial.insert(segment.entry(at)?.frame, frame);
        }
    }
    if partial.is_empty() {
        return Ok(());
    }
    for at in 0..segment.layout().chunks() {
        let entry = segment.entry(at)?;
        let Some(frame) = partial.get_mut(&entry.frame) else {
            continue;
        };
        if !frame
            .chunks
            .iter()
            .any(|chunk| chunk.offset == entry.offset)
        {
            frame.chunks.push(FrameChunk {
                offset: entry.offset,
                len: entry.len,
                id: entry.id,
                is_wanted: false,
            });
        }
    }
    partial
        .into_values()
        .for_each(|frame| frame.chunks.sort_unstable());
    Ok(())
}

impl Run {
    /// Adds a chunk that is in the last frame, or in a frame close behind it. Returns false for any other chunk.
    fn take(&mut self, at: &Location, chunk: FrameChunk) -> bool {
        if let Some(frame) = self.frames.last_mut()
            && frame.offset == at.frame_offset
        {
            frame.chunks.push(chunk);
            return true;
        }
        if !self.extent.join(&Extent::of(at), Coalesce::COPY) {
            return false;
        }
        self.frames.push(WantedFrame::new(at, chunk));
        true
    }
}

impl WantedFrame {
    fn new(at: &Location, chunk: FrameChunk) -> Self {
        Self {
            offset: at.frame_offset,
            stored_len: at.stored_len,
            raw_len: at.raw_len,
            is_delta: at.is_delta,
            chunks: vec![chunk],
        }
    }

    /// The location of one of its chunks, for a frame of `pack`.
    pub(super) fn chunk_of(&self, pack: PackId, chunk: &FrameChunk) -> ChunkAt {
        ChunkAt {
            id: chunk.id,
            pack,
            frame_offset: self.offset,
            offset: chunk.offset,
            len: chunk.len,
        }
    }

    /// The chunks to send.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &FrameChunk> {
        self.chunks.iter().filter(|chunk| chunk.is_wanted)
    }

    fn known_bytes(&self) -> u32 {
        self.chunks.iter().map(|chunk| chunk.len).sum()
    }

    /// Whether its chunks cover all of the frame without a gap.
    pub(super) fn is_whole(&self) -> bool {
        let mut end = Some(0_u32);
        for chunk in &self.chunks {
            end = end
                .filter(|end| *end == chunk.offset)
                .and_then(|end| end.checked_add(chunk.len));
        }
        end == Some(self.raw_len)
    }
}
