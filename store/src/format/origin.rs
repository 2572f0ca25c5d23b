//! Where a version was first put, if it was copied from another store.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::format::{RefName, Who};
use crate::id::StoreId;

/// Where a version was first put. Every copy of the version keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The store that it was put into.
    pub store: StoreId,
    /// The ref there.
    pub name: RefName,
    /// Its number in that store.
    pub version: u64,
    /// When it was put there.
    pub time: Timestamp,
    /// Who put it there.
    pub who: Who,
    /// The store that this copy was made from, if it is not `store`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<StoreId>,
}

impl Origin {
    /// Returns the store that this copy was made from.
    pub fn source(&self) -> StoreId {
        self.via.unwrap_or(self.store)
    }

    /// Whether both are copies of the same version.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.store, &self.name, self.version) == (other.store, &other.name, other.version)
    }
}
