//! Versions of refs, as a state has them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::format::{Content, Extra, Id, Origin, Root, Sides, Who};

/// One ref's versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefState {
    /// The highest version number ever given; 0 before the first.
    pub last: u64,
    /// Live versions by number.
    pub versions: BTreeMap<u64, Version>,
    /// Fields that this program does not know.
    pub extra: Extra,
}

/// One version of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The directory or file.
    pub root: Root,
    /// Its side objects: times and others.
    pub sides: Sides,
    /// When it was put.
    pub time: Timestamp,
    /// By whom.
    pub who: Who,
    /// The message of the user who put it.
    pub message: String,
    /// Pinned versions survive retention and the removal of their namespace.
    pub pinned: bool,
    /// When retention may take it, if it was put with a time to live.
    pub expires: Option<Timestamp>,
    /// Where it was first put, if it was copied from another store.
    pub origin: Option<Box<Origin>>,
    /// Whether only their owner could read some of its files, so that copies are made for one user only.
    pub private: bool,
    /// Fields that this program does not know.
    pub extra: Extra,
}

impl Version {
    /// Returns the id of its content, which is the same in every store.
    pub fn id(&self) -> Id {
        Id::of(&self.root)
    }

    /// Returns the times of its entries in depth-first order, beginning with the root (see `times`).
    pub fn times(&self) -> Content {
        self.sides.times()
    }

    /// Returns what no valid log can have produced, if anything.
    pub(super) fn defect(&self) -> Option<String> {
        let content = self.root.content();
        content.defect().or_else(|| self.sides.defect())
    }
}
