//! Filler: replaces an entry that was given up, so that the entries after it can follow.
//!
//! The changes of a lost entry are unknown, but later entries presuppose some of them: used version numbers, and
//! versions or segments that they drop. Only these are made up, in the nearest lost entry before the one that needs
//! them. A made-up version is an empty file, and is dropped at once unless a later entry drops or pins it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::format::{
    Change, Content, Extra, LogEntry, ReadAs, RefName, Root, SegmentInfo, Sides, State, Who,
    log_key,
};
use crate::id::{CommitId, EntryId, SegmentId, StoreId};

/// A lost entry in the log.
#[derive(Clone, Copy, Default)]
pub(super) struct Gap {
    /// The id of the entry before the gap, if known.
    pub(super) prev: Option<EntryId>,
    /// The id by which the next entry refers to the lost one, if known.
    pub(super) named: Option<EntryId>,
}

/// The changes that later entries presuppose.
#[derive(Default)]
pub(super) struct Presupposed {
    /// The changes to make up, by the number of the lost entry that will contain them.
    changes: BTreeMap<u64, Vec<Change>>,
    /// Made-up versions that are not dropped immediately.
    versions: Vec<(RefName, u64)>,
}

impl Presupposed {
    /// Computes what `entries` presuppose beyond `state`, the state before the first lost entry, and their own changes.
    pub(super) fn by(
        state: &State,
        lost: &BTreeMap<u64, Gap>,
        entries: &[LogEntry],
    ) -> Result<Self> {
        let mut known = Known::of(state, entries);
        let mut found = Self::default();
        for entry in entries {
            let at = lost.range(..entry.number).next_back();
            let at = at.map_or(entry.number, |(number, _)| *number);
            for change in &entry.changes {
                let needed = known.needs(change, entry.number)?;
                found.versions.extend(needed.kept);
                found.changes.entry(at).or_default().extend(needed.changes);
            }
        }
        Ok(found)
    }

    /// Removes and returns the changes that the replacement of entry `number` must contain.
    pub(super) fn take(&mut self, number: u64) -> Vec<Change> {
        self.changes.remove(&number).unwrap_or_default()
    }

    /// Returns changes that drop the made-up versions still live in `state`: a readable entry pinned them, and a lost
    /// entry had set them.
    pub(super) fn left_in(self, state: &State) -> Result<Vec<Change>> {
        let mut left = Vec::new();
        for (name, version) in self.versions {
            if state.refs.version(&name, version)?.is_some() {
                left.push(Change::DropRef { name, version });
            }
        }
        Ok(left)
    }
}

/// What is known when an entry is examined.
struct Known<'a> {
    /// The state before all entries.
    state: &'a State,
    /// For refs that entries have set: the newest number and these versions.
    last: BTreeMap<&'a RefName, u64>,
    versions: BTreeSet<(&'a RefName, u64)>,
    segments: BTreeSet<SegmentId>,
    /// Versions that an entry drops or pins.
    spoken_of: BTreeSet<(&'a RefName, u64)>,
}

/// The changes to make up for one change.
#[derive(Default)]
struct Needed {
    changes: Vec<Change>,
    kept: Vec<(RefName, u64)>,
}

impl<'a> Known<'a> {
    fn of(state: &'a State, entries: &'a [LogEntry]) -> Self {
        let mut known = Self {
            state,
            last: BTreeMap::new(),
            versions: BTreeSet::new(),
            segments: state.segments.keys().copied().collect(),
            spoken_of: BTreeSet::new(),
        };
        for change in entries.iter().flat_map(|entry| &entry.changes) {
            if let Change::DropRef { name, version } | Change::Pin { name, version, .. } = change {
                known.spoken_of.insert((name, *version));
            }
        }
        known
    }

    /// Returns what must exist before `change`, and then adds the change to what is known.
    fn needs(&mut self, change: &'a Change, entry: u64) -> Result<Needed> {
        let mut needed = Needed::default();
        match change {
            Change::SetRef { name, version, .. } => {
                self.make_up(name, version.saturating_sub(1), &mut needed)?;
                self.last.insert(name, *version);
                self.versions.insert((name, *version));
            }
            Change::DropRef { name, version } | Change::Pin { name, version, .. } => {
                self.make_up(name, *version, &mut needed)?;
                let is_set = self.versions.contains(&(name, *version));
                if !is_set && self.state.refs.version(name, *version)?.is_none() {
                    return Err(Error::corrupt(format!(
                        "{}: needs {name}@{version}, which was dropped before",
                        log_key(entry)
                    ))
                    .hint("restore the log from a copy of the store"));
                }
            }
            Change::AddSegment { segment, .. } => drop(self.segments.insert(*segment)),
            Change::DropSegment { segment, .. } => {
                if !self.segments.remove(segment) {
                    needed.changes.push(Change::AddSegment {
                        segment: *segment,
                        info: SegmentInfo::default(),
                    });
                }
            }
            Change::CondemnPacks { .. }
            | Change::Forget { .. }
            | Change::SetPolicy { .. }
            | Change::SetFeature { .. } => {}
        }
        Ok(needed)
    }

    /// Makes up the versions of `name` up to `until` that no entry has set.
    fn make_up(&mut self, name: &'a RefName, until: u64, needed: &mut Needed) -> Result<()> {
        let last = match self.last.get(name) {
            Some(last) => *last,
            None => self.state.refs.last(name)?,
        };
        for version in last + 1..=until {
            needed.changes.push(empty(name, version));
            if self.spoken_of.contains(&(name, version)) {
                self.versions.insert((name, version));
                needed.kept.push((name.clone(), version));
            } else {
                let name = name.clone();
                needed.changes.push(Change::DropRef { name, version });
            }
        }
        self.last.insert(name, last.max(until));
        Ok(())
    }
}

fn empty(name: &RefName, version: u64) -> Change {
    Change::SetRef {
        name: name.clone(),
        version,
        root: Root::File {
            content: Content::empty(),
            executable: false,
        },
        sides: Sides::default(),
        message: String::new(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    }
}

/// Whether an entry replaces a lost one.
pub(super) fn is_one(entry: &LogEntry) -> bool {
    entry.commit == commit_id(entry.number)
}

fn commit_id(number: u64) -> CommitId {
    let hash = blake3::hash(format!("entry {number} was given up").as_bytes());
    let mut commit = [0; 16];
    commit.copy_from_slice(hash.as_bytes().split_at(16).0);
    CommitId(commit)
}

/// Returns the replacement of a lost entry. It is the same for every program that makes it.
pub(super) fn filler(store: StoreId, number: u64, gap: Gap, changes: Vec<Change>) -> LogEntry {
    LogEntry {
        number,
        store,
        prev: gap.prev,
        stands_for: gap.named,
        commit: commit_id(number),
        time: Timestamp::UNIX_EPOCH,
        who: Who {
            program: "store repair".to_owned(),
            ..Who::default()
        },
        lost: None,
        until: None,
        changes,
        read_as: ReadAs::default(),
    }
}
