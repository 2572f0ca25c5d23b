//! Random segments, and everything that a reader does with a segment.

use super::*;

pub(super) fn base(frame: u32) -> FrameBase {
    let id = ChunkId([9; 32]);
    FrameBase { frame, id }
}

pub(super) fn segment() -> impl Strategy<Value = (Vec<u8>, Vec<SegmentEntry>)> {
    let places = btree_set(chunk_id(), 0..60);
    (places, any::<u32>()).prop_map(|(ids, seed)| {
        let entry = |(at, id): (u32, ChunkId)| SegmentEntry {
            id,
            frame: (at ^ seed) % 3,
            offset: at,
            len: 1 + (seed % 100),
        };
        let entries: Vec<SegmentEntry> = (0..).zip(ids).map(entry).collect();
        let packs = [1, 2].map(|byte| SegmentPack {
            id: PackId([byte; 16]),
            kind: PackKind::Data,
            len: 1000 + seed % 1000,
        });
        let frames = [0, 1, 1].map(|pack| SegmentFrame {
            pack,
            offset: PackHeader::LEN,
            stored_len: 2 + seed % 160,
            raw_len: 160,
            kind: FrameKind::Data,
        });
        let mut bytes = Vec::new();
        let entries_again = || entries.iter().copied();
        let made = Provenance::default();
        let bases = [0, 0, 2].map(base);
        let bases = &bases[..usize::try_from(seed % 4).unwrap()];
        let id = SegmentId([3; 16]);
        write_segment(&mut bytes, id, made, &packs, &frames, bases, entries_again).unwrap();
        (bytes, entries)
    })
}

/// Does everything that a reader does with a segment. Errors are fine; panics and positions out of range are not.
pub(super) fn look_up_all(bytes: &[u8]) {
    let Ok(layout) = SegmentLayout::parse("x", bytes) else {
        return;
    };
    drop(layout.verify(bytes));
    for position in 0..layout.chunks().min(100) {
        if let Ok(entry) = layout.entry(bytes, position) {
            let found = layout.find(bytes, &entry.id);
            assert!(found.is_none_or(|found| found < layout.chunks()));
        }
    }
    (0..layout.frames().min(100)).for_each(|at| drop(layout.frame(bytes, at)));
    (0..layout.packs().min(100)).for_each(|at| drop(layout.pack(bytes, at)));
}
