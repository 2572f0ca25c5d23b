//! Filler: what replaces an entry that was given up, so that the entries after it can follow.
//!
//! What a lost entry changed is not known. The entries behind it presuppose some of it: that numbers of versions are
//! used up, that a version or a segment is there which they drop. Only that much is invented, in the lost entry right
//! before the one that needs it. An invented version is an empty file, and is dropped only by those who say so.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::format::{
    Change, Content, Extra, LogEntry, ReadAs, RefName, Root, SegmentInfo, Sides, State, Who,
    log_key,
};
use crate::id::{CommitId, EntryId, SegmentId, StoreId};

/// A place in the log whose entry is lost.
#[derive(Clone, Copy, Default)]
pub(super) struct Gap {
    /// The id of the entry before it, if that is known.
    pub(super) prev: Option<EntryId>,
    /// By what the entry after it names it, if that is known.
    pub(super) named: Option<EntryId>,
}

/// What entries behind lost ones presuppose.
#[derive(Default)]
pub(super) struct Presupposed {
    /// By the number of the lost entry that is to make it up.
    changes: BTreeMap<u64, Vec<Change>>,
    /// Versions that are made up and not dropped at once.
    versions: Vec<(RefName, u64)>,
}

impl Presupposed {
    /// What `entries` presuppose that neither `state`, which is the one before the first lost entry, nor they
    /// themselves bring along.
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

    /// What the entry in the place of `number` has to change.
    pub(super) fn take(&mut self, number: u64) -> Vec<Change> {
        self.changes.remove(&number).unwrap_or_default()
    }

    /// Drops what is made up and still live in `state`: a version that was pinned by an entry that is there, and set
    /// by one that is lost.
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

/// What is there when an entry is looked at.
struct Known<'a> {
    /// What was there before all of them.
    state: &'a State,
    /// Of refs that entries have set, the newest number, and these versions.
    last: BTreeMap<&'a RefName, u64>,
    versions: BTreeSet<(&'a RefName, u64)>,
    segments: BTreeSet<SegmentId>,
    /// Versions that some entry drops or pins.
    spoken_of: BTreeSet<(&'a RefName, u64)>,
}

/// What must be made up for one change.
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

    /// What `change` needs beforehand; takes it in.
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

    /// Makes up the versions of `name` up to `until` that nobody has set.
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

/// Whether it is an entry in the place of one that was lost.
pub(super) fn is_one(entry: &LogEntry) -> bool {
    entry.commit == commit_id(entry.number)
}

fn commit_id(number: u64) -> CommitId {
    let hash = blake3::hash(format!("entry {number} was given up").as_bytes());
    let mut commit = [0; 16];
    commit.copy_from_slice(hash.as_bytes().split_at(16).0);
    CommitId(commit)
}

/// An entry in the place of one that was lost: the same, whoever makes it.
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
