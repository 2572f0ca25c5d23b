//! Ranks: which version of a ref is older than another. This is decided by the version's number, or, if it was dropped
//! and came back under another number, by its original number.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{RefName, State, Version};
use crate::id::StoreId;

/// The field of a version that records what it was before it came back.
const WAS: &str = "was";

/// The original number and time of a version that came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Was {
    /// The store in which this applies; other stores ignore it.
    store: StoreId,
    name: RefName,
    /// The original number.
    pub version: u64,
    /// When the original version was put.
    pub time: Timestamp,
}

/// The position of a version among those of its ref. Copies of the same version have the same rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked {
    /// Its number, or its original number if it was dropped and came back.
    pub rank: u64,
    /// Its number.
    pub number: u64,
    /// When it was first put.
    pub time: Timestamp,
}

impl State {
    /// Returns what a version was before it came back, if it came back.
    pub fn was(&self, name: &RefName, version: &Version) -> Option<Was> {
        let was = version.extra.get(WAS)?.clone();
        let was: Was = serde_json::from_value(was).ok()?;
        (was.store == self.store && was.name == *name).then_some(was)
    }

    /// Returns the rank of a version.
    pub fn ranked(&self, name: &RefName, number: u64, version: &Version) -> Ranked {
        let was = self.was(name, version);
        let (rank, time) = was.map_or((number, version.time), |was| (was.version, was.time));
        Ranked { rank, number, time }
    }

    /// Returns the ranks of versions, oldest first.
    pub fn by_rank(&self, name: &RefName, versions: &BTreeMap<u64, Version>) -> Vec<Ranked> {
        let all = versions.iter();
        let mut all: Vec<Ranked> = all
            .map(|(number, version)| self.ranked(name, *number, version))
            .collect();
        all.sort();
        all
    }

    /// Returns the version as it is stored when it comes back under another number.
    #[must_use]
    pub fn coming_back(&self, name: &RefName, number: u64, version: &Version) -> Version {
        let Ranked { rank, time, .. } = self.ranked(name, number, version);
        let was = Was {
            store: self.store,
            name: name.clone(),
            version: rank,
            time,
        };
        let mut back = version.clone();
        if let Ok(was) = serde_json::to_value(was) {
            back.extra.insert(WAS.to_owned(), was);
        }
        back
    }
}
