//! The state of a store: the fold of its log.
//!
//! Folding the same entries always gives the same state, byte for byte. An entry is applied completely or not at all. A
//! checkpoint saves folding; it is derived, so losing it costs time, never data.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::format::{
    Change, EntryText, Extra, Features, LogEntry, Policy, Provenance, ReadAs, Refs, SegmentInfo,
    Trail, Who,
};
use crate::id::{CommitId, EntryId, PackId, SegmentId, StoreId};

/// Everything that the log records, up to and including one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The store of this state; taken from the first entry if it was not known before.
    pub store: StoreId,
    /// Number of the newest entry folded in; 0 before the first.
    pub number: u64,
    /// The id of that entry; none before the first.
    pub entry: Option<EntryId>,
    /// Entries up to this number are lost, and writers of objects in the store may have known them; 0 for none.
    pub until: u64,
    /// Live segments. Their packs offer chunks, except for condemned packs.
    pub segments: BTreeMap<SegmentId, SegmentInfo>,
    /// Dropped segments whose objects may still exist.
    pub dropped: BTreeMap<SegmentId, Condemned>,
    /// Packs that offer nothing any more and whose objects may still exist.
    pub condemned: BTreeMap<PackId, Condemned>,
    /// Refs, including those without versions, because a version number is never used again.
    pub refs: Refs,
    /// The policy that the log holds.
    pub policy: Policy,
    /// Features added since the store was created.
    pub features: Features,
    /// Fields that this program does not know.
    pub extra: Extra,
    /// The text of entry `number`, if it was read.
    pub newest: Newest,
    /// The entries that it was folded from, if they were read.
    pub trail: Trail,
    /// If the log is damaged after this state: why newer entries could not be read.
    pub cut: Cut,
}

/// The text of the last entry of a state. It is ignored when states are compared.
#[derive(Clone, Default)]
pub struct Newest(pub Option<EntryText>);

impl std::fmt::Debug for Newest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let len = self.0.as_ref().map(|text| text.len());
        out.debug_tuple("Newest").field(&len).finish()
    }
}

impl PartialEq for Newest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Newest {}

/// The defect of the log that ends a state which was read as far as possible. It is ignored when states are compared.
#[derive(Clone, Debug, Default)]
pub struct Cut(pub Option<std::sync::Arc<str>>);

impl PartialEq for Cut {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cut {}

/// When a pack was condemned or a segment dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condemned {
    /// The log entry that did it.
    pub entry: u64,
    /// That entry's time; for grace periods, never for safety.
    pub time: Timestamp,
}

impl State {
    /// Returns the provenance for objects of a writer that knows the log up to this state.
    pub fn provenance(&self) -> Provenance {
        Provenance {
            store: self.store,
            began: self.number,
        }
    }

    /// Returns the next entry, with these changes.
    pub fn next(
        &self,
        commit: CommitId,
        time: Timestamp,
        who: Who,
        changes: Vec<Change>,
    ) -> LogEntry {
        LogEntry {
            number: self.number + 1,
            store: self.store,
            prev: self.entry,
            stands_for: None,
            commit,
            time,
            who,
            lost: None,
            until: None,
            changes,
            read_as: ReadAs::default(),
        }
    }

    /// Returns what no valid log can have produced, if anything; does not look at the refs.
    pub(super) fn defect(&self) -> Option<String> {
        if (self.number > 0) != self.entry.is_some() {
            let found = if self.number > 0 { "none" } else { "one" };
            let number = self.number;
            return Some(format!(
                "state of entry {number}: expected its id, found {found}"
            ));
        }
        let both = |id: &&SegmentId| self.segments.contains_key(id);
        if let Some(id) = self.dropped.keys().find(both) {
            return Some(format!(
                "segment {id}: expected live or dropped, found both"
            ));
        }
        let gone = self.dropped.values().chain(self.condemned.values());
        let later = gone.map(|gone| gone.entry).find(|at| *at > self.number)?;
        let number = self.number;
        Some(format!("state of entry {number} names later entry {later}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{Added, Content, RefName, Root, Sides};
    use crate::id::PassId;

    const SEGMENT: SegmentId = SegmentId([1; 16]);
    const PACK: PackId = PackId([2; 16]);

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Entry `number`, to follow [`full`] and similar states. It replaces a lost entry, so that it needs no previous
    /// one.
    fn entry(number: u64, changes: Vec<Change>) -> LogEntry {
        let now = time(i64::try_from(number).unwrap() * 100);
        let mut entry = State::default().next(CommitId([9; 16]), now, Who::default(), changes);
        entry.number = number;
        entry.stands_for = (number > 1).then_some(EntryId([7; 32]));
        entry
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
            sides: Sides::default(),
            message: format!("version {version}"),
            expires: None,
            origin: None,
            ends: Vec::new(),
            private: false,
            extra: Extra::new(),
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

    /// A state with one of everything: a live and a dropped segment, a condemned pack, a ref with two versions.
    fn full() -> State {
        let mut state = State::default();
        let other = Change::AddSegment {
            segment: SegmentId([7; 16]),
            info: SegmentInfo::default(),
        };
        state.apply(&entry(1, vec![add(), other, set(1)])).unwrap();
        let drop = Change::DropSegment {
            segment: SEGMENT,
            into: None,
        };
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
        let versions = &state.refs.all().unwrap()[&name()];
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
        assert!(state.refs.all().unwrap()[&name()].versions.is_empty());
        assert_eq!(
            state.refs.all().unwrap()[&name()].last,
            2,
            "numbers are never used again"
        );
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
    }

    #[test]
    fn a_pack_condemned_twice_keeps_its_first_grace() {
        let mut state = full();
        state.apply(&entry(3, vec![condemn()])).unwrap();
        assert_eq!(state.condemned[&PACK].entry, 2);
    }

    fn fold(segment: SegmentId, into: SegmentId) -> Change {
        Change::DropSegment {
            segment,
            into: Some(into),
        }
    }

    /// Adds the segment that others are folded into.
    fn folded_into() -> Change {
        Change::AddSegment {
            segment: SegmentId([6; 16]),
            info: SegmentInfo::default(),
        }
    }

    #[test]
    fn a_segment_is_folded_into_one_that_its_entry_adds() {
        let (live, into) = (SegmentId([7; 16]), SegmentId([6; 16]));
        let mut state = full();
        let added = state.apply(&entry(3, vec![folded_into(), fold(live, into)]));
        added.unwrap();
        assert_eq!(state.segments.keys().collect::<Vec<_>>(), [&into]);
        assert_eq!(state.dropped[&live].entry, 3);
        let refused = |state: &mut State, number, changes, segment, into| {
            let error = state.apply(&entry(number, changes)).unwrap_err();
            let found = error.to_string();
            let what = "expected to be folded into one that this entry adds";
            let end = format!("segment {segment}: {what}, found {into}");
            assert!(found.ends_with(&end), "{found}");
        };
        refused(&mut full(), 3, vec![fold(live, live)], live, live);
        let none = SegmentId([5; 16]);
        let chain = vec![folded_into(), fold(live, into), fold(into, none)];
        refused(&mut full(), 3, chain, into, none);
        // An earlier entry may be lost, so adding the segment there does not suffice.
        let mut state = full();
        state.apply(&entry(3, vec![folded_into()])).unwrap();
        refused(&mut state, 4, vec![fold(live, into)], live, into);
    }

    #[test]
    fn contradictions_are_corrupt_and_change_nothing() {
        let live = SegmentId([7; 16]);
        let new = Change::AddSegment {
            segment: live,
            info: SegmentInfo::default(),
        };
        let drop = Change::DropSegment {
            segment: live,
            into: None,
        };
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
            assert_eq!(error.kind(), ErrorKind::Corrupt);
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
}
