//! Evict: the versions that size limits drop, least recently used first.
//!
//! A put is a use, and so is each day on which a version was read by a get or a materialization. Pinned versions count
//! and stay. So does the newest version of each ref, unless the run was told otherwise. A version that would free next
//! to nothing stays as well: others need its bytes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::civil::Date;
use store::access::{self, Uses};
use store::format::RefName;
use store::read::Reader;
use store::{Result, Store, VersionId, View};

use crate::mark::Marker;
use crate::policy::{Drop, Policy, Why};
use crate::report::Over;
use crate::versions::{Named, names, versions};

/// A version is dropped for its size only if this frees at least one part in this many of its bytes. If other versions
/// use its data, the bytes of its times alone are not worth it.
const WORTH: u64 = 100;

/// What size limits depend on.
pub(crate) struct Size<'l> {
    pub(crate) store: &'l Store,
    pub(crate) reader: &'l Reader<'l>,
    pub(crate) view: &'l View,
    pub(crate) uses: &'l Uses,
    pub(crate) now: Timestamp,
}

impl Size<'_> {
    /// Adds to `drops` what size limits require: least recently used first, never pinned versions. Returns the limits
    /// that are exceeded nevertheless.
    pub(crate) fn evict(&self, policy: &Policy, drops: &mut BTreeSet<Drop>) -> Result<Vec<Over>> {
        let mut over = Vec::new();
        let mut namespaces: BTreeMap<String, u64> = BTreeMap::new();
        for found in self.view.state.refs.heads(None) {
            let (name, _) = found?;
            if let Some(quota) = policy.quota(&name) {
                let least = namespaces.entry(name.namespace().as_str().to_owned());
                let least = least.or_insert(quota);
                *least = quota.min(*least);
            }
        }
        for (namespace, quota) in namespaces {
            let inside = |name: &RefName| name.namespace().as_str() == namespace;
            let bytes = self.evict_beyond(quota, Why::Quota, policy, &inside, drops)?;
            over.extend(Over::of(Some(namespace.clone()), bytes, quota));
        }
        if let Some(most) = policy.bytes_max() {
            let bytes = self.evict_beyond(most, Why::MaxSize, policy, &|_| true, drops)?;
            over.extend(Over::of(None, bytes, most));
        }
        Ok(over)
    }

    /// Adds the versions beyond one limit to `drops`. Returns the bytes of those that stay.
    fn evict_beyond(
        &self,
        most: u64,
        why: Why,
        policy: &Policy,
        inside: &dyn Fn(&RefName) -> bool,
        drops: &mut BTreeSet<Drop>,
    ) -> Result<u64> {
        let gone = names(drops);
        let (mut kept, mut others): (Vec<Named>, Vec<Named>) = (Vec::new(), Vec::new());
        for found in versions(&self.view.state) {
            let named = found?;
            if !gone.contains(&(&named.0, named.1)) {
                let side = if inside(&named.0) {
                    &mut kept
                } else {
                    &mut others
                };
                side.push(named);
            }
        }
        drop(gone);
        let newest = kept.iter().map(|named| (named.0.clone(), named.1));
        let newest: BTreeMap<RefName, u64> = newest.collect();
        let stays = |(name, number, version): &Named| {
            let is_newest = newest.get(name) == Some(number);
            version.pinned || (is_newest && !policy.given.may_drop_newest)
        };
        // Versions that must stay come first, then recently used ones. What does not fit behind them was not used for
        // longest.
        kept.sort_by_key(|named| {
            let (name, number, version) = named;
            let last_use = Reverse(self.last_use(named));
            let put = self.view.state.ranked(name, *number, version).time;
            (!stays(named), last_use, Reverse(put), name.clone(), *number)
        });
        let (count, bytes) = self.fitting(&kept, most)?;
        let (fitting, over) = kept.split_at(count);
        if over.is_empty() {
            return Ok(bytes);
        }
        let fixed = fitting
            .iter()
            .chain(over.iter().filter(|named| stays(named)));
        let over: Vec<&Named> = over.iter().filter(|named| !stays(named)).collect();
        for named in self.freeing(fixed.chain(&others), over)? {
            drops.insert(Drop {
                name: named.0.clone(),
                version: named.1,
                why,
                last_use: Some(self.last_use(named).day),
            });
        }
        let gone = names(drops);
        let left = Marker::new(self.store, self.view);
        for named in kept
            .iter()
            .filter(|named| !gone.contains(&(&named.0, named.1)))
        {
            self.mark(&left, named)?;
        }
        Ok(left.stored_bytes())
    }

    /// How many of `versions`, from the first on, take at most `most` bytes together, and how many bytes they take.
    fn fitting(&self, versions: &[Named], most: u64) -> Result<(usize, u64)> {
        let marker = Marker::new(self.store, self.view);
        for (at, named) in versions.iter().enumerate() {
            let before = marker.stored_bytes();
            self.mark(&marker, named)?;
            if marker.stored_bytes() > most {
                return Ok((at, before));
            }
        }
        Ok((versions.len(), marker.stored_bytes()))
    }

    /// The versions of `over` whose removal frees enough bytes that none of `fixed` needs.
    fn freeing<'n>(
        &self,
        fixed: impl Iterator<Item = &'n Named>,
        over: Vec<&'n Named>,
    ) -> Result<Vec<&'n Named>> {
        if over.is_empty() {
            return Ok(over);
        }
        let needed = Marker::new(self.store, self.view);
        for named in fixed {
            self.mark(&needed, named)?;
        }
        let mut freeing = Vec::new();
        for named in over {
            let own = Marker::new(self.store, self.view);
            self.mark(&own, named)?;
            let mut freed = 0u64;
            for at in own.reached().positions().filter(|at| !needed.has(*at)) {
                let (_, location) = own.index().at(at)?;
                freed = freed.saturating_add(location.stored_share());
            }
            if freed > 0 && freed.saturating_mul(WORTH) >= own.stored_bytes() {
                freeing.push(named);
            }
        }
        Ok(freeing)
    }

    fn mark(&self, marker: &Marker<'_>, (name, number, version): &Named) -> Result<()> {
        marker.version(self.reader, &format!("{name}@{number}"), version)
    }

    /// The last use of a version; its put is a use, too. A restored version keeps the uses of its original.
    fn last_use(&self, (name, number, version): &Named) -> LastUse {
        let ranked = self.view.state.ranked(name, *number, version);
        let put = LastUse {
            day: access::day(ranked.time),
            is_read: false,
        };
        let ids = [*number, ranked.rank].map(|number| VersionId::of(name, number));
        let days = ids
            .into_iter()
            .filter_map(|id| self.uses.last(id, self.now));
        let read = days.max().map(|day| LastUse { day, is_read: true });
        read.map_or(put, |read| read.max(put))
    }
}

/// The day of a version's last use. On the same day, a read counts as later than a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LastUse {
    day: Date,
    is_read: bool,
}
