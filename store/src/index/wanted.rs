//! The chunks that deltas of a segment have as bases.
//!
//! Only needed for a chunk that is in no plain frame, so the list is built on first use: 8 bytes per base.

use std::sync::OnceLock;

use crate::error::Result;
use crate::format::SegmentLayout;
use crate::id::ChunkId;

/// The first 8 bytes of the bases of a segment, sorted.
#[derive(Debug, Default)]
pub(super) struct Wanted(OnceLock<Vec<u64>>);

impl Wanted {
    /// Whether deltas of the segment with these `bytes` have the chunk `id` as a base.
    ///
    /// # Errors
    /// Corrupt, when a base belongs to no frame.
    pub(super) fn has(&self, id: &ChunkId, layout: &SegmentLayout, bytes: &[u8]) -> Result<bool> {
        let starts = match self.0.get() {
            Some(starts) => starts,
            None => {
                let bases = (0..layout.bases()).map(|at| layout.base(bytes, at));
                let starts = bases.map(|base| base.map(|base| start(&base.id)));
                let mut starts = starts.collect::<Result<Vec<u64>>>()?;
                starts.sort_unstable();
                starts.dedup();
                self.0.get_or_init(|| starts)
            }
        };
        // Two ids with the same beginning do no harm: one more chunk is stored in a plain frame.
        Ok(starts.binary_search(&start(id)).is_ok())
    }
}

fn start(id: &ChunkId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = id.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
