//! Log entries: the numbered record of every change of state.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::format::{Content, RefName, Root};
use crate::id::{CommitId, PackId, SegmentId};

/// One log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its number, which is also its key; the first is 1.
    pub number: u64,
    /// Unique, so that a writer whose answer was lost recognises its own entry.
    pub commit: CommitId,
    /// When, by the writer's clock; for people and grace periods, never for safety.
    pub time: Timestamp,
    /// Who.
    pub who: Who,
    /// What changes, all or nothing, in this order.
    pub changes: Vec<Change>,
}

/// Who wrote an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Host name.
    pub host: String,
    /// User name or number.
    pub user: String,
    /// Program and version.
    pub program: String,
}

/// Totals of a segment, so that nobody opens it only to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Chunks it locates.
    pub chunks: u64,
    /// Packs it names.
    pub packs: u32,
    /// Bytes of these packs as stored.
    pub pack_bytes: u64,
    /// Bytes of these chunks before encoding.
    pub raw_bytes: u64,
    /// Bytes of the segment object itself.
    pub bytes: u64,
}

/// One change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Change {
    /// A segment becomes live.
    AddSegment {
        /// Its name.
        segment: SegmentId,
        /// Its totals.
        #[serde(flatten)]
        info: SegmentInfo,
    },
    /// A segment is live no more.
    DropSegment {
        /// Its name.
        segment: SegmentId,
    },
    /// Packs offer nothing any more; their objects may be deleted after a grace.
    CondemnPacks {
        /// Their names.
        packs: Vec<PackId>,
    },
    /// Objects of condemned packs and dropped segments are gone, and no live segment names these packs.
    Forget {
        /// Packs.
        packs: Vec<PackId>,
        /// Segments.
        segments: Vec<SegmentId>,
    },
    /// A ref gets a new version; its number is the one after the last.
    SetRef {
        /// The ref.
        name: RefName,
        /// The number it gets.
        version: u64,
        /// The directory or file.
        root: Root,
        /// The times of its entries.
        times: Content,
        /// What the person said.
        message: String,
        /// When retention may take it.
        expires: Option<Timestamp>,
    },
    /// A version of a ref is dropped.
    DropRef {
        /// The ref.
        name: RefName,
        /// The version.
        version: u64,
    },
    /// A version is pinned, or is pinned no more.
    Pin {
        /// The ref.
        name: RefName,
        /// The version.
        version: u64,
        /// Pinned from now on?
        pinned: bool,
    },
}

impl LogEntry {
    /// The object's bytes: sealed text.
    pub fn encode(&self) -> Result<Vec<u8>> {
        todo!()
    }

    /// Parses entry `number`; an unknown `op` is unsupported, by name.
    pub fn decode(_number: u64, _bytes: &[u8]) -> Result<Self> {
        todo!()
    }
}
