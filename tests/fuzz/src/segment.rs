//! Segments: lookups in garbage find nothing or a position in range; a segment that verifies finds all its chunks.

use store::ChunkId;
use store::format::SegmentLayout;

use super::seal;

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut accepted = false;
    for bytes in [data, &seal::segment(data)] {
        if let Ok(layout) = SegmentLayout::parse("x", bytes) {
            accepted |= look_up(&layout, bytes);
        }
    }
    accepted
}

/// Looks up all positions. Returns whether the segment verifies.
fn look_up(layout: &SegmentLayout, bytes: &[u8]) -> bool {
    let verified = layout.verify(bytes).is_ok();
    for position in 0..layout.chunks() {
        let entry = layout.entry(bytes, position);
        assert!(!verified || entry.is_ok());
        if let Ok(entry) = entry {
            let found = layout.find(bytes, &entry.id);
            assert!(found.is_none_or(|found| found < layout.chunks()));
            assert!(!verified || found == Some(position));
        }
    }
    for id in [ChunkId([0; 32]), ChunkId([0xff; 32]), ChunkId::of(bytes)] {
        let found = layout.find(bytes, &id);
        assert!(found.is_none_or(|found| found < layout.chunks()));
    }
    (0..layout.frames()).for_each(|at| assert!(!verified || layout.frame(bytes, at).is_ok()));
    for frame in 0..layout.frames() {
        let bases = layout.bases_of(bytes, frame);
        assert!(!verified || bases.is_ok());
        assert!(bases.is_ok_and(|bases| bases.len() <= layout.bases() as usize) || !verified);
    }
    (0..layout.bases()).for_each(|at| assert!(!verified || layout.base(bytes, at).is_ok()));
    (0..layout.packs()).for_each(|at| assert!(!verified || layout.pack(bytes, at).is_ok()));
    verified
}
