//! Synthetic segments for `tests/run lookups`: the cost of opening them, and of a lookup.
//!
//! `lookups make DIR MILLIONS SEGMENTS SHARE` makes a store of so many chunks in so many segments of equal size. Only
//! one in SHARE stretches of a MiB of their entries is written, and the others are holes; lookups in the written ones
//! cost the same. `lookups ask DIR MILLIONS SEGMENTS SHARE` measures, and prints a row of a table.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a tool of the tests that cannot go on stops, and says what it found"
)]

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use store::format::{
    Change, FrameKind, PackHeader, PackKind, PackTrailer, Provenance, SEGMENT_ENTRY_LEN,
    SEGMENT_HEADER_LEN, SegmentEntry, SegmentFrame, SegmentPack, Who, segment_fanout_bits,
    segment_key, write_segment,
};
use store::remote::Objects;
use store::{ChunkId, Host, PackId, SegmentId, Store, log};
use support::Random;

const CHUNK_BYTES: u32 = 32 << 10;
const FRAME_CHUNKS: u64 = 16;
const FRAME_STORED: u32 = 64 << 10;
const PACK_FRAMES: u64 = 1000;
/// The unit that is either written or a hole.
const STRETCH: u64 = 1 << 20;
/// Entries this close to the end of a stretch are not looked up.
const MARGIN: u64 = 1000;
const LOOKUPS: usize = 1_000_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir, numbers @ ..] = words.as_slice() else {
        return usage();
    };
    let numbers: Vec<u64> = numbers.iter().map(|word| word.parse().unwrap()).collect();
    let [millions, segments, share] = numbers[..] else {
        return usage();
    };
    let shape = Shape {
        chunks: millions * 1_000_000 / segments,
        segments,
        share,
    };
    match what.as_str() {
        "make" => shape.make(Path::new(dir)),
        "ask" => shape.ask(Path::new(dir)),
        _ => usage(),
    }
}

fn usage() {
    println!("usage: lookups make|ask DIR MILLIONS SEGMENTS SHARE");
}

struct Shape {
    /// Chunks per segment.
    chunks: u64,
    segments: u64,
    share: u64,
}

impl Shape {
    /// The ids of a segment increase with their number, with the same distances as random ids.
    fn id(&self, segment: u64, number: u64) -> ChunkId {
        let step = u64::MAX / self.chunks;
        let seed = (segment << 40 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Random::new(seed ^ 0x5bf0);
        let mut id = [0; 32];
        let first = number * step + random.draw() % step;
        id[..8].copy_from_slice(&first.to_be_bytes());
        for part in id[8..].chunks_exact_mut(8) {
            part.copy_from_slice(&random.draw().to_le_bytes());
        }
        ChunkId(id)
    }

    fn make(&self, dir: &Path) {
        let remote = Arc::new(Objects::directory(dir).unwrap());
        let store = Store::init(remote.clone(), Host::default()).unwrap();
        let made = store.provenance();
        let changes: Vec<Change> = (0..self.segments)
            .map(|number| self.segment(dir, made, number))
            .collect();
        let mut state = store.state().unwrap();
        log::commit(remote.as_ref(), &mut state, &Who::default(), &mut |_, _| {
            Ok(changes.clone())
        })
        .unwrap();
    }

    fn segment(&self, dir: &Path, made: Provenance, number: u64) -> Change {
        let frame_count = self.chunks.div_ceil(FRAME_CHUNKS);
        let frame = |at: u64| SegmentFrame {
            pack: u32::try_from(at / PACK_FRAMES).unwrap(),
            offset: PackHeader::LEN + u32::try_from(at % PACK_FRAMES).unwrap() * FRAME_STORED,
            stored_len: FRAME_STORED,
            raw_len: u32::try_from(FRAME_CHUNKS).unwrap() * CHUNK_BYTES,
            kind: FrameKind::Data,
        };
        let pack = |at: u64| SegmentPack {
            id: PackId((u128::from(number) << 64 | u128::from(at)).to_be_bytes()),
            kind: PackKind::Data,
            len: PackHeader::LEN
                + u32::try_from(PACK_FRAMES).unwrap() * FRAME_STORED
                + PackTrailer::LEN,
        };
        // Neighbouring entries belong to arbitrary frames.
        let entry = |at: u64| SegmentEntry {
            id: self.id(number, at),
            frame: u32::try_from(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % frame_count).unwrap(),
            offset: u32::try_from(at % FRAME_CHUNKS).unwrap() * CHUNK_BYTES,
            len: CHUNK_BYTES,
        };
        let frames: Vec<SegmentFrame> = (0..frame_count).map(frame).collect();
        let packs: Vec<SegmentPack> = (0..frame_count.div_ceil(PACK_FRAMES)).map(pack).collect();
        let id = SegmentId::random().unwrap();
        let path = dir.join(segment_key(id));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let entries_at = self.entries_at();
        let mut file = Sparse {
            file: File::create(path).unwrap(),
            at: 0,
            from: entries_at.next_multiple_of(STRETCH),
            to: entries_at + self.chunks * SEGMENT_ENTRY_LEN,
            share: self.share,
        };
        let count = usize::try_from(self.chunks).unwrap();
        let entries = || (0..count).map(|at| entry(at as u64));
        let info = write_segment(&mut file, id, made, &packs, &frames, &[], entries).unwrap();
        Change::AddSegment { segment: id, info }
    }

    fn entries_at(&self) -> u64 {
        SEGMENT_HEADER_LEN + ((1 << segment_fanout_bits(self.chunks)) + 1) * 4
    }

    /// A chunk whose entry and neighbouring entries are written.
    fn drawn(&self, random: &mut Random) -> ChunkId {
        let segment = random.below(self.segments);
        loop {
            let number = random.below(self.chunks);
            let at = self.entries_at() + number * SEGMENT_ENTRY_LEN;
            let behind = at % STRETCH / SEGMENT_ENTRY_LEN;
            let is_within = (MARGIN..STRETCH / SEGMENT_ENTRY_LEN - MARGIN).contains(&behind);
            let is_written = (at / STRETCH).is_multiple_of(self.share);
            if self.share == 1 || (is_within && is_written) {
                return self.id(segment, number);
            }
        }
    }

    fn ask(&self, dir: &Path) {
        let cache = dir.with_extension("cache");
        let host = Host {
            cache_dir: Some(cache),
            ..Host::default()
        };
        let began = Instant::now();
        let store = Store::open(Arc::new(Objects::directory(dir).unwrap()), host).unwrap();
        let view = store.view().unwrap();
        let open = began.elapsed().as_secs_f64() * 1e3;
        let mut random = Random::new(1);
        let there: Vec<ChunkId> = (0..LOOKUPS).map(|_| self.drawn(&mut random)).collect();
        // Holes read as zeros, so missing chunks are looked up near written ones.
        let missing: Vec<ChunkId> = (there.iter())
            .map(|ChunkId(id)| {
                let mut other = *id;
                other[8] ^= 0x55;
                ChunkId(other)
            })
            .collect();
        let find = |id: &ChunkId| view.index.find(id).unwrap().is_some();
        let rely = |id: &ChunkId| view.index.rely(id).unwrap().is_some();
        let count = |ids: &[ChunkId], ask: &dyn Fn(&ChunkId) -> bool| {
            let began = Instant::now();
            let found = ids.iter().filter(|id| ask(id));
            let found = found.count();
            (found, began.elapsed().as_secs_f64() * 1e6 / LOOKUPS as f64)
        };
        let first = count(&missing, &rely).1;
        let best = |ids: &[ChunkId], ask: &dyn Fn(&ChunkId) -> bool, expected: usize| {
            let all: Vec<(usize, f64)> = (0..4).map(|_| count(ids, ask)).collect();
            assert!(all.iter().all(|(found, _)| *found == expected), "{all:?}");
            all.iter()
                .map(|(_, micros)| *micros)
                .fold(f64::MAX, f64::min)
        };
        let located = best(&there, &find, LOOKUPS);
        let (there, missing) = (best(&there, &rely, LOOKUPS), best(&missing, &rely, 0));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let anon = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let anon = anon.unwrap().trim().trim_end_matches(" kB");
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let maps = maps.lines().count();
        println!(
            "| {} million in {} | {open:.1} ms | {first:.2} us | {there:.2} us | {missing:.2} us | {located:.2} us | {} MB | {maps} |",
            self.chunks * self.segments / 1_000_000,
            self.segments,
            anon.parse::<u64>().unwrap() / 1000,
        );
    }
}

/// A file in which stretches between `from` and `to` are holes, except one of `share`.
struct Sparse {
    file: File,
    at: u64,
    from: u64,
    to: u64,
    share: u64,
}

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = usize::try_from(STRETCH - self.at % STRETCH).unwrap();
        let part = &bytes[..bytes.len().min(left)];
        let end = self.at - self.at % STRETCH + STRETCH;
        let is_left_out = !(self.at / STRETCH).is_multiple_of(self.share)
            && self.from <= self.at
            && end <= self.to;
        match is_left_out {
            true => drop(
                self.file
                    .seek(SeekFrom::Current(i64::try_from(part.len()).unwrap()))?,
            ),
            false => self.file.write_all(part)?,
        }
        self.at += part.len() as u64;
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
