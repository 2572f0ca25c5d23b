//! Which chunks the deltas of a segment are the difference to.
//!
//! Asked only of a chunk that lies in no plain frame, so the list is made when that happens first: 8 bytes a base.

use std::sync::OnceLock;

use crate::error::Result;
use crate::format::SegmentLayout;
use crate::id::ChunkId;

/// The first 8 bytes of the bases of a segment, in order.
#[derive(Debug, Default)]
pub(super) struct Wanted(OnceLock<Vec<u64>>);

impl Wanted {
    /// Whether the deltas of the segment with these `bytes` need the chunk `id`.
    ///
    /// # Errors
    /// Corrupt, when a base is of no frame.
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
        // Two ids that begin alike do no harm: one chunk more is stored in a plain frame.
        Ok(starts.binary_search(&start(id)).is_ok())
    }
}

fn start(id: &ChunkId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = id.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
