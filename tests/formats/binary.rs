//! Malformed binary objects: segments, list nodes, trees, times.
//!
//! Checksums of segments are corrected after a change, since a wrong one would hide every other defect.

use store::format::{
    FrameBase, FrameKind, PackKind, Provenance, SegmentEntry, SegmentFrame, SegmentPack,
    write_segment,
};
use store::{ChunkId, PackId, SegmentId, StoreId};

use crate::malformed::Defect;
use crate::packs::{self, META, Pack, mixed};

/// Valid objects, from which each defect differs in one place.
pub(crate) fn good() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("pack", Pack::default().bytes()),
        ("pack", mixed([3, META | 1]).bytes()),
        ("pack", packs::with_bases(&[0, 0, 1]).bytes()),
        ("segment", segment(&[])),
        ("segment", segment(&[0, 1, 1])),
        ("list", list(0, &[(5, 3), (6, 4)])),
        ("tree", tree(&[&file("a", 0, &[]), &link("b", b"x")])),
        ("times", times(&[2, 0, 1, 0xac, 2])),
    ]
}

/// Every malformed object of these kinds.
pub(crate) fn defects() -> Vec<Defect> {
    let kinds = [
        ("pack", packs::defects()),
        ("pack", packs::table_defects()),
        ("segment", segment_defects()),
        ("list", list_defects()),
        ("tree", tree_defects()),
        ("times", times_defects()),
    ];
    kinds
        .into_iter()
        .flat_map(|(kind, defects)| {
            defects
                .into_iter()
                .map(move |(name, bytes)| (kind, name, bytes))
        })
        .collect()
}

pub(crate) type Named = Vec<(&'static str, Vec<u8>)>;

/// Eighteen chunks in two frames of two packs, with a fan-out of two bits, and a base for each of these frames.
fn segment(bases: &[u32]) -> Vec<u8> {
    let base = |frame: &u32| FrameBase {
        frame: *frame,
        id: ChunkId([8; 32]),
    };
    let bases: Vec<FrameBase> = bases.iter().map(base).collect();
    let pack = |byte, len| SegmentPack {
        id: PackId([byte; 16]),
        kind: PackKind::Data,
        len,
    };
    let frame = |pack, offset| SegmentFrame {
        pack,
        offset,
        stored_len: 100,
        raw_len: 1000,
        kind: FrameKind::Data,
    };
    let entry = |at: u8| SegmentEntry {
        id: ChunkId([at * 14; 32]),
        frame: u32::from(at % 2),
        offset: 10,
        len: 990,
    };
    let packs = [pack(1, 244), pack(2, 1000)];
    let frames = [frame(0, 80), frame(1, 836)];
    let mut bytes = Vec::new();
    let entries = || (0..18).map(entry);
    let made = Provenance {
        store: StoreId([6; 16]),
        began: 5,
    };
    write_segment(
        &mut bytes,
        SegmentId([9; 16]),
        made,
        &packs,
        &frames,
        &bases,
        entries,
    )
    .unwrap();
    bytes
}

const FANOUT: usize = 96;
const ENTRIES: usize = FANOUT + 5 * 4;
const FRAMES: usize = ENTRIES + 18 * 44;
const PACKS: usize = FRAMES + 2 * 16;

fn segment_defects() -> Named {
    let good = segment(&[]);
    let delta = segment(&[1, 1]);
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    // Applies the change at `at`, and corrects both checksums.
    let in_place = |good: &[u8], at: usize, change: &[u8]| {
        let mut bytes = good.to_vec();
        bytes[at..at + change.len()].copy_from_slice(change);
        let header = blake3::hash(&bytes[..88]);
        bytes[88..96].copy_from_slice(&header.as_bytes()[..8]);
        let trailer = bytes.len() - 40;
        let checksum = blake3::hash(&bytes[..trailer]);
        bytes[trailer + 8..].copy_from_slice(checksum.as_bytes());
        bytes
    };
    let with = |at: usize, change: &[u8]| in_place(&good, at, change);
    let with_bases = |at: usize, change: &[u8]| in_place(&delta, at, change);
    let entry = ENTRIES + 44;
    vec![
        ("empty", Vec::new()),
        ("header-cut-short", good[..95].to_vec()),
        ("header-only", good[..96].to_vec()),
        ("last-byte-missing", good[..good.len() - 1].to_vec()),
        ("byte-behind", [&good[..], b"!"].concat()),
        ("header-magic", with(0, b"X")),
        ("header-later-version", with(8, &[3])),
        ("header-interim-version", with(8, &[1])),
        ("header-padding", with(15, &[1])),
        ("header-padding-at-its-end", with(87, &[1])),
        ("header-flipped", flipped(56)),
        ("header-of-another-store", flipped(33)),
        ("header-of-another-entry", flipped(48)),
        ("header-checksum-flipped", flipped(88)),
        ("fan-out-of-25-bits", with(10, &[25])),
        ("fan-out-of-255-bits", with(10, &[255])),
        ("most-chunks", with(56, &[0xff; 8])),
        ("most-frames", with(64, &[0xff; 4])),
        ("most-packs", with(68, &[0xff; 4])),
        ("most-bases", with(72, &[0xff; 4])),
        ("bases-fewer-than-are-there", with_bases(72, &[1])),
        ("bases-unsorted", with_bases(PACKS + 36, &[0])),
        ("base-of-no-frame", with_bases(PACKS + 36, &[2])),
        ("trailer-magic", flipped(good.len() - 40)),
        ("checksum-flipped", flipped(good.len() - 1)),
        ("entry-flipped", flipped(ENTRIES + 5)),
        ("fan-out-begins-behind-0", with(FANOUT, &[1])),
        ("fan-out-descends", with(FANOUT + 8, &[1])),
        ("fan-out-ends-early", with(FANOUT + 16, &[17])),
        ("fan-out-ends-outside", with(FANOUT + 16, &[0xff; 4])),
        ("entries-unsorted", with(entry, &[0; 32])),
        ("entry-twice", with(entry, &good[ENTRIES..entry])),
        ("entry-of-no-frame", with(entry + 32, &[2])),
        ("entry-of-most-frames", with(entry + 32, &[0xff; 4])),
        ("entry-outside-its-frame", with(entry + 36, &[11])),
        ("entry-overflows-its-frame", with(entry + 36, &[0xff; 4])),
        ("entry-empty", with(entry + 40, &[0; 4])),
        ("entry-too-large", with(entry + 40, &[1, 0, 64, 0])),
        ("frame-of-no-pack", with(FRAMES, &[2])),
        ("frame-in-the-header", with(FRAMES + 4, &[79])),
        ("frame-in-the-trailer", with(FRAMES + 4, &[81])),
        ("frame-overflows-its-pack", with(FRAMES + 4, &[0xff; 4])),
        ("frame-expands", with(FRAMES + 8, &[0xea, 3])),
        ("frame-of-codec-only", with(FRAMES + 8, &[1, 0])),
        ("frame-of-no-bytes", with(FRAMES + 12, &[0; 4])),
        ("frame-too-large", with(FRAMES + 12, &[1, 0, 128, 0])),
        ("frame-of-a-kind-too-much", with(FRAMES + 15, &[0x80])),
        ("pack-too-short", with(PACKS + 16, &[143])),
        ("pack-too-long", with(PACKS + 16, &[1, 0, 0, 64])),
        ("pack-of-unknown-kind", with(PACKS + 20, &[3])),
        ("pack-of-the-kind-of-no-frame", with(PACKS + 20, &[1])),
        ("pack-padding", with(PACKS + 31, &[1])),
        ("pack-twice", with(PACKS + 32, &[1; 16])),
    ]
}

fn list(level: u8, children: &[(u8, u64)]) -> Vec<u8> {
    let mut bytes = [b"clst\x01".as_slice(), &[level]].concat();
    bytes.extend_from_slice(&u16::try_from(children.len()).unwrap().to_le_bytes());
    for (seed, size) in children {
        bytes.extend_from_slice(&[*seed; 32]);
        bytes.extend_from_slice(&size.to_le_bytes());
    }
    bytes
}

fn list_defects() -> Named {
    let good = list(0, &[(5, 3), (6, 4)]);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    vec![
        ("empty", Vec::new()),
        ("header-cut-short", good[..7].to_vec()),
        ("magic", with(0, b'X')),
        ("later-version", with(4, 2)),
        ("level-8", with(5, 8)),
        ("no-children", list(0, &[])),
        ("too-many-children", list(0, &[(5, 3); 1025])),
        ("child-missing", with(6, 3)),
        ("child-cut-short", good[..good.len() - 1].to_vec()),
        ("byte-behind", [&good[..], b"!"].concat()),
        ("child-of-no-bytes", list(0, &[(5, 3), (6, 0)])),
        ("chunk-too-large", list(0, &[(5, (4 << 20) + 1)])),
        ("sizes-overflow", list(1, &[(5, u64::MAX), (6, 1)])),
    ]
}

fn tree(entries: &[&[u8]]) -> Vec<u8> {
    [b"tree\x01\0\0\0".as_slice(), &entries.concat()].concat()
}

fn named(kind: u8, name: &str) -> Vec<u8> {
    let len = u8::try_from(name.len()).unwrap();
    [&[kind, len], name.as_bytes()].concat()
}

fn file(name: &str, size: u64, rest: &[u8]) -> Vec<u8> {
    [&named(0, name), &size.to_le_bytes()[..], rest].concat()
}

fn link(name: &str, target: &[u8]) -> Vec<u8> {
    let len = u16::try_from(target.len()).unwrap().to_le_bytes();
    [&named(2, name), &len[..], target].concat()
}

/// A directory of `size` bytes at `depth`, with totals of zero.
fn directory(name: &str, size: u64, depth: u8) -> Vec<u8> {
    let totals = [0; 16];
    [
        &named(3, name),
        &size.to_le_bytes()[..],
        &[depth],
        &[5; 32],
        &totals,
    ]
    .concat()
}

fn tree_defects() -> Named {
    let x = |name: &str| link(name, b"x");
    let root = |depth: u8| [&[depth][..], &[5; 32]].concat();
    let good = tree(&[&file("a", 3, &root(0))]);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    vec![
        ("empty", Vec::new()),
        ("header-cut-short", good[..7].to_vec()),
        ("magic", with(0, b'X')),
        ("later-version", with(4, 2)),
        ("padding", with(7, 1)),
        ("kind-4", with(8, 4)),
        ("kind-only", good[..9].to_vec()),
        ("name-cut-short", with(9, 255)),
        ("root-cut-short", good[..good.len() - 1].to_vec()),
        ("byte-behind", [&good[..], b"\0"].concat()),
        ("name-empty", tree(&[&x("")])),
        ("name-dot", tree(&[&x(".")])),
        ("name-leads-up", tree(&[&x("..")])),
        ("name-absolute", tree(&[&x("/etc")])),
        ("name-with-slash", tree(&[&x("a/b")])),
        ("name-with-nul", tree(&[&x("a\0b")])),
        ("names-unsorted", tree(&[&x("b"), &x("a")])),
        ("name-twice", tree(&[&x("a"), &x("a")])),
        ("target-empty", tree(&[&link("a", b"")])),
        ("target-with-nul", tree(&[&link("a", b"x\0y")])),
        ("target-too-long", tree(&[&link("a", &[b'x'; 4096])])),
        ("target-cut-short", tree(&[&link("a", b"xyz")[..6]])),
        ("file-too-deep", tree(&[&file("a", 3, &root(9))])),
        (
            "file-of-one-chunk-too-large",
            tree(&[&file("a", (4 << 20) + 1, &root(0))]),
        ),
        ("file-empty-with-root", tree(&[&file("a", 0, &root(0))])),
        ("tree-of-no-bytes", tree(&[&directory("a", 0, 0)])),
        (
            "tree-smaller-than-its-header",
            tree(&[&directory("a", 7, 0)]),
        ),
        ("tree-too-deep", tree(&[&directory("a", 8, 9)])),
    ]
}

fn times(bytes: &[u8]) -> Vec<u8> {
    [b"time\x01\0\0\0".as_slice(), bytes].concat()
}

fn times_defects() -> Named {
    vec![
        ("empty", Vec::new()),
        ("header-cut-short", b"time\x01\0\0".to_vec()),
        ("magic", b"tame\x01\0\0\0\0\0".to_vec()),
        ("later-version", b"time\x02\0\0\0\0\0".to_vec()),
        ("padding", b"time\x01\0\0\x01\0\0".to_vec()),
        ("nanoseconds-missing", times(&[0])),
        ("seconds-cut-short", times(&[0x80])),
        ("zero-spelled-long", times(&[0x80, 0, 0])),
        ("nanoseconds-spelled-long", times(&[0, 0x81, 0])),
        (
            "seconds-of-65-bits",
            times(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0]),
        ),
        ("seconds-without-end", times(&[0xff; 64])),
        (
            "nanoseconds-of-a-second",
            times(&[0, 0x80, 0x94, 0xeb, 0xdc, 3]),
        ),
        (
            "nanoseconds-above-32-bits",
            times(&[0, 0x80, 0x80, 0x80, 0x80, 0x10]),
        ),
    ]
}
