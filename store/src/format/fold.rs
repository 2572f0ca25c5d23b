//! Fold: applies an entry to a state completely, or leaves the state unchanged.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::cursor::corrupt;
use super::refs::RefUndo;
use crate::error::{Error, Result};
use crate::format::{
    Added, Change, Condemned, Features, LogEntry, Newest, Policy, RefName, SegmentInfo, State,
    Version, log_key,
};
use crate::id::{PackId, PassId, SegmentId};

impl State {
    /// Folds in the next entry.
    ///
    /// # Errors
    /// Corrupt, when the entry is not number + 1 or contradicts the state; the state is then unchanged.
    pub fn apply(&mut self, entry: &LogEntry) -> Result<()> {
        let id = entry.id()?;
        self.fold(entry)?;
        self.store = entry.store;
        self.number = entry.number;
        self.entry = Some(id);
        self.until = self.until.max(entry.until.unwrap_or(0));
        self.newest = Newest::default();
        self.trail.add(entry, id);
        Ok(())
    }

    /// Whether [`Self::apply`] would accept `entry`. The state is unchanged afterwards, but it is borrowed mutably,
    /// because applying and undoing is cheaper than copying.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn accepts(&mut self, entry: &LogEntry) -> Result<()> {
        self.fold(entry).map(Fold::roll_back)
    }

    /// Applies the changes of `entry`, but does not advance the number of the state.
    fn fold<'a>(&'a mut self, entry: &'a LogEntry) -> Result<Fold<'a>> {
        let object = log_key(entry.number);
        let mut learned = Features::default();
        for change in &entry.changes {
            if let Change::SetFeature { kind, name } = change {
                learned.learn(*kind, name);
            }
        }
        learned.check_readable(&object)?;
        if let Some(detail) = self.is_not_before(entry) {
            return Err(corrupt(&object, detail));
        }
        let mut fold = Fold {
            state: self,
            entry,
            undo: Vec::new(),
        };
        for (at, change) in entry.changes.iter().enumerate() {
            if let Err(refused) = fold.change(change) {
                fold.roll_back();
                return Err(match refused {
                    Refused::Contradiction(detail) => {
                        corrupt(&object, format_args!("change {at}: {detail}"))
                    }
                    Refused::Unknown(error) => error,
                });
            }
        }
        Ok(fold)
    }

    /// Returns why `entry` cannot come next, if it cannot: its number, its store or its history is another one.
    fn is_not_before(&self, entry: &LogEntry) -> Option<String> {
        let (last, found) = (self.number, entry.number);
        if last.checked_add(1) != Some(found) {
            return Some(format!(
                "number: expected the one after {last}, found {found}"
            ));
        }
        if self.store.is_known() && self.store != entry.store {
            let (own, other) = (self.store, entry.store);
            return Some(format!("is of store {other}, this is store {own}"));
        }
        match (self.entry, entry.prev) {
            // The previous entry was lost, and its id is not known.
            (Some(_), None) if entry.stands_for.is_some() => None,
            (Some(own), prev) if prev != Some(own) => {
                let prev = prev.map_or_else(|| "none".to_owned(), |prev| prev.to_string());
                Some(format!(
                    "follows another entry {last} than the one that is there: prev is {prev}, its id is {own}"
                ))
            }
            _ => None,
        }
    }
}

/// A partly applied entry, with everything needed to undo it. Copying the state for each entry would be too slow for a
/// store with a million versions.
struct Fold<'a> {
    state: &'a mut State,
    entry: &'a LogEntry,
    undo: Vec<Undo>,
}

/// The previous value at one place of the state.
enum Undo {
    Segment(SegmentId, Option<SegmentInfo>),
    Dropped(SegmentId, Option<Condemned>),
    Condemned(PackId, Option<Condemned>),
    Ref(Box<RefUndo>),
    Policy(Policy),
    Features(Features),
}

/// Why a change cannot be applied.
enum Refused {
    /// The change contradicts the state.
    Contradiction(String),
    /// The state at that place cannot be read.
    Unknown(Error),
}

impl From<String> for Refused {
    fn from(detail: String) -> Self {
        Self::Contradiction(detail)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Unknown(error)
    }
}

type Folded = std::result::Result<(), Refused>;

impl Fold<'_> {
    fn change(&mut self, change: &Change) -> Folded {
        match change {
            Change::AddSegment { segment, info } => self.add_segment(*segment, *info),
            Change::DropSegment { segment, into } => self.drop_segment(*segment, *into),
            Change::CondemnPacks { packs } => {
                packs.iter().for_each(|pack| self.condemn(*pack));
                Ok(())
            }
            Change::Forget { packs, segments } => {
                packs.iter().for_each(|pack| self.forget_pack(*pack));
                segments.iter().for_each(|id| self.forget_segment(*id));
                Ok(())
            }
            Change::SetRef {
                name,
                version,
                ends,
                ..
            } => {
                self.set_ref(name, *version, change)?;
                self.end(ends);
                Ok(())
            }
            Change::DropRef { name, version } => self.drop_ref(name, *version),
            Change::Pin {
                name,
                version,
                pinned,
            } => self.pin(name, *version, *pinned),
            Change::SetPolicy { policy } => {
                let before = std::mem::replace(&mut self.state.policy, policy.clone());
                self.undo.push(Undo::Policy(before));
                Ok(())
            }
            Change::SetFeature { kind, name } => {
                let before = self.state.features.clone();
                self.state.features.learn(*kind, name);
                self.undo.push(Undo::Features(before));
                Ok(())
            }
        }
    }

    fn add_segment(&mut self, id: SegmentId, info: SegmentInfo) -> Folded {
        if self.state.segments.contains_key(&id) || self.state.dropped.contains_key(&id) {
            return Err(format!("segment {id}: expected a new one, found it before").into());
        }
        let added = Some(Added {
            entry: self.entry.number,
            time: self.entry.time,
        });
        let info = SegmentInfo { added, ..info };
        self.state.segments.insert(id, info);
        self.undo.push(Undo::Segment(id, None));
        Ok(())
    }

    /// Ends passes: their segments become ordinary segments.
    fn end(&mut self, passes: &[PassId]) {
        if passes.is_empty() {
            return;
        }
        for (id, info) in &mut self.state.segments {
            if info.pass.is_some_and(|pass| passes.contains(&pass)) {
                self.undo.push(Undo::Segment(*id, Some(*info)));
                info.pass = None;
            }
        }
    }

    fn drop_segment(&mut self, id: SegmentId, into: Option<SegmentId>) -> Folded {
        // It must be added by the same entry, so that this entry alone tells what was folded into what.
        let is_added = |into| {
            let info = self.state.segments.get(&into).and_then(|info| info.added);
            into != id && info.is_some_and(|added| added.entry == self.entry.number)
        };
        if let Some(into) = into.filter(|into| !is_added(*into)) {
            let expected = "expected to be folded into one that this entry adds";
            return Err(format!("segment {id}: {expected}, found {into}").into());
        }
        let Some(info) = self.state.segments.remove(&id) else {
            return Err(format!("segment {id}: expected a live one, found none").into());
        };
        let now = self.now();
        self.undo.push(Undo::Segment(id, Some(info)));
        let before = self.state.dropped.insert(id, now);
        self.undo.push(Undo::Dropped(id, before));
        Ok(())
    }

    /// Only the first entry that condemns a pack counts, so that the grace does not start again.
    fn condemn(&mut self, id: PackId) {
        let now = self.now();
        if let Entry::Vacant(place) = self.state.condemned.entry(id) {
            place.insert(now);
            self.undo.push(Undo::Condemned(id, None));
        }
    }

    fn forget_pack(&mut self, id: PackId) {
        if let Some(before) = self.state.condemned.remove(&id) {
            self.undo.push(Undo::Condemned(id, Some(before)));
        }
    }

    fn forget_segment(&mut self, id: SegmentId) {
        if let Some(before) = self.state.dropped.remove(&id) {
            self.undo.push(Undo::Dropped(id, Some(before)));
        }
    }

    fn set_ref(&mut self, name: &RefName, number: u64, change: &Change) -> Folded {
        let Some(version) = self.version(change) else {
            return Ok(());
        };
        match self.state.refs.set(name, number, version)? {
            Ok(undo) => {
                self.undo.push(Undo::Ref(Box::new(undo)));
                Ok(())
            }
            Err(last) => {
                Err(format!("{name}: expected the version after {last}, found {number}").into())
            }
        }
    }

    fn drop_ref(&mut self, name: &RefName, number: u64) -> Folded {
        let undo = self.state.refs.take(name, number)?;
        self.keep(undo, name, number)
    }

    fn pin(&mut self, name: &RefName, number: u64, pinned: bool) -> Folded {
        let undo = self.state.refs.pin(name, number, pinned)?;
        self.keep(undo, name, number)
    }

    fn keep(&mut self, undo: Option<RefUndo>, name: &RefName, number: u64) -> Folded {
        let undo = undo.ok_or_else(|| no_version(name, number))?;
        self.undo.push(Undo::Ref(Box::new(undo)));
        Ok(())
    }

    /// Returns the version that a `SetRef` creates.
    fn version(&self, change: &Change) -> Option<Version> {
        let Change::SetRef {
            root,
            sides,
            message,
            expires,
            origin,
            private,
            extra,
            ..
        } = change
        else {
            return None;
        };
        Some(Version {
            root: *root,
            sides: sides.clone(),
            time: self.entry.time,
            who: self.entry.who.clone(),
            message: message.clone(),
            pinned: false,
            expires: *expires,
            origin: origin.clone(),
            private: *private,
            extra: extra.clone(),
        })
    }

    fn now(&self) -> Condemned {
        Condemned {
            entry: self.entry.number,
            time: self.entry.time,
        }
    }

    /// Undoes all changes, the last one first.
    fn roll_back(mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Segment(id, before) => put_back(&mut self.state.segments, id, before),
                Undo::Dropped(id, before) => put_back(&mut self.state.dropped, id, before),
                Undo::Condemned(id, before) => put_back(&mut self.state.condemned, id, before),
                Undo::Ref(undo) => self.state.refs.undo(*undo),
                Undo::Policy(before) => self.state.policy = before,
                Undo::Features(before) => self.state.features = before,
            }
        }
    }
}

fn put_back<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, before: Option<V>) {
    match before {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

fn no_version(name: &RefName, number: u64) -> String {
    format!("{name}@{number}: expected a live version, found none")
}
