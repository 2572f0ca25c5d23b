//! Repack: copies the live chunks of sparse packs to new packs, in the order of their locations.
//!
//! If all chunks of a frame are live, the frame is copied as it is stored; otherwise its live chunks are joined with
//! their neighbours in a new frame. Every chunk is verified before it is copied: a copy must not seal damage.

use std::collections::HashSet;

use store::codec::{Decoder, LEVEL, delta_base};
use store::format::{FrameKind, PackChunk, pack_key};
use store::index::Location;
use store::pack::{Coalesce, EncodedFrame, Extent, Framer, PackSink, SegmentBuilder};
use store::read::Reader;
use store::{ChunkId, Error, PackId, Remedy, Result, Store, View};

use crate::mark::Marker;
use crate::request::Deadline;

/// The result of a copy.
pub(crate) struct Copied {
    /// The old packs whose live chunks are all in the new packs.
    pub(crate) from: Vec<PackId>,
    /// Bytes of the new packs.
    pub(crate) bytes: u64,
}

/// A live chunk to copy.
#[derive(Clone, Copy)]
struct Row {
    segment: usize,
    location: Location,
    id: ChunkId,
}

/// Copies everything that is marked in `packs` to new packs, which are durable and in no segment yet. Stops before the
/// next pack when `deadline` has passed or the host asks to stop. Even after an error, `into` contains every new pack
/// that exists, so that the caller can delete them.
pub(crate) fn repack(
    store: &Store,
    view: &View,
    marker: &Marker<'_>,
    packs: &HashSet<PackId>,
    deadline: Deadline,
    into: &mut SegmentBuilder,
) -> Result<Copied> {
    let rows = gather(marker, packs)?;
    let (mut data, mut meta) = (store.pack_sink(), store.pack_sink());
    let reader = Reader::at(store, view.clone());
    let copied = copy(&reader, &rows, deadline, &mut data, &mut meta);
    let mut bytes = 0;
    for sink in [data, meta] {
        for pack in sink.into_finished() {
            bytes += u64::from(pack.len);
            into.add(&pack)?;
        }
    }
    let from = copied?;
    Ok(Copied { from, bytes })
}

/// Copies `rows`. Returns the old packs that were copied completely.
fn copy(
    reader: &Reader<'_>,
    rows: &[Row],
    deadline: Deadline,
    data: &mut PackSink,
    meta: &mut PackSink,
) -> Result<Vec<PackId>> {
    let store = reader.store();
    let mut copy = Copy {
        reader,
        decoder: Decoder::new()?,
        raw: Vec::new(),
        data: Framer::new(FrameKind::Data, LEVEL, false, data)?,
        meta: Framer::new(FrameKind::Meta, LEVEL, false, meta)?,
    };
    let mut from = Vec::new();
    for rows in rows.chunk_by(|a, b| a.location.pack == b.location.pack) {
        if deadline.stops(store) {
            break;
        }
        for (read, rows) in runs(rows) {
            copy.run(read, rows)?;
        }
        from.extend(rows.first().map(|row| row.location.pack));
    }
    copy.data.finish()?.close()?;
    copy.meta.finish()?.close()?;
    Ok(from)
}

/// The marked chunks in `packs`, in the order of segments, packs and frames.
fn gather(marker: &Marker<'_>, packs: &HashSet<PackId>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (number, segment) in marker.index().segments().enumerate() {
        let (layout, bytes) = (segment.layout(), segment.bytes());
        let mut is_wanted = Vec::new();
        for position in 0..layout.packs() {
            is_wanted.push(packs.contains(&layout.pack(bytes, position)?.id));
        }
        if !is_wanted.contains(&true) {
            continue;
        }
        let mut frames = Vec::new();
        for position in 0..layout.frames() {
            let pack = layout.frame(bytes, position)?.pack;
            frames.push(is_wanted.get(pack as usize) == Some(&true));
        }
        for entry in marker.reached().in_segment(number) {
            let frame = segment.entry(entry)?.frame;
            if frames.get(frame as usize) == Some(&true) {
                let (id, location) = segment.located(entry)?;
                rows.push(Row {
                    segment: number,
                    location,
                    id,
                });
            }
        }
    }
    let place = |row: &Row| {
        let Location {
            pack,
            frame_offset,
            offset,
            ..
        } = row.location;
        (pack, frame_offset, offset)
    };
    // A pack that two segments name is copied once.
    let mut first = std::collections::HashMap::new();
    for row in &rows {
        let segment = first.entry(row.location.pack).or_insert(row.segment);
        *segment = row.segment.min(*segment);
    }
    rows.sort_unstable_by_key(|row| (first.get(&row.location.pack).copied(), place(row)));
    Ok(rows)
}

/// Groups rows that one read covers, with the extent of each read.
fn runs(rows: &[Row]) -> Vec<(Extent, &[Row])> {
    let mut runs: Vec<(Extent, usize)> = Vec::new();
    for row in rows {
        let next = Extent::of(&row.location);
        let last = runs.last_mut();
        match last.and_then(|run| run.0.join(&next, Coalesce::COPY).then_some(run)) {
            Some(run) => run.1 += 1,
            None => runs.push((next, 1)),
        }
    }
    let mut rest = rows;
    let split = |(extent, count)| {
        let (run, after) = rest.split_at_checked(count)?;
        rest = after;
        Some((extent, run))
    };
    runs.into_iter().map_while(split).collect()
}

/// Copies old frames to new packs.
struct Copy<'c> {
    /// Reads bases of deltas.
    reader: &'c Reader<'c>,
    decoder: Decoder,
    raw: Vec<u8>,
    data: Framer<&'c mut PackSink>,
    meta: Framer<&'c mut PackSink>,
}

impl Copy<'_> {
    /// Reads adjacent frames together and copies their live chunks.
    fn run(&mut self, read: Extent, rows: &[Row]) -> Result<()> {
        let key = pack_key(read.pack);
        let range = u64::from(read.offset)..u64::from(read.offset) + u64::from(read.len);
        let bytes = (self.reader.store())
            .remote()
            .get_ranges(&key, std::slice::from_ref(&range))?
            .pop()
            .ok_or_else(|| Error::unavailable(format!("{key}: no answer for its bytes")))?;
        for rows in rows.chunk_by(|a, b| a.location.frame_offset == b.location.frame_offset) {
            let Some(location) = rows.first().map(|row| row.location) else {
                continue;
            };
            let start = (location.frame_offset - read.offset) as usize;
            let stored = bytes
                .get(start..start + location.stored_len as usize)
                .unwrap_or_default();
            self.frame(&key, rows, &location, stored)?;
        }
        Ok(())
    }

    fn frame(&mut self, key: &str, rows: &[Row], location: &Location, stored: &[u8]) -> Result<()> {
        let raw = (self.reader).decode(&mut self.decoder, location, stored, &mut self.raw)?;
        let mut chunks = Vec::with_capacity(rows.len());
        for row in rows {
            // DESIGN, collector 5: a copy must not seal damage.
            let bytes = row
                .location
                .of(row.id)
                .verified(raw)
                .map_err(|error| self.reader.blame_base(location, error))
                .map_err(|error| error.hint(Remedy::VerifyOrLeavePack))?;
            chunks.push((row.id, bytes));
        }
        let framer = match location.kind {
            FrameKind::Data => &mut self.data,
            FrameKind::Meta => &mut self.meta,
        };
        let live_bytes: usize = chunks.iter().map(|(_, bytes)| bytes.len()).sum();
        if live_bytes < raw.len() {
            return chunks
                .into_iter()
                .try_for_each(|(id, bytes)| framer.push(id, bytes));
        }
        let chunks = rows.iter().map(|row| PackChunk {
            id: row.id,
            len: row.location.len,
        });
        // The bases are marked, so they stay in plain frames wherever they are copied.
        let object = format!("{key}: frame at offset {}", location.frame_offset);
        let base = delta_base(&object, stored)?;
        framer.push_frame(EncodedFrame {
            bases: base.map(|base| base.ids).unwrap_or_default(),
            stored: stored.to_vec(),
            raw_len: location.raw_len,
            chunks: chunks.collect(),
        })
    }
}
