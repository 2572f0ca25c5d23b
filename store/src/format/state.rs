//! The state of a store: the fold of its log, and the checkpoint that saves folding.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::format::{Change, Content, LogEntry, RefName, Root, SegmentInfo, Who};
use crate::id::{PackId, SegmentId};

/// Everything the log says, up to and including one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Number of the newest entry folded in; 0 before the first.
    pub number: u64,
    /// Live segments: their packs offer chunks, but for condemned packs.
    pub segments: BTreeMap<SegmentId, SegmentInfo>,
    /// Dropped segments whose objects may still exist.
    pub dropped: BTreeMap<SegmentId, Condemned>,
    /// Packs that offer nothing any more and whose objects may still exist.
    pub condemned: BTreeMap<PackId, Condemned>,
    /// Refs, those without versions included: a version number is never used again.
    pub refs: BTreeMap<RefName, RefState>,
}

/// When a pack or segment left the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condemned {
    /// The log entry that said so.
    pub entry: u64,
    /// That entry's time; for grace periods, never for safety.
    pub time: Timestamp,
}

/// One ref's versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefState {
    /// Newest version number ever given; 0 before the first.
    pub last: u64,
    /// Live versions by number.
    pub versions: BTreeMap<u64, Version>,
}

/// One version of a ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The directory or file.
    pub root: Root,
    /// The times of its entries in depth-first order, the root's first (see `times`).
    pub times: Content,
    /// When it was put.
    pub time: Timestamp,
    /// By whom.
    pub who: Who,
    /// What the person who put it said about it.
    pub message: String,
    /// Pinned versions survive retention and the removal of their namespace.
    pub pinned: bool,
    /// When retention may take it, if it was put with a time to live.
    pub expires: Option<Timestamp>,
}

impl State {
    /// Folds in the next entry.
    ///
    /// # Errors
    /// Corrupt, when the entry is not number + 1 or contradicts the state; the state is then unchanged.
    pub fn apply(&mut self, _entry: &LogEntry) -> Result<()> {
        let _ = |change: &Change| change.clone();
        todo!()
    }

    /// The checkpoint object of this state.
    pub fn encode(&self) -> Result<Vec<u8>> {
        todo!()
    }

    /// Parses a checkpoint.
    pub fn decode(_object: &str, _bytes: &[u8]) -> Result<Self> {
        todo!()
    }
}
