//! Lookups in a segment of five million chunks, warm, and what it takes to write it:
//! `cargo bench --workspace --bench segment`.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::io::Write;
use std::sync::LazyLock;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use store::format::{
    FrameKind, PackHeader, PackKind, Provenance, SegmentEntry, SegmentFrame, SegmentLayout,
    SegmentPack, write_segment,
};
use store::{ChunkId, PackId, SegmentId};

const CHUNKS: u32 = 5_000_000;
/// Chunks of one frame; frames of one pack.
const FRAME_CHUNKS: u32 = 16;
const PACK_FRAMES: u32 = 64;
const LOOKUPS: usize = 100_000;

fn main() {
    divan::main();
}

static ENTRIES: LazyLock<Vec<SegmentEntry>> = LazyLock::new(entries);
static SEGMENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
});

fn entries() -> Vec<SegmentEntry> {
    let entry = |at: u32| SegmentEntry {
        id: ChunkId::of(&at.to_le_bytes()),
        frame: at / FRAME_CHUNKS,
        offset: at % FRAME_CHUNKS * 65_536,
        len: 65_536,
    };
    let mut entries: Vec<SegmentEntry> = (0..CHUNKS).map(entry).collect();
    entries.sort_unstable_by_key(|entry| entry.id);
    entries
}

fn write(out: &mut impl Write) {
    let frames: Vec<SegmentFrame> = (0..CHUNKS.div_ceil(FRAME_CHUNKS))
        .map(|at| SegmentFrame {
            pack: at / PACK_FRAMES,
            offset: PackHeader::LEN + at % PACK_FRAMES * (1 << 20),
            stored_len: 1 << 20,
            raw_len: 1 << 20,
            kind: FrameKind::Data,
        })
        .collect();
    let packs: Vec<SegmentPack> = (0..u128::from(CHUNKS / FRAME_CHUNKS / PACK_FRAMES + 1))
        .map(|at| SegmentPack {
            id: PackId(at.to_be_bytes()),
            kind: PackKind::Data,
            len: 65 << 20,
        })
        .collect();
    let entries = || ENTRIES.iter().copied();
    write_segment(
        out,
        SegmentId([1; 16]),
        Provenance::default(),
        &packs,
        &frames,
        &[],
        entries,
    )
    .unwrap();
}

#[divan::bench(sample_count = 20, args = ["there", "missing"])]
fn find(bencher: Bencher<'_, '_>, which: &str) {
    let layout = SegmentLayout::parse("segment", &SEGMENT).unwrap();
    // An odd factor visits entries all over the segment, in no order of ids.
    let ids: Vec<ChunkId> = (0..u32::try_from(LOOKUPS).unwrap())
        .map(|at| at.wrapping_mul(2_654_435_761) % CHUNKS)
        .map(|at| match which {
            "there" => ChunkId::of(&at.to_le_bytes()),
            _ => ChunkId::of(&(at + CHUNKS).to_le_bytes()),
        })
        .collect();
    bencher.counter(ItemsCount::new(LOOKUPS)).bench(|| {
        let found = ids.iter().filter_map(|id| layout.find(&SEGMENT, id));
        assert_eq!(black_box(found.count()) > 0, which == "there");
    });
}

#[divan::bench(sample_count = 3)]
fn write_all(bencher: Bencher<'_, '_>) {
    let len = SEGMENT.len();
    bencher
        .counter(BytesCount::new(len))
        .bench(|| write(&mut std::io::sink()));
}

#[divan::bench(sample_count = 3)]
fn verify(bencher: Bencher<'_, '_>) {
    let layout = SegmentLayout::parse("segment", &SEGMENT).unwrap();
    bencher
        .counter(BytesCount::new(SEGMENT.len()))
        .bench(|| layout.verify(&SEGMENT).unwrap());
}
