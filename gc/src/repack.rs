//! Repack: copies the live chunks of sparse packs into new ones, in the order in which they lie.
//!
//! A frame whose chunks all live is copied as it is stored; of any other the live chunks join their
//! neighbours in a new one. Every chunk is verified before it is copied: a copy must not seal damage.

use std::collections::HashSet;

use store::codec::{Decoder, Encoder, LEVEL};
use store::format::{CODEC_RAW, PackChunk, PackKind, pack_key};
use store::index::Location;
use store::pack::{EncodedFrame, PackWriter, SegmentBuilder};
use store::{ChunkId, Error, PackId, Result, Store};

use crate::collect::Deadline;
use crate::mark::Marker;

/// Bytes after which a frame of gathered chunks is encoded.
const FRAME_BYTES_TARGET: usize = 1 << 20;
/// Stored bytes that one read covers, unless one frame alone is larger.
const READ_BYTES_MAX: u32 = 8 << 20;
/// Bytes between two frames that are read and thrown away rather than read around.
const READ_GAP_BYTES_MAX: u32 = 64 << 10;
/// Smaller chunks share a frame even where they were raw.
const ALONE_BYTES_MIN: u32 = 16 << 10;

/// What was copied.
pub(crate) struct Copied {
    /// The old packs of which every live chunk is in the new ones.
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

/// Copies all that is marked in `packs` to new ones, durable and in no segment yet, which `into` gets to
/// know; stops before the next pack when `deadline` has passed or the host asks to stop.
pub(crate) fn repack(
    store: &Store,
    marker: &Marker<'_>,
    packs: &HashSet<PackId>,
    deadline: Deadline,
    into: &mut SegmentBuilder,
) -> Result<Copied> {
    let rows = gather(marker, packs)?;
    let mut copy = Copy::new(store, into)?;
    let mut from = Vec::new();
    for rows in rows.chunk_by(|a, b| a.location.pack == b.location.pack) {
        if is_over(store, deadline) {
            break;
        }
        for run in runs(rows) {
            copy.run(run)?;
        }
        from.extend(rows.first().map(|row| row.location.pack));
    }
    copy.finish(from)
}

/// Whether it is time to stop in good order.
pub(crate) fn is_over(store: &Store, deadline: Deadline) -> bool {
    deadline.is_over() || store.host().check_stop().is_err()
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
    // A pack that two segments name is one pack all the same.
    let mut first = std::collections::HashMap::new();
    for row in &rows {
        let segment = first.entry(row.location.pack).or_insert(row.segment);
        *segment = row.segment.min(*segment);
    }
    rows.sort_unstable_by_key(|row| (first.get(&row.location.pack).copied(), place(row)));
    Ok(rows)
}

/// Rows that one read covers.
fn runs(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let first = rest.first()?.location;
        let mut end = first.frame_offset + first.stored_len;
        let count = rest
            .iter()
            .take_while(|row| {
                let next = row.location;
                let next_end = next.frame_offset + next.stored_len;
                let joins = next_end <= end
                    || (next.frame_offset.saturating_sub(end) <= READ_GAP_BYTES_MAX
                        && next_end - first.frame_offset <= READ_BYTES_MAX);
                if joins {
                    end = end.max(next_end);
                }
                joins
            })
            .count();
        let (run, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(run)
    })
}

/// Old frames in, new packs out.
struct Copy<'c> {
    store: &'c Store,
    decoder: Decoder,
    encoder: Encoder,
    raw: Vec<u8>,
    data: Target,
    meta: Target,
    packs: &'c mut SegmentBuilder,
    bytes: u64,
}

/// The open pack of one kind, and the chunks that wait for a frame.
struct Target {
    kind: PackKind,
    pack: Option<PackWriter>,
    raw: Vec<u8>,
    chunks: Vec<PackChunk>,
}

impl<'c> Copy<'c> {
    fn new(store: &'c Store, packs: &'c mut SegmentBuilder) -> Result<Self> {
        Ok(Self {
            store,
            decoder: Decoder::new()?,
            encoder: Encoder::new(LEVEL)?,
            raw: Vec::new(),
            data: Target::new(PackKind::Data),
            meta: Target::new(PackKind::Meta),
            packs,
            bytes: 0,
        })
    }

    /// Reads adjacent frames at once and copies what lives in them.
    fn run(&mut self, rows: &[Row]) -> Result<()> {
        let (Some(first), Some(end)) = (
            rows.first().map(|row| row.location),
            rows.iter()
                .map(|row| row.location.frame_offset + row.location.stored_len)
                .max(),
        ) else {
            return Ok(());
        };
        let key = pack_key(first.pack);
        let range = first.frame_offset.into()..end.into();
        let bytes = self
            .store
            .remote()
            .get_ranges(&key, std::slice::from_ref(&range))?
            .pop()
            .ok_or_else(|| Error::unavailable(format!("{key}: no answer for its bytes")))?;
        for rows in rows.chunk_by(|a, b| a.location.frame_offset == b.location.frame_offset) {
            let Some(location) = rows.first().map(|row| row.location) else {
                continue;
            };
            let start = (location.frame_offset - first.frame_offset) as usize;
            let stored = bytes
                .get(start..start + location.stored_len as usize)
                .unwrap_or_default();
            self.frame(&key, rows, &location, stored)?;
        }
        Ok(())
    }

    fn frame(&mut self, key: &str, rows: &[Row], location: &Location, stored: &[u8]) -> Result<()> {
        let raw = self
            .decoder
            .decode(key, stored, location.raw_len, &mut self.raw)?;
        let mut chunks = Vec::with_capacity(rows.len());
        for row in rows {
            let bytes = row.location.of(row.id).verified(raw).map_err(|error| {
                error.hint("run `store verify` to see what is hit; `store gc --no-repack` leaves the pack alone")
            })?;
            chunks.push((row.id, bytes));
        }
        let target = match location.kind {
            PackKind::Data => &mut self.data,
            PackKind::Meta => &mut self.meta,
        };
        let is_whole = chunks.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() == raw.len();
        let packs = (self.store, &mut *self.packs, &mut self.bytes);
        if is_whole {
            let frame = EncodedFrame {
                stored: stored.to_vec(),
                raw_len: location.raw_len,
                chunks: chunks
                    .iter()
                    .map(|(id, bytes)| pack_chunk(*id, bytes))
                    .collect::<Result<_>>()?,
            };
            target.flush(&mut self.encoder, packs)?;
            return target.push(frame, (self.store, &mut *self.packs, &mut self.bytes));
        }
        let was_raw = stored.first() == Some(&CODEC_RAW);
        for (id, bytes) in chunks {
            let packs = (self.store, &mut *self.packs, &mut self.bytes);
            target.chunk(id, bytes, was_raw, &mut self.encoder, packs)?;
        }
        Ok(())
    }

    fn finish(mut self, from: Vec<PackId>) -> Result<Copied> {
        for target in [&mut self.data, &mut self.meta] {
            target.flush(
                &mut self.encoder,
                (self.store, &mut *self.packs, &mut self.bytes),
            )?;
            target.close((self.store, &mut *self.packs, &mut self.bytes))?;
        }
        Ok(Copied {
            from,
            bytes: self.bytes,
        })
    }
}

/// Where finished packs go: the store, the segment in the making, and a count of bytes.
type Packs<'p> = (&'p Store, &'p mut SegmentBuilder, &'p mut u64);

impl Target {
    fn new(kind: PackKind) -> Self {
        Self {
            kind,
            pack: None,
            raw: Vec::new(),
            chunks: Vec::new(),
        }
    }

    fn chunk(
        &mut self,
        id: ChunkId,
        bytes: &[u8],
        was_raw: bool,
        encoder: &mut Encoder,
        (store, builder, count): Packs<'_>,
    ) -> Result<()> {
        let chunk = pack_chunk(id, bytes)?;
        if was_raw && chunk.len >= ALONE_BYTES_MIN {
            self.flush(encoder, (store, builder, count))?;
            let mut stored = Vec::new();
            Encoder::encode_raw(bytes, &mut stored);
            let frame = EncodedFrame {
                stored,
                raw_len: chunk.len,
                chunks: vec![chunk],
            };
            return self.push(frame, (store, builder, count));
        }
        if self.raw.len() + bytes.len() > FRAME_BYTES_TARGET {
            self.flush(encoder, (store, builder, count))?;
        }
        self.raw.extend_from_slice(bytes);
        self.chunks.push(chunk);
        Ok(())
    }

    /// Encodes what waits.
    fn flush(&mut self, encoder: &mut Encoder, packs: Packs<'_>) -> Result<()> {
        if self.raw.is_empty() {
            return Ok(());
        }
        let mut stored = Vec::new();
        encoder.encode(&self.raw, &mut stored)?;
        let frame = EncodedFrame {
            stored,
            raw_len: length(&self.raw)?,
            chunks: std::mem::take(&mut self.chunks),
        };
        self.raw.clear();
        self.push(frame, packs)
    }

    fn push(&mut self, frame: EncodedFrame, packs: Packs<'_>) -> Result<()> {
        let mut pack = match self.pack.take() {
            Some(pack) => pack,
            None => PackWriter::begin(packs.0.remote(), self.kind)?,
        };
        pack.push(frame)?;
        let is_full = pack.is_full(packs.0.portions());
        self.pack = Some(pack);
        if is_full { self.close(packs) } else { Ok(()) }
    }

    fn close(&mut self, (_, builder, count): Packs<'_>) -> Result<()> {
        if let Some(pack) = self.pack.take() {
            let written = pack.finish()?;
            *count += u64::from(written.len);
            builder.add(&written)?;
        }
        Ok(())
    }
}

fn pack_chunk(id: ChunkId, bytes: &[u8]) -> Result<PackChunk> {
    Ok(PackChunk {
        id,
        len: length(bytes)?,
    })
}

fn length(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| Error::invalid("a frame would outgrow 32-bit lengths"))
}
