//! The state of a store: the fold of its log, and the checkpoint that saves folding.
//!
//! Folding the same entries always gives the same state, byte for byte. An entry is folded in
//! whole or not at all. A checkpoint is derived: losing one costs time, never data.

mod agrees;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::cursor::corrupt;
use super::sealed::{SEALED_BYTES_MAX, parse, seal_as, unseal_as};
use crate::error::{Error, Result};
use crate::format::{
    Added, Change, Content, LogEntry, Origin, Policy, RefName, Root, SegmentInfo, Who, log_key,
};
use crate::id::{PackId, PassId, SegmentId};

/// The first field of a checkpoint.
pub const STATE_MAGIC: &str = "store-state";
/// Version of checkpoints.
pub const STATE_VERSION: u32 = 1;
/// Level of zstd that checkpoints are written with; any level is read.
const CHECKPOINT_ZSTD_LEVEL: i32 = 3;
/// Bytes of text that any checkpoint may hold.
const CHECKPOINT_TEXT_BYTES: usize = 16 << 20;
/// Bytes of text more that each of its own bytes may hold.
const CHECKPOINT_RATIO_MAX: usize = 256;

/// Everything the log says, up to and including one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Number of the newest entry folded in; 0 before the first.
    pub number: u64,
    /// Live segments: their packs offer chunks, but for condemned packs.
    pub segments: BTreeMap<SegmentId, SegmentInfo>,
    /// Dropped segments whose objects may still exist.
    pub dropped: BTreeMap<SegmentId, Condemned>,
    /// Packs that offer nothing any more and whose objects may still exist.
    pub condemned: BTreeMap<PackId, Condemned>,
    /// Refs, those without versions included: a version number is never used again.
    pub refs: BTreeMap<RefName, RefState>,
    /// What the store keeps, if it says so itself.
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub policy: Policy,
    /// The entry that was folded in last, where it was not a checkpoint that said so.
    #[serde(skip)]
    pub newest: Newest,
}

/// The entry that a state ends with. No part of what the state says: two states that differ in it only are equal.
#[derive(Clone, Debug, Default)]
pub struct Newest(pub Option<Arc<LogEntry>>);

impl PartialEq for Newest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Newest {}

/// When a pack or segment left the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condemned {
    /// The log entry that said so.
    pub entry: u64,
    /// That entry's time; for grace periods, never for safety.
    pub time: Timestamp,
}

/// One ref's versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefState {
    /// Newest version number ever given; 0 before the first.
    pub last: u64,
    /// Live versions by number.
    pub versions: BTreeMap<u64, Version>,
}

/// One version of a ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The directory or file.
    pub root: Root,
    /// The times of its entries in depth-first order, the root's first (see `times`).
    pub times: Content,
    /// When it was put.
    pub time: Timestamp,
    /// By whom.
    pub who: Who,
    /// What the person who put it said about it.
    pub message: String,
    /// Pinned versions survive retention and the removal of their namespace.
    pub pinned: bool,
    /// When retention may take it, if it was put with a time to live.
    pub expires: Option<Timestamp>,
    /// Where it was first put, when it was brought from another store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
    /// Whether nobody but their owner could read some of its files, so that it comes out for one person alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
}

impl State {
    /// Folds in the next entry.
    ///
    /// # Errors
    /// Corrupt, when the entry is not number + 1 or contradicts the state; the state is then unchanged.
    pub fn apply(&mut self, entry: &LogEntry) -> Result<()> {
        self.fold(entry)?;
        self.number = entry.number;
        self.newest = Newest(Some(Arc::new(entry.clone())));
        Ok(())
    }

    /// Whether [`Self::apply`] would fold in `entry`; the state is the same afterwards. It is borrowed
    /// mutably all the same, because trying is cheaper than copying.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn accepts(&mut self, entry: &LogEntry) -> Result<()> {
        self.fold(entry).map(Fold::roll_back)
    }

    /// Folds in the changes of `entry`, but not yet its number.
    fn fold<'a>(&'a mut self, entry: &'a LogEntry) -> Result<Fold<'a>> {
        let object = log_key(entry.number);
        if self.number.checked_add(1) != Some(entry.number) {
            let (last, found) = (self.number, entry.number);
            let detail = format_args!("number: expected the one after {last}, found {found}");
            return Err(corrupt(&object, detail));
        }
        let mut fold = Fold {
            state: self,
            entry,
            undo: Vec::new(),
        };
        for (at, change) in entry.changes.iter().enumerate() {
            if let Err(detail) = fold.change(change) {
                fold.roll_back();
                return Err(corrupt(&object, format_args!("change {at}: {detail}")));
            }
        }
        Ok(fold)
    }

    /// The checkpoint object of this state.
    ///
    /// # Errors
    /// Invalid input, when it is larger than [`SEALED_BYTES_MAX`] or contradicts itself.
    pub fn encode(&self) -> Result<Vec<u8>> {
        if let Some(defect) = self.defect() {
            return Err(Error::invalid(format!("checkpoint: {defect}")));
        }
        let text = seal_as(STATE_MAGIC, Some(STATE_VERSION), self)?;
        let bytes = zstd::bulk::compress(&text, CHECKPOINT_ZSTD_LEVEL)
            .map_err(|source| Error::invalid("checkpoint: zstd refused it").because(source))?;
        match text.len() <= text_bytes_max(bytes.len()) {
            true => Ok(bytes),
            false => Err(Error::invalid(format!(
                "checkpoint: {} bytes are packed into {}, which no reader believes",
                text.len(),
                bytes.len()
            ))),
        }
    }

    /// Parses a checkpoint.
    ///
    /// # Errors
    /// Corrupt, when it is not what was written; unsupported, when a newer program wrote it.
    pub fn decode(object: &str, bytes: &[u8]) -> Result<Self> {
        let text = decompress(object, bytes, text_bytes_max(bytes.len()))?;
        let text = unseal_as(object, STATE_MAGIC, STATE_VERSION, &text)?;
        let state: Self = parse(object, text)?;
        match state.defect() {
            None => Ok(state),
            Some(defect) => Err(corrupt(object, defect)),
        }
    }

    /// What no log can have led to, if anything.
    fn defect(&self) -> Option<String> {
        let both = |id: &&SegmentId| self.segments.contains_key(id);
        if let Some(id) = self.dropped.keys().find(both) {
            return Some(format!(
                "segment {id}: expected live or dropped, found both"
            ));
        }
        let gone = self.dropped.values().chain(self.condemned.values());
        if let Some(entry) = gone.map(|gone| gone.entry).find(|at| *at > self.number) {
            let number = self.number;
            return Some(format!("state of entry {number} names later entry {entry}"));
        }
        self.refs.iter().find_map(|(name, state)| {
            let defect = state.defect()?;
            Some(format!("{name}: {defect}"))
        })
    }
}

impl RefState {
    fn defect(&self) -> Option<String> {
        let last = self.last;
        let mut numbers = self.versions.keys();
        if let Some(bad) = numbers.find(|number| !(1..=last).contains(*number)) {
            return Some(format!("expected versions from 1 to {last}, found {bad}"));
        }
        self.versions.iter().find_map(|(number, version)| {
            let content = version.root.content();
            let defect = content.defect().or_else(|| version.times.defect())?;
            Some(format!("version {number}: {defect}"))
        })
    }
}

/// Most bytes of text that so many bytes of a checkpoint are believed to hold: ids do not compress, so a state that
/// is large is large on disk as well.
fn text_bytes_max(bytes: usize) -> usize {
    let plausible = bytes.saturating_mul(CHECKPOINT_RATIO_MAX);
    plausible
        .saturating_add(CHECKPOINT_TEXT_BYTES)
        .min(SEALED_BYTES_MAX)
}

/// The bytes that `bytes` hold compressed, at most `bytes_max`.
fn decompress(object: &str, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>> {
    let fail = |source| corrupt(object, "expected one frame of zstd").because(source);
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(fail)?;
    let mut decoder = decoder.single_frame().take(limit.saturating_add(1));
    let mut text = Vec::new();
    decoder.read_to_end(&mut text).map_err(fail)?;
    if text.len() > bytes_max {
        let detail = format_args!("expected at most {bytes_max} bytes once decompressed");
        return Err(corrupt(object, detail));
    }
    match decoder.into_inner().finish() {
        [] => Ok(text),
        rest => {
            let detail = format_args!(
                "expected one frame of zstd, found {} more bytes",
                rest.len()
            );
            Err(corrupt(object, detail))
        }
    }
}

/// An entry on its way into a state, with what it takes to get it out again: copying the state
/// of a store with a million versions for each entry would be too slow.
struct Fold<'a> {
    state: &'a mut State,
    entry: &'a LogEntry,
    undo: Vec<Undo>,
}

/// What stood in one place of the state before.
enum Undo {
    Segment(SegmentId, Option<SegmentInfo>),
    Dropped(SegmentId, Option<Condemned>),
    Condemned(PackId, Option<Condemned>),
    Version(RefName, u64, Option<Box<Version>>),
    Last(RefName, Option<u64>),
    Policy(Policy),
}

type Folded = std::result::Result<(), String>;

impl Fold<'_> {
    fn change(&mut self, change: &Change) -> Folded {
        match change {
            Change::AddSegment { segment, info } => self.add_segment(*segment, *info),
            Change::DropSegment { segment } => self.drop_segment(*segment),
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
        }
    }

    fn add_segment(&mut self, id: SegmentId, info: SegmentInfo) -> Folded {
        if self.state.segments.contains_key(&id) || self.state.dropped.contains_key(&id) {
            return Err(format!("segment {id}: expected a new one, found it before"));
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

    /// What these passes added is no more than other segments from now on.
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

    fn drop_segment(&mut self, id: SegmentId) -> Folded {
        let Some(info) = self.state.segments.remove(&id) else {
            return Err(format!("segment {id}: expected a live one, found none"));
        };
        let now = self.now();
        self.undo.push(Undo::Segment(id, Some(info)));
        let before = self.state.dropped.insert(id, now);
        self.undo.push(Undo::Dropped(id, before));
        Ok(())
    }

    /// The first entry that condemned a pack counts, so that the grace does not start again.
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
        let last = self.state.refs.get(name).map(|state| state.last);
        if last.unwrap_or(0).checked_add(1) != Some(number) {
            let last = last.unwrap_or(0);
            return Err(format!(
                "{name}: expected the version after {last}, found {number}"
            ));
        }
        let state = self.state.refs.entry(name.clone()).or_default();
        state.last = number;
        let before = state.versions.insert(number, version);
        self.undo.push(Undo::Last(name.clone(), last));
        let before = before.map(Box::new);
        self.undo.push(Undo::Version(name.clone(), number, before));
        Ok(())
    }

    fn drop_ref(&mut self, name: &RefName, number: u64) -> Folded {
        let state = self.state.refs.get_mut(name);
        let Some(version) = state.and_then(|state| state.versions.remove(&number)) else {
            return Err(no_version(name, number));
        };
        let before = Some(Box::new(version));
        self.undo.push(Undo::Version(name.clone(), number, before));
        Ok(())
    }

    fn pin(&mut self, name: &RefName, number: u64, pinned: bool) -> Folded {
        let state = self.state.refs.get_mut(name);
        let Some(version) = state.and_then(|state| state.versions.get_mut(&number)) else {
            return Err(no_version(name, number));
        };
        if version.pinned != pinned {
            let before = Some(Box::new(version.clone()));
            version.pinned = pinned;
            self.undo.push(Undo::Version(name.clone(), number, before));
        }
        Ok(())
    }

    /// The version that a `SetRef` makes.
    fn version(&self, change: &Change) -> Option<Version> {
        let Change::SetRef {
            root,
            times,
            message,
            expires,
            origin,
            private,
            ..
        } = change
        else {
            return None;
        };
        Some(Version {
            root: *root,
            times: *times,
            time: self.entry.time,
            who: self.entry.who.clone(),
            message: message.clone(),
            pinned: false,
            expires: *expires,
            origin: origin.clone(),
            private: *private,
        })
    }

    fn now(&self) -> Condemned {
        Condemned {
            entry: self.entry.number,
            time: self.entry.time,
        }
    }

    /// Puts everything back, the last change first.
    fn roll_back(mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Segment(id, before) => put_back(&mut self.state.segments, id, before),
                Undo::Dropped(id, before) => put_back(&mut self.state.dropped, id, before),
                Undo::Condemned(id, before) => put_back(&mut self.state.condemned, id, before),
                Undo::Version(name, number, before) => {
                    let state = self.state.refs.entry(name).or_default();
                    put_back(&mut state.versions, number, before.map(|version| *version));
                }
                Undo::Policy(before) => self.state.policy = before,
                Undo::Last(name, None) => {
                    self.state.refs.remove(&name);
                }
                Undo::Last(name, Some(last)) => {
                    self.state.refs.entry(name).or_default().last = last;
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::id::CommitId;

    const SEGMENT: SegmentId = SegmentId([1; 16]);
    const PACK: PackId = PackId([2; 16]);

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn entry(number: u64, changes: Vec<Change>) -> LogEntry {
        LogEntry {
            number,
            commit: CommitId([9; 16]),
            time: time(i64::try_from(number).unwrap() * 100),
            who: Who::default(),
            changes,
        }
    }

    fn add() -> Change {
        Change::AddSegment {
            segment: SEGMENT,
            info: SegmentInfo::default(),
        }
    }

    fn condemn() -> Change {
        Change::CondemnPacks { packs: vec![PACK] }
    }

    fn name() -> RefName {
        "team/a/b".parse().unwrap()
    }

    fn set(version: u64) -> Change {
        Change::SetRef {
            name: name(),
            version,
            root: Root::File {
                content: Content::empty(),
                executable: false,
            },
            times: Content::empty(),
            message: format!("version {version}"),
            expires: None,
            origin: None,
            ends: Vec::new(),
            private: false,
        }
    }

    fn drop_ref(version: u64) -> Change {
        Change::DropRef {
            name: name(),
            version,
        }
    }

    fn pin(version: u64, pinned: bool) -> Change {
        Change::Pin {
            name: name(),
            version,
            pinned,
        }
    }

    fn policy(bytes_max: u64) -> Change {
        Change::SetPolicy {
            policy: Policy {
                bytes_max: Some(bytes_max),
                ..Policy::default()
            },
        }
    }

    /// A state with one of everything: a live and a dropped segment, a condemned pack, two versions.
    fn full() -> State {
        let mut state = State::default();
        let other = Change::AddSegment {
            segment: SegmentId([7; 16]),
            info: SegmentInfo::default(),
        };
        state.apply(&entry(1, vec![add(), other, set(1)])).unwrap();
        let drop = Change::DropSegment { segment: SEGMENT };
        let changes = vec![drop, condemn(), set(2), pin(2, true), policy(3)];
        state.apply(&entry(2, changes)).unwrap();
        state
    }

    #[test]
    fn changes_are_folded_in() {
        let mut state = full();
        let condemned = Condemned {
            entry: 2,
            time: time(200),
        };
        assert_eq!(state.number, 2);
        assert_eq!(state.segments.len(), 1);
        assert_eq!(state.dropped, BTreeMap::from([(SEGMENT, condemned)]));
        assert_eq!(state.condemned, BTreeMap::from([(PACK, condemned)]));
        let versions = &state.refs[&name()];
        assert_eq!(versions.last, 2);
        assert_eq!(versions.versions[&1].time, time(100));
        assert!(versions.versions[&2].pinned);
        assert_eq!(versions.versions[&2].message, "version 2");

        let forget = Change::Forget {
            packs: vec![PACK, PackId([77; 16])],
            segments: vec![SEGMENT],
        };
        let changes = vec![condemn(), forget, drop_ref(1), drop_ref(2)];
        state.apply(&entry(3, changes)).unwrap();
        assert!(state.condemned.is_empty() && state.dropped.is_empty());
        assert!(state.refs[&name()].versions.is_empty());
        assert_eq!(state.refs[&name()].last, 2, "numbers are never used again");
        state.apply(&entry(4, vec![set(3)])).unwrap();
    }

    #[test]
    fn a_segment_belongs_to_its_pass_until_a_version_ends_that() {
        let added = |number: u8, pass: u8| Change::AddSegment {
            segment: SegmentId([number; 16]),
            info: SegmentInfo {
                pass: Some(PassId([pass; 16])),
                ..SegmentInfo::default()
            },
        };
        let passes = |state: &State| -> Vec<Option<u8>> {
            let segments = state.segments.values();
            segments
                .map(|info| info.pass.map(|pass| pass.0[0]))
                .collect()
        };
        let mut state = State::default();
        let changes = vec![added(1, 5), added(2, 6), added(3, 5)];
        state.apply(&entry(1, changes)).unwrap();
        assert_eq!(passes(&state), [Some(5), Some(6), Some(5)]);
        let known = Added {
            entry: 1,
            time: time(100),
        };
        assert_eq!(state.segments[&SegmentId([1; 16])].added, Some(known));
        state.apply(&entry(2, vec![set(1)])).unwrap();
        assert_eq!(passes(&state), [Some(5), Some(6), Some(5)]);
        let mut last = set(2);
        if let Change::SetRef { ends, .. } = &mut last {
            ends.push(PassId([5; 16]));
        }
        let before = state.clone();
        let bad = vec![last.clone(), set(9)];
        state.apply(&entry(3, bad)).unwrap_err();
        assert_eq!(state, before, "rolled back");
        state.apply(&entry(3, vec![last])).unwrap();
        assert_eq!(passes(&state), [None, Some(6), None]);
        let bytes = state.encode().unwrap();
        assert_eq!(State::decode("x", &bytes).unwrap(), state);
        assert!(state.agrees_with(&state) && !state.agrees_with(&before));
        // As an older program would have written it.
        let mut old = state.clone();
        for info in old.segments.values_mut() {
            *info = info.totals();
        }
        assert!(old != state && old.agrees_with(&state));
    }

    #[test]
    fn a_pack_condemned_twice_keeps_its_first_grace() {
        let mut state = full();
        state.apply(&entry(3, vec![condemn()])).unwrap();
        assert_eq!(state.condemned[&PACK].entry, 2);
    }

    #[test]
    fn contradictions_are_corrupt_and_change_nothing() {
        let live = SegmentId([7; 16]);
        let new = Change::AddSegment {
            segment: live,
            info: SegmentInfo::default(),
        };
        let drop = Change::DropSegment { segment: live };
        let cases = [
            (
                4,
                vec![],
                "log/000000/00000004: number: expected the one after 2, found 4".to_owned(),
            ),
            (
                3,
                vec![new],
                format!(
                    "log/000000/00000003: change 5: segment {live}: expected a new one, found it before"
                ),
            ),
            (
                3,
                vec![add()],
                format!(
                    "log/000000/00000003: change 5: segment {SEGMENT}: expected a new one, found it before"
                ),
            ),
            (
                3,
                vec![drop.clone(), drop],
                format!(
                    "log/000000/00000003: change 6: segment {live}: expected a live one, found none"
                ),
            ),
            (
                3,
                vec![set(3)],
                "log/000000/00000003: change 5: team/a/b: expected the version after 3, found 3"
                    .to_owned(),
            ),
            (
                3,
                vec![set(5)],
                "log/000000/00000003: change 5: team/a/b: expected the version after 3, found 5"
                    .to_owned(),
            ),
            (
                3,
                vec![drop_ref(9)],
                "log/000000/00000003: change 5: team/a/b@9: expected a live version, found none"
                    .to_owned(),
            ),
            (
                3,
                vec![pin(9, true)],
                "log/000000/00000003: change 5: team/a/b@9: expected a live version, found none"
                    .to_owned(),
            ),
        ];
        for (number, bad, message) in cases {
            let mut state = full();
            let forget = Change::Forget {
                packs: vec![PACK],
                segments: vec![],
            };
            let mut changes = vec![set(3), drop_ref(1), pin(2, false), forget, policy(4)];
            changes.extend(bad);
            let error = state.apply(&entry(number, changes)).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert_eq!(error.to_string(), message);
            assert_eq!(state, full(), "{message}");
        }
    }

    #[test]
    fn a_new_ref_is_rolled_back_whole() {
        let mut state = State::default();
        let changes = vec![set(1), set(2), drop_ref(1), condemn(), drop_ref(1)];
        state.apply(&entry(1, changes)).unwrap_err();
        assert_eq!(state, State::default());
    }

    #[test]
    fn a_checkpoint_survives() {
        let state = full();
        let bytes = state.encode().unwrap();
        assert_eq!(
            State::decode("checkpoints/00000002", &bytes).unwrap(),
            state
        );
        let text = decompress("x", &bytes, SEALED_BYTES_MAX).unwrap();
        assert!(text.starts_with(br#"{"magic":"store-state","version":1,"number":2,"#));
    }

    #[test]
    fn a_checkpoint_that_unfolds_beyond_its_limit_is_refused_before_it_does() {
        let bytes = zstd::bulk::compress(&vec![0; 1 << 20], 3).unwrap();
        assert!(bytes.len() < 1000);
        let error = decompress("x", &bytes, 1 << 19).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: expected at most 524288 bytes once decompressed"
        );
        assert_eq!(decompress("x", &bytes, 1 << 20).unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_checkpoint_with_flipped_or_missing_bytes_is_refused() {
        let bytes = full().encode().unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x55;
            if let Ok(state) = State::decode("x", &flipped) {
                // Bits of zstd's header that say nothing about the content may flip.
                assert_eq!(state, full());
            }
            State::decode("x", &bytes[..at]).unwrap_err();
        }
        let error = State::decode("x", &[&bytes[..], b"!"].concat()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: expected one frame of zstd, found 1 more bytes"
        );
        assert_eq!(
            State::decode("x", b"[]").unwrap_err().to_string(),
            "x: expected one frame of zstd"
        );
    }

    #[test]
    fn a_checkpoint_that_contradicts_itself_is_refused_both_ways() {
        let mut state = full();
        state.number = 1;
        let error = state.encode().unwrap_err();
        assert_eq!(
            error.to_string(),
            "checkpoint: state of entry 1 names later entry 2"
        );
        let text = seal_as(STATE_MAGIC, Some(STATE_VERSION), &state).unwrap();
        let bytes = zstd::bulk::compress(&text, 1).unwrap();
        let error = State::decode("x", &bytes).unwrap_err();
        assert_eq!(error.to_string(), "x: state of entry 1 names later entry 2");
        let mut state = full();
        state.refs.get_mut(&name()).unwrap().last = 1;
        assert_eq!(
            state.encode().unwrap_err().to_string(),
            "checkpoint: team/a/b: expected versions from 1 to 1, found 2"
        );
        let mut state = full();
        state.segments.insert(SEGMENT, SegmentInfo::default());
        assert!(state.encode().is_err());
    }

    #[test]
    fn a_checkpoint_that_promises_too_much_is_not_believed() {
        let bomb = zstd::bulk::compress(&vec![b' '; 300 << 20], 1).unwrap();
        assert!(bomb.len() < 100_000);
        assert!(text_bytes_max(bomb.len()) < 64 << 20);
        let error = State::decode("x", &bomb).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        let expected = format!("expected at most {} bytes", text_bytes_max(bomb.len()));
        assert!(error.to_string().contains(&expected), "{error}");
    }
}
