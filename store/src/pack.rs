//! Packs: all code that writes or reads frames.
//!
//! - Writing: `framer` makes frames of chunks, `writer` makes a pack of frames, `finisher` makes one pack durable while
//!   the next one is filled, `segment_builder` makes the segment over the packs that one commit adds.
//! - Reading: `reader` reads what a pack says of itself, `frames` decodes all of its frames, `coalesce` decides which
//!   frames one read covers.
//!
//! Order: packs are durable before the segment is uploaded, the segment before the log entry.

mod chunk;
mod coalesce;
mod finisher;
mod framer;
pub(crate) mod frames;
pub(crate) mod near;
pub(crate) mod reader;
mod segment_builder;
mod sink;
mod writer;

use crate::error::{Error, Result};

pub use chunk::ChunkAt;
pub use coalesce::{Coalesce, Extent, coalesce};
pub use finisher::{Finisher, finish_behind};
pub use framer::{FrameSink, Framer, KindFrame};
pub use segment_builder::SegmentBuilder;
pub use sink::PackSink;
pub use writer::{EncodedFrame, PackWriter, SealedPack, WrittenPack};

/// Bytes after which a pack is finished and the next one begins. Small in tests, so that a put has many packs.
pub const PACK_BYTES_TARGET: u32 = if cfg!(test) { 512 << 10 } else { 64 << 20 };

/// The sizes of the portions that passes write. Small in tests, so that every pass has many packs and several commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portions {
    /// Bytes after which a pack is finished and the next one begins.
    pub pack_bytes: u32,
    /// Bytes of packs after which a segment over them is committed. A pass that was killed resumes from there.
    pub commit_bytes: u64,
    /// Chunks after which a segment is committed as well, so that memory stays bounded.
    pub commit_chunks: usize,
    /// Up to this many stored bytes, data and metadata of one put share a pack.
    pub together_bytes: usize,
    /// How many segments of about one size a commit merges into one.
    pub fold: usize,
}

#[cfg(feature = "testing")]
static TRIED: std::sync::OnceLock<Portions> = std::sync::OnceLock::new();

impl Portions {
    /// Makes the whole process write in small portions, so that a few bytes fill several, as in stores of terabytes.
    #[cfg(feature = "testing")]
    pub fn small_everywhere() {
        TRIED.get_or_init(|| Self {
            pack_bytes: 3 << 20,
            commit_bytes: 5 << 20,
            commit_chunks: 1000,
            ..Self::default()
        });
    }
}

impl Default for Portions {
    fn default() -> Self {
        #[cfg(feature = "testing")]
        if let Some(tried) = TRIED.get() {
            return *tried;
        }
        Self {
            pack_bytes: PACK_BYTES_TARGET,
            commit_bytes: 4 << 30,
            commit_chunks: if cfg!(test) { 20 } else { 1 << 18 },
            together_bytes: if cfg!(test) { 0 } else { 256 << 10 },
            fold: if cfg!(test) { 3 } else { 8 },
        }
    }
}

fn length(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| too_large())
}

fn too_large() -> Error {
    Error::invalid("a pack or segment would outgrow 32-bit lengths")
}
