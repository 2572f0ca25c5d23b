//! Report: what a collection did, and why the rest stays.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use store::format::RefName;

use crate::plan::{Held, Plan};

/// The answer to "I deleted it, why is the disk still full?".
#[derive(Clone, Debug, Default, Serialize)]
pub struct CollectReport {
    /// What was to be done: the last plan, if earlier ones were void.
    pub plan: Plan,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// Bytes of objects that were deleted. What the store takes less is this without `copied_bytes`.
    pub freed_bytes: u64,
    /// Objects that were deleted.
    pub freed_objects: u64,
    /// Bytes of packs that were condemned, including copied ones.
    pub condemned_bytes: u64,
    /// Bytes that were written to new packs.
    pub copied_bytes: u64,
    /// Plans that another writer or collector made void.
    pub plans_void: u32,
    /// Log entries that were committed.
    pub entries: Vec<u64>,
    /// Whether a time limit or a request to stop ended the run early.
    pub stopped: bool,
    /// Whether the run ended because a full disk had no room for a copy.
    pub disk_full: bool,
    /// What is not freed.
    pub held: Held,
    /// Bytes that live versions hold, and why.
    pub live: Live,
    /// Among the bytes that this run and the last entries of the log dropped: those that other refs also use, counted
    /// for the first such ref.
    pub shared: BTreeMap<RefName, u64>,
    /// Size limits that are exceeded by versions that may not be dropped.
    pub over: Vec<Over>,
    /// Duration in seconds.
    pub secs: f64,
}

/// A size limit that is exceeded: newest and pinned versions, and what others need, are larger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Over {
    /// The namespace with the quota; none for the whole store.
    pub namespace: Option<String>,
    /// Stored bytes of what stays.
    pub bytes: u64,
    /// The limit.
    pub bytes_max: u64,
}

impl Over {
    pub(crate) fn of(namespace: Option<String>, bytes: u64, bytes_max: u64) -> Option<Self> {
        (bytes > bytes_max).then_some(Self {
            namespace,
            bytes,
            bytes_max,
        })
    }
}

/// What holds the live bytes. Each byte is counted once, in the first field that explains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// The newest version of each ref.
    pub newest_bytes: u64,
    /// Older versions that retention keeps.
    pub by_retention_bytes: u64,
    /// What only pinned versions need.
    pub by_pins_bytes: u64,
    /// Live chunks.
    pub chunks: u64,
    /// Refs with a live version.
    pub refs: u64,
    /// Live versions.
    pub versions: u64,
}
