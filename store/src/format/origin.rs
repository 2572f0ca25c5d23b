//! Where a version was first put, when it was brought from another store.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::format::{RefName, Who};
use crate::id::StoreId;

/// Where a version was first put. It goes along with every copy of the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The store that it was put into.
    pub store: StoreId,
    /// The ref there.
    pub name: RefName,
    /// Its number there.
    pub version: u64,
    /// When it was put there.
    pub time: Timestamp,
    /// Who put it there.
    pub who: Who,
    /// The store that this copy was taken from, when that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<StoreId>,
}

impl Origin {
    /// The store that this copy was taken from.
    pub fn source(&self) -> StoreId {
        self.via.unwrap_or(self.store)
    }

    /// Whether both are copies of one version.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.store, &self.name, self.version) == (other.store, &other.name, other.version)
    }
}
