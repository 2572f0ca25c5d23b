//! Repack: copies the live chunks of sparse packs to new packs, in the order of their locations.
//!
//! If all chunks of a frame are live, the frame is copied as it is stored; otherwise its live chunks are joined with
//! their neighbours in a new frame. Every chunk is verified before it is copied: a copy must not seal damage. Threads
//! decode and encode batches of reads at once; the batches before them are meanwhile written, in their order.

use std::collections::HashSet;

use rayon::prelude::*;
use store::codec::{Decoder, LEVEL, delta_base};
use store::format::{FrameKind, PackChunk, pack_key};
use store::index::Location;
use store::pack::{
    Coalesce, EncodedFrame, Extent, FrameSink, Framer, KindFrame, PackSink, SegmentBuilder,
    finish_behind,
};
use store::read::Reader;
use store::{ChunkId, Error, PackId, Remedy, Result, Store, View};

use crate::mark::Marker;
use crate::request::Deadline;

/// Live bytes that one thread copies at once.
const BATCH_BYTES: u64 = 8 << 20;
/// The memory for a batch: one read, the frames that are made of it, and those of the batch before, which are being written.
const BATCH_MEMORY_BYTES: u64 = Coalesce::COPY.read_bytes_max as u64 + 3 * BATCH_BYTES;

/// A read, and the live chunks in it.
type Run<'r> = (Extent, &'r [Row]);

/// The result of a copy.
pub(crate) struct Copied {
    /// The old packs whose live chunks are all in the new packs.
    pub(crate) from: Vec<PackId>,
    /// Bytes of the new packs.
    pub(crate) bytes: u64,
}

/// A live chunk to copy.
#[derive(Clone, Copy, Debug)]
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
    mut data: &mut PackSink,
    mut meta: &mut PackSink,
) -> Result<Vec<PackId>> {
    let store = reader.store();
    let host = store.host();
    let affordable = host.affordable(BATCH_MEMORY_BYTES);
    let threads = host.threads.min(affordable).max(1);
    let batch_bytes = BATCH_BYTES.min(store.portions().pack_bytes.into());
    let mut packs = rows.chunk_by(|a, b| a.location.pack == b.location.pack);
    let mut from = Vec::new();
    let write = |frames: Vec<Frames>| {
        let mut frames = frames.into_iter().flat_map(|frames| frames.0);
        frames.try_for_each(|(kind, frame)| match kind {
            FrameKind::Data => data.frame(kind, frame),
            FrameKind::Meta => meta.frame(kind, frame),
        })
    };
    finish_behind(write, |encoded| {
        loop {
            // Whole packs, since one that is copied in part is copied again by the next run.
            let (mut wave, mut copied, mut bytes) = (Vec::new(), Vec::new(), 0);
            while bytes < batch_bytes * threads as u64 && !deadline.stops(store) {
                let Some(rows) = packs.next() else { break };
                bytes += live_bytes(rows);
                wave.extend(runs(rows));
                copied.extend(rows.first().map(|row| row.location.pack));
            }
            if wave.is_empty() {
                return Ok(());
            }
            for batches in batches(&wave, batch_bytes).chunks(threads) {
                let copy = |batch: &&[Run<'_>]| Copy::of(reader, batch);
                encoded.hand_over(batches.par_iter().map(copy).collect::<Result<_>>()?)?;
            }
            from.extend(copied);
        }
    })?;
    data.close()?;
    meta.close()?;
    Ok(from)
}

fn live_bytes(rows: &[Row]) -> u64 {
    rows.iter().map(|row| u64::from(row.location.len)).sum()
}

/// Splits runs into batches of about `bytes` live bytes.
fn batches<'w, 'r>(wave: &'w [Run<'r>], bytes: u64) -> Vec<&'w [Run<'r>]> {
    let mut batches = Vec::new();
    let (mut rest, mut count, mut filled) = (wave, 0, 0);
    for (_, rows) in wave {
        count += 1;
        filled += live_bytes(rows);
        if filled >= bytes {
            let (batch, after) = rest.split_at(count);
            batches.push(batch);
            (rest, count, filled) = (after, 0, 0);
        }
    }
    batches.extend((!rest.is_empty()).then_some(rest));
    batches
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
fn runs(rows: &[Row]) -> Vec<Run<'_>> {
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

/// Frames that wait to be written.
#[derive(Default)]
struct Frames(Vec<KindFrame>);

impl FrameSink for Frames {
    fn frame(&mut self, kind: FrameKind, frame: EncodedFrame) -> Result<()> {
        self.0.push((kind, frame));
        Ok(())
    }
}

/// Copies old frames to new ones.
struct Copy<'c> {
    /// Reads bases of deltas.
    reader: &'c Reader<'c>,
    decoder: Decoder,
    raw: Vec<u8>,
    data: Framer<Frames>,
    meta: Framer<Frames>,
}

impl<'c> Copy<'c> {
    /// Copies a batch.
    fn of(reader: &'c Reader<'c>, batch: &[Run<'_>]) -> Result<Frames> {
        let framer = |kind| Framer::new(kind, LEVEL, false, Frames::default());
        let mut copy = Self {
            reader,
            decoder: Decoder::new()?,
            raw: Vec::new(),
            data: framer(FrameKind::Data)?,
            meta: framer(FrameKind::Meta)?,
        };
        for (read, rows) in batch {
            copy.run(*read, rows)?;
        }
        let mut frames = copy.data.finish()?;
        frames.0.append(&mut copy.meta.finish()?.0);
        Ok(frames)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(len: u32) -> Row {
        let location = Location {
            pack: PackId([7; 16]),
            kind: FrameKind::Data,
            pack_len: 0,
            frame_offset: 0,
            stored_len: len,
            raw_len: len,
            offset: 0,
            len,
            is_delta: false,
        };
        Row {
            segment: 0,
            location,
            id: ChunkId::of(&len.to_le_bytes()),
        }
    }

    #[test]
    fn batches_have_all_runs_in_their_order_and_are_as_long_as_they_should_be() {
        let rows: Vec<Row> = (1..100).map(row).collect();
        let runs: Vec<Run<'_>> = rows
            .iter()
            .map(|row| (Extent::of(&row.location), std::slice::from_ref(row)))
            .collect();
        for bytes in [1, 50, 500, 10_000] {
            let batches = batches(&runs, bytes);
            let lens = |batch: &[Run<'_>]| -> Vec<u64> {
                batch.iter().map(|(_, rows)| live_bytes(rows)).collect()
            };
            let all: Vec<u64> = batches.iter().flat_map(|batch| lens(batch)).collect();
            assert_eq!(all, (1..100).collect::<Vec<u64>>(), "{bytes}");
            let (_, first) = batches.split_last().unwrap();
            for batch in first {
                let (last, before) = lens(batch)
                    .split_last()
                    .map(|(l, b)| (*l, b.to_vec()))
                    .unwrap();
                let before: u64 = before.iter().sum();
                assert!(
                    before < bytes && before + last >= bytes,
                    "{bytes}: {batch:?}"
                );
            }
        }
    }
}
