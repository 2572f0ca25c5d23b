//! Compares the kept attributes of two versions, or of a version and a directory, in step with a diff.
//!
//! Compares only attributes that both versions have, and reads nothing if both refer to the same lists. Holds one chunk
//! of each list at a time.

use std::collections::VecDeque;

use super::disk;
use super::side::{Step, Thing};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Keep, Kept, Xattrs};
use crate::read::{Found, KeptReader, Reader};
use crate::store::Store;

/// The most differing entries that are found ahead of the diff.
const DIFFERING_MAX: usize = 1000;

/// A kept attribute of an entry that differs between both sides.
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
    /// Names of the extended attributes that the other side lacks or has with another value.
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
    /// None, if the second side is a directory of this host.
    after: Option<KeptReader<'k>>,
}

/// The second side's entry at a path.
pub(super) enum Second<'t> {
    Nothing,
    /// An entry of a version.
    Stored,
    OnDisk(&'t Thing),
}

impl<'t> Second<'t> {
    pub(super) fn of(step: Option<&'t Step>) -> Self {
        match step.map(|step| &step.thing) {
            None => Self::Nothing,
            Some(Thing::Stored(_)) => Self::Stored,
            Some(thing) => Self::OnDisk(thing),
        }
    }
}

/// The entries below a common directory whose kept attributes differ.
#[derive(Default)]
pub(super) struct Differing {
    found: VecDeque<(u64, Vec<KeptChange>)>,
    /// How many entries were examined.
    seen: u64,
}

impl<'k> KeptPairs<'k> {
    /// Compares no attributes.
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

    /// The lists of a version, to be compared with a directory.
    pub(super) fn with_directory(reader: &'k Reader<'k>, before: &Found) -> Result<Self> {
        let mut all = Self::none(reader);
        for keep in Keep::ALL {
            match Pair::from(reader, keep, before) {
                Ok(list) => all.pairs.extend(list.map(|before| Pair {
                    keep,
                    before,
                    after: None,
                })),
                Err(error) => all.go_without(keep, error)?,
            }
        }
        Ok(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Reads the attributes of the next entry on the sides that have it; returns the differences.
    pub(super) fn next(&mut self, has_before: bool, after: &Second<'_>) -> Result<Vec<KeptChange>> {
        let (mut changes, mut lost) = (Vec::new(), Vec::new());
        self.pairs
            .retain_mut(|pair| match pair.next(has_before, after) {
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

    /// Stops comparing one kind of attribute: a damaged list is no reason not to compare the trees.
    fn go_without(&self, keep: Keep, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::Corrupt {
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
        let from = |found| Self::from(reader, keep, found);
        let both = from(before)?.zip(from(after)?);
        Ok(both.map(|(before, after)| Self {
            keep,
            before,
            after: Some(after),
        }))
    }

    /// Opens the list of a version at the entry that was found.
    fn from(reader: &'k Reader<'k>, keep: Keep, found: &Found) -> Result<Option<KeptReader<'k>>> {
        let mut list = KeptReader::of(reader, keep, &found.version.sides)?;
        if let Some(list) = &mut list {
            list.skip(found.entries_before)?;
        }
        Ok(list)
    }

    fn next(&mut self, has_before: bool, after: &Second<'_>) -> Result<Option<KeptChange>> {
        let before = has_before.then(|| self.before.next()).transpose()?;
        let after = match (after, &mut self.after) {
            (Second::Stored, Some(list)) => Some(list.next()?),
            (Second::OnDisk(thing), None) if before.is_some() => disk::kept(thing, self.keep)?,
            _ => None,
        };
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

/// Returns the names in `these` that `those` lacks or has with another value.
fn others(these: &Xattrs, those: &Xattrs) -> Vec<Vec<u8>> {
    let others = these
        .iter()
        .filter(|(name, value)| those.get(*name) != Some(*value));
    others.map(|(name, _)| name.clone()).collect()
}

impl Differing {
    /// Examines entries, of `entries` in all, until enough differences are known. Returns whether there may be any from
    /// the entry `at` on.
    pub(super) fn look(&mut self, at: u64, entries: u64, kept: &mut KeptPairs<'_>) -> Result<bool> {
        while at >= self.seen && self.seen < entries {
            while self.found.len() < DIFFERING_MAX && self.seen < entries {
                let changes = kept.next(true, &Second::Stored)?;
                if !changes.is_empty() {
                    self.found.push_back((self.seen, changes));
                }
                self.seen += 1;
            }
            kept.store.host().check_stop()?;
        }
        Ok(!self.found.is_empty() || self.seen < entries)
    }

    /// Returns the differences of the entry `at`.
    pub(super) fn take(&mut self, at: u64) -> Option<Vec<KeptChange>> {
        let is_it = self.found.front().is_some_and(|(first, _)| *first == at);
        let found = is_it.then(|| self.found.pop_front()).flatten();
        found.map(|(_, changes)| changes)
    }

    /// Whether no difference is left before the entry `end`.
    pub(super) fn is_done_before(&self, end: u64) -> bool {
        end <= self.seen && self.found.front().is_none_or(|(first, _)| *first >= end)
    }
}
