//! Ranks: which version of a ref is older than which. Its number says so, and where a version was dropped and came back
//! under another number, the one that it had.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{RefName, State, Version};
use crate::id::StoreId;

/// The field of a version that says what it was before it came back.
const WAS: &str = "was";

/// What a version was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Was {
    /// The store that it is said of: in others it says nothing.
    store: StoreId,
    name: RefName,
    /// The number that it had.
    pub version: u64,
    /// When that was put.
    pub time: Timestamp,
}

/// Where a version stands among those of its ref; several copies of one stand at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked {
    /// The number that it has, or had before it was dropped.
    pub rank: u64,
    /// Its number.
    pub number: u64,
    /// When it was put first.
    pub time: Timestamp,
}

impl State {
    /// What the version `number` of a ref was before, if it came back.
    pub fn was(&self, name: &RefName, version: &Version) -> Option<Was> {
        let was = version.extra.get(WAS)?.clone();
        let was: Was = serde_json::from_value(was).ok()?;
        (was.store == self.store && was.name == *name).then_some(was)
    }

    /// The place of a version.
    pub fn ranked(&self, name: &RefName, number: u64, version: &Version) -> Ranked {
        let was = self.was(name, version);
        let (rank, time) = was.map_or((number, version.time), |was| (was.version, was.time));
        Ranked { rank, number, time }
    }

    /// The places of versions, the oldest first.
    pub fn by_rank(&self, name: &RefName, versions: &BTreeMap<u64, Version>) -> Vec<Ranked> {
        let all = versions.iter();
        let mut all: Vec<Ranked> = all
            .map(|(number, version)| self.ranked(name, *number, version))
            .collect();
        all.sort();
        all
    }

    /// The version, as it comes back under another number.
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
