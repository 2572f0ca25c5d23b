//! What two versions kept of their entries, side by side, as a diff goes through both.
//!
//! Only what both have is compared, and nothing is read where both say that it is the same. Holds a chunk of each list at a time.

use std::collections::VecDeque;

use crate::error::{Error, Kind, Result};
use crate::format::{Keep, Kept, Xattrs};
use crate::read::{Found, KeptReader, Reader};
use crate::store::Store;

/// So many entries that are not the same are known at most before they are told.
const DIFFERING_MAX: usize = 1000;

/// What was kept of an entry on both sides, and is not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptChange {
    /// Permissions.
    Mode {
        /// On the first side.
        before: u32,
        /// On the second side.
        after: u32,
    },
    /// User and group.
    Owner {
        /// On the first side.
        before: (u32, u32),
        /// On the second side.
        after: (u32, u32),
    },
    /// Names of the extended attributes that the other side does not have so.
    Xattrs {
        /// Of the first side.
        before: Vec<Vec<u8>>,
        /// Of the second side.
        after: Vec<Vec<u8>>,
    },
}

/// The lists that both sides have.
pub(super) struct KeptPairs<'k> {
    store: &'k Store,
    pairs: Vec<Pair<'k>>,
}

struct Pair<'k> {
    keep: Keep,
    before: KeptReader<'k>,
    after: KeptReader<'k>,
}

/// The entries below a directory that both have, of which what was kept is not the same.
#[derive(Default)]
pub(super) struct Differing {
    found: VecDeque<(u64, Vec<KeptChange>)>,
    /// So many entries were looked at.
    seen: u64,
}

impl<'k> KeptPairs<'k> {
    /// None.
    pub(super) fn none(reader: &'k Reader<'_>) -> Self {
        Self {
            store: reader.store(),
            pairs: Vec::new(),
        }
    }

    pub(super) fn new(reader: &'k Reader<'k>, before: &Found, after: &Found) -> Result<Self> {
        let mut all = Self::none(reader);
        let is_same = before.node == after.node && before.entries_before == after.entries_before;
        for keep in Keep::ALL {
            let [one, other] = [before, after].map(|found| found.version.sides.kept(keep));
            if one.is_none() || other.is_none() || (is_same && one == other) {
                continue;
            }
            match Pair::of(reader, keep, before, after) {
                Ok(pair) => all.pairs.extend(pair),
                Err(error) => all.go_without(keep, error)?,
            }
        }
        Ok(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Takes what was kept of the next entry of those sides that have it; what is not the same on both.
    pub(super) fn next(&mut self, has_before: bool, has_after: bool) -> Result<Vec<KeptChange>> {
        let (mut changes, mut lost) = (Vec::new(), Vec::new());
        self.pairs
            .retain_mut(|pair| match pair.next(has_before, has_after) {
                Ok(change) => {
                    changes.extend(change);
                    true
                }
                Err(error) => {
                    lost.push((pair.keep, error));
                    false
                }
            });
        for (keep, error) in lost {
            self.go_without(keep, error)?;
        }
        Ok(changes)
    }

    /// What is lost of a list is no reason to tell nothing of the trees.
    fn go_without(&self, keep: Keep, error: Error) -> Result<()> {
        if error.kind() != Kind::Corrupt {
            return Err(error);
        }
        let what = format!("the {keep} of both are compared no further");
        self.store.warn_of_part(error.within(what));
        Ok(())
    }
}

impl<'k> Pair<'k> {
    fn of(
        reader: &'k Reader<'k>,
        keep: Keep,
        before: &Found,
        after: &Found,
    ) -> Result<Option<Self>> {
        let from = |found: &Found| -> Result<Option<KeptReader<'k>>> {
            let mut list = KeptReader::of(reader, keep, &found.version.sides)?;
            if let Some(list) = &mut list {
                list.skip(found.entries_before)?;
            }
            Ok(list)
        };
        let both = from(before)?.zip(from(after)?);
        Ok(both.map(|(before, after)| Self {
            keep,
            before,
            after,
        }))
    }

    fn next(&mut self, has_before: bool, has_after: bool) -> Result<Option<KeptChange>> {
        let before = has_before.then(|| self.before.next()).transpose()?;
        let after = has_after.then(|| self.after.next()).transpose()?;
        let both = before.zip(after).filter(|(before, after)| before != after);
        Ok(both.and_then(|(before, after)| KeptChange::of(before, after)))
    }
}

impl KeptChange {
    fn of(before: Kept, after: Kept) -> Option<Self> {
        match (before, after) {
            (Kept::Mode(before), Kept::Mode(after)) => Some(Self::Mode { before, after }),
            (Kept::Owner(user, group), Kept::Owner(other_user, other_group)) => Some(Self::Owner {
                before: (user, group),
                after: (other_user, other_group),
            }),
            (Kept::Xattrs(before), Kept::Xattrs(after)) => Some(Self::Xattrs {
                before: others(&before, &after),
                after: others(&after, &before),
            }),
            _ => None,
        }
    }
}

/// Names of what `these` has and `those` does not have so.
fn others(these: &Xattrs, those: &Xattrs) -> Vec<Vec<u8>> {
    let others = these
        .iter()
        .filter(|(name, value)| those.get(*name) != Some(*value));
    others.map(|(name, _)| name.clone()).collect()
}

impl Differing {
    /// Looks on, of `entries` in all, until enough is known; whether anything is left to be told from the entry `at` on.
    pub(super) fn look(&mut self, at: u64, entries: u64, kept: &mut KeptPairs<'_>) -> Result<bool> {
        while at >= self.seen && self.seen < entries {
            while self.found.len() < DIFFERING_MAX && self.seen < entries {
                let changes = kept.next(true, true)?;
                if !changes.is_empty() {
                    self.found.push_back((self.seen, changes));
                }
                self.seen += 1;
            }
            kept.store.host().check_stop()?;
        }
        Ok(!self.found.is_empty() || self.seen < entries)
    }

    /// What is not the same of the entry `at`.
    pub(super) fn take(&mut self, at: u64) -> Option<Vec<KeptChange>> {
        let is_it = self.found.front().is_some_and(|(first, _)| *first == at);
        let found = is_it.then(|| self.found.pop_front()).flatten();
        found.map(|(_, changes)| changes)
    }

    /// Whether nothing is left to be told of the entries before `end`.
    pub(super) fn is_done_before(&self, end: u64) -> bool {
        end <= self.seen && self.found.front().is_none_or(|(first, _)| *first >= end)
    }
}
