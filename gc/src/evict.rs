//! Evict: the versions that limits of size give up, in the order of their last use.
//!
//! A put is a use, and so is each day on which a version was got or materialized. Pinned versions count and stay.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::civil::Date;
use store::format::RefName;
use store::read::Reader;
use store::uses::{self, Uses};
use store::{Result, Store, VersionId, View};

use crate::collect::{Named, names, versions};
use crate::mark::Marker;
use crate::policy::{Drop, Policy, Why};

/// What limits of size go by.
pub(crate) struct Size<'l> {
    pub(crate) store: &'l Store,
    pub(crate) reader: &'l Reader<'l>,
    pub(crate) view: &'l View,
    pub(crate) uses: &'l Uses,
    pub(crate) now: Timestamp,
}

impl Size<'_> {
    /// Adds to `drops` what limits of size want: first what was not used for longest, pinned versions never.
    pub(crate) fn evict(&self, policy: &Policy, drops: &mut BTreeSet<Drop>) -> Result<()> {
        let mut namespaces: BTreeMap<String, u64> = BTreeMap::new();
        for name in self.view.state.refs.keys() {
            if let Some(quota) = policy.quota(name) {
                namespaces.insert(name.namespace().as_str().to_owned(), quota);
            }
        }
        for (namespace, quota) in namespaces {
            let inside = |name: &RefName| name.namespace().as_str() == namespace;
            self.evict_beyond(quota, Why::Quota, &inside, drops)?;
        }
        match policy.store_bytes_max {
            Some(most) => self.evict_beyond(most, Why::MaxSize, &|_| true, drops),
            None => Ok(()),
        }
    }

    fn evict_beyond(
        &self,
        most: u64,
        why: Why,
        inside: &dyn Fn(&RefName) -> bool,
        drops: &mut BTreeSet<Drop>,
    ) -> Result<()> {
        let gone = names(drops);
        let mut kept: Vec<(Named<'_>, LastUse)> = versions(&self.view.state)
            .filter(|(name, number, _)| inside(name) && !gone.contains(&(*name, *number)))
            .map(|named| (named, self.last_use(&named)))
            .collect();
        drop(gone);
        // Pinned ones first, then those of late: what no longer fits behind them was not used for longest.
        kept.sort_by_key(|((name, number, version), last_use)| {
            (
                !version.pinned,
                Reverse(*last_use),
                Reverse(version.time),
                (*name).clone(),
                *number,
            )
        });
        let marker = Marker::new(self.store, self.view);
        let mut is_full = false;
        let mut over = Vec::new();
        for ((name, number, version), last_use) in kept {
            if !is_full {
                marker.version(self.reader, &format!("{name}@{number}"), version)?;
                is_full = marker.stored_bytes() > most;
            }
            if is_full && !version.pinned {
                over.push(Drop {
                    name: name.clone(),
                    version: number,
                    why,
                    last_use: Some(last_use.day),
                });
            }
        }
        drops.extend(over);
        Ok(())
    }

    /// The put is a use, too.
    fn last_use(&self, (name, number, version): &Named<'_>) -> LastUse {
        let put = LastUse {
            day: uses::day(version.time),
            is_read: false,
        };
        let read = self
            .uses
            .last(VersionId::of(name, *number), self.now)
            .map(|day| LastUse { day, is_read: true });
        read.map_or(put, |read| read.max(put))
    }
}

/// When a version was of use; of two on one day the one that was read is the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LastUse {
    day: Date,
    is_read: bool,
}
