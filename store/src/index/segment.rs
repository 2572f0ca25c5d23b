//! One open segment: its bytes, wherever they are, and which of its chunks somebody relies on.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::bytes::Bytes;
use rayon::prelude::*;

use super::bytes::SegmentBytes;
use super::far::FarSegment;
use super::gather::Gather;
use super::marks::Bits;
use super::wanted::Wanted;
use super::{Location, Taken};
use crate::error::{Error, Result};
use crate::format::{
    SegmentEntry, SegmentFrame, SegmentInfo, SegmentLayout, SegmentPack, State, segment_key,
};
use crate::id::{ChunkId, SegmentId};
use crate::remedy::Remedy;
use crate::remote::Read;

/// How segments are opened.
pub(super) struct How<'h> {
    pub(super) cache_dir: Option<&'h Path>,
    pub(super) gather: &'h Gather,
    /// The remote from which large segments are read in place, if they are.
    pub(super) far: Option<&'h Arc<dyn Read>>,
}

/// A live segment, open.
#[derive(Debug)]
pub struct OpenSegment {
    /// Its name.
    pub id: SegmentId,
    pub(super) layout: SegmentLayout,
    bytes: Whereabouts,
    /// The path of its copy on this host.
    copy: Option<PathBuf>,
    /// The chunks that somebody deduplicated against.
    pub(super) relied: Bits,
    /// The bases of its frames, computed on first use.
    wanted: Wanted,
}

/// Where the bytes of a segment are.
#[derive(Debug)]
enum Whereabouts {
    Here(SegmentBytes),
    /// Remote, as long as reading a few ranges is enough.
    Far(FarSegment),
}

impl Location {
    /// Builds the location of an entry from its frame and its pack.
    pub(super) fn placed(
        pack: &SegmentPack,
        frame: &SegmentFrame,
        entry: &SegmentEntry,
        is_delta: bool,
    ) -> Self {
        Self {
            pack: pack.id,
            kind: frame.kind,
            pack_len: pack.len,
            frame_offset: frame.offset,
            stored_len: frame.stored_len,
            raw_len: frame.raw_len,
            offset: entry.offset,
            len: entry.len,
            is_delta,
        }
    }
}

/// Verifies all bytes of `segments`, on all cores.
///
/// # Errors
/// The first damage that is found.
pub fn check_segments<S: AsRef<OpenSegment> + Sync>(segments: &[S]) -> Result<()> {
    let damage = |segment: &S| segment.as_ref().damage().map_or(Ok(()), Err);
    segments.par_iter().try_for_each(damage)
}

impl OpenSegment {
    /// Opens segment `id`, whose object `info` describes, as named by the log at `state`.
    pub(super) fn open(
        remote: &dyn Read,
        how: &How<'_>,
        id: SegmentId,
        info: &SegmentInfo,
        state: &State,
    ) -> Result<Self> {
        let key = segment_key(id);
        let (bytes, copy) = match how.gather.bytes_of(remote, id)? {
            Some(gathered) => gathered,
            None => {
                let copy = SegmentBytes::copy_of(remote, how.cache_dir, id);
                if let (Some(far), Some(copy)) = (how.far, &copy)
                    && let Some((far, layout)) = FarSegment::open(far, copy, id, info.bytes)?
                {
                    return Self::of(id, layout, Whereabouts::Far(far), None, info, state);
                }
                let bytes = SegmentBytes::open(remote, copy.as_deref(), id, info.bytes)?;
                (bytes, copy)
            }
        };
        let layout = SegmentLayout::parse(&key, bytes.as_slice())?;
        Self::of(id, layout, Whereabouts::Here(bytes), copy, info, state)
    }

    fn of(
        id: SegmentId,
        layout: SegmentLayout,
        bytes: Whereabouts,
        copy: Option<PathBuf>,
        info: &SegmentInfo,
        state: &State,
    ) -> Result<Self> {
        let key = segment_key(id);
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
            wanted: Wanted::default(),
        })
    }

    /// Opens a segment in memory.
    pub(crate) fn from_bytes(bytes: Bytes) -> Result<Self> {
        let layout = SegmentLayout::parse("segment in memory", &bytes)?;
        Ok(Self {
            id: layout.id(),
            relied: Bits::none(layout.chunks()),
            layout,
            bytes: Whereabouts::Here(SegmentBytes::Held(bytes)),
            copy: None,
            wanted: Wanted::default(),
        })
    }

    /// Verifies the segment, and returns the error if it is damaged. A damaged copy on this host is removed.
    pub fn damage(&self) -> Option<Error> {
        if let Whereabouts::Far(far) = &self.bytes {
            return far.damage().map(|error| error.hint(Remedy::RepairSegments));
        }
        let error = self.layout.verify(self.bytes()).err()?;
        let Some(copy) = &self.copy else {
            return Some(error.hint(Remedy::RepairSegments));
        };
        // If the file cannot be removed, the next verification finds it again.
        drop(std::fs::remove_file(copy));
        let message = format!(
            "{}: its copy on this host was damaged, and has been removed: {}",
            segment_key(self.id),
            copy.display()
        );
        Some(
            Error::unavailable(message)
                .hint("run it again: it is fetched again")
                .because(error),
        )
    }

    /// Whether it was opened to be read in place, even if it has been copied since.
    pub(super) fn is_far(&self) -> bool {
        matches!(self.bytes, Whereabouts::Far(_))
    }

    /// Returns the reader for ranges, if there is no copy yet.
    pub(super) fn ranges(&self) -> Option<&FarSegment> {
        match &self.bytes {
            Whereabouts::Far(far) => far.whole().is_none().then_some(far),
            Whereabouts::Here(_) => None,
        }
    }

    /// Whether it has a mapping of its own.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.bytes, Whereabouts::Here(SegmentBytes::Mapped(_)))
    }

    /// Returns the path of its copy on this host, if there is one.
    pub(crate) fn copy(&self) -> Option<&Path> {
        self.copy.as_deref()
    }

    /// Returns the segment's bytes. A segment that is read in place is copied first; if that fails, returns no bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Whereabouts::Here(bytes) => bytes.as_slice(),
            Whereabouts::Far(far) => far.copied().unwrap_or_default(),
        }
    }

    /// Returns the layout of its sections.
    pub fn layout(&self) -> &SegmentLayout {
        &self.layout
    }

    /// Iterates over the packs that it names, in order, without those whose rows are damaged.
    pub fn packs(&self) -> impl Iterator<Item = SegmentPack> {
        let positions = 0..self.layout.packs();
        positions.filter_map(|position| self.layout.pack(self.bytes(), position).ok())
    }

    /// Returns the entry at `position`.
    pub fn entry(&self, position: u64) -> Result<SegmentEntry> {
        self.layout.entry(self.bytes(), position)
    }

    /// Returns the chunk at `position` and its location.
    ///
    /// # Errors
    /// Corrupt, when the segment refers to something outside of itself; invalid input, when there is no such position.
    pub fn located(&self, position: u64) -> Result<(ChunkId, Location)> {
        let entry = self.entry(position)?;
        let frame = self.layout.frame(self.bytes(), entry.frame)?;
        let pack = self.layout.pack(self.bytes(), frame.pack)?;
        let is_delta = self.layout.is_delta(self.bytes(), entry.frame)?;
        let location = Location::placed(&pack, &frame, &entry, is_delta);
        Ok((entry.id, location))
    }

    /// Whether any of its frames is a delta.
    pub fn has_deltas(&self) -> bool {
        self.layout.bases() > 0
    }

    /// Whether any of its frames has this chunk as a base.
    pub(super) fn wants_as_base(&self, id: &ChunkId) -> Result<bool> {
        match self.has_deltas() {
            true => self.wanted.has(id, &self.layout, self.bytes()),
            false => Ok(false),
        }
    }

    /// Iterates over the bases of all its frames, with repetitions.
    ///
    /// # Errors
    /// Corrupt, when a base belongs to no frame.
    pub(crate) fn bases(&self) -> impl Iterator<Item = Result<ChunkId>> + '_ {
        let rows = 0..self.layout.bases();
        rows.map(|at| self.layout.base(self.bytes(), at).map(|base| base.id))
    }

    /// Whether the chunk at `position` is in a delta.
    pub(super) fn is_delta(&self, position: u64) -> Result<bool> {
        Ok(self.has_deltas() && {
            let frame = self.entry(position)?.frame;
            self.layout.is_delta(self.bytes(), frame)?
        })
    }

    /// Returns the bases of the frame that holds the chunk at `position`; empty if the frame is plain.
    ///
    /// # Errors
    /// Corrupt, when the segment refers to something outside of itself; invalid input, when there is no such position.
    pub fn bases_at(&self, position: u64) -> Result<Vec<ChunkId>> {
        let frame = self.entry(position)?.frame;
        self.layout.bases_of(self.bytes(), frame)
    }

    /// Returns how many of its chunks somebody relies on.
    pub(crate) fn relied_chunks(&self) -> u64 {
        self.relied.count().min(self.layout.chunks())
    }

    pub(super) fn condemned_in(&self, state: &State) -> Result<Taken> {
        if self.is_far() {
            let packs = state.condemned.keys().copied().collect();
            return Ok(Taken::All(Arc::new(packs)));
        }
        let mut condemned = HashSet::new();
        if state.condemned.is_empty() {
            return Ok(Taken::Positions(condemned));
        }
        for position in 0..self.layout.packs() {
            let pack = self.layout.pack(self.bytes(), position)?;
            if state.condemned.contains_key(&pack.id) {
                condemned.insert(position);
            }
        }
        Ok(Taken::Positions(condemned))
    }
}
