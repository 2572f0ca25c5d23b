//! Rows of a pack: its frames and their chunks, from the table of the pack or from a segment.
//!
//! The table describes a pack without a segment; a segment describes it if the table is damaged.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::ChunkAt;
use crate::error::Result;
use crate::format::{
    FrameKind, FrameSum, PackHeader, PackKind, PackTable, PackTrailer, SegmentPack, pack_key,
    segment_key,
};
use crate::id::{ChunkId, PackId, StoreId};
use crate::index::{Location, OpenSegment};
use crate::remote::Read;

/// One frame of a pack and the chunks in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameRows {
    pub(crate) offset: u32,
    pub(crate) stored_len: u32,
    pub(crate) raw_len: u32,
    pub(crate) kind: FrameKind,
    /// Sum over its stored bytes; not known from a segment.
    pub(crate) sum: Option<FrameSum>,
    pub(crate) chunks: Vec<ChunkRow>,
    /// Its bases; empty if it is plain.
    pub(crate) bases: Vec<ChunkId>,
}

impl FrameRows {
    /// Checks stored bytes against the sum in the table of the pack.
    ///
    /// # Errors
    /// Corrupt, when the sums differ.
    pub(crate) fn check_stored(&self, pack: PackId, stored: &[u8]) -> Result<()> {
        let found = FrameSum::of(stored);
        match self.sum {
            Some(sum) if sum != found => Err(defect(
                &pack_key(pack),
                &format!(
                    "sum of the frame at offset {} is {found}, the table says {sum}",
                    self.offset
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Iterates over its chunks, if it is a frame of `pack`.
    pub(crate) fn chunks_of(&self, pack: PackId) -> impl Iterator<Item = ChunkAt> {
        self.chunks.iter().map(move |&(id, offset, len)| ChunkAt {
            id,
            pack,
            frame_offset: self.offset,
            offset,
            len,
        })
    }
}

/// One chunk of a frame: its id, its offset in the decoded frame, its length.
pub(crate) type ChunkRow = (ChunkId, u32, u32);

/// Header and table of a pack.
pub(crate) struct OpenPack {
    pub(crate) header: PackHeader,
    pub(crate) len: u32,
    pub(crate) table: PackTable,
}

impl OpenPack {
    /// Reads header, trailer and table of a pack of `len` bytes in this store.
    pub(crate) fn read(remote: &dyn Read, store: StoreId, id: PackId, len: u64) -> Result<Self> {
        let key = pack_key(id);
        let trailer_at = len.saturating_sub(PackTrailer::LEN.into());
        let ends = [0..len.min(PackHeader::LEN.into()), trailer_at..len];
        let ends = remote.get_ranges(&key, &ends)?;
        let [header, trailer] = ends.as_slice() else {
            return Err(defect(&key, "no answer for its ends"));
        };
        let header = PackHeader::decode(&key, header)?;
        if header.id != id {
            return Err(defect(&key, &format!("names itself pack {}", header.id)));
        }
        header.made.check_store(&key, store)?;
        let trailer = PackTrailer::decode(&key, len, trailer)?;
        let range = u64::from(trailer.table_offset)..len;
        let table = remote.get_ranges(&key, std::slice::from_ref(&range))?;
        let table = table
            .first()
            .map(|bytes| bytes.as_ref())
            .unwrap_or_default();
        let table = PackTable::decode(&key, &header, &trailer, table)?;
        let len = u32::try_from(len).map_err(|_| defect(&key, "is longer than a pack can be"))?;
        Ok(Self { header, len, table })
    }

    /// Returns its frames and chunks.
    pub(crate) fn rows(&self) -> Vec<FrameRows> {
        let mut chunks = self.table.chunks.iter();
        let mut bases = self.table.bases.iter().peekable();
        let mut offset = PackHeader::LEN;
        let frames = (0..).zip(&self.table.frames).map(|(number, frame)| {
            let mut of_frame = Vec::new();
            while let Some(base) = bases.next_if(|base| base.frame == number) {
                of_frame.push(base.id);
            }
            let mut start = 0;
            let inside = chunks.by_ref().take(frame.chunks as usize).map(|chunk| {
                let row = (chunk.id, start, chunk.len);
                start += chunk.len;
                row
            });
            let rows = FrameRows {
                offset,
                stored_len: frame.stored_len,
                raw_len: frame.raw_len,
                kind: frame.kind,
                sum: Some(frame.sum),
                chunks: inside.collect(),
                bases: of_frame,
            };
            offset += frame.stored_len;
            rows
        });
        frames.collect()
    }

    /// Returns whether it holds data, metadata or both.
    pub(crate) fn kind(&self) -> PackKind {
        self.header.kind
    }
}

/// Returns the frames and chunks of the pack at `position` from `segment`; scans all entries of the segment.
pub(crate) fn rows_in(segment: &OpenSegment, position: u32) -> Result<Vec<FrameRows>> {
    let (layout, bytes) = (segment.layout(), segment.bytes());
    let mut frames: BTreeMap<u32, FrameRows> = BTreeMap::new();
    for at in 0..layout.chunks() {
        let entry = layout.entry(bytes, at)?;
        let frame = layout.frame(bytes, entry.frame)?;
        if frame.pack != position {
            continue;
        }
        let rows = match frames.entry(frame.offset) {
            Entry::Occupied(rows) => rows.into_mut(),
            Entry::Vacant(place) => place.insert(FrameRows {
                offset: frame.offset,
                stored_len: frame.stored_len,
                raw_len: frame.raw_len,
                kind: frame.kind,
                sum: None,
                chunks: Vec::new(),
                bases: layout.bases_of(bytes, entry.frame)?,
            }),
        };
        rows.chunks.push((entry.id, entry.offset, entry.len));
    }
    for rows in frames.values_mut() {
        rows.chunks.sort_unstable_by_key(|(_, offset, _)| *offset);
    }
    Ok(frames.into_values().collect())
}

/// Checks that `segment` has all chunks in the rows of a pack; returns how many of its entries refer to these rows.
pub(crate) fn compare(
    segment: &OpenSegment,
    pack: &SegmentPack,
    rows: &[FrameRows],
) -> Result<u64> {
    let key = pack_key(pack.id);
    let mut matched = 0;
    for frame in rows {
        for (id, offset, len) in &frame.chunks {
            let at = segment.layout().find(segment.bytes(), id);
            let found = at.map(|at| segment.located(at)).transpose()?;
            let has_same_len = |(_, location): &(_, Location)| location.len == *len;
            let (Some(at), Some((_, location))) = (at, found.filter(has_same_len)) else {
                let what = format!("has no chunk {id} of {len} bytes, which {key} has");
                return Err(defect(&segment_key(segment.id), &what));
            };
            let place = (location.pack, location.frame_offset, location.offset);
            let says = (location.stored_len, location.raw_len, location.kind);
            if place == (pack.id, frame.offset, *offset)
                && says == (frame.stored_len, frame.raw_len, frame.kind)
                && location.is_delta != frame.bases.is_empty()
                && (frame.bases.is_empty() || segment.bases_at(at)? == frame.bases)
            {
                matched += 1;
            }
        }
    }
    Ok(matched)
}

fn defect(key: &str, what: &str) -> crate::error::Error {
    crate::error::Error::corrupt(format!("{key}: {what}"))
}
